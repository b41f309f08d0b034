//! The guest as a whole: memory, queue pairs, and the vhost-user session that hands them to a
//! backend, with the messages in QEMU's order. Frames are interpreted in `frames`.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ether::MacAddr;
use vhost::vhost_user::message::{VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend as Wire, VhostUserFrontend};
use vhost::{VhostBackend, VringConfigData};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::memory::{GuestMemory, PAGE_LEN};
use crate::queue::{RxRing, TxRing};
use crate::raw_session::RawSession;
use crate::ring::DriverRing;

mod config;
mod iommu;

pub use self::config::*;
pub use self::iommu::{Answers, Iommu, Question};

/// Longest wait for the backend's socket, or for the backend to connect.
const CONNECT_WAIT: Duration = Duration::from_secs(20);
/// Longest wait for the answer to a session message; a backend that takes longer hangs.
const REPLY_WAIT: Duration = Duration::from_secs(20);

/// What went wrong with the session.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call of the frontend failed; the frontend is unusable.
    #[error("test frontend: {0}")]
    Io(#[from] io::Error),
    /// The backend refused a message or ended the session; reconnect or give up.
    #[error("vhost-user session: {0}")]
    Session(#[from] vhost::Error),
    /// The backend has too few features for the configuration asked for.
    #[error("the backend does not have feature bits {0:#x}")]
    Missing(u64),
    /// No backend connected or answered in time.
    #[error("no backend at {0} within 20 s")]
    NoBackend(PathBuf),
}

/// The two rings of a queue pair.
#[derive(Debug)]
pub struct QueuePair {
    /// Towards the guest.
    pub rx: RxRing,
    /// From the guest.
    pub tx: TxRing,
}

/// A guest with its card's driver.
pub struct Frontend {
    config: FrontendConfig,
    memory: Arc<GuestMemory>,
    /// The rings; pair `n` is vring `2n` (receive) and `2n + 1` (transmit).
    pub pairs: Vec<QueuePair>,
    wire: Option<Wire>,
    watch: Option<UnixStream>,
    listener: Option<UnixListener>,
    features: u64,
    iommu: Option<Iommu>,
    base: Option<u16>,
}

impl Frontend {
    /// Builds the guest, connects, negotiates, starts all rings and posts all receive buffers.
    pub fn start(config: FrontendConfig) -> Result<Self, Error> {
        let mut frontend = Self::build(config)?;
        frontend.connect()?;
        Ok(frontend)
    }

    /// Builds the guest without connecting; in listen mode the socket exists afterwards.
    pub fn build(config: FrontendConfig) -> Result<Self, Error> {
        let per_buffer = |len: usize| (len.div_ceil(64) | 1) * 64 + 1024;
        let buffers = usize::from(config.ring_size).max(config.buffer_pool);
        let per_pair = buffers * (per_buffer(config.tx_buffer_len) + per_buffer(config.rx_buffer_len));
        let total = (per_pair + (64 << 10)) * usize::from(config.queue_pairs) + PAGE_LEN + config.spare_memory;
        let memory = Arc::new(if config.has_iommu() {
            GuestMemory::scattered(total, config.regions)?
        } else {
            GuestMemory::new(total, config.regions)?
        });
        // Nothing of ours lies on the first page, so that tests may begin the first region a little later.
        memory.allocate(PAGE_LEN, PAGE_LEN);
        let mut pairs = Vec::new();
        for _ in 0..config.queue_pairs {
            let rx = RxRing::new(
                &memory,
                config.ring_size,
                config.rx_layout,
                config.rx_buffer_len,
                config.buffer_pool,
            )?;
            let tx = TxRing::new(
                &memory,
                config.ring_size,
                config.tx_layout,
                config.tx_buffer_len,
                config.buffer_pool,
            )?;
            pairs.push(QueuePair { rx, tx });
        }
        let listener = match &config.transport {
            Transport::Listen(path) => Some(UnixListener::bind(path)?),
            Transport::Connect(_) => None,
        };
        Ok(Frontend {
            iommu: config.has_iommu().then(|| Iommu::new(&memory)),
            config,
            memory,
            pairs,
            wire: None,
            watch: None,
            listener,
            features: 0,
            base: None,
        })
    }

    /// From now on SET_VRING_BASE gives `base` for every ring, or (`None`) its used index in memory.
    pub fn give_base(&mut self, base: Option<u16>) {
        self.base = base;
    }

    /// The IOMMU that the guest is behind. Panics if it is behind none.
    pub fn iommu(&self) -> &Iommu {
        self.iommu.as_ref().expect("the guest is behind an IOMMU")
    }

    /// The guest's memory.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// How the guest was built.
    pub fn config(&self) -> &FrontendConfig {
        &self.config
    }

    /// Feature bits negotiated.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Connects (or waits for the backend) and starts the device where the rings stand: a fresh guest starts at 0, a
    /// reconnecting one at the used index in memory, as QEMU does.
    pub fn connect(&mut self) -> Result<(), Error> {
        let stream = self.open()?;
        self.begin(stream)
    }

    fn begin(&mut self, stream: UnixStream) -> Result<(), Error> {
        stream.set_read_timeout(Some(REPLY_WAIT))?;
        self.watch = Some(stream.try_clone()?);
        let mut wire = Wire::from_stream(stream, u64::from(self.config.queue_pairs) * 2);
        self.negotiate(&mut wire)?;
        self.wire = Some(wire);
        for index in 0..self.pairs.len() * 2 {
            self.start_ring(index)?;
        }
        for index in 0..self.pairs.len() * 2 {
            self.wire()?.set_vring_enable(index, true)?;
        }
        for pair in &mut self.pairs {
            pair.rx.post_withheld();
            pair.rx.ring.kick();
            pair.tx.ring.kick();
        }
        Ok(())
    }

    fn open(&self) -> Result<UnixStream, Error> {
        let deadline = Instant::now() + CONNECT_WAIT;
        let path = match (&self.config.transport, &self.listener) {
            (Transport::Connect(path) | Transport::Listen(path), _) => path,
        };
        loop {
            let attempt = match &self.listener {
                Some(listener) => {
                    let mut poll = libc::pollfd {
                        fd: listener.as_raw_fd(),
                        events: libc::POLLIN,
                        revents: 0,
                    };
                    // SAFETY: one valid pollfd, which poll(2) only writes within the call.
                    unsafe { libc::poll(&mut poll, 1, CONNECT_WAIT.as_millis() as i32) };
                    if poll.revents == 0 {
                        return Err(Error::NoBackend(path.clone()));
                    }
                    listener.accept().map(|(stream, _)| stream)
                }
                None => UnixStream::connect(path),
            };
            match attempt {
                Ok(stream) => return Ok(stream),
                // Not bound yet, or a stale file of a backend that died: the next one will bind it.
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                    if Instant::now() > deadline {
                        return Err(Error::NoBackend(path.clone()));
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn negotiate(&mut self, wire: &mut Wire) -> Result<(), Error> {
        wire.set_owner()?;
        let wanted = self.config.features | F_VERSION_1 | F_PROTOCOL_FEATURES;
        let features = wire.get_features()?;
        if wanted & !features != 0 {
            return Err(Error::Missing(wanted & !features));
        }
        let mut known = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::RARP
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
        if self.config.has_iommu() {
            known |= VhostUserProtocolFeatures::BACKEND_REQ;
        }
        let mut protocol = wire.get_protocol_features()? & known;
        if !self.config.memory_slots {
            protocol &= !VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
        }
        wire.set_protocol_features(protocol)?;
        if self.config.acknowledged && protocol.contains(VhostUserProtocolFeatures::REPLY_ACK) {
            wire.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
        if protocol.contains(VhostUserProtocolFeatures::MQ) {
            wire.get_queue_num()?;
        }
        if let (Some(iommu), Some(stream)) = (&mut self.iommu, &self.watch) {
            let theirs = iommu.begin(stream.try_clone()?)?;
            wire.set_backend_request_fd(&theirs)?;
        }
        self.features = wanted;
        for pair in &mut self.pairs {
            let event_idx = wanted & F_EVENT_IDX != 0;
            pair.rx.set_mergeable(wanted & F_MRG_RXBUF != 0);
            pair.rx.ring.configure(event_idx, self.config.rx_interrupts);
            pair.tx.ring.configure(event_idx, self.config.tx_interrupts);
        }
        wire.set_features(wanted)?;
        self.send_memory_table(wire)
    }

    fn send_memory_table(&self, wire: &mut Wire) -> Result<(), Error> {
        let table = self.memory.table();
        if self.config.memory_slots {
            for region in &table {
                wire.add_mem_region(region)?;
            }
        } else {
            wire.set_mem_table(&table)?;
        }
        Ok(())
    }

    /// Sends the memory table again unchanged, as a guest whose memory layout changed would (under traffic, if there is any).
    pub fn replace_memory_table(&mut self) -> Result<(), Error> {
        let table = self.memory.table();
        self.wire()?.set_mem_table(&table)?;
        Ok(())
    }

    /// The session, for messages beyond the normal course. An error when not connected.
    pub fn wire(&mut self) -> Result<&mut Wire, Error> {
        self.wire
            .as_mut()
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected).into())
    }

    /// Whether every session message waits for the backend's acknowledgement (the default, if REPLY_ACK was negotiated).
    pub fn set_acknowledged(&mut self, acknowledged: bool) -> Result<(), Error> {
        let flags = if acknowledged {
            VhostUserHeaderFlag::NEED_REPLY
        } else {
            VhostUserHeaderFlag::empty()
        };
        self.wire()?.set_hdr_flags(flags);
        Ok(())
    }

    /// Ring of vring `index` (even: receive, odd: transmit).
    pub fn ring(&mut self, index: usize) -> &mut DriverRing {
        let pair = &mut self.pairs[index / 2];
        if index.is_multiple_of(2) {
            &mut pair.rx.ring
        } else {
            &mut pair.tx.ring
        }
    }

    /// Tells the backend everything about vring `index`, beginning at the used index in memory; does not enable it.
    pub fn start_ring(&mut self, index: usize) -> Result<(), Error> {
        let memory = Arc::clone(&self.memory);
        let (desc, avail, used) = self.ring(index).addresses();
        self.start_ring_at(
            index,
            [memory.user_addr(desc), memory.user_addr(avail), memory.user_addr(used)],
        )
    }

    /// `start_ring` with the user addresses of descriptor table, avail ring and used ring given by the caller.
    pub fn start_ring_at(&mut self, index: usize, [desc, avail, used]: [u64; 3]) -> Result<(), Error> {
        let given = self.base;
        let ring = self.ring(index);
        let (size, base) = (ring.size(), given.unwrap_or(ring.used_idx()));
        let config = VringConfigData {
            queue_max_size: size,
            queue_size: size,
            flags: 0,
            desc_table_addr: desc,
            used_ring_addr: used,
            avail_ring_addr: avail,
            log_addr: None,
        };
        let (call, kick) = (ring.call_fd().try_clone()?, ring.kick_fd().try_clone()?);
        // As QEMU does: the call that the driver hears comes behind the kick, by which the ring runs.
        let masked = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?;
        let wire = self.wire()?;
        wire.set_vring_call(index, &masked)?;
        wire.set_vring_num(index, size)?;
        wire.set_vring_base(index, base)?;
        wire.set_vring_addr(index, &config)?;
        wire.set_vring_kick(index, &kick)?;
        wire.set_vring_call(index, &call)?;
        Ok(())
    }

    /// GET_VRING_BASE: stops vring `index` and returns the next avail index the backend would have taken.
    pub fn stop_ring(&mut self, index: usize) -> Result<u16, Error> {
        Ok(self.wire()?.get_vring_base(index)? as u16)
    }

    /// SEND_RARP: asks the backend to announce `station`, which was moved here. No answer is asked for.
    pub fn announce(&mut self, station: MacAddr) -> Result<(), Error> {
        /// Request and version of the protocol, with which every message begins.
        const HEADER: [u32; 2] = [19, 1];
        let mut body = [0; 8];
        body[..6].copy_from_slice(&station.0);
        let session = RawSession::on(self.stream()?, REPLY_WAIT)?;
        Ok(session.send(HEADER[0], HEADER[1], body.len() as u32, &body, &[])?)
    }

    /// SET_VRING_ENABLE for vring `index`.
    pub fn enable_ring(&mut self, index: usize, enable: bool) -> Result<(), Error> {
        Ok(self.wire()?.set_vring_enable(index, enable)?)
    }

    /// Whether the backend is still there (false after it closed the socket or died).
    pub fn is_connected(&self) -> bool {
        let Some(stream) = &self.watch else { return false };
        let mut poll = libc::pollfd {
            fd: stream.as_raw_fd(),
            events: libc::POLLRDHUP,
            revents: 0,
        };
        // SAFETY: one valid pollfd, which poll(2) only writes within the call.
        unsafe { libc::poll(&mut poll, 1, 0) };
        poll.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) == 0
    }

    /// The session's connection, to send raw messages on it. An error when not connected.
    pub fn stream(&self) -> Result<UnixStream, Error> {
        match &self.watch {
            Some(stream) => Ok(stream.try_clone()?),
            None => Err(io::Error::from(io::ErrorKind::NotConnected).into()),
        }
    }

    /// Closes the session; rings and memory stay as they are.
    pub fn disconnect(&mut self) {
        if let Some(iommu) = &mut self.iommu {
            iommu.end();
        }
        self.wire = None;
        self.watch = None;
    }

    /// `disconnect` and `connect`: the driver notices nothing, the rings go on where memory says the backend was.
    pub fn reconnect(&mut self) -> Result<(), Error> {
        self.disconnect();
        self.connect()
    }

    /// One attempt to `reconnect` without waiting for a backend; false when there is none now.
    pub fn try_reconnect(&mut self) -> bool {
        self.disconnect();
        let stream = match (&self.config.transport, &self.listener) {
            (_, Some(listener)) => is_readable(listener).then(|| listener.accept().map(|(stream, _)| stream)),
            (Transport::Connect(path) | Transport::Listen(path), None) => Some(UnixStream::connect(path)),
        };
        let Some(Ok(stream)) = stream else { return false };
        self.begin(stream).is_ok()
    }

    /// A guest reboot: session closed, rings emptied, session opened anew.
    pub fn reboot(&mut self) -> Result<(), Error> {
        self.disconnect();
        for pair in &mut self.pairs {
            pair.rx.reset(0);
            pair.tx.reset(0);
        }
        self.connect()
    }

    /// Stops all rings and empties them (GET_VRING_BASE, driver reset with indices at `base`), within the session.
    pub fn stop_rings(&mut self, base: u16) -> Result<(), Error> {
        for index in 0..self.pairs.len() * 2 {
            self.stop_ring(index)?;
        }
        for pair in &mut self.pairs {
            pair.rx.reset(base);
            pair.tx.reset(base);
        }
        Ok(())
    }

    /// Starts and enables vring `index` where it stands, without posting receive buffers and without a kick.
    pub fn start_only(&mut self, index: usize) -> Result<(), Error> {
        self.start_ring(index)?;
        self.enable_ring(index, true)
    }
}

impl Drop for Frontend {
    fn drop(&mut self) {
        if let (Transport::Listen(path), Some(_)) = (&self.config.transport, &self.listener) {
            // Gone already when the test removed its folder.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether a connection waits to be accepted.
fn is_readable(listener: &UnixListener) -> bool {
    let mut poll = libc::pollfd {
        fd: listener.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd, which poll(2) only writes within the call.
    unsafe { libc::poll(&mut poll, 1, 0) > 0 }
}
