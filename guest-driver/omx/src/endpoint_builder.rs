//! The builder of endpoints: it makes one of a port, a peer table and, where its interface has one, a place with the
//! authority.

use std::{
    fs::File,
    io::Read,
    os::fd::AsFd,
    sync::{Arc, Mutex, atomic::AtomicBool, atomic::AtomicU32, atomic::AtomicU64},
};

use ether::MacAddr;
use mxoe::{
    engine::{Config, DataPath, DataPathChoice, Engine},
    wire::{Preset, SESSION_NONE},
};
use netif::Netif;
use rustix::process::getpid;
use weft_authority::{CounterPage, HandoverMemory, OpenedEndpoint, Session};

use crate::{
    Address, Board, CopyEngine, CopyEngineKind, Endpoint, EndpointOptions, Error,
    address::PARTNER_SELF,
    clock,
    copy_card::CardEngine,
    copy_thread::ThreadEngine,
    core::{Core, Opened},
    egress::Egress,
    environment::say,
    helper,
    local::{Local, LocalOptions, PAYLOAD_LEN_MAX},
    number::OpenNumber,
    peers::{EndpointPeers, SharedPeers},
    shared::{Descriptors, Guarded, Helped, Shared},
    store::{HEAD_LEN, Store},
};

/// The length of an endpoint's receive ring in bytes, as the authority sets it up by default.
const RING_LEN: usize = 4 << 20;

/// The parts of an endpoint that come from its authority.
struct OfAuthority {
    session: Arc<Mutex<Session>>,
    board: Board,
    page: CounterPage,
    local: Local,
}

/// An endpoint that is being opened: [`EndpointBuilder::new`] or [`EndpointBuilder::opened`], then
/// [`build`](Self::build).
pub(crate) struct EndpointBuilder<'a> {
    options: &'a EndpointOptions,
    config: Config,
    /// Kept as long as addresses of this endpoint mean something.
    number: OpenNumber,
    context_mask: u64,
    port: Box<dyn Netif + Send>,
    descriptors: Descriptors,
    peers: EndpointPeers,
    of_authority: Option<OfAuthority>,
}

impl<'a> EndpointBuilder<'a> {
    /// Begins an endpoint with this number on a port, with the sizes of `preset`, the limits by default and no
    /// authority.
    ///
    /// # Errors
    /// [`Error::BadParameter`], [`Error::System`].
    pub(crate) fn new(
        options: &'a EndpointOptions,
        endpoint: u8,
        preset: Preset,
        port: Box<dyn Netif + Send>,
        peers: EndpointPeers,
        mac: MacAddr,
    ) -> Result<Self, Error> {
        let context_mask = options.context_mask()?;
        let seed = random()?;
        let number = OpenNumber::take()?;
        let session = match random()? as u32 {
            SESSION_NONE => 0,
            session => session,
        };
        let mut config = Config::new(mac, endpoint, session, preset);
        config.key = options.key;
        config.seed = seed;
        config.timing.give_up_ns = options.give_up.as_nanos() as u64;
        config.timing.ack_messages_max = options.ack_messages_max;
        config.limits.zombies = options.early_completed_max;
        config.rndv_threshold = options.rndv_threshold.min(preset.sizes().medium_len_max());
        config.announced_head_len = if options.announces_head { HEAD_LEN as u8 } else { 0 };
        let port_fd = port
            .as_fd()
            .try_clone_to_owned()
            .map_err(Error::system("watch the port"))?;
        let bulk = port.bulk_fd().map(|fd| fd.try_clone_to_owned());
        let bulk = bulk.transpose().map_err(Error::system("watch the port"))?;
        if bulk.is_some() {
            config.data_path = DataPathChoice::Fixed(DataPath::Bulk);
        }
        Ok(Self {
            options,
            config,
            number,
            context_mask,
            port,
            descriptors: Descriptors {
                port: port_fd,
                bulk,
                others: None,
            },
            peers,
            of_authority: None,
        })
    }

    /// Begins the endpoint that the authority of a board opened.
    ///
    /// # Errors
    /// [`Error::BadParameter`], [`Error::System`].
    pub(crate) fn opened(
        options: &'a EndpointOptions,
        board: Board,
        session: Session,
        opened: OpenedEndpoint,
    ) -> Result<Self, Error> {
        let session = Arc::new(Mutex::new(session));
        let mac = opened.table.own_mac();
        let peers = EndpointPeers::Shared(SharedPeers::new(opened.table, Arc::clone(&session)));
        let mut this = Self::new(options, opened.endpoint, opened.preset, opened.port, peers, mac)?;
        this.config.limits = EndpointOptions::limits(opened.receive_len.unwrap_or(RING_LEN), opened.preset);
        this.config.limits.zombies = options.early_completed_max;
        this.config.timing.pull_queue_ns_max = opened.pull_queue_ns_max;
        this.config.dialect = this.config.dialect.with_ether_type(opened.ether_type);
        this.config.data_path = opened.data_path;
        if !opened.marks {
            this.config = this.config.without_marks();
        }
        if let Some(memory) = opened.handover {
            let owed = HandoverMemory::map(memory, this.config.endpoint, this.config.session)?;
            this.peers.note_in(Some(owed));
        }
        let local = LocalOptions {
            session: this.config.session,
            key: options.key,
            rndv_threshold: options.shared_rndv_threshold.min(PAYLOAD_LEN_MAX as u32),
            give_up_ns: this.config.timing.give_up_ns,
            single_copy: options.single_copy,
            announces_head: options.announces_head,
        };
        let local = Local::new(local, Arc::clone(&session), opened.visits)?;
        let watched = local.watched().map_err(Error::system("watch other programs"))?;
        this.descriptors.others = Some(watched);
        this.of_authority = Some(OfAuthority {
            session,
            board,
            page: opened.counters,
            local,
        });
        Ok(this)
    }

    /// Makes the endpoint, and hands it to the helper thread.
    ///
    /// # Errors
    /// [`Error::System`], [`Error::NoResources`], [`Error::Failed`].
    pub(crate) fn build(self) -> Result<Endpoint, Error> {
        let options = self.options;
        let own = Address {
            mac: self.config.mac.0,
            endpoint: self.config.endpoint,
            opened_by: self.number.0,
            partner: PARTNER_SELF,
            session: self.config.session,
        };
        let store = Store::new(options.unexpected_bytes_max, self.config.seed, own);
        let mut engine = Engine::new(self.config, self.peers);
        for (what, every) in &options.packet_loss {
            engine.set_packet_loss(*what, *every);
        }
        let (mut local, mut page, mut session, mut board) = (None, None, None, None);
        if let Some(of) = self.of_authority {
            (local, page, session, board) = (Some(of.local), Some(of.page), Some(of.session), Some(of.board));
        }
        let mut core = Core::new(Opened {
            engine,
            store,
            egress: Egress::new(self.port),
            local,
            page,
            own,
            number: self.number,
            context_mask: self.context_mask,
            copies_mediums: options.copies_mediums,
            others_by_frames: options.others_by_frames,
        })?;
        // A port that lends one frame would have the engine waited for at each.
        if core.egress.kept_max() > 0 {
            core.set_copy_engine(copy_engine(options.copy_engine));
        }
        if options.others_by_frames {
            core.loop_back();
        }
        if options.self_by_frames {
            core.pair_with_itself()?;
        }
        let own = core.own;
        let shared = Arc::new(Shared {
            core: Mutex::new(Guarded::new(core)),
            descriptors: self.descriptors,
            signals_end_waits: options.signals_end_waits,
            wakeups: AtomicU64::new(0),
            waiting: options.waiting,
            wanting: AtomicU32::new(0),
            inside: AtomicU32::new(0),
            helped: Helped::new(options.progress, clock::now()),
            connects_for_all: options.connects_for_all,
            over: AtomicBool::new(false),
            sought: Arc::default(),
            session,
            board,
            process: getpid(),
            own,
        });
        helper::register(&shared)?;
        Ok(Endpoint::new(shared))
    }
}

/// Makes a copy engine. A card that cannot be had is reported to the program's user.
fn copy_engine(kind: CopyEngineKind) -> Option<Box<dyn CopyEngine>> {
    match kind {
        CopyEngineKind::None => None,
        CopyEngineKind::Thread => Some(Box::new(ThreadEngine::new())),
        CopyEngineKind::Card(address) => match CardEngine::open(address) {
            Ok(engine) => Some(Box::new(engine)),
            Err(error) => {
                say(
                    None,
                    &format!("OMX_COPY_ENGINE: `card` cannot be used, so the processor copies: {error}"),
                );
                None
            }
        },
    }
}

/// Returns a number that cannot be guessed.
pub(crate) fn random() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(Error::system("get a random number"))?;
    Ok(u64::from_ne_bytes(bytes))
}
