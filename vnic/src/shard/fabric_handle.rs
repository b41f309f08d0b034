//! The handle through which everything else uses the shard: ports and trunks come in, settings change, counters go out.
//!
//! One shard serves all switches of the process: on the two to four cores that a lab has, a second one would only take
//! time from the guests. No sockets and no JSON here.

use std::sync::Arc;

use fabric::{Link, LinkConfig, Switch, SwitchConfig, TrunkId};
use firmware::{Firmware, FirmwareConfig};
use vnicd_protocol::{
    CoalescingChange, Direction, DmaChange, LINK_DELAY_NS_MAX, LinkChange, LinkSettings, MTU_MIN, MisorderChange,
    PortInfo, PortLinks, PortSettings, PortStats, SteeringChange, TIMER_NS_MIN, TrunkLinks,
};

pub(super) use vnicd_protocol::{MTU_MAX, QUEUE_PAIRS_MAX};

use super::capture::{self, CaptureReader};
use super::card_settings::CardSettings;
use super::loopback;
use super::port::Port;
use super::switch_handle::{TrunkOptions, vlans_from};
use super::timed::timers_from;
use super::trunk::Trunk;
use super::watch::Subject;
use super::{Inner, Shard, SwitchState};
use crate::device::Device;

/// Tells the fault streams of the two directions apart.
pub(super) const SEED_TO_GUEST: u64 = 0;
pub(super) const SEED_FROM_GUEST: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a shard is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricSettings {
    /// Longest time to look for work after the last, before asking for kicks and sleeping, in nanoseconds. It is made
    /// shorter while work comes later than that, or somebody else wants the processor.
    pub poll_ns: u64,
    /// How long after the start guests that used another process's ports before are waited for, in nanoseconds: until all
    /// ports have a guest again, but no longer, what they have in their rings stays there. 0 = not at all.
    pub return_ns: u64,
}

impl FabricSettings {
    /// One round trip between guests that poll fits several times.
    pub const POLL_NS_DEFAULT: u64 = 50_000;
    /// The second after which every QEMU tries to reconnect, and a little for its session.
    pub const RETURN_NS_DEFAULT: u64 = 1_200_000_000;
}

impl Default for FabricSettings {
    fn default() -> Self {
        Self {
            poll_ns: Self::POLL_NS_DEFAULT,
            return_ns: Self::RETURN_NS_DEFAULT,
        }
    }
}

/// A switch of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchId(pub(super) usize);

/// Why a request was refused; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FabricError {
    /// No port has this name.
    #[error("there is no port {0:?}")]
    NoSuchPort(String),
    /// No switch has this name.
    #[error("there is no switch {0:?}")]
    NoSuchSwitch(String),
    /// Two ports would have the same name.
    #[error("a port named {0:?} exists already")]
    PortExists(String),
    /// A value does not make sense; the sentence says which and why.
    #[error("{0}")]
    Invalid(String),
    /// A card's flight recorder has one reader at a time.
    #[error("port {0:?} is being traced already")]
    Traced(String),
    /// A port can be captured by one reader at a time.
    #[error("port {0:?} is being captured already")]
    Captured(String),
}

pub(super) fn invalid(error: impl std::fmt::Display) -> FabricError {
    FabricError::Invalid(error.to_string())
}

/// All switches and ports of the process. Cheap to clone; the shard's thread ends with [`Fabric::shutdown`].
#[derive(Clone)]
pub struct Fabric {
    pub(crate) shard: Arc<Shard>,
}

impl Fabric {
    /// Starts an empty fabric.
    ///
    /// # Errors
    /// The system's, if it gives no event descriptors or no thread.
    pub fn new(settings: FabricSettings) -> std::io::Result<Self> {
        Ok(Self {
            shard: Shard::start(settings)?,
        })
    }

    /// Adds a switch.
    pub fn add_switch(&self, name: &str) -> SwitchId {
        self.shard.with(|inner, _| {
            inner.switches.push(SwitchState {
                name: name.to_owned(),
                settings: Default::default(),
                switch: Switch::new(SwitchConfig {
                    hash_seed: random_seed(),
                    ..SwitchConfig::default()
                }),
                ports: Vec::new(),
            });
            SwitchId(inner.switches.len() - 1)
        })
    }

    /// Adds a port to `switch`.
    ///
    /// # Errors
    /// A name that exists, or settings out of range.
    pub fn add_port(&self, switch: SwitchId, settings: PortSettings) -> Result<Device, FabricError> {
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
        if settings.mtu < MTU_MIN || settings.mtu > MTU_MAX {
            return Err(invalid(format!(
                "mtu must be {MTU_MIN} to {MTU_MAX}, not {}",
                settings.mtu
            )));
        }
        let index = self.shard.with(|inner, now| {
            if inner.ports.iter().any(|port| port.settings.name == settings.name) {
                return Err(FabricError::PortExists(settings.name.clone()));
            }
            let index = inner.ports.len();
            let switch = if settings.loopback {
                inner.add_switch_of_one()
            } else {
                switch.0
            };
            let vlans = settings.vlans.as_ref().map(vlans_from).transpose()?;
            let state = &mut inner.switches[switch];
            // What the port is told at once begins now, and not when the switch was asked last.
            state.switch.handle(now);
            let switch_port = state.switch.try_add_port().map_err(invalid)?;
            state.bind(switch_port, index);
            state.switch.set_port_vlans(switch_port, vlans);
            let mut port = Port::new(settings.clone(), switch, switch_port, nic, to_guest, from_guest);
            port.timers_left = timers_from(&settings.timers, inner.origin_unix_ns);
            inner.ports.push(port);
            // A switch that had no port before has something to say from now on.
            inner.serve_switch(switch, now);
            for &group in &settings.groups {
                inner.join_configured(index, group, now)?;
            }
            Ok(index)
        })?;
        Ok(Device::new(self.shard.clone(), index, &settings))
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
        self.shard.with(|inner, now| {
            if inner.groups.have_members() {
                return Err(invalid("trunks are added before cards join groups"));
            }
            inner.check_loops((a.0, b.0), options.aggregate.as_deref())?;
            inner.check_aggregate((a.0, b.0), options)?;
            let id = TrunkId(u16::try_from(inner.trunks.len()).map_err(invalid)?);
            let mut ends = [(a.0, fabric::PortId(0)), (b.0, fabric::PortId(0))];
            for (switch, port) in &mut ends {
                let switch = &mut inner.switches[*switch].switch;
                switch.handle(now);
                *port = switch.add_trunk(id).map_err(invalid)?;
                switch.set_port_vlans(*port, vlans.clone());
            }
            inner.trunks.push(Trunk {
                ends,
                links,
                settings: settings.clone(),
                options: options.clone(),
                losses: Default::default(),
            });
            inner.trunk_added(usize::from(id.0), now)
        })
    }

    /// The ports' names, in the order they were added.
    pub fn port_names(&self) -> Vec<String> {
        self.shard
            .with(|inner, _| inner.ports.iter().map(|port| port.settings.name.clone()).collect())
    }

    /// What a port is and how it does.
    pub fn port_info(&self, name: &str) -> Option<PortInfo> {
        self.shard
            .with(|inner, now| inner.port_index(name).map(|index| inner.info(index, now)))
    }

    /// Everything a port counts.
    pub fn port_stats(&self, name: &str) -> Option<PortStats> {
        self.shard
            .with(|inner, _| inner.port_index(name).map(|index| inner.stats(index)))
    }

    /// Changes some settings of a port's card (nothing, if no field is given) and returns what is in force.
    ///
    /// # Errors
    /// No such port, or a value out of range; then nothing was changed.
    pub fn set<C: CardSettings>(&self, name: &str, change: &C) -> Result<C::Settings, FabricError> {
        self.change(name, change.is_empty(), |port, now| {
            let mut settings = C::in_force(&port.nic);
            if !change.is_empty() {
                change.apply_to(&mut settings);
                C::set(&mut port.nic, &settings, now)?;
                (0..port.pairs.len()).for_each(|queue| port.announce(queue, now));
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
            let mut links = port.settings.link.clone();
            if !change.is_empty() {
                if direction != Direction::FromGuest {
                    change.apply_to(&mut links.to_guest);
                }
                if direction != Direction::ToGuest {
                    change.apply_to(&mut links.from_guest);
                }
                loopback::check_link(&port.settings, &links)?;
                let to_guest = link_from(&links.to_guest, SEED_TO_GUEST)?;
                let from_guest = link_from(&links.from_guest, SEED_FROM_GUEST)?;
                port.to_guest.set_config(to_guest);
                port.from_guest.set_config(from_guest);
                port.settings.link = links.clone();
            }
            Ok(links)
        })
    }

    /// Captures the named ports (all, if none is named), keeping `snaplen` bytes of a frame (0 = all).
    ///
    /// # Errors
    /// No such port, or one that is being captured already.
    pub fn start_capture(&self, ports: &[String], snaplen: u32) -> Result<CaptureReader, FabricError> {
        self.shard.with(|inner, _| {
            let mut indices = Vec::new();
            for name in ports {
                indices.push(
                    inner
                        .port_index(name)
                        .ok_or_else(|| FabricError::NoSuchPort(name.clone()))?,
                );
            }
            if ports.is_empty() {
                indices.extend(0..inner.ports.len());
            }
            for &index in &indices {
                let port = &inner.ports[index];
                if port.capture.as_ref().is_some_and(|capture| !capture.is_over()) {
                    return Err(FabricError::Captured(port.settings.name.clone()));
                }
            }
            let captured = |&index: &usize| {
                let settings = &inner.ports[index].settings;
                (settings.name.clone(), settings.mac)
            };
            let captured: Vec<_> = indices.iter().map(captured).collect();
            let (reader, writers) = capture::begin(&captured, snaplen, inner.origin_unix_ns);
            for (index, writer) in indices.into_iter().zip(writers) {
                inner.ports[index].capture = Some(writer);
            }
            Ok(reader.of(Arc::clone(&self.shard)))
        })
    }

    /// Ends the shard's thread. Ports of sessions that go on are not served any more.
    pub fn shutdown(&self) {
        self.shard.shutdown();
    }

    /// Changes a port, or (`only_asks`) only looks at it.
    pub(super) fn change<T>(
        &self,
        name: &str,
        only_asks: bool,
        change: impl FnOnce(&mut Port, ether::Time) -> Result<T, FabricError>,
    ) -> Result<T, FabricError> {
        self.shard.with(|inner, now| {
            let index = inner
                .port_index(name)
                .ok_or_else(|| FabricError::NoSuchPort(name.to_owned()))?;
            let result = change(&mut inner.ports[index], now)?;
            if !only_asks {
                inner.settings_changed(Subject::Port(index));
            }
            Ok(result)
        })
    }
}

impl Inner {
    pub(super) fn port_index(&self, name: &str) -> Option<usize> {
        self.ports.iter().position(|port| port.settings.name == name)
    }
}

impl SwitchState {
    /// Notes that shard port `index` is behind the switch's port `port`.
    pub(super) fn bind(&mut self, port: fabric::PortId, index: usize) {
        let number = usize::from(port.0);
        if self.ports.len() <= number {
            self.ports.resize(number + 1, usize::MAX);
        }
        self.ports[number] = index;
    }
}

/// The card that `settings` describe.
pub(super) fn make_nic(settings: &PortSettings) -> Result<Firmware, FabricError> {
    let mut nic = Firmware::new(FirmwareConfig {
        queue_pairs: settings.queue_pairs,
        timer_ns_min: TIMER_NS_MIN,
        ..FirmwareConfig::default()
    });
    loopback::connect(&mut nic, settings);
    let now = ether::Time::ZERO;
    CoalescingChange::set(&mut nic, &settings.coalescing, now)?;
    DmaChange::set(&mut nic, &settings.dma, now)?;
    SteeringChange::set(&mut nic, &settings.steering, now)?;
    MisorderChange::set(&mut nic, &settings.misorder, now)?;
    Ok(nic)
}

pub(super) fn trunk_from(settings: &TrunkLinks) -> Result<[LinkConfig; 2], FabricError> {
    Ok([
        link_from(&settings.a_to_b, SEED_TO_GUEST)?,
        link_from(&settings.b_to_a, SEED_FROM_GUEST)?,
    ])
}

/// A link of these settings. Both directions of a link are often given the same seed (none at all): `stream` keeps them
/// from failing in step.
pub(super) fn link_from(settings: &LinkSettings, stream: u64) -> Result<LinkConfig, FabricError> {
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

/// A seed that no guest can guess, so that none can choose addresses that meet in the switch's table.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
