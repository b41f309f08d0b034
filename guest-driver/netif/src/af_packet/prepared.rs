//! Sockets that a privileged process prepares, for a port here or in another process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ether::EtherType;

use super::{
    AfPacketOptions, UnboundSocket, group,
    ring::{RingLayout, RxRing},
    socket,
    unbound::{attach_for_good, open_without_ring},
};
use crate::{Instruction, NetifError, PreparedDirect, interface::Interface};

/// A packet socket that is ready to be used as a port, here or in another process: with ring and filter, bound to its
/// interface. Its filter is locked and checks everything that the socket was bound to, so that a process that binds it
/// anew receives nothing else.
///
/// A socket with an empty filter receives nothing until it shares a lookup ([`crate::AfPacket::share_lookup`]), and
/// then all that the group's program gives it, including what becomes its own when another member leaves. That saves a
/// frame a second program (over veth some 30 ns of the sender's core), and is for processes that may read every frame
/// anyway.
pub struct PreparedSocket {
    /// The interface as it was when the socket was bound.
    pub interface: Interface,
    /// Where the slots of the ring lie.
    pub layout: RingLayout,
    /// The socket.
    pub socket: OwnedFd,
    /// A second socket without a ring, for bulk data ([`crate::Netif::expect_bulk`]).
    pub bulk: Option<OwnedFd>,
    /// A socket that receives nothing and is kept for its place in a group ([`PreparedSocket::sink`]).
    pub sink: Option<OwnedFd>,
    /// A socket that hands short frames directly to the driver while that is allowed ([`crate::Netif::limit_direct`]).
    pub direct: Option<PreparedDirect>,
}

/// Keeps the members of a group as they are while other processes have its sockets; keep it as long as they do.
///
/// As long as a socket is open here, it stays in the group, so there is no room for another one; as long as a ring of
/// it is mapped here, the kernel changes none of its rings, which would change the order of the members.
pub struct SharedLookup {
    // Unmapped before the sockets are closed.
    pub(super) _rings: Vec<RxRing>,
    pub(super) _sockets: Vec<OwnedFd>,
}

impl PreparedSocket {
    /// Prepares a socket for frames of `ether_type` that pass `filter`; frames that arrive from now on wait in its ring.
    ///
    /// # Errors
    /// As [`crate::AfPacket::open`].
    pub fn new(
        name: &str,
        ether_type: EtherType,
        options: &AfPacketOptions,
        filter: &[Instruction],
    ) -> Result<Self, NetifError> {
        Self::prepare(name, ether_type, options, Some(filter))
    }

    /// Prepares a second socket for bulk data: for frames of `ether_type` that `filter` passes. Those that arrive from
    /// now on wait in it, up to `len` bytes and as much again for what the kernel needs beside them.
    ///
    /// # Errors
    /// As [`crate::AfPacket::open`]; [`NetifError::Io`] if the process may not give it so much memory (CAP_NET_ADMIN).
    pub fn bulk(
        interface: &Interface,
        ether_type: EtherType,
        len: usize,
        filter: &[Instruction],
    ) -> Result<OwnedFd, NetifError> {
        Self::without_ring(interface, ether_type, Some(len), filter)
    }

    fn without_ring(
        interface: &Interface,
        ether_type: EtherType,
        len: Option<usize>,
        filter: &[Instruction],
    ) -> Result<OwnedFd, NetifError> {
        let socket = open_without_ring(&interface.name, len)?;
        attach_for_good(socket.as_fd(), interface, ether_type, filter)?;
        socket::bind(socket.as_fd(), interface.index, ether_type).map_err(NetifError::io("bind the packet socket"))?;
        Ok(socket)
    }

    /// Prepares a socket that receives nothing: a member of a group to which the group's program gives the frames for
    /// no other member.
    ///
    /// # Errors
    /// As [`crate::AfPacket::open`].
    pub fn sink(interface: &Interface, ether_type: EtherType) -> Result<OwnedFd, NetifError> {
        Self::without_ring(interface, ether_type, None, &[Instruction::drop()])
    }

    /// Makes a proof that this process may read every frame of its network namespace: a packet socket that receives
    /// nothing, but could.
    ///
    /// # Errors
    /// [`NetifError::Io`] where it may not.
    pub fn proof() -> Result<OwnedFd, NetifError> {
        socket::open().map_err(NetifError::io("open a packet socket"))
    }

    /// Whether `socket` is a [proof](Self::proof) of this process's network namespace. A socket that was handed out is
    /// none: its filter is locked. Always false before Linux 5.14.
    pub fn is_proof(socket: BorrowedFd<'_>) -> bool {
        socket::reads_every_frame(socket).unwrap_or(false)
    }

    /// Keeps a prepared socket out of groups of others ([`crate::AfPacket::share_lookup`]). Call it for each socket
    /// that is handed out and is in no group itself. It costs a frame a little.
    ///
    /// # Errors
    /// [`NetifError::Io`] if the socket is in a group, or its interface is down.
    pub fn keep_alone(socket: BorrowedFd<'_>) -> Result<(), NetifError> {
        group::alone(socket).map_err(NetifError::io("put the packet socket into a group of its own"))
    }

    pub(super) fn prepare(
        name: &str,
        ether_type: EtherType,
        options: &AfPacketOptions,
        filter: Option<&[Instruction]>,
    ) -> Result<Self, NetifError> {
        UnboundSocket::new(name, options)?.bind_with(ether_type, filter)
    }
}
