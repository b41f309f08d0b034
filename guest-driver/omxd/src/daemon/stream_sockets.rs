//! ESP in the daemon: its requests, its turn in the daemon's loop, and its record of who has which ports.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ether::EtherType;
use netif::Interface;
use rustix::event::{PollFd, PollFlags};
use weft_authority::{
    OmxdError, PeerTableWriter, Refusal,
    esp::{EspCounter, EspReply, EspRequest, EspStatus},
    protocol::Reply,
};

use super::{Daemon, DaemonOptions, requests::kept_command};
use crate::{
    esp::{Answered, Asking, Esp, Settings, why_no_esp},
    owners::{self, Owned, Program},
};

/// What there is of ESP on an interface.
pub(super) enum StreamSockets {
    On(Box<Esp>),
    /// A sentence says why there is none.
    Off(String),
}

impl StreamSockets {
    /// Serves ESP on an interface where that is possible. Blocks from an earlier authority are those of the record.
    pub(super) fn new(options: &DaemonOptions, interface: &Interface, table: &PeerTableWriter) -> Self {
        let Some(ether_type) = options.esp_ether_type else {
            return Self::Off(format!(
                "ESP is switched off on {} (`omxd --esp-ether-type`); programs use TCP",
                interface.name
            ));
        };
        if ether_type == options.ether_type {
            return Self::Off(format!(
                "ESP is off: {ether_type} is the EtherType of messages; `omxd --esp-ether-type` takes another"
            ));
        }
        if let Some(sentence) = why_no_esp(interface) {
            return Self::Off(sentence);
        }
        let program_of = |block| owners::read(table.private_file(), Owned::Block(block));
        let settings = Settings {
            ether_type,
            ring_len: options.ring_len,
            bulk_socket: options.data_socket,
        };
        match Esp::new(interface, &settings, program_of) {
            Ok(esp) => Self::On(Box::new(esp)),
            Err(error) => {
                tracing::warn!("{error}; there is no ESP on {}", interface.name);
                Self::Off(format!("there is no ESP on {}: {error}", interface.name))
            }
        }
    }

    /// Returns the descriptor to be watched; where there is no ESP it is `other`, watched for nothing.
    pub(super) fn watched<'a>(&'a self, other: BorrowedFd<'a>) -> PollFd<'a> {
        match self {
            Self::On(esp) => PollFd::new(esp.as_ref(), PollFlags::IN),
            Self::Off(_) => PollFd::from_borrowed_fd(other, PollFlags::empty()),
        }
    }

    pub(super) fn on(&mut self) -> Option<&mut Esp> {
        match self {
            Self::On(esp) => Some(esp),
            Self::Off(_) => None,
        }
    }

    pub(super) fn as_on(&self) -> Option<&Esp> {
        match self {
            Self::On(esp) => Some(esp),
            Self::Off(_) => None,
        }
    }
}

/// The state where there is no ESP.
fn off(sentence: String, ether_type: Option<EtherType>, mtu: usize) -> EspStatus {
    EspStatus {
        off: Some(sentence),
        ether_type: ether_type.unwrap_or(EtherType::ESP).0,
        mtu,
        addresses: Vec::new(),
        blocks: 0,
        programs: 0,
        listeners: 0,
        half_open: 0,
        unclaimed: 0,
        counters: vec![0; EspCounter::ALL.len()],
        engine: vec![0; esp::Counter::ALL.len()],
    }
}

/// An answer that needs no descriptors.
fn plain(reply: EspReply) -> Answered {
    Ok((reply, Vec::new()))
}

impl Daemon {
    /// Answers a request about ESP, at once or later.
    pub(super) fn answer_esp(&mut self, at: usize, request: EspRequest) -> Result<(), OmxdError> {
        let now = self.now();
        let client = &self.clients.connections[at];
        let who = Asking {
            connection: client.id,
            pid: client.pid,
            user: client.user,
            privileged: client.privileged,
        };
        let before = self.esp.as_on().map(|esp| esp.blocks_of(who.connection));
        let answered = match (&mut self.esp, request) {
            (StreamSockets::Off(sentence), EspRequest::Status) => {
                let status = off(sentence.clone(), self.options.esp_ether_type, self.board.interface.mtu);
                plain(EspReply::Status(status))
            }
            (StreamSockets::Off(sentence), _) => Err((Refusal::NoEsp, sentence.clone())),
            (StreamSockets::On(esp), request) => match request {
                EspRequest::Open { command, bulk_socket } => {
                    esp.release(who.connection);
                    esp.open(&who, kept_command(command), bulk_socket, now)
                }
                EspRequest::MorePorts => esp.more_ports(&who, now),
                EspRequest::Resume { blocks, mtu, command } => esp.resume(&who, &blocks, mtu, kept_command(command)),
                EspRequest::Listen { address, only_v6 } => esp.listen(&who, address, only_v6),
                EspRequest::Forget { id, key } => esp.forget(id, key),
                EspRequest::Claim { token, key } => esp.claim(&who, token, key, now),
                EspRequest::Resolve { ip } => match esp.resolve(&who, ip, now) {
                    Ok(None) => return Ok(()),
                    answered => answered.map(|reply| (reply.unwrap_or(EspReply::Done), Vec::new())),
                },
                EspRequest::Ping { to, limit_ms } => match esp.ping(&who, to, limit_ms, now) {
                    Ok(None) => return Ok(()),
                    answered => answered.map(|reply| (reply.unwrap_or(EspReply::Done), Vec::new())),
                },
                EspRequest::Status => plain(EspReply::Status(esp.status(now))),
                EspRequest::Programs { after } => plain(EspReply::Programs(esp.programs(after))),
                EspRequest::Listeners { after } => plain(EspReply::Listeners(esp.listening(after))),
                EspRequest::Report { session } => esp.report(session),
                EspRequest::Handshakes => esp.handshakes(now),
            },
        };
        if let Some(before) = before {
            self.record_blocks(&before, &who);
        }
        self.say_esp(at, answered)
    }

    fn say_esp(&self, at: usize, answered: Answered) -> Result<(), OmxdError> {
        let (reply, fds) = match answered {
            Ok((reply, fds)) => (Reply::Esp(reply), fds),
            Err((reason, sentence)) => (Reply::Refused { reason, sentence }, Vec::new()),
        };
        let fds: Vec<_> = fds.iter().map(OwnedFd::as_fd).collect();
        self.say(at, &reply, &fds)
    }

    /// Records which blocks a program has, so that the next authority keeps them for it.
    fn record_blocks(&self, before: &[u8], who: &Asking) {
        let Some(esp) = self.esp.as_on() else { return };
        let blocks = esp.blocks_of(who.connection);
        let program = Program::new(who.user, who.pid);
        let lost: Vec<u8> = before.iter().copied().filter(|block| !blocks.contains(block)).collect();
        self.clear_blocks(&lost);
        for block in blocks.iter().filter(|block| !before.contains(block)) {
            if let Err(error) = owners::write(self.table.private_file(), Owned::Block(*block), &program) {
                tracing::warn!("ports of block {block} will not be known again when omxd is restarted: {error}");
            }
        }
    }

    fn clear_blocks(&self, blocks: &[u8]) {
        for block in blocks {
            if let Err(error) = owners::clear(self.table.private_file(), Owned::Block(*block)) {
                tracing::debug!("ports of block {block} stay recorded: {error}");
            }
        }
    }

    /// Frees what a connection had of ESP.
    pub(super) fn release_esp(&mut self, connection: u64) {
        let freed = self.esp.on().map(|esp| esp.release(connection));
        self.clear_blocks(&freed.unwrap_or_default());
    }

    /// Frees ports from an earlier authority whose programs have ended.
    pub(super) fn expire_esp(&mut self) {
        let now = self.now();
        let freed = self.esp.on().map(|esp| esp.expire_blocks(now));
        self.clear_blocks(&freed.unwrap_or_default());
    }

    /// Handles frames of ESP and what is due. Returns true if there may be more to do at once.
    pub(super) fn serve_esp(&mut self, is_ready: bool) -> bool {
        let now = self.now();
        let Some(esp) = self.esp.on() else { return false };
        if is_ready {
            esp.handle_news();
        }
        let mut more = esp.handle_frames(now);
        esp.handle_time(now);
        more |= esp.transmit(now);
        let answers = esp.take_answers();
        for (connection, reply) in answers {
            let at = self
                .clients
                .connections
                .iter()
                .position(|client| client.id == connection);
            if let Some(at) = at
                && let Err(error) = self.say_esp(at, plain(reply))
            {
                tracing::debug!("{error}");
            }
        }
        more
    }
}
