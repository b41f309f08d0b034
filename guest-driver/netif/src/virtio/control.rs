//! The control queue of a card: it tells the device how many queue pairs are in use. It is used once, at the start.

use std::{
    sync::atomic::{Ordering, fence},
    time::{Duration, Instant},
};

use super::{
    layout::PAGE,
    memory::{BusAddresses, SharedMemory},
    registers::QueueAddresses,
};

/// Entries of the queue; a command takes three.
pub(super) const SIZE: u16 = 4;
const AVAILABLE: usize = 1024;
const USED: usize = 2048;
const COMMAND: usize = 3072;
/// Where the device writes whether it obeyed.
const ANSWER: usize = COMMAND + 16;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
/// Class and command that say how many queue pairs are in use (`VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET`).
const PAIRS_SET: [u8; 2] = [4, 0];
/// The device obeyed; it writes something else if not.
const OK: u8 = 0;
const NO_ANSWER: u8 = 0xff;
/// The device answers in microseconds; one that is emulated on a busy machine, later.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_micros(100);

/// Returns where the parts of the queue are for the device, in the page at `page` of the card's memory.
pub(super) fn addresses(bus: &BusAddresses, page: usize) -> QueueAddresses {
    QueueAddresses {
        descriptors: bus.of(page),
        available: bus.of(page + AVAILABLE),
        used: bus.of(page + USED),
    }
}

/// Tells the device how many queue pairs are in use, with the first command of a queue that was just started. Returns
/// what went wrong.
pub(super) fn set_pairs(
    memory: &SharedMemory,
    bus: &BusAddresses,
    page: usize,
    pairs: u16,
    ring_doorbell: impl FnOnce(),
) -> Result<(), &'static str> {
    debug_assert!(page.is_multiple_of(PAGE));
    for (at, byte) in PAIRS_SET.into_iter().chain(pairs.to_le_bytes()).enumerate() {
        memory.byte(page + COMMAND + at).store(byte, Ordering::Relaxed);
    }
    memory.byte(page + ANSWER).store(NO_ANSWER, Ordering::Relaxed);
    let parts = [(COMMAND, 2, NEXT), (COMMAND + 2, 2, NEXT), (ANSWER, 1, WRITE)];
    for (number, (offset, len, flags)) in (0u16..).zip(parts) {
        let at = page + usize::from(number) * 16;
        memory.long(at).store(bus.of(page + offset).to_le(), Ordering::Relaxed);
        memory.word(at + 8).store(u32::to_le(len), Ordering::Relaxed);
        memory.half(at + 12).store(u16::to_le(flags), Ordering::Relaxed);
        memory.half(at + 14).store((number + 1).to_le(), Ordering::Relaxed);
    }
    memory.half(page + AVAILABLE).store(u16::to_le(1), Ordering::Relaxed);
    memory.half(page + AVAILABLE + 4).store(0, Ordering::Relaxed);
    memory
        .half(page + AVAILABLE + 2)
        .store(u16::to_le(1), Ordering::Release);
    fence(Ordering::SeqCst);
    ring_doorbell();
    let until = Instant::now() + ANSWER_LIMIT;
    while u16::from_le(memory.half(page + USED + 2).load(Ordering::Acquire)) != 1 {
        if Instant::now() > until {
            return Err("it does not answer on its control queue");
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    match memory.byte(page + ANSWER).load(Ordering::Acquire) {
        OK => Ok(()),
        _ => Err("it refuses to use several queue pairs"),
    }
}
