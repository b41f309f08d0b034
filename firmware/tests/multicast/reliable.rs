//! Reliable groups: nothing is dropped, senders wait for hosts that take nothing, no schedule stands still, and hosts that are dead
//! are removed.

use firmware::multicast::{
    Action, BUFFERS_DEFAULT, Class, DEAD_NS, FLAG_REPORT, FLAG_UNICAST, Kind, MEMBERS_MAX, RETRY_NS, Received, Tag,
    TagRefusal, TreeShape, buffers_min_of,
};

use crate::net::{GROUP, Net, Numbers, address, packet, trees, unicast};
use crate::rules::{WAITING, bytes};

fn reliable(buffers: u16, shape: TreeShape, members: usize, packets: u32) -> Net {
    Net::of(Class::Reliable, buffers, &trees(shape, members), packets)
}

/// Sends what can be sent, for so long.
fn pass(net: &mut Net, time_ns: u64) {
    let end = net.now.plus_nanos(time_ns);
    while net.now < end {
        net.now = net.now.plus_nanos(RETRY_NS);
        (0..net.cards.len()).for_each(|card| net.act(card));
        net.run();
    }
}

fn sum(net: &Net, name: &str) -> u64 {
    let of = |card: &firmware::multicast::Multicast| {
        let named = card.totals().named();
        named.iter().find(|(known, _)| *known == name).expect("a counter").1
    };
    net.cards.iter().map(of).sum()
}

#[test]
fn m_bv5_nothing_is_lost_while_a_host_computes_and_its_senders_wait() {
    for eager in [false, true] {
        let mut net = reliable(BUFFERS_DEFAULT, TreeShape::Binary, 8, 500);
        net.hosts.eager = eager;
        net.hosts.deaf[3] = true;
        (net.left[0], net.left[5]) = (0, 0);
        net.run();
        let others = [1, 2, 4, 6, 7].into_iter();
        assert!(
            others.clone().all(|card| net.left[card] > 0),
            "all wait: {:?}",
            net.left
        );
        let waiting = |net: &Net| net.left.iter().sum::<u32>();
        let before = waiting(&net);
        // The others have all that was sent until then, and go on with what is not for it.
        for (sender, to) in [(0, 1), (5, 7)] {
            net.unicast.left[sender].extend([to; 300]);
        }
        pass(&mut net, 2_000_000_000);
        assert_eq!(waiting(&net), before);
        assert_eq!([net.unicast.got[1][0], net.unicast.got[7][5]], [300; 2]);
        assert_eq!(sum(&net, "given_up") + sum(&net, "no_buffer") + sum(&net, "missed"), 0);
        net.hosts.deaf[3] = false;
        net.run();
        net.assert_complete();
        assert!(net.hosts.gone.iter().all(Vec::is_empty));
    }
}

#[test]
fn m_bv5_reliable_groups_at_the_least_number_of_buffers_do_not_deadlock_exhaustively_and_below_it_do() {
    for (shape, members, packets) in [(TreeShape::Binary, 3, 1), (TreeShape::Chain, 3, 1)] {
        let least = buffers_min_of(Class::Reliable, shape, members);
        for eager in [true, false] {
            let mut net = reliable(least, shape, members, packets);
            net.hosts.eager = eager;
            if !eager {
                // Three senders, and hosts that take their time, have too many schedules to look at in a test.
                net.left[2] = 0;
            }
            let (states, stuck) = crate::deadlock::search(&net);
            assert!(!stuck && states > 100, "{shape} of {members}: {states} states");
        }
        let (_, stuck) = crate::deadlock::search(&reliable(least - 1, shape, members, packets));
        assert!(stuck, "{shape} of {members} with {} buffers", least - 1);
    }
}

#[test]
fn m_bv5_reliable_groups_at_the_least_number_of_buffers_do_not_deadlock_at_random() {
    let mut numbers = Numbers(11);
    for round in 0..200 {
        let members = 2 + numbers.below(if round % 50 == 0 { MEMBERS_MAX - 1 } else { 20 });
        let shape = TreeShape::ALL[round % 3];
        let least = buffers_min_of(Class::Reliable, shape, members);
        let mut net = reliable(
            least + numbers.below(3) as u16,
            shape,
            members,
            1 + numbers.below(3) as u32,
        );
        net.hosts.eager = round % 2 == 0;
        net.numbers = Numbers(round as u64);
        for sender in 0..members {
            let to = numbers.below(members);
            if to != sender {
                net.unicast.left[sender].extend([to; 3]);
            }
        }
        net.run();
        net.assert_complete();
    }
}

#[test]
fn m_bv5_reliable_and_plain_groups_do_not_wait_for_each_others_buffers() {
    let mut net = reliable(4, TreeShape::Chain, 5, 20);
    net.class = Class::Plain;
    net.join(8, 1, &trees(TreeShape::Chain, 5));
    net.class = Class::Reliable;
    net.hosts.deaf[2] = true;
    net.run();
    // All that the card has for the reliable group is in use. It has buffers for the plain group all the same.
    let mut card = net.cards[2].clone();
    let asks = Tag {
        to: address(2),
        kind: Kind::State,
        generation: 1,
        sender: address(0),
        flags: WAITING,
        ..Tag::send(address(1), 8, 0)
    };
    assert_eq!(card.receive(net.now, &bytes(&asks), 60), Received::Consumed);
    let Some(Action::Emit(frame)) = card.poll(net.now) else {
        panic!("it answers")
    };
    let tag = Tag::parse(&frame, 60).expect("a frame between cards");
    assert_eq!((tag.kind, tag.group, tag.sequence > 0), (Kind::Credit, 8, true));
    net.hosts.deaf[2] = false;
    net.run();
    assert!(net.is_complete());
}

#[test]
fn m_bv5_a_host_that_takes_nothing_for_too_long_is_removed_and_the_others_go_on_and_are_told() {
    for dead in [0, 1, 7] {
        let mut net = reliable(BUFFERS_DEFAULT, TreeShape::Binary, 8, 300);
        net.hosts.deaf[dead] = true;
        for sender in (0..8).filter(|sender| *sender != dead) {
            net.unicast.left[sender].extend([dead; 100]);
        }
        net.left[dead] = 0;
        net.run();
        pass(&mut net, DEAD_NS - 100_000_000);
        assert!(net.hosts.gone.iter().all(Vec::is_empty) && !net.is_complete());
        pass(&mut net, 200_000_000);
        for card in (0..8).filter(|card| *card != dead) {
            assert_eq!(net.hosts.gone[card], [dead]);
            for sender in (0..8).filter(|sender| *sender != card && *sender != dead) {
                assert_eq!(net.got[card][sender], 300, "from {sender} at {card}");
            }
        }
        assert!(net.left.iter().all(|left| *left == 0), "{:?}", net.left);
        assert!(net.unicast.left.iter().all(|unicasts| unicasts.is_empty()));
        assert!(net.cards[dead].totals().given_up >= 7 * 400 - u64::from(BUFFERS_DEFAULT));
        assert!(net.cards.iter().all(|card| card.buffers_in_use() == 0));
        // It may send nothing more, and is told why when it is back.
        let refused = net.cards[dead].send(net.now, &packet(dead, GROUP, 0), 60);
        assert_eq!(refused, Err(TagRefusal::Gone));
        net.hosts.deaf[dead] = false;
        net.run();
        assert_eq!(net.hosts.gone[dead], [dead]);
        // A new writing of the tables takes it in again.
        net.join(GROUP, 2, &trees(TreeShape::Binary, 8));
        assert!(net.cards[dead].send(net.now, &packet(dead, GROUP, 0), 60).is_ok());
    }
}

#[test]
fn m_bv5_a_card_that_answers_nothing_is_removed_and_one_whose_host_computes_is_not() {
    let mut net = reliable(BUFFERS_DEFAULT, TreeShape::Binary, 3, 0);
    net.hosts.cut = Some(2);
    net.left[0] = 200;
    net.hosts.deaf[1] = true;
    net.run();
    pass(&mut net, DEAD_NS - 100_000_000);
    assert!(net.hosts.gone.iter().all(Vec::is_empty));
    net.hosts.deaf[1] = false;
    pass(&mut net, 300_000_000);
    assert_eq!((net.got[1][0], net.hosts.gone[0].as_slice()), (200, &[2][..]));
    assert_eq!(net.cards[0].buffers_in_use(), 0);
    // It is back, and stays removed: it lacks packets.
    net.hosts.cut = None;
    net.left[0] = 10;
    pass(&mut net, 1_000_000_000);
    assert_eq!((net.got[1][0], net.got[2][0]), (210, 0));
}

#[test]
fn m_bv5_a_guest_is_told_when_its_packets_have_left() {
    let mut net = reliable(BUFFERS_DEFAULT, TreeShape::Binary, 3, 0);
    net.left[0] = 100;
    net.run();
    assert!(
        (85..=100).contains(&net.hosts.reported[0]),
        "at least by sixteen: {}",
        net.hosts.reported[0]
    );
    net.unicast.left[0].extend([1; 5]);
    net.run();
    assert_eq!(net.hosts.reported[0], 105, "at once, because it asked");
    net.hosts.deaf[1] = true;
    net.unicast.left[0].extend([1; 400]);
    net.run();
    let left = net.unicast.left[0].len() as u32;
    let in_card = 105 + 400 - left - net.hosts.reported[0];
    assert!(
        left > 0 && (64..80).contains(&in_card),
        "{left} wait, {in_card} in the card"
    );
    net.hosts.deaf[1] = false;
    net.run();
    assert_eq!(net.hosts.reported[0], 505);
}

/// A packet of rank 3 for rank 1 alone.
fn data() -> Tag {
    Tag {
        to: address(1),
        kind: Kind::Data,
        generation: 1,
        rank: 3,
        sender: address(3),
        sequence: 0,
        hops: 1,
        flags: FLAG_UNICAST,
        ..Tag::send(address(3), GROUP, 8)
    }
}

/// Lies that rank 1 is told about packets and credits, why it refuses them, and what they are.
fn lies_about_packets() -> Vec<(Tag, TagRefusal, &'static str)> {
    let data = data();
    let credit = Tag {
        kind: Kind::Credit,
        rank: 1,
        sender: address(1),
        hops: 0,
        sequence: 5,
        ..data
    };
    vec![
        (Tag { sequence: 7, ..data }, TagRefusal::NoCredit, "beyond its credits"),
        (
            Tag {
                from: address(2),
                ..data
            },
            TagRefusal::WrongWay,
            "another's packet",
        ),
        (Tag { rank: 2, ..data }, TagRefusal::WrongSender, "another's rank"),
        (Tag { generation: 2, ..data }, TagRefusal::Stale, "another writing"),
        (Tag { group: 9, ..data }, TagRefusal::NotMember, "another group"),
        (
            Tag {
                rank: 2,
                sender: address(2),
                ..credit
            },
            TagRefusal::WrongWay,
            "credit for another's packets",
        ),
        (
            Tag {
                from: address(9),
                ..credit
            },
            TagRefusal::WrongWay,
            "credit from no member",
        ),
        (
            Tag {
                sequence: 5_000,
                ..credit
            },
            TagRefusal::NoCredit,
            "more credit than buffers",
        ),
    ]
}

/// Lies that rank 1 is told about who is gone, and by whom.
fn lies_about_members() -> Vec<(Tag, TagRefusal, &'static str)> {
    let data = data();
    let gone = Tag {
        kind: Kind::Gone,
        flags: 0,
        hops: 0,
        ..data
    };
    vec![
        (
            Tag {
                from: address(2),
                ..gone
            },
            TagRefusal::WrongWay,
            "says that another is gone",
        ),
        (
            Tag {
                rank: 1,
                sender: address(1),
                from: address(1),
                ..gone
            },
            TagRefusal::WrongWay,
            "says that we are gone",
        ),
        (
            Tag {
                kind: Kind::Sent,
                ..gone
            },
            TagRefusal::Forged,
            "speaks as our card",
        ),
    ]
}

#[test]
fn m_bv5_peers_that_lie_about_reliable_groups_are_refused() {
    let mut net = reliable(BUFFERS_DEFAULT, TreeShape::Binary, 4, 2);
    net.run();
    net.assert_complete();
    let now = net.now;
    let card = &mut net.cards[1];
    for (tag, reason, what) in lies_about_packets().into_iter().chain(lies_about_members()) {
        let before = card.refusals().of(reason);
        assert_eq!(card.receive(now, &bytes(&tag), 60), Received::Refused, "{what}");
        assert_eq!(card.refusals().of(reason), before + 1, "{what}");
    }
}

#[test]
fn m_bv5_a_guest_that_lies_to_its_card_about_reliable_groups_is_refused() {
    let mut net = reliable(BUFFERS_DEFAULT, TreeShape::Binary, 4, 0);
    let now = net.now;
    let gone = Tag {
        kind: Kind::Gone,
        flags: 0,
        hops: 0,
        ..data()
    };
    let card = &mut net.cards[1];
    for (wrong, reason) in [
        (unicast(1, 1, 0), TagRefusal::Malformed),
        (unicast(1, 4, 0), TagRefusal::Malformed),
        (unicast(2, 1, 0), TagRefusal::WrongSender),
        (bytes(&gone), TagRefusal::Forged),
    ] {
        assert_eq!(card.send(now, &wrong, 60), Err(reason));
    }
    // A guest that sends beyond what its card keeps is refused, and no other is harmed.
    net.hosts.deaf[0] = true;
    net.unicast.left[1].extend([0; 1_000]);
    net.run();
    assert!(net.cards[1].refusals().of(TagRefusal::Busy) > 0);
    net.hosts.deaf[0] = false;
    net.run();
    assert!(net.is_complete());
    let flags = FLAG_REPORT;
    let mut plain = Net::new(4, &trees(TreeShape::Binary, 2), 0).cards.remove(0);
    let send = Tag {
        flags,
        ..Tag::send(address(0), GROUP, 8)
    };
    assert_eq!(plain.send(now, &bytes(&send), 60), Err(TagRefusal::Malformed));
}
