//! vhost-user messages as the front sees them: header, body, attached files; which requests this card takes, with their exact
//! sizes and numbers of files; and every message in words for the log. There is no I/O here, and no session state.

use std::fmt;
use std::os::fd::OwnedFd;

use ether::MacAddr;

/// Length of a message header: request, flags, size of the body.
pub const HEADER_LEN: usize = 12;

/// Longest body taken: what the published backend takes (a memory table of 32 regions needs 1032 bytes).
pub const BODY_LEN_MAX: usize = 4096;

/// Most files with one message: what the published backend takes with a memory table.
pub const FILES_MAX: usize = 32;

/// Version 1 of the protocol, in the two lowest bits of the flags.
pub const FLAG_VERSION: u32 = 0x1;
/// The message is an answer.
pub const FLAG_REPLY: u32 = 0x4;
/// The sender wants an answer even though the request itself has none.
pub const FLAG_NEED_REPLY: u32 = 0x8;

/// Virtio feature bit 30 as vhost-user uses it: the protocol has feature bits of its own.
pub const VIRTIO_PROTOCOL_FEATURES: u64 = 1 << 30;
/// Virtio feature bit 26 as vhost-user uses it: the backend marks the pages that it writes (see `session::log`).
pub const VHOST_LOG_ALL: u64 = 1 << 26;
/// Virtio feature bit VERSION_1.
pub const VIRTIO_VERSION_1: u64 = 1 << 32;
/// Virtio-net feature bit MRG_RXBUF.
pub const VIRTIO_NET_MRG_RXBUF: u64 = 1 << 15;
/// Virtio feature bit 33: the addresses of rings and buffers are those of the guest's IOMMU.
pub const VIRTIO_ACCESS_PLATFORM: u64 = 1 << 33;
/// Virtio feature bit 34: packed rings.
pub const VIRTIO_RING_PACKED: u64 = 1 << 34;

/// Protocol feature bits that open requests.
pub mod protocol {
    /// Several queue pairs; GET_QUEUE_NUM.
    pub const MQ: u64 = 1 << 0;
    /// Logs of guest memory in a file that comes along; SET_LOG_BASE.
    pub const LOG_SHMFD: u64 = 1 << 1;
    /// Announcements of a station by the backend; SEND_RARP.
    pub const RARP: u64 = 1 << 2;
    /// Answers on request.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// A channel from the backend to the frontend.
    pub const BACKEND_REQ: u64 = 1 << 5;
    /// Config space.
    pub const CONFIG: u64 = 1 << 9;
    /// RESET_DEVICE.
    pub const RESET_DEVICE: u64 = 1 << 13;
    /// Memory regions one by one.
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
}

/// One message with its attached files.
#[derive(Debug)]
pub struct Message {
    /// Number of the request, see [`name_of`].
    pub request: u32,
    /// Version, reply and need-reply bits.
    pub flags: u32,
    /// At most [`BODY_LEN_MAX`] bytes.
    pub body: Vec<u8>,
    /// At most [`FILES_MAX`] files.
    pub files: Vec<OwnedFd>,
}

impl Message {
    /// A request without need for a reply and without files.
    pub fn request(request: u32, body: Vec<u8>) -> Message {
        Message {
            request,
            flags: FLAG_VERSION,
            body,
            files: Vec::new(),
        }
    }

    /// The answer "done" (0) or "refused" (anything else) to a request that wants one.
    pub fn ack(request: u32, value: u64) -> Message {
        Message {
            request,
            flags: FLAG_VERSION | FLAG_REPLY,
            body: value.to_ne_bytes().to_vec(),
            files: Vec::new(),
        }
    }

    /// SET_VRING_ENABLE of one ring.
    pub fn ring_enable(index: u32, enabled: bool) -> Message {
        let mut body = index.to_ne_bytes().to_vec();
        body.extend_from_slice(&u32::from(enabled).to_ne_bytes());
        Message::request(SET_VRING_ENABLE, body)
    }

    /// The header as it goes over the socket.
    pub fn header(&self) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[..4].copy_from_slice(&self.request.to_ne_bytes());
        header[4..8].copy_from_slice(&self.flags.to_ne_bytes());
        header[8..].copy_from_slice(&(self.body.len() as u32).to_ne_bytes());
        header
    }

    /// True if the sender wants an answer even though the request itself has none.
    pub fn needs_reply(&self) -> bool {
        self.flags & FLAG_NEED_REPLY != 0
    }

    /// The 32-bit word at `offset`; 0 beyond the end (sizes are checked before anything is read).
    pub fn word(&self, offset: usize) -> u32 {
        self.body
            .get(offset..)
            .and_then(|rest| rest.first_chunk())
            .map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    /// The station that SEND_RARP names, in the first bytes of the body.
    pub fn station(&self) -> MacAddr {
        MacAddr(self.body.first_chunk().copied().unwrap_or_default())
    }

    /// The 64-bit word at `offset`; 0 beyond the end.
    pub fn long(&self, offset: usize) -> u64 {
        self.body
            .get(offset..)
            .and_then(|rest| rest.first_chunk())
            .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }
}

macro_rules! requests {
    ($($name:ident = $number:literal),* $(,)?) => {
        $(
            #[doc = concat!("Request ", $number, " of the vhost-user specification.")]
            pub const $name: u32 = $number;
        )*

        /// The specification's name of a request.
        pub fn name_of(request: u32) -> Option<&'static str> {
            match request {
                $($number => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

requests! {
    GET_FEATURES = 1,
    SET_FEATURES = 2,
    SET_OWNER = 3,
    RESET_OWNER = 4,
    SET_MEM_TABLE = 5,
    SET_LOG_BASE = 6,
    SET_LOG_FD = 7,
    SET_VRING_NUM = 8,
    SET_VRING_ADDR = 9,
    SET_VRING_BASE = 10,
    GET_VRING_BASE = 11,
    SET_VRING_KICK = 12,
    SET_VRING_CALL = 13,
    SET_VRING_ERR = 14,
    GET_PROTOCOL_FEATURES = 15,
    SET_PROTOCOL_FEATURES = 16,
    GET_QUEUE_NUM = 17,
    SET_VRING_ENABLE = 18,
    SEND_RARP = 19,
    NET_SET_MTU = 20,
    SET_BACKEND_REQ_FD = 21,
    IOTLB_MSG = 22,
    SET_VRING_ENDIAN = 23,
    GET_CONFIG = 24,
    SET_CONFIG = 25,
    CREATE_CRYPTO_SESSION = 26,
    CLOSE_CRYPTO_SESSION = 27,
    POSTCOPY_ADVISE = 28,
    POSTCOPY_LISTEN = 29,
    POSTCOPY_END = 30,
    GET_INFLIGHT_FD = 31,
    SET_INFLIGHT_FD = 32,
    GPU_SET_SOCKET = 33,
    RESET_DEVICE = 34,
    VRING_KICK = 35,
    GET_MAX_MEM_SLOTS = 36,
    ADD_MEM_REG = 37,
    REM_MEM_REG = 38,
    SET_STATUS = 39,
    GET_STATUS = 40,
    GET_SHARED_OBJECT = 41,
    SET_DEVICE_STATE_FD = 42,
    CHECK_DEVICE_STATE = 43,
    GET_SHMEM_CONFIG = 44,
}

/// Body length of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Exactly so many bytes.
    Exactly(usize),
    /// A memory table: 8 bytes and 32 per region.
    Table,
    /// Config space: 12 bytes and the payload they announce.
    Config,
}

/// How many files come with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// This many.
    Exactly(usize),
    /// One unless bit 8 of the body is set, which says that none comes.
    UnlessBit8,
    /// None; one is tolerated and closed (older frontends send it with REM_MEM_REG, the specification allows for that).
    NoneOrOne,
    /// One per region of the table.
    PerRegion,
}

/// The form of a request that the published backend serves for a network card.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// Body length.
    pub size: Size,
    /// Attached files.
    pub files: Files,
    /// The request itself has an answer.
    pub replies: bool,
    /// Protocol feature that must have been agreed on; 0 = none.
    pub needs: u64,
}

/// The form of `request`; none if a network card has no use for it or the published backend cannot serve it.
pub fn form_of(request: u32) -> Option<Form> {
    const fn form(size: usize, files: Files, replies: bool, needs: u64) -> Form {
        Form {
            size: Size::Exactly(size),
            files,
            replies,
            needs,
        }
    }
    const NO_FILE: Files = Files::Exactly(0);
    Some(match request {
        GET_FEATURES | GET_PROTOCOL_FEATURES => form(0, NO_FILE, true, 0),
        GET_QUEUE_NUM => form(0, NO_FILE, true, protocol::MQ),
        GET_MAX_MEM_SLOTS => form(0, NO_FILE, true, protocol::CONFIGURE_MEM_SLOTS),
        SET_OWNER | RESET_OWNER => form(0, NO_FILE, false, 0),
        SET_FEATURES | SET_PROTOCOL_FEATURES => form(8, NO_FILE, false, 0),
        SET_VRING_NUM | SET_VRING_BASE | SET_VRING_ENABLE => form(8, NO_FILE, false, 0),
        GET_VRING_BASE => form(8, NO_FILE, true, 0),
        SET_VRING_ADDR => form(40, NO_FILE, false, 0),
        SET_VRING_KICK | SET_VRING_CALL | SET_VRING_ERR => form(8, Files::UnlessBit8, false, 0),
        SET_MEM_TABLE => Form {
            size: Size::Table,
            files: Files::PerRegion,
            replies: false,
            needs: 0,
        },
        ADD_MEM_REG => form(40, Files::Exactly(1), false, protocol::CONFIGURE_MEM_SLOTS),
        REM_MEM_REG => form(40, Files::NoneOrOne, false, protocol::CONFIGURE_MEM_SLOTS),
        SEND_RARP => form(8, NO_FILE, false, protocol::RARP),
        RESET_DEVICE => form(0, NO_FILE, false, protocol::RESET_DEVICE),
        IOTLB_MSG => form(32, NO_FILE, false, protocol::BACKEND_REQ),
        SET_LOG_BASE => form(16, Files::Exactly(1), true, protocol::LOG_SHMFD),
        SET_BACKEND_REQ_FD => form(0, Files::Exactly(1), false, protocol::BACKEND_REQ),
        GET_CONFIG => Form {
            size: Size::Config,
            files: NO_FILE,
            replies: true,
            needs: protocol::CONFIG,
        },
        SET_CONFIG => Form {
            size: Size::Config,
            files: NO_FILE,
            replies: false,
            needs: protocol::CONFIG,
        },
        _ => return None,
    })
}

/// One message in words.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name_of(self.request) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "request {}", self.request)?,
        }
        if self.flags & FLAG_REPLY != 0 {
            return match self.request {
                GET_FEATURES | GET_PROTOCOL_FEATURES => write!(f, " answered: {:#x}", self.long(0)),
                GET_VRING_BASE => write!(f, " answered: ring {} at {}", self.word(0), self.word(4)),
                _ if self.body.len() == 8 => write!(f, " answered: {}", self.long(0)),
                _ => write!(f, " answered: {} bytes", self.body.len()),
            };
        }
        match self.request {
            SET_FEATURES | SET_PROTOCOL_FEATURES => write!(f, ": {:#x}", self.long(0))?,
            SET_VRING_NUM => write!(f, ": ring {} has {} entries", self.word(0), self.word(4))?,
            SET_VRING_BASE => write!(f, ": ring {} starts at {}", self.word(0), self.word(4))?,
            GET_VRING_BASE => write!(f, ": stop ring {}", self.word(0))?,
            SET_VRING_ENABLE => {
                write!(
                    f,
                    ": ring {} {}",
                    self.word(0),
                    if self.word(4) == 0 { "off" } else { "on" }
                )?;
            }
            SET_VRING_ADDR => write!(
                f,
                ": ring {} descriptors {:#x} used {:#x} available {:#x}",
                self.word(0),
                self.long(8),
                self.long(16),
                self.long(24)
            )?,
            SET_VRING_KICK | SET_VRING_CALL | SET_VRING_ERR => {
                write!(
                    f,
                    ": ring {}{}",
                    self.long(0) & 0xff,
                    if self.long(0) & 0x100 == 0 { "" } else { ", no file" }
                )?;
            }
            IOTLB_MSG => {
                let words = [0, 8, 16].map(|at| self.long(at));
                let [permission, kind] = [24, 25].map(|at| self.body.get(at).copied().unwrap_or(0));
                write!(
                    f,
                    ": type {kind}, {:#x} bytes at I/O address {:#x}, address {:#x}, permission {permission}",
                    words[1], words[0], words[2]
                )?;
            }
            SEND_RARP => write!(f, ": station {}", self.station())?,
            SET_LOG_BASE => write!(f, ": {:#x} bytes, offset {:#x}", self.long(0), self.long(8))?,
            SET_MEM_TABLE => write!(f, ": {} regions", self.word(0))?,
            ADD_MEM_REG | REM_MEM_REG => {
                write!(
                    f,
                    ": guest address {:#x}, {:#x} bytes, offset {:#x}",
                    self.long(8),
                    self.long(16),
                    self.long(32)
                )?;
            }
            _ => {}
        }
        if self.needs_reply() {
            f.write_str(" (wants an answer)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_well_in_the_log() {
        assert_eq!(Message::ring_enable(3, true).to_string(), "SET_VRING_ENABLE: ring 3 on");
        assert_eq!(Message::ack(SET_MEM_TABLE, 0).to_string(), "SET_MEM_TABLE answered: 0");
        assert_eq!(Message::request(99, Vec::new()).to_string(), "request 99");
        let mut kick = Message::request(SET_VRING_KICK, 0x102u64.to_ne_bytes().to_vec());
        kick.flags |= FLAG_NEED_REPLY;
        assert_eq!(kick.to_string(), "SET_VRING_KICK: ring 2, no file (wants an answer)");
    }

    #[test]
    fn reading_beyond_a_short_body_is_harmless() {
        let message = Message::request(SET_VRING_ADDR, vec![1; 6]);
        assert_eq!((message.word(4), message.long(0), message.long(usize::MAX)), (0, 0, 0));
        let _ = message.to_string();
    }
}
