//! Boards: Ethernet interfaces with their authority, and the peers it knows.

use std::time::Instant;

use ether::MacAddr;
use mxoe::engine::{Counter, Counters};
use netif::{Interface, NetifError};
use weft_authority::{BoardStatus, LeftOut, NumberedInterface, OmxdError, START_LIMIT, Session, Settings};

use crate::Error;

/// An Ethernet interface that carries MX messages, or could.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Board(NumberedInterface);

/// A peer in the table of a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardPeer {
    /// Its index.
    pub index: u16,
    /// Its address.
    pub mac: MacAddr,
    /// Its name; `None` while it is not known.
    pub name: Option<String>,
}

impl Board {
    /// Lists the boards of this host, in the order of their numbers: the interfaces that `OMX_IFACES` names (a list
    /// with commas), else every Ethernet interface but loopback that is switched on and has the MTU.
    ///
    /// Where it names none, numbers count all Ethernet interfaces, so that no board's number changes when another interface is
    /// switched: there are holes.
    ///
    /// # Errors
    /// [`Error::BoardNotFound`] for a name in the list that does not exist.
    pub fn all() -> Result<Vec<Self>, Error> {
        let mut boards = Self::numbered()?;
        boards.retain(|board| board.left_out().is_none());
        Ok(boards)
    }

    /// Lists the boards, and the interfaces that [are no boards now](Board::left_out) but have a number.
    ///
    /// # Errors
    /// As [`Board::all`].
    pub fn numbered() -> Result<Vec<Self>, Error> {
        let wanted = match Settings::read() {
            Ok(settings) => settings.get("OMX_IFACES"),
            Err(error) => {
                // What is only for root is no reason to send nothing.
                tracing::warn!("{error}");
                Settings::default().get("OMX_IFACES")
            }
        };
        let found = weft_authority::interfaces(wanted.as_deref()).map_err(wrong_interface)?;
        Ok(found.into_iter().map(Self).collect())
    }

    /// Finds the board on this interface, which may be loopback, or switched off.
    ///
    /// # Errors
    /// [`Error::BoardNotFound`].
    pub fn named(name: &str) -> Result<Self, Error> {
        let mut boards = Self::numbered()?.into_iter();
        if let Some(board) = boards.find(|board| board.interface().name == name) {
            return Ok(board);
        }
        Ok(Self(NumberedInterface {
            number: 0,
            interface: Interface::find(name).map_err(wrong_interface)?,
            left_out: None,
        }))
    }

    /// Finds the first board that is switched on.
    ///
    /// # Errors
    /// [`Error::BoardNotFound`]; [`Error::BoardUnusable`] if there are interfaces, but none that can be used now.
    pub fn first() -> Result<Self, Error> {
        let mut boards = Self::numbered()?;
        let usable = |board: &Self| board.left_out().is_none() && board.interface().up;
        match boards.iter().position(usable) {
            Some(at) => Ok(boards.swap_remove(at)),
            None if boards.is_empty() => Err(not_found("of an Ethernet interface")),
            None => Err(Error::BoardUnusable {
                sentence: unusable(&boards),
            }),
        }
    }

    /// Finds the board with this number, also while its interface is switched off.
    ///
    /// # Errors
    /// [`Error::BoardNotFound`].
    pub fn number(number: u32) -> Result<Self, Error> {
        let mut boards = Self::numbered()?.into_iter();
        let found = boards.find(|board| board.board_number() == number);
        found.ok_or_else(|| not_found(&number.to_string()))
    }

    /// Says why the interface is not among [all boards](Board::all) now.
    pub const fn left_out(&self) -> Option<LeftOut> {
        self.0.left_out
    }

    /// Returns the board's number.
    pub const fn board_number(&self) -> u32 {
        self.0.number
    }

    /// Returns the board's interface.
    pub const fn interface(&self) -> &Interface {
        &self.0.interface
    }

    /// Asks the authority a question that may be repeated. An authority that is being restarted is waited for.
    fn ask<T>(&self, question: impl Fn(&Session) -> Result<T, OmxdError>) -> Result<T, Error> {
        let begin = Instant::now();
        loop {
            match question(&Session::connect(self.interface())?) {
                // The authority ended in between: its successor answers.
                Err(OmxdError::Gone) if begin.elapsed() < START_LIMIT => {}
                answer => return Ok(answer?),
            }
        }
    }

    /// Asks the authority for its status and its peers. Waits up to [`START_LIMIT`] for one that is being started
    /// again, and starts one where there is none and this process may.
    ///
    /// # Errors
    /// [`Error::AccessDenied`], [`Error::Authority`].
    pub fn status(&self) -> Result<(BoardStatus, Vec<BoardPeer>), Error> {
        let (status, table) = self.ask(Session::status)?;
        let peers = (0..table.len()).filter_map(|index| {
            Some(BoardPeer {
                index,
                mac: table.mac(index)?,
                name: table.name(index),
            })
        });
        Ok((status, peers.collect()))
    }

    /// Asks for the counts of the authority and of all endpoints on the board.
    ///
    /// # Errors
    /// As [`Board::status`].
    pub fn counters(&self) -> Result<Counters, Error> {
        let (status, _) = self.status()?;
        let mut counters = Counters::default();
        for (counter, count) in Counter::ALL.iter().zip(status.counters) {
            counters.add_to(*counter, count);
        }
        Ok(counters)
    }

    /// Names this board, or a peer of it, which is added to its table.
    ///
    /// # Errors
    /// [`Error::AccessDenied`] unless the caller is root; [`Error::PeerNotFound`], [`Error::Authority`].
    pub fn set_name(&self, peer: Option<MacAddr>, name: &str) -> Result<(), Error> {
        self.ask(|session| session.set_name(peer, name))
    }

    /// Adds a peer to the table of this board.
    ///
    /// # Errors
    /// [`Error::PeerNotFound`] when the table is full; [`Error::Authority`].
    pub fn add_peer(&self, peer: MacAddr) -> Result<u16, Error> {
        self.ask(|session| session.add_peer(peer))
    }

    /// Forgets the names of all peers, which are asked for anew.
    ///
    /// # Errors
    /// As [`Board::set_name`].
    pub fn clear_names(&self) -> Result<(), Error> {
        self.ask(Session::clear_names)
    }

    /// Sets the counts back to 0.
    ///
    /// # Errors
    /// As [`Board::set_name`].
    pub fn clear_counters(&self) -> Result<(), Error> {
        self.ask(Session::clear_counters)
    }

    /// Finds the address of the peer with this name.
    ///
    /// # Errors
    /// [`Error::NameNotFound`]; as [`Board::status`].
    pub fn find_peer(&self, name: &str) -> Result<MacAddr, Error> {
        let (_, table) = self.ask(Session::status)?;
        let index = table.find(name).ok_or(Error::NameNotFound)?;
        table.mac(index).ok_or(Error::NameNotFound)
    }

    /// Finds the address of a host: of the peer with this name, or of the host's board with the lowest number, if the name is
    /// without one.
    ///
    /// # Errors
    /// As [`Board::find_peer`].
    pub fn find_host(&self, name: &str) -> Result<MacAddr, Error> {
        let (_, peers) = self.status()?;
        host(&peers, name).ok_or(Error::NameNotFound)
    }
}

/// Finds the peer with this name, or the host's board with the lowest number.
fn host(peers: &[BoardPeer], name: &str) -> Option<MacAddr> {
    let rank = |peer: &BoardPeer| {
        let (host, number) = match peer.name.as_deref()?.strip_prefix(name)? {
            "" => return Some(0),
            rest => rest.split_at(1),
        };
        number
            .parse::<u32>()
            .ok()
            .filter(|_| host == ":")
            .map(|number| u64::from(number) + 1)
    };
    let ranked = peers.iter().filter_map(|peer| Some((rank(peer)?, peer.mac)));
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, mac)| mac)
}

/// Says of each interface why it cannot be used now.
fn unusable(boards: &[Board]) -> String {
    let why = boards.iter().map(|board| {
        let why = board.left_out().unwrap_or(LeftOut::Down);
        format!("{}: {why}", board.interface().name)
    });
    format!(
        "no interface can be used for messages ({})",
        why.collect::<Vec<_>>().join("; ")
    )
}

fn wrong_interface(error: NetifError) -> Error {
    match error {
        NetifError::NoSuchInterface { name } | NetifError::NotEthernet { name, .. } => not_found(&name),
        // The system's reason, not the name's.
        error => OmxdError::from(error).into(),
    }
}

fn not_found(board: &str) -> Error {
    Error::BoardNotFound {
        board: board.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_host_is_its_first_board() {
        let names = ["left:0", "right:10", "right:2", "right2:0", "right:x", "ri", "own"];
        let peers: Vec<_> = (0..)
            .zip(names)
            .map(|(index, name)| BoardPeer {
                index,
                mac: MacAddr([2, 0, 0, 0, 0, index as u8]),
                name: Some(name.to_owned()),
            })
            .collect();
        let found = |name| host(&peers, name).map(|mac| mac.0[5]);
        assert_eq!(found("left"), Some(0), "its only board");
        assert_eq!(found("right"), Some(2), "its first board");
        assert_eq!(found("right:10"), Some(1), "a board that is named");
        assert_eq!(found("own"), Some(6), "a name without a number");
        for name in ["righ", "right:", "right:1", "RIGHT", ""] {
            assert_eq!(found(name), None, "{name}");
        }
    }
}
