//! Counting frames without taking them.

use std::os::fd::{AsFd, OwnedFd};

use ether::EtherType;

use super::socket;
use crate::{Instruction, NetifError, interface::Interface};

/// Counts the frames of one EtherType that come in at an interface and pass a filter, for programs that want to know what a measurement
/// of theirs went over. It costs a frame the filter and an atomic addition: the socket's buffer holds a frame or two, nobody
/// takes them, and all others are only counted.
#[derive(Debug)]
pub struct FrameCounter {
    socket: OwnedFd,
    counted: u64,
}

impl FrameCounter {
    /// Counts from now on.
    ///
    /// # Errors
    /// As [`crate::AfPacket::open`].
    pub fn open(interface: &Interface, ether_type: EtherType, filter: &[Instruction]) -> Result<Self, NetifError> {
        let opened = socket::open().map_err(NetifError::io("open a packet socket"))?;
        let fd = opened.as_fd();
        // The kernel makes it the smallest that there is.
        socket::set_receive_buffer(fd, 0).map_err(NetifError::io("shrink the buffer of a packet socket"))?;
        socket::attach_filter(fd, filter).map_err(NetifError::io("attach a filter"))?;
        socket::bind(fd, interface.index, ether_type).map_err(NetifError::io("bind the packet socket"))?;
        Ok(Self {
            socket: opened,
            counted: 0,
        })
    }

    /// Returns the number of frames since it was opened. A call is needed before 2³² more have come.
    ///
    /// # Errors
    /// [`NetifError::Io`] if the kernel does not say.
    pub fn frames(&mut self) -> Result<u64, NetifError> {
        let passed = socket::take_passed(self.socket.as_fd()).map_err(NetifError::io("count frames"))?;
        self.counted += u64::from(passed);
        Ok(self.counted)
    }
}
