//! The MTU of an interface, which may change while there are connections: they go on with packets that fit.

use std::os::fd::RawFd;

use esp::Engine;
use ether::Time;

use crate::host::{Host, now};

/// What is asked about an interface: `struct ifreq`, of which requests about the index and the MTU use a number.
#[repr(C)]
struct Question {
    name: [u8; libc::IFNAMSIZ],
    number: libc::c_int,
    /// The longest member of the union.
    _rest: [u8; 20],
}

/// Asks the kernel for an interface's MTU by one of this process's sockets: a socket that is only made for that would take a number
/// that the program expects to be free.
fn of_interface(socket: RawFd, index: u32) -> Option<u16> {
    let mut question = Question {
        name: [0; libc::IFNAMSIZ],
        number: index.cast_signed(),
        _rest: [0; 20],
    };
    for request in [libc::SIOCGIFNAME, libc::SIOCGIFMTU] {
        // SAFETY: the kernel reads and writes a `struct ifreq`, which has the length of this.
        let result = unsafe { libc::syscall(libc::SYS_ioctl, socket, request, &raw mut question) };
        if result < 0 {
            return None;
        }
    }
    Some(u16::try_from(question.number).unwrap_or(u16::MAX))
}

/// The MTU of an interface as an engine has it.
#[derive(Debug)]
pub(crate) struct Mtu {
    /// That of the interface when the port was made, for which its ring has room.
    of_port: u16,
    /// The engine's.
    now: u16,
}

impl Mtu {
    /// Begins with that of a port.
    pub(crate) fn new(of_port: u16) -> Self {
        Self { of_port, now: of_port }
    }

    /// Returns the MTU that the port has room for, in bytes.
    pub(crate) fn of_port(&self) -> usize {
        usize::from(self.of_port)
    }

    /// Takes the interface's MTU as it is by now, as far as the port has room for such frames; says whether the engine has another one. With
    /// one that is too small for connections they stay as they are, and what they send is lost.
    pub(crate) fn follow(&mut self, socket: RawFd, interface_index: u32, engine: &mut Engine, now: Time) -> bool {
        let seen = of_interface(socket, interface_index).map(|mtu| mtu.min(self.of_port));
        let Some(mtu) = seen.filter(|mtu| *mtu != self.now) else {
            return false;
        };
        self.now = mtu;
        engine.set_mtu(mtu, now).is_ok()
    }
}

/// Looks whether the interface of a host has another MTU.
pub(crate) fn look_at(host: &Host) {
    let mut state = host.lock();
    let now = now();
    if state.follow_mtu(now) {
        state.transmit(now);
        state.settle();
    }
}
