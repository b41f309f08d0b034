//! The session of a guest behind an IOMMU of its own: what its frontend says about I/O addresses (IOTLB_MSG), and the channel over
//! which it is asked for what is missing (SET_BACKEND_REQ_FD).
//!
//! The published daemon knows nothing of all this: the front keeps these messages, the ring addresses, which are I/O addresses,
//! and feature bit 33 to itself, and tells the device.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::message::{FLAG_NEED_REPLY, FLAG_REPLY, FLAG_VERSION, HEADER_LEN, IOTLB_MSG, Message};
use super::refusal::{Refusal, SessionRule};
use super::regions::Regions;
use crate::memory::{Access, Mapping, Miss, Misses, Permission};
use crate::ring::RingAddresses;

/// Longest time that a frontend may take to answer a question. QEMU answers within its main loop, which other devices of the
/// guest may hold up, but not for seconds.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Length of an IOTLB message: three long words, permission and type, and six bytes that say nothing.
pub const IOTLB_LEN: usize = 32;

const TYPE_MISS: u8 = 1;
const TYPE_UPDATE: u8 = 2;
const TYPE_INVALIDATE: u8 = 3;
const PERMISSION_READ: u8 = 1;
const PERMISSION_WRITE: u8 = 2;

/// The request on the backend's channel that says that a translation is missing (VHOST_USER_BACKEND_IOTLB_MSG).
const BACKEND_IOTLB_MSG: u32 = 1;

/// What a device is told about the IOMMU of its guest.
#[derive(Debug, Clone)]
pub enum TranslationChange {
    /// A driver begins, and its addresses are I/O addresses. None is translated; what is missing is to be noted here.
    On(Arc<Misses>),
    /// A driver begins, and its addresses are those of its memory.
    Off,
    /// Where a ring is, in I/O addresses.
    RingPlaced {
        /// The ring.
        index: u16,
        /// Its parts.
        addresses: RingAddresses,
    },
    /// I/O addresses that have a translation from now on.
    Given(Vec<Mapping>),
    /// I/O addresses that have none any more. When the device returns, it uses none that it had for them.
    Gone(RangeInclusive<u64>),
    /// The frontend has no translation for what was asked.
    Denied(Miss),
}

/// What an IOTLB message of the frontend says.
///
/// # Errors
/// What is wrong with it: the session ends.
pub fn read(message: &Message, regions: &Regions) -> Result<TranslationChange, Refusal> {
    let (iova, size, user) = (message.long(0), message.long(8), message.long(16));
    let [permission, kind] = [24, 25].map(|at| message.body.get(at).copied().unwrap_or(0));
    let refused = |why: &str| {
        Err(SessionRule::TranslationRefused
            .broken(format!("IOTLB_MSG for {size:#x} bytes at I/O address {iova:#x}: {why}")))
    };
    // The last addresses, which may be the very last ones.
    let last = size.checked_sub(1).and_then(|more| iova.checked_add(more));
    match kind {
        TYPE_INVALIDATE => match last {
            Some(last) => Ok(TranslationChange::Gone(iova..=last)),
            // All 2⁶⁴ addresses are as many as this field cannot say.
            None if (iova, size) == (0, 0) => Ok(TranslationChange::Gone(0..=u64::MAX)),
            None => refused("there are no such addresses to invalidate"),
        },
        TYPE_UPDATE => {
            let Some(last) = last else {
                return refused("a translation of no addresses, or of some beyond the last");
            };
            let permission = Permission {
                read: permission & PERMISSION_READ != 0,
                write: permission & PERMISSION_WRITE != 0,
            };
            if message.body[24] & !(PERMISSION_READ | PERMISSION_WRITE) != 0 || !(permission.read || permission.write) {
                return refused("a translation for neither reading nor writing, or for something else");
            }
            match mappings(iova, last, user, permission, regions) {
                Some(mappings) => Ok(TranslationChange::Given(mappings)),
                None => refused(&format!("it leads to {user:#x}, outside the shared memory")),
            }
        }
        other => refused(&format!("its type is {other}, neither UPDATE nor INVALIDATE")),
    }
}

/// The translation from `iova` to `last` into the frontend's memory at `user`, in as many parts as there are regions; none if a part of it
/// is in no region.
fn mappings(iova: u64, last: u64, user: u64, permission: Permission, regions: &Regions) -> Option<Vec<Mapping>> {
    let mut mappings = Vec::new();
    let (mut first, mut user) = (iova, user);
    loop {
        let (guest, more) = regions.guest_of(user)?;
        let end = first.saturating_add(more).min(last);
        mappings.push(Mapping {
            first,
            last: end,
            guest,
            permission,
        });
        if end == last {
            return Some(mappings);
        }
        user = user.checked_add(end - first + 1)?;
        first = end + 1;
    }
}

/// The sentence about a question without an answer.
pub fn overdue(miss: Miss) -> Refusal {
    let access = match miss.access {
        Access::Read => "reading",
        Access::Write => "writing",
    };
    SessionRule::TranslationOverdue.broken(format!(
        "the frontend did not translate I/O address {:#x} for {access} within {} s",
        miss.iova,
        ANSWER_WAIT_MAX.as_secs()
    ))
}

/// The channel from the backend to its frontend. Nothing here ever waits for the frontend.
#[derive(Debug)]
pub struct BackendChannel {
    socket: OwnedFd,
    /// The frontend says of each question what became of it.
    acknowledges: bool,
    /// Questions that were not acknowledged yet, oldest first.
    asked: VecDeque<Miss>,
    /// The beginning of an acknowledgement that has not come in whole yet.
    partial: Vec<u8>,
    /// It has no room now for another question.
    full: bool,
    closed: bool,
}

/// Length of an acknowledgement.
const ACK_LEN: usize = HEADER_LEN + 8;

impl BackendChannel {
    /// The channel over `socket`, which the frontend gave.
    pub fn new(socket: OwnedFd, acknowledges: bool) -> Self {
        Self {
            socket,
            acknowledges,
            asked: VecDeque::new(),
            partial: Vec::new(),
            full: false,
            closed: false,
        }
    }

    /// The socket, to wait for acknowledgements, and for room if it [`is_full`](Self::is_full).
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the socket has no room now for another question.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Asks for what is missing, as far as there is room. What cannot be sent because the frontend closed the channel, as it does
    /// before it ends the session, counts as asked and is not answered.
    pub fn ask(&mut self, misses: &Misses, now: Instant) {
        self.full = false;
        while let Some(miss) = misses.next_to_ask(now) {
            match send(
                &self.socket,
                &self.question(miss),
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
                Ok(_) => {
                    if self.acknowledges {
                        self.asked.push_back(miss);
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => {
                    misses.not_asked(miss);
                    self.full = true;
                    return;
                }
                Err(error) => tracing::debug!(%error, "a translation cannot be asked for"),
            }
        }
    }

    /// The message that asks for `miss`. A message so short goes over a Unix socket whole or not at all.
    fn question(&self, miss: Miss) -> [u8; HEADER_LEN + IOTLB_LEN] {
        let flags = FLAG_VERSION | if self.acknowledges { FLAG_NEED_REPLY } else { 0 };
        let mut bytes = [0; HEADER_LEN + IOTLB_LEN];
        for (at, word) in [BACKEND_IOTLB_MSG, flags, IOTLB_LEN as u32].into_iter().enumerate() {
            bytes[4 * at..4 * at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes[HEADER_LEN..HEADER_LEN + 8].copy_from_slice(&miss.iova.to_ne_bytes());
        bytes[HEADER_LEN + 24] = match miss.access {
            Access::Read => PERMISSION_READ,
            Access::Write => PERMISSION_WRITE,
        };
        bytes[HEADER_LEN + 25] = TYPE_MISS;
        bytes
    }

    /// Whether the frontend closed the channel.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Reads acknowledgements: the questions that have no answer.
    ///
    /// # Errors
    /// The frontend sent something else.
    pub fn receive(&mut self) -> Result<Vec<Miss>, Refusal> {
        let mut denied = Vec::new();
        loop {
            let mut bytes = [0; ACK_LEN];
            let missing = ACK_LEN - self.partial.len();
            let len = match recv(&self.socket, &mut bytes[..missing], RecvFlags::DONTWAIT) {
                Ok((_, len)) if len > 0 => len.min(missing),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(denied),
                Ok(_) | Err(_) => {
                    self.closed = true;
                    return Ok(denied);
                }
            };
            self.partial.extend_from_slice(&bytes[..len]);
            if self.partial.len() == ACK_LEN {
                denied.extend(self.acknowledged()?);
            }
        }
    }

    /// Takes one acknowledgement: the question, if it has no answer.
    fn acknowledged(&mut self) -> Result<Option<Miss>, Refusal> {
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| self.partial[at + byte]));
        let header = [word(0), word(4), word(8)];
        let is_denied = self.partial[HEADER_LEN..] != [0; 8];
        self.partial.clear();
        let is_ack = header == [BACKEND_IOTLB_MSG, FLAG_VERSION | FLAG_REPLY, 8];
        match self.asked.pop_front().filter(|_| is_ack) {
            Some(miss) => Ok(is_denied.then_some(miss)),
            None => Err(SessionRule::TranslationRefused
                .broken("the frontend sent something over the backend's channel that answers no question")),
        }
    }
}

/// Whether the next message of the frontend, which is not read yet, is one about translations.
pub fn is_next(stream: impl AsFd) -> bool {
    let mut request = [0; 4];
    let peeked = recv(stream, &mut request, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    matches!(peeked, Ok((_, 4))) && u32::from_ne_bytes(request) == IOTLB_MSG
}
