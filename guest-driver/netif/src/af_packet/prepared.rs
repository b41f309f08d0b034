//! Sockets that a privileged process prepares, for a port here or in another process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ether::{ETHERNET_HEADER_LEN, EtherType};

use super::{
    AfPacket, AfPacketOptions, group,
    ring::{RingLayout, RxRing},
    socket, vnet,
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

/// A packet socket with its ring that receives nothing yet. The kernel waits for all processors when it makes a ring, some ten
/// milliseconds and at times a second, and not when such a socket is bound: so who must not wait has these made ahead.
pub struct UnboundSocket {
    interface: Interface,
    layout: RingLayout,
    socket: OwnedFd,
    /// A second socket without a ring, which is older.
    bulk: Option<OwnedFd>,
}

impl UnboundSocket {
    /// Makes a socket for an interface as it is now.
    ///
    /// # Errors
    /// As [`crate::AfPacket::open`].
    pub fn new(name: &str, options: &AfPacketOptions) -> Result<Self, NetifError> {
        let interface = Interface::find(name)?;
        if !interface.up {
            return Err(NetifError::Down { name: name.to_owned() });
        }
        let socket = open_socket(name)?;
        let fd = socket.as_fd();
        socket::set_option(
            fd,
            libc::PACKET_VERSION,
            &(libc::tpacket_versions::TPACKET_V2 as libc::c_int),
        )
        .map_err(NetifError::io("choose the receive ring's version"))?;
        if options.qdisc_bypass {
            socket::set_option(fd, libc::PACKET_QDISC_BYPASS, &1_i32)
                .map_err(NetifError::io("bypass traffic control"))?;
        }
        let frame_len = interface.mtu + ETHERNET_HEADER_LEN;
        let linear_head = options.linear_head && frame_len + KERNEL_HEADROOM_LEN >= rustix::param::page_size();
        if linear_head {
            vnet::enable(fd).map_err(NetifError::io("send with heads of their own"))?;
        }
        socket::set_send_buffer(fd, SEND_BUFFER_LEN).map_err(NetifError::io("set the send buffer"))?;
        let layout = RingLayout::new(frame_len, options.ring_len);
        layout
            .request(fd, libc::PACKET_RX_RING)
            .map_err(NetifError::io("set up the receive ring"))?;
        Ok(Self {
            interface,
            layout,
            socket,
            bulk: None,
        })
    }

    /// Makes a socket with a second one beside it for bulk data, which has room for `bulk_len` bytes as [`PreparedSocket::bulk`] has;
    /// without it if the process may not give it so much memory.
    ///
    /// # Errors
    /// As [`UnboundSocket::new`].
    pub fn with_bulk(name: &str, options: &AfPacketOptions, bulk_len: usize) -> Result<Self, NetifError> {
        // The order in which the sockets of a group have to be made.
        let bulk = open_without_ring(name, Some(bulk_len)).ok();
        let unbound = Self::new(name, options)?;
        Ok(Self { bulk, ..unbound })
    }

    /// Whether it has a second socket for bulk data.
    pub const fn has_bulk(&self) -> bool {
        self.bulk.is_some()
    }

    /// Whether the interface is as it was when the socket was made.
    pub fn fits(&self, interface: &Interface) -> bool {
        (self.interface.index, self.interface.mtu) == (interface.index, interface.mtu)
    }

    /// Binds it: frames of `ether_type` that pass `filter` and arrive from now on wait in its ring.
    ///
    /// # Errors
    /// [`NetifError::Io`]
    pub fn bind(self, ether_type: EtherType, filter: &[Instruction]) -> Result<PreparedSocket, NetifError> {
        self.bind_with(ether_type, Some(filter))
    }

    /// [`bind`](Self::bind) of both sockets: frames that pass `bulk_filter` wait in the second one, if there is one.
    ///
    /// # Errors
    /// [`NetifError::Io`]
    pub fn bind_both(
        mut self,
        ether_type: EtherType,
        filter: &[Instruction],
        bulk_filter: &[Instruction],
    ) -> Result<PreparedSocket, NetifError> {
        let bulk = self.bulk.take();
        if let Some(bulk) = &bulk {
            attach_for_good(bulk.as_fd(), &self.interface, ether_type, bulk_filter)?;
            socket::bind(bulk.as_fd(), self.interface.index, ether_type)
                .map_err(NetifError::io("bind the packet socket"))?;
        }
        let prepared = self.bind(ether_type, filter)?;
        Ok(PreparedSocket { bulk, ..prepared })
    }

    /// Makes a port of it, without a filter: all frames of `ether_type` that arrive from now on are received.
    ///
    /// # Errors
    /// [`NetifError::Io`]
    pub fn open(self, ether_type: EtherType) -> Result<AfPacket, NetifError> {
        AfPacket::from_prepared(self.bind_with(ether_type, None)?)
    }

    fn bind_with(self, ether_type: EtherType, filter: Option<&[Instruction]>) -> Result<PreparedSocket, NetifError> {
        let fd = self.socket.as_fd();
        if let Some(filter) = filter {
            attach_for_good(fd, &self.interface, ether_type, filter)?;
        }
        socket::bind(fd, self.interface.index, ether_type).map_err(NetifError::io("bind the packet socket"))?;
        Ok(PreparedSocket {
            interface: self.interface,
            layout: self.layout,
            socket: self.socket,
            bulk: None,
            sink: None,
            direct: None,
        })
    }
}

/// Gives a socket a filter that cannot be changed any more. Neither binding a socket nor switching the interface to
/// promiscuous mode needs a privilege, so the filter begins with what keeps both from showing more: frames of this
/// EtherType that came from this interface and were not for another station, and none that this host sends. An empty
/// filter passes nothing and can be taken off.
fn attach_for_good(
    socket: BorrowedFd<'_>,
    interface: &Interface,
    ether_type: EtherType,
    filter: &[Instruction],
) -> Result<(), NetifError> {
    use Instruction as I;
    if filter.is_empty() {
        return socket::attach_filter(socket, &[I::drop()]).map_err(NetifError::io("attach the filter"));
    }
    let mut guarded = vec![
        I::load_interface(),
        I::if_equal(interface.index.cast_unsigned(), 1, 0),
        I::drop(),
        I::load_packet_type(),
        I::if_at_least(libc::PACKET_OTHERHOST.into(), 0, 1),
        I::drop(),
        I::load_half(ETHERNET_HEADER_LEN as u32 - 2),
        I::if_equal(ether_type.0.into(), 1, 0),
        I::drop(),
    ];
    guarded.extend_from_slice(filter);
    socket::attach_filter(socket, &guarded).map_err(NetifError::io("attach the filter"))?;
    socket::lock_filter(socket).map_err(NetifError::io("lock the filter"))
}

/// Opens a packet socket that has no ring and receives nothing yet.
fn open_without_ring(interface: &str, len: Option<usize>) -> Result<OwnedFd, NetifError> {
    let socket = open_socket(interface)?;
    if let Some(len) = len {
        socket::set_receive_buffer(socket.as_fd(), len).map_err(NetifError::io("set the receive buffer"))?;
    }
    // Never used for frames: see `SharedLookup`.
    RingLayout::page()
        .request(socket.as_fd(), libc::PACKET_TX_RING)
        .map_err(NetifError::io("set up a page to be mapped"))?;
    Ok(socket)
}

/// Opens a packet socket that receives nothing yet.
fn open_socket(interface: &str) -> Result<OwnedFd, NetifError> {
    socket::open().map_err(|source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => NetifError::NoPrivilege {
            name: interface.to_owned(),
        },
        _ => NetifError::io("open a packet socket")(source),
    })
}

/// Bytes that the kernel may keep free before a frame: with them, a frame as long as a page is put into pages.
const KERNEL_HEADROOM_LEN: usize = 64;

/// Bytes that may wait in a socket to be sent: a burst of the longest frames several times over.
const SEND_BUFFER_LEN: usize = 4 << 20;
