//! The rules that a guest's driver must keep on its rings, each with a name, a sentence and a counter.
//!
//! Breaking one fails the guest's own port and nothing else. Frames that are merely odd (too long, bad offload
//! request) break no rule: they are dropped and counted with the port.

use crate::memory::Unreachable;

weft_settings::errors! {
    /// A rule of the virtio specification (sections 2.7 and 5.1) that a driver broke.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(usize)]
    pub enum Rule {
        /// The available index moved by more than the ring holds.
        AvailIndexJump = "avail_index_jump": "moved the available index by more than the ring size",
        /// An available entry names a descriptor beyond the table.
        HeadOutOfRange = "head_out_of_range": "made a descriptor available that is not in the table",
        /// A descriptor's `next` points beyond the table.
        NextOutOfRange = "next_out_of_range": "chained a descriptor that is not in the table",
        /// A chain has more descriptors than the ring, which a loop always has.
        ChainTooLong = "chain_too_long": "made a chain longer than the ring (or a loop)",
        /// A chain of more pieces than [`CHAIN_PIECES_MAX`](super::CHAIN_PIECES_MAX), or receive buffers so scattered that one
        /// frame would take more than [`FRAME_PIECES_MAX`](super::FRAME_PIECES_MAX).
        ChainTooScattered = "chain_too_scattered": "cut a chain into more than 258 pieces, or the buffers for one frame into more than 1024",
        /// An indirect descriptor although INDIRECT_DESC was not negotiated.
        IndirectNotNegotiated = "indirect_not_negotiated": "used an indirect descriptor without having negotiated it",
        /// An indirect descriptor inside an indirect table, or one that also has NEXT.
        IndirectNested = "indirect_nested": "nested an indirect descriptor or chained one",
        /// An indirect table whose length is zero, no multiple of 16, or longer than the ring.
        IndirectLength = "indirect_length": "gave an indirect table a length of zero, no multiple of 16, or more than the ring",
        /// An indirect table outside guest memory.
        IndirectOutsideMemory = "indirect_outside_memory": "placed an indirect table outside its memory",
        /// A buffer outside guest memory.
        BufferOutsideMemory = "buffer_outside_memory": "placed a buffer outside its memory",
        /// A buffer whose address plus length wraps around 2⁶⁴.
        LengthWraps = "length_wraps": "gave a buffer whose end wraps around the address space",
        /// A device-writable descriptor in a transmit chain.
        WritableInTransmit = "writable_in_transmit": "put a device-writable buffer on a transmit ring",
        /// A descriptor the device may not write in a receive chain.
        ReadOnlyInReceive = "read_only_in_receive": "put a read-only buffer on a receive ring",
        /// A transmit chain shorter than the 12-byte header.
        TransmitHeaderTooShort = "transmit_header_too_short": "sent less than the 12 bytes of the virtio-net header",
        /// A receive chain that cannot even hold the 12-byte header.
        ReceiveBufferTooShort = "receive_buffer_too_short": "gave a receive buffer shorter than the virtio-net header",
        /// The ring's tables are not inside guest memory.
        RingOutsideMemory = "ring_outside_memory": "placed a ring outside its memory",
        /// The ring's tables are not aligned as the specification asks.
        RingMisaligned = "ring_misaligned": "placed a ring at an address that is not aligned",
        /// An I/O address for which the guest's IOMMU has no page, or none for this access.
        AddressNotMapped = "address_not_mapped": "gave an I/O address that its IOMMU does not let the card access",
        /// The file behind the guest's memory was truncated.
        MemoryTruncated = "memory_truncated": "had its memory file truncated by the frontend",
    }
}

/// Why a ring or a chain cannot be worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The driver broke a rule.
    Broken(Rule),
    /// A translation is missing, and was noted as such: it can be tried again when the frontend has answered.
    Untranslated,
}

impl From<Rule> for Halt {
    fn from(rule: Rule) -> Self {
        Self::Broken(rule)
    }
}

impl Halt {
    /// What follows from an access that did not work; `outside` is the rule that an address outside all memory breaks.
    #[cold]
    pub fn of(error: Unreachable, outside: Rule) -> Self {
        match error {
            Unreachable::Outside => Self::Broken(outside),
            Unreachable::Untranslated => Self::Untranslated,
        }
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
