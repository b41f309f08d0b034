//! Two sockets of one interface to which the kernel offers each frame once (PACKET_FANOUT).
//!
//! Every socket that stands alone costs every frame a look: over veth, where the sender's core does it, a tenth of its time. The
//! members of a group have one in common. Its program returns the number of a member, in the order in which they joined, modulo
//! how many there are. When a member leaves, the last one takes its number; while the interface is switched off a group has no
//! members, and gets them back in the order in which their sockets were made. So only groups of two, made in the order in which
//! they join, keep their numbers whatever happens.
//!
//! A member cannot be bound anew, cannot join another group, and cannot set the program if its filter is locked: what is handed to
//! other programs is therefore always a member, if only of a group of its own. Otherwise they could join a group that is not theirs,
//! whose members then change their numbers, or bind a socket to see what this host sends, all without any privilege.

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

/// Makes the socket, which must be bound and its interface up, the one member of a new group.
pub(super) fn begin(socket: BorrowedFd<'_>) -> io::Result<()> {
    // Refused for a socket that is a member already. Without a program all frames are member 0's.
    socket::set_option(socket, libc::PACKET_FANOUT, &((BY_PROGRAM | UNIQUE) << KIND_SHIFT))
}

/// Makes `port` and `other` members 0 and 1 of a new group with this program.
pub(super) fn share(port: BorrowedFd<'_>, other: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    begin(port)?;
    socket::with_program(program, |program| {
        socket::set_option(port, libc::PACKET_FANOUT_DATA, program)
    })?;
    let number = socket::option(port, libc::PACKET_FANOUT)? & NUMBER_MASK;
    socket::set_option(other, libc::PACKET_FANOUT, &(number | BY_PROGRAM << KIND_SHIFT))
}
