//! EDP: pings of others are answered, and pings are sent for programs that ask where a host is, or whether it is there.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use esp::wire::{Body, Frame, Header, Path, Ping, Pong, Question, emit};
use ether::{MacAddr, Time};
use weft_authority::{
    Refusal,
    esp::{EspCounter, EspPong, EspReply, EspRoute, EspTarget},
};

use super::{
    Esp, Refused,
    resolver::{Answer, Host},
    sessions::{Asking, system},
};

/// Pings of programs that wait for their answers.
const WAITING_MAX: usize = 1024;
/// A program waits for an answer at most so long.
const LIMIT_MAX: Duration = Duration::from_secs(60);
/// Longest frame of EDP: a pong with as many addresses as there can be.
const FRAME_LEN_MAX: usize = 384;

/// A program that waits for the answer to a ping.
#[derive(Debug)]
struct Waiting {
    cookie: u64,
    sent: Time,
    until: Time,
}

/// The pings of programs, by connection.
#[derive(Debug, Default)]
pub(super) struct Pings {
    waiting: HashMap<u64, Waiting>,
}

impl Pings {
    pub(super) fn due(&self) -> Option<Time> {
        self.waiting.values().map(|waiting| waiting.until).min()
    }

    /// Takes the one with this cookie.
    fn take(&mut self, cookie: u64) -> Option<(u64, Waiting)> {
        let (connection, _) = self.waiting.iter().find(|(_, waiting)| waiting.cookie == cookie)?;
        let connection = *connection;
        Some((connection, self.waiting.remove(&connection)?))
    }
}

impl Esp {
    /// Takes a frame of EDP.
    pub(super) fn handle_edp(&mut self, frame: &Frame<'_>, now: Time) {
        if frame.source.is_multicast() || frame.source == self.wire.interface.mac {
            return self.counts.count(EspCounter::Malformed);
        }
        match frame.body(false) {
            Ok(Body::Ping(ping)) => self.answer_ping(frame, &ping, now),
            Ok(Body::Pong(pong)) => self.handle_pong(frame.source, &pong, now),
            // No program takes datagrams.
            Ok(_) => self.counts.count(EspCounter::Datagrams),
            Err(_) => self.counts.count(EspCounter::Malformed),
        }
    }

    fn answer_ping(&mut self, frame: &Frame<'_>, ping: &Ping, now: Time) {
        self.addresses.refresh(now);
        let asked = match ping.question {
            Question::Anyone => None,
            Question::Owner(ip) => Some(ip),
        };
        let Some(addresses) = self.addresses.for_pong(&self.wire.interface.name, asked) else {
            return;
        };
        let pong = Pong {
            cookie: ping.cookie,
            mtu: self.engine.config().mtu,
            addresses,
        };
        let header = Header::new(frame.header.destination_port, frame.header.source_port);
        self.counts.count(EspCounter::PingsAnswered);
        self.send_edp(frame.source, &header, &Body::Pong(pong));
    }

    fn send_edp(&mut self, to: MacAddr, header: &Header, body: &Body<'_>) {
        let path = Path {
            destination: to,
            source: self.wire.interface.mac,
            ether_type: self.wire.ether_type,
        };
        let mut frame = [0; FRAME_LEN_MAX];
        match emit(&mut frame, &path, header, body, false) {
            Ok(len) => self.send(&frame[..len]),
            Err(_) => self.counts.count(EspCounter::SendFailed),
        }
    }

    fn send_ping(&mut self, to: MacAddr, cookie: u64, question: Question) {
        self.counts.count(EspCounter::PingsSent);
        self.send_edp(to, &Header::new(0, 0), &Body::Ping(Ping { cookie, question }));
    }

    fn handle_pong(&mut self, from: MacAddr, pong: &Pong, now: Time) {
        if let Some(answers) = self.resolver.handle(from, pong, now) {
            self.counts.count(EspCounter::Pongs);
            self.counts.count(EspCounter::Resolved);
            self.say_routes(answers);
        } else if let Some((connection, waiting)) = self.pings.take(pong.cookie) {
            self.counts.count(EspCounter::Pongs);
            let answer = EspPong {
                mac: from.0,
                round_trip_ns: now.nanos_since(waiting.sent),
                mtu: pong.mtu.into(),
                addresses: pong.addresses.as_slice().to_vec(),
            };
            self.answers.push((connection, EspReply::Pong(Some(answer))));
        } else {
            self.counts.count(EspCounter::PongsStray);
        }
    }

    fn say_routes(&mut self, answers: Vec<Answer>) {
        for (connection, ip, host) in answers {
            let route = self.route(ip, host);
            self.answers.push((connection, EspReply::Route(route)));
        }
    }

    fn route(&self, ip: IpAddr, host: Option<Host>) -> EspRoute {
        match host {
            Some(host) => EspRoute::Peer {
                mac: host.mac.0,
                mtu: host.mtu.into(),
                own: self.addresses.near(&self.wire.interface.name, ip),
            },
            None => EspRoute::Elsewhere,
        }
    }

    /// Says where an IP address is; `None`: the answer comes later.
    pub(crate) fn resolve(&mut self, who: &Asking, ip: IpAddr, now: Time) -> Result<Option<EspReply>, Refused> {
        let ip = ip.to_canonical();
        self.addresses.refresh(now);
        if self.addresses.is_own(ip) {
            return Ok(Some(EspReply::Route(EspRoute::OwnHost)));
        }
        if !self.addresses.is_plausible(&self.wire.interface.name, ip) {
            return Ok(Some(EspReply::Route(EspRoute::Elsewhere)));
        }
        let cookie = self.random.next().map_err(system)?;
        match self.resolver.ask(ip, who.connection, cookie, now, &mut self.counts) {
            Ok(None) => {
                self.resolve_due(now);
                Ok(None)
            }
            Ok(Some(host)) => Ok(Some(EspReply::Route(self.route(ip, host)))),
            Err(()) => Err((Refusal::Busy, "too many addresses are asked for at present".to_owned())),
        }
    }

    /// Sends the pings that are due, and says where no host has answered.
    pub(super) fn resolve_due(&mut self, now: Time) {
        let (pings, answers) = self.resolver.handle_timeout(now);
        for (cookie, ip) in pings {
            self.send_ping(MacAddr::BROADCAST, cookie, Question::Owner(ip));
        }
        for _ in &answers {
            self.counts.count(EspCounter::Unresolved);
        }
        self.say_routes(answers);
    }

    /// Sends a ping for a program, whose answer comes later.
    pub(crate) fn ping(
        &mut self,
        who: &Asking,
        to: EspTarget,
        limit_ms: u32,
        now: Time,
    ) -> Result<Option<EspReply>, Refused> {
        let (to, question) = match to {
            EspTarget::Mac(mac) => (MacAddr(mac), Question::Anyone),
            EspTarget::Ip(ip) => (MacAddr::BROADCAST, Question::Owner(ip.to_canonical())),
        };
        if to == self.wire.interface.mac {
            let sentence = format!("{to} is the address of {} itself", self.wire.interface.name);
            return Err((Refusal::NoPeer, sentence));
        }
        if self.pings.waiting.len() >= WAITING_MAX {
            return Err((Refusal::Busy, "too many programs wait for answers to pings".to_owned()));
        }
        let limit = Duration::from_millis(limit_ms.into()).min(LIMIT_MAX);
        let cookie = self.random.next().map_err(system)?;
        let waiting = Waiting {
            cookie,
            sent: now,
            until: now.plus_nanos(limit.as_nanos() as u64),
        };
        self.pings.waiting.insert(who.connection, waiting);
        self.send_ping(to, cookie, question);
        Ok(None)
    }

    /// Says where no host has answered a ping.
    pub(super) fn expire_pings(&mut self, now: Time) {
        let over = self.pings.waiting.extract_if(|_, waiting| waiting.until <= now);
        let answers = over.map(|(connection, _)| (connection, EspReply::Pong(None)));
        self.answers.extend(answers);
    }
}
