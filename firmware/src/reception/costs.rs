//! What the polling schemes cost: a stream of messages from a sending host to a polling one, in virtual time.
//!
//! Three stages work side by side, each on one packet at a time: the sending host, the receiving card, the receiving host. All
//! times are integers; nothing is random.

use ether::Time;

use super::{PAYLOAD_MAX, PollPlace, PollingScheme};

/// The cost model of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceptionCosts {
    /// What the sender needs for a packet, in nanoseconds, besides its bytes.
    pub send_packet_ns: u64,
    /// At what rate the sender moves payload into its card, in bytes per second; 0 = unlimited.
    pub send_bytes_per_s: u64,
    /// What the receiving card needs for a packet besides its DMAs, in nanoseconds.
    pub card_packet_ns: u64,
    /// Set-up of one DMA, in nanoseconds.
    pub dma_setup_ns: u64,
    /// Rate of the DMA, in bytes per second; 0 = unlimited.
    pub dma_bytes_per_s: u64,
    /// A poll of a cached word that finds nothing, in nanoseconds.
    pub poll_cached_failed_ns: u64,
    /// A poll of a cached word that finds a packet: a cache miss, in nanoseconds.
    pub poll_cached_success_ns: u64,
    /// A poll over the I/O bus, whatever it finds, in nanoseconds.
    pub poll_io_ns: u64,
    /// What the receiving host needs for a packet after the poll, in nanoseconds.
    pub host_packet_ns: u64,
}

impl ReceptionCosts {
    /// A node of the paper: 200 MHz Pentium Pro, 33 MHz 32-bit PCI, LANai 4.1.
    ///
    /// The polls are R-BV1. The DMA moves close to the bus's 132 MB/s, and its set-up takes as long as half a buffer does: that
    /// is where double DMA costs as much as a full packet, which is where the paper splits them (512 of 1024 bytes). What is
    /// done for each packet besides is chosen so that the receiving card, which the schemes differ in, is the slowest stage.
    pub const LCI: Self = Self {
        send_packet_ns: 2_000,
        send_bytes_per_s: 100_000_000,
        card_packet_ns: 2_000,
        dma_setup_ns: 4_000,
        dma_bytes_per_s: 128_000_000,
        poll_cached_failed_ns: 5,
        poll_cached_success_ns: 74,
        poll_io_ns: 467,
        host_packet_ns: 1_000,
    };

    fn poll_ns(&self, place: PollPlace) -> (u64, u64) {
        match place {
            PollPlace::CachedWord => (self.poll_cached_failed_ns, self.poll_cached_success_ns),
            PollPlace::CardMemory => (self.poll_io_ns, self.poll_io_ns),
        }
    }
}

fn transfer_ns(len: u32, bytes_per_s: u64) -> u64 {
    let ns_bytes = u64::from(len).saturating_mul(1_000_000_000);
    ns_bytes.checked_div(bytes_per_s).unwrap_or(0)
}

/// What a stream came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOutcome {
    /// Payload that the host processed, in bytes.
    pub payload_bytes: u64,
    /// Packets.
    pub packets: u64,
    /// From the first packet sent to the last processed, in nanoseconds.
    pub elapsed_ns: u64,
    /// DMAs to the host.
    pub dma_transactions: u64,
    /// What they moved, in bytes.
    pub dma_bytes: u64,
    /// Polls that found nothing.
    pub polls_failed: u64,
    /// Polls that crossed the I/O bus.
    pub polls_io: u64,
}

impl StreamOutcome {
    /// Payload per second.
    pub fn bytes_per_s(&self) -> u64 {
        let bytes = u128::from(self.payload_bytes) * 1_000_000_000;
        bytes
            .checked_div(self.elapsed_ns.into())
            .map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

/// A running stream: packets go in one after the other, each stage takes them in order.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    scheme: PollingScheme,
    costs: ReceptionCosts,
    sender_free: Time,
    card_free: Time,
    host_free: Time,
    outcome: StreamOutcome,
}

impl Stream {
    /// Nothing sent yet.
    pub fn new(scheme: PollingScheme, costs: ReceptionCosts) -> Self {
        Self {
            scheme,
            costs,
            sender_free: Time::ZERO,
            card_free: Time::ZERO,
            host_free: Time::ZERO,
            outcome: StreamOutcome::default(),
        }
    }

    /// Sends a message of `len` bytes, cut into packets of [`PAYLOAD_MAX`].
    pub fn message(&mut self, len: u32) {
        let mut left = len;
        loop {
            let payload = left.min(PAYLOAD_MAX);
            self.packet(payload);
            left -= payload;
            if left == 0 {
                return;
            }
        }
    }

    /// Sends one packet as soon as the sender can; gives the time at which the receiving host has processed it.
    pub fn packet(&mut self, payload_len: u32) -> Time {
        let Self { costs, scheme, .. } = *self;
        let send_ns = costs.send_packet_ns + transfer_ns(payload_len, costs.send_bytes_per_s);
        self.sender_free = self.sender_free.plus_nanos(send_ns);
        let mut at = self.card_free.max(self.sender_free).plus_nanos(costs.card_packet_ns);
        for transaction in scheme.transactions(payload_len).as_slice() {
            at = at.plus_nanos(costs.dma_setup_ns + transfer_ns(transaction.len, costs.dma_bytes_per_s));
            self.outcome.dma_transactions += 1;
            self.outcome.dma_bytes += u64::from(transaction.len);
        }
        self.card_free = at;
        let (failed_ns, success_ns) = costs.poll_ns(scheme.poll());
        // The host polls all the time; the first poll that begins after the packet is there finds it.
        let failed = at.nanos_since(self.host_free).div_ceil(failed_ns.max(1));
        self.host_free = self
            .host_free
            .plus_nanos(failed * failed_ns.max(1) + success_ns + costs.host_packet_ns);
        self.outcome.polls_failed += failed;
        if scheme.poll() == PollPlace::CardMemory {
            self.outcome.polls_io += failed + 1;
        }
        self.outcome.packets += 1;
        self.outcome.payload_bytes += u64::from(payload_len);
        self.outcome.elapsed_ns = self.host_free.as_nanos();
        self.host_free
    }

    /// What came of it so far.
    pub fn outcome(&self) -> StreamOutcome {
        self.outcome
    }
}
