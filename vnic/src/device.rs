//! The virtio-net device behind a port: which features it has, and what the vhost-user session does to its rings.
//!
//! It turns the session's calls into changes of a card. It knows no socket and moves no frame.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ether::MacAddr;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost_user_backend::{VhostUserBackend, VringT};
use virtio_bindings::{virtio_config, virtio_net, virtio_ring};
use virtio_queue::QueueT;
use vm_memory::{GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;

use crate::dataplane::{PortHandle, RingActivity, Runner};
use crate::memory::Misses;
use crate::ring::RING_SIZE_MAX;
use crate::session::{SessionDevice, SessionRule, SessionVring, TranslationChange};

const PROTOCOL_FEATURES: u64 = 1 << 30;

/// Pages that the card writes can be logged: without it QEMU refuses to save a guest. The session does that (`session::log`).
const LOG_ALL: u64 = 1 << 26;

const fn bits<const N: usize>(bits: [u32; N]) -> u64 {
    let mut all = 0;
    let mut i = 0;
    while i < N {
        all |= 1 << bits[i];
        i += 1;
    }
    all
}

const FEATURES: u64 = bits([
    virtio_config::VIRTIO_F_VERSION_1,
    virtio_ring::VIRTIO_RING_F_INDIRECT_DESC,
    virtio_ring::VIRTIO_RING_F_EVENT_IDX,
    virtio_net::VIRTIO_NET_F_MRG_RXBUF,
    virtio_net::VIRTIO_NET_F_MTU,
    // The guest announces itself where it has been moved to; for one that does not, the frontend asks for that (RARP).
    virtio_net::VIRTIO_NET_F_GUEST_ANNOUNCE,
]) | PROTOCOL_FEATURES
    | LOG_ALL;

const OFFLOAD_FEATURES: u64 = bits([
    virtio_net::VIRTIO_NET_F_CSUM,
    virtio_net::VIRTIO_NET_F_GUEST_CSUM,
    virtio_net::VIRTIO_NET_F_GUEST_TSO4,
    virtio_net::VIRTIO_NET_F_GUEST_TSO6,
    virtio_net::VIRTIO_NET_F_GUEST_ECN,
    virtio_net::VIRTIO_NET_F_HOST_TSO4,
    virtio_net::VIRTIO_NET_F_HOST_TSO6,
    virtio_net::VIRTIO_NET_F_HOST_ECN,
]);

struct State {
    runner: Arc<Runner>,
    port: usize,
    name: String,
    queue_pairs: u16,
    features: u64,
    activity: Arc<RingActivity>,
    /// What is missing of translations, if the guest may be behind an IOMMU of its own.
    misses: Option<Arc<Misses>>,
    /// Number of the connection that owns the port; calls of earlier ones change nothing.
    connection: AtomicU64,
}

/// A port of the fabric as the session sees it; lives as long as the port. Cheap to clone.
#[derive(Clone)]
pub struct Device {
    state: Arc<State>,
}

impl Device {
    /// The device of a port that was just added.
    pub fn new(port: PortHandle) -> Self {
        let PortHandle {
            runner,
            card: port,
            settings,
            misses,
        } = port;
        let offloads = if settings.offloads { OFFLOAD_FEATURES } else { 0 };
        let activity = Arc::new(RingActivity::default());
        runner.with(|plane, _| plane.card(port).share_activity(activity.clone()));
        let several = if settings.queue_pairs > 1 {
            1 << virtio_net::VIRTIO_NET_F_MQ
        } else {
            0
        };
        Self {
            state: Arc::new(State {
                runner,
                port,
                name: settings.name,
                queue_pairs: settings.queue_pairs,
                features: FEATURES | offloads | several,
                activity,
                misses,
                connection: AtomicU64::new(0),
            }),
        }
    }
}

impl SessionDevice for Device {
    type Backend = Backend;

    fn name(&self) -> &str {
        &self.state.name
    }

    fn new_backend(&self) -> Backend {
        let connection = self.state.connection.fetch_add(1, Ordering::SeqCst) + 1;
        self.state.runner.with(|plane, _| plane.card(self.state.port).connect());
        Backend {
            shared: Arc::new(Connection {
                device: self.clone(),
                connection,
                rings: OnceLock::new(),
            }),
        }
    }

    fn connection_ends(&self) {
        self.state
            .runner
            .with(|plane, _| plane.card(self.state.port).take_kicks());
    }

    fn connection_closed(&self) {
        self.state
            .runner
            .with(|plane, _| plane.card(self.state.port).disconnect());
    }

    fn ring_enabled(&self, index: u16, enabled: bool) {
        self.state
            .runner
            .with(|plane, _| plane.card(self.state.port).enable_ring(usize::from(index), enabled));
    }

    fn misses(&self) -> Option<Arc<Misses>> {
        self.state.misses.clone()
    }

    fn translation_changed(&self, change: TranslationChange) {
        self.state
            .runner
            .with(|plane, now| plane.card(self.state.port).change_translation(change, now));
    }

    fn announce(&self, station: MacAddr) {
        self.state
            .runner
            .with(|plane, now| plane.announce(self.state.port, station, now));
    }

    fn fail(&self, why: String, rule: Option<SessionRule>) {
        self.state.runner.with(|plane, now| {
            let port = plane.card(self.state.port);
            if let Some(rule) = rule {
                port.counters_mut().session_rules.count(rule);
            }
            port.fail(why, now);
        });
    }
}

struct Connection {
    device: Device,
    connection: u64,
    rings: OnceLock<Vec<SessionVring>>,
}

/// The device of one connection.
#[derive(Clone)]
pub struct Backend {
    shared: Arc<Connection>,
}

impl Backend {
    fn state(&self) -> &State {
        &self.shared.device.state
    }

    /// Changes the port, unless a newer connection owns it.
    fn change<T>(&self, change: impl FnOnce(&mut crate::dataplane::Card, ether::Time) -> T) -> Option<T> {
        let state = self.state();
        let current = state.connection.load(Ordering::SeqCst) == self.shared.connection;
        current.then(|| state.runner.with(|plane, now| change(plane.card(state.port), now)))
    }
}

impl VhostUserBackend for Backend {
    type Bitmap = ();
    type Vring = SessionVring;

    fn num_queues(&self) -> usize {
        2 * usize::from(self.state().queue_pairs)
    }

    fn max_queue_size(&self) -> usize {
        usize::from(RING_SIZE_MAX)
    }

    fn features(&self) -> u64 {
        self.state().features
    }

    fn acked_features(&self, features: u64) {
        self.change(|port, _| port.set_features(features));
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::RARP
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
    }

    fn reset_device(&self) {
        let rings = self.num_queues();
        self.change(|port, _| {
            for index in 0..rings {
                port.stop_ring(index);
            }
        });
    }

    fn set_event_idx(&self, _enabled: bool) {
        // Read from the acknowledged features when a ring starts.
    }

    fn update_memory(&self, memory: GuestMemoryAtomic<GuestMemoryMmap>) -> std::io::Result<()> {
        let table = memory.memory().into_inner();
        self.change(|port, now| port.set_memory(table, now));
        Ok(())
    }

    fn stop_vring(&self, index: u32) -> std::io::Result<()> {
        let next_avail = self.change(|port, _| port.stop_ring(index as usize)).flatten();
        if let (Some(next_avail), Some(rings)) = (next_avail, self.shared.rings.get())
            && let Some(ring) = rings.get(index as usize)
        {
            ring.set_queue_next_avail(next_avail);
        }
        Ok(())
    }

    fn handle_event(
        &self,
        device_event: u16,
        _events: EventSet,
        vrings: &[SessionVring],
        _thread_id: usize,
    ) -> std::io::Result<()> {
        let index = usize::from(device_event);
        let Some(vring) = vrings.get(index) else { return Ok(()) };
        let activity = &self.state().activity;
        activity.count_kick();
        if !activity.is_settled(index) {
            self.shared.rings.get_or_init(|| vrings.to_vec());
            self.change(|port, now| {
                if vring.get_ref().get_queue().ready()
                    && let Err(rule) = port.start_ring(index, vring, now)
                {
                    port.fail_rule(rule, now);
                }
            });
        }
        self.state().runner.run_now();
        Ok(())
    }
}
