//! The state of one guest, and the order of its phases. Each change is made in one piece under the supervisor's lock,
//! so that no thread sees half of it; `guest_process` does the work between two changes.

use std::{
    os::fd::OwnedFd,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::supervisor_client::protocol::{NodePhase, NodeStatus};
use crate::{
    guest_channel::{GuestChannel, Welcome},
    lab::Node,
};

/// Number of consecutive resets, without the agent or a login between them, after which a guest is given up: images
/// that boot twice when they are new exist, those that need more do not.
const RESETS_MAX: u32 = 5;

/// The shortest time from the first to the last of the resets for which a guest is given up. A single reboot can be any
/// number of them within milliseconds: SeaBIOS asks for a reset twice (by port 0xcf9, then by a triple fault, in case the
/// first did nothing), and where QEMU carries the first out before the guest's processor has come to the second, under TCG,
/// the second ends the firmware that has just begun, which then asks twice again.
const RESETS_TIME_MIN: Duration = Duration::from_secs(10);

/// Resets since a guest's QEMU was started, or since something was last seen to run in it.
#[derive(Clone, Copy, Debug, Default)]
struct Resets {
    count: u32,
    first: Option<Instant>,
}

impl Resets {
    /// Counts a reset that happened then. Returns whether nothing else is to be expected of the guest any more.
    fn once_more(&mut self, at: Instant) -> bool {
        self.count += 1;
        let first = *self.first.get_or_insert(at);
        self.count >= RESETS_MAX && at.duration_since(first) >= RESETS_TIME_MIN
    }
}

/// Whether a guest may boot: see `boot_watch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The guest waits to boot.
    Awaited,
    /// The guest has been booting since then.
    Taken(Instant),
    /// The guest has booted, or does not want to.
    Over,
}

/// The state of a guest.
#[derive(Debug)]
pub(super) struct Guest {
    /// Number that differs from that of any other guest, whatever its name.
    identity: u64,
    pub(super) status: NodeStatus,
    /// Handle to signal QEMU, since its number may name another process by now.
    pub(super) process: Option<OwnedFd>,
    pub(super) channel: Option<GuestChannel>,
    /// Whether a restart was requested. It is never set in the phase [`NodePhase::Stopped`]: the guest is starting
    /// then.
    restart: bool,
    /// Number of the last start of its QEMU; 0 before the first.
    starts: u32,
    turn: Turn,
    /// Length in bytes of its serial log before this QEMU.
    printed_before: u64,
    /// Time when its QEMU was started.
    launched_at: Instant,
    /// Time when it last gave a sign of life, or was started.
    went_on: Instant,
    resets: Resets,
    /// Whether its kernel reported a panic to QEMU.
    panicked: bool,
    /// Reason why this QEMU is being ended.
    verdict: Option<String>,
}

impl Guest {
    pub(super) fn of(node: &Node) -> Self {
        let status = NodeStatus {
            name: node.name.clone(),
            phase: NodePhase::Starting,
            recipe: node.has_agent(),
            note: None,
            address: node.address().map(|net| net.address.to_string()),
            address6: node.address6().map(|net| net.address.to_string()),
            labels: node.labels.clone(),
            cpus: node.cpus,
            memory_mib: node.memory_mib,
            pid: None,
            boot_ms: None,
            kernel: None,
            silent_ms: None,
        };
        static GUESTS: AtomicU64 = AtomicU64::new(0);
        Self {
            identity: GUESTS.fetch_add(1, Ordering::Relaxed),
            status,
            process: None,
            channel: None,
            restart: false,
            starts: 0,
            turn: Turn::Awaited,
            printed_before: 0,
            launched_at: Instant::now(),
            went_on: Instant::now(),
            resets: Resets::default(),
            panicked: false,
            verdict: None,
        }
    }

    /// Returns a number that distinguishes this guest from a later one with an equal name.
    pub(super) fn identity(&self) -> u64 {
        self.identity
    }

    /// Notes that its QEMU was started, which fulfils the restart requests until now. Returns the number of this start,
    /// which no other start of any guest has: events of one start are not mistaken for those of another.
    pub(super) fn launched(&mut self, process: OwnedFd, pid: u32, printed_before: u64) -> u32 {
        self.printed_before = printed_before;
        self.launched_at = Instant::now();
        self.went_on = self.launched_at;
        (self.resets, self.panicked, self.verdict) = (Resets::default(), false, None);
        self.process = Some(process);
        self.status.pid = Some(pid);
        self.restart = false;
        static STARTS: AtomicU32 = AtomicU32::new(1);
        self.starts = STARTS.fetch_add(1, Ordering::Relaxed);
        self.starts
    }

    /// Notes that its QEMU answers; the guest boots, and its agent can be waited for.
    pub(super) fn started(&mut self, channel: GuestChannel) {
        self.channel = Some(channel);
        self.status.phase = NodePhase::Booting;
    }

    /// Notes that the agent has answered, for the first time `boot_ms` after that start of QEMU. It has no effect when
    /// that QEMU has ended.
    pub(super) fn answered(&mut self, start: u32, welcome: &Welcome, boot_ms: u64) {
        if self.is_running(start) {
            self.status.phase = NodePhase::Ready;
            (self.resets, self.turn) = (Resets::default(), Turn::Over);
            self.status.boot_ms = self.status.boot_ms.or(Some(boot_ms));
            self.status.kernel = Some(welcome.kernel.clone());
            self.status.note = (!welcome.problems.is_empty()).then(|| welcome.problems.join("; "));
        }
    }

    /// Notes that the guest boots again, and its agent has not answered since. It has no effect when that QEMU has
    /// ended.
    pub(super) fn boots_again(&mut self, start: u32) {
        if self.is_running(start) && matches!(self.status.phase, NodePhase::Ready | NodePhase::NoAgent) {
            (self.status.phase, self.status.note) = (NodePhase::Booting, None);
            self.status.kernel = None;
            self.went_on = Instant::now();
        }
    }

    /// Notes that the guest was reset then. Returns why it is to be ended, if that was once too often. A reset after a panic
    /// changes nothing: the panic is the reason why the guest is ended, even if a kernel boots meanwhile.
    pub(super) fn was_reset(&mut self, start: u32, at: Instant) -> Option<String> {
        if !self.is_running(start) || self.panicked {
            return None;
        }
        self.boots_again(start);
        self.went_on = at;
        let often = self.resets.once_more(at);
        let count = self.resets.count;
        often.then(|| format!("it was reset {count} times in a row before anything ran in it"))
    }

    /// Notes that the guest gave a sign of life.
    pub(super) fn goes_on(&mut self, start: u32) {
        if self.is_running(start) {
            self.went_on = Instant::now();
        }
    }

    /// Notes progress of something that the guest waits for.
    pub(super) fn waits_for_others(&mut self) {
        self.went_on = Instant::now();
    }

    /// Notes that the guest has booted, as far as that is visible without an agent. This is only for images that need
    /// not have one.
    pub(super) fn runs_without_agent(&mut self, start: u32, note: &str) {
        let may = matches!(self.status.phase, NodePhase::Booting | NodePhase::NoAgent) && !self.status.recipe;
        if self.is_running(start) && may {
            (self.status.phase, self.status.note) = (NodePhase::NoAgent, Some(note.to_owned()));
            (self.resets, self.turn) = (Resets::default(), Turn::Over);
        }
    }

    /// Notes that the guest's kernel reported a panic to QEMU.
    pub(super) fn panics(&mut self, start: u32) {
        self.panicked |= self.is_running(start);
    }

    /// Returns whether a panic was reported for this QEMU: the agent of this start does not answer any more.
    pub(super) fn has_panicked(&self) -> bool {
        self.panicked
    }

    /// Returns whether [`panics`](Self::panics) was called and not acted on yet.
    pub(super) fn told_of_panic(&self) -> bool {
        self.panicked && self.verdict.is_none()
    }

    /// Notes that its QEMU is to be ended, for this reason; returns `false` when that was noted before, or it has
    /// ended.
    pub(super) fn condemn(&mut self, start: u32, why: String) -> bool {
        if !self.is_running(start) || self.verdict.is_some() {
            return false;
        }
        self.verdict = Some(why);
        true
    }

    /// Returns the number of the current start of QEMU, and the length of the serial log before it.
    pub(super) fn start(&self) -> Option<(u32, u64)> {
        self.process.as_ref().map(|_| (self.starts, self.printed_before))
    }

    /// Returns whether the guest is about to become ready, or to run without an agent.
    pub(super) fn is_booting(&self) -> bool {
        matches!(self.status.phase, NodePhase::Starting | NodePhase::Booting) && self.process.is_some()
    }

    /// Returns for how long it has been silent, if it boots.
    pub(super) fn silent_for(&self) -> Option<Duration> {
        self.is_booting().then(|| self.went_on.elapsed())
    }

    /// Returns for how long it has been booting, if it does.
    pub(super) fn booting_for(&self) -> Option<Duration> {
        self.is_booting().then(|| self.launched_at.elapsed())
    }

    /// Returns whether it has booted, as far as that is visible.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.status.phase, NodePhase::Ready | NodePhase::NoAgent)
    }

    /// Returns why waiting for its agent is useless now; `None` when there is an agent or will be.
    pub(super) fn why_no_agent(&self) -> Option<String> {
        let none = !self.status.recipe && self.status.boot_ms.is_none() && self.process.is_some();
        let name = &self.status.name;
        none.then(|| {
            format!(
                "{name} has no agent that answers ({}): `weft console {name}` is its serial line, `weft wait {name}` waits \
                 for an agent",
                self.status.phase.name()
            )
        })
    }

    /// Notes that it boots now.
    pub(super) fn take_turn(&mut self) {
        self.turn = Turn::Taken(Instant::now());
    }

    /// Notes that it wants to boot.
    pub(super) fn ask_for_turn(&mut self) {
        self.turn = Turn::Awaited;
    }

    /// Notes that others may boot in its place.
    pub(super) fn give_turn(&mut self) {
        self.turn = Turn::Over;
    }

    /// Returns whether it waits for others to have booted.
    pub(super) fn waits_for_turn(&self) -> bool {
        self.turn == Turn::Awaited
    }

    /// Returns whether others wait for it to have booted.
    pub(super) fn has_turn(&self) -> bool {
        matches!(self.turn, Turn::Taken(_))
    }

    /// Returns the time since which others wait for it.
    pub(super) fn turn_since(&self) -> Option<Instant> {
        match self.turn {
            Turn::Taken(since) => Some(since),
            Turn::Awaited | Turn::Over => None,
        }
    }

    /// Notes that the agent cannot be used. It has no effect when that QEMU has ended, whose reason is the better note.
    pub(super) fn agent_failed(&mut self, start: u32, why: String) {
        if self.is_running(start) {
            self.status.note = Some(why);
        }
    }

    fn is_running(&self, start: u32) -> bool {
        self.starts == start && self.process.is_some()
    }

    /// Notes that its QEMU has ended, or could not be started. The guest is off only if no restart was requested.
    pub(super) fn ended(&mut self, note: String) {
        let note = self.verdict.take().unwrap_or(note);
        self.turn = Turn::Over;
        self.process = None;
        self.channel = None;
        self.status.pid = None;
        (self.status.boot_ms, self.status.kernel) = (None, None);
        (self.status.phase, self.status.note) = if self.restart {
            (NodePhase::Starting, None)
        } else {
            (NodePhase::Stopped, Some(note))
        };
    }

    /// Requests a restart. Returns the number of the last start, for [`restarted`](Self::restarted).
    pub(super) fn ask_for_restart(&mut self) -> u32 {
        self.restart = true;
        if self.status.phase == NodePhase::Stopped {
            (self.status.phase, self.status.note) = (NodePhase::Starting, None);
        }
        self.starts
    }

    /// Returns whether it is to be started again, and takes the request.
    pub(super) fn take_restart(&mut self) -> bool {
        std::mem::take(&mut self.restart)
    }

    /// Returns how the restart went that was requested after that start; `None` while it is in progress.
    pub(super) fn restarted(&self, starts_before: u32) -> Option<Result<(), String>> {
        match self.status.phase {
            NodePhase::Booting | NodePhase::NoAgent | NodePhase::Ready if self.starts > starts_before => Some(Ok(())),
            NodePhase::Stopped => Some(Err(self.status.note.clone().unwrap_or_default())),
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
        let number = guest.launched(std::fs::File::open("/dev/null").expect("there").into(), 7, 0);
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
        guest.launched(std::fs::File::open("/dev/null").expect("there").into(), 7, 0);
        guest.ended("QEMU is gone".to_owned());
        assert_eq!(guest.restarted(before), Some(Err("QEMU is gone".to_owned())));
    }

    #[test]
    fn a_restart_asked_for_while_one_is_under_way_is_answered_by_it() {
        let mut guest = guest();
        let before = guest.ask_for_restart();
        start(&mut guest);
        assert_eq!(guest.restarted(before), Some(Ok(())));
        assert!(
            !guest.take_restart(),
            "no other restart is requested when this one ends"
        );
    }

    fn guest_with_own_image() -> Guest {
        let mut guest = guest();
        guest.status.recipe = false;
        guest
    }

    #[test]
    fn a_guest_without_agent_says_so_at_once_and_is_ready_when_it_has_one() {
        let mut guest = guest_with_own_image();
        assert_eq!(guest.why_no_agent(), None, "its QEMU is being started");
        let number = start(&mut guest);
        let why = guest.why_no_agent().expect("there is none");
        assert!(why.starts_with("n1 has no agent that answers (booting): "), "{why}");
        guest.runs_without_agent(number, "it waits for a login on its serial line");
        assert_eq!(guest.status.phase, NodePhase::NoAgent);
        guest.answered(number, &welcome(), 3000);
        assert_eq!((guest.status.phase, &guest.status.note), (NodePhase::Ready, &None));
        guest.runs_without_agent(number, "late");
        assert_eq!(guest.status.phase, NodePhase::Ready);
        guest.boots_again(number);
        assert_eq!(guest.why_no_agent(), None, "it had one, and will again");
    }

    #[test]
    fn a_recipe_has_an_agent_whatever_its_serial_line_shows() {
        let mut guest = guest();
        let number = start(&mut guest);
        guest.runs_without_agent(number, "silence");
        assert_eq!((guest.status.phase, guest.why_no_agent()), (NodePhase::Booting, None));
    }

    #[test]
    fn a_guest_that_is_reset_again_and_again_is_given_up_and_one_that_ran_between_is_not() {
        let mut guest = guest();
        let number = start(&mut guest);
        let begun = Instant::now();
        let times = |count: u32| (0..count).map(|n| begun + n * RESETS_TIME_MIN / (RESETS_MAX - 1));
        for at in times(20) {
            assert_eq!(guest.was_reset(number, at), None);
            guest.answered(number, &welcome(), 3000);
        }
        let verdicts: Vec<_> = times(RESETS_MAX).filter_map(|at| guest.was_reset(number, at)).collect();
        assert_eq!(verdicts, ["it was reset 5 times in a row before anything ran in it"]);
        assert_eq!(guest.was_reset(number + 1, begun), None, "another QEMU");
    }

    #[test]
    fn a_reboot_for_which_the_firmware_resets_itself_many_times_is_one_reboot() {
        let mut guest = guest();
        let number = start(&mut guest);
        guest.answered(number, &welcome(), 3000);
        let begun = Instant::now();
        for n in 0..10 * RESETS_MAX {
            assert_eq!(guest.was_reset(number, begun + Duration::from_millis(5) * n), None);
        }
        guest.answered(number, &welcome(), 3000);
        assert_eq!(
            guest.was_reset(number, begun + 2 * RESETS_TIME_MIN),
            None,
            "the next reboot"
        );
    }

    #[test]
    fn resets_after_a_panic_count_for_nothing() {
        let mut guest = guest();
        let number = start(&mut guest);
        guest.answered(number, &welcome(), 3000);
        guest.panics(number);
        for _ in 0..2 * RESETS_MAX {
            assert_eq!(guest.was_reset(number, Instant::now()), None);
        }
        assert_eq!(
            guest.status.phase,
            NodePhase::Ready,
            "it does not boot: it is to be ended"
        );
        assert!(guest.told_of_panic() && guest.has_panicked());
        assert!(guest.condemn(number, "kernel panic: x".to_owned()));
        assert!(!guest.told_of_panic() && guest.has_panicked());
    }

    #[test]
    fn the_verdict_is_told_and_not_how_qemu_ended() {
        let mut guest = guest();
        let number = start(&mut guest);
        assert!(guest.condemn(number, "kernel panic: x".to_owned()));
        assert!(!guest.condemn(number, "another".to_owned()));
        guest.ended("switched off".to_owned());
        assert_eq!(guest.status.note.as_deref(), Some("kernel panic: x"));
        guest.ask_for_restart();
        start(&mut guest);
        guest.ended("switched off".to_owned());
        assert_eq!(guest.status.note.as_deref(), Some("switched off"));
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
        assert_eq!(guest.status.phase, NodePhase::Stopped);
        assert_eq!(guest.status.note.as_deref(), Some("switched off"));
        guest.ask_for_restart();
        start(&mut guest);
        guest.answered(first, &welcome(), 3000);
        assert_eq!(guest.status.phase, NodePhase::Booting);
    }
}
