//! The connections of an endpoint to the peers of its address vector: begun with the first message, and asked for anew when they failed.
//! Sends [are kept](super::kept) meanwhile.

use std::{
    ffi::c_int,
    time::{Duration, Instant},
};

use ether::MacAddr;
use omx::{Address, Board, Error, Status, StatusCode};

use super::{
    CONNECTION, Guarded, KEY, State,
    errors::{error_number, meaning},
};
use crate::{
    abi::*,
    log::{Level, log},
};

/// A peer that has not answered a connection for so long is told to the user: programs go on to wait until resends are used up.
const SILENCE_TOLD: Duration = Duration::from_secs(10);

/// What the endpoint knows of a peer of the address vector.
#[derive(Clone, Copy)]
pub(super) enum Connection {
    None,
    /// Asked for then; the user was told or not that no answer has come.
    Asked {
        since: Instant,
        is_told: bool,
    },
    /// There is one, and sends that were kept go before others.
    Answered(Address),
    Made(Address),
    /// The program has not heard of this error number.
    Failed(c_int),
}

impl State {
    /// Returns the address of a peer to which sends can go. `None`: they are kept, because the connection is being made, or
    /// because others are kept that go first. Otherwise the program hears why there is no connection.
    #[inline]
    pub(super) fn peer(&self, guarded: &mut Guarded, number: FiAddr) -> Result<Option<Address>, c_int> {
        guarded.notice_changes();
        match guarded.connections.get(number as usize) {
            Some(Connection::Made(address)) => Ok(Some(*address)),
            _ => self.connect(guarded, number),
        }
    }

    /// Connects to a peer, or says how that goes.
    fn connect(&self, guarded: &mut Guarded, number: FiAddr) -> Result<Option<Address>, c_int> {
        let Some(vector) = &guarded.bindings.peers else {
            return Err(FI_ENOAV);
        };
        let wanted = vector.peers().get(number).ok_or(FI_EINVAL)?;
        let at = number as usize;
        if guarded.connections.len() <= at {
            guarded.connections.resize(at + 1, Connection::None);
        }
        if matches!(guarded.connections[at], Connection::None) {
            let asked = self
                .omx
                .iconnect(wanted.mac, wanted.endpoint, KEY, 0, number | CONNECTION);
            match asked {
                Ok(_) => {
                    let since = Instant::now();
                    guarded.connections[at] = Connection::Asked { since, is_told: false };
                }
                Err(Error::NoResources) => return Err(FI_EAGAIN),
                Err(error) => {
                    log(Level::Error, || format!("{wanted}: {error}"));
                    return Err(error_number(&error));
                }
            }
            // A connection to the endpoint itself is there already.
            self.take_completions(guarded);
        }
        match guarded.connections[at] {
            Connection::Made(address) => Ok(Some(address)),
            Connection::Failed(err) => {
                guarded.connections[at] = Connection::None;
                Err(err)
            }
            Connection::Asked { .. } | Connection::Answered(_) => Ok(None),
            Connection::None => Err(FI_EAGAIN),
        }
    }

    /// Returns the time until the user is to be told that a peer is silent.
    pub(super) fn time_until_told(guarded: &Guarded) -> Option<Duration> {
        let waiting = guarded
            .kept
            .peers()
            .filter_map(|number| match guarded.connections.get(number as usize)? {
                Connection::Asked { since, is_told: false } => Some(SILENCE_TOLD.saturating_sub(since.elapsed())),
                _ => None,
            });
        waiting.min()
    }

    /// Tells the user of a peer that has not answered for long, once. A process on a host that is there may only be busy, or not have
    /// begun: nothing has failed yet.
    pub(super) fn tell_silence(&self, guarded: &mut Guarded, number: FiAddr) {
        let Some(Connection::Asked { since, is_told }) = guarded.connections.get_mut(number as usize) else {
            return;
        };
        if *is_told || since.elapsed() < SILENCE_TOLD {
            return;
        }
        *is_told = true;
        let peers = guarded.bindings.peers.as_ref();
        let Some(wanted) = peers.and_then(|peers| peers.peers().get(number)) else {
            return;
        };
        let is_on_this_host = self.is_on_this_host(wanted.mac);
        let (level, advice) = if is_on_this_host || self.has_name(wanted.mac) {
            (
                Level::Warn,
                "its host is there: the process is busy, stopped, or not there yet",
            )
        } else {
            (
                Level::Error,
                meaning(StatusCode::Unreachable, false).1.unwrap_or_default(),
            )
        };
        log(level, || {
            format!("{wanted} has not answered for {} s; {advice}", SILENCE_TOLD.as_secs())
        });
    }

    pub(super) fn is_on_this_host(&self, mac: MacAddr) -> bool {
        mac == self.omx.address().mac()
    }

    /// Whether the authority of the interface knows a host by its name, which only that host has told it.
    fn has_name(&self, mac: MacAddr) -> bool {
        let status = self.omx.board().map(Board::status);
        status.is_some_and(|status| {
            status.is_ok_and(|(_, peers)| peers.iter().any(|peer| peer.mac == mac && peer.name.is_some()))
        })
    }

    /// Takes the answer to a connection that was asked for.
    pub(super) fn connected(&self, guarded: &mut Guarded, number: FiAddr, status: &Status) {
        let wanted = guarded
            .bindings
            .peers
            .as_ref()
            .and_then(|peers| peers.peers().get(number));
        let Some(connection) = guarded.connections.get_mut(number as usize) else {
            return;
        };
        // The peer may have been removed meanwhile.
        let Some(wanted) = wanted.filter(|_| matches!(connection, Connection::Asked { .. })) else {
            return;
        };
        *connection = match status.address.filter(|_| status.code == StatusCode::Success) {
            Some(address) if address.session() == wanted.session => Connection::Answered(address),
            Some(_) => {
                log(Level::Error, || {
                    format!("{wanted}: the process that had this address has ended")
                });
                Connection::Failed(FI_ECONNREFUSED)
            }
            None => {
                let (err, advice) = meaning(status.code, self.is_on_this_host(wanted.mac));
                log(Level::Error, || {
                    format!(
                        "{wanted}: {}; {}",
                        status.code,
                        advice.unwrap_or("it cannot be connected")
                    )
                });
                Connection::Failed(err)
            }
        };
    }
}
