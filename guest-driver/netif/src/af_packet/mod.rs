//! A port over packet sockets: TPACKET_V2 receive ring polled in memory, frames sent by `sendmmsg`.
//!
//! Opening a port needs CAP_NET_RAW; using it needs no privilege. A port does not switch the interface to promiscuous
//! mode.
//!
//! Why `sendmmsg` and no transmit ring: the kernel hands the frames of either to the driver one by one, so how many kicks
//! a burst costs is up to the card. Measured in emulated guests (kernel 6.1, virtio-net, 100 bursts of 23 frames of 1500
//! bytes): with a card that polls after the first kick both cost one kick per burst (98 … 104 against 71 … 120), and
//! `sendmmsg` takes 413 µs per burst, a blocking ring 654 µs; bypassing traffic control changes neither.
//!
//! Why a ring, and beside it a socket without one ([`PreparedSocket::bulk`]): over veth the sender's core does all the work of the
//! kernel for a frame, up to the copy into the receiver's ring, and is the limit; what it leaves in a socket without a ring the
//! receiver's core copies. Looking into a ring costs nothing, so short messages have one.
//!
//! Why they share the kernel's lookup with the authority's port ([`AfPacket::share_lookup`]): each socket outside of a
//! group inspects each frame, on the sender's core. Over veth (kernel 6.18, a core on each side, 12 alternating rounds)
//! one lookup for all three sockets instead of two, with one for the ring alone, made 1.08 of the messages of 128 bytes
//! per second and 1.13 of the bytes of 4 MiB at MTU 1500; round trips of short messages took 0.94 … 1.14 of the time
//! (four lengths, 12 and 16 rounds), some 4 per cent more.
//! What else was tried over veth: slots of 256 bytes with `PACKET_COPY_THRESH`, the rest by `recvmmsg`, is slower than the ring; a
//! smaller ring is no faster, nor is bypassing traffic control. TCP without offloads is faster at 1500 because what it sends is cut
//! into segments at the driver, so that many frames pass the kernel one after the other and share one soft interrupt; each frame of a
//! packet socket, however it is handed over, has one of its own, an eighth of its time. Steering the interface's received frames to the
//! receiver's core (`rps_cpus`) makes round trips of TCP, bare frames and messages several times as long in a virtual machine, where
//! it costs an interrupt between processors per frame, and long messages no faster.

mod bulk;
mod counter;
mod group;
mod prepared;
mod ring;
pub(crate) mod socket;
mod unbound;
mod vnet;

use std::{
    collections::VecDeque,
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use ether::{ETHERNET_HEADER_LEN, EtherType, MacAddr};
use rustix::{event::PollFlags, io::Errno};

use self::{
    bulk::Bulk,
    ring::{RxRing, VLAN_TAG_LEN},
};
pub use self::{
    counter::FrameCounter,
    prepared::{PreparedSocket, SharedLookup},
    ring::RingLayout,
    unbound::UnboundSocket,
};
use crate::{
    BURST_MAX, FrameLender, Instruction, Interest, LentMemory, Netif, NetifCounters, NetifError, Wake, af_xdp::Direct,
    interface::Interface, ready::Readiness, wait_for,
};

/// The settings of a packet socket.
#[derive(Clone, Copy, Debug)]
pub struct AfPacketOptions {
    /// The length of the receive ring in bytes. The default, 2 MiB, holds about 1200 frames at MTU 1500 and 224 at MTU
    /// 9000: what a sleeping receiver must keep until its thread runs again.
    pub ring_len: usize,
    /// Hand frames to the card's queue past the traffic control layer. This is less work per frame, but when the card
    /// is full [`Netif::send`] returns `Ok(false)` and the caller cannot sleep until there is room. Off by default.
    pub qdisc_bypass: bool,
    /// Frames that the kernel keeps in pages (those longer than a page) are sent with their first bytes outside of them, where
    /// filters on this host and drivers read them without copying them out one by one. Costs a frame a little more work when it
    /// is sent and received, so it pays where frames pass filters. Does nothing where frames are shorter than a page. Off by
    /// default.
    pub linear_head: bool,
}

impl Default for AfPacketOptions {
    fn default() -> Self {
        Self {
            ring_len: 2 << 20,
            qdisc_bypass: false,
            linear_head: false,
        }
    }
}

/// At most this many frames are kept at once.
const KEPT_MAX: usize = 64;

/// Where a frame is that the caller has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lent {
    Nothing,
    /// In a slot of the ring: the one at its head, if it is not kept.
    Slot,
    /// In a place of the bulk path.
    Bulk,
}

/// A port over AF_PACKET; see [`Netif`].
pub struct AfPacket {
    interface: Interface,
    // The ring is unmapped before the socket is closed.
    ring: RxRing,
    socket: OwnedFd,
    bulk: Option<Bulk>,
    /// A socket that stays open to keep its number in the group.
    _sink: Option<OwnedFd>,
    /// The AF_XDP socket through which short frames go while that is allowed.
    direct: Option<Direct>,
    /// The kernel expects its own head before each frame.
    linear_head: bool,
    /// What the caller has of the last call.
    lent: Lent,
    /// What the caller keeps for longer, the oldest first.
    kept: VecDeque<Lent>,
    counters: NetifCounters,
}

impl AfPacket {
    /// Opens a port on the interface `name` for frames of `ether_type`; frames that arrive from now on are received.
    ///
    /// # Errors
    /// [`NetifError`]: no such interface, not Ethernet, down, no privilege, or what the kernel says.
    pub fn open(name: &str, ether_type: EtherType, options: &AfPacketOptions) -> Result<Self, NetifError> {
        Self::from_prepared(PreparedSocket::prepare(name, ether_type, options, None)?)
    }

    /// Makes a port of a socket that was prepared, here or in another process. This needs no privilege.
    ///
    /// # Errors
    /// [`NetifError::Io`] if the ring is not laid out as the caller says.
    pub fn from_prepared(prepared: PreparedSocket) -> Result<Self, NetifError> {
        let PreparedSocket {
            interface,
            layout,
            socket,
            bulk,
            sink,
            direct,
        } = prepared;
        let ring = RxRing::map(socket.as_fd(), layout).map_err(NetifError::io("map the receive ring"))?;
        let linear_head = vnet::is_enabled(socket.as_fd()).map_err(NetifError::io("ask how frames are sent"))?;
        // Without it frames go by the socket: it costs speed alone.
        let direct = direct.and_then(|direct| Direct::new(direct).ok());
        let frame_len = interface.mtu + ETHERNET_HEADER_LEN + VLAN_TAG_LEN;
        Ok(Self {
            interface,
            ring,
            socket,
            bulk: bulk.map(|socket| Bulk::new(socket, frame_len)),
            _sink: sink,
            direct,
            linear_head,
            lent: Lent::Nothing,
            kept: VecDeque::new(),
            counters: NetifCounters::default(),
        })
    }

    /// Replaces the port's filter: only frames that it passes arrive from now on.
    ///
    /// # Errors
    /// [`NetifError::Io`] if the kernel does not take the program or the filter is locked.
    pub fn set_filter(&self, filter: &[Instruction]) -> Result<(), NetifError> {
        socket::attach_filter(self.socket.as_fd(), filter).map_err(NetifError::io("attach the filter"))
    }

    /// Makes the kernel look up each frame once for this port and the prepared sockets `members`, each with the layout
    /// of its ring ([`RingLayout::page`] where there is none), and hand it to one of them. `program` sees frames from
    /// behind their link header, and chooses ([`Instruction::choose`]) between the members in their order, from 0, and
    /// the port behind them. Filters still run, except those of sockets that were made without one. A frame that is
    /// shorter than what the program loads goes to number 0.
    ///
    /// The sockets must have been made in this order, and the port after them: then each keeps getting its frames, also
    /// when the interface is switched off and on, or when the port is closed. What the port received then goes to other
    /// members, because the numbers that the program returns are taken modulo how many members are left. Once the
    /// sockets may be closed there must be a new port.
    ///
    /// # Errors
    /// [`NetifError::Io`], before Linux 5.10 always: then the sockets may get nothing any more and must be made anew.
    pub fn share_lookup(
        &self,
        members: &[(BorrowedFd<'_>, RingLayout)],
        program: &[Instruction],
    ) -> Result<SharedLookup, NetifError> {
        let share = || -> std::io::Result<_> {
            let rings = members.iter().map(|(socket, layout)| RxRing::map(*socket, *layout));
            let sockets = members.iter().map(|(socket, _)| socket.try_clone_to_owned());
            let shared = SharedLookup {
                _rings: rings.collect::<Result<_, _>>()?,
                _sockets: sockets.collect::<Result<_, _>>()?,
            };
            let mut group: Vec<_> = members.iter().map(|(socket, _)| *socket).collect();
            group.push(self.socket.as_fd());
            group::form(&group, program)?;
            for (socket, _) in members {
                // Its filter is locked, and stays.
                if socket::detach_filter(*socket).is_ok() {
                    socket::lock_filter(*socket)?;
                }
            }
            Ok(shared)
        };
        share().map_err(NetifError::io("put packet sockets into a group"))
    }

    /// Makes a port get all frames that its group gets ([`AfPacket::share_lookup`], with so many members), for when a program has ended
    /// whose sockets are the members. It does at once; the call then takes the kernel some ten milliseconds.
    ///
    /// # Errors
    /// [`NetifError::Io`] if the port's socket is in no group.
    pub fn take_all_of_group(port: BorrowedFd<'_>, members: u32) -> Result<(), NetifError> {
        group::set_program(port, &[Instruction::choose(members)]).map_err(NetifError::io("set the program of a group"))
    }

    /// Returns the interface's name.
    pub fn name(&self) -> &str {
        &self.interface.name
    }

    fn down(&self) -> NetifError {
        NetifError::Down {
            name: self.interface.name.clone(),
        }
    }

    /// Distinguishes the reasons for which the kernel took no frame: the port is full, or there is an error.
    #[cold]
    fn not_sent(&self, source: std::io::Error) -> Result<usize, NetifError> {
        match source.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => Ok(0),
            Some(libc::EMSGSIZE) => Err(NetifError::FrameTooLong {
                name: self.interface.name.clone(),
                len_max: self.interface.mtu + ETHERNET_HEADER_LEN,
            }),
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => Err(self.down()),
            _ => Err(NetifError::io("send frames")(source)),
        }
    }

    /// Hands frames directly to the driver while that is allowed, and returns how many from the front were sent. The
    /// packet socket sends the others, and reports why if it cannot.
    #[inline]
    fn send_direct(&mut self, frames: &[&[IoSlice<'_>]]) -> usize {
        let sent = self.direct.as_mut().map_or(0, |direct| direct.send(frames));
        self.counters.sent += sent as u64;
        self.counters.sent_direct += sent as u64;
        sent
    }

    fn give_back(&mut self) {
        if self.lent == Lent::Slot {
            self.ring.release();
        }
        self.lent = Lent::Nothing;
    }

    /// Drops slots that are not for the caller; true if the one at the head is.
    #[inline]
    fn skip_to_frame(&mut self) -> bool {
        while let Some(slot) = self.ring.peek() {
            if slot.is_ours() && slot.complete {
                return true;
            }
            let ours = slot.is_ours();
            self.skip(ours);
        }
        false
    }

    /// Counts and gives back the slot at the head, which is not for the caller.
    #[cold]
    fn skip(&mut self, ours: bool) {
        *(if ours {
            &mut self.counters.dropped_too_long
        } else {
            &mut self.counters.skipped
        }) += 1;
        self.ring.release();
    }
}

impl AsFd for AfPacket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Netif for AfPacket {
    fn mac(&self) -> MacAddr {
        self.interface.mac
    }

    fn mtu(&self) -> usize {
        self.interface.mtu
    }

    #[inline]
    fn poll_receive(&mut self) -> Result<Option<&[u8]>, NetifError> {
        self.give_back();
        if !self.skip_to_frame() {
            let Some(bulk) = self.bulk.as_mut() else {
                return Ok(None);
            };
            let frame = bulk.poll(&mut self.counters);
            if frame.is_some() {
                self.lent = Lent::Bulk;
            }
            return Ok(frame);
        }
        self.lent = Lent::Slot;
        self.counters.received += 1;
        let bytes = self.ring.peek().map(|slot| slot.bytes);
        if let Some(bytes) = bytes {
            ring::fetch_ahead(bytes);
        }
        Ok(bytes)
    }

    fn lender(&mut self) -> Option<&mut dyn FrameLender> {
        Some(self)
    }

    #[inline]
    fn expect_bulk(&mut self, expected: bool) {
        if let Some(bulk) = &mut self.bulk {
            bulk.expect(expected);
        }
    }

    fn bulk_fd(&self) -> Option<BorrowedFd<'_>> {
        self.bulk.as_ref().map(Bulk::fd)
    }

    #[inline]
    fn limit_direct(&mut self, frame_len_max: usize) {
        if let Some(direct) = &mut self.direct {
            direct.limit(frame_len_max);
        }
    }

    #[inline]
    fn send(&mut self, parts: &[IoSlice<'_>]) -> Result<bool, NetifError> {
        if self.send_direct(&[parts]) == 1 {
            return Ok(true);
        }
        // One message costs less in its own call than in a burst of one.
        let sent = if self.linear_head {
            vnet::send(self.socket.as_fd(), parts)
        } else {
            socket::send(self.socket.as_fd(), parts)
        };
        match sent {
            Ok(()) => {
                self.counters.sent += 1;
                Ok(true)
            }
            Err(source) => self.not_sent(source).map(|_| false),
        }
    }

    fn send_burst(&mut self, frames: &[&[IoSlice<'_>]]) -> Result<usize, NetifError> {
        let frames = &frames[..frames.len().min(BURST_MAX)];
        let direct = self.send_direct(frames);
        let rest = &frames[direct..];
        if rest.is_empty() {
            return Ok(direct);
        }
        let sent = if self.linear_head {
            vnet::send_burst(self.socket.as_fd(), rest)
        } else {
            socket::send_burst(self.socket.as_fd(), rest)
        };
        match sent {
            Ok(count) => {
                self.counters.sent += count as u64;
                Ok(direct + count)
            }
            // It comes again with the next call.
            Err(_) if direct > 0 => Ok(direct),
            Err(source) => self.not_sent(source),
        }
    }

    fn wait(
        &mut self,
        interest: Interest,
        deadline: Instant,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Wake, NetifError> {
        // A slot that is still lent would make the socket readable for ever.
        self.give_back();
        let mut deadline_now = deadline;
        let mut ready = false;
        if interest.receive() && (self.skip_to_frame() || self.bulk.as_ref().is_some_and(Bulk::has_frame)) {
            // Only `stop` is left to be looked at.
            deadline_now = Instant::now();
            ready = true;
        }
        if !ready && interest == Interest::Receive && stop.is_none() && deadline <= Instant::now() {
            // The ring has said it all; the caller goes on to watch the descriptors and sees errors there.
            return Ok(Wake::Deadline);
        }
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, interest.receive() && !ready);
        events.set(PollFlags::OUT, interest.send() && !ready);
        let mut ports = [(self.socket.as_fd(), events); 2];
        let mut count = 1;
        if let Some(bulk) = self.bulk.as_ref().filter(|bulk| bulk.is_expected()) {
            ports[1] = (bulk.fd(), events & PollFlags::IN);
            count = 2;
        }
        let ports = &ports[..count];
        match wait_for(ports, deadline_now, stop)? {
            Readiness::Stop => Ok(Wake::Stop),
            Readiness::Deadline => Ok(if ready { Wake::Ready } else { Wake::Deadline }),
            Readiness::Port(events) if events.contains(PollFlags::ERR) => {
                // Each says so once.
                let errors = ports
                    .iter()
                    .map(|(fd, _)| rustix::net::sockopt::socket_error(fd).and_then(|error| error));
                match errors.fold(Ok(()), Result::and) {
                    Ok(()) | Err(Errno::INTR) => Ok(Wake::Ready),
                    Err(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => Err(self.down()),
                    Err(error) => Err(NetifError::io("wait for frames")(error)),
                }
            }
            Readiness::Port(_) => Ok(Wake::Ready),
        }
    }

    fn counters(&mut self) -> NetifCounters {
        // The kernel's count cannot fail on an open packet socket; if it did, the count would only stay behind.
        for socket in [self.socket.as_fd()]
            .into_iter()
            .chain(self.bulk.as_ref().map(Bulk::fd))
        {
            self.counters.dropped_no_buffer += u64::from(socket::take_drops(socket).unwrap_or(0));
        }
        self.counters
    }
}

// SAFETY: a kept slot stays the user's until its status is stored, and the kernel gets no place of the bulk path that is kept. Both
// lie in memory that stays until the port is dropped.
unsafe impl FrameLender for AfPacket {
    fn kept_max(&self) -> usize {
        let of_bulk = self.bulk.as_ref().map_or(KEPT_MAX, Bulk::kept_max);
        self.ring.kept_max().min(of_bulk).min(KEPT_MAX)
    }

    fn keep(&mut self) -> bool {
        if self.kept.len() >= self.kept_max() {
            return false;
        }
        let is_kept = match self.lent {
            Lent::Slot => {
                self.ring.keep();
                true
            }
            Lent::Bulk => self.bulk.as_mut().is_some_and(Bulk::keep),
            Lent::Nothing => false,
        };
        if !is_kept {
            return false;
        }
        self.kept.push_back(std::mem::replace(&mut self.lent, Lent::Nothing));
        true
    }

    fn may_wait(&self) -> bool {
        // The kernel says that the ring is readable while the slot that it filled last is the user's.
        !self.kept.contains(&Lent::Slot)
    }

    fn release(&mut self, count: usize) {
        for lent in self.kept.drain(..count.min(self.kept.len())) {
            match (lent, &mut self.bulk) {
                (Lent::Slot, _) => self.ring.release_kept(),
                (Lent::Bulk, Some(bulk)) => bulk.release_kept(),
                _ => {}
            }
        }
    }

    fn memory(&self) -> Vec<LentMemory> {
        // Not the bulk path, whose frames the kernel copies where this process has them.
        vec![self.ring.memory()]
    }
}
