//! Messages that leave before they are recorded, and acknowledgements that are acted on after the message that carried
//! them: neither changes what is on the wire or what programs are told.

use mxoe::{
    engine::{HEAD_BUFFER_LEN, Lost, PartnerId, Posted, SendError, SendOptions},
    wire::{Extension, Packet, Preset},
};

use super::{
    node::{config_of, fill},
    script::{Script, ack},
};

/// What [`mxoe::engine::Engine::begin_immediate_send`] writes.
fn send_now(script: &mut Script, match_info: u64, data: &[u8]) -> Option<Vec<u8>> {
    let mut buffer = [0xaa; HEAD_BUFFER_LEN];
    let partner = script.partner;
    let len = script
        .node
        .engine
        .begin_immediate_send(partner, match_info, data, &mut buffer)?;
    Some(buffer[..len].to_vec())
}

fn posted(script: &mut Script, match_info: u64, data: &[u8], went_out: bool) -> Result<Posted, SendError> {
    let (now, partner) = (script.now, script.partner);
    script
        .node
        .engine
        .finish_immediate_send(now, partner, match_info, match_info, data, went_out)
}

fn marking() -> Script {
    let config = config_of(0, Preset::Native9000);
    let extension = config.extension.map(|own| Extension {
        flags: Extension::MARK,
        ..own
    });
    Script::with(config, extension)
}

#[test]
fn a_message_that_leaves_at_once_is_the_one_that_it_would_be_later() {
    let (mut now, mut later) = (marking(), marking());
    for number in 0..400_u16 {
        let data = fill(number.into(), usize::from(number * 37 % 129));
        let (mine, partner) = (now.now, now.partner);
        let frame = send_now(&mut now, number.into(), &data).expect("nothing stands before it");
        assert_eq!(frame[16] & 0x80, 0x80, "marked");
        assert!(matches!(
            posted(&mut now, number.into(), &data, true),
            Ok(Posted::Early(_))
        ));
        let slow = later
            .node
            .engine
            .send_inline(mine, partner, number.into(), number.into(), &data);
        assert!(matches!(slow, Ok(Posted::Early(_))));
        assert_eq!(later.frames(), [frame], "message {number}");
        assert!(now.frames().is_empty());
        for script in [&mut now, &mut later] {
            // Some are answered, some acknowledged, some neither; and time passes.
            match number % 5 {
                0 => {
                    let mut eager = script.eager(1 + number / 5, b"answer");
                    eager.piggyack = number + 2;
                    script.put(Packet::Tiny(eager));
                }
                3 => script.put(Packet::Ack(ack(number + 1, u32::from(number) + 1))),
                _ => {}
            }
            script.pass(1_000 * u64::from(number % 3));
            assert!(
                script.frames().iter().all(|frame| frame[16] & 0x7f == 35),
                "only acknowledgements"
            );
        }
        assert_eq!(
            now.node.engine.poll_timeout(),
            later.node.engine.poll_timeout(),
            "message {number}"
        );
        let info = |script: &Script| script.node.engine.partner(partner);
        assert_eq!(format!("{:?}", info(&now)), format!("{:?}", info(&later)));
        assert_eq!(
            now.node.engine.counters().values(),
            later.node.engine.counters().values()
        );
    }
    assert!(now.node.sent.is_empty(), "complete when posted");
}

#[test]
fn a_message_that_the_port_did_not_take_is_written_again() {
    let mut script = Script::new(Preset::Native1500);
    let frame = send_now(&mut script, 5, b"lost").expect("nothing stands before it");
    assert!(matches!(posted(&mut script, 5, b"lost", false), Ok(Posted::Early(_))));
    assert_eq!(script.frames(), [frame]);
}

#[test]
fn nothing_leaves_at_once_past_what_stands_before_it_or_over_a_limit() {
    type Prepare = fn(&mut Script);
    let cases: [(&str, Prepare); 9] = [
        ("another message", |script| {
            let (now, to) = (script.now, script.partner);
            script.node.engine.send_inline(now, to, 1, 1, b"x").unwrap();
        }),
        ("a connect", |script| {
            let (now, mac) = (script.now, super::script::PEER);
            script.node.engine.connect(now, mac, 3, 0, 9).unwrap();
        }),
        ("a refusal", |script| {
            let mut eager = script.eager(1, b"x");
            eager.session ^= 1;
            script.put(Packet::Tiny(eager));
        }),
        ("an acknowledgement that is due", |script| {
            for seqnum in 1..=64 {
                let eager = script.eager(seqnum, b"x");
                script.put(Packet::Tiny(eager));
            }
        }),
        ("a block that was asked for", |script| {
            script.send_large(100_000);
            let pull = script.pull(30_000);
            script.put(Packet::Pull(pull));
        }),
        ("fault injection", |script| {
            script.node.engine.set_packet_loss(Lost::Any, 2)
        }),
        ("a partner that was given up", |script| {
            let to = script.partner;
            script.node.engine.disconnect(to);
        }),
        ("as many messages as there may be", |script| {
            for number in 0..4 {
                let (now, to) = (script.now, script.partner);
                script.node.engine.send_inline(now, to, number, number, b"x").unwrap();
            }
            script.frames();
        }),
        ("as many bytes as may be complete early", |script| {
            let (now, to) = (script.now, script.partner);
            script.node.engine.send_inline(now, to, 1, 1, &[0; 100]).unwrap();
            script.frames();
        }),
    ];
    for (what, prepare) in cases {
        let mut config = config_of(0, Preset::Native1500);
        config.limits.sends = 4;
        config.limits.early_completed_bytes = 100;
        let mut script = Script::with(config.clone(), None);
        assert!(send_now(&mut script, 7, b"y").is_some(), "nothing stands before it");
        let mut script = Script::with(config, None);
        prepare(&mut script);
        assert_eq!(send_now(&mut script, 7, b"y"), None, "{what}");
    }
    let mut script = Script::new(Preset::Native1500);
    assert_eq!(send_now(&mut script, 7, &[0; 129]), None, "it is not short");
    script.partner = PartnerId::default();
    let mut alone = mxoe::engine::Engine::new(config_of(0, Preset::Native1500), mxoe::engine::PeerMap::new(1, 1));
    let mut buffer = [0; HEAD_BUFFER_LEN];
    assert_eq!(
        alone.begin_immediate_send(script.partner, 7, b"y", &mut buffer),
        None,
        "no partner is connected"
    );
}

#[test]
fn a_message_is_handed_over_before_its_acknowledgement_is_acted_on_which_happens_when_nothing_is_to_be_sent() {
    let mut script = Script::new(Preset::Native1500);
    let (now, to) = (script.now, script.partner);
    script.node.send(now, to, 1, 1_000, SendOptions::default());
    script.frames();
    let mut eager = script.eager(1, b"answer");
    eager.piggyack = 2;
    let frame = script.bytes(Packet::Tiny(eager));
    script.node.engine.handle(now, &frame, &mut script.node.program);
    assert_eq!(script.node.program.got.len(), 1, "the program has the message");
    assert!(!script.node.engine.is_settled() && script.node.engine.is_quiet());
    assert_eq!(script.node.engine.partner(to).unwrap().unacked, 1);
    assert!(script.node.transmit(now).is_none());
    assert!(script.node.engine.is_settled());
    assert_eq!(script.node.engine.partner(to).unwrap().unacked, 0);
    script.node.events(now);
    assert_eq!(script.node.sent.len(), 1);
}
