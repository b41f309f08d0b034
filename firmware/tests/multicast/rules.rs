//! What a card refuses, from its guest and from the network, and its limits.

use ether::{MacAddr, Time};
use firmware::multicast::{
    Action, CHILDREN_MAX, Child, Class, GROUPS_MAX, GroupTable, Kind, MEMBERS_MAX, Multicast, Received, Row,
    SEND_BUFFERS, TableError, Tag, TagRefusal, TreeShape, rows,
};

use crate::net::{Bytes, GROUP, Net, address, head, packet, trees};

pub const NOW: Time = Time::from_nanos(1);
/// Of a STATE: packets wait for a credit.
pub const WAITING: u8 = 1;

pub fn refused(card: &Multicast, reason: TagRefusal) -> u64 {
    card.refusals().of(reason)
}

/// A card of rank `own` in a chain of four.
pub fn card(own: usize) -> Multicast {
    Net::new(2, &trees(TreeShape::Chain, 4), 0).cards.remove(own)
}

pub fn data(sequence: u32) -> Tag {
    Tag {
        to: address(1),
        kind: Kind::Data,
        generation: 1,
        rank: 0,
        sender: address(0),
        sequence,
        hops: 1,
        ..Tag::send(address(0), GROUP, 0)
    }
}

pub fn bytes(tag: &Tag) -> Bytes {
    let mut frame = [0; 60];
    tag.write(head(&mut frame));
    frame
}

#[test]
fn m_bv5_a_guest_can_send_only_as_itself_to_its_own_groups() {
    let mut card = card(1);
    let send = |card: &mut Multicast, frame: &[u8]| card.send(NOW, frame, frame.len() as u32);
    assert!(send(&mut card, &packet(1, GROUP, 0)).is_ok());
    assert_eq!(send(&mut card, &packet(2, GROUP, 0)), Err(TagRefusal::WrongSender));
    assert_eq!(send(&mut card, &packet(1, GROUP + 1, 0)), Err(TagRefusal::NotMember));
    assert_eq!(send(&mut card, &bytes(&data(0))), Err(TagRefusal::Forged));
    assert_eq!(send(&mut card, &packet(1, GROUP, 0)[..40]), Err(TagRefusal::Malformed));
    let dressed_up = Tag {
        sender: address(0),
        ..Tag::send(address(1), GROUP, 0)
    };
    assert_eq!(send(&mut card, &bytes(&dressed_up)), Err(TagRefusal::Malformed));
    let elsewhere = Tag {
        to: address(0),
        ..Tag::send(address(1), GROUP, 0)
    };
    assert_eq!(send(&mut card, &bytes(&elsewhere)), Err(TagRefusal::Malformed));
    assert_eq!((card.refusals().total(), card.totals().refused), (6, 2));
}

#[test]
fn m_bv5_a_guest_that_sends_faster_than_its_children_take_is_refused_not_queued_for_ever() {
    let mut card = card(0);
    let taken = (0..1_000)
        .filter(|count| card.send(NOW, &packet(0, GROUP, *count), 60).is_ok())
        .count();
    assert_eq!(taken, usize::from(SEND_BUFFERS));
    assert_eq!(refused(&card, TagRefusal::Busy), 1_000 - u64::from(SEND_BUFFERS));
    assert_eq!(card.buffers_in_use(), taken);
}

#[test]
fn m_bv5_only_the_parent_in_the_tree_can_pass_packets_on_within_its_credits() {
    let mut card = card(1);
    let mut receive = |tag: Tag| card.receive(NOW, &bytes(&tag), 60);
    let state = Tag {
        kind: Kind::State,
        flags: WAITING,
        hops: 0,
        ..data(0)
    };
    assert_eq!(receive(data(0)), Received::Refused, "no credit was given");
    assert_eq!(receive(state), Received::Consumed);
    for wrong in [
        Tag {
            from: address(2),
            ..data(0)
        },
        Tag {
            to: MacAddr::BROADCAST,
            ..data(0)
        },
        Tag { hops: 0, ..data(0) },
        Tag {
            hops: MEMBERS_MAX as u8,
            ..data(0)
        },
        Tag {
            sender: address(2),
            ..data(0)
        },
        Tag { rank: 9, ..data(0) },
        Tag {
            generation: 0,
            ..data(0)
        },
        Tag { group: 8, ..data(0) },
        Tag {
            kind: Kind::Send,
            ..data(0)
        },
        Tag {
            kind: Kind::Credit,
            ..data(0)
        },
        Tag {
            from: address(2),
            ..state
        },
        data(1),
    ] {
        assert_eq!(receive(wrong), Received::Refused, "{wrong:?}");
    }
    let for_another = Tag {
        to: address(2),
        ..data(0)
    };
    assert_eq!(receive(for_another), Received::Consumed, "flooded by a switch");
    assert!(matches!(receive(data(0)), Received::Data(_)));
    assert_eq!(receive(data(0)), Received::Consumed, "a second time");
    let counted = |reason| refused(&card, reason);
    assert_eq!(counted(TagRefusal::WrongWay), 6);
    assert_eq!(counted(TagRefusal::WrongSender), 2);
    assert_eq!(counted(TagRefusal::NoCredit), 2);
    assert_eq!(
        [TagRefusal::Stale, TagRefusal::NotMember, TagRefusal::Forged].map(counted),
        [1, 1, 1]
    );
    assert_eq!(card.totals().duplicates, 1);
}

#[test]
fn m_bv5_credits_of_packets_that_a_link_lost_are_given_again() {
    // Time does not move: nothing is asked or counted a second time.
    let mut card = Net::new(10, &trees(TreeShape::Chain, 4), 0).cards.remove(1);
    let mut limit = 0;
    let mut look = |card: &mut Multicast| {
        while let Some(action) = card.poll(NOW) {
            if let Action::Emit(frame) = action {
                let tag = Tag::parse(&frame, 60).expect("a frame between cards");
                if (tag.kind, tag.rank) == (Kind::Credit, 0) {
                    limit = tag.sequence;
                }
            }
        }
        limit
    };
    let waiting = Tag {
        kind: Kind::State,
        flags: WAITING,
        hops: 0,
        ..data(0)
    };
    assert_eq!(card.receive(NOW, &bytes(&waiting), 60), Received::Consumed);
    let window = look(&mut card);
    assert!(window > 1);
    for sequence in (1..1_000).step_by(2) {
        let before = card.buffers_in_use();
        assert!(matches!(
            card.receive(NOW, &bytes(&data(sequence)), 60),
            Received::Data(_)
        ));
        assert_eq!(card.buffers_in_use(), before + 1, "it waits for a credit of rank 2");
        // Rank 2 takes it: the buffer is free again, and so is that of the packet before, which never came.
        let credit = Tag {
            from: address(2),
            kind: Kind::Credit,
            hops: 0,
            ..data(sequence + 1)
        };
        assert_eq!(card.receive(NOW, &bytes(&credit), 60), Received::Consumed);
        let allowed = look(&mut card) - (sequence + 1);
        assert!(2 * allowed >= window, "{allowed} of {window} after number {sequence}");
    }
    assert_eq!((card.totals().missed, card.buffers_in_use()), (500, 0));
}

#[test]
fn m_bv5_tables_are_checked_and_bounded() {
    let members: Vec<_> = (0..4).map(address).collect();
    let good = rows(TreeShape::Binary, 4, 1);
    let table = |group, own, members, rows| GroupTable {
        group,
        generation: 1,
        class: Class::Plain,
        own,
        members,
        rows,
    };
    let mut card = Multicast::default();
    let backwards: Vec<_> = members.iter().rev().copied().collect();
    let mut own_child = good.clone();
    assert!(own_child[0].push(Child {
        rank: 1,
        forwards: false
    }));
    for wrong in [
        table(0, 1, &members, &good),
        table(1, 4, &members, &good),
        table(1, 0, &members, &good),
        table(1, 1, &backwards, &good),
        table(1, 1, &members, &good[..3]),
        table(1, 1, &members[..3], &good),
        table(1, 1, &members, &own_child),
    ] {
        assert_eq!(card.set_group(NOW, &wrong), Err(TableError::Nonsense), "{wrong:?}");
    }
    for group in 1..=GROUPS_MAX as u16 {
        assert_eq!(card.set_group(NOW, &table(group, 1, &members, &good)), Ok(()));
    }
    assert_eq!(
        card.set_group(NOW, &table(100, 1, &members, &good)),
        Err(TableError::TooManyGroups)
    );
    assert_eq!(
        card.set_group(NOW, &table(3, 1, &members, &good)),
        Ok(()),
        "written anew"
    );
    let mut row = Row::default();
    assert!((0..CHILDREN_MAX).all(|_| row.push(Child::default())));
    assert!(!row.push(Child::default()));
}
