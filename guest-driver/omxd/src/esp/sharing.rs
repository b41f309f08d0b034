//! Ports for programs, and one program whose sockets share the kernel's lookup of each frame with the authority's port. Each socket outside of
//! a group inspects each frame of the interface, on the sender's core over veth; a second program would cost all others more than it gains.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ether::Time;
use netif::{AfPacket, Interface, PreparedSocket, RingLayout, SharedLookup};
use rustix::event::epoll;
use weft_authority::{OmxdError, esp::OpenedPort};

use super::{
    Esp, Watched, Wire,
    filter::{self, BlockSet},
    stock::{Made, close_later},
};

/// Turns after which the ring of the authority's port is empty, whatever it had.
const TURNS_MAX: usize = 64;

/// A port of a program, and what changes for the authority.
pub(super) struct MadePort {
    pub(super) port: OpenedPort,
    pub(super) fds: Vec<OwnedFd>,
    /// The authority's next port, which shares the lookup with the program's.
    pub(super) shared: Option<(AfPacket, Sharing)>,
}

/// A program whose sockets share the lookup with the authority's port.
pub(super) struct Sharing {
    /// Its block, until it has ended.
    block: Option<u8>,
    _lookup: SharedLookup,
}

/// Sockets of a program, with the layout of their ring, as they are in a group.
fn members(prepared: &PreparedSocket) -> impl Iterator<Item = (BorrowedFd<'_>, RingLayout)> {
    let bulk = prepared.bulk.iter().map(|bulk| (bulk.as_fd(), RingLayout::page()));
    bulk.chain([(prepared.socket.as_fd(), prepared.layout)])
}

impl Wire {
    /// Makes a port for a program: a packet socket that gets the frames for one block of wire ports, and beside it one for bulk data where
    /// that pays and the program takes it. `taken`: all blocks that are taken.
    pub(super) fn port_for(&mut self, block: u8, takes_bulk: bool, taken: BlockSet) -> Result<MadePort, OmxdError> {
        // It may have been renamed, or have another MTU by now.
        let interface = Interface::find_by_index(self.interface.index)?;
        let bulk = takes_bulk && self.has_bulk;
        let made = match self.stock.take(&interface) {
            Some(made) => made,
            None => Made::new(&interface.name, &self.options, bulk)?,
        };
        if !bulk {
            let prepared = made.socket.bind(self.ether_type, &filter::for_block(block))?;
            close_later(made.port);
            PreparedSocket::keep_alone(prepared.socket.as_fd())?;
            return Ok(self.opened(block, interface, prepared, None));
        }
        let mut port = made.port;
        let mut prepared = self.bind(made.socket, block)?;
        if self.shares() {
            close_later(port.take());
        }
        let shared = port.map(|port| -> Result<_, OmxdError> {
            let port = port.open(self.ether_type)?;
            port.set_filter(&filter::for_authority(taken))?;
            let members: Vec<_> = members(&prepared).collect();
            let lookup = port.share_lookup(&members, &filter::among_sockets(block))?;
            let block = Some(block);
            Ok((port, Sharing { block, _lookup: lookup }))
        });
        let shared = match shared.transpose() {
            Ok(shared) => shared,
            Err(error) => {
                tracing::debug!("{error}; the kernel looks up each frame separately for each socket of a program");
                let made = Made::new(&interface.name, &self.options, bulk)?;
                prepared = self.bind(made.socket, block)?;
                None
            }
        };
        if shared.is_none() {
            for (socket, _) in members(&prepared) {
                PreparedSocket::keep_alone(socket)?;
            }
        }
        Ok(self.opened(block, interface, prepared, shared))
    }

    fn bind(&self, made: netif::UnboundSocket, block: u8) -> Result<PreparedSocket, OmxdError> {
        if !made.has_bulk() {
            return Ok(made.bind(self.ether_type, &filter::for_block(block))?);
        }
        let filters = (filter::for_messages(block), filter::for_bulk(block));
        Ok(made.bind_both(self.ether_type, &filters.0, &filters.1)?)
    }

    fn opened(
        &self,
        block: u8,
        interface: Interface,
        prepared: PreparedSocket,
        shared: Option<(AfPacket, Sharing)>,
    ) -> MadePort {
        let port = OpenedPort {
            block,
            interface_name: interface.name,
            interface_index: interface.index,
            mac: self.interface.mac.0,
            mtu: interface.mtu,
            block_len: prepared.layout.block_len,
            blocks: prepared.layout.blocks,
            slot_len: prepared.layout.slot_len,
            bulk_socket: prepared.bulk.is_some(),
        };
        let fds = [prepared.socket].into_iter().chain(prepared.bulk).collect();
        MadePort { port, fds, shared }
    }

    fn shares(&self) -> bool {
        self.sharing.as_ref().is_some_and(|sharing| sharing.block.is_some())
    }

    /// After these blocks were freed: if one was that of the program that shares the lookup, the authority's port gets all frames.
    pub(super) fn end_sharing(&mut self, freed: &[u8]) {
        let Some(sharing) = &mut self.sharing else { return };
        if sharing.block.is_none_or(|block| !freed.contains(&block)) {
            return;
        }
        sharing.block = None;
        // The sockets stay until another program shares: others may have them, and a member that leaves changes the numbers.
        let Ok(port) = self.port.as_fd().try_clone_to_owned() else {
            return;
        };
        let take_all = move || {
            if let Err(error) = AfPacket::take_all_of_group(port.as_fd(), filter::PORT_MEMBER) {
                tracing::warn!("{error}; frames for ports of a program that has ended are lost");
            }
        };
        if let Err(error) = std::thread::Builder::new().spawn(take_all) {
            tracing::warn!("{error}; frames for ports of a program that has ended are lost");
        }
    }
}

impl Esp {
    /// Goes on with a port that shares the lookup with a program's sockets.
    pub(super) fn share_lookup(&mut self, (port, sharing): (AfPacket, Sharing), now: Time) {
        // What the old one still has; what arrives from now on is in the new one as well.
        for _ in 0..TURNS_MAX {
            if !self.handle_frames(now) {
                break;
            }
        }
        let _ = epoll::delete(&self.watch, &self.wire.port);
        if let Err(error) = epoll::add(&self.watch, &port, Watched::Port.to_data(), epoll::EventFlags::IN) {
            tracing::warn!("{error}; handshakes of ESP wait for the next turn");
        }
        close_later((
            std::mem::replace(&mut self.wire.port, port),
            self.wire.sharing.replace(sharing),
        ));
    }
}
