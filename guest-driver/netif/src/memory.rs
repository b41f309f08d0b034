//! Two ports inside one process, joined back to back: for tests, and for engines that talk to themselves.
//!
//! Loses and reorders nothing; a full queue is back-pressure. Faults are the business of a link model.

use std::{
    collections::VecDeque,
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use ether::{ETHERNET_HEADER_LEN, MacAddr};
use rustix::event::{EventfdFlags, PollFlags, eventfd};

use crate::{
    BURST_MAX, FrameLender, Interest, Netif, NetifCounters, NetifError, Wake,
    ready::{self, Readiness},
};

/// At most this many frames are kept at once.
const KEPT_MAX: usize = 64;

/// Frames from one port to the other.
struct Lane {
    state: Mutex<LaneState>,
    /// Readable after a frame was put into an empty lane.
    filled: OwnedFd,
    /// Readable after a frame was taken out of a full lane.
    drained: OwnedFd,
}

struct LaneState {
    frames: VecDeque<Vec<u8>>,
    /// Buffers to be used again, so that a running pair does not allocate.
    spare: Vec<Vec<u8>>,
    closed: bool,
}

impl LaneState {
    /// Keeps a buffer to be used again.
    fn recycle(&mut self, buffer: Vec<u8>, spare_max: usize) {
        if self.spare.len() < spare_max {
            self.spare.push(buffer);
        }
    }
}

impl Lane {
    fn new() -> Result<Arc<Self>, NetifError> {
        let event = || {
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(NetifError::io("make an event descriptor"))
        };
        let state = LaneState {
            frames: VecDeque::new(),
            spare: Vec::new(),
            closed: false,
        };
        Ok(Arc::new(Self {
            state: Mutex::new(state),
            filled: event()?,
            drained: event()?,
        }))
    }

    /// Locks the lane. A panic of the other port's owner leaves whole frames behind, so a poisoned lock is as good as
    /// any.
    fn lock(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn signal(event: &OwnedFd) {
    // Fails only when the counter is at its limit, and then the event is readable anyway.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

fn clear(event: &OwnedFd) {
    // Fails only when the counter is 0 already.
    let _ = rustix::io::read(event, &mut [0_u8; 8]);
}

/// One end of a [`memory_pair`].
pub struct MemoryPort {
    mac: MacAddr,
    mtu: usize,
    queue_frames_max: usize,
    incoming: Arc<Lane>,
    outgoing: Arc<Lane>,
    lent: Vec<u8>,
    /// Frames that the caller has besides `lent`, the oldest first.
    kept: VecDeque<Vec<u8>>,
    counters: NetifCounters,
}

/// Makes two ports, each of which receives what the other sends, with up to `queue_frames_max` frames (at least one)
/// waiting in each direction.
///
/// # Errors
/// [`NetifError::Io`] if the process has no descriptors left.
pub fn memory_pair(
    macs: [MacAddr; 2],
    mtu: usize,
    queue_frames_max: usize,
) -> Result<(MemoryPort, MemoryPort), NetifError> {
    let lanes = [Lane::new()?, Lane::new()?];
    let port = |mac, incoming: &Arc<Lane>, outgoing: &Arc<Lane>| MemoryPort {
        mac,
        mtu,
        queue_frames_max: queue_frames_max.max(1),
        incoming: Arc::clone(incoming),
        outgoing: Arc::clone(outgoing),
        lent: Vec::new(),
        kept: VecDeque::new(),
        counters: NetifCounters::default(),
    };
    Ok((port(macs[0], &lanes[0], &lanes[1]), port(macs[1], &lanes[1], &lanes[0])))
}

impl MemoryPort {
    fn down(&self) -> NetifError {
        NetifError::Down {
            name: format!("the peer of port {}", self.mac),
        }
    }

    fn is_ready(&self, interest: Interest) -> Result<bool, NetifError> {
        let (has_frame, closed) = {
            let lane = self.incoming.lock();
            (!lane.frames.is_empty(), lane.closed)
        };
        if interest.receive() && has_frame {
            return Ok(true);
        }
        if closed {
            return Err(self.down());
        }
        Ok(interest.send() && self.outgoing.lock().frames.len() < self.queue_frames_max)
    }
}

impl AsFd for MemoryPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.incoming.filled.as_fd()
    }
}

impl Netif for MemoryPort {
    fn mac(&self) -> MacAddr {
        self.mac
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn poll_receive(&mut self) -> Result<Option<&[u8]>, NetifError> {
        let mut lane = self.incoming.lock();
        let Some(frame) = lane.frames.pop_front() else {
            return if lane.closed { Err(self.down()) } else { Ok(None) };
        };
        let returned = std::mem::replace(&mut self.lent, frame);
        lane.recycle(returned, self.queue_frames_max);
        let was_full = lane.frames.len() + 1 == self.queue_frames_max;
        drop(lane);
        if was_full {
            signal(&self.incoming.drained);
        }
        self.counters.received += 1;
        Ok(Some(&self.lent))
    }

    fn lender(&mut self) -> Option<&mut dyn FrameLender> {
        Some(self)
    }

    fn send_burst(&mut self, frames: &[&[IoSlice<'_>]]) -> Result<usize, NetifError> {
        let len_max = self.mtu + ETHERNET_HEADER_LEN;
        let mut lane = self.outgoing.lock();
        if lane.closed {
            return Err(self.down());
        }
        let was_empty = lane.frames.is_empty();
        let mut taken = 0;
        for parts in frames.iter().take(BURST_MAX) {
            if lane.frames.len() == self.queue_frames_max {
                break;
            }
            if parts.iter().map(|part| part.len()).sum::<usize>() > len_max {
                if taken == 0 {
                    return Err(NetifError::FrameTooLong {
                        name: format!("port {}", self.mac),
                        len_max,
                    });
                }
                break;
            }
            let mut frame = lane.spare.pop().unwrap_or_default();
            frame.clear();
            for part in *parts {
                frame.extend_from_slice(part);
            }
            lane.frames.push_back(frame);
            taken += 1;
        }
        drop(lane);
        if was_empty && taken > 0 {
            signal(&self.outgoing.filled);
        }
        self.counters.sent += taken as u64;
        Ok(taken)
    }

    fn wait(
        &mut self,
        interest: Interest,
        deadline: Instant,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Wake, NetifError> {
        loop {
            // Cleared before the check, so that a frame which comes after the check ends the poll below.
            clear(&self.incoming.filled);
            clear(&self.outgoing.drained);
            let ready = self.is_ready(interest)?;
            let until = if ready { Instant::now() } else { deadline };
            let ports = [
                (self.incoming.filled.as_fd(), PollFlags::IN),
                (self.outgoing.drained.as_fd(), PollFlags::IN),
            ];
            let readiness = ready::poll(if ready { &[] } else { &ports }, until, stop)
                .map_err(NetifError::io("wait for frames"))?;
            match readiness {
                Readiness::Stop => return Ok(Wake::Stop),
                Readiness::Deadline => return Ok(if ready { Wake::Ready } else { Wake::Deadline }),
                Readiness::Port(_) => {}
            }
        }
    }

    fn counters(&mut self) -> NetifCounters {
        self.counters
    }
}

// SAFETY: a kept frame is a vector that nothing touches until it is released.
unsafe impl FrameLender for MemoryPort {
    fn kept_max(&self) -> usize {
        KEPT_MAX
    }

    fn keep(&mut self) -> bool {
        if self.kept.len() == KEPT_MAX || self.lent.is_empty() {
            return false;
        }
        self.kept.push_back(std::mem::take(&mut self.lent));
        true
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn release(&mut self, count: usize) {
        let mut lane = self.incoming.lock();
        for buffer in self.kept.drain(..count.min(self.kept.len())) {
            lane.recycle(buffer, self.queue_frames_max);
        }
    }
}

impl Drop for MemoryPort {
    fn drop(&mut self) {
        for lane in [&self.incoming, &self.outgoing] {
            lane.lock().closed = true;
            signal(&lane.filled);
            signal(&lane.drained);
        }
    }
}
