//! Messages of any length over packets: to one node, or to all by a tree, packet by packet (M-BV6) or message by message (M-BV7).
//!
//! LCI has no messages; this is what MPI-like programs need of them.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lci_port::{GroupId, PACKET_LEN_MAX};

use crate::node::{self, Arrival, Node, ProgramError, Target};

/// Bytes before the data of each packet.
const HEAD_LEN: usize = 12;
/// Bytes of a message that a packet carries.
pub const FRAGMENT_LEN: usize = PACKET_LEN_MAX - HEAD_LEN;
/// The longest message that is taken.
pub const MESSAGE_LEN_MAX: usize = 1 << 24;

/// How broadcasts are forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// By LCI, each packet as it comes: on the host with LCI-host and LCI-mixed (M-BV6), in the card with LCI-ni (M-BV5).
    #[default]
    Packets,
    /// By the program, whole messages on a binary tree (M-BV7).
    MessagesBinary,
    /// By the program, whole messages on a binomial tree: MPICH's.
    MessagesBinomial,
}

impl Forwarding {
    /// The kinds with the names that users know.
    pub const ALL: [(&'static str, Self); 3] = [
        ("packets", Self::Packets),
        ("binary", Self::MessagesBinary),
        ("binomial", Self::MessagesBinomial),
    ];

    /// The name that users know.
    pub fn name(self) -> &'static str {
        let known = Self::ALL.iter().find(|(_, known)| *known == self);
        known.map_or("", |(name, _)| name)
    }

    /// The places below `place` in a tree of `size` places.
    fn children(self, size: usize, place: usize) -> Vec<usize> {
        match self {
            Self::Packets => Vec::new(),
            Self::MessagesBinary => (2 * place + 1..=2 * place + 2).filter(|child| *child < size).collect(),
            Self::MessagesBinomial => {
                // The lowest power of two above the place, and all higher ones.
                let steps = (0..usize::BITS).map(|bit| 1 << bit);
                let steps = steps.skip_while(|step| *step <= place).map(|step: usize| place + step);
                steps.take_while(|child| *child < size).collect()
            }
        }
    }
}

/// What the packets of a message say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    tag: u16,
    /// The node that a broadcast comes from, which is not the packet's sender where messages are forwarded.
    root: Option<u8>,
    length: u32,
    offset: u32,
}

impl Head {
    fn write(self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        bytes[..2].copy_from_slice(&self.tag.to_le_bytes());
        bytes[2] = self.root.is_some().into();
        bytes[3] = self.root.unwrap_or_default();
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, data) = bytes.split_first_chunk::<HEAD_LEN>()?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let head = Self {
            tag: u16::from_le_bytes([head[0], head[1]]),
            root: (head[2] != 0).then_some(head[3]),
            length: word(4),
            offset: word(8),
        };
        let end = head.offset as usize + data.len();
        (end <= head.length as usize && head.length as usize <= MESSAGE_LEN_MAX).then_some((head, data))
    }
}

#[derive(Default)]
struct Inbox {
    /// Messages of which a part has come, by the sender of their packets and whether they came by a group.
    parts: BTreeMap<(usize, bool), (Head, Vec<u8>)>,
    /// Whole messages by source and tag.
    whole: BTreeMap<(usize, u16), VecDeque<Arc<[u8]>>>,
    /// Messages to be passed on.
    forward: VecDeque<(u16, usize, Arc<[u8]>)>,
    /// Packets that are no part of a message.
    refused: u64,
}

impl Inbox {
    fn take(&mut self, arrival: Arrival<'_>, forwards: bool) {
        let Some((head, data)) = Head::parse(arrival.bytes) else {
            self.refused += 1;
            return;
        };
        let key = (arrival.source, arrival.group.is_some());
        let (first, bytes) = self
            .parts
            .entry(key)
            .or_insert_with(|| (head, Vec::with_capacity(head.length as usize)));
        let fits = bytes.len() == head.offset as usize && Head { offset: 0, ..*first } == Head { offset: 0, ..head };
        if !fits {
            self.refused += 1;
            self.parts.remove(&key);
            return;
        }
        bytes.extend_from_slice(data);
        if bytes.len() < head.length as usize {
            return;
        }
        let Some((head, bytes)) = self.parts.remove(&key) else {
            return;
        };
        let message: Arc<[u8]> = bytes.into();
        let source = head.root.map_or(arrival.source, usize::from);
        if forwards && head.root.is_some() && arrival.group.is_none() {
            self.forward.push_back((head.tag, source, message.clone()));
        }
        self.whole.entry((source, head.tag)).or_default().push_back(message);
    }
}

/// Messages of a node.
pub struct Messages<'a, N> {
    node: &'a N,
    forwarding: Forwarding,
    inbox: Arc<Mutex<Inbox>>,
}

impl<'a, N: Node> Messages<'a, N> {
    /// Messages over `node`, whose upcall this is from now on.
    pub fn new(node: &'a N, forwarding: Forwarding) -> Self {
        let inbox = Arc::new(Mutex::new(Inbox::default()));
        let forwards = forwarding != Forwarding::Packets;
        let filled = inbox.clone();
        node.set_upcall(Box::new(move |_, arrival| lock(&filled).take(arrival, forwards)));
        Self {
            node,
            forwarding,
            inbox,
        }
    }

    /// The node below.
    pub fn node(&self) -> &'a N {
        self.node
    }

    /// Sends a message to one node.
    ///
    /// # Errors
    /// [`ProgramError`] of the node.
    pub async fn send(&self, to: usize, tag: u16, message: &[u8]) -> Result<(), ProgramError> {
        self.cut(Target::Node(to), tag, None, message).await
    }

    /// Sends a message to all other nodes.
    ///
    /// # Errors
    /// [`ProgramError`] of the node.
    pub async fn broadcast(&self, tag: u16, message: &[u8]) -> Result<(), ProgramError> {
        let me = self.node.me();
        if self.forwarding == Forwarding::Packets {
            return self
                .cut(Target::Group(GroupId::ALL), tag, Some(me as u8), message)
                .await;
        }
        self.pass_on(tag, me, message).await
    }

    /// Sends a message to the children of this node in the tree of `root`.
    async fn pass_on(&self, tag: u16, root: usize, message: &[u8]) -> Result<(), ProgramError> {
        let size = self.node.size();
        let place = (self.node.me() + size - root) % size;
        for child in self.forwarding.children(size, place) {
            let to = Target::Node((root + child) % size);
            self.cut(to, tag, Some(root as u8), message).await?;
        }
        Ok(())
    }

    async fn cut(&self, target: Target, tag: u16, root: Option<u8>, message: &[u8]) -> Result<(), ProgramError> {
        let length = match u32::try_from(message.len()) {
            Ok(length) if message.len() <= MESSAGE_LEN_MAX => length,
            _ => {
                let sentence = format!("a message has at most {MESSAGE_LEN_MAX} bytes, not {}", message.len());
                return Err(ProgramError::Settings(sentence));
            }
        };
        let mut offset = 0;
        loop {
            let part = &message[offset..message.len().min(offset + FRAGMENT_LEN)];
            let head = Head {
                tag,
                root,
                length,
                offset: offset as u32,
            };
            node::send(self.node, target, &head.write(), part).await?;
            offset += part.len();
            if offset == message.len() {
                return Ok(());
            }
        }
    }

    /// Takes what has arrived, and passes on what is to be.
    ///
    /// # Errors
    /// [`ProgramError`] of the node.
    pub async fn progress(&self) -> Result<(), ProgramError> {
        self.node.poll()?;
        self.forward().await
    }

    async fn forward(&self) -> Result<(), ProgramError> {
        loop {
            let next = lock(&self.inbox).forward.pop_front();
            let Some((tag, root, message)) = next else {
                return Ok(());
            };
            self.pass_on(tag, root, &message).await?;
        }
    }

    /// Waits for the next message of `source` with `tag`.
    ///
    /// # Errors
    /// [`ProgramError`] of the node, or if nothing happens for too long.
    pub async fn receive(&self, source: usize, tag: u16) -> Result<Arc<[u8]>, ProgramError> {
        loop {
            self.forward().await?;
            let found = node::wait_until(self.node, "a message is to come", || {
                let mut inbox = lock(&self.inbox);
                let message = inbox.whole.get_mut(&(source, tag)).and_then(VecDeque::pop_front);
                match message {
                    Some(message) => Some(Some(message)),
                    None if inbox.forward.is_empty() => None,
                    None => Some(None),
                }
            });
            if let Some(message) = found.await? {
                self.forward().await?;
                return Ok(message);
            }
        }
    }

    /// Waits until all nodes are here.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub async fn barrier(&self) -> Result<(), ProgramError> {
        /// Above the tags of programs.
        const TAG: u16 = u16::MAX;
        let (me, size) = (self.node.me(), self.node.size());
        if me > 0 {
            self.send(0, TAG, &[]).await?;
            self.receive(0, TAG).await?;
            return Ok(());
        }
        for other in 1..size {
            self.receive(other, TAG).await?;
        }
        self.broadcast(TAG, &[]).await
    }

    /// Packets that were no part of a message.
    pub fn refused(&self) -> u64 {
        lock(&self.inbox).refused
    }
}

fn lock(inbox: &Mutex<Inbox>) -> MutexGuard<'_, Inbox> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_bv7_trees_of_messages_reach_every_place_once() {
        for (name, forwarding) in &Forwarding::ALL[1..] {
            for size in 1..70 {
                let mut reached = vec![0; size];
                for place in 0..size {
                    for child in forwarding.children(size, place) {
                        assert!(child > place);
                        reached[child] += 1;
                    }
                }
                assert_eq!(reached[0], 0);
                assert!(
                    reached[1..].iter().all(|times| *times == 1),
                    "{name} {size}: {reached:?}"
                );
            }
        }
        assert_eq!(Forwarding::MessagesBinomial.children(8, 0), [1, 2, 4]);
    }

    #[test]
    fn packets_that_are_no_part_of_a_message_are_counted() {
        let mut inbox = Inbox::default();
        let mut take = |head: Head, data: &[u8]| {
            let bytes = [&head.write()[..], data].concat();
            let arrival = Arrival {
                source: 1,
                group: None,
                bytes: &bytes,
            };
            inbox.take(arrival, true);
            (inbox.refused, inbox.whole.len(), inbox.forward.len())
        };
        let head = Head {
            tag: 1,
            root: None,
            length: 4,
            offset: 0,
        };
        assert_eq!(take(head, &[1, 2]), (0, 0, 0));
        assert_eq!(take(Head { offset: 3, ..head }, &[1]), (1, 0, 0), "a gap");
        assert_eq!(take(Head { offset: 3, ..head }, &[1, 2]), (2, 0, 0), "beyond the end");
        assert_eq!(
            take(
                Head {
                    length: u32::MAX,
                    ..head
                },
                &[1]
            ),
            (3, 0, 0),
            "too long"
        );
        assert_eq!(take(Head { root: Some(0), ..head }, &[1, 2, 3, 4]), (3, 1, 1));
    }
}
