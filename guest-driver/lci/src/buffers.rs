//! Which buffers are free, and what keeps the others. The bytes are with the engine's owner.

use alloc::{boxed::Box, vec, vec::Vec};

use crate::config::{Limits, SEND_BUFFERS, WINDOW};

/// The number of a buffer of [`crate::PACKET_LEN_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub(crate) u32);

impl BufferId {
    /// A number below [`crate::Engine::buffers`].
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The buffer with this number; the engine refuses those that the program does not have.
    pub const fn from_index(index: u32) -> Self {
        Self(index)
    }
}

/// What the program does with a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Program {
    /// Nothing.
    #[default]
    No,
    /// It was allocated and not launched.
    Allocated,
    /// It was launched, and is not everywhere yet.
    Launched,
    /// Bytes of a frame that is not accepted yet.
    Arrived,
    /// A packet that the program has not taken yet.
    Waiting,
    /// The program has it.
    Kept,
}

/// A packet of a tree that this node has for others or has not delivered belongs to its sender.
const NO_ORIGIN: u8 = u8::MAX;

#[derive(Clone, Copy, Debug)]
struct State {
    program: Program,
    /// Links that the packet is still to be sent on, or acknowledged by.
    copies: u16,
    /// An own packet for a group that some member may not have.
    retained: bool,
    origin: u8,
}

/// Buffers of a node: [`SEND_BUFFERS`] for the program's packets, and the others for received ones.
///
/// Received packets are limited by what they wait for: those out of order by the window of each link, those from single nodes by
/// [`Limits::unicasts_waiting`], those of trees by two windows for each sender, and those that the program keeps by [`Limits::kept`].
/// There are as many buffers as all limits together, so that a packet that is to be passed on always finds one: no node waits for
/// another's buffers (`docs/spec/lci-wire.md` has the argument).
#[derive(Debug)]
pub(crate) struct Buffers {
    states: Box<[State]>,
    free_send: Vec<BufferId>,
    free_receive: Vec<BufferId>,
    launched: usize,
    unicasts_waiting: usize,
    kept: usize,
    of_origin: Box<[u16]>,
    limits: Limits,
}

/// Packets of one sender's trees at most: those that some member may not have, once more for a tree that replaces another.
const OF_ORIGIN_MAX: u16 = 2 * SEND_BUFFERS as u16;

impl Buffers {
    pub(crate) fn new(nodes: usize, limits: Limits) -> Self {
        let others = nodes - 1;
        let receive = others * (WINDOW as usize + usize::from(OF_ORIGIN_MAX)) + limits.unicasts_waiting + limits.kept;
        let total = SEND_BUFFERS + receive;
        let free = State {
            program: Program::No,
            copies: 0,
            retained: false,
            origin: NO_ORIGIN,
        };
        // The lowest are taken first, so that few pages of memory are used where few buffers are.
        let ids = |range: core::ops::Range<usize>| range.rev().map(|id| BufferId(id as u32)).collect();
        Self {
            states: vec![free; total].into(),
            free_send: ids(0..SEND_BUFFERS),
            free_receive: ids(SEND_BUFFERS..total),
            launched: 0,
            unicasts_waiting: 0,
            kept: 0,
            of_origin: vec![0; nodes].into(),
            limits,
        }
    }

    pub(crate) fn total(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn free_send(&self) -> usize {
        self.free_send.len()
    }

    /// Packets that the program launched and that are not everywhere yet.
    pub(crate) fn launched(&self) -> usize {
        self.launched
    }

    /// Takes a buffer for a packet of the program.
    #[inline]
    pub(crate) fn allocate(&mut self) -> Option<BufferId> {
        let buffer = self.free_send.pop()?;
        self.states[buffer.index()].program = Program::Allocated;
        Some(buffer)
    }

    pub(crate) fn is_allocated(&self, buffer: BufferId) -> bool {
        self.is(buffer, Program::Allocated)
    }

    pub(crate) fn is_kept(&self, buffer: BufferId) -> bool {
        self.is(buffer, Program::Kept)
    }

    fn is(&self, buffer: BufferId, program: Program) -> bool {
        self.states
            .get(buffer.index())
            .is_some_and(|state| state.program == program)
    }

    /// The program hands its packet over for this many links.
    #[inline]
    pub(crate) fn launch(&mut self, buffer: BufferId, copies: u8, retained: bool) {
        let state = &mut self.states[buffer.index()];
        state.program = Program::Launched;
        state.copies = copies.into();
        state.retained = retained;
        self.launched += 1;
        self.settle(buffer);
    }

    /// Takes a buffer for the bytes of a frame.
    #[inline]
    pub(crate) fn arrive(&mut self) -> Option<BufferId> {
        let buffer = self.free_receive.pop()?;
        self.states[buffer.index()].program = Program::Arrived;
        Some(buffer)
    }

    /// Whether another packet from a single node may wait.
    #[inline]
    pub(crate) fn has_room_for_unicast(&self) -> bool {
        self.unicasts_waiting < self.limits.unicasts_waiting
    }

    /// Whether another packet of a tree of `origin` may wait.
    #[inline]
    pub(crate) fn has_room_for(&self, origin: usize) -> bool {
        self.of_origin[origin] < OF_ORIGIN_MAX
    }

    /// A packet from a single node waits for the program.
    #[inline]
    pub(crate) fn accept_unicast(&mut self, buffer: BufferId) {
        self.unicasts_waiting += 1;
        self.states[buffer.index()].program = Program::Waiting;
    }

    /// A packet of a tree is for the program, if it is new, and for this many children.
    #[inline]
    pub(crate) fn accept_multicast(&mut self, buffer: BufferId, origin: usize, is_new: bool, copies: u8) {
        let state = &mut self.states[buffer.index()];
        state.program = if is_new { Program::Waiting } else { Program::No };
        state.copies = copies.into();
        state.origin = origin as u8;
        self.of_origin[origin] += 1;
        self.settle(buffer);
    }

    /// A packet that arrived is for none.
    pub(crate) fn refuse(&mut self, buffer: BufferId) {
        self.states[buffer.index()].program = Program::No;
        self.settle(buffer);
    }

    /// Whether the program may get another packet.
    #[inline]
    pub(crate) fn may_deliver(&self) -> bool {
        self.kept < self.limits.kept
    }

    /// The program takes a packet that waited for it.
    #[inline]
    pub(crate) fn deliver(&mut self, buffer: BufferId) {
        let state = &mut self.states[buffer.index()];
        debug_assert_eq!(state.program, Program::Waiting);
        state.program = Program::Kept;
        self.unicasts_waiting -= usize::from(state.origin == NO_ORIGIN);
        self.kept += 1;
        self.settle(buffer);
    }

    /// The program gives back a packet that it has received, or one that it allocated and never launched; false if it has no such.
    #[inline]
    pub(crate) fn give_back(&mut self, buffer: BufferId) -> bool {
        let Some(state) = self.states.get_mut(buffer.index()) else {
            return false;
        };
        match state.program {
            Program::Kept => self.kept -= 1,
            Program::Allocated => {}
            Program::No | Program::Launched | Program::Arrived | Program::Waiting => return false,
        }
        state.program = Program::No;
        self.settle(buffer);
        true
    }

    /// One of the links has the packet, or will never have it.
    #[inline]
    pub(crate) fn copy_done(&mut self, buffer: BufferId) {
        self.states[buffer.index()].copies -= 1;
        self.settle(buffer);
    }

    /// A packet that every member was to get is to be sent on another link, because its tree has changed.
    pub(crate) fn copy_again(&mut self, buffer: BufferId) {
        self.states[buffer.index()].copies += 1;
    }

    /// All members have the packet.
    #[inline]
    pub(crate) fn stable(&mut self, buffer: BufferId) {
        self.states[buffer.index()].retained = false;
        self.settle(buffer);
    }

    #[inline]
    fn settle(&mut self, buffer: BufferId) {
        let state = &mut self.states[buffer.index()];
        if state.copies > 0 || state.program == Program::Waiting {
            return;
        }
        if state.program == Program::Launched && !state.retained {
            state.program = Program::No;
            self.launched -= 1;
        }
        if state.origin != NO_ORIGIN {
            self.of_origin[usize::from(state.origin)] -= 1;
            state.origin = NO_ORIGIN;
        }
        if state.program == Program::No && !state.retained {
            let free = if buffer.index() < SEND_BUFFERS {
                &mut self.free_send
            } else {
                &mut self.free_receive
            };
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_free_when_nothing_keeps_it() {
        let mut buffers = Buffers::new(2, Limits::default());
        let (send, receive) = (buffers.free_send.len(), buffers.free_receive.len());
        let own = buffers.allocate().unwrap();
        assert!(buffers.is_allocated(own) && !buffers.is_kept(own));
        buffers.launch(own, 2, true);
        buffers.copy_done(own);
        buffers.copy_done(own);
        assert_eq!(buffers.free_send(), send - 1);
        assert!(!buffers.give_back(own), "it is not the program's any more");
        buffers.stable(own);
        assert_eq!(buffers.free_send(), send);

        let other = buffers.arrive().unwrap();
        buffers.accept_multicast(other, 1, true, 1);
        buffers.deliver(other);
        assert!(buffers.give_back(other) && !buffers.give_back(other));
        assert_eq!(
            (buffers.free_receive.len(), buffers.of_origin[1]),
            (receive - 1, 1),
            "a child does not have it"
        );
        buffers.copy_done(other);
        assert_eq!(
            (buffers.free_receive.len(), buffers.of_origin[1], buffers.kept),
            (receive, 0, 0)
        );

        let single = buffers.arrive().unwrap();
        buffers.accept_unicast(single);
        assert_eq!(buffers.unicasts_waiting, 1);
        buffers.deliver(single);
        assert_eq!((buffers.unicasts_waiting, buffers.kept), (0, 1));
        assert!(buffers.give_back(single) && !buffers.give_back(BufferId(9_999)));
        assert_eq!(buffers.free_receive.len(), receive);
    }
}
