//! One connection from beginning to end: a fresh published daemon with a fresh backend object, the relay between it and the
//! frontend, and their orderly end. Everything started here is joined before [`serve`] returns.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use vhost_user_backend::{VhostUserBackend, VhostUserDaemon};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;

use super::SessionDevice;
use super::file_kind::kind_of;
use super::guard::{Ender, Guarded, STOP_TOKEN, panic_text};
use super::log::DirtyLog;
use super::message::{Message, REM_MEM_REG, SET_MEM_TABLE, SET_VRING_KICK, name_of};
use super::private::PrivateListener;
use super::refusal::{Refusal, SessionRule};
use super::regions::FileKind;
use super::rules::{Limits, Marking, Passage, Rules, Verdict};
use super::translation::{self, ANSWER_WAIT_MAX, BackendChannel, TranslationChange};
use super::vring;
use super::wire::{self, ReceiveError};
use crate::memory::Misses;

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The frontend went away, or this side was asked to stop.
    Closed,
    /// The frontend broke a rule.
    Refused(Refusal),
    /// The port's own code failed: one sentence.
    Failed(String),
}

/// Serves the frontend at the other end of `stream` until one side ends the connection.
pub fn serve<D: SessionDevice>(device: &D, stream: UnixStream, ender: &Arc<Ender>, private: &PrivateListener) -> End {
    let end = match start(device, ender, private) {
        Ok(running) => running.wait(device, &stream, ender),
        Err(sentence) => End::Failed(sentence),
    };
    ender.end();
    match ender.failure() {
        Some(sentence) => End::Failed(sentence.to_owned()),
        None => end,
    }
}

struct Running<D: SessionDevice> {
    daemon: VhostUserDaemon<Guarded<D>>,
    /// Tells the daemon's workers to end; must stay open until they have.
    stop: OwnedFd,
    inner: UnixStream,
    limits: Limits,
}

fn start<D: SessionDevice>(device: &D, ender: &Arc<Ender>, private: &PrivateListener) -> Result<Running<D>, String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("cannot start a session: {what}: {error}");
    let backend = Guarded::<D>::new(device.new_backend(), Arc::clone(ender));
    let limits = Limits {
        rings: backend.num_queues().min(256) as u16,
        ring_entries_max: backend.max_queue_size() as u32,
        features: backend.features(),
        protocol_features: backend.protocol_features().bits(),
        iommu: device.misses().is_some(),
    };
    let stop =
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| failed("an eventfd", &error))?;
    let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
    let mut daemon = VhostUserDaemon::new(thread_name("vu", device.name()), backend, memory)
        .map_err(|error| failed("the daemon", &error))?;
    for handler in daemon.get_epoll_handlers() {
        if let Err(error) = handler.register_listener(stop.as_raw_fd(), EventSet::IN, u64::from(STOP_TOKEN)) {
            // A worker that cannot be told to end cannot be joined either, and dropping the daemon would wait for it for ever.
            // Only a host without any epoll watches left comes here.
            std::mem::forget(daemon);
            return Err(failed("the workers' stop event", &error));
        }
    }
    match private.connect(|listener| {
        daemon
            .start(listener)
            .map_err(|error| io::Error::other(error.to_string()))
    }) {
        Ok((inner, ())) => Ok(Running {
            daemon,
            stop,
            inner,
            limits,
        }),
        Err(error) => {
            signal(&stop);
            drop(daemon);
            Err(failed("the private socket", &error))
        }
    }
}

impl<D: SessionDevice> Running<D> {
    fn wait(mut self, device: &D, stream: &UnixStream, ender: &Ender) -> End {
        let mut judge = Judge::new(self.limits, device.misses());
        let relay = || relay(device, stream, &self.inner, &mut judge);
        let relayed = catch_unwind(AssertUnwindSafe(relay));
        // Also ends the daemon, which reads from the other end.
        let _ = self.inner.shutdown(Shutdown::Both);
        let daemon = self.daemon.wait();
        ender.end();
        let end = match relayed {
            Err(panic) => End::Failed(format!("the session front panicked: {}", panic_text(&*panic))),
            Ok(end) => explain(end, daemon),
        };
        device.connection_closed();
        // The card writes no more, and the frontend may have lived on, or left its log to another one.
        if let Err(refusal) = judge.mark() {
            tracing::warn!(
                port = device.name(),
                "what the card wrote is not all in the log of the guest's memory: {refusal}"
            );
        }
        signal(&self.stop);
        // Joins the workers.
        drop(self.daemon);
        end
    }
}

/// Why the connection ended, from what both sides of the relay saw.
fn explain(relay: RelayEnd, daemon: Result<(), vhost_user_backend::Error>) -> End {
    match (relay, daemon) {
        (_, Err(vhost_user_backend::Error::WaitDaemon(panic))) => {
            End::Failed(format!("the session's thread panicked: {}", panic_text(&*panic)))
        }
        (RelayEnd::Refused(refusal), _) => End::Refused(refusal),
        (RelayEnd::Failed(sentence), _) => End::Failed(sentence),
        (RelayEnd::FrontendGone, _) => End::Closed,
        (RelayEnd::BackendGone { last }, Err(error)) => {
            let name = name_of(last).unwrap_or("a request");
            End::Refused(SessionRule::NotPossible.broken(format!("{name} did not work: {error}")))
        }
        (RelayEnd::BackendGone { .. }, Ok(())) => End::Closed,
    }
}

#[derive(Debug)]
enum RelayEnd {
    /// The frontend closed its end, or the connection was ended here.
    FrontendGone,
    /// The daemon gave up at or after this request.
    BackendGone { last: u32 },
    /// The front refused a message.
    Refused(Refusal),
    /// The front itself failed.
    Failed(String),
}

/// Carries messages between the frontend and the daemon. One thread serves both directions, and while the daemon owes an answer the
/// frontend's next message waits in its socket: so answers of the front itself never overtake those of the daemon.
///
/// One kind of message is answered before that answer: QEMU 7.2 translates while it waits for an answer, and then takes the next
/// one for that to its translation.
fn relay<D: SessionDevice>(device: &D, stream: &UnixStream, inner: &UnixStream, judge: &mut Judge) -> RelayEnd {
    let mut owed = Owed::default();
    let mut last = 0;
    // The message that waits while an answer is owed is of another kind.
    let mut waits_behind = false;
    loop {
        let wanted = if owed.answers == 0 || judge.rules.is_translated() && !waits_behind {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let [from_backend, from_frontend] = match judge.wait(stream, inner, wanted) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return RelayEnd::Failed(format!("the session front cannot wait for messages: {error}")),
        };
        if let Err(refusal) = judge.translate(device, Instant::now()) {
            return RelayEnd::Refused(refusal);
        }
        if from_backend {
            let Ok(Some(mut answer)) = wire::receive(inner) else {
                return RelayEnd::BackendGone { last };
            };
            judge.rules.complete(&mut answer);
            tracing::debug!(port = device.name(), "backend: {answer}");
            owed.answers = owed.answers.saturating_sub(1);
            waits_behind &= owed.answers != 0;
            if std::mem::take(&mut owed.mark)
                && let Err(refusal) = judge.mark()
            {
                return RelayEnd::Refused(refusal);
            }
            if wire::send(stream, &answer).is_err() {
                return RelayEnd::FrontendGone;
            }
        } else if from_frontend {
            let is_early = owed.answers != 0;
            if is_early && wanted.is_empty() {
                // Only a hang-up is reported while nothing is asked for.
                return RelayEnd::FrontendGone;
            }
            if is_early && !translation::is_next(stream) {
                waits_behind = true;
                continue;
            }
            let message = match wire::receive(stream) {
                Ok(Some(message)) => message,
                Ok(None) | Err(ReceiveError::Socket(_)) => return RelayEnd::FrontendGone,
                Err(ReceiveError::Malformed(refusal)) => return RelayEnd::Refused(refusal),
            };
            tracing::debug!(port = device.name(), "frontend: {message}");
            last = message.request;
            match carry(device, stream, inner, judge, message) {
                Ok(_) if is_early => {}
                Ok(now) => owed = now,
                Err(end) => return end,
            }
        }
    }
}

/// What the daemon owes the frontend.
#[derive(Debug, Default)]
struct Owed {
    answers: u32,
    /// All memory is to be marked in the log before the next answer.
    mark: bool,
}

/// The rules of the session, and what its frontend gave: a log, a channel to ask it over.
struct Judge {
    rules: Rules,
    log: Option<DirtyLog>,
    /// What the device misses of its guest's translations, if the guest may be behind an IOMMU.
    misses: Option<Arc<Misses>>,
    channel: Option<BackendChannel>,
}

impl Judge {
    fn new(limits: Limits, misses: Option<Arc<Misses>>) -> Self {
        if let Some(misses) = &misses {
            // Those of an earlier connection.
            misses.clear();
        }
        Self {
            rules: Rules::new(limits),
            log: None,
            misses,
            channel: None,
        }
    }

    /// Waits until the backend or the frontend, of which `wanted` is waited for, has sent something, or there is something to do
    /// about translations: whether either has.
    fn wait(&self, stream: &UnixStream, inner: &UnixStream, wanted: PollFlags) -> rustix::io::Result<[bool; 2]> {
        let mut fds = vec![PollFd::new(inner, PollFlags::IN), PollFd::new(stream, wanted)];
        let mut limit = None;
        let (event, socket);
        if let Some(misses) = &self.misses {
            event = misses.event();
            fds.push(PollFd::new(&event, PollFlags::IN));
            limit = misses.deadline(ANSWER_WAIT_MAX);
        }
        if let Some(channel) = &self.channel {
            socket = channel.socket();
            let room = if channel.is_full() {
                PollFlags::OUT
            } else {
                PollFlags::empty()
            };
            fds.push(PollFd::new(&socket, PollFlags::IN | room));
        }
        let limit = limit.map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        poll(&mut fds, limit.as_ref())?;
        Ok([0, 1].map(|at| !fds[at].revents().is_empty()))
    }

    /// Asks the frontend for translations that the device misses, and takes note of those that it does not have.
    ///
    /// # Errors
    /// The frontend answers nonsense, or does not answer.
    fn translate<D: SessionDevice>(&mut self, device: &D, now: Instant) -> Result<(), Refusal> {
        let Some(misses) = &self.misses else { return Ok(()) };
        // Only resets it.
        let _ = rustix::io::read(misses.event(), &mut [0; 8]);
        match &mut self.channel {
            Some(channel) => {
                for miss in channel.receive()? {
                    device.translation_changed(TranslationChange::Denied(miss));
                }
                channel.ask(misses, now);
                if channel.is_closed() {
                    self.channel = None;
                }
            }
            // The frontend cannot be asked, and the time for its answer runs: it may give it unasked.
            None => while misses.next_to_ask(now).is_some() {},
        }
        match misses.oldest() {
            Some((asked_at, miss)) if now.saturating_duration_since(asked_at) >= ANSWER_WAIT_MAX => {
                Err(translation::overdue(miss))
            }
            _ => Ok(()),
        }
    }

    /// Marks all memory in the log, if there is one.
    fn mark(&self) -> Result<(), Refusal> {
        self.log.as_ref().map_or(Ok(()), |log| log.mark(self.rules.memory()))
    }
}

/// Judges one message of the frontend and does what the verdict says; gives what the daemon now owes.
fn carry<D: SessionDevice>(
    device: &D,
    stream: &UnixStream,
    inner: &UnixStream,
    judge: &mut Judge,
    message: Message,
) -> Result<Owed, RelayEnd> {
    let last = message.request;
    let kinds: Vec<FileKind> = message.files.iter().map(|file| kind_of(file.as_fd())).collect();
    if last == SET_VRING_KICK && kinds[..] == [FileKind::Event] {
        check_kick(&message.files[0]).map_err(RelayEnd::Refused)?;
    }
    if matches!(last, SET_MEM_TABLE | REM_MEM_REG) {
        // What goes may have been written.
        judge.mark().map_err(RelayEnd::Refused)?;
    }
    match judge.rules.judge(message, &kinds) {
        Verdict::Refuse(refusal) => Err(RelayEnd::Refused(refusal)),
        Verdict::Log(log, answer) => {
            judge.log = Some(log);
            judge.mark().map_err(RelayEnd::Refused)?;
            wire::send(stream, &answer).map_err(|_| RelayEnd::FrontendGone)?;
            Ok(Owed::default())
        }
        Verdict::Translation(change, answer) => {
            device.translation_changed(change);
            give(stream, answer)
        }
        Verdict::Channel(socket, acknowledges, answer) => {
            judge.channel = Some(BackendChannel::new(socket, acknowledges));
            give(stream, answer)
        }
        Verdict::Announce(station, answer) => {
            device.announce(station);
            give(stream, answer)
        }
        Verdict::Settled(answer) => {
            tracing::debug!(
                port = device.name(),
                "front: {} goes no further now",
                name_of(last).unwrap_or("it")
            );
            give(stream, answer)
        }
        Verdict::Pass(passage) => pass(device, inner, judge, passage, last),
    }
}

/// Gives the frontend the answer of the front, if it wants one; the daemon owes it nothing then.
fn give(stream: &UnixStream, answer: Option<Message>) -> Result<Owed, RelayEnd> {
    match answer {
        Some(answer) if wire::send(stream, &answer).is_err() => Err(RelayEnd::FrontendGone),
        _ => Ok(Owed::default()),
    }
}

/// Lets messages pass to the daemon, with what goes with them; `last` is the request that they follow from.
fn pass<D: SessionDevice>(
    device: &D,
    inner: &UnixStream,
    judge: &mut Judge,
    passage: Passage,
    last: u32,
) -> Result<Owed, RelayEnd> {
    for index in passage.rings_off {
        device.ring_enabled(index, false);
    }
    if passage.marking == Marking::RingsOff {
        judge.mark().map_err(RelayEnd::Refused)?;
    }
    if let Some(translated) = passage.translated
        && let Some(misses) = &judge.misses
    {
        device.translation_changed(if translated {
            TranslationChange::On(Arc::clone(misses))
        } else {
            TranslationChange::Off
        });
    }
    for (position, message) in passage.messages.iter().enumerate() {
        if passage.messages.len() > 1 {
            tracing::debug!(
                port = device.name(),
                "front: {} of {}: {message}",
                position + 1,
                passage.messages.len()
            );
        }
        if wire::send(inner, message).is_err() {
            return Err(RelayEnd::BackendGone { last });
        }
    }
    for index in passage.rings_on {
        device.ring_enabled(index, true);
    }
    if passage.marking == Marking::Last {
        judge.mark().map_err(RelayEnd::Refused)?;
        judge.log = None;
    }
    Ok(Owed {
        answers: passage.replies,
        mark: passage.marking == Marking::BeforeAnswer,
    })
}

/// Refuses a kick that could keep the thread that reads it busy for ever.
fn check_kick(kick: &OwnedFd) -> Result<(), Refusal> {
    match vring::is_semaphore(kick) {
        Ok(false) => Ok(()),
        Ok(true) => Err(SessionRule::KickSemaphore
            .broken("SET_VRING_KICK: the kick is an eventfd that counts as a semaphore (EFD_SEMAPHORE)")),
        Err(error) => {
            Err(SessionRule::NotPossible.broken(format!("SET_VRING_KICK: the kick cannot be tried: {error}")))
        }
    }
}

fn signal(event: &OwnedFd) {
    // Fails only when the counter is full, and then the event is signalled already.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Thread names are cut to 15 bytes by the kernel: the kind first, then as much of the port's name as fits.
pub fn thread_name(kind: &str, port: &str) -> String {
    format!("{kind} {port}").chars().take(15).collect()
}
