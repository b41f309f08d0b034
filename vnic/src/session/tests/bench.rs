//! What the session tests have in common: a small device that writes down what reaches it, and a frontend by hand.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost_user_backend::VhostUserBackend;
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;

use super::super::message::*;
use super::super::{SessionDevice, SessionRule, SessionVring, Sessions, TranslationChange, wire};
use crate::events::EventThread;
use crate::memory::Misses;

/// Long enough for any loaded machine: only a failing test waits so long.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
pub(super) const FEATURES: u64 = VIRTIO_PROTOCOL_FEATURES | 1 << 32;
/// The features of the small device.
pub(super) const OFFERED: u64 = FEATURES | VHOST_LOG_ALL;
pub(super) const PROTOCOL: u64 =
    protocol::MQ | protocol::LOG_SHMFD | protocol::REPLY_ACK | protocol::RESET_DEVICE | protocol::CONFIGURE_MEM_SLOTS;
/// Where the tests' guest memory lies in the tests' "frontend".
pub(super) const USER: u64 = 0x7000_0000;

/// Notes what happens to it.
#[derive(Clone)]
pub(super) struct TestDevice {
    pub(super) name: String,
    pub(super) notes: Arc<(Mutex<Vec<String>>, Condvar)>,
    /// Where its code panics: at "event" or at "memory".
    pub(super) panic_at: Arc<Mutex<&'static str>>,
    /// What it misses of translations; none if its guest cannot be behind an IOMMU.
    pub(super) misses: Option<Arc<Misses>>,
    /// What it must have noted before a ring of it stops.
    pub(super) stops_behind: Arc<Mutex<Option<&'static str>>>,
}

impl TestDevice {
    pub(super) fn new(name: &str) -> TestDevice {
        TestDevice {
            name: name.to_owned(),
            notes: Arc::default(),
            panic_at: Arc::default(),
            misses: None,
            stops_behind: Arc::default(),
        }
    }

    pub(super) fn behind_iommu(name: &str) -> TestDevice {
        TestDevice {
            misses: Some(Arc::new(Misses::new().unwrap())),
            ..TestDevice::new(name)
        }
    }

    pub(super) fn note(&self, what: impl Into<String>) {
        self.notes.0.lock().unwrap().push(what.into());
        self.notes.1.notify_all();
    }

    /// Waits until `count` notes begin with `what`, and gives them.
    pub(super) fn wait_for(&self, what: &str, count: usize) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut notes = self.notes.0.lock().unwrap();
        loop {
            let found: Vec<_> = notes.iter().filter(|note| note.starts_with(what)).cloned().collect();
            if found.len() >= count {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{count} × {what:?} never came, only {notes:?}");
            notes = self.notes.1.wait_timeout(notes, left).unwrap().0;
        }
    }

    pub(super) fn count(&self, what: &str) -> usize {
        self.notes
            .0
            .lock()
            .unwrap()
            .iter()
            .filter(|note| note.starts_with(what))
            .count()
    }

    pub(super) fn panic_if(&self, place: &str) {
        let mut panic_at = self.panic_at.lock().unwrap();
        if *panic_at == place {
            *panic_at = "";
            drop(panic_at);
            panic!("as the test asked for");
        }
    }
}

impl SessionDevice for TestDevice {
    type Backend = TestDevice;

    fn name(&self) -> &str {
        &self.name
    }

    fn new_backend(&self) -> TestDevice {
        self.note("new backend");
        self.clone()
    }

    fn ring_enabled(&self, index: u16, enabled: bool) {
        self.note(format!("ring {index} {}", if enabled { "on" } else { "off" }));
    }

    fn misses(&self) -> Option<Arc<Misses>> {
        self.misses.clone()
    }

    fn translation_changed(&self, change: TranslationChange) {
        self.note(match change {
            TranslationChange::On(_) => "translated".to_owned(),
            TranslationChange::Off => "not translated".to_owned(),
            TranslationChange::RingPlaced { index, addresses } => format!(
                "ring {index} at {:#x} {:#x} {:#x}",
                addresses.descriptors, addresses.used, addresses.available
            ),
            TranslationChange::Given(mappings) => {
                let mappings = mappings.iter();
                let parts = mappings.map(|part| {
                    self.misses.as_ref().expect("behind an IOMMU").answered(part);
                    format!(" {:#x}-{:#x} to {:#x}", part.first, part.last, part.guest)
                });
                format!("given{}", parts.collect::<String>())
            }
            TranslationChange::Gone(range) => format!("gone {:#x}-{:#x}", range.start(), range.end()),
            TranslationChange::Denied(miss) => {
                self.misses.as_ref().expect("behind an IOMMU").denied(miss);
                format!("denied {:#x}", miss.iova)
            }
        });
    }

    fn connection_ends(&self) {
        self.note("ends");
    }

    fn connection_closed(&self) {
        self.note("closed");
    }

    fn fail(&self, why: String, _: Option<SessionRule>) {
        self.note(format!("failed: {why}"));
    }
}

impl VhostUserBackend for TestDevice {
    type Bitmap = ();
    type Vring = SessionVring;

    fn num_queues(&self) -> usize {
        4
    }

    fn max_queue_size(&self) -> usize {
        1024
    }

    fn features(&self) -> u64 {
        OFFERED
    }

    fn acked_features(&self, features: u64) {
        self.note(format!("features {features:#x}"));
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::from_bits_truncate(PROTOCOL)
    }

    fn set_event_idx(&self, _enabled: bool) {}

    fn update_memory(&self, _memory: GuestMemoryAtomic<GuestMemoryMmap>) -> std::io::Result<()> {
        self.panic_if("memory");
        self.note("memory");
        Ok(())
    }

    fn stop_vring(&self, index: u32) -> std::io::Result<()> {
        let behind = *self.stops_behind.lock().unwrap();
        if let Some(what) = behind {
            self.wait_for(what, 1);
        }
        self.note(format!("stopped {index}"));
        Ok(())
    }

    fn handle_event(&self, event: u16, _: EventSet, _: &[SessionVring], _: usize) -> std::io::Result<()> {
        self.panic_if("event");
        self.note(format!("event {event}"));
        Ok(())
    }
}

/// A frontend of the tests' own, which can say anything.
pub(super) struct Client {
    pub(super) stream: UnixStream,
}

impl Client {
    pub(super) fn connect(path: &Path) -> Client {
        Client::over(UnixStream::connect(path).unwrap())
    }

    pub(super) fn over(stream: UnixStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream }
    }

    pub(super) fn send(&self, request: u32, words: &[u64], files: Vec<OwnedFd>) {
        let body = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        wire::send(
            &self.stream,
            &Message {
                files,
                ..Message::request(request, body)
            },
        )
        .unwrap();
    }

    /// Sends and gives the answer, which is asked for.
    pub(super) fn ask(&self, request: u32, words: &[u64], files: Vec<OwnedFd>) -> Message {
        let body = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let message = Message {
            request,
            flags: FLAG_VERSION | FLAG_NEED_REPLY,
            body,
            files,
        };
        wire::send(&self.stream, &message).unwrap();
        let answer = wire::receive(&self.stream).unwrap().expect("an answer");
        assert_eq!(answer.request, request);
        answer
    }

    pub(super) fn is_alive(&self) -> bool {
        self.ask(GET_FEATURES, &[], Vec::new()).long(0) == OFFERED
    }

    pub(super) fn expect_end(&self) {
        while let Ok(Some(_)) = wire::receive(&self.stream) {}
    }

    pub(super) fn agree(&self) {
        self.ask(GET_FEATURES, &[], Vec::new());
        assert_eq!(self.ask(SET_PROTOCOL_FEATURES, &[PROTOCOL], Vec::new()).long(0), 0);
    }

    /// A session with memory and ring 0 running; gives the ring's kick.
    pub(super) fn start_ring(&self) -> OwnedFd {
        self.agree();
        assert_eq!(self.ask(SET_FEATURES, &[FEATURES], Vec::new()).long(0), 0);
        assert_eq!(
            self.ask(ADD_MEM_REG, &[0, 0, 0x10000, USER, 0], vec![memory()]).long(0),
            0
        );
        assert_eq!(self.ask(SET_VRING_NUM, &[256 << 32], Vec::new()).long(0), 0);
        assert_eq!(
            self.ask(SET_VRING_ADDR, &[0, USER, USER + 0x2000, USER + 0x1000, 0], Vec::new())
                .long(0),
            0
        );
        let kick = event();
        assert_eq!(
            self.ask(SET_VRING_KICK, &[0], vec![kick.try_clone().unwrap()]).long(0),
            0
        );
        assert_eq!(self.ask(SET_VRING_ENABLE, &[1 << 32], Vec::new()).long(0), 0);
        kick
    }
}

pub(super) fn memory() -> OwnedFd {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 0x10000).unwrap();
    file
}

pub(super) fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).unwrap()
}

pub(super) fn kick(event: impl AsFd) {
    rustix::io::write(event, &1u64.to_ne_bytes()).unwrap();
}

pub(super) struct Bench {
    pub(super) folder: tempfile::TempDir,
    pub(super) sessions: Sessions,
}

impl Bench {
    pub(super) fn new() -> Bench {
        Bench {
            folder: tempfile::tempdir().unwrap(),
            sessions: Sessions::new(&EventThread::start().unwrap()).unwrap(),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
