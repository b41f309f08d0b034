//! Peers that lie: about acknowledgements, numbers, trees, groups, sessions and other nodes. Each lie is counted and changes nothing.

use ether::EtherType;
use lci::{
    Counter, GroupId, Nodes,
    wire::{About, GROUP_HEADER_LEN, Header, Kind},
};

use super::{
    node::{Target, mac_of},
    world::World,
};

const SECOND_NS: u64 = 1_000_000_000;

/// Three honest nodes that have exchanged some packets; then node 2 says what the test wants, and node 0 listens.
struct Lies {
    world: World,
    /// The next honest frame of node 2 to node 0.
    honest: Header,
}

impl Lies {
    fn new() -> Self {
        let mut world = World::ready(4, 1);
        world.trace = Some(Vec::new());
        world.nodes[2].backlog.push_back((Target::Group(GroupId::ALL), 100));
        world.nodes[2].backlog.push_back((Target::Node(0), 100));
        world.nodes[0].backlog.push_back((Target::Node(2), 100));
        (0..3).for_each(|node| world.kick(node));
        assert!(world.settle(SECOND_NS));
        let parse = |frame: &Vec<u8>| Header::parse(frame, EtherType::CARD_TO_CARD).unwrap();
        let frames = world.trace.take().unwrap();
        let to_node_0 = frames
            .iter()
            .map(parse)
            .filter(|header| (header.from, header.to) == (2, 0));
        let numbered = to_node_0.clone().filter(|header| header.kind.is_numbered());
        let next = numbered.map(|header| header.sequence).max().unwrap() + 1;
        let honest = Header {
            kind: Kind::Unicast,
            sequence: next,
            length: 0,
            about: About::default(),
            flags: 0,
            ..to_node_0.max_by_key(|header| header.ack).unwrap()
        };
        Self { world, honest }
    }

    /// Node 0 hears this; returns what it counted more of than frames it took.
    fn say(&mut self, header: Header) -> Vec<Counter> {
        let before = self.world.nodes[0].engine.counters().clone();
        let mut frame = vec![0; GROUP_HEADER_LEN + usize::from(header.length)];
        header.write(EtherType::CARD_TO_CARD, &mut frame);
        let now = self.world.now;
        self.world.nodes[0].frame(now, &frame);
        let counters = self.world.nodes[0].engine.counters();
        let more = counters.iter().filter(|(counter, count)| *count > before.of(*counter));
        let more = more.map(|(counter, _)| counter);
        more.filter(|counter| *counter != Counter::FramesReceived).collect()
    }

    fn numbered(&mut self, kind: Kind, about: About) -> Header {
        let header = Header {
            kind,
            about,
            ..self.honest
        };
        self.honest.sequence += 1;
        header
    }

    /// Everything is as it was: honest nodes go on.
    fn go_on(mut self) {
        // What node 2 itself says from now on has the numbers that were used up here: it is out of this.
        self.world.off[2] = true;
        self.world.nodes[0].got.clear();
        for node in [0, 1, 3] {
            for _ in 0..100 {
                self.world.nodes[node]
                    .backlog
                    .push_back((Target::Node([1, 3, 0, 0][node]), 1_000));
            }
            self.world.kick(node);
        }
        assert!(self.world.settle(30 * SECOND_NS), "{}", self.world.report());
        assert_eq!(self.world.nodes[0].got_from(3), 100);
    }
}

#[test]
fn m_bv2_acknowledgements_of_what_was_never_sent_are_refused() {
    let mut lies = Lies::new();
    let honest = lies.honest;
    for (ack, selective) in [
        (honest.ack + 1, 0),
        (honest.ack, 1),
        (honest.ack.wrapping_sub(100), 0),
        (honest.ack, u64::MAX),
    ] {
        let lie = Header {
            kind: Kind::Ack,
            ack,
            selective,
            ..honest
        };
        assert_eq!(lies.say(lie), [Counter::BadAck], "{ack} {selective}");
    }
    lies.go_on();
}

#[test]
fn m_bv2_numbers_beyond_the_window_and_frames_of_others_are_refused() {
    let mut lies = Lies::new();
    let honest = lies.honest;
    let lie = |change: fn(&mut Header)| {
        let mut header = honest;
        change(&mut header);
        header
    };
    for (header, counter) in [
        (lie(|header| header.sequence += 64), Counter::BeyondWindow),
        (lie(|header| header.sequence -= 1), Counter::Duplicates),
        (lie(|header| header.session += 1), Counter::Stale),
        (lie(|header| header.peer_session += 7), Counter::Stale),
        (lie(|header| header.job += 1), Counter::OtherJob),
        (lie(|header| header.from = 1), Counter::WrongSender),
        (lie(|header| header.from = 0), Counter::WrongSender),
        (lie(|header| header.from = 99), Counter::WrongSender),
        (lie(|header| header.source = mac_of(77)), Counter::WrongSender),
        (lie(|header| header.to = 1), Counter::WrongSender),
        (lie(|header| header.destination = mac_of(1)), Counter::WrongSender),
    ] {
        // A frame with another session of the sender, and the right one of this node, says that it was started again.
        if header.session == honest.session {
            assert_eq!(lies.say(header), [counter], "{header:?}");
        }
    }
    lies.go_on();
}

/// What a frame says of a group.
fn about(group: u32, number: u32, origin: u8, nodes: u128) -> About {
    let nodes = Nodes(nodes);
    About {
        group,
        number,
        origin,
        nodes,
    }
}

#[test]
fn m_bv6_lies_about_trees_are_refused() {
    let mut lies = Lies::new();
    // In the tree of node 2, the order is 2, 3, 0, 1: node 0 is a child of node 2. Its number 0 has come.
    for (about, counter) in [
        (about(77, 1, 2, 0b1111), Counter::UnknownGroup),
        (about(1, 2, 2, 0b1111), Counter::Gap),
        (about(1, (1 << 31) + 2, 2, 0b1111), Counter::Duplicates),
        (about(1, 1, 0, 0b1111), Counter::WrongPath),
        (about(1, 1, 3, 0b1111), Counter::WrongPath),
        (about(1, 1, 9, 0b1111), Counter::WrongPath),
        (about(1, 1, 2, 0b1110), Counter::WrongPath),
        (about(1, 5, 2, 0b0111), Counter::Gap),
        (about(1, 1, 2, 0b1_1111), Counter::WrongPath),
    ] {
        let header = lies.numbered(Kind::Multicast, about);
        assert!(lies.say(header).contains(&counter), "{about:?}");
    }
    assert!(lies.world.nodes[0].engine.poll_delivery().is_none());
    let honest = lies.numbered(Kind::Multicast, about(1, 1, 2, 0b1111));
    lies.say(honest);
    let packet = lies.world.nodes[0].engine.poll_delivery().expect("the honest one");
    assert!(packet.source == 2 && lies.world.nodes[0].engine.release(packet.buffer));
    lies.go_on();
}

#[test]
fn m_bv6_lies_about_what_has_arrived_are_refused() {
    let mut lies = Lies::new();
    for (about, counter) in [
        (about(77, 1, 0, 0b1111), Counter::BadControl),
        (about(1, 1, 99, 0b1111), Counter::BadControl),
        (about(1, 1, 0, 0b0111), Counter::OldTree),
        // Node 0 has sent nothing to all.
        (about(1, 1, 0, 0b1111), Counter::BadControl),
    ] {
        let header = lies.numbered(Kind::Stable, about);
        assert_eq!(lies.say(header), [counter], "{about:?}");
    }
    lies.go_on();
}

#[test]
fn m_bv1_lies_about_groups_are_refused() {
    let mut lies = Lies::new();
    for (kind, about) in [
        (Kind::Join, about(0, 0, 0, 0b1110)),
        (Kind::Join, about(0, 0, 0, 0b1011)),
        (Kind::Join, about(0, 0, 0, 1 << 99 | 0b101)),
        (Kind::Group, about(0x3_0001, 0, 0, 0b0101)),
        (Kind::Group, about(0x1_0001, 0, 0, 0b1111)),
    ] {
        let header = lies.numbered(kind, about);
        assert_eq!(lies.say(header), [Counter::BadControl], "{kind:?} {about:?}");
    }
    lies.go_on();
}

#[test]
fn m_bv2_joins_of_one_node_fill_no_memory() {
    let mut lies = Lies::new();
    let mut refused = 0;
    for number in 0..1_000 {
        let join = About {
            group: 0,
            number,
            origin: 0,
            nodes: Nodes(0b0101),
        };
        let header = lies.numbered(Kind::Join, join);
        refused += usize::from(lies.say(header) == [Counter::BadControl]);
    }
    assert_eq!(refused, 1_000 - 2 * 64);
    lies.go_on();
}

#[test]
fn m_bv2_a_false_report_of_a_death_removes_none() {
    let mut lies = Lies::new();
    for gone in [1, 3] {
        let header = lies.numbered(
            Kind::Gone,
            About {
                origin: gone,
                ..About::default()
            },
        );
        assert_eq!(lies.say(header), [Counter::FalseReports]);
    }
    for nonsense in [99, 127] {
        let header = lies.numbered(
            Kind::Gone,
            About {
                origin: nonsense,
                ..About::default()
            },
        );
        assert_eq!(lies.say(header), [Counter::BadControl]);
    }
    lies.world.kick(0);
    lies.world.off[2] = true;
    for _ in 0..3_000 {
        lies.world.nodes[0].backlog.push_back((Target::Node(1), 1_000));
    }
    lies.world.run(60 * SECOND_NS, |_| false);
    let removed = lies.world.nodes[0].removed();
    assert!(removed.iter().all(|(_, node, _)| *node == 2), "{removed:?}");
    assert_eq!(lies.world.nodes[0].engine.present(), Nodes(0b1011));
}
