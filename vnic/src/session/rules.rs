//! Decides what the front does with each message of a frontend: pass it, defer it, answer it itself, or end the session with one
//! sentence. The rules know the order of a session, the limits of the card and the gaps of the published backend behind it; they do
//! no I/O.
//!
//! Gaps closed here (each was seen with stock frontends, or would stop or spin a thread of the published backend):
//! SET_VRING_ENABLE before SET_FEATURES is deferred and replayed; memory regions that are announced again are dropped; memory
//! tables are sorted; the kick of a running ring is exchanged with the ring switched off in between; ring sizes, places, features
//! and files that the backend would take without effect are refused.

use std::os::fd::OwnedFd;

use ether::MacAddr;

use super::log::DirtyLog;
use super::message::*;
use super::refusal::{Refusal, SessionRule};
use super::regions::{Change, FileKind, Region, Regions};
use super::translation::TranslationChange;

mod iommu;

/// What the card has.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Rings, two per queue pair.
    pub rings: u16,
    /// Most entries of a ring.
    pub ring_entries_max: u32,
    /// Virtio features that the frontend may ask for.
    pub features: u64,
    /// Protocol features that the frontend may ask for.
    pub protocol_features: u64,
    /// The guest may be behind an IOMMU of its own, of which the backend knows nothing.
    pub iommu: bool,
}

/// A message that passes, with what goes with it.
#[derive(Debug, Default)]
pub struct Passage {
    /// Rings that this message switches off: told to the device before the backend hears of it.
    pub rings_off: Vec<u16>,
    /// A driver begins anew, and its addresses are those of an IOMMU or not: told to the device before the backend hears of it.
    pub translated: Option<bool>,
    /// For the backend, in this order.
    pub messages: Vec<Message>,
    /// Answers that the backend will give.
    pub replies: u32,
    /// When all memory is marked in the log, if there is one.
    pub marking: Marking,
    /// Rings that this message switches on: told to the device after the backend was told.
    pub rings_on: Vec<u16>,
}

/// When what the card may have written is marked in the frontend's log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Marking {
    /// Not with this message.
    #[default]
    Never,
    /// When the rings are off that it switches off.
    RingsOff,
    /// Before the backend's answer to it reaches the frontend, which may read the log then.
    BeforeAnswer,
    /// For the last time: the log is let go behind it.
    Last,
}

/// The front's decision about one message.
#[derive(Debug)]
pub enum Verdict {
    /// It goes to the backend.
    Pass(Passage),
    /// It does not go to the backend; the frontend gets this answer if it asked for one.
    Settled(Option<Message>),
    /// It does not go to the backend: all memory is marked in this new log, and then the frontend gets the answer.
    Log(DirtyLog, Message),
    /// It does not go to the backend: the device is told this, and then the frontend gets the answer if it asked for one.
    Translation(TranslationChange, Option<Message>),
    /// It does not go to the backend: its file is the channel to the frontend, which acknowledges what it is sent there or not.
    Channel(OwnedFd, bool, Option<Message>),
    /// It does not go to the backend: the device announces this station, and then the frontend gets the answer if it asked for one.
    Announce(MacAddr, Option<Message>),
    /// It ends the session.
    Refuse(Refusal),
}

#[derive(Debug, Clone, Copy, Default)]
struct Ring {
    /// The backend counts it as started: it got a kick and no GET_VRING_BASE since.
    started: bool,
    /// The device serves it: it got a kick, and neither GET_VRING_BASE nor RESET_DEVICE since.
    served: bool,
    /// The backend was told to enable it.
    enabled: bool,
    /// Descriptor table, used ring and available ring of the last SET_VRING_ADDR.
    addresses: Option<[u64; 3]>,
    /// Value of the last SET_VRING_ENABLE that is deferred.
    deferred_enable: Option<bool>,
}

/// The state of one session.
#[derive(Debug)]
pub struct Rules {
    limits: Limits,
    rings: Vec<Ring>,
    regions: Regions,
    owned: bool,
    features_asked: bool,
    /// Virtio features in force; none before SET_FEATURES and after a reset.
    features: Option<u64>,
    /// Addresses of rings and buffers are those of the guest's IOMMU. Stays so over a reset, until features are set again.
    translated: bool,
    protocol_features: u64,
}

impl Rules {
    /// A session that has just begun.
    pub fn new(limits: Limits) -> Rules {
        Rules {
            limits,
            rings: vec![Ring::default(); usize::from(limits.rings)],
            regions: Regions::default(),
            owned: false,
            features_asked: false,
            features: None,
            translated: false,
            protocol_features: 0,
        }
    }

    /// Decides about `message`, whose files are of these `kinds` (one per file).
    pub fn judge(&mut self, message: Message, kinds: &[FileKind]) -> Verdict {
        match self.decide(message, kinds) {
            Ok(verdict) => verdict,
            Err(refusal) => Verdict::Refuse(refusal),
        }
    }

    fn decide(&mut self, message: Message, kinds: &[FileKind]) -> Result<Verdict, Refusal> {
        let form = self.check_form(&message)?;
        let mut passage = Passage::default();
        let mut before = Vec::new();
        let mut after = Vec::new();
        let mut message = message;
        match message.request {
            GET_FEATURES => self.features_asked = true,
            SET_OWNER if std::mem::replace(&mut self.owned, true) => {
                return Err(SessionRule::OwnerTwice.broken("SET_OWNER came twice"));
            }
            RESET_OWNER => {
                self.owned = false;
                self.features = None;
            }
            SET_FEATURES => {
                let features = message.long(0);
                self.set_features(features, &mut after, &mut passage)?;
                // The backend is told nothing of logs and IOMMUs: they are kept here.
                message.body = (features & !VHOST_LOG_ALL & !self.limits.own()[0])
                    .to_ne_bytes()
                    .to_vec();
            }
            SET_LOG_BASE => return self.set_log(message, kinds),
            SET_PROTOCOL_FEATURES => {
                let features = message.long(0);
                self.set_protocol_features(features)?;
                message.body = (features & !self.own_channel()).to_ne_bytes().to_vec();
            }
            IOTLB_MSG => return self.translate(&message),
            SEND_RARP => return self.announce(&message),
            SET_MEM_TABLE => self.set_mem_table(&mut message, kinds)?,
            ADD_MEM_REG => {
                let region = Region::new(single_region(&message), kinds.first().copied());
                region.check(kinds.first().copied().unwrap_or(FileKind::Other))?;
                if self.regions.add(region)? == Change::Repeat {
                    return Ok(self.settled(&message));
                }
            }
            REM_MEM_REG => {
                // A file that comes along is closed unused.
                message.files.clear();
                if self.regions.remove(Region::new(single_region(&message), None))? == Change::Repeat {
                    return Ok(self.settled(&message));
                }
            }
            SET_VRING_NUM => self.check_ring_entries(&message)?,
            SET_VRING_ADDR => {
                let index = self.check_ring_addresses(&message)?;
                if self.translated {
                    return Ok(self.place_ring(index, &message));
                }
            }
            SET_VRING_BASE => {
                let (index, base) = (self.stopped_ring(&message)?, message.word(4));
                // A packed ring's base carries its wrap counters in the upper half.
                if base > 0xffff && self.features.unwrap_or(0) & VIRTIO_RING_PACKED == 0 {
                    return Err(
                        SessionRule::RingBase.broken(format!("SET_VRING_BASE: ring {index} cannot start at {base}"))
                    );
                }
            }
            GET_VRING_BASE => {
                let index = self.ring(message.word(0), GET_VRING_BASE)?;
                self.rings[index].started = false;
                self.rings[index].served = false;
                passage.marking = Marking::BeforeAnswer;
            }
            SET_VRING_KICK => self.set_kick(&message, kinds, &mut before, &mut after, &mut passage)?,
            SET_VRING_CALL => {
                let index = self.ring_of_file(&message)?;
                // Only an eventfd can be signalled without ever waiting for its other holders.
                if !matches!(kinds, [] | [FileKind::Event]) {
                    return Err(SessionRule::FileKind.broken(format!(
                        "SET_VRING_CALL: ring {index} comes with a file that is no eventfd"
                    )));
                }
            }
            SET_VRING_ERR => {
                self.ring_of_file(&message)?;
            }
            SET_VRING_ENABLE => {
                let index = self.ring(message.word(0), SET_VRING_ENABLE)?;
                let enabled = match message.word(4) {
                    0 => false,
                    1 => true,
                    other => {
                        return Err(SessionRule::EnableValue.broken(format!(
                            "SET_VRING_ENABLE: ring {index} can be switched to 0 or 1, not to {other}"
                        )));
                    }
                };
                if self.features.unwrap_or(0) & VIRTIO_PROTOCOL_FEATURES == 0 {
                    self.rings[index].deferred_enable = Some(enabled);
                    return Ok(self.settled(&message));
                }
                self.rings[index].enabled = enabled;
                if enabled {
                    &mut passage.rings_on
                } else {
                    &mut passage.rings_off
                }
                .push(index as u16);
            }
            RESET_DEVICE => {
                self.features = None;
                passage.translated = self.limits.iommu.then_some(self.translated);
                passage.marking = Marking::RingsOff;
                for (index, ring) in self.rings.iter_mut().enumerate() {
                    ring.served = false;
                    if std::mem::replace(&mut ring.enabled, false) {
                        passage.rings_off.push(index as u16);
                    }
                }
            }
            SET_BACKEND_REQ_FD if kinds != [FileKind::Socket] => {
                return Err(SessionRule::FileKind.broken("SET_BACKEND_REQ_FD comes with a file that is no socket"));
            }
            SET_BACKEND_REQ_FD if self.own_channel() != 0 => {
                let answer = self.answer(&message);
                let Some(socket) = message.files.pop() else {
                    return Err(SessionRule::FileCount.broken("SET_BACKEND_REQ_FD comes without its file"));
                };
                return Ok(Verdict::Channel(socket, self.acks(), answer));
            }
            _ => {}
        }
        passage.replies = u32::from(form.replies || (message.needs_reply() && self.acks()));
        passage.messages = before;
        passage.messages.push(message);
        passage.messages.append(&mut after);
        Ok(Verdict::Pass(passage))
    }

    /// Flags, size, files and agreed features: what can be said of a message without knowing what it means.
    fn check_form(&self, message: &Message) -> Result<Form, Refusal> {
        let request = message.request;
        let Some(name) = name_of(request) else {
            return Err(SessionRule::RequestUnknown.broken(format!("request {request} is unknown")));
        };
        if message.flags & 3 != FLAG_VERSION || message.flags & !0xf != 0 {
            return Err(SessionRule::FlagsWrong.broken(format!(
                "{name} has the flags {:#x}, which are not those of protocol version 1",
                message.flags
            )));
        }
        if message.flags & FLAG_REPLY != 0 {
            return Err(SessionRule::ReplyUnasked.broken(format!("{name} comes as an answer, and nothing was asked")));
        }
        let served = form_of(request).filter(|_| request != IOTLB_MSG || self.limits.iommu);
        let Some(form) = served else {
            return Err(SessionRule::RequestNotServed.broken(format!("{name} is not served by this card")));
        };
        if form.needs & !self.protocol_features != 0 {
            return Err(SessionRule::FeatureNotAgreed.broken(format!(
                "{name} needs protocol feature bit {}, which was not agreed on",
                form.needs.trailing_zeros()
            )));
        }
        let len = message.body.len();
        let right = match form.size {
            Size::Exactly(right) => right,
            Size::Table => 8 + 32 * (message.word(0) as usize).min(FILES_MAX),
            Size::Config => 12 + (message.word(4) as usize).min(BODY_LEN_MAX),
        };
        if len != right {
            return Err(SessionRule::BodySize.broken(format!("{name} has {len} bytes instead of {right}")));
        }
        let files = message.files.len();
        let right = match form.files {
            Files::Exactly(right) => right,
            Files::UnlessBit8 => usize::from(message.long(0) & 0x100 == 0),
            Files::NoneOrOne => files.min(1),
            Files::PerRegion => message.word(0) as usize,
        };
        if files != right {
            return Err(SessionRule::FileCount.broken(format!("{name} comes with {files} files instead of {right}")));
        }
        Ok(form)
    }

    /// Whether the backend answers a message that asks for it: it heeds its bit 30 once it was asked for its features.
    fn acks(&self) -> bool {
        self.features_asked
            && self.limits.features & VIRTIO_PROTOCOL_FEATURES != 0
            && self.protocol_features & protocol::REPLY_ACK != 0
    }

    /// Guest memory that the card may write, as address and length in bytes.
    pub fn memory(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.regions.spans()
    }

    fn set_log(&self, mut message: Message, kinds: &[FileKind]) -> Result<Verdict, Refusal> {
        let kind = kinds.first().copied().unwrap_or(FileKind::Other);
        let file = message
            .files
            .pop()
            .ok_or_else(|| SessionRule::FileCount.broken("SET_LOG_BASE comes without its file"))?;
        let log = DirtyLog::new(file, kind, message.long(0), message.long(8))?;
        // Some frontends want the description back, others check the number of the request alone.
        message.flags = FLAG_VERSION | FLAG_REPLY;
        Ok(Verdict::Log(log, message))
    }

    fn announce(&self, message: &Message) -> Result<Verdict, Refusal> {
        let station = message.station();
        if station.is_multicast() || station == MacAddr::default() {
            return Err(
                SessionRule::StationAddress.broken(format!("SEND_RARP: {station} is not the address of a station"))
            );
        }
        Ok(Verdict::Announce(station, self.answer(message)))
    }

    fn settled(&self, message: &Message) -> Verdict {
        Verdict::Settled(self.answer(message))
    }

    /// The answer to a message that is done, if one is wanted.
    fn answer(&self, message: &Message) -> Option<Message> {
        (message.needs_reply() && self.acks()).then(|| Message::ack(message.request, 0))
    }

    fn ring(&self, index: u32, request: u32) -> Result<usize, Refusal> {
        if index < u32::from(self.limits.rings) {
            return Ok(index as usize);
        }
        let (name, pairs) = (name_of(request).unwrap_or("a request"), self.limits.rings / 2);
        Err(SessionRule::RingUnknown.broken(format!(
            "{name}: there is no ring {index}, the card has {pairs} queue pair{}",
            if pairs == 1 { "" } else { "s" }
        )))
    }

    /// The ring of a message that may only come while it is stopped. A ring that is only disabled goes on with what it has
    /// when it is enabled again.
    fn stopped_ring(&self, message: &Message) -> Result<usize, Refusal> {
        let index = self.ring(message.word(0), message.request)?;
        if self.rings[index].served {
            return Err(SessionRule::RingRunning.broken(format!(
                "{} for ring {index}, which is running",
                name_of(message.request).unwrap_or("a request")
            )));
        }
        Ok(index)
    }

    fn ring_of_file(&self, message: &Message) -> Result<usize, Refusal> {
        let value = message.long(0);
        if value & !0x1ff != 0 {
            return Err(SessionRule::UnknownBits.broken(format!(
                "{} has the unknown bits {:#x}",
                name_of(message.request).unwrap_or("a request"),
                value & !0x1ff
            )));
        }
        self.ring((value & 0xff) as u32, message.request)
    }

    fn set_features(&mut self, features: u64, after: &mut Vec<Message>, passage: &mut Passage) -> Result<(), Refusal> {
        let surplus = features & !(self.limits.features | self.limits.own()[0]);
        if surplus != 0 {
            return Err(SessionRule::FeaturesNotOffered
                .broken(format!("SET_FEATURES asks for {surplus:#x}, which was not offered")));
        }
        let translated = features & VIRTIO_ACCESS_PLATFORM != 0;
        if translated != self.translated {
            if self.rings.iter().any(|ring| ring.served) {
                return Err(SessionRule::RingRunning.broken(
                    "SET_FEATURES says that addresses are of another kind from now on, and rings are running",
                ));
            }
            self.rings.iter_mut().for_each(|ring| ring.addresses = None);
            self.translated = translated;
        }
        passage.translated = self.limits.iommu.then_some(translated);
        let before = self.features.replace(features);
        if before.unwrap_or(0) & VHOST_LOG_ALL != 0 && features & VHOST_LOG_ALL == 0 {
            passage.marking = Marking::Last;
        }
        for (index, ring) in self.rings.iter_mut().enumerate() {
            let deferred = ring.deferred_enable.take();
            if features & VIRTIO_PROTOCOL_FEATURES == 0 {
                // Without bit 30 the backend enables every ring by itself.
                ring.enabled = true;
                passage.rings_on.push(index as u16);
            } else if let Some(enabled) = deferred {
                ring.enabled = enabled;
                after.push(Message::ring_enable(index as u32, enabled));
                if enabled {
                    &mut passage.rings_on
                } else {
                    &mut passage.rings_off
                }
                .push(index as u16);
            }
        }
        Ok(())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<(), Refusal> {
        // The published backend has REPLY_ACK for every device.
        let surplus = features & !(self.limits.protocol_features | self.limits.own()[1] | protocol::REPLY_ACK);
        if surplus != 0 {
            return Err(SessionRule::ProtocolFeaturesNotOffered.broken(format!(
                "SET_PROTOCOL_FEATURES asks for {surplus:#x}, which was not offered"
            )));
        }
        self.protocol_features = features;
        Ok(())
    }

    /// Checks a whole table and brings it into the order of guest addresses, which the published backend insists on.
    fn set_mem_table(&mut self, message: &mut Message, kinds: &[FileKind]) -> Result<(), Refusal> {
        let count = message.word(0) as usize;
        if count == 0 || message.word(4) != 0 {
            return Err(SessionRule::MemoryTableEmpty.broken("SET_MEM_TABLE describes no memory"));
        }
        let mut entries = Vec::with_capacity(count);
        for (index, file) in message.files.drain(..).enumerate() {
            let start = 8 + 32 * index;
            let bytes: [u8; 32] = message
                .body
                .get(start..)
                .and_then(|rest| rest.first_chunk())
                .copied()
                .ok_or_else(|| SessionRule::BodySize.broken("SET_MEM_TABLE is too short"))?;
            let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
            let kind = kinds.get(index).copied().unwrap_or(FileKind::Other);
            let region = Region::new([word(0), word(8), word(16), word(24)], Some(kind));
            region.check(kind)?;
            entries.push((region, bytes, file));
        }
        entries.sort_by_key(|(region, ..)| region.guest);
        let regions: Vec<Region> = entries.iter().map(|(region, ..)| *region).collect();
        self.regions.replace(&regions)?;
        message.body.truncate(8);
        for (_, bytes, file) in entries {
            message.body.extend_from_slice(&bytes);
            message.files.push(file);
        }
        Ok(())
    }

    fn check_ring_entries(&self, message: &Message) -> Result<(), Refusal> {
        let (index, entries, max) = (
            self.stopped_ring(message)?,
            message.word(4),
            self.limits.ring_entries_max,
        );
        // The published backend would keep the former size without a word.
        if !entries.is_power_of_two() || entries > max {
            return Err(SessionRule::RingSize.broken(format!(
                "SET_VRING_NUM: ring {index} cannot have {entries} entries, only a power of two up to {max}"
            )));
        }
        Ok(())
    }

    fn check_ring_addresses(&mut self, message: &Message) -> Result<usize, Refusal> {
        let index = self.ring(message.word(0), SET_VRING_ADDR)?;
        let addresses = [message.long(8), message.long(16), message.long(24)];
        // QEMU repeats the addresses of running rings when it begins or ends to log writes for a migration.
        if self.rings[index].addresses != Some(addresses) {
            self.stopped_ring(message)?;
        }
        if message.word(4) & !1 != 0 {
            return Err(SessionRule::UnknownBits.broken(format!(
                "SET_VRING_ADDR: ring {index} has the unknown flags {:#x}",
                message.word(4)
            )));
        }
        for (part, at, alignment) in [
            ("descriptor table", 8, 16),
            ("used ring", 16, 4),
            ("available ring", 24, 2),
        ] {
            let address = message.long(at);
            if !address.is_multiple_of(alignment) {
                return Err(SessionRule::RingAddressMisaligned.broken(format!(
                    "SET_VRING_ADDR: the {part} of ring {index} at {address:#x} is not aligned to {alignment}"
                )));
            }
            // I/O addresses are judged when they are used.
            if !self.translated && !self.regions.holds(address) {
                let why = if self.regions.is_empty() {
                    "no memory is shared yet"
                } else {
                    "no memory region holds it"
                };
                return Err(SessionRule::RingAddressOutside.broken(format!(
                    "SET_VRING_ADDR: the {part} of ring {index} lies at {address:#x}, but {why}"
                )));
            }
        }
        self.rings[index].addresses = Some(addresses);
        Ok(index)
    }

    fn set_kick(
        &mut self,
        message: &Message,
        kinds: &[FileKind],
        before: &mut Vec<Message>,
        after: &mut Vec<Message>,
        passage: &mut Passage,
    ) -> Result<(), Refusal> {
        let index = self.ring_of_file(message)?;
        // The backend's worker reads it as an eventfd and ends for good where that fails.
        if !matches!(kinds, [] | [FileKind::Event]) {
            return Err(SessionRule::FileKind.broken(format!(
                "SET_VRING_KICK: ring {index} comes with a file that is no eventfd"
            )));
        }
        let ring = &mut self.rings[index];
        if ring.started && ring.enabled {
            // The backend would go on waiting for the former kick.
            if self.features.unwrap_or(0) & VIRTIO_PROTOCOL_FEATURES == 0 {
                return Err(
                    SessionRule::RingRunning.broken(format!("SET_VRING_KICK for ring {index}, which is running"))
                );
            }
            before.push(Message::ring_enable(index as u32, false));
            after.push(Message::ring_enable(index as u32, true));
            passage.rings_off.push(index as u16);
            passage.rings_on.push(index as u16);
        }
        if !kinds.is_empty() {
            (ring.started, ring.served) = (true, true);
        }
        Ok(())
    }
}

fn single_region(message: &Message) -> [u64; 4] {
    [message.long(8), message.long(16), message.long(24), message.long(32)]
}
