//! The rings of a card that is wired to itself, against the device's side of them in this process.

use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::{
    layout::{HEADER_LEN, PAGE},
    loop_ring::{FRAME_HEADER_LEN, LoopFrame, LoopRings, PIECES_MAX, Piece, Reaped, Side},
    memory::{BusAddresses, SharedMemory},
};

const WHOLE_HEADER: usize = HEADER_LEN + FRAME_HEADER_LEN;
/// Flags of a descriptor.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// The device's side.
struct Device {
    memory: SharedMemory,
    size: u16,
    taken: [u16; 2],
    used: [u16; 2],
}

fn pair(size: u16) -> (LoopRings, Device) {
    let memory = SharedMemory::new("weft-test", LoopRings::len(size)).unwrap();
    let pages = (0..memory.len() / PAGE).rev().map(|page| (page as u64 + 7) << 12);
    let rings = LoopRings::new(memory.clone(), size, &BusAddresses::of_pages(pages.collect()));
    let device = Device {
        memory,
        size,
        taken: [0; 2],
        used: [0; 2],
    };
    (rings, device)
}

impl Device {
    fn base(side: Side) -> usize {
        match side {
            Side::Receive => 0,
            Side::Transmit => 2 * PAGE,
        }
    }

    /// Where an address of the rings' own is in the memory.
    fn own(&self, address: u64) -> Option<usize> {
        let page = (address >> 12).checked_sub(7)? as usize;
        let pages = self.memory.len() / PAGE;
        (page < pages).then(|| (pages - 1 - page) * PAGE + (address % PAGE as u64) as usize)
    }

    fn descriptor(&self, at: usize) -> (u64, u32, u16, u16) {
        (
            self.memory.long(at).load(Ordering::SeqCst),
            self.memory.word(at + 8).load(Ordering::SeqCst),
            self.memory.half(at + 12).load(Ordering::SeqCst),
            self.memory.half(at + 14).load(Ordering::SeqCst),
        )
    }

    /// Takes the next chain: its head, and its pieces.
    fn take(&mut self, side: Side) -> Option<(u16, Vec<Piece>)> {
        let base = Self::base(side);
        if self.memory.half(base + PAGE + 2).load(Ordering::SeqCst) == self.taken[side as usize] {
            return None;
        }
        let entry = usize::from(self.taken[side as usize] % self.size);
        self.taken[side as usize] = self.taken[side as usize].wrapping_add(1);
        let head = self.memory.half(base + PAGE + 4 + 2 * entry).load(Ordering::SeqCst);
        let (table, len, flags, _) = self.descriptor(base + 16 * usize::from(head));
        assert_eq!(flags, INDIRECT);
        let table = self.own(table).expect("a table of the rings' own");
        let mut pieces = Vec::new();
        let mut number = 0;
        loop {
            assert!(number < len as usize / 16 && pieces.len() <= PIECES_MAX + 2);
            let (address, len, flags, next) = self.descriptor(table + 16 * number);
            assert_eq!(flags & WRITE != 0, side == Side::Receive);
            pieces.push(Piece { address, len });
            if flags & NEXT == 0 {
                return Some((head, pieces));
            }
            number = next.into();
        }
    }

    fn put_back(&mut self, side: Side, head: u16, len: u32) {
        let base = Self::base(side) + PAGE + 1024;
        let entry = base + 4 + 8 * usize::from(self.used[side as usize] % self.size);
        self.memory.word(entry).store(head.into(), Ordering::SeqCst);
        self.memory.word(entry + 4).store(len, Ordering::SeqCst);
        self.used[side as usize] = self.used[side as usize].wrapping_add(1);
        self.memory
            .half(base + 2)
            .store(self.used[side as usize], Ordering::SeqCst);
    }

    /// Gives the next transmit chain back without having sent it, as QEMU does while it has no back end.
    fn drop_one(&mut self) -> bool {
        let taken = self.take(Side::Transmit);
        if let Some((head, _)) = &taken {
            self.put_back(Side::Transmit, *head, 0);
        }
        taken.is_some()
    }

    /// Does the next frame; how many bytes it wrote.
    fn step(&mut self) -> Option<u32> {
        let (to_head, to) = self.take(Side::Receive)?;
        let (head, from) = self.take(Side::Transmit).expect("what goes into the buffer");
        let sum = |pieces: &[Piece]| pieces.iter().map(|piece| piece.len).sum();
        let len: u32 = sum(&to);
        assert_eq!(len, sum(&from));
        self.put_back(Side::Receive, to_head, len);
        self.put_back(Side::Transmit, head, 0);
        Some(len)
    }

    fn polls(&self, polls: bool) {
        let flags = self.memory.half(2 * PAGE + PAGE + 1024);
        flags.store(u16::from(polls), Ordering::SeqCst);
    }
}

fn pieces(lens: &[u32], first: u64) -> Vec<Piece> {
    let places = (first..).step_by(1 << 20);
    places
        .zip(lens)
        .map(|(address, len)| Piece { address, len: *len })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn m_ci1_m_ci2_chains_are_header_data_and_notification(
        frames in proptest::collection::vec((proptest::collection::vec(1u32..5000, 0..=PIECES_MAX), any::<bool>(), any::<u64>()), 1..40),
    ) {
        let (mut rings, mut device) = pair(8);
        for (number, (lens, notifies, value)) in (0u16..).zip(frames) {
            prop_assume!(notifies || !lens.is_empty());
            let (source, destination) = (pieces(&lens, 1 << 40), pieces(&lens, 1 << 41));
            let header = std::array::from_fn(|at| at as u8 ^ number as u8);
            prop_assert_eq!(rings.next_number(), number);
            let variable = 0x77_0000 + 8 * u64::from(number);
            rings.post(&LoopFrame {
                header,
                source: &source,
                destination: &destination,
                notification: notifies.then_some((variable, value)),
            });
            rings.publish();
            let (head, from) = device.take(Side::Transmit).unwrap();
            let (to_head, to) = device.take(Side::Receive).unwrap();
            prop_assert_eq!(head, to_head);
            for (chain, data) in [(&from, &source), (&to, &destination)] {
                prop_assert_eq!(chain[0].len as usize, WHOLE_HEADER);
                prop_assert_eq!(&chain[1..=data.len()], &data[..]);
                prop_assert_eq!(chain.len(), 1 + data.len() + usize::from(notifies));
            }
            let at = device.own(from[0].address).unwrap();
            // SAFETY: the rings' own memory, which nobody writes now.
            let bytes = unsafe { device.memory.slot(at, WHOLE_HEADER) };
            prop_assert!(bytes[..HEADER_LEN].iter().all(|byte| *byte == 0));
            prop_assert_eq!(&bytes[HEADER_LEN..HEADER_LEN + 24], &header[..]);
            prop_assert!(bytes[HEADER_LEN + 24..].iter().all(|byte| *byte == 0));
            prop_assert!(device.own(to[0].address).is_some_and(|returned| returned.abs_diff(at) >= WHOLE_HEADER));
            if notifies {
                let at = device.own(from.last().unwrap().address).unwrap();
                prop_assert_eq!(device.memory.long(at).load(Ordering::SeqCst), value);
                prop_assert_eq!(to.last(), Some(&Piece { address: variable, len: 8 }));
            }
            let len = to.iter().map(|piece| piece.len).sum();
            device.put_back(Side::Receive, head, len);
            prop_assert_eq!(rings.reap(), Ok(Reaped { frames: 0, failed: false }), "the source is still the card's");
            device.put_back(Side::Transmit, head, 0);
            prop_assert_eq!(rings.reap(), Ok(Reaped { frames: 1, failed: false }));
        }
    }
}

fn post(rings: &mut LoopRings) {
    let data = pieces(&[100], 1 << 40);
    rings.post(&LoopFrame {
        header: [0; 24],
        source: &data,
        destination: &data,
        notification: None,
    });
}

#[test]
fn rings_wrap_and_are_never_overfilled() {
    let (mut rings, mut device) = pair(4);
    let mut done = 0;
    // More than all 16-bit numbers.
    for _ in 0..70_000 {
        while rings.room() > 0 {
            post(&mut rings);
        }
        rings.publish();
        assert_eq!(rings.in_flight(), 4);
        device.step();
        done += rings.reap().unwrap().frames;
    }
    assert_eq!(done, 70_000);
}

#[test]
fn m_ci2_frames_that_came_back_unsent_are_sent_again_in_their_order() {
    let (mut rings, mut device) = pair(8);
    let (mut posted, mut done) = (0u32, 0u32);
    // More than all 16-bit numbers; what is lost has every number of frames, and is lost at every place.
    for round in 0..100_000u32 {
        while rings.room() > round as u16 % 5 {
            post(&mut rings);
            posted += 1;
        }
        rings.publish();
        (0..round % 3).for_each(|_| _ = device.step());
        done += rings.reap().unwrap().frames;
        if round % 4 == 0 {
            // Not before all came back: a frame would be in the ring twice.
            if device.drop_one() {
                rings.reap().unwrap();
                let shown = device.memory.half(3 * PAGE + 2).load(Ordering::SeqCst);
                rings.repeat_lost();
                let is_all = rings.in_flight() == 1;
                let is_same = device.memory.half(3 * PAGE + 2).load(Ordering::SeqCst) == shown;
                assert_eq!(is_same, !is_all);
            }
            while device.drop_one() {}
            rings.reap().unwrap();
            rings.repeat_lost();
        }
        // What was not lost is not repeated.
        rings.repeat_lost();
    }
    while device.step().is_some() {}
    done += rings.reap().unwrap().frames;
    assert_eq!((done, rings.in_flight()), (posted, 0));
    assert!(done > 70_000, "{done}");
}

#[test]
fn m_ci2_a_card_that_breaks_the_rules_of_the_rings_is_found_out() {
    type Breaks = fn(&mut Device);
    let broken: [(Breaks, &str); 4] = [
        (|device| device.put_back(Side::Transmit, 1, 0), "another order"),
        (|device| device.put_back(Side::Receive, 9, 0), "another order"),
        (
            |device| (0..3).for_each(|slot| device.put_back(Side::Receive, slot, 176)),
            "more buffers",
        ),
        (|device| device.used = [u16::MAX; 2], ""),
    ];
    for (breaks, what) in broken {
        let (mut rings, mut device) = pair(8);
        (0..2).for_each(|_| post(&mut rings));
        rings.publish();
        breaks(&mut device);
        match rings.reap() {
            Err(found) => assert!(!what.is_empty() && found.contains(what), "{found}"),
            Ok(reaped) => assert!(what.is_empty() && reaped == Reaped::default()),
        }
    }
    // A frame that came back with less in it than it was to have.
    let (mut rings, mut device) = pair(8);
    post(&mut rings);
    rings.publish();
    device.put_back(Side::Receive, 0, 0);
    assert!(rings.reap().unwrap().failed);
}

#[test]
fn the_doorbell_is_rung_for_a_card_that_sleeps_alone() {
    let (mut rings, mut device) = pair(8);
    assert!(!rings.publish(), "nothing was posted");
    post(&mut rings);
    assert!(rings.publish());
    assert!(!rings.wants_late_doorbell());
    device.polls(true);
    post(&mut rings);
    assert!(!rings.publish());
    assert!(!rings.wants_late_doorbell());
    // It fell asleep before it saw that.
    device.polls(false);
    assert!(rings.wants_late_doorbell());
    assert!(!rings.wants_late_doorbell(), "once");
    device.polls(true);
    post(&mut rings);
    assert!(!rings.publish());
    while device.step().is_some() {}
    device.polls(false);
    assert!(!rings.wants_late_doorbell(), "it has all");
}
