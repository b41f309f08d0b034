//! Those who want to hear of every change of a setting at once, whoever made it: one JSON line per change.
//!
//! The shard writes the line itself, before whoever asked for the change gets an answer: bytes in a socket outlive this
//! process, so a change that anybody was told of is never lost to those who watch. It never waits for them.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{SendFlags, Shutdown, send, shutdown};
use vnicd_protocol::{CoalescingChange, DmaChange, SettingsEvent};

use super::card_settings::CardSettings;
use super::{Fabric, Inner, Shard};

/// Whose settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// The port with this index.
    Port(usize),
    /// The trunk with this index.
    Trunk(usize),
    /// The multicast group of this number.
    Group(u16),
}

/// Somebody who watches.
pub(super) struct Watcher {
    id: u64,
    socket: OwnedFd,
    /// Everything that is not in `missed` was written; the shard may write what changes.
    caught_up: bool,
    /// What changed before the watcher caught up.
    missed: BTreeSet<Subject>,
}

/// A place among those who watch; dropping it leaves.
pub struct Watch {
    shard: Arc<Shard>,
    id: u64,
}

impl Watch {
    /// Lines that the caller must write before the shard may: everything at first, then what changed meanwhile. `None` once
    /// the watcher has caught up.
    pub fn missed(&self) -> Option<String> {
        self.shard.with(|inner, _| {
            let at = inner.watchers.iter().position(|watcher| watcher.id == self.id)?;
            let watcher = &mut inner.watchers[at];
            let missed = std::mem::take(&mut watcher.missed);
            if missed.is_empty() {
                watcher.caught_up = true;
                watcher.tell(&line(&SettingsEvent::Watching));
                return None;
            }
            Some(missed.iter().map(|subject| inner.settings_line(*subject)).collect())
        })
    }
}

impl Watcher {
    /// Writes a line, now or never.
    fn tell(&mut self, line: &str) {
        if send(&self.socket, line.as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) != Ok(line.len()) {
            // It does not read, or is gone: it must begin anew. Its thread notices.
            let _ = shutdown(&self.socket, Shutdown::Both);
            self.caught_up = false;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shard
            .with(|inner, _| inner.watchers.retain(|watcher| watcher.id != self.id));
    }
}

impl Fabric {
    /// Tells `socket` of every change of a setting, once [`Watch::missed`] has nothing more. If it takes no more bytes, it is
    /// shut down.
    pub fn watch(&self, socket: OwnedFd) -> Watch {
        let id = self.shard.with(|inner, _| {
            let id = inner.watchers.iter().map(|watcher| watcher.id + 1).max().unwrap_or(0);
            let ports = (0..inner.ports.len()).map(Subject::Port);
            let groups = inner.groups.shapes().map(|(number, _)| Subject::Group(number));
            inner.watchers.push(Watcher {
                id,
                socket,
                caught_up: false,
                missed: ports
                    .chain((0..inner.trunks.len()).map(Subject::Trunk))
                    .chain(groups)
                    .collect(),
            });
            id
        });
        Watch {
            shard: self.shard.clone(),
            id,
        }
    }
}

impl Inner {
    /// Tells those who watch that settings changed.
    #[cold]
    pub(super) fn settings_changed(&mut self, subject: Subject) {
        if self.watchers.is_empty() {
            return;
        }
        let line = self.settings_line(subject);
        for watcher in &mut self.watchers {
            if watcher.caught_up {
                watcher.tell(&line);
            } else {
                watcher.missed.insert(subject);
            }
        }
    }

    fn settings_line(&self, subject: Subject) -> String {
        let event = match subject {
            Subject::Port(index) => {
                let port = &self.ports[index];
                SettingsEvent::Port {
                    port: port.settings.name.clone(),
                    coalesce: CoalescingChange::in_force(&port.nic),
                    dma: DmaChange::in_force(&port.nic),
                    steering: Box::new(*port.nic.steering().settings()),
                    misorder: port.nic.misorder().settings(),
                    link: port.settings.link.clone(),
                    groups: port.settings.groups.clone(),
                    vlans: port.settings.vlans.clone().map(Box::new),
                }
            }
            Subject::Group(group) => SettingsEvent::Group {
                group,
                tree: self.groups.shape(group).name().to_owned(),
            },
            Subject::Trunk(index) => {
                let trunk = &self.trunks[index];
                let [a, b] = trunk.ends.map(|(switch, _)| self.switches[switch].name.clone());
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
