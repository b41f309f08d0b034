//! The MTU of an interface, which may change while there are connections: they go on with packets that fit.

use std::os::fd::RawFd;

use ether::Time;

use crate::host::{Host, State, now};

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

impl State {
    /// Takes the interface's MTU as it is by now, as far as the port has room for such frames; says whether it is another one. With one
    /// that is too small for connections they stay as they are, and what they send is lost.
    pub(crate) fn follow_mtu(&mut self, socket: RawFd, now: Time) -> bool {
        let seen = of_interface(socket, self.interface_index).map(|mtu| mtu.min(self.port_mtu));
        let Some(mtu) = seen.filter(|mtu| *mtu != self.mtu) else {
            return false;
        };
        self.mtu = mtu;
        self.engine.set_mtu(mtu, now).is_ok()
    }
}

impl Host {
    /// Returns the MTU that the port has room for.
    pub(crate) fn port_mtu(&self) -> usize {
        usize::from(self.lock().port_mtu)
    }

    /// Looks whether the interface has another MTU.
    pub(crate) fn follow_mtu(&self) {
        let mut state = self.lock();
        let now = now();
        if state.follow_mtu(self.packet_fd(), now) {
            state.transmit(now);
            state.settle();
        }
    }
}
