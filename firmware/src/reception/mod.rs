//! Five methods that tell a polling host that a packet is there (`papers.md` M-BV3, M-BV4), as sequences of modelled DMA
//! transactions and a kind of poll. They are for a simulated host: a virtio ring prescribes one method, so no live card chooses here.
//!
//! What they cost is in `costs`. No byte is moved: sizes and addresses are what the card decides.

mod costs;

pub use costs::{ReceptionCosts, Stream, StreamOutcome};

/// Payload that a packet carries at most, and the buffer for it in the card: LCI's 1 KiB.
pub const PAYLOAD_MAX: u32 = 1024;
/// The length of the status word, and of the displacement word.
pub const WORD_LEN: u32 = 4;
/// The length of a host receive buffer: the largest payload, the displacement word and, last, the status word.
pub const HOST_BUFFER_LEN: u32 = PAYLOAD_MAX + 2 * WORD_LEN;
/// Payload from which static split sends the full packet.
pub const SPLIT_LEN: u32 = 512;

weft_settings::named! {
    /// How the card tells the host that a packet is there.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum PollingScheme, or UnknownPollingScheme listing "not a polling scheme; known are" {
        /// M-BV3: one DMA of payload, displacement and status word to the *end* of the buffer. The host polls a fixed address in
        /// its cache and finds the start of the payload by the displacement.
        PacketShifting = "packet-shifting",
        /// One DMA of the payload; the host reads a counter in the card's memory over the I/O bus.
        ProgrammedIo = "programmed-io",
        /// One DMA of the whole buffer, whatever the payload; the status word is its last.
        FullPacket = "full-packet",
        /// A DMA of the payload, then one of the status word.
        DoubleDma = "double-dma",
        /// Double DMA below [`SPLIT_LEN`], full packet from there on.
        StaticSplit = "static-split",
    }
}

impl PollingScheme {
    /// Where the host polls for a packet.
    pub const fn poll(self) -> PollPlace {
        match self {
            Self::ProgrammedIo => PollPlace::CardMemory,
            _ => PollPlace::CachedWord,
        }
    }

    /// What the card transfers for a packet of `payload_len` bytes (more than [`PAYLOAD_MAX`] counts as that many), in order.
    /// The host may see the packet when the last one is complete.
    pub const fn transactions(self, payload_len: u32) -> Transactions {
        let payload_len = if payload_len > PAYLOAD_MAX {
            PAYLOAD_MAX
        } else {
            payload_len
        };
        match self {
            Self::PacketShifting => {
                let len = payload_len + 2 * WORD_LEN;
                Transactions::one(Transaction {
                    address: HostAddress::BufferOffset(HOST_BUFFER_LEN - len),
                    len,
                    displacement: Some(HOST_BUFFER_LEN - len),
                    ends_with_status: true,
                })
            }
            Self::ProgrammedIo => Transactions::one(Transaction::payload(payload_len)),
            Self::FullPacket => Transactions::one(Transaction {
                address: HostAddress::BufferOffset(0),
                len: HOST_BUFFER_LEN,
                displacement: None,
                ends_with_status: true,
            }),
            Self::DoubleDma => Transactions {
                list: [Transaction::payload(payload_len), Transaction::STATUS],
                count: 2,
            },
            Self::StaticSplit if payload_len < SPLIT_LEN => Self::DoubleDma.transactions(payload_len),
            Self::StaticSplit => Self::FullPacket.transactions(payload_len),
        }
    }
}

/// Where the host polls for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollPlace {
    /// The status word at the end of the buffer at the head of the queue, in the host's cache until the card writes it.
    CachedWord,
    /// A counter in the card's memory: every poll crosses the I/O bus.
    CardMemory,
}

/// An address that the card writes by DMA, relative to the host's receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostAddress {
    /// So many bytes from the start of the buffer.
    BufferOffset(u32),
    /// The status word, the last of the buffer.
    StatusWord,
}

impl HostAddress {
    /// In bytes from the start of the buffer.
    pub const fn offset(self) -> u32 {
        match self {
            Self::BufferOffset(offset) => offset,
            Self::StatusWord => HOST_BUFFER_LEN - WORD_LEN,
        }
    }
}

/// One DMA to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Where it begins.
    pub address: HostAddress,
    /// How many bytes it moves.
    pub len: u32,
    /// What its displacement word says, if it has one: where the payload begins in the buffer.
    pub displacement: Option<u32>,
    /// Its last word is the status word, and says FULL.
    pub ends_with_status: bool,
}

impl Transaction {
    const STATUS: Self = Self {
        address: HostAddress::StatusWord,
        len: WORD_LEN,
        displacement: None,
        ends_with_status: true,
    };

    const fn payload(len: u32) -> Self {
        Self {
            address: HostAddress::BufferOffset(0),
            len,
            displacement: None,
            ends_with_status: false,
        }
    }
}

/// The transactions of one packet: one or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transactions {
    list: [Transaction; 2],
    count: usize,
}

impl Transactions {
    const fn one(transaction: Transaction) -> Self {
        Self {
            list: [transaction; 2],
            count: 1,
        }
    }

    /// In order.
    pub fn as_slice(&self) -> &[Transaction] {
        &self.list[..self.count]
    }
}
