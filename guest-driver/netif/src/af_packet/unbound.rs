//! Sockets made ahead, before it is known which frames they are for.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ether::{ETHERNET_HEADER_LEN, EtherType};

use super::{AfPacket, AfPacketOptions, PreparedSocket, ring::RingLayout, socket, vnet};
use crate::{Instruction, NetifError, interface::Interface};

/// Bytes that the kernel may keep free before a frame: with them, a frame as long as a page is put into pages.
const KERNEL_HEADROOM_LEN: usize = 64;

/// Bytes that may wait in a socket to be sent: a burst of the longest frames several times over.
const SEND_BUFFER_LEN: usize = 4 << 20;

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

    pub(super) fn bind_with(
        self,
        ether_type: EtherType,
        filter: Option<&[Instruction]>,
    ) -> Result<PreparedSocket, NetifError> {
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
pub(super) fn attach_for_good(
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
pub(super) fn open_without_ring(interface: &str, len: Option<usize>) -> Result<OwnedFd, NetifError> {
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
