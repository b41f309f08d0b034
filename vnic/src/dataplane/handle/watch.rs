//! Watching: a client learns of every change of a setting at once, one JSON line per change.
//!
//! What the lines say is defined here; the sockets are in `observers::watchers`.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Fabric;
use super::card_settings::{misorder_of, steering_of};
use super::{coalescing_of, dma_settings};
use crate::dataplane::observers::watchers::Subject;
use crate::dataplane::{DataPlane, Runner};
use crate::report::{
    CoalescingSettings, DmaSettings, MisorderSettings, PortLinks, SteeringSettings, TrunkLinks, VlanSettings,
};

/// What watchers are told: all settings in force of a port or of a trunk, and when they have caught up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SettingsEvent {
    /// Settings of a port.
    Port {
        /// Its name.
        port: String,
        /// Coalescing of its queues.
        coalesce: CoalescingSettings,
        /// DMA engine.
        dma: DmaSettings,
        /// Choice of receive queues.
        #[serde(default)]
        steering: SteeringSettings,
        /// Misordering injector.
        #[serde(default)]
        misorder: MisorderSettings,
        /// Link.
        link: PortLinks,
        /// Multicast groups that the card is in.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        groups: Vec<u16>,
        /// VLANs of the port in its switch, if they were chosen.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vlans: Option<Box<VlanSettings>>,
    },
    /// The tree of a multicast group.
    Group {
        /// Its number.
        group: u16,
        /// Shape of the tree.
        tree: String,
    },
    /// Settings of a trunk.
    Trunk {
        /// Switch `a`.
        a: String,
        /// Switch `b`.
        b: String,
        /// Which of the trunks between them, counted from 1.
        #[serde(default = "first")]
        number: usize,
        /// Links.
        link: TrunkLinks,
    },
    /// All settings were told; from now on a change is told before it is answered.
    Watching,
}

const fn first() -> usize {
    1
}

/// A place among the watchers; dropping it leaves.
pub struct Watch {
    runner: Arc<Runner>,
    id: u64,
}

impl Watch {
    /// Lines that the caller must write before the data plane may: everything at first, then what changed meanwhile. `None` once
    /// the watcher has caught up.
    pub fn missed(&self) -> Option<String> {
        self.runner.with(|plane, _| {
            let missed = plane.watchers.take_missed(self.id, &line(&SettingsEvent::Watching))?;
            Some(missed.into_iter().map(|subject| plane.settings_line(subject)).collect())
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.runner.with(|plane, _| plane.watchers.remove(self.id));
    }
}

impl Fabric {
    /// Tells `socket` of every change of a setting, once [`Watch::missed`] has nothing more. If it takes no more bytes, it is
    /// shut down.
    pub fn watch(&self, socket: OwnedFd) -> Watch {
        let id = self.runner.with(|plane, _| {
            let ports = (0..plane.cards().len()).map(Subject::Port);
            let trunks = (0..plane.forwarding.wiring.trunks.len()).map(Subject::Trunk);
            let groups = plane.groups.shapes().map(|(number, _)| Subject::Group(number));
            let missed = ports.chain(trunks).chain(groups).collect();
            plane.watchers.add(socket, missed)
        });
        Watch {
            runner: self.runner.clone(),
            id,
        }
    }
}

impl DataPlane {
    /// Tells the watchers that settings changed.
    #[cold]
    pub(in crate::dataplane) fn settings_changed(&mut self, subject: Subject) {
        if self.watchers.is_empty() {
            return;
        }
        let line = self.settings_line(subject);
        self.watchers.changed(subject, &line);
    }

    fn settings_line(&self, subject: Subject) -> String {
        let event = match subject {
            Subject::Port(index) => {
                let port = &self.cards()[index];
                SettingsEvent::Port {
                    port: port.settings().name.clone(),
                    coalesce: coalescing_of(port.firmware()),
                    dma: dma_settings(port.firmware().queues()[0].dma()),
                    steering: steering_of(port.firmware()),
                    misorder: misorder_of(port.firmware()),
                    link: port.settings().link.clone(),
                    groups: port.settings().groups.clone(),
                    vlans: port.settings().vlans.clone().map(Box::new),
                }
            }
            Subject::Group(group) => SettingsEvent::Group {
                group,
                tree: self.groups.shape(group).name().to_owned(),
            },
            Subject::Trunk(index) => {
                let trunk = &self.forwarding.wiring.trunks[index];
                let [a, b] = trunk
                    .ends
                    .map(|(switch, _)| self.forwarding.switches[switch].name.clone());
                SettingsEvent::Trunk {
                    a,
                    b,
                    number: self.trunk_number(index),
                    link: trunk.settings.clone(),
                }
            }
        };
        line(&event)
    }
}

fn line(event: &SettingsEvent) -> String {
    // Plain data with string keys: there is nothing in it that JSON cannot say.
    let mut line = serde_json::to_string(event).unwrap_or_default();
    line.push('\n');
    line
}
