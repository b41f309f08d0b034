//! The builder of endpoints: it makes one of a port, a peer table and, where its interface has one, a place with the
//! authority.

use std::{
    fs::File,
    io::Read,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, atomic::AtomicBool, atomic::AtomicU32, atomic::AtomicU64},
};

use ether::{EtherType, MacAddr};
use mxoe::{
    engine::{Config, DataPath, DataPathChoice, Engine, Limits},
    wire::{Preset, SESSION_NONE},
};
use netif::Netif;
use rustix::process::getpid;
use weft_authority::{CounterPage, Session};

use crate::{
    Address, Board, Endpoint, EndpointOptions, Error,
    address::PARTNER_SELF,
    clock,
    core::{Core, Opened},
    egress::Egress,
    helper,
    local::{Local, LocalOptions, PAYLOAD_LEN_MAX},
    number::OpenNumber,
    peers::EndpointPeers,
    shared::{Descriptors, Guarded, Helped, Shared},
    store::Store,
};

/// An endpoint's place with the authority of its interface.
pub(crate) struct AuthorityPlace {
    pub(crate) session: Arc<Mutex<Session>>,
    pub(crate) board: Board,
    pub(crate) visits: OwnedFd,
    pub(crate) page: CounterPage,
    pub(crate) pull_queue_ns_max: u64,
    pub(crate) ether_type: EtherType,
    pub(crate) marks: bool,
    pub(crate) data_path: DataPathChoice,
}

/// The parts of an endpoint that come from its authority.
struct OfAuthority {
    session: Arc<Mutex<Session>>,
    board: Board,
    page: CounterPage,
    local: Local,
}

/// An endpoint that is being opened: [`EndpointBuilder::new`], then [`limits`](Self::limits) and
/// [`authority`](Self::authority) where they apply, then [`build`](Self::build).
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

    /// Sets the endpoint's limits, except that of early completions, which is in the options.
    pub(crate) const fn limits(mut self, limits: Limits) -> Self {
        self.config.limits = limits;
        self.config.limits.zombies = self.options.early_completed_max;
        self
    }

    /// Sets the authority that serves the interface.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn authority(mut self, place: AuthorityPlace) -> Result<Self, Error> {
        self.config.timing.pull_queue_ns_max = place.pull_queue_ns_max;
        self.config.dialect = self.config.dialect.with_ether_type(place.ether_type);
        self.config.data_path = place.data_path;
        if !place.marks {
            self.config = self.config.without_marks();
        }
        let options = LocalOptions {
            session: self.config.session,
            key: self.options.key,
            rndv_threshold: self.options.shared_rndv_threshold.min(PAYLOAD_LEN_MAX as u32),
            give_up_ns: self.config.timing.give_up_ns,
            single_copy: self.options.single_copy,
        };
        let local = Local::new(options, Arc::clone(&place.session), place.visits)?;
        let watched = local.watched().map_err(Error::system("watch other programs"))?;
        self.descriptors.others = Some(watched);
        self.of_authority = Some(OfAuthority {
            session: place.session,
            board: place.board,
            page: place.page,
            local,
        });
        Ok(self)
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
        let mut store = Store::new(options.unexpected_bytes_max, self.config.seed);
        store.copies.keep_registrations(options.registrations_kept);
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

/// Returns a number that cannot be guessed.
pub(crate) fn random() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(Error::system("get a random number"))?;
    Ok(u64::from_ne_bytes(bytes))
}
