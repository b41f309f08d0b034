//! What is known of one guest, and how its phases follow each other. Each change happens in one piece under the
//! supervisor's lock, so that nobody ever sees half of it; what is done between two changes is `node`'s.

use std::os::fd::OwnedFd;

use super::protocol::{NodePhase, NodeStatus};
use crate::{
    guest_channel::{GuestChannel, Welcome},
    lab::{Boot, Node},
};

/// What is known of a guest.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) status: NodeStatus,
    /// To signal QEMU without the risk that its number names another process by now.
    pub(super) process: Option<OwnedFd>,
    pub(super) channel: Option<GuestChannel>,
    /// Somebody wants it off and on again. Never while it is [`NodePhase::Off`]: it is starting then.
    restart: bool,
    /// Times QEMU was started.
    starts: u32,
}

impl Guest {
    pub(super) fn of(node: &Node) -> Self {
        let status = NodeStatus {
            name: node.name.clone(),
            phase: NodePhase::Starting,
            recipe: matches!(node.boot, Boot::Recipe { .. }),
            note: None,
            address: node.address().map(|net| net.address.to_string()),
            address6: node.address6().map(|net| net.address.to_string()),
            labels: node.labels.clone(),
            cpus: node.cpus,
            memory_mib: node.memory_mib,
            pid: None,
            boot_ms: None,
            kernel: None,
        };
        Self {
            status,
            process: None,
            channel: None,
            restart: false,
            starts: 0,
        }
    }

    /// Its QEMU was started. That answers whoever asked for a restart until now. Gives the number of this start.
    pub(super) fn launched(&mut self, process: OwnedFd, pid: u32) -> u32 {
        self.process = Some(process);
        self.status.pid = Some(pid);
        self.restart = false;
        self.starts += 1;
        self.starts
    }

    /// Its QEMU answers; the guest boots, and its agent can be waited for.
    pub(super) fn started(&mut self, channel: GuestChannel) {
        self.channel = Some(channel);
        self.status.phase = NodePhase::Booting;
    }

    /// The agent has answered, for the first time `boot_ms` after that start of QEMU. Nothing, when that QEMU has ended.
    pub(super) fn answered(&mut self, start: u32, welcome: &Welcome, boot_ms: u64) {
        if self.is_running(start) {
            self.status.phase = NodePhase::Ready;
            self.status.boot_ms = self.status.boot_ms.or(Some(boot_ms));
            self.status.kernel = Some(welcome.kernel.clone());
            self.status.note = (!welcome.problems.is_empty()).then(|| welcome.problems.join("; "));
        }
    }

    /// The guest boots again, and its agent has not answered since. Nothing, when that QEMU has ended.
    pub(super) fn boots_again(&mut self, start: u32) {
        if self.is_running(start) && self.status.phase == NodePhase::Ready {
            self.status.phase = NodePhase::Booting;
        }
    }

    /// The agent cannot be used. Nothing, when that QEMU has ended: why is the better note.
    pub(super) fn agent_failed(&mut self, start: u32, why: String) {
        if self.is_running(start) {
            self.status.note = Some(why);
        }
    }

    fn is_running(&self, start: u32) -> bool {
        self.starts == start && self.process.is_some()
    }

    /// Its QEMU has ended, or could not be started. Off only if nobody wants it on again.
    pub(super) fn ended(&mut self, note: String) {
        self.process = None;
        self.channel = None;
        self.status.pid = None;
        self.status.boot_ms = None;
        (self.status.phase, self.status.note) = if self.restart {
            (NodePhase::Starting, None)
        } else {
            (NodePhase::Off, Some(note))
        };
    }

    /// Somebody wants it off and on again. Gives the number of starts until now, for [`restarted`](Self::restarted).
    pub(super) fn ask_for_restart(&mut self) -> u32 {
        self.restart = true;
        if self.status.phase == NodePhase::Off {
            (self.status.phase, self.status.note) = (NodePhase::Starting, None);
        }
        self.starts
    }

    /// Whether it is to be started again, asked by whoever does it.
    pub(super) fn take_restart(&mut self) -> bool {
        std::mem::take(&mut self.restart)
    }

    /// How the restart went that was asked for after so many starts; `None` while it is under way.
    pub(super) fn restarted(&self, starts_before: u32) -> Option<Result<(), String>> {
        match self.status.phase {
            NodePhase::Booting | NodePhase::Ready if self.starts > starts_before => Some(Ok(())),
            NodePhase::Off => Some(Err(self.status.note.clone().unwrap_or_default())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::lab::Lab;

    fn guest() -> Guest {
        let lab = Lab::parse("[[node]]\nname = \"n1\"\n", "lab.toml", "pair", Path::new("/")).expect("valid");
        Guest::of(&lab.nodes[0])
    }

    fn start(guest: &mut Guest) -> u32 {
        let number = guest.launched(std::fs::File::open("/dev/null").expect("there").into(), 7);
        assert_eq!(guest.status.phase, NodePhase::Starting);
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        guest.started(GuestChannel::over(ours).expect("threads"));
        number
    }

    fn welcome() -> Welcome {
        Welcome {
            protocol: 1,
            agent_version: "1".to_owned(),
            hostname: "n1".to_owned(),
            boot_id: "a".to_owned(),
            kernel: "6.1".to_owned(),
            problems: Vec::new(),
        }
    }

    #[test]
    fn whoever_asks_for_a_restart_is_never_told_of_the_end_before_it() {
        let mut guest = guest();
        start(&mut guest);
        guest.ended("QEMU ended with signal 9".to_owned());
        let before = guest.ask_for_restart();
        assert_eq!(guest.restarted(before), None, "asked");
        assert!(guest.take_restart());
        assert_eq!(guest.restarted(before), None, "taken, and QEMU not started yet");
        assert_eq!((guest.status.phase, &guest.status.note), (NodePhase::Starting, &None));
        start(&mut guest);
        assert_eq!(guest.restarted(before), Some(Ok(())));
    }

    #[test]
    fn a_guest_that_is_switched_off_and_on_is_never_seen_off_between() {
        let mut guest = guest();
        start(&mut guest);
        let before = guest.ask_for_restart();
        assert_eq!(guest.restarted(before), None, "the old QEMU runs");
        guest.ended("switched off".to_owned());
        assert_eq!(
            (guest.status.phase, guest.restarted(before)),
            (NodePhase::Starting, None)
        );
        assert!(guest.take_restart() && !guest.take_restart());
        start(&mut guest);
        assert_eq!(guest.restarted(before), Some(Ok(())));
    }

    #[test]
    fn a_restart_that_fails_is_answered_with_its_own_reason() {
        let mut guest = guest();
        start(&mut guest);
        guest.ended("switched off".to_owned());
        let before = guest.ask_for_restart();
        assert!(guest.take_restart());
        guest.launched(std::fs::File::open("/dev/null").expect("there").into(), 7);
        guest.ended("QEMU is gone".to_owned());
        assert_eq!(guest.restarted(before), Some(Err("QEMU is gone".to_owned())));
    }

    #[test]
    fn a_restart_asked_for_while_one_is_under_way_is_answered_by_it() {
        let mut guest = guest();
        let before = guest.ask_for_restart();
        start(&mut guest);
        assert_eq!(guest.restarted(before), Some(Ok(())));
        assert!(!guest.take_restart(), "nobody wants another one when this one ends");
    }

    #[test]
    fn what_the_agent_of_a_qemu_said_that_has_ended_changes_nothing() {
        let mut guest = guest();
        let first = start(&mut guest);
        guest.answered(first, &welcome(), 3000);
        assert_eq!(
            (guest.status.phase, guest.status.boot_ms),
            (NodePhase::Ready, Some(3000))
        );
        guest.ended("switched off".to_owned());
        guest.answered(first, &welcome(), 3000);
        guest.agent_failed(first, "late".to_owned());
        assert_eq!(guest.status.phase, NodePhase::Off);
        assert_eq!(guest.status.note.as_deref(), Some("switched off"));
        guest.ask_for_restart();
        start(&mut guest);
        guest.answered(first, &welcome(), 3000);
        assert_eq!(guest.status.phase, NodePhase::Booting);
    }
}
