//! Frames between cards that are nearly right: refused and counted, or harmless.

use bolero::check;
use ether::Time;
use firmware::multicast::{Action, Class, Kind, Multicast, Received, TAG_END, Tag, TagRefusal, TreeShape, rows};

use crate::net::{GROUP, Net, address, trees};

/// A tag that is right but for some bytes, made of a fuzzer's bytes.
fn nearly(bytes: &[u8], class: Class) -> Vec<u8> {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let kinds = [
        Kind::Send,
        Kind::Data,
        Kind::State,
        Kind::Credit,
        Kind::Announce,
        Kind::Gone,
        Kind::Sent,
    ];
    // The fifth is rare in a plain group, the last two are in any.
    let kind = match byte(0) % 5 {
        4 if byte(15) < 128 => kinds[4 + usize::from(byte(15) % 3)],
        nth => kinds[usize::from(nth)],
    };
    let is_unicast = class == Class::Reliable && byte(4) & 2 != 0;
    let rank = byte(1) % 8;
    let mut tag = Tag {
        to: address(1),
        kind,
        generation: 1,
        rank,
        sender: address(usize::from(rank)),
        sequence: u32::from(byte(2) % 4),
        hops: byte(3) % 4,
        flags: byte(4) % if class == Class::Reliable { 4 } else { 2 },
        ..Tag::send(
            address(neighbour(kind, rank, byte(5), is_unicast)),
            GROUP,
            u16::from(byte(6) % 24),
        )
    };
    if kind == Kind::Send {
        let flags = tag.flags & if class == Class::Reliable { 3 } else { 0 };
        let rank = if is_unicast { tag.rank } else { 0 };
        tag = Tag::send(
            address(usize::from(1 + byte(5) % 2)),
            GROUP + u16::from(byte(6) % 4 == 0),
            22,
        );
        (tag.flags, tag.rank) = (flags, rank);
    }
    let mut frame = vec![0; 60];
    tag.write(frame.first_chunk_mut().expect("longer than a tag"));
    for change in 0..byte(7) % 3 {
        let at = usize::from(byte(8 + 2 * usize::from(change))) % 40;
        frame[at] = byte(9 + 2 * usize::from(change));
    }
    if byte(14) % 8 == 0 {
        frame.truncate(usize::from(byte(15) % 60));
    }
    frame
}

/// Who would send such a frame about the tree of `sender` to rank 1, or now and then anybody.
fn neighbour(kind: Kind, sender: u8, choice: u8, is_unicast: bool) -> usize {
    if is_unicast || kind == Kind::Gone {
        let whose = if kind == Kind::Credit { choice % 8 } else { sender };
        return usize::from(if choice.is_multiple_of(8) { choice % 8 } else { whose });
    }
    let row = rows(TreeShape::Binary, 8, 1)[usize::from(sender)];
    let neighbour = match kind {
        Kind::Credit => row.children().first().map(|child| child.rank),
        _ => row.parent,
    };
    usize::from(neighbour.filter(|_| !choice.is_multiple_of(8)).unwrap_or(choice % 8))
}

#[test]
fn m_bv5_fuzzed_frames_are_refused_and_counted_and_never_panic() {
    fuzz(Class::Plain);
}

#[test]
fn m_bv5_fuzzed_frames_of_reliable_groups_are_refused_and_counted_and_never_panic() {
    fuzz(Class::Reliable);
}

fn fuzz(class: Class) {
    // Rank 1 of eight, with all kinds of rows, in the middle of some traffic of its own.
    let mut net = Net::of(class, 4, &trees(TreeShape::Binary, 8), 3);
    (0..60).for_each(|_| {
        net.step();
    });
    let start = net.cards.swap_remove(1);
    let mut card = start.clone();
    let (mut frames, mut ends) = (0u32, [0u64; 5]);
    let frames_max = 100_000;
    check!().with_iterations(frames_max).for_each(|bytes: &[u8]| {
        // A new card now and then, so that one strange credit does not decide what happens to all later frames.
        if frames % 64 == 0 {
            card = start.clone();
        }
        frames += 1;
        let frame = nearly(bytes, class);
        let before = (card.refusals().total(), card.totals().duplicates);
        let now = Time::from_nanos(u64::from(frames));
        let accepted = if bytes.first().is_some_and(|byte| byte % 5 == 0) {
            let sent = card.send(now, &frame, frame.len() as u32);
            if let Err(reason) = sent {
                assert_eq!(card.refusals().total(), before.0 + 1, "{}", reason.name());
            }
            ends[0] += u64::from(sent.is_ok());
            sent.ok()
        } else {
            match card.receive(now, &frame, frame.len() as u32) {
                Received::Data(accepted) => {
                    ends[1] += 1;
                    Some(accepted)
                }
                Received::Consumed | Received::Refused => None,
            }
        };
        ends[2] += card.refusals().total() - before.0;
        ends[3] += card.totals().duplicates - before.1;
        if let Some(accepted) = accepted {
            let mut head = [0; TAG_END];
            head.copy_from_slice(&frame[..TAG_END]);
            card.prepare(&accepted, &mut head);
            assert!(Tag::parse(&head, frame.len() as u32).is_some_and(|tag| tag.kind == Kind::Data));
            assert!(card.targets(&accepted).count() <= 2);
        }
        let mut actions = 0;
        while let Some(action) = card.poll(now) {
            actions += 1;
            assert!(actions < 1_000, "a card goes on for ever");
            if let Action::Emit(signal) = action {
                ends[4] += 1;
                assert!(Tag::parse(&signal, 60).is_some_and(|tag| tag.kind != Kind::Data));
            }
        }
        // The host takes something now and then.
        if frames.is_multiple_of(3) && card.has_for_host() {
            card.host_took(now);
        }
        assert!(card.buffers_in_use() <= card.buffers_total());
        let known: u64 = TagRefusal::ALL.iter().map(|reason| card.refusals().of(*reason)).sum();
        assert_eq!(known, card.refusals().total());
    });
    assert!(
        ends.iter().all(|end| *end >= 100),
        "an end was hardly reached: {ends:?}"
    );
}

#[test]
fn m_bv5_the_card_is_a_plain_value() {
    fn is_plain<T: Clone + Send + 'static>() {}
    is_plain::<Multicast>();
}
