//! Groups of sockets of one interface that share the kernel's lookup of each frame (PACKET_FANOUT).
//!
//! Every socket outside of a group costs every frame a lookup: over veth, where the sender's core does it, a tenth of
//! the frame's time. The members of a group have one lookup in common. The group's program returns the number of a
//! member, in the order in which they joined, modulo how many there are. When a member leaves, the last one takes its
//! number; while the interface is switched off, a group has no members, and gets them back in the order in which their
//! sockets were made. So numbers stay as they are, whatever happens to the interface, if sockets join in the order in
//! which they were made, and if only the last one leaves.
//!
//! Joining a group needs no privilege, only a socket that is bound alike and is in none. A socket that is handed to
//! others is therefore always a member, if only of a group that has room for no more members. A member cannot be bound
//! anew, cannot join another group and, if its filter is locked, cannot set the program. Asking for other rings would
//! take it out of its group and put it back behind the others; the kernel refuses that while any process has a ring of
//! the socket mapped.

use std::{io, os::fd::BorrowedFd};

use libc::c_int;

use super::socket;
use crate::Instruction;

/// The kernel chooses a number that no group has.
const UNIQUE: c_int = libc::PACKET_FANOUT_FLAG_UNIQUEID as c_int;
const BY_PROGRAM: c_int = libc::PACKET_FANOUT_CBPF as c_int;
/// Kind and flags are in the upper half of the option, the group's number in the lower one.
const KIND_SHIFT: u32 = 16;
const NUMBER_MASK: c_int = 0xffff;

/// `struct fanout_args` of the kernel: the option with the number of members that a group may have (Linux 5.10).
#[derive(Clone, Copy)]
#[repr(C)]
struct NewGroup {
    kind: c_int,
    members_max: u32,
}

/// Makes a socket the only member of a new group. Without a program it receives all frames.
pub(super) fn alone(socket: BorrowedFd<'_>) -> io::Result<()> {
    begin(socket, 1)
}

fn begin(socket: BorrowedFd<'_>, members_max: u32) -> io::Result<()> {
    let group = NewGroup {
        kind: (BY_PROGRAM | UNIQUE) << KIND_SHIFT,
        members_max,
    };
    // Refused for a socket that is a member already.
    socket::set_option(socket, libc::PACKET_FANOUT, &group)
}

/// Makes `sockets` the members of a new group with this program, which the last socket sets. They must be bound, and
/// their interface must be up. After an error some may be members of a group without a program, in which the first one
/// receives all frames.
pub(super) fn form(sockets: &[BorrowedFd<'_>], program: &[Instruction]) -> io::Result<()> {
    let ([first, others @ ..], [.., last]) = (sockets, sockets) else {
        return Ok(());
    };
    begin(*first, sockets.len() as u32)?;
    let number = socket::option(*first, libc::PACKET_FANOUT)? & NUMBER_MASK;
    for socket in others {
        socket::set_option(*socket, libc::PACKET_FANOUT, &(number | BY_PROGRAM << KIND_SHIFT))?;
    }
    set_program(*last, program)
}

/// Sets the program of the group that a socket is in. It runs from now on; if there was one before, this then waits until no processor
/// runs that.
pub(super) fn set_program(member: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    socket::with_program(program, |program| {
        socket::set_option(member, libc::PACKET_FANOUT_DATA, program)
    })
}
