//! How the memory of a queue pair is divided: the records of both rings, the rings themselves, and the buffers.
//!
//! ```text
//! page 0       records of the receive ring, then of the transmit ring: which slots the card has (`ring`)
//! pages 1, 2   receive ring: descriptors; available and used ring, and behind them what a program tells the card of itself (`record`)
//! pages 3, 4   transmit ring, likewise
//! pages 5 …    slots of the receive ring, then of the transmit ring: virtio's header, then one frame
//! ```
//!
//! No part of a ring crosses a page, since pages that are neighbours here need not be neighbours for the card. A slot
//! that does has a descriptor for each page that it touches.

use ether::ETHERNET_HEADER_LEN;

/// The page size of all this: that of the machines that have such cards.
pub const PAGE: usize = 4096;
/// Entries of a ring at most: the descriptors of as many fill a page.
pub(super) const RING_SIZE_MAX: u16 = 256;
/// What stands before each frame (`struct virtio_net_hdr_v1`).
pub(super) const HEADER_LEN: usize = 12;
/// A frame may carry a tag besides its header.
const VLAN_TAG_LEN: usize = 4;
/// Frames up to this MTU share a page with another one.
const HALF: usize = PAGE / 2;
/// The longest MTU that a card may state.
pub(super) const MTU_MAX: usize = 65_535;

/// Bytes of the slots of one ring, at most: those of 256 frames of 9000 bytes, which cards with longer ones do not multiply.
const SLOTS_LEN_MAX: usize = 4 << 20;

/// Where the used ring begins behind the available one, in its page: behind its 256 entries, aligned.
const USED_OFFSET: usize = 1024;
/// What a program tells the card stands in the page of the receive ring's indices: the card reaches it wherever it reaches these.
const TOLD_OFFSET: usize = 3584;
/// Its length.
pub(super) const TOLD_LEN: usize = 32;
/// The records of one ring.
const RECORD_LEN: usize = 1024;

/// How the memory of a queue pair is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairLayout {
    /// Entries of each ring, a power of two.
    pub ring_size: u16,
    /// Slots of each ring.
    pub slots: u16,
    /// Descriptors of each slot.
    pub pieces: u16,
    /// Bytes of a slot.
    pub slot_len: u32,
}

/// Where one ring has its parts in the memory of its pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingPlace {
    pub(super) record: usize,
    pub(super) descriptors: usize,
    pub(super) available: usize,
    pub(super) used: usize,
    pub(super) slots: usize,
}

impl PairLayout {
    /// Divides memory for frames of this MTU and rings of at most so many entries. `scattered`: neighbouring pages may
    /// be anywhere for the card.
    pub(super) fn new(mtu: usize, ring_size: u16, scattered: bool) -> Self {
        let needed = HEADER_LEN + ETHERNET_HEADER_LEN + VLAN_TAG_LEN + mtu.min(MTU_MAX);
        let slot_len = if needed <= HALF {
            HALF
        } else {
            needed.next_multiple_of(PAGE)
        };
        let pieces = if scattered { slot_len.div_ceil(PAGE) } else { 1 } as u16;
        // The power of two that is not above it.
        let ring_size = 1 << ring_size.clamp(1, RING_SIZE_MAX).ilog2();
        Self {
            ring_size,
            slots: (ring_size / pieces).min((SLOTS_LEN_MAX / slot_len).max(1) as u16),
            pieces,
            slot_len: slot_len as u32,
        }
    }

    /// Whether memory can be divided like this: for a layout that another process states.
    pub(super) fn is_sound(&self) -> bool {
        let slot_len = self.slot_len as usize;
        self.ring_size.is_power_of_two()
            && self.ring_size <= RING_SIZE_MAX
            && self.slots > 0
            && (slot_len == HALF || slot_len.is_multiple_of(PAGE) && slot_len > 0)
            && slot_len <= (MTU_MAX + PAGE).next_multiple_of(PAGE)
            && (self.pieces == 1 || usize::from(self.pieces) == slot_len.div_ceil(PAGE))
            && u32::from(self.slots) * u32::from(self.pieces) <= u32::from(self.ring_size)
    }

    /// Returns the length of the memory in bytes.
    pub(super) fn len(&self) -> usize {
        (self.transmit().slots + self.slots_len()).next_multiple_of(PAGE)
    }

    /// Returns the bytes of frames that the receive ring holds.
    pub fn receive_len(&self) -> usize {
        self.slots_len()
    }

    /// Returns the longest frame that a slot holds, in bytes.
    #[cfg(test)]
    pub(super) fn frame_len_max(&self) -> usize {
        self.slot_len as usize - HEADER_LEN
    }

    fn slots_len(&self) -> usize {
        (usize::from(self.slots) * self.slot_len as usize).next_multiple_of(PAGE)
    }

    /// Returns where a program tells the card of itself.
    pub(super) fn told(&self) -> usize {
        self.receive().available + TOLD_OFFSET
    }

    pub(super) fn receive(&self) -> RingPlace {
        self.place(0, 5 * PAGE)
    }

    pub(super) fn transmit(&self) -> RingPlace {
        self.place(1, 5 * PAGE + self.slots_len())
    }

    fn place(&self, number: usize, slots: usize) -> RingPlace {
        let page = (1 + 2 * number) * PAGE;
        RingPlace {
            record: number * RECORD_LEN,
            descriptors: page,
            available: page + PAGE,
            used: page + PAGE + USED_OFFSET,
            slots,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn usual_mtus_have_the_slots_that_they_need() {
        let layout = |mtu, scattered| {
            let layout = PairLayout::new(mtu, 256, scattered);
            (layout.slots, layout.pieces, layout.slot_len)
        };
        assert_eq!(layout(1500, true), (256, 1, 2048));
        assert_eq!(layout(9000, true), (85, 3, 12_288));
        assert_eq!(layout(9000, false), (256, 1, 12_288));
        assert_eq!(layout(65_535, false), (60, 1, 69_632));
    }

    proptest! {
        #[test]
        fn parts_do_not_overlap_and_rings_cross_no_page(mtu in 68usize..=65_535, size in 1u16..=1024, scattered: bool) {
            let layout = PairLayout::new(mtu, size, scattered);
            prop_assume!(layout.slots > 0);
            prop_assert!(layout.is_sound(), "{layout:?}");
            prop_assert!(layout.frame_len_max() >= mtu + ETHERNET_HEADER_LEN);
            let size = usize::from(layout.ring_size);
            let mut parts = Vec::new();
            for place in [layout.receive(), layout.transmit()] {
                for (begin, len) in [
                    (place.record, RECORD_LEN),
                    (place.descriptors, 16 * size),
                    (place.available, 6 + 2 * size),
                    (place.used, 6 + 8 * size),
                ] {
                    prop_assert_eq!(begin / PAGE, (begin + len - 1) / PAGE);
                    parts.push((begin, begin + len));
                }
                parts.push((place.slots, place.slots + usize::from(layout.slots) * layout.slot_len as usize));
            }
            parts.push((layout.told(), layout.told() + TOLD_LEN));
            prop_assert!(layout.told().is_multiple_of(TOLD_LEN));
            parts.sort_unstable();
            prop_assert!(parts.windows(2).all(|two| two[0].1 <= two[1].0), "{parts:?}");
            prop_assert!(parts.last().unwrap().1 <= layout.len());
        }

        #[test]
        fn a_layout_that_passes_the_check_has_a_length(ring_size: u16, slots: u16, pieces: u16, slot_len: u32) {
            let layout = PairLayout { ring_size, slots, pieces, slot_len };
            if layout.is_sound() {
                prop_assert!(layout.len() < 1 << 26);
            }
        }
    }
}
