//! Watching: a client learns of every change of a setting at once, one JSON line per change.
//!
//! What the lines say is defined here; the sockets are in `observers::watchers`.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use vnicd_protocol::{CoalescingChange, DmaChange, SettingsEvent};

use super::Fabric;
use super::card_settings::CardSettings;
use crate::dataplane::observers::watchers::Subject;
use crate::dataplane::{DataPlane, Runner};

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
                    coalesce: CoalescingChange::in_force(port.firmware()),
                    dma: DmaChange::in_force(port.firmware()),
                    steering: Box::new(*port.firmware().steering().settings()),
                    misorder: port.firmware().misorder().settings(),
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
