//! Looks at how guests boot: reads their serial lines, ends those that cannot go on, notes those that run without our agent,
//! and lets only as many boot at once as the host has processors for. What a line means is decided in
//! `panic_detection`, what follows for a guest in `guest_state`.

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

/// How often serial lines are looked at while guests boot: a panic is known this soon.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// How often they are looked at when no guest boots.
const CALM_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes of a serial line that are read at one look. A guest that prints more than that is read on at the next.
const READ_LEN_MAX: u64 = 256 << 10;

/// How long a guest with an image of its own may be silent before it counts as running without an agent: boot loaders wait
/// 5 s for a key, and a guest on a busy machine may load its kernel for longer than that.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How long a guest may keep others from booting: several times what it needs where no other one boots.
const TURN_TIME_MAX: Duration = Duration::from_secs(20);

/// How long the agent of a guest may take to show that a panic on its serial line was only somebody's talk.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

/// How many guests may boot at once. A guest that boots computes all the time: more of them than processors take longer
/// together than one after the other. One more fills the moments in which a QEMU starts.
fn at_once() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get) + 1
}

/// Waits until `node` may boot; `false` when the lab is ended before, or the node has gone, or is another one by now. Guests boot
/// in the order of the lab file.
pub(super) fn wait_for_turn(shared: &Shared, node: &str, identity: u64) -> bool {
    let (lab, at_once) = (shared.lab(), at_once());
    let turn = shared.wait_for(None, |inner: &mut LabState| {
        let is_there = inner.nodes.get(node).is_some_and(|guest| guest.identity() == identity);
        if inner.phase == LabPhase::Stopping || !is_there {
            return Some(false);
        }
        let booting = inner.nodes.values().filter(|guest| guest.has_turn()).count();
        let before = lab.nodes.iter().take_while(|other| other.name != node);
        let waiting = before.filter_map(|other| inner.nodes.get(&other.name));
        if booting + waiting.filter(|guest| guest.waits_for_turn()).count() >= at_once {
            return None;
        }
        inner.nodes.get_mut(node)?.take_turn();
        Some(true)
    });
    // The next one may have waited for this one to take its turn.
    shared.update(|_| ());
    turn == Some(true)
}

/// One guest's serial line.
struct Line {
    /// Which start of QEMU it belongs to.
    start: u32,
    /// Bytes of the log that were read.
    read: u64,
    console: Console,
    /// What it last said that nothing can follow.
    last_words: Option<String>,
    /// The agent is being asked whether that is so.
    asking: Arc<AtomicBool>,
}

impl Line {
    /// The line of the start with this number, from that many bytes of the log on.
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

/// The thread that looks at all serial lines, until the lab ends.
pub(super) fn watch(shared: &Arc<Shared>) {
    let mut lines = BTreeMap::new();
    loop {
        let calm = shared.inner().nodes.values().all(|guest| !guest.is_booting());
        let pause = if calm { CALM_LOOK_INTERVAL } else { LOOK_INTERVAL };
        let awake = |inner: &mut LabState| match inner.phase {
            LabPhase::Stopping => Some(true),
            // Somebody boots who did not when this pause began.
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
        // Nobody waits for this alone to change.
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

/// What follows from the time that has gone by.
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

/// What was added to a log since it was read last.
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

/// Ends a guest that cannot go on. One whose agent answers can: then somebody only printed such a line. QEMU is told of no panic
/// then.
/// One question at a time, however often it prints it.
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
        // One with too much to do to take the question is alive.
        if let Err(ChannelError::TimedOut(_) | ChannelError::Closed | ChannelError::Restarted) =
            channel.ping(SIGN_OF_LIFE)
        {
            end(&owner, &node, start, why);
        }
        asking.store(false, Ordering::Release);
    });
    if let Err(error) = asked {
        line.asking.store(false, Ordering::Release);
        tracing::warn!(node = name, %error, "nobody asks whether a guest that printed of a panic is alive");
    }
}

/// Ends a guest's QEMU, for a reason that is told instead of how QEMU ended.
pub(super) fn end(shared: &Shared, name: &str, start: u32, why: String) {
    shared.update_guest(name, |guest| {
        if guest.condemn(start, why)
            && let Some(process) = &guest.process
        {
            // One that has ended meanwhile needs no signal.
            _ = pidfd_send_signal(process, Signal::TERM);
        }
    });
}
