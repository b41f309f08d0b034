//! The programs that have ports, and what they ask for.

use std::{
    fs::File,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use esp::{ConnectionId, State};
use ether::Time;
use rustix::fs::{Mode, fchmod};
use weft_authority::{
    OmxdError, Refusal,
    esp::{
        EspConnection, EspListening, EspProgram, EspReply, EspStatus, OpenedPort, PAGE_ENTRIES_MAX, RECORDS_MAX,
        REPORT_LEN, write_report,
    },
};

use super::{Esp, Refused};
use crate::{owners::Program, pairing::sealed_memory};

/// A program that has ports.
pub(super) struct Session {
    pid: u32,
    user: u32,
    command: String,
    /// The memory in which it reports.
    report: OwnedFd,
    /// The longest packets that all of its ports have room for.
    pub(super) port_mtu: usize,
}

/// A program that asks.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    /// Its connection.
    pub(crate) connection: u64,
    pub(crate) pid: u32,
    pub(crate) user: u32,
    /// It is root's, or of the user of this authority.
    pub(crate) privileged: bool,
}

/// An answer, with the descriptors that go with it.
pub(crate) type Answered = Result<(EspReply, Vec<OwnedFd>), Refused>;

/// Says that the system refused something.
pub(super) fn system(error: impl Into<OmxdError>) -> Refused {
    (Refusal::System, error.into().to_string())
}

impl Session {
    /// Makes the session of a program, with its name for itself, and memory for its reports.
    fn new(who: &Asking, command: String, port_mtu: usize) -> Result<Self, Refused> {
        Ok(Self {
            pid: who.pid,
            user: who.user,
            command,
            report: report_memory()?,
            port_mtu,
        })
    }

    fn report(&self) -> Result<OwnedFd, Refused> {
        let report = self.report.try_clone().map_err(OmxdError::io("hand memory out"));
        report.map_err(system)
    }
}

/// Changes of blocks, for the record of who has them.
pub(crate) type Freed = Vec<u8>;

impl Esp {
    /// Opens a session with its first port. A program that had one gets it anew.
    pub(crate) fn open(&mut self, who: &Asking, command: String, takes_bulk: bool, now: Time) -> Answered {
        let mut session = Session::new(who, command, usize::MAX)?;
        let report = session.report()?;
        let (port, mut fds) = self.give_port(who, takes_bulk, now)?;
        session.port_mtu = port.mtu;
        self.sessions.insert(who.connection, session);
        let ether_type = self.wire.ether_type.0;
        fds.push(report);
        Ok((EspReply::Opened { port, ether_type }, fds))
    }

    /// Opens a further port of a session.
    pub(crate) fn more_ports(&mut self, who: &Asking, now: Time) -> Answered {
        if !self.sessions.contains_key(&who.connection) {
            let sentence = "this program has no port for ESP yet".to_owned();
            return Err((Refusal::NotOpen, sentence));
        }
        let (port, fds) = self.give_port(who, false, now)?;
        if let Some(session) = self.sessions.get_mut(&who.connection) {
            session.port_mtu = session.port_mtu.min(port.mtu);
        }
        Ok((EspReply::MorePorts(port), fds))
    }

    fn give_port(&mut self, who: &Asking, takes_bulk: bool, now: Time) -> Result<(OpenedPort, Vec<OwnedFd>), Refused> {
        let block = self.blocks.give(who.connection, who.user, who.privileged)?;
        // Until the program's socket is there, its frames go nowhere.
        self.blocks_changed();
        let made = self.wire.port_for(block, takes_bulk, self.blocks.taken());
        let made = made.map_err(|error| {
            self.blocks.take_from(who.connection, block);
            self.blocks_changed();
            system(error)
        })?;
        if let Some(shared) = made.shared {
            self.share_lookup(shared, now);
        }
        Ok((made.port, made.fds))
    }

    /// Takes blocks of an earlier authority back for their program: all of them or none.
    pub(crate) fn resume(&mut self, who: &Asking, blocks: &[u8], mtu: usize, command: String) -> Answered {
        let program = Program::new(who.user, who.pid);
        let session = Session::new(who, command, mtu)?;
        let report = session.report()?;
        for (at, block) in blocks.iter().enumerate() {
            if let Err(refused) = self.blocks.take_back(*block, who, &program) {
                for taken in &blocks[..at] {
                    self.blocks.give_back(*taken, &program);
                }
                return Err(refused);
            }
        }
        self.sessions.insert(who.connection, session);
        self.blocks_changed();
        Ok((EspReply::Resumed, vec![report]))
    }

    /// Frees what a connection had; returns its blocks.
    pub(crate) fn release(&mut self, connection: u64) -> Freed {
        self.sessions.remove(&connection);
        let freed = self.blocks.release(connection);
        if !freed.is_empty() {
            self.blocks_changed();
            self.wire.end_sharing(&freed);
        }
        freed
    }

    /// Frees blocks of an earlier authority whose programs have ended; returns them.
    pub(crate) fn expire_blocks(&mut self, now: Time) -> Freed {
        if !self.blocks.expects() {
            return Vec::new();
        }
        let freed = self.blocks.expire(now);
        if !freed.is_empty() {
            self.blocks_changed();
        }
        freed
    }

    /// Returns the blocks of a connection.
    pub(crate) fn blocks_of(&self, connection: u64) -> Vec<u8> {
        self.blocks.of(connection)
    }

    pub(crate) fn status(&mut self, now: Time) -> EspStatus {
        self.addresses.refresh(now);
        let half_open = self.half_open_ports().count();
        EspStatus {
            off: None,
            ether_type: self.wire.ether_type.0,
            mtu: self.wire.interface.mtu,
            addresses: self.addresses.of(&self.wire.interface.name),
            blocks: self.blocks.count(),
            programs: self.sessions.len(),
            listeners: self.listeners.len(),
            half_open,
            unclaimed: self.tokens.len(),
            counters: self.counts.all(),
            engine: self.counts.of_engine(self.engine_counts()),
        }
    }

    fn engine_counts(&self) -> impl Iterator<Item = u64> {
        self.engine.counters().iter().map(|(_, count)| count)
    }

    /// Counts from 0 from now on.
    pub(crate) fn clear_counters(&mut self) {
        let engine = self.engine_counts().collect();
        self.counts.clear(engine);
    }

    /// Lists the ports that half-open connections are for.
    fn half_open_ports(&self) -> impl Iterator<Item = u16> {
        let infos = self.engine.ids().filter_map(|id| self.engine.info(id).ok());
        infos
            .filter(|info| info.state == State::SynReceived)
            .map(|info| info.listened_port)
    }

    /// Lists programs behind a session.
    pub(crate) fn programs(&self, after: Option<u64>) -> Vec<EspProgram> {
        let first = after.map_or(0, |after| after.saturating_add(1));
        let sessions = self.sessions.range(first..).take(PAGE_ENTRIES_MAX);
        sessions
            .map(|(connection, session)| EspProgram {
                session: *connection,
                pid: session.pid,
                user: session.user,
                command: session.command.clone(),
                blocks: self.blocks.of(*connection),
            })
            .collect()
    }

    /// Lists listeners behind a number.
    pub(crate) fn listening(&self, after: Option<u64>) -> Vec<EspListening> {
        let half_open: Vec<u16> = self.half_open_ports().collect();
        let listeners = self.listeners.list(after).take(PAGE_ENTRIES_MAX);
        listeners
            .map(|listening| EspListening {
                half_open: half_open
                    .iter()
                    .filter(|port| **port == listening.address.port())
                    .count(),
                unclaimed: self.tokens.of_address(listening.address),
                ..listening
            })
            .collect()
    }

    /// Opens the memory in which a program reports, for reading alone.
    pub(crate) fn report(&self, session: u64) -> Answered {
        let Some(session) = self.sessions.get(&session) else {
            return Err((Refusal::NotOpen, "there is no such program".to_owned()));
        };
        let readable = open_for_reading(session.report.as_fd()).map_err(system)?;
        Ok((EspReply::Done, vec![readable]))
    }

    /// Reports the connections that no program has yet.
    pub(crate) fn handshakes(&self, now: Time) -> Answered {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let time_ns = time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned();
        let begin_ns = time_ns.saturating_sub(now.as_nanos());
        let mut records = Vec::new();
        let mut omitted = 0;
        for (at, id) in self.engine.ids().enumerate() {
            if at >= RECORDS_MAX {
                omitted += 1;
            } else if let Some(connection) = self.handshake(id, begin_ns) {
                connection.put(&mut records);
            }
        }
        let memory = report_memory()?;
        write_report(&memory, 2, &records, omitted).map_err(|error| system(OmxdError::io("write a report")(error)))?;
        let readable = open_for_reading(memory.as_fd()).map_err(system)?;
        Ok((EspReply::Done, vec![readable]))
    }

    /// Describes a connection; the engine's time began at `begin_ns`.
    fn handshake(&self, id: ConnectionId, begin_ns: u64) -> Option<EspConnection> {
        let mut info = self.engine.info(id).ok()?;
        info.sent_at = info.sent_at.plus_nanos(begin_ns);
        info.heard_at = info.heard_at.plus_nanos(begin_ns);
        let names = self.engine.names(id).ok()?;
        Some(EspConnection {
            info,
            local: names.map(|names| SocketAddr::new(names.destination(), info.listened_port)),
            peer: names.map(|names| names.source()),
            socket: 0,
        })
    }
}

/// Makes memory for a report that who gets it for reading cannot open for writing.
fn report_memory() -> Result<OwnedFd, Refused> {
    let memory = sealed_memory("esp-report", REPORT_LEN).map_err(system)?;
    let changed = fchmod(&memory, Mode::RUSR).map_err(OmxdError::io("make memory to be shared"));
    changed.map_err(system)?;
    Ok(memory)
}

/// Opens memory anew, so that the program that gets it cannot write to it.
fn open_for_reading(memory: BorrowedFd<'_>) -> Result<OwnedFd, OmxdError> {
    let file = File::open(format!("/proc/self/fd/{}", memory.as_raw_fd()));
    Ok(file.map_err(OmxdError::io("hand memory out"))?.into())
}
