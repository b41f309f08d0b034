//! One card whose children answer late, wrongly or not at all: what it gives up, what it says, and what it has afterwards.

use ether::Time;
use firmware::multicast::{
    Action, BUFFERS_MAX, GIVE_UP_NS, Kind, Multicast, RETRY_NS, Received, Tag, TagRefusal, TreeShape,
};

use crate::net::{GROUP, Net, address, packet, trees};
use crate::rules::{NOW, WAITING, bytes, card, data, refused};

/// A CREDIT for packets of rank 0 and below number `limit`, from the next one of a chain to rank `own`.
fn credit(own: usize, limit: u32) -> Tag {
    Tag {
        to: address(own),
        from: address(own + 1),
        kind: Kind::Credit,
        hops: 0,
        ..data(limit)
    }
}

fn receive(card: &mut Multicast, now: Time, tag: &Tag) {
    let received = card.receive(now, &bytes(tag), 60);
    assert!(!matches!(received, Received::Data(_)), "{tag:?}");
}

/// What the card sends or sends on; the number of buffers that it empties.
fn look(card: &mut Multicast, now: Time) -> (Vec<Tag>, usize, usize) {
    let (mut said, mut forwards, mut discards) = (Vec::new(), 0, 0);
    while let Some(action) = card.poll(now) {
        match action {
            Action::Emit(frame) => said.push(Tag::parse(&frame, 60).expect("a frame between cards")),
            Action::Forward { .. } => forwards += 1,
            Action::Discard(_) => discards += 1,
        }
    }
    said.retain(|tag| tag.kind != Kind::Announce);
    (said, forwards, discards)
}

/// Looks every [`RETRY_NS`] until packets that wait are given up; returns then, what was said last, and how many buffers
/// were emptied.
fn wait_until_given_up(card: &mut Multicast) -> (Time, Vec<Tag>, usize) {
    let mut now = NOW;
    loop {
        let (said, forwards, discards) = look(card, now);
        assert_eq!(forwards, 0, "no child gave a credit");
        if discards > 0 {
            return (now, said, discards);
        }
        now = now.plus_nanos(RETRY_NS);
        assert!(now.nanos_since(NOW) <= GIVE_UP_NS + RETRY_NS, "nothing is given up");
    }
}

#[test]
fn m_bv5_a_child_that_was_given_up_is_waited_for_again_as_soon_as_it_answers_and_not_before() {
    let mut card = card(0);
    let send = |card: &mut Multicast, now: Time, count: u32| {
        let accepted = card.send(now, &packet(0, GROUP, count), 60).expect("room for it");
        card.targets(&accepted).count()
    };
    assert!((0..3).all(|count| send(&mut card, NOW, count) == 0));
    assert_eq!(card.buffers_in_use(), 3);
    let (now, _, discards) = wait_until_given_up(&mut card);
    assert!(now.nanos_since(NOW) >= GIVE_UP_NS);
    assert_eq!((discards, card.totals().given_up, card.buffers_in_use()), (3, 3, 0));
    // The card does not wait for it once more: what follows is given up at once, and counted.
    for count in 3..5 {
        assert_eq!(send(&mut card, now, count), 0);
        assert_eq!(
            (card.totals().given_up, card.buffers_in_use()),
            (u64::from(count) + 1, 0)
        );
    }
    // It answers with two credits: what goes beyond them waits as if it had never been away.
    receive(&mut card, now, &credit(0, 7));
    let targets: Vec<_> = (5..8).map(|count| send(&mut card, now, count)).collect();
    assert_eq!(targets, [1, 1, 0]);
    assert_eq!((card.totals().given_up, card.buffers_in_use()), (5, 1));
    receive(&mut card, now, &credit(0, 8));
    assert_eq!(look(&mut card, now).1, 1, "sent on");
    assert_eq!((card.totals().given_up, card.totals().forwarded), (5, 3));
    assert_eq!(card.buffers_in_use(), 0);
}

#[test]
fn m_bv5_a_packet_that_is_given_up_leaves_its_reserved_buffer_to_whoever_waits_for_it() {
    // Rank 2 of a chain of five has one buffer for two trees: those of 0 and 1, both of which come from 1.
    let mut card = Net::new(2, &trees(TreeShape::Chain, 5), 0).cards.remove(2);
    let from_1 = |rank: u8, sequence| Tag {
        to: address(2),
        from: address(1),
        rank,
        sender: address(rank.into()),
        ..data(sequence)
    };
    let asks = |rank, sequence| Tag {
        kind: Kind::State,
        flags: WAITING,
        hops: 0,
        ..from_1(rank, sequence)
    };
    let credits = |said: &[Tag]| -> Vec<_> {
        let of = said.iter().filter(|tag| tag.kind == Kind::Credit);
        of.map(|tag| (tag.rank, tag.sequence)).collect()
    };
    receive(&mut card, NOW, &asks(0, 0));
    assert_eq!(credits(&look(&mut card, NOW).0), [(0, 1)]);
    assert!(matches!(
        card.receive(NOW, &bytes(&from_1(0, 0)), 60),
        Received::Data(_)
    ));
    receive(&mut card, NOW, &asks(1, 0));
    assert_eq!(credits(&look(&mut card, NOW).0), [], "3 takes nothing");
    let (now, said, discards) = wait_until_given_up(&mut card);
    assert_eq!((discards, card.totals().given_up, card.buffers_in_use()), (1, 1, 0));
    assert_eq!(credits(&said), [(1, 1)], "the buffer is that of the other tree now");
    // And it comes back from there: 3 is asked in that tree too, and answers.
    receive(
        &mut card,
        now,
        &Tag {
            rank: 1,
            sender: address(1),
            ..credit(2, 1)
        },
    );
    assert!(matches!(
        card.receive(now, &bytes(&from_1(1, 0)), 60),
        Received::Data(_)
    ));
    receive(&mut card, now, &asks(0, 1));
    assert_eq!(credits(&look(&mut card, now).0), [(0, 2)]);
}

#[test]
fn m_bv5_a_credit_for_more_packets_than_any_card_has_buffers_for_is_refused() {
    let mut card = card(0);
    let limit = u32::from(BUFFERS_MAX);
    receive(&mut card, NOW, &credit(0, limit + 1));
    assert_eq!(refused(&card, TagRefusal::NoCredit), 1);
    let accepted = card.send(NOW, &packet(0, GROUP, 0), 60).expect("room for it");
    assert_eq!(
        (card.targets(&accepted).count(), card.buffers_in_use()),
        (0, 1),
        "it gave nothing"
    );
    receive(&mut card, NOW, &credit(0, limit));
    assert_eq!(refused(&card, TagRefusal::NoCredit), 1, "as many as a card can have");
    assert_eq!(look(&mut card, NOW).1, 1);
}

#[test]
fn m_bv5_a_card_that_is_asked_says_whether_packets_wait_and_which_is_next() {
    let mut card = card(0);
    // A CREDIT whose flag is set asks for a STATE.
    let asked = |card: &mut Multicast, limit: u32| {
        let probe = Tag {
            flags: 1,
            ..credit(0, limit)
        };
        look(card, NOW);
        receive(card, NOW, &probe);
        let (said, ..) = look(card, NOW);
        said.iter()
            .map(|tag| (tag.kind, tag.flags, tag.sequence))
            .collect::<Vec<_>>()
    };
    assert_eq!(asked(&mut card, 0), [(Kind::State, 0, 0)], "nothing waits");
    for count in 0..2 {
        assert!(card.send(NOW, &packet(0, GROUP, count), 60).is_ok());
    }
    assert_eq!(asked(&mut card, 0), [(Kind::State, WAITING, 0)]);
    receive(&mut card, NOW, &credit(0, 2));
    assert_eq!(look(&mut card, NOW).1, 2);
    assert_eq!(asked(&mut card, 2), [(Kind::State, 0, 2)], "both were sent");
}
