//! The Ethernet port of a host: frames from the network to the engine, and from the engine to the network.

use std::{
    io::IoSlice,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Instant,
};

use esp::Engine;
use ether::Time;
use netif::{AfPacket, Interest, Netif, NetifError, Wake};

use crate::{bulk_watch::BulkWatch, mtu::Mtu, system};

/// Frames that are handed to the port with one system call at most.
const BATCH_FRAMES: usize = 32;
/// Frames that are taken from the port before what they caused is sent.
const TURN_FRAMES: usize = 128;

/// The port, and the frames that wait to be sent there.
pub(crate) struct Port {
    /// None in a forked child, which has no port of its parent's.
    port: Option<AfPacket>,
    frames: Box<[Vec<u8>]>,
    lengths: [usize; BATCH_FRAMES],
    /// Frames of `frames` that are to be sent: from, to.
    unsent: (usize, usize),
    /// The interface is gone or switched off.
    is_down: bool,
    interface_index: u32,
    mtu: Mtu,
    /// What is known of packets that come by the port's second socket, if it has one.
    bulk: Option<BulkWatch>,
}

impl Port {
    /// `frame_len`: bytes of the longest frame.
    pub(crate) fn new(port: AfPacket, frame_len: usize, interface_index: u32) -> Self {
        let mtu = u16::try_from(port.mtu()).unwrap_or(u16::MAX);
        let bulk = port.bulk_fd().map(|_| BulkWatch::new(frame_len));
        Self {
            bulk,
            port: Some(port),
            frames: (0..BATCH_FRAMES).map(|_| vec![0; frame_len]).collect(),
            lengths: [0; BATCH_FRAMES],
            unsent: (0, 0),
            is_down: false,
            interface_index,
            mtu: Mtu::new(mtu),
        }
    }

    /// Closes it, in a forked child.
    pub(crate) fn close(&mut self) {
        self.port = None;
    }

    /// Whether frames wait since the port is full.
    pub(crate) const fn is_full(&self) -> bool {
        self.unsent.0 < self.unsent.1
    }

    /// Whether the interface is gone or switched off.
    pub(crate) const fn is_down(&self) -> bool {
        self.is_down
    }

    /// Prepares the port's descriptor to be slept on; `false`: there is a frame already, or an error.
    pub(crate) fn arm(&mut self) -> bool {
        let port = self.port.as_mut();
        port.is_none_or(|port| matches!(port.wait(Interest::Receive, Instant::now(), None), Ok(Wake::Deadline)))
    }

    /// Whether there is a frame, as far as that can be known without taking it.
    pub(crate) fn has_frame(&mut self) -> bool {
        if !self.arm() {
            return true;
        }
        let is_expected = self.bulk.as_ref().is_some_and(BulkWatch::is_expected);
        let bulk = self.port.as_ref().and_then(AfPacket::bulk_fd).filter(|_| is_expected);
        let is_readable = |fd: BorrowedFd<'_>| {
            let mut fds = [system::readable(fd.as_raw_fd())];
            system::poll(&mut fds, Some(0), std::ptr::null()).is_ok_and(|count| count > 0)
        };
        bulk.is_some_and(is_readable)
    }

    /// The second socket was seen to be readable.
    pub(crate) fn bulk_came(&mut self, now: Time) {
        self.bulk.iter_mut().for_each(|bulk| bulk.came(now));
    }

    /// Returns the MTU that the port has room for, in bytes.
    pub(crate) fn mtu_max(&self) -> usize {
        self.mtu.of_port()
    }

    /// Gives the engine the MTU that the interface has by now; says whether it is another one.
    pub(crate) fn follow_mtu(&mut self, engine: &mut Engine, now: Time) -> bool {
        let Some(port) = &self.port else {
            return false;
        };
        let socket = port.as_fd().as_raw_fd();
        self.mtu.follow(socket, self.interface_index, engine, now)
    }

    /// The port does not work: for as long as the interface is switched off, or for good if it is gone.
    fn go_down(&mut self, engine: &mut Engine, now: Time) {
        self.is_down = true;
        // The kernel has a name for every number of an interface that exists.
        let mut name = [0; libc::IF_NAMESIZE];
        // SAFETY: the name has the room that the C library wants.
        if unsafe { libc::if_indextoname(self.interface_index, name.as_mut_ptr()) }.is_null() {
            engine.fail_all(now);
        }
    }

    /// Hands frames that came to the engine.
    pub(crate) fn receive(&mut self, engine: &mut Engine, now: Time) {
        self.bulk.iter_mut().for_each(|bulk| bulk.begin_turn(now));
        for _ in 0..TURN_FRAMES {
            let Some(port) = self.port.as_mut() else {
                return;
            };
            if let Some(bulk) = &self.bulk {
                port.expect_bulk(bulk.is_expected());
            }
            match port.poll_receive() {
                Ok(Some(frame)) => {
                    // What is not taken, the engine has counted.
                    let _ = engine.handle(frame, now);
                    if let Some(bulk) = &mut self.bulk {
                        bulk.took(frame.len(), now);
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    self.go_down(engine, now);
                    return;
                }
            }
        }
    }

    /// Takes frames of the engine to be sent; `false` if there are none.
    fn fill(&mut self, engine: &mut Engine, now: Time) -> bool {
        let mut count = 0;
        while count < BATCH_FRAMES
            && let Some(len) = engine.poll_transmit(now, &mut self.frames[count])
        {
            self.lengths[count] = len;
            count += 1;
        }
        self.unsent = (0, count);
        count > 0
    }

    /// Sends what the engine wants to send; stops when the port is full.
    pub(crate) fn transmit(&mut self, engine: &mut Engine, now: Time) {
        while self.is_full() || self.fill(engine, now) {
            let (from, to) = self.unsent;
            let Some(port) = self.port.as_mut() else {
                return;
            };
            let sent = if to - from == 1 {
                port.send(&[IoSlice::new(&self.frames[from][..self.lengths[from]])])
                    .map(usize::from)
            } else {
                let slices: [[IoSlice<'_>; 1]; BATCH_FRAMES] =
                    std::array::from_fn(|at| [IoSlice::new(&self.frames[at][..self.lengths[at]])]);
                let frames: [&[IoSlice<'_>]; BATCH_FRAMES] = std::array::from_fn(|at| &slices[at][..]);
                port.send_burst(&frames[from..to])
            };
            match sent {
                Ok(0) => return,
                Ok(sent) => self.unsent.0 += sent,
                Err(NetifError::FrameTooLong { .. }) => {
                    // The engine sends it again, in pieces that fit.
                    self.follow_mtu(engine, now);
                    self.unsent.0 += 1;
                }
                Err(_) => {
                    // Frames that the port cannot send are lost, as on a cable; the engine repeats them.
                    self.go_down(engine, now);
                    self.unsent.0 = to;
                }
            }
        }
    }
}
