//! Ethernet between two processes: a datagram is a frame.

use std::{
    io::{ErrorKind, IoSlice},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixDatagram,
    },
    path::{Path, PathBuf},
    time::Instant,
};

use ether::MacAddr;
use netif::{Interest, Netif, NetifCounters, NetifError, Wake};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub struct DatagramPort {
    socket: UnixDatagram,
    other: PathBuf,
    mac: MacAddr,
    frame: Vec<u8>,
    counters: NetifCounters,
}

impl DatagramPort {
    /// A port named `own` in `dir`, whose frames go to `other`.
    pub fn new(dir: &Path, own: &str, other: &str, mac: MacAddr) -> Self {
        let socket = UnixDatagram::bind(dir.join(own)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let other = dir.join(other);
        if other.exists() {
            socket.connect(&other).unwrap();
        }
        Self {
            socket,
            other,
            mac,
            frame: vec![0; 16 << 10],
            counters: NetifCounters::default(),
        }
    }

    /// For the first of both ports, when the other one is there.
    pub fn join(&self) {
        self.socket.connect(&self.other).unwrap();
    }
}

impl AsFd for DatagramPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn failed(what: &'static str) -> impl FnOnce(std::io::Error) -> NetifError {
    move |source| NetifError::Io { what, source }
}

impl Netif for DatagramPort {
    fn mac(&self) -> MacAddr {
        self.mac
    }

    fn mtu(&self) -> usize {
        9_000
    }

    fn poll_receive(&mut self) -> Result<Option<&[u8]>, NetifError> {
        match self.socket.recv(&mut self.frame) {
            Ok(len) => {
                self.counters.received += 1;
                Ok(Some(&self.frame[..len]))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(failed("receive")(error)),
        }
    }

    fn send_burst(&mut self, frames: &[&[IoSlice<'_>]]) -> Result<usize, NetifError> {
        for (sent, parts) in frames.iter().enumerate() {
            let frame: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            match self.socket.send(&frame) {
                Ok(_) => self.counters.sent += 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(sent),
                Err(error) => return Err(failed("send")(error)),
            }
        }
        Ok(frames.len())
    }

    fn wait(
        &mut self,
        interest: Interest,
        deadline: Instant,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Wake, NetifError> {
        let flags = match interest {
            Interest::Receive => PollFlags::IN,
            Interest::Send => PollFlags::OUT,
            Interest::Both => PollFlags::IN | PollFlags::OUT,
        };
        let mut fds = vec![PollFd::new(&self.socket, flags)];
        fds.extend(stop.map(|stop| PollFd::from_borrowed_fd(stop, PollFlags::IN)));
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        poll(&mut fds, Some(&left)).map_err(|error| failed("wait for frames")(error.into()))?;
        if fds.get(1).is_some_and(|stop| !stop.revents().is_empty()) {
            return Ok(Wake::Stop);
        }
        Ok(if fds[0].revents().is_empty() {
            Wake::Deadline
        } else {
            Wake::Ready
        })
    }

    fn counters(&mut self) -> NetifCounters {
        self.counters
    }
}
