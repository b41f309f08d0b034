//! Watches how guests boot: reads their serial lines, ends those that cannot continue, notes those that run without
//! Weft's agent, and lets only as many boot at a time as the host has processors for. The module `panic_detection`
//! interprets lines, `guest_state` the consequences for a guest.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::process::{Signal, pidfd_send_signal};

use super::{
    LabState, Shared,
    panic_detection::{Console, Sign},
    thread,
};
use crate::{
    guest_channel::ChannelError,
    supervisor_client::protocol::{LabPhase, NodePhase},
};

/// Interval at which serial lines are polled while guests boot: a panic is known this soon.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Interval at which serial lines are polled when no guest boots.
const CALM_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Number of bytes of a serial line that are read in one poll. The rest is read in the next one.
const READ_LEN_MAX: u64 = 256 << 10;

/// Time that a guest with the user's image may be silent before it counts as running without an agent: boot loaders
/// wait 5 s for a key, and a guest on a busy machine may load its kernel for longer than that.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Time that a guest may keep others from booting: several times what it needs where no other one boots.
const TURN_TIME_MAX: Duration = Duration::from_secs(20);

/// Time that the agent of a guest has to show that a panic message on its serial line was only printed by a program.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

/// Returns how many guests may boot at a time. A booting guest uses its processor all the time: with more guests than
/// processors, booting takes longer than one after the other. One more fills the moments in which a QEMU starts.
fn boots_at_a_time() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get) + 1
}

/// Waits until `node` may boot; `false` when the lab ended before, or the node has been removed or replaced. Guests
/// boot in the order of the lab file.
pub(super) fn wait_for_turn(shared: &Shared, node: &str, identity: u64) -> bool {
    let (lab, boots_at_a_time) = (shared.lab(), boots_at_a_time());
    let turn = shared.wait_for(None, |inner: &mut LabState| {
        let is_there = inner.nodes.get(node).is_some_and(|guest| guest.identity() == identity);
        if inner.phase == LabPhase::Stopping || !is_there {
            return Some(false);
        }
        let booting = inner.nodes.values().filter(|guest| guest.has_turn()).count();
        let before = lab.nodes.iter().take_while(|other| other.name != node);
        let waiting = before.filter_map(|other| inner.nodes.get(&other.name));
        if booting + waiting.filter(|guest| guest.waits_for_turn()).count() >= boots_at_a_time {
            return None;
        }
        inner.nodes.get_mut(node)?.take_turn();
        Some(true)
    });
    // The next guest may have waited for this one to take its turn.
    shared.update(|_| ());
    turn == Some(true)
}

/// The serial line of one guest.
struct Line {
    /// Number of the start of QEMU that the line belongs to.
    start: u32,
    /// Number of bytes of the log that were read.
    read: u64,
    console: Console,
    /// Last message that a running guest cannot continue after.
    last_words: Option<String>,
    /// Whether the agent is being asked if the guest is alive.
    asking: Arc<AtomicBool>,
}

impl Line {
    /// Makes the line of the start with this number, from that many bytes of the log on.
    fn of(start: u32, printed_before: u64) -> Self {
        Self {
            start,
            read: printed_before,
            console: Console::default(),
            last_words: None,
            asking: Arc::default(),
        }
    }
}

/// Runs the thread that polls all serial lines, until the lab ends.
pub(super) fn watch(shared: &Arc<Shared>) {
    let mut lines = BTreeMap::new();
    loop {
        let calm = shared.inner().nodes.values().all(|guest| !guest.is_booting());
        let pause = if calm { CALM_POLL_INTERVAL } else { POLL_INTERVAL };
        let awake = |inner: &mut LabState| match inner.phase {
            LabPhase::Stopping => Some(true),
            // A guest boots that did not when this pause began.
            _ if calm && inner.nodes.values().any(super::guest_state::Guest::is_booting) => Some(false),
            _ => None,
        };
        if shared.wait_for(Some(Instant::now() + pause), awake) == Some(true) {
            return;
        }
        let names: Vec<_> = shared.inner().nodes.keys().cloned().collect();
        lines.retain(|name, _| names.contains(name));
        for name in names {
            look(shared, &name, &mut lines);
        }
    }
}

fn look(shared: &Arc<Shared>, name: &str, lines: &mut BTreeMap<String, Line>) {
    let Some((start, printed_before)) = shared
        .inner()
        .nodes
        .get(name)
        .and_then(super::guest_state::Guest::start)
    else {
        lines.remove(name);
        return;
    };
    let line = lines
        .entry(name.to_owned())
        .or_insert_with(|| Line::of(start, printed_before));
    if line.start != start {
        *line = Line::of(start, printed_before);
    }
    let news = read_on(&shared.state.file(&format!("{name}.log")), &mut line.read).unwrap_or_default();
    if !news.is_empty() {
        // No thread waits for this alone to change.
        if let Some(guest) = shared.inner().nodes.get_mut(name) {
            guest.goes_on(start);
        }
    }
    for sign in line.console.feed(&news) {
        match sign {
            Sign::Dead(why) => {
                line.last_words = Some(why);
                end_unless_it_lives(shared, name, line);
            }
            Sign::Login => shared.update_guest(name, |guest| {
                guest.runs_without_agent(start, "it waits for a login on its serial line");
            }),
        }
    }
    judge(shared, name, line);
}

/// Acts on the time that has passed.
fn judge(shared: &Shared, name: &str, line: &Line) {
    let start = line.start;
    let (panicked, silent, turn_is_over) = {
        let inner = shared.inner();
        let Some(guest) = inner.nodes.get(name) else { return };
        (
            guest.told_of_panic(),
            guest.silent_for().is_some_and(|silent| silent > SILENCE_MAX),
            guest.turn_since().is_some_and(|since| since.elapsed() > TURN_TIME_MAX),
        )
    };
    if panicked {
        let why = line.last_words.as_deref();
        let why = why.unwrap_or("its kernel told the machine that it panicked");
        end(shared, name, start, why.to_owned());
    }
    if silent {
        let note = if line.console.spoke() {
            "it prints nothing any more on its serial line"
        } else {
            "it prints nothing on its serial line"
        };
        shared.update_guest(name, |guest| guest.runs_without_agent(start, note));
    }
    if turn_is_over {
        shared.update_guest(name, super::guest_state::Guest::give_turn);
    }
}

/// Reads what was added to a log since the last call.
fn read_on(log: &Path, read: &mut u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(log)?;
    if file.metadata()?.len() <= *read {
        return Ok(Vec::new());
    }
    file.seek(SeekFrom::Start(*read))?;
    let mut news = Vec::new();
    file.take(READ_LEN_MAX).read_to_end(&mut news)?;
    *read += news.len() as u64;
    Ok(news)
}

/// Ends a guest that cannot continue, unless its agent answers: then a program only printed such a line, and QEMU has
/// no report of a panic. One question is asked at a time, however often the line is printed.
fn end_unless_it_lives(shared: &Arc<Shared>, name: &str, line: &Line) {
    let (start, why) = (line.start, line.last_words.clone().unwrap_or_default());
    let channel = {
        let inner = shared.inner();
        let guest = inner.nodes.get(name);
        let ready = guest.filter(|guest| guest.status.phase == NodePhase::Ready && !guest.has_panicked());
        ready.and_then(|guest| guest.channel.clone())
    };
    let Some(channel) = channel else {
        return end(shared, name, start, why);
    };
    if line.asking.swap(true, Ordering::AcqRel) {
        return;
    }
    let (owner, node, asking) = (Arc::clone(shared), name.to_owned(), Arc::clone(&line.asking));
    let asked = thread("sign of life", move || {
        // A guest that is too busy to accept the question is alive.
        if let Err(ChannelError::TimedOut(_) | ChannelError::Closed | ChannelError::Restarted) =
            channel.ping(SIGN_OF_LIFE)
        {
            end(&owner, &node, start, why);
        }
        asking.store(false, Ordering::Release);
    });
    if let Err(error) = asked {
        line.asking.store(false, Ordering::Release);
        tracing::warn!(node = name, %error, "cannot check whether a guest that printed a panic message is alive");
    }
}

/// Ends a guest's QEMU, for a reason that is shown instead of how QEMU ended.
pub(super) fn end(shared: &Shared, name: &str, start: u32, why: String) {
    shared.update_guest(name, |guest| {
        if guest.condemn(start, why)
            && let Some(process) = &guest.process
        {
            // A process that has ended meanwhile needs no signal.
            _ = pidfd_send_signal(process, Signal::TERM);
        }
    });
}
