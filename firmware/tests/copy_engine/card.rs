//! The copy engine of a card that is connected to itself, as its guest finds it over the control protocol, and its limits.

use super::*;

#[test]
fn m_ci1_a_card_that_is_connected_to_itself_says_when_its_next_copy_arrives() {
    let mut nic = Card::new(CardConfig::default());
    assert!(nic.copy_engine().is_none(), "a card of a network is none");
    nic.connect_to_itself(CopyEngineConfig::IO_AT);
    let engine = nic.copy_engine_mut().expect("connected");
    engine.icopy(t(0), 0, 5000, 4000).expect("accepted");
    assert_eq!(nic.next_event(), Some(t(350 + 1600)));
}

#[test]
fn m_ci1_a_guest_reads_the_counters_of_its_card_and_a_card_of_a_network_has_none() {
    let guest = MacAddr([0x52, 0x54, 0, 0, 0, 1]);
    let ask = |nic: &mut Card, request: Request| {
        let (mut frame, mut reply) = ([0; CONTROL_FRAME_MAX], [0; CONTROL_FRAME_MAX]);
        let len = request.encode(guest, 1, &mut frame);
        let len = nic.handle_control(t(0), &frame[..len], &mut reply);
        Reply::decode(&reply[..len]).expect("a reply").1
    };
    let hello = Request::Hello {
        version_min: 1,
        version_max: 1,
    };
    let mut nic = Card::new(CardConfig::default());
    let Reply::Refused(refusal) = ask(&mut nic, Request::GetCopyEngine) else {
        panic!("it has none");
    };
    assert_eq!(refusal.code, 3);
    let Reply::Hello(before) = ask(&mut nic, hello) else {
        panic!("no hello");
    };
    nic.connect_to_itself(CopyEngineConfig::IO_AT);
    let Reply::Hello(after) = ask(&mut nic, hello) else {
        panic!("no hello");
    };
    assert_eq!(before.bits | ability::COPY_ENGINE, after.bits);
    assert_ne!(before.bits, after.bits);
    let engine = nic.copy_engine_mut().expect("connected");
    engine.icopy_k2u(t(0), 0, 0, 5000).expect("accepted");
    assert!(engine.icopy(t(0), 0, 0, 1).is_err());
    while engine.poll(t(1_000_000)).is_some() {}
    engine.icopy(t(0), 0, 5000, 10).expect("accepted");
    let expected = *engine.counters();
    let Reply::GetCopyEngine(report) = ask(&mut nic, Request::GetCopyEngine) else {
        panic!("no report");
    };
    assert_eq!(
        (report.mtu, report.queue_max, report.queued, report.submit_ns),
        (4096, 512, 1, 350)
    );
    assert_eq!(report.counters, expected);
    assert_eq!(
        (
            expected.frames,
            expected.completed,
            expected.refused_for(CopyError::Overlap)
        ),
        (2, 1, 1)
    );
}

#[test]
fn m_ci1_values_beyond_their_limits_are_refused_in_words() {
    let bad = CopyEngineConfig {
        mtu: 45,
        ..CopyEngineConfig::DEFAULT
    };
    assert_eq!(
        bad.validated().expect_err("too small").to_string(),
        "the MTU of a copy engine must be 46 to 262144 bytes"
    );
    assert_eq!(CopyEngine::new(bad).config().mtu, COPY_MTU_MIN);
    let no_queue = CopyEngineConfig {
        queue_max: 0,
        ..CopyEngineConfig::DEFAULT
    };
    assert!(no_queue.validated().is_err());
    assert_eq!(CopyEngineConfig::IO_AT.validated(), Ok(CopyEngineConfig::IO_AT));
}
