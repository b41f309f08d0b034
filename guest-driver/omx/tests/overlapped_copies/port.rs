//! Ports joined in memory over a wire that loses, doubles and reorders frames, and that count what they lend.

use std::{
    collections::VecDeque,
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex},
    time::Instant,
};

use ether::MacAddr;
use netif::{FrameLender, Interest, MemoryPort, Netif, NetifCounters, NetifError, Wake, memory_pair};

/// What happens to received frames: one of so many, on average; 0: none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) delayed: u64,
    pub(crate) seed: u64,
    /// The port lends one frame at a time.
    pub(crate) lends_one: bool,
    /// A thread may sleep while the port's frames are kept.
    pub(crate) may_wait: bool,
}

/// What a port lends.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    pub(crate) kept: usize,
    pub(crate) kept_most: usize,
    /// A frame was polled for after the endpoint kept one.
    pub(crate) received_meanwhile: bool,
}

pub(crate) struct FaultyPort {
    port: MemoryPort,
    faults: Faults,
    state: u64,
    /// Frames that come after others.
    waiting: VecDeque<Vec<u8>>,
    lent: Vec<u8>,
    kept: VecDeque<Vec<u8>>,
    lending: Arc<Mutex<Lending>>,
}

pub(crate) fn lossy_pair(macs: [MacAddr; 2], mtu: usize, faults: Faults) -> (FaultyPort, FaultyPort) {
    let (a, b) = memory_pair(macs, mtu, 2048).unwrap();
    let port = |port, side| FaultyPort {
        port,
        faults,
        state: faults.seed ^ side,
        waiting: VecDeque::new(),
        lent: Vec::new(),
        kept: VecDeque::new(),
        lending: Arc::default(),
    };
    (port(a, 1), port(b, 2))
}

impl FaultyPort {
    pub(crate) fn lending(&self) -> Arc<Mutex<Lending>> {
        Arc::clone(&self.lending)
    }

    /// Whether what happens to one of `every` happens now.
    fn happens(&mut self, every: u64) -> bool {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        every > 0 && (self.state >> 33).is_multiple_of(every)
    }
}

impl AsFd for FaultyPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

impl Netif for FaultyPort {
    fn mac(&self) -> MacAddr {
        self.port.mac()
    }

    fn mtu(&self) -> usize {
        self.port.mtu()
    }

    fn poll_receive(&mut self) -> Result<Option<&[u8]>, NetifError> {
        // What is given back is written over, as a port does that uses it again.
        self.lent.fill(0xa5);
        while let Some(frame) = self.port.poll_receive()? {
            let frame = frame.to_vec();
            let Faults {
                lost, doubled, delayed, ..
            } = self.faults;
            if self.happens(lost) {
                continue;
            }
            if self.happens(doubled) {
                self.waiting.push_back(frame.clone());
            }
            if self.happens(delayed) {
                self.waiting.push_back(frame);
                continue;
            }
            self.waiting.push_front(frame);
            break;
        }
        let Some(frame) = self.waiting.pop_front() else {
            return Ok(None);
        };
        self.lent = frame;
        let mut lending = self.lending.lock().unwrap();
        lending.received_meanwhile |= lending.kept > 0;
        Ok(Some(&self.lent))
    }

    fn lender(&mut self) -> Option<&mut dyn FrameLender> {
        (!self.faults.lends_one).then_some(self as &mut dyn FrameLender)
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
        assert!(
            self.faults.may_wait || self.kept.is_empty(),
            "frames are kept while a thread sleeps"
        );
        if !self.waiting.is_empty() && interest != Interest::Send {
            return Ok(Wake::Ready);
        }
        self.port.wait(interest, deadline, stop)
    }

    fn counters(&mut self) -> NetifCounters {
        self.port.counters()
    }
}

// SAFETY: a kept frame is a vector that nothing touches until it is released.
unsafe impl FrameLender for FaultyPort {
    fn kept_max(&self) -> usize {
        16
    }

    fn keep(&mut self) -> bool {
        if self.kept.len() == self.kept_max() || self.lent.is_empty() {
            return false;
        }
        self.kept.push_back(std::mem::take(&mut self.lent));
        let mut lending = self.lending.lock().unwrap();
        lending.kept += 1;
        lending.kept_most = lending.kept_most.max(lending.kept);
        true
    }

    fn may_wait(&self) -> bool {
        self.kept.is_empty() || self.faults.may_wait
    }

    fn release(&mut self, count: usize) {
        assert!(count <= self.kept.len(), "{count} of {}", self.kept.len());
        for mut frame in self.kept.drain(..count) {
            frame.fill(0xa5);
        }
        self.lending.lock().unwrap().kept -= count;
    }
}
