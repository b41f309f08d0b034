//! Packets that an interrupt has taken from the port, whatever the program does with its interrupts meanwhile.

use std::{
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use ether::MacAddr;
use lci_port::{Lci, Options};
use netif::{Interest, MemoryPort, Netif, NetifCounters, NetifError, Wake, memory_pair};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

const LIMIT: Duration = Duration::from_secs(20);
const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
/// Bytes of the packet, which no frame of the protocol's own has.
const LEN: usize = 1_000;

/// Where a port stops.
struct Gate {
    armed: Arc<AtomicBool>,
    taken: Sender<()>,
    go_on: Receiver<()>,
}

/// A port that stops at the frame of a packet, after it was taken.
struct GatedPort {
    port: MemoryPort,
    gate: Option<Gate>,
}

impl AsFd for GatedPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

impl Netif for GatedPort {
    fn mac(&self) -> MacAddr {
        self.port.mac()
    }

    fn mtu(&self) -> usize {
        self.port.mtu()
    }

    fn poll_receive(&mut self) -> Result<Option<&[u8]>, NetifError> {
        let frame = self.port.poll_receive()?;
        if let Some(gate) = &self.gate
            && frame.is_some_and(|frame| frame.len() > LEN)
            && gate.armed.swap(false, Ordering::SeqCst)
        {
            gate.taken.send(()).unwrap();
            gate.go_on.recv().unwrap();
        }
        Ok(frame)
    }

    fn send_burst(&mut self, frames: &[&[IoSlice<'_>]]) -> Result<usize, NetifError> {
        self.port.send_burst(frames)
    }

    fn wait(
        &mut self,
        interest: Interest,
        deadline: Instant,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Wake, NetifError> {
        self.port.wait(interest, deadline, stop)
    }

    fn counters(&mut self) -> NetifCounters {
        self.port.counters()
    }
}

/// A port without interrupts: its descriptor becomes readable a while after it was asked in vain, and only then.
struct LookedAt {
    port: MemoryPort,
    timer: OwnedFd,
}

impl AsFd for LookedAt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

impl Netif for LookedAt {
    fn mac(&self) -> MacAddr {
        self.port.mac()
    }

    fn mtu(&self) -> usize {
        self.port.mtu()
    }

    fn poll_receive(&mut self) -> Result<Option<&[u8]>, NetifError> {
        self.port.poll_receive()
    }

    fn send_burst(&mut self, frames: &[&[IoSlice<'_>]]) -> Result<usize, NetifError> {
        self.port.send_burst(frames)
    }

    fn wait(
        &mut self,
        interest: Interest,
        deadline: Instant,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Wake, NetifError> {
        let wake = self.port.wait(interest, deadline, stop)?;
        if matches!(wake, Wake::Deadline) {
            let it_value = Timespec {
                tv_sec: 0,
                tv_nsec: 1_000_000,
            };
            let once = Itimerspec {
                it_interval: Timespec::default(),
                it_value,
            };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).unwrap();
        }
        Ok(wake)
    }

    fn counters(&mut self) -> NetifCounters {
        self.port.counters()
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "{what}");
        thread::yield_now();
    }
}

#[test]
fn m_bv9_a_packet_taken_while_interrupts_were_disabled_is_delivered_when_they_are_enabled() {
    let options = Options {
        // Only frames interrupt.
        watchdog: Duration::ZERO,
        clock_period: Duration::from_secs(3_600),
        ..Options::default()
    };
    let (first, second) = memory_pair(MACS, 9_000, 64).unwrap();
    let (taken, was_taken) = channel();
    let (may_go_on, go_on) = channel();
    let armed = Arc::new(AtomicBool::new(true));
    let gate = Gate {
        armed: armed.clone(),
        taken,
        go_on,
    };
    let ready = Barrier::new(2);
    let (done, is_done) = channel::<()>();
    thread::scope(|scope| {
        let (ready, options) = (&ready, &options);
        scope.spawn(move || {
            let port = GatedPort {
                port: first,
                gate: None,
            };
            let node = Lci::over(Box::new(port), &MACS, options).unwrap();
            node.set_upcall(|_, _| {});
            ready.wait();
            node.unicast(1, node.allocate(), LEN).unwrap();
            // Who does not poll sends nothing again.
            let _ = is_done.recv();
            node.finalize();
        });
        let port = GatedPort {
            port: second,
            gate: Some(gate),
        };
        let node = Lci::over(Box::new(port), &MACS, options).unwrap();
        let received = Arc::new(AtomicU64::new(0));
        let count = received.clone();
        node.set_upcall(move |_, _| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        node.enable_interrupts().unwrap();
        ready.wait();
        was_taken.recv_timeout(LIMIT).unwrap();
        node.disable_interrupts();
        may_go_on.send(()).unwrap();
        until("the handler finds interrupts disabled", || {
            node.statistics().interrupts.suppressed > 0
        });
        assert_eq!(received.load(Ordering::SeqCst), 0);
        node.enable_interrupts().unwrap();
        until("the packet", || received.load(Ordering::SeqCst) == 1);
        node.disable_interrupts();
        drop(done);
        node.finalize();
    });
}

#[test]
fn m_bv8_a_port_without_interrupts_is_looked_at_as_long_as_the_program_does_not_poll() {
    let options = Options {
        // Only frames interrupt.
        clock_period: Duration::from_secs(3_600),
        ..Options::default()
    };
    let (first, second) = memory_pair(MACS, 9_000, 64).unwrap();
    let ready = Barrier::new(2);
    let (done, is_done) = channel::<()>();
    thread::scope(|scope| {
        let (ready, options) = (&ready, &options);
        scope.spawn(move || {
            let node = Lci::over(Box::new(first), &MACS, options).unwrap();
            node.set_upcall(|_, _| {});
            ready.wait();
            for _ in 0..2 {
                // Long enough for the other to have looked in vain.
                thread::sleep(Duration::from_millis(20));
                node.unicast(1, node.allocate(), LEN).unwrap();
            }
            let _ = is_done.recv();
            node.finalize();
        });
        let clock = TimerfdClockId::Monotonic;
        let timer = timerfd_create(clock, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK).unwrap();
        let port = LookedAt { port: second, timer };
        let node = Lci::over(Box::new(port), &MACS, options).unwrap();
        let received = Arc::new(AtomicU64::new(0));
        let count = received.clone();
        node.set_upcall(move |_, _| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        node.enable_interrupts().unwrap();
        ready.wait();
        until("both packets", || received.load(Ordering::SeqCst) == 2);
        node.disable_interrupts();
        drop(done);
        node.finalize();
    });
}

#[test]
fn m_bv2_a_packet_to_oneself_interrupts_a_program_that_does_not_poll() {
    let options = Options {
        // Only packets interrupt.
        clock_period: Duration::from_secs(3_600),
        ..Options::default()
    };
    let (first, second) = memory_pair(MACS, 9_000, 64).unwrap();
    let (done, is_done) = channel::<()>();
    thread::scope(|scope| {
        let options = &options;
        scope.spawn(move || {
            let node = Lci::over(Box::new(first), &MACS, options).unwrap();
            let _ = is_done.recv();
            node.finalize();
        });
        let node = Lci::over(Box::new(second), &MACS, options).unwrap();
        let received = Arc::new(AtomicU64::new(0));
        let count = received.clone();
        node.set_upcall(move |_, _| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        node.enable_interrupts().unwrap();
        node.unicast(1, node.allocate(), LEN).unwrap();
        until("a packet that was sent with interrupts enabled", || {
            received.load(Ordering::SeqCst) == 1
        });
        node.disable_interrupts();
        node.unicast(1, node.allocate(), LEN).unwrap();
        node.enable_interrupts().unwrap();
        until("a packet that was sent before", || received.load(Ordering::SeqCst) == 2);
        node.disable_interrupts();
        drop(done);
        node.finalize();
    });
}
