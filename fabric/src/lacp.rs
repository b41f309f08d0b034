//! Link aggregation control (LACP, IEEE 802.1AX-2008): which ports lead to the same partner, and may carry frames together.
//!
//! It is a state machine without clock: it is told of LACPDUs and of the time, and answers what each port is to do and what is to be
//! sent. That ports are joined is the switch's business. A port whose partner says nothing is a port like any other.

use alloc::vec::Vec;

use ether::{ETHERNET_HEADER_LEN, MacAddr, Time};

use crate::control_frame::ControlFrame;
use crate::ports::PortId;

/// Where LACPDUs go to: they end at the first bridge.
const SLOW_PROTOCOLS: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 2]);

/// What an LACPDU begins with behind the addresses: its EtherType, subtype and version, and the head of the actor's part.
const HEAD: [u8; 6] = [0x88, 0x09, 1, 1, 1, 20];

/// Bytes of an LACPDU with its Ethernet header.
pub(crate) const LACPDU_LEN: usize = 124;

/// Where the actor's and the partner's parts begin, behind their types and lengths, and the bytes of what they say.
const ACTOR_AT: usize = ETHERNET_HEADER_LEN + 4;
const PARTNER_AT: usize = ACTOR_AT + 20;
const PART_LEN: usize = 15;
const COLLECTOR_AT: usize = PARTNER_AT + 18;

/// The priority of systems and ports that IEEE 802.1AX recommends.
const PRIORITY: [u8; 2] = 0x8000_u16.to_be_bytes();

/// Bits of a port's state.
const ACTIVE: u8 = 1;
const SHORT_TIMEOUT: u8 = 2;
const AGGREGATION: u8 = 4;
const SYNCHRONIZED: u8 = 8;
const COLLECTING: u8 = 16;
const DISTRIBUTING: u8 = 32;
const DEFAULTED: u8 = 64;
const EXPIRED: u8 = 128;

/// What a partner must know of this end before frames are exchanged.
const AGREED: u8 = ACTIVE | SHORT_TIMEOUT | AGGREGATION | SYNCHRONIZED;

const SECOND_NS: u64 = 1_000_000_000;

/// Between two LACPDUs to a partner that asks for many, or that is not known; and to one that is content with few.
const FAST_NS: u64 = SECOND_NS;
const SLOW_NS: u64 = 30 * SECOND_NS;

/// How long a partner is believed that says nothing: three of the LACPDUs that it is asked for. As long again it is waited for.
const CURRENT_NS: u64 = 3 * FAST_NS;

/// LACPDUs that a port sends in a second, whatever it is told, and those that it hears: a partner sends no more than three, and each
/// that changes its mind costs a search of all that the switch has learned.
const SENT_MAX: u8 = 3;
const HEARD_MAX: u8 = 10;

/// What one end says of itself: system, key, port and state.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Part([u8; PART_LEN]);

impl Part {
    fn at(frame: &[u8], at: usize) -> Option<Self> {
        frame.get(at..)?.first_chunk().copied().map(Self)
    }

    fn state(self) -> u8 {
        self.0[PART_LEN - 1]
    }

    fn with_state(mut self, state: u8) -> Self {
        self.0[PART_LEN - 1] = state;
        self
    }

    /// Who it is, without the state.
    fn identity(&self) -> &[u8] {
        &self.0[..PART_LEN - 1]
    }

    /// System and key: ports that have both in common may be bundled.
    fn bundle(&self) -> [u8; 10] {
        self.0.first_chunk().copied().unwrap_or_default()
    }
}

/// What a port is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// It is a port like any other: no station behind it speaks LACP.
    Alone,
    /// It carries nothing until its partner is ready.
    Wait,
    /// It carries frames together with those of the same partner.
    With(Partner),
}

/// Who is behind ports that belong together: the key of this end, and system and key of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partner(u16, [u8; 10]);

struct Port {
    id: PortId,
    key: u16,
    is_up: bool,
    /// What the partner said last of itself; none: nothing, for too long.
    partner: Option<Part>,
    /// What the partner believes of this end is true.
    is_known: bool,
    /// Until then the partner is believed, or, if it is late, waited for.
    current_until: Time,
    is_late: bool,
    /// There is something to say.
    has_news: bool,
    next_at: Time,
    sent: Window,
    heard: Window,
    /// What the switch was told to do with it.
    told: Duty,
}

/// What happened in the present second.
#[derive(Clone, Copy, Default)]
struct Window {
    since: Time,
    count: u8,
}

impl Window {
    /// When it may happen again, if no more than `most` in a second may be.
    fn free_at(self, most: u8) -> Time {
        if self.count < most {
            Time::ZERO
        } else {
            self.since.plus_nanos(SECOND_NS)
        }
    }

    fn note(&mut self, now: Time) {
        if self.count == 0 || now >= self.since.plus_nanos(SECOND_NS) {
            (self.since, self.count) = (now, 0);
        }
        self.count += 1;
    }
}

impl Port {
    fn may_bundle(&self) -> bool {
        self.is_up && !self.is_late && self.partner.is_some_and(|partner| partner.state() & AGGREGATION != 0)
    }

    fn duty(&self) -> Duty {
        match self.partner {
            Some(partner) if self.is_up && partner.state() & AGGREGATION != 0 => {
                if self.may_bundle() && self.is_known && partner.state() & SYNCHRONIZED != 0 {
                    Duty::With(Partner(self.key, partner.bundle()))
                } else {
                    Duty::Wait
                }
            }
            _ => Duty::Alone,
        }
    }

    fn state(&self) -> u8 {
        let mut state = ACTIVE | SHORT_TIMEOUT | AGGREGATION;
        if self.may_bundle() {
            state |= SYNCHRONIZED;
        }
        if let Duty::With(_) = self.duty() {
            state |= COLLECTING | DISTRIBUTING;
        }
        if self.partner.is_none() {
            state |= DEFAULTED;
        }
        if self.is_late {
            state |= EXPIRED;
        }
        state
    }

    fn part(&self, system: MacAddr) -> Part {
        let mut part = [0; PART_LEN];
        part[..2].copy_from_slice(&PRIORITY);
        part[2..8].copy_from_slice(&system.0);
        part[8..10].copy_from_slice(&self.key.to_be_bytes());
        part[10..12].copy_from_slice(&PRIORITY);
        // Number 0 is no port.
        part[12..14].copy_from_slice(&self.id.0.wrapping_add(1).to_be_bytes());
        part[14] = self.state();
        Part(part)
    }

    fn interval_ns(&self) -> u64 {
        match self.partner {
            Some(partner) if partner.state() & SHORT_TIMEOUT == 0 => SLOW_NS,
            _ => FAST_NS,
        }
    }

    /// Begins to wait for a partner, or for a carrier.
    fn forget(&mut self, is_up: bool) {
        (self.is_up, self.partner, self.is_known, self.is_late) = (is_up, None, false, false);
        self.has_news = is_up;
    }
}

/// The ports of a switch that speak LACP.
pub(crate) struct Lacp {
    system: MacAddr,
    ports: Vec<Port>,
}

impl Lacp {
    /// None speaks it yet. `system` is the address of the switch.
    pub fn new(system: MacAddr) -> Self {
        Self {
            system,
            ports: Vec::new(),
        }
    }

    /// A port speaks LACP from now on. Ports may be bundled that have the same key.
    pub fn add_port(&mut self, id: PortId, key: u16, is_up: bool) {
        self.remove_port(id);
        self.ports.push(Port {
            id,
            key,
            is_up,
            partner: None,
            is_known: false,
            current_until: Time::ZERO,
            is_late: false,
            has_news: is_up,
            next_at: Time::ZERO,
            sent: Window::default(),
            heard: Window::default(),
            told: Duty::Alone,
        });
    }

    /// A port does not speak it any more.
    pub fn remove_port(&mut self, id: PortId) {
        self.ports.retain(|port| port.id != id);
    }

    /// A carrier came or went. True if the port speaks LACP.
    pub fn set_up(&mut self, id: PortId, is_up: bool) -> bool {
        let port = self.ports.iter_mut().find(|port| port.id == id);
        port.is_some_and(|port| {
            port.forget(is_up);
            true
        })
    }

    /// The first port that leads to a partner and is not `except`.
    pub fn other_with(&self, partner: Partner, except: PortId) -> Option<PortId> {
        let is_it = |port: &&Port| port.id != except && port.told == Duty::With(partner);
        self.ports.iter().find(is_it).map(|port| port.id)
    }

    /// A port that is to do something else than the switch knows, and what. To be asked until there is none.
    pub fn take_change(&mut self) -> Option<(PortId, Duty)> {
        let port = self.ports.iter_mut().find(|port| port.told != port.duty())?;
        port.told = port.duty();
        Some((port.id, port.told))
    }

    /// Whether a frame that came in at a port is an LACPDU for it.
    pub fn takes(&self, id: PortId, frame: &[u8]) -> bool {
        frame.starts_with(&SLOW_PROTOCOLS.0)
            && frame.get(12..12 + HEAD.len()) == Some(&HEAD)
            && self.ports.iter().any(|port| port.id == id)
    }

    /// Reads an LACPDU that [`takes`](Self::takes) said is for this port. One that is cut says nothing.
    pub fn receive(&mut self, now: Time, id: PortId, frame: &[u8]) {
        let system = self.system;
        let parts = (Part::at(frame, ACTOR_AT), Part::at(frame, PARTNER_AT));
        let port = self.ports.iter_mut().find(|port| port.id == id);
        let ((Some(partner), Some(believed)), Some(port)) = (parts, port) else {
            return;
        };
        if now < port.heard.free_at(HEARD_MAX) {
            return;
        }
        port.heard.note(now);
        let before = port.part(system);
        port.partner = Some(partner);
        port.is_late = false;
        port.current_until = now.plus_nanos(CURRENT_NS);
        port.is_known = believed.identity() == before.identity() && believed.state() & AGGREGATION != 0;
        let is_true = port.is_known && believed.state() & AGREED == port.state() & AGREED;
        port.has_news |= !is_true || port.state() != before.state();
        port.next_at = port.next_at.min(now.plus_nanos(port.interval_ns()));
    }

    /// Does what is due by now.
    pub fn handle(&mut self, now: Time) {
        for port in self.ports.iter_mut().filter(|port| port.is_up) {
            if let Some(partner) = port.partner
                && now >= port.current_until
            {
                if port.is_late {
                    port.forget(true);
                } else {
                    port.is_late = true;
                    port.partner = Some(partner.with_state(partner.state() & !SYNCHRONIZED | SHORT_TIMEOUT));
                    port.current_until = now.plus_nanos(CURRENT_NS);
                    port.has_news = true;
                }
            }
            port.has_news |= now >= port.next_at;
        }
    }

    /// When there is something to do next, if nothing else happens.
    pub fn next_event(&self) -> Option<Time> {
        let of_port = |port: &Port| {
            let says = if port.has_news {
                port.sent.free_at(SENT_MAX)
            } else {
                port.next_at
            };
            let waits = port.partner.map_or(Time::MAX, |_| port.current_until);
            says.min(waits)
        };
        self.ports.iter().filter(|port| port.is_up).map(of_port).min()
    }

    /// The next LACPDU that is due, to leave by this very port. To be asked until there is none.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(PortId, ControlFrame)> {
        let system = self.system;
        let is_due = |port: &&mut Port| port.is_up && port.has_news && now >= port.sent.free_at(SENT_MAX);
        let port = self.ports.iter_mut().find(is_due)?;
        port.sent.note(now);
        port.has_news = false;
        port.next_at = now.plus_nanos(port.interval_ns());
        let partner = port.partner.unwrap_or(Part([0; PART_LEN]));
        Some((port.id, lacpdu(system, port.part(system), partner)))
    }
}

fn lacpdu(system: MacAddr, actor: Part, partner: Part) -> ControlFrame {
    let mut frame = ControlFrame::zeroed(LACPDU_LEN);
    let bytes = frame.bytes_mut();
    bytes[..6].copy_from_slice(&SLOW_PROTOCOLS.0);
    bytes[6..12].copy_from_slice(&system.0);
    bytes[12..12 + HEAD.len()].copy_from_slice(&HEAD);
    bytes[ACTOR_AT..][..PART_LEN].copy_from_slice(&actor.0);
    bytes[PARTNER_AT - 2..PARTNER_AT].copy_from_slice(&[2, 20]);
    bytes[PARTNER_AT..][..PART_LEN].copy_from_slice(&partner.0);
    bytes[COLLECTOR_AT..][..2].copy_from_slice(&[3, 16]);
    frame
}
