//! The rules that a guest's driver must keep on its rings, each with a name, a sentence and a counter.
//!
//! Breaking one fails the guest's own port and nothing else. Frames that are merely odd (too long, bad offload
//! request) break no rule: they are dropped and counted with the port.

use std::fmt;

/// A rule of the virtio specification (sections 2.7 and 5.1) that a driver broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Rule {
    /// The available index moved by more than the ring holds.
    AvailIndexJump,
    /// An available entry names a descriptor beyond the table.
    HeadOutOfRange,
    /// A descriptor's `next` points beyond the table.
    NextOutOfRange,
    /// A chain has more descriptors than the ring, which a loop always has.
    ChainTooLong,
    /// A chain of more pieces than [`CHAIN_PIECES_MAX`](super::CHAIN_PIECES_MAX), or receive buffers so scattered that one
    /// frame would take more than [`FRAME_PIECES_MAX`](super::FRAME_PIECES_MAX).
    ChainTooScattered,
    /// An indirect descriptor although INDIRECT_DESC was not negotiated.
    IndirectNotNegotiated,
    /// An indirect descriptor inside an indirect table, or one that also has NEXT.
    IndirectNested,
    /// An indirect table whose length is zero, no multiple of 16, or longer than the ring.
    IndirectLength,
    /// An indirect table outside guest memory.
    IndirectOutsideMemory,
    /// A buffer outside guest memory.
    BufferOutsideMemory,
    /// A buffer whose address plus length wraps around 2⁶⁴.
    LengthWraps,
    /// A device-writable descriptor in a transmit chain.
    WritableInTransmit,
    /// A descriptor the device may not write in a receive chain.
    ReadOnlyInReceive,
    /// A transmit chain shorter than the 12-byte header.
    TransmitHeaderTooShort,
    /// A receive chain that cannot even hold the 12-byte header.
    ReceiveBufferTooShort,
    /// The ring's tables are not inside guest memory.
    RingOutsideMemory,
    /// The ring's tables are not aligned as the specification asks.
    RingMisaligned,
    /// The file behind the guest's memory was truncated.
    MemoryTruncated,
}

impl Rule {
    /// Every rule, in the order of their numbers.
    pub const ALL: [Self; 18] = [
        Self::AvailIndexJump,
        Self::HeadOutOfRange,
        Self::NextOutOfRange,
        Self::ChainTooLong,
        Self::ChainTooScattered,
        Self::IndirectNotNegotiated,
        Self::IndirectNested,
        Self::IndirectLength,
        Self::IndirectOutsideMemory,
        Self::BufferOutsideMemory,
        Self::LengthWraps,
        Self::WritableInTransmit,
        Self::ReadOnlyInReceive,
        Self::TransmitHeaderTooShort,
        Self::ReceiveBufferTooShort,
        Self::RingOutsideMemory,
        Self::RingMisaligned,
        Self::MemoryTruncated,
    ];

    /// The name in counters and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AvailIndexJump => "avail_index_jump",
            Self::HeadOutOfRange => "head_out_of_range",
            Self::NextOutOfRange => "next_out_of_range",
            Self::ChainTooLong => "chain_too_long",
            Self::ChainTooScattered => "chain_too_scattered",
            Self::IndirectNotNegotiated => "indirect_not_negotiated",
            Self::IndirectNested => "indirect_nested",
            Self::IndirectLength => "indirect_length",
            Self::IndirectOutsideMemory => "indirect_outside_memory",
            Self::BufferOutsideMemory => "buffer_outside_memory",
            Self::LengthWraps => "length_wraps",
            Self::WritableInTransmit => "writable_in_transmit",
            Self::ReadOnlyInReceive => "read_only_in_receive",
            Self::TransmitHeaderTooShort => "transmit_header_too_short",
            Self::ReceiveBufferTooShort => "receive_buffer_too_short",
            Self::RingOutsideMemory => "ring_outside_memory",
            Self::RingMisaligned => "ring_misaligned",
            Self::MemoryTruncated => "memory_truncated",
        }
    }

    /// What the driver did, as a sentence without a subject.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::AvailIndexJump => "moved the available index by more than the ring size",
            Self::HeadOutOfRange => "made a descriptor available that is not in the table",
            Self::NextOutOfRange => "chained a descriptor that is not in the table",
            Self::ChainTooLong => "made a chain longer than the ring (or a loop)",
            Self::ChainTooScattered => {
                "cut a chain into more than 258 pieces, or the buffers for one frame into more than 1024"
            }
            Self::IndirectNotNegotiated => "used an indirect descriptor without having negotiated it",
            Self::IndirectNested => "nested an indirect descriptor or chained one",
            Self::IndirectLength => "gave an indirect table a length of zero, no multiple of 16, or more than the ring",
            Self::IndirectOutsideMemory => "placed an indirect table outside its memory",
            Self::BufferOutsideMemory => "placed a buffer outside its memory",
            Self::LengthWraps => "gave a buffer whose end wraps around the address space",
            Self::WritableInTransmit => "put a device-writable buffer on a transmit ring",
            Self::ReadOnlyInReceive => "put a read-only buffer on a receive ring",
            Self::TransmitHeaderTooShort => "sent less than the 12 bytes of the virtio-net header",
            Self::ReceiveBufferTooShort => "gave a receive buffer shorter than the virtio-net header",
            Self::RingOutsideMemory => "placed a ring outside its memory",
            Self::RingMisaligned => "placed a ring at an address that is not aligned",
            Self::MemoryTruncated => "had its memory file truncated by the frontend",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

/// How often each rule was broken.
#[derive(Clone, Debug, Default)]
pub struct RuleCounters([u64; Rule::ALL.len()]);

impl RuleCounters {
    /// Counts one violation.
    pub fn count(&mut self, rule: Rule) {
        self.0[rule as usize] += 1;
    }

    /// Violations per rule, all rules, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Rule, u64)> + '_ {
        Rule::ALL.iter().map(|&rule| (rule, self.0[rule as usize]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_name_the_limits_in_force() {
        let sentence = Rule::ChainTooScattered.sentence();
        for limit in [super::super::CHAIN_PIECES_MAX, super::super::FRAME_PIECES_MAX] {
            assert!(sentence.contains(&format!("more than {limit}")), "{sentence}");
        }
    }

    #[test]
    fn every_rule_stands_at_its_own_number() {
        for (number, rule) in Rule::ALL.iter().enumerate() {
            assert_eq!(*rule as usize, number);
        }
    }
}
