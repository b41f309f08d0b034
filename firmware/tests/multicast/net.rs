//! Cards joined by channels that keep their order, and schedulers that choose which frame moves next.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use ether::{MacAddr, Time};
use firmware::multicast::{
    Accepted, Action, BufferId, CARD_FRAME_MIN, Child, Class, FLAG_REPORT, FLAG_UNICAST, ForHost, GroupTable, Kind,
    Multicast, Received, Row, TAG_END, Tag, TagRefusal, TreeShape, is_card_frame, rows,
};

/// SplitMix64: a seed has one sequence of numbers on any machine.
#[derive(Clone, Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

pub const GROUP: u16 = 7;

pub type Bytes = [u8; CARD_FRAME_MIN];

pub fn address(rank: usize) -> MacAddr {
    MacAddr([0x52, 0x54, 0, 0, 0, rank as u8 + 1])
}

pub fn rank_of(address: MacAddr) -> usize {
    usize::from(address.0[5]) - 1
}

/// The frame in which a guest hands packet number `count` to its card.
pub fn packet(rank: usize, group: u16, count: u32) -> Bytes {
    let mut frame = [0; CARD_FRAME_MIN];
    Tag::send(address(rank), group, 8).write(head(&mut frame));
    frame[TAG_END..TAG_END + 4].copy_from_slice(&count.to_be_bytes());
    frame
}

/// The frame in which a guest hands packet number `count` for `to` to its card.
pub fn unicast(rank: usize, to: usize, count: u32) -> Bytes {
    let mut frame = packet(rank, GROUP, count);
    let tag = Tag {
        flags: FLAG_UNICAST | FLAG_REPORT,
        rank: to as u8,
        ..Tag::send(address(rank), GROUP, 8)
    };
    tag.write(head(&mut frame));
    frame
}

pub fn head(frame: &mut Bytes) -> &mut [u8; TAG_END] {
    frame.first_chunk_mut().expect("longer than a tag")
}

/// Every card's table rows, by rank of the card.
pub type Trees = Vec<Vec<Row>>;

pub fn trees(shape: TreeShape, members: usize) -> Trees {
    (0..members).map(|own| rows(shape, members, own)).collect()
}

/// A random tree for each sender: each place hangs below any lower one that has room.
pub fn random_trees(members: usize, numbers: &mut Numbers) -> Trees {
    let mut trees = vec![vec![Row::default(); members]; members];
    (0..members).for_each(|sender| {
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); members];
        let mut parents = vec![None; members];
        let degree = 1 + numbers.below(4);
        for place in 1..members {
            let parent = loop {
                // Near ones more often, so that some trees are deep.
                let back = 1 + numbers.below(place).min(numbers.below(place));
                if below[place - back].len() < degree {
                    break place - back;
                }
            };
            below[parent].push(place);
            parents[place] = Some(parent);
        }
        let rank = |place: usize| ((sender + place) % members) as u8;
        for place in 0..members {
            let mut row = Row::new(parents[place].map(rank), sender + place >= members);
            for &child in &below[place] {
                let child = Child {
                    rank: rank(child),
                    forwards: !below[child].is_empty(),
                };
                assert!(row.push(child));
            }
            trees[usize::from(rank(place))][sender] = row;
        }
    });
    trees
}

/// Packets for single members, by guest.
#[derive(Clone)]
pub struct Unicasts {
    /// Receivers of those that are still to be sent.
    pub left: Vec<VecDeque<usize>>,
    /// How many it sent to each.
    pub sent: Vec<Vec<u32>>,
    /// How many it got from each.
    pub got: Vec<Vec<u32>>,
}

/// The guests of reliable groups.
#[derive(Clone)]
pub struct Hosts {
    /// It takes nothing.
    pub deaf: Vec<bool>,
    /// They take what they can when it comes, and not when it is their turn.
    pub eager: bool,
    /// Members that each was told are gone.
    pub gone: Vec<Vec<usize>>,
    /// Packets that each was told have left.
    pub reported: Vec<u32>,
    /// A card that no frame reaches.
    pub cut: Option<usize>,
}

/// Cards, the frames between them, and what their guests got.
#[derive(Clone)]
pub struct Net {
    pub now: Time,
    pub cards: Vec<Multicast>,
    /// What each card keeps in buffers.
    kept: Vec<Vec<(BufferId, Bytes)>>,
    channels: Vec<VecDeque<Bytes>>,
    /// Channels with frames, in any order.
    busy: Vec<usize>,
    /// Packets that each guest still has to send, and has sent.
    pub left: Vec<u32>,
    pub sent: Vec<u32>,
    /// Packets that each guest got from each sender.
    pub got: Vec<Vec<u32>>,
    pub class: Class,
    pub unicast: Unicasts,
    pub hosts: Hosts,
    /// Loses a frame, or sends it twice, if asked.
    pub fault: Option<fn(&mut Numbers) -> Fault>,
    pub numbers: Numbers,
    /// Packets may be missing, because links lose them.
    pub lossy: bool,
    pub frames: u64,
}

pub enum Fault {
    None,
    Lost,
    Twice,
}

impl Net {
    pub fn new(buffers: u16, trees: &Trees, packets: u32) -> Self {
        Self::of(Class::Plain, buffers, trees, packets)
    }

    pub fn of(class: Class, buffers: u16, trees: &Trees, packets: u32) -> Self {
        let members = trees.len();
        let mut net = Self {
            now: Time::from_nanos(1),
            cards: vec![Multicast::new(buffers); members],
            kept: vec![Vec::new(); members],
            channels: vec![VecDeque::new(); members * members],
            busy: Vec::new(),
            left: vec![packets; members],
            sent: vec![0; members],
            got: vec![vec![0; members]; members],
            class,
            unicast: Unicasts {
                left: vec![VecDeque::new(); members],
                sent: vec![vec![0; members]; members],
                got: vec![vec![0; members]; members],
            },
            hosts: Hosts {
                deaf: vec![false; members],
                eager: false,
                gone: vec![Vec::new(); members],
                reported: vec![0; members],
                cut: None,
            },
            fault: None,
            numbers: Numbers(1),
            lossy: false,
            frames: 0,
        };
        net.join(GROUP, 1, trees);
        net
    }

    /// Writes the tables of `group` to all cards.
    pub fn join(&mut self, group: u16, generation: u16, trees: &Trees) {
        let members: Vec<_> = (0..trees.len()).map(address).collect();
        for (own, rows) in trees.iter().enumerate() {
            let table = GroupTable {
                group,
                generation,
                class: self.class,
                own: own as u8,
                members: &members,
                rows,
            };
            self.cards[own].set_group(self.now, &table).expect("a good table");
            self.act(own);
        }
    }

    fn transmit(&mut self, from: usize, frame: Bytes) {
        let to = MacAddr::from_slice(&frame).expect("an address");
        assert!(is_card_frame(&frame));
        self.frames += 1;
        if to.is_broadcast() || self.hosts.cut == Some(rank_of(to)) {
            return;
        }
        let copies = match self.fault.map(|fault| fault(&mut self.numbers)) {
            None | Some(Fault::None) => 1,
            Some(Fault::Lost) => 0,
            Some(Fault::Twice) => 2,
        };
        let channel = from * self.cards.len() + rank_of(to);
        for _ in 0..copies {
            if self.channels[channel].is_empty() {
                self.busy.push(channel);
            }
            self.channels[channel].push_back(frame);
        }
    }

    fn spread(&mut self, card: usize, accepted: &Accepted, mut frame: Bytes) {
        self.cards[card].prepare(accepted, head(&mut frame));
        let targets: Vec<_> = self.cards[card].targets(accepted).collect();
        for to in targets {
            frame[..6].copy_from_slice(&to.0);
            self.transmit(card, frame);
        }
        if let Some(buffer) = accepted.keep {
            if self.hosts.eager && !self.hosts.deaf[card] && self.cards[card].is_next_for_host(buffer) {
                let next = self.cards[card].for_host();
                self.deliver(card, frame);
                self.cards[card].host_took(self.now);
                if matches!(next, Some(ForHost::Packet { last: true, .. })) {
                    return;
                }
            }
            let kept = &mut self.kept[card];
            assert!(kept.iter().all(|(used, _)| *used != buffer), "a buffer is used twice");
            assert!(buffer.index() < self.cards[card].buffers_total());
            kept.push((buffer, frame));
        }
    }

    fn take(&mut self, card: usize, buffer: BufferId, last: bool) -> Bytes {
        let kept = &mut self.kept[card];
        let at = kept
            .iter()
            .position(|(used, _)| *used == buffer)
            .expect("something is kept there");
        if last { kept.swap_remove(at).1 } else { kept[at].1 }
    }

    /// Does what a card wants done.
    pub fn act(&mut self, card: usize) {
        while let Some(action) = self.cards[card].poll(self.now) {
            match action {
                Action::Forward { buffer, to, last } => {
                    let mut frame = self.take(card, buffer, last);
                    frame[..6].copy_from_slice(&to.0);
                    self.transmit(card, frame);
                }
                Action::Emit(frame) => self.transmit(card, frame),
                Action::Discard(buffer) => {
                    self.take(card, buffer, true);
                }
            }
        }
    }

    /// The guest of `rank` sends its next packet, if its card takes it.
    pub fn send(&mut self, rank: usize) -> bool {
        let frame = packet(rank, GROUP, self.sent[rank]);
        match self.cards[rank].send(self.now, &frame, 60) {
            Ok(accepted) => {
                self.spread(rank, &accepted, frame);
                self.act(rank);
                self.sent[rank] += 1;
                self.left[rank] -= 1;
                true
            }
            Err(TagRefusal::Busy) => false,
            Err(reason) => panic!("refused: {}", reason.name()),
        }
    }

    /// The guest of `rank` sends its next packet for one other, if its card takes it.
    pub fn send_unicast(&mut self, rank: usize) -> bool {
        let to = self.unicast.left[rank][0];
        let count = self.unicast.sent[rank][to];
        let frame = unicast(rank, to, count);
        match self.cards[rank].send(self.now, &frame, 60) {
            Ok(accepted) => {
                self.spread(rank, &accepted, frame);
                self.act(rank);
                self.unicast.sent[rank][to] += 1;
                self.unicast.left[rank].pop_front();
                true
            }
            Err(TagRefusal::Busy) => false,
            Err(reason) => panic!("refused: {}", reason.name()),
        }
    }

    fn may_take(&self, card: usize) -> bool {
        !self.hosts.deaf[card] && self.cards[card].has_for_host()
    }

    /// The guest of a reliable group takes what its card has for it next.
    pub fn take_next(&mut self, card: usize) {
        match self.cards[card].for_host().expect("something waits for the host") {
            ForHost::Packet { buffer, from, to, last } => {
                assert_eq!(to, address(card));
                let mut frame = self.take(card, buffer, last);
                frame[..6].copy_from_slice(&to.0);
                frame[6..12].copy_from_slice(&from.0);
                self.deliver(card, frame);
            }
            ForHost::Note(frame) => {
                let tag = Tag::parse(&frame, 60).expect("a good tag");
                assert_eq!(tag.to, address(card));
                match tag.kind {
                    Kind::Gone => self.hosts.gone[card].push(rank_of(tag.sender)),
                    Kind::Sent => self.hosts.reported[card] = tag.sequence,
                    other => panic!("a guest gets {other:?}"),
                }
            }
        }
        self.cards[card].host_took(self.now);
        self.act(card);
    }

    /// A packet is at its guest.
    fn deliver(&mut self, card: usize, frame: Bytes) {
        let tag = Tag::parse(&frame, 60).expect("it was taken");
        let sender = rank_of(tag.sender);
        let count = u32::from_be_bytes(std::array::from_fn(|i| frame[TAG_END + i]));
        let got = if tag.flags & FLAG_UNICAST == 0 {
            &mut self.got[card][sender]
        } else {
            &mut self.unicast.got[card][sender]
        };
        if self.lossy {
            assert!(count >= *got, "out of order or twice: {count} behind {got}");
        } else {
            assert_eq!(count, *got, "from {sender} at {card}: in order, exactly once");
        }
        *got = count + 1;
    }

    /// The oldest frame of a channel arrives.
    fn move_frame(&mut self, at: usize) {
        let channel = self.busy[at];
        let frame = self.channels[channel].pop_front().expect("a frame");
        if self.channels[channel].is_empty() {
            self.busy.swap_remove(at);
        }
        self.arrive(channel % self.cards.len(), frame);
    }

    pub fn arrive(&mut self, card: usize, frame: Bytes) {
        if let Received::Data(accepted) = self.cards[card].receive(self.now, &frame, 60) {
            self.spread(card, &accepted, frame);
            assert_eq!(Multicast::is_delivered(&accepted), self.class == Class::Plain);
            if self.class == Class::Plain {
                self.deliver(card, frame);
                let tag = Tag::parse(&frame, 60).expect("it was taken");
                self.cards[card].note_delivered(tag.group);
            }
        }
        self.act(card);
    }

    /// Moves one frame or lets one guest send, chosen at random. False if nothing can happen.
    pub fn step(&mut self) -> bool {
        let senders = self.left.iter().filter(|left| **left > 0).count();
        let members = self.cards.len();
        let takers: Vec<_> = (0..members).filter(|card| self.may_take(*card)).collect();
        let unicasts: Vec<_> = (0..members)
            .filter(|rank| !self.unicast.left[*rank].is_empty())
            .collect();
        let choices = self.busy.len() + senders + takers.len() + unicasts.len();
        if choices == 0 {
            return false;
        }
        let mut choice = self.numbers.below(choices);
        if choice < self.busy.len() {
            self.move_frame(choice);
            return true;
        }
        choice -= self.busy.len();
        if let Some(card) = takers.get(choice) {
            self.take_next(*card);
            return true;
        }
        choice -= takers.len();
        if let Some(rank) = unicasts.get(choice) {
            return self.send_unicast(*rank) || !self.busy.is_empty() || !takers.is_empty();
        }
        choice -= unicasts.len();
        let ranks: Vec<_> = (0..self.left.len()).filter(|rank| self.left[*rank] > 0).collect();
        // A card that is busy takes a packet when others have moved.
        self.send(ranks[choice])
            || !self.busy.is_empty()
            || !takers.is_empty()
            || ranks.into_iter().any(|rank| self.send(rank))
    }

    pub fn run(&mut self) {
        while self.step() {}
    }

    /// Every state that one more step leads to.
    pub fn successors(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for at in 0..self.busy.len() {
            let mut next = self.clone();
            next.move_frame(at);
            all.push(next);
        }
        for rank in 0..self.left.len() {
            if self.left[rank] > 0 {
                let mut next = self.clone();
                if next.send(rank) {
                    all.push(next);
                }
            }
            if !self.unicast.left[rank].is_empty() {
                let mut next = self.clone();
                if next.send_unicast(rank) {
                    all.push(next);
                }
            }
            if self.may_take(rank) {
                let mut next = self.clone();
                next.take_next(rank);
                all.push(next);
            }
        }
        all
    }

    /// What makes two states equal: where the cards stand, frames in flight, what is left to send, what was got.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.cards, &self.channels, &self.left, &self.got).hash(&mut hasher);
        (&self.unicast.left, &self.unicast.got).hash(&mut hasher);
        hasher.finish()
    }

    /// Everything that was sent has arrived.
    pub fn is_complete(&self) -> bool {
        let members = self.cards.len();
        let all = (0..members)
            .all(|card| (0..members).all(|sender| sender == card || self.got[card][sender] == self.sent[sender]));
        let unicasts = (0..members)
            .all(|card| (0..members).all(|sender| self.unicast.got[card][sender] == self.unicast.sent[sender][card]));
        all && unicasts && self.left.iter().all(|left| *left == 0) && self.unicast.left.iter().all(VecDeque::is_empty)
    }

    pub fn assert_complete(&self) {
        assert!(self.is_complete(), "left {:?}, got {:?}", self.left, self.got);
        for card in &self.cards {
            assert_eq!(card.buffers_in_use(), 0);
            assert_eq!(card.refusals().total() - card.refusals().of(TagRefusal::Busy), 0);
        }
    }
}
