//! The packet socket behind the ring: opening, options, statistics, sending.

use std::{
    io::{self, IoSlice},
    mem::{self, MaybeUninit},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use ether::EtherType;
use libc::{c_int, mmsghdr, sockaddr_ll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::{
    BURST_MAX, Instruction,
    socket_options::{self, check, option_of, set_option_of},
};

/// Opens a packet socket that receives nothing until it is bound.
pub(super) fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // No protocol keeps frames out until the ring is in place and the socket is bound.
    Ok(socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?)
}

/// Sets an option of level SOL_PACKET.
pub(super) fn set_option<T: Copy>(socket: BorrowedFd<'_>, option: c_int, value: &T) -> io::Result<()> {
    set_option_of(socket, libc::SOL_PACKET, option, value)
}

/// Reads the value of a number option of level SOL_PACKET.
pub(super) fn option(socket: BorrowedFd<'_>, option: c_int) -> io::Result<c_int> {
    option_of(socket, libc::SOL_PACKET, option)
}

/// Which network namespace a socket belongs to, as Linux 5.14 and later number them.
const SO_NETNS_COOKIE: c_int = 71;

/// Whether this is a packet socket of this network namespace whose filter can be changed: with it, every frame of every
/// interface can be read.
pub(super) fn reads_every_frame(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let number_of = |option| option_of::<c_int>(socket, libc::SOL_SOCKET, option);
    let namespace_of = |socket| option_of::<u64>(socket, libc::SOL_SOCKET, SO_NETNS_COOKIE);
    Ok(number_of(libc::SO_DOMAIN)? == libc::AF_PACKET
        && number_of(libc::SO_LOCK_FILTER)? == 0
        && namespace_of(socket)? == namespace_of(open()?.as_fd())?)
}

/// Binds the socket: from now on it receives frames of this EtherType from this interface and sends to it.
pub(super) fn bind(socket: BorrowedFd<'_>, index: i32, ether_type: EtherType) -> io::Result<()> {
    // SAFETY: plain data for which all zeros are valid.
    let mut address: sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ether_type.0.to_be();
    address.sll_ifindex = index;
    socket_options::bind(socket, &address)
}

/// Attaches a filter: only frames that it passes are received from now on.
pub(super) fn attach_filter(socket: BorrowedFd<'_>, filter: &[Instruction]) -> io::Result<()> {
    with_program(filter, |program| {
        set_option_of(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
    })
}

/// Takes the filter off; fails if it is locked.
pub(super) fn detach_filter(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option_of(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32)
}

/// Calls `set` with the program as the kernel wants it.
pub(super) fn with_program(
    program: &[Instruction],
    set: impl FnOnce(&libc::sock_fprog) -> io::Result<()>,
) -> io::Result<()> {
    set(&libc::sock_fprog {
        len: program.len().try_into().map_err(|_| io::ErrorKind::InvalidInput)?,
        // The kernel only reads through this pointer, and copies what it reads.
        filter: program.as_ptr().cast_mut().cast(),
    })
}

/// Locks the filter: no process that has the socket can change it any more.
pub(super) fn lock_filter(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option_of(socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, &1_i32)
}

/// Sets how many bytes may wait to be sent; beyond the system's limit if the process may.
pub(super) fn set_send_buffer(socket: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    let len = c_int::try_from(len).unwrap_or(c_int::MAX);
    set_option_of(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &len)
        .or_else(|_| set_option_of(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &len))
}

/// Sets how many bytes may wait to be received, the kernel's own for each frame included; fails where the process may
/// not have so many.
pub(super) fn set_receive_buffer(socket: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    let len = c_int::try_from(len).unwrap_or(c_int::MAX);
    set_option_of(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &len)
}

/// Takes the number of frames dropped for want of a free slot since the last call: the kernel starts from 0 each time.
pub(super) fn take_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let stats: libc::tpacket_stats = option_of(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
    Ok(stats.tp_drops)
}

/// Takes the number of frames that passed the filter since the last call, those dropped afterwards included.
pub(super) fn take_passed(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let stats: libc::tpacket_stats = option_of(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
    Ok(stats.tp_packets)
}

/// Sends one frame without blocking.
#[inline]
pub(super) fn send(socket: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> io::Result<()> {
    if let [frame] = parts {
        // SAFETY: the kernel only reads the frame, which is borrowed for this call.
        let sent = unsafe {
            libc::send(
                socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
            )
        };
        return check(sent);
    }
    // SAFETY: plain data for which all zeros are valid.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    // `IoSlice` has the layout of iovec; the kernel only reads through these pointers.
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: all that the message points to is borrowed for this call.
    check(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) })
}

/// Sends up to [`BURST_MAX`] frames in one system call without blocking; returns how many were taken, at least one.
pub(super) fn send_burst(socket: BorrowedFd<'_>, frames: &[&[IoSlice<'_>]]) -> io::Result<usize> {
    let mut messages = [const { MaybeUninit::<mmsghdr>::uninit() }; BURST_MAX];
    let count = frames.len().min(BURST_MAX);
    for (place, parts) in messages.iter_mut().zip(frames) {
        // SAFETY: plain data for which all zeros are valid.
        let mut message: mmsghdr = unsafe { mem::zeroed() };
        // `IoSlice` has the layout of iovec; the kernel only reads through these pointers.
        message.msg_hdr.msg_iov = parts.as_ptr().cast_mut().cast();
        message.msg_hdr.msg_iovlen = parts.len() as _;
        place.write(message);
    }
    // SAFETY: the first `count` messages were written above, and all they point to is borrowed for this call.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr().cast(),
            count as u32,
            libc::MSG_DONTWAIT as _,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
