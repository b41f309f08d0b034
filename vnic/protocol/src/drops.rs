//! Why frames are dropped at a port: each reason with its name in counters and JSON, and its code in the records of a trace.

weft_settings::named! {
    /// Why a frame towards a guest was dropped at its port.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RxDrop {
        /// The driver posted no buffers for longer than the hold time.
        NoBuffer = "no_buffer",
        /// Without mergeable buffers, the next buffer was too short.
        BufferTooSmall = "buffer_too_small",
        /// No receive ring is started (no guest, or its driver is down). What a switch sends by itself is not among them.
        NotReady = "not_ready",
        /// The frame is longer than the port's or link's MTU.
        TooLong = "too_long",
        /// The sending port has used up its share of the pool of waiting frames.
        PoolShare = "pool_share",
        /// The link's model dropped it (see the link's counters).
        Link = "link",
        /// It must be cut for this port, and its headers are not what the sender's card was promised.
        BadOffload = "bad_offload",
        /// A frame between cards that the card refused (see its counters of multicast).
        CardRefused = "card_refused",
    }
}

weft_settings::named! {
    /// Why a frame from a guest was dropped at its port.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TxDrop {
        /// Shorter than an Ethernet header.
        Runt = "runt",
        /// Longer than the port's MTU.
        TooLong = "too_long",
        /// The virtio-net header asks for what was not negotiated or does not fit.
        BadOffload = "bad_offload",
        /// The sending port has used up its share of the pool of waiting frames.
        PoolShare = "pool_share",
        /// The link's model dropped it (see the link's counters).
        Link = "link",
        /// A request to the card that it does not answer, or a packet for a group that it refused (see its counters of control
        /// frames and of multicast).
        CardRefused = "card_refused",
    }
}

/// Set in the code of a dropped frame that the guest sent; the others were for the guest.
pub const TRACED_TX_DROP: u8 = 0x80;

/// The direction of a dropped frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropAt {
    /// Towards the guest.
    Rx,
    /// From the guest.
    Tx,
}

/// What the code in a record of a dropped frame says: the direction, and the reason as in `stats`.
pub fn drop_reason(code: u8) -> Option<(DropAt, &'static str)> {
    let index = usize::from(code & !TRACED_TX_DROP);
    if code & TRACED_TX_DROP == 0 {
        RxDrop::ALL.get(index).map(|reason| (DropAt::Rx, reason.name()))
    } else {
        TxDrop::ALL.get(index).map(|reason| (DropAt::Tx, reason.name()))
    }
}
