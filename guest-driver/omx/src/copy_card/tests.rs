//! The engine over a card in this process that copies when the test says so, and knows memory by the process's own addresses.

use std::{
    collections::VecDeque,
    io,
    ptr::NonNull,
    sync::{Arc, Mutex},
};

use ether::MacAddr;
use icopy::{LoopFrame, PAGE, Piece, Reaped, VirtioError};

use super::*;

/// A frame that the card has.
struct Posted {
    source: Vec<Piece>,
    destination: Vec<Piece>,
    notification: Option<(u64, u64)>,
}

#[derive(Default)]
struct State {
    posted: VecDeque<Posted>,
    done: u32,
    number: u16,
    /// How often it was told to begin, and how many notifications were asked for.
    publishes: u32,
    notifications: u32,
    /// It breaks a rule with its next answer.
    breaks: bool,
    stopped: bool,
    /// This process is a child of the one that has it.
    is_foreign: bool,
}

#[derive(Clone, Default)]
struct Card(Arc<Mutex<State>>);

impl Card {
    /// Makes copies, and returns how many frames that were.
    fn copy_all(&self) -> usize {
        let mut state = self.0.lock().unwrap();
        let frames = std::mem::take(&mut state.posted);
        state.done += frames.len() as u32;
        for frame in &frames {
            let bytes = |pieces: &[Piece]| -> Vec<u64> {
                pieces
                    .iter()
                    .flat_map(|piece| (0..u64::from(piece.len)).map(|byte| piece.address + byte))
                    .collect()
            };
            for (from, to) in bytes(&frame.source).into_iter().zip(bytes(&frame.destination)) {
                // SAFETY: memory of the test that it registered, whose addresses the card knows as the process does.
                unsafe { (to as *mut u8).write_volatile((from as *const u8).read_volatile()) };
            }
            if let Some((variable, value)) = frame.notification {
                // SAFETY: as above; the engine's own variable.
                unsafe { (variable as *mut u64).write_volatile(value) };
            }
        }
        frames.len()
    }
}

impl Backend for Card {
    type Hold = ();

    fn is_own(&self) -> bool {
        !self.0.lock().unwrap().is_foreign
    }

    fn mac(&self) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, 9])
    }

    fn frame_data_max(&self) -> usize {
        65_535
    }

    fn pin(&mut self, base: NonNull<u8>, len: usize) -> io::Result<(Vec<u64>, ())> {
        let first = base.as_ptr().expose_provenance() as u64;
        Ok(((0..len / PAGE).map(|page| first + (page * PAGE) as u64).collect(), ()))
    }

    fn unpin(&mut self, _hold: ()) -> io::Result<()> {
        Ok(())
    }

    fn physical_pages(&self, base: NonNull<u8>, len: usize) -> Option<Vec<u64>> {
        let first = base.addr().get() as u64;
        Some((0..len / PAGE).map(|page| first + (page * PAGE) as u64).collect())
    }

    fn room(&self) -> u16 {
        256 - self.0.lock().unwrap().posted.len() as u16
    }

    fn next_number(&self) -> u16 {
        self.0.lock().unwrap().number
    }

    unsafe fn post(&mut self, frame: &LoopFrame<'_>) {
        let mut state = self.0.lock().unwrap();
        state.number = state.number.wrapping_add(1);
        state.notifications += u32::from(frame.notification.is_some());
        state.posted.push_back(Posted {
            source: frame.source.to_vec(),
            destination: frame.destination.to_vec(),
            notification: frame.notification,
        });
    }

    fn publish(&mut self) {
        self.0.lock().unwrap().publishes += 1;
    }

    fn remind(&mut self) {}

    fn reap(&mut self) -> Result<Reaped, VirtioError> {
        let mut state = self.0.lock().unwrap();
        if state.breaks {
            return Err(VirtioError::Broken {
                address: "0000:00:05.0".parse().unwrap(),
                what: "it does what it likes",
            });
        }
        let frames = std::mem::take(&mut state.done);
        Ok(Reaped { frames, failed: false })
    }

    fn stop(&mut self) {
        let mut state = self.0.lock().unwrap();
        state.stopped = true;
        state.posted.clear();
    }
}

/// Frames of a port, a program's memory, and an engine that knows both.
struct Copies {
    card: Card,
    engine: CardEngine<Card>,
    frames: Memory,
    buffer: Memory,
    name: u64,
}

const PACKET_LEN: usize = 8000;
const PACKETS: usize = 40;

fn copies() -> Copies {
    let card = Card::default();
    let mut other = Engine::with(Card::default(), &Options::default());
    let mut memory = || other.allocate(PACKETS * PACKET_LEN, Use::Program).unwrap();
    let (frames, buffer) = (memory(), memory());
    let mut engine = CardEngine::with(Engine::with(card.clone(), &Options::default())).unwrap();
    let data: Vec<u8> = (0..PACKETS * PACKET_LEN).map(|at| (at % 249) as u8).collect();
    frames.write(0, &data);
    // SAFETY: both outlive the engine, and are read and written by raw copies alone.
    let name = unsafe {
        engine.register_frames(frames.as_ptr(), (PACKETS * PACKET_LEN).next_multiple_of(PAGE));
        engine.register(buffer.as_ptr(), buffer.len()).unwrap()
    };
    Copies {
        card,
        engine,
        frames,
        buffer,
        name,
    }
}

impl Copies {
    fn submit(&mut self, packets: Range<usize>) {
        for packet in packets {
            let at = packet * PACKET_LEN;
            // SAFETY: each place is written by one copy, and read after that is finished.
            assert!(unsafe { self.engine.submit(self.frames.at(at), self.buffer.at(at), PACKET_LEN) });
        }
    }

    /// How many packets have arrived from the first on, and that nothing else did.
    fn arrived(&self) -> usize {
        let mut bytes = [0; 2].map(|_| vec![0; PACKETS * PACKET_LEN]);
        self.frames.read(0, &mut bytes[0]);
        self.buffer.read(0, &mut bytes[1]);
        let mut packets = bytes[1].chunks(PACKET_LEN).zip(bytes[0].chunks(PACKET_LEN));
        let arrived = packets.by_ref().take_while(|(is, was)| is == was).count();
        assert!(bytes[1][arrived * PACKET_LEN..].iter().all(|byte| *byte == 0));
        arrived
    }
}

#[test]
fn m_ci4_copies_are_told_together_and_the_last_alone_stores_its_number() {
    let mut copies = copies();
    copies.submit(0..3);
    assert!(copies.card.0.lock().unwrap().posted.is_empty(), "more may come");
    copies.engine.start();
    {
        let state = copies.card.0.lock().unwrap();
        assert_eq!(
            (state.publishes, state.notifications),
            (1, 1),
            "one doorbell, one notification"
        );
    }
    assert_eq!(copies.engine.finished(), 0);
    assert!(copies.card.copy_all() > 0);
    assert_eq!((copies.engine.finished(), copies.arrived()), (3, 3));
    // Many are told as they come, in lists.
    copies.submit(3..PACKETS);
    copies.engine.start();
    let notifications = copies.card.0.lock().unwrap().notifications as usize;
    assert!(notifications > 2 && notifications < PACKETS / 3, "{notifications}");
    copies.card.copy_all();
    assert_eq!((copies.engine.finished(), copies.arrived()), (PACKETS as u64, PACKETS));
}

#[test]
fn m_om_a_what_a_card_that_fails_has_not_copied_the_processor_copies() {
    for told in [true, false] {
        let mut copies = copies();
        copies.submit(0..3);
        copies.engine.start();
        copies.card.copy_all();
        assert_eq!(copies.engine.finished(), 3);
        copies.submit(3..5);
        if told {
            copies.engine.start();
        }
        copies.card.0.lock().unwrap().breaks = true;
        copies.engine.wait(5);
        assert_eq!((copies.engine.finished(), copies.arrived()), (5, 5));
        assert!(copies.card.0.lock().unwrap().stopped, "it touches no memory any more");
        // SAFETY: it takes nothing.
        assert!(!unsafe {
            copies
                .engine
                .submit(copies.frames.at(0), copies.buffer.at(0), PACKET_LEN)
        });
        // SAFETY: as above.
        assert!(unsafe { copies.engine.register(copies.buffer.as_ptr(), 8) }.is_none());
        copies.engine.unregister(copies.name);
    }
}

#[test]
fn m_om_a_a_child_of_the_process_copies_nothing_and_leaves_the_card_alone() {
    let mut copies = copies();
    copies.submit(0..5);
    copies.card.0.lock().unwrap().is_foreign = true;
    copies.engine.wait(5);
    assert_eq!((copies.engine.finished(), copies.arrived()), (5, 0));
    // SAFETY: it takes nothing.
    assert!(!unsafe {
        copies
            .engine
            .submit(copies.frames.at(0), copies.buffer.at(0), PACKET_LEN)
    });
}

#[test]
fn m_om_a_frames_in_memory_that_the_card_does_not_know_are_the_processor_s() {
    let mut copies = copies();
    let elsewhere = vec![0u8; PACKET_LEN];
    for from in [
        elsewhere.as_ptr(),
        copies.frames.at(PACKETS * PACKET_LEN - 8).cast_const(),
    ] {
        let len = 2 * PAGE;
        // SAFETY: it takes nothing.
        assert!(!unsafe { copies.engine.submit(from, copies.buffer.at(0), len) });
    }
    // A number that the card cannot have stored yet finishes nothing.
    copies.submit(0..2);
    copies.engine.start();
    copies.card.0.lock().unwrap().posted.clear();
    // SAFETY: the engine's own variable, which no card writes to now.
    unsafe { copies.engine.made.variable(0).write_volatile(3) };
    assert_eq!(copies.engine.finished(), 0);
}
