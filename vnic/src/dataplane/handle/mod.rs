//! The handle through which everything else uses the data plane: ports and trunks come in, settings change, counters go out.
//!
//! One data plane serves all switches of the process: on the two to four cores that a lab has, a second one would only take
//! time from the guests. No sockets and no JSON here.

pub mod card_settings;
pub mod drain;
pub mod flight_recorder;
mod multicast_groups;
mod stats;
pub mod switch;
pub mod trunk;
pub mod watch;

use std::sync::Arc;

use fabric::{Link, LinkConfig, Switch, SwitchConfig, TrunkId};
use vnicd_protocol::{
    CoalescingChange, Direction, DmaChange, LINK_DELAY_NS_MAX, LinkChange, LinkSettings, MEMBER_TIMEOUT_NS_MAX,
    MEMBER_TIMEOUT_NS_MIN, MTU_MIN, MisorderChange, PortInfo, PortLinks, PortSettings, PortStats, SteeringChange,
    TIMER_NS_MIN, TrunkLinks,
};

pub(in crate::dataplane) use vnicd_protocol::{MTU_MAX, QUEUE_PAIRS_MAX};

use self::card_settings::CardSettings;
use self::switch::vlans_from;
use crate::dataplane::card::{Attachment, Cable, Card};
use crate::dataplane::error::{FabricError, invalid};
use crate::dataplane::forwarding::loopback;
use crate::dataplane::forwarding::switch_state::SwitchState;
use crate::dataplane::observers::capture::{self, CaptureReader, CardCapture};
use crate::dataplane::observers::watchers::Subject;
use crate::dataplane::settings::FabricSettings;
use crate::dataplane::timers::timers_from;
use crate::dataplane::wiring::trunk::{Trunk, TrunkOptions};
use crate::dataplane::{DataPlane, Runner};
use crate::memory::Misses;

/// Distinguishes the fault streams of the two directions.
pub(in crate::dataplane) const SEED_TO_GUEST: u64 = 0;
pub(in crate::dataplane) const SEED_FROM_GUEST: u64 = 0x9e37_79b9_7f4a_7c15;

/// A switch of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchId(pub(in crate::dataplane) usize);

/// A port that was added: what a device needs to serve it.
pub struct PortHandle {
    pub(crate) runner: Arc<Runner>,
    /// Index of the port's card.
    pub(crate) card: usize,
    pub(crate) settings: PortSettings,
    /// Where the card notes which translations it misses, if its guest may be behind an IOMMU.
    pub(crate) misses: Option<Arc<Misses>>,
}

/// All switches and ports of the process. Cheap to clone; the data plane's thread ends with [`Fabric::shutdown`].
#[derive(Clone)]
pub struct Fabric {
    pub(crate) runner: Arc<Runner>,
}

impl Fabric {
    /// Starts an empty fabric.
    ///
    /// # Errors
    /// The system's, if it gives no event descriptors or no thread.
    pub fn new(settings: FabricSettings) -> std::io::Result<Self> {
        Ok(Self {
            runner: Runner::start(settings)?,
        })
    }

    /// Adds a switch.
    pub fn add_switch(&self, name: &str) -> SwitchId {
        self.runner.with(|plane, _| {
            let switch = Switch::new(SwitchConfig {
                hash_seed: random_seed(),
                ..SwitchConfig::default()
            });
            plane.forwarding.switches.push(SwitchState::new(name, switch));
            SwitchId(plane.forwarding.switches.len() - 1)
        })
    }

    /// Adds a port to `switch`.
    ///
    /// # Errors
    /// A name that exists, or settings out of range.
    pub fn add_port(&self, switch: SwitchId, settings: PortSettings) -> Result<PortHandle, FabricError> {
        loopback::check(&settings)?;
        let nic = make_nic(&settings)?;
        let to_guest = Link::new(link_from(&settings.link.to_guest, SEED_TO_GUEST)?);
        let from_guest = Link::new(link_from(&settings.link.from_guest, SEED_FROM_GUEST)?);
        if settings.queue_pairs == 0 || settings.queue_pairs > QUEUE_PAIRS_MAX {
            return Err(invalid(format!(
                "queue_pairs must be 1 to {QUEUE_PAIRS_MAX}, not {}",
                settings.queue_pairs
            )));
        }
        if !(MTU_MIN..=MTU_MAX).contains(&settings.mtu) {
            return Err(invalid(format!(
                "mtu must be {MTU_MIN} to {MTU_MAX}, not {}",
                settings.mtu
            )));
        }
        let misses = settings.iommu.then(|| Misses::new().map(Arc::new)).transpose();
        let misses = misses.map_err(|error| {
            invalid(format!(
                "port {:?} cannot have an IOMMU before it: an event descriptor: {error}",
                settings.name
            ))
        })?;
        let index = self.runner.with(|plane, now| {
            if plane.card_index(&settings.name).is_some() {
                return Err(FabricError::PortExists(settings.name.clone()));
            }
            let index = plane.cards().len();
            let switch = if settings.loopback {
                plane.forwarding.add_switch_of_one()
            } else {
                switch.0
            };
            let vlans = settings.vlans.as_ref().map(vlans_from).transpose()?;
            let state = &mut plane.forwarding.switches[switch];
            // What the port is told at once begins now, and not when the switch was asked last.
            state.switch.handle(now);
            let switch_port = state.switch.try_add_port().map_err(invalid)?;
            state.bind(switch_port, index);
            state.switch.set_port_vlans(switch_port, vlans);
            state.speak_lacp(switch, switch_port, &settings);
            let attachment = Attachment {
                switch,
                port: switch_port,
            };
            let cable = Cable { to_guest, from_guest };
            let mut card = Card::new(settings.clone(), attachment, nic, cable);
            card.set_timers_aside(timers_from(&settings.timers, plane.origin_unix_ns));
            card.share_misses(misses.clone());
            plane.forwarding.wiring.add_card(card);
            // A switch that had no port before has something to say from now on.
            plane.forwarding.serve_switch(switch, now);
            for &group in &settings.groups {
                plane.join_configured(index, group, now)?;
                plane.go_on_in_group(index, group, now);
            }
            Ok(index)
        })?;
        Ok(PortHandle {
            runner: self.runner.clone(),
            card: index,
            settings,
            misses,
        })
    }

    /// Joins two switches, before cards on them are in multicast groups.
    ///
    /// # Errors
    /// Settings out of range, a loop (frames would go round in it for ever), or cards that are in groups.
    pub fn add_trunk(&self, a: SwitchId, b: SwitchId, settings: &TrunkLinks) -> Result<(), FabricError> {
        self.add_trunk_with(a, b, settings, &TrunkOptions::default())
    }

    /// As [`add_trunk`](Self::add_trunk), with what a trunk may have beyond its links. Of an aggregate, the VLANs and the cost (or the
    /// rate that it follows from) of the first trunk hold.
    ///
    /// # Errors
    /// As there; and VLANs or a cost that are not those of the first trunk of the aggregate.
    pub fn add_trunk_with(
        &self,
        a: SwitchId,
        b: SwitchId,
        settings: &TrunkLinks,
        options: &TrunkOptions,
    ) -> Result<(), FabricError> {
        let vlans = options.vlans.as_ref().map(vlans_from).transpose()?;
        let links = trunk_from(settings)?.map(Link::new);
        self.runner.with(|plane, now| {
            if plane.groups.have_members() {
                return Err(invalid("trunks are added before cards join groups"));
            }
            plane.check_loops((a.0, b.0), options.aggregate.as_deref())?;
            plane.check_aggregate((a.0, b.0), options)?;
            let id = TrunkId(u16::try_from(plane.forwarding.wiring.trunks.len()).map_err(invalid)?);
            let mut ends = [(a.0, fabric::PortId(0)), (b.0, fabric::PortId(0))];
            for (switch, port) in &mut ends {
                let switch = &mut plane.forwarding.switches[*switch].switch;
                switch.handle(now);
                *port = switch.add_trunk(id).map_err(invalid)?;
                switch.set_port_vlans(*port, vlans.clone());
            }
            plane.forwarding.wiring.trunks.push(Trunk {
                ends,
                links,
                settings: settings.clone(),
                options: options.clone(),
                lost: Default::default(),
            });
            plane.trunk_added(usize::from(id.0), now)
        })
    }

    /// The ports' names, in the order they were added.
    pub fn port_names(&self) -> Vec<String> {
        self.runner
            .with(|plane, _| plane.cards().iter().map(|card| card.name().to_owned()).collect())
    }

    /// What a port is and how it does.
    pub fn port_info(&self, name: &str) -> Option<PortInfo> {
        self.runner
            .with(|plane, now| plane.card_index(name).map(|index| plane.info(index, now)))
    }

    /// Everything a port counts.
    pub fn port_stats(&self, name: &str) -> Option<PortStats> {
        self.runner
            .with(|plane, _| plane.card_index(name).map(|index| plane.stats(index)))
    }

    /// Changes some settings of a port's card (nothing, if no field is given) and returns what is in force.
    ///
    /// # Errors
    /// No such port, or a value out of range; then nothing was changed.
    pub fn set<C: CardSettings>(&self, name: &str, change: &C) -> Result<C::Settings, FabricError> {
        self.change(name, change.is_empty(), |port, now| {
            let mut settings = C::in_force(port.firmware());
            if !change.is_empty() {
                change.apply_to(&mut settings);
                C::set(port.firmware_mut(), &settings, now)?;
                port.announce_all(now);
            }
            Ok(settings)
        })
    }

    /// Changes a port's link (nothing, if no field is given) and returns what is in force.
    ///
    /// # Errors
    /// No such port, or a value out of range; then nothing was changed.
    pub fn set_link(&self, name: &str, direction: Direction, change: &LinkChange) -> Result<PortLinks, FabricError> {
        self.change(name, change.is_empty(), |port, _| {
            let mut links = port.settings().link.clone();
            if !change.is_empty() {
                if direction != Direction::FromGuest {
                    change.apply_to(&mut links.to_guest);
                }
                if direction != Direction::ToGuest {
                    change.apply_to(&mut links.from_guest);
                }
                loopback::check_link(port.settings(), &links)?;
                let to_guest = link_from(&links.to_guest, SEED_TO_GUEST)?;
                let from_guest = link_from(&links.from_guest, SEED_FROM_GUEST)?;
                let cable = port.cable_mut();
                cable.to_guest.set_config(to_guest);
                cable.from_guest.set_config(from_guest);
                port.note_carrier();
                port.settings_mut().link = links.clone();
            }
            Ok(links)
        })
    }

    /// Captures the named ports (all, if none is named), keeping `snaplen` bytes of a frame (0 = all).
    ///
    /// # Errors
    /// No such port, or one that is being captured already.
    pub fn start_capture(&self, ports: &[String], snaplen: u32) -> Result<CaptureReader, FabricError> {
        self.runner.with(|plane, _| {
            let mut indices = Vec::new();
            for name in ports {
                indices.push(
                    plane
                        .card_index(name)
                        .ok_or_else(|| FabricError::NoSuchPort(name.clone()))?,
                );
            }
            if ports.is_empty() {
                indices.extend(0..plane.cards().len());
            }
            for &index in &indices {
                let card = &plane.cards()[index];
                if card.capture().is_some_and(|capture| !capture.is_over()) {
                    return Err(FabricError::Captured(card.name().to_owned()));
                }
            }
            let captured = |&index: &usize| {
                let settings = plane.cards()[index].settings();
                (settings.name.clone(), settings.mac)
            };
            let captured: Vec<_> = indices.iter().map(captured).collect();
            let (reader, writers) = capture::begin(&captured, snaplen, plane.origin_unix_ns);
            for (index, writer) in indices.into_iter().zip(writers) {
                plane.card(index).set_capture(Some(writer));
            }
            plane.has_captures = true;
            let runner = Arc::clone(&self.runner);
            Ok(reader.with_end(move || runner.with(|plane, _| plane.end_captures())))
        })
    }

    /// Ends the data plane's thread. Ports of sessions that go on are not served any more.
    pub fn shutdown(&self) {
        self.runner.shutdown();
    }

    /// Changes a port, or (`only_asks`) only looks at it.
    pub(in crate::dataplane) fn change<T>(
        &self,
        name: &str,
        only_asks: bool,
        change: impl FnOnce(&mut Card, ether::Time) -> Result<T, FabricError>,
    ) -> Result<T, FabricError> {
        self.runner.with(|plane, now| {
            let index = plane
                .card_index(name)
                .ok_or_else(|| FabricError::NoSuchPort(name.to_owned()))?;
            let result = change(plane.card(index), now)?;
            if !only_asks {
                plane.settings_changed(Subject::Port(index));
            }
            Ok(result)
        })
    }
}

impl DataPlane {
    /// The card with this name.
    pub(in crate::dataplane) fn card_index(&self, name: &str) -> Option<usize> {
        self.cards().iter().position(|card| card.name() == name)
    }

    /// Ends captures whose readers are gone: from now on everything is as if they had not been.
    pub(in crate::dataplane) fn end_captures(&mut self) {
        for card in &mut self.forwarding.wiring.cards {
            if card.capture().is_some_and(CardCapture::is_over) {
                card.set_capture(None);
            }
        }
        self.has_captures = self.cards().iter().any(|card| card.capture().is_some());
    }
}

/// The card that `settings` describe.
pub(in crate::dataplane) fn make_nic(settings: &PortSettings) -> Result<firmware::Card, FabricError> {
    let mut nic = firmware::Card::new(firmware::CardConfig {
        queue_pairs: settings.queue_pairs,
        timer_ns_min: TIMER_NS_MIN,
        ..firmware::CardConfig::default()
    });
    loopback::connect(&mut nic, settings);
    let timeout_ns = settings.member_timeout_ns;
    if !(MEMBER_TIMEOUT_NS_MIN..=MEMBER_TIMEOUT_NS_MAX).contains(&timeout_ns) {
        return Err(invalid(format!(
            "member_timeout_ns must be {MEMBER_TIMEOUT_NS_MIN} to {MEMBER_TIMEOUT_NS_MAX}, not {timeout_ns}"
        )));
    }
    nic.multicast_mut().set_dead_ns(timeout_ns);
    let now = ether::Time::ZERO;
    CoalescingChange::set(&mut nic, &settings.coalescing, now)?;
    DmaChange::set(&mut nic, &settings.dma, now)?;
    SteeringChange::set(&mut nic, &settings.steering, now)?;
    MisorderChange::set(&mut nic, &settings.misorder, now)?;
    Ok(nic)
}

pub(in crate::dataplane) fn trunk_from(settings: &TrunkLinks) -> Result<[LinkConfig; 2], FabricError> {
    Ok([
        link_from(&settings.a_to_b, SEED_TO_GUEST)?,
        link_from(&settings.b_to_a, SEED_FROM_GUEST)?,
    ])
}

/// A link of these settings. Both directions of a link are often given the same seed (none at all): `stream` keeps them
/// from failing in step.
pub(in crate::dataplane) fn link_from(settings: &LinkSettings, stream: u64) -> Result<LinkConfig, FabricError> {
    let config = LinkConfig {
        seed: settings.seed ^ stream,
        ..*settings
    };
    config.validate().map_err(invalid)?;
    if !(MTU_MIN..=MTU_MAX).contains(&config.mtu) {
        return Err(invalid(format!(
            "mtu of a link must be {MTU_MIN} to {MTU_MAX}, not {}",
            config.mtu
        )));
    }
    for (name, delay_ns) in [
        ("delay_ns", config.delay_ns),
        ("jitter_ns", config.jitter_ns),
        ("reorder_delay_ns", config.reorder_delay_ns),
    ] {
        if delay_ns > LINK_DELAY_NS_MAX {
            return Err(invalid(format!(
                "{name} is {delay_ns}, but a link delays by at most {LINK_DELAY_NS_MAX} ns (10 s)"
            )));
        }
    }
    Ok(config)
}

/// A seed that no guest can guess, so that none can choose addresses that collide in the switch's table.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
