//! The card allocates when it is made, and then never again: not per packet, not per control frame, not on a live switch.

use ether::{MacAddr, Time};
use firmware::{
    CONTROL_FRAME_MAX, Card, CardConfig, Coalescing, CoalescingChange, DmaModel, Event, HostState, MisorderSettings,
    PENDING_MAX, PacketInfo, SteeringMode, SteeringSettings, StrategyKind,
    clock::ClockState,
    control::Request,
    multicast::{Action, Class, GroupTable, Multicast, Received, Tag, TreeShape, rows},
    timers::{TimerEvent, TimerKind},
};

fn traffic(nic: &mut Card, start_ns: u64) {
    let header = [0x80; 64];
    for batch in 0..500 {
        let now = Time::from_nanos(start_ns + batch * 10_000);
        for n in 0..64 {
            assert!(nic.misorder_mut().sent(&header).is_none());
            let queue = nic.steering_mut().queue(&header).expect("both are ready");
            let rx = nic.rx((queue + n) % 2);
            let packet = rx.classify(&header, 1500);
            let marked = packet.marked || n % 3 == 0;
            // A full queue refuses, which must not allocate either.
            let _ = rx.arrive(now, PacketInfo { marked, ..packet });
        }
        for queue in 0..2 {
            while nic.rx(queue).poll(now).is_some() {
                nic.rx(queue).note_signalled();
            }
        }
        assert!(nic.next_event().is_none_or(|at| at >= now));
    }
}

#[test]
fn no_allocation_per_packet_control_frame_or_switch() {
    let mut nic = Card::new(CardConfig {
        queue_pairs: 2,
        ..CardConfig::default()
    });
    nic.steering_mut().set_ready(0b11);
    nic.misorder_mut()
        .set(MisorderSettings::of_degree(3))
        .expect("a degree");
    let mut request = [0; CONTROL_FRAME_MAX];
    let mut reply = [0; CONTROL_FRAME_MAX];
    let change = CoalescingChange {
        delay_ns: Some(50_000),
        ..CoalescingChange::default()
    };
    let guest = MacAddr([0x52, 0x54, 0, 0, 0, 1]);
    let mut packets = 0;
    let info = allocation_counter::measure(|| {
        let mut start_ns = 0;
        for dma in [DmaModel::ZERO, DmaModel::new(900, 16_000_000_000, 4)] {
            nic.set_dma(dma);
            for &strategy in StrategyKind::ALL {
                let now = Time::from_nanos(start_ns);
                nic.set_coalescing(
                    now,
                    None,
                    Coalescing {
                        strategy,
                        ..Coalescing::DEFAULT
                    },
                )
                .expect("all queues");
                traffic(&mut nic, start_ns);
                start_ns += 10_000_000;
                let len = Request::SetCoalescing { queue: None, change }.encode(guest, 1, &mut request);
                assert_ne!(nic.handle_control(now, &request[..len], &mut reply), 0);
                // Refused: the frame is cut.
                assert_ne!(nic.handle_control(now, &request[..20], &mut reply), 0);
            }
        }
        packets = nic.counters(None).expect("all queues").total().packets;
    });
    assert!(packets > 100 * PENDING_MAX as u64, "{packets} packets show little");
    assert_eq!(info.count_total, 0, "allocations for {packets} packets");
}

/// The first bytes of frames that are steered and misordered by all rules: MXoE by endpoint, with marks and without, IP by
/// flow, and what is neither.
fn headers() -> [[u8; 64]; 5] {
    let mxoe = |kind: u8| {
        let mut header = [0; 64];
        header[..17].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdf, 0, 0, kind]);
        header
    };
    let ip = |ether_type: [u8; 2], version: u8, protocol_at: usize| {
        let mut header = [0; 64];
        header[12..14].copy_from_slice(&ether_type);
        header[14] = version;
        header[protocol_at] = 6;
        header
    };
    // SMALL, MEDIUM with the mark, TCP over IPv4 and over IPv6.
    [
        mxoe(38),
        mxoe(39 | 0x80),
        ip([8, 0], 0x45, 23),
        ip([0x86, 0xdd], 0x60, 20),
        [7; 64],
    ]
}

#[test]
fn m_gf6_m_gf9_m_bv8_m_bv10_no_allocation_while_steering_misordering_watching_and_ringing() {
    let mut nic = Card::new(CardConfig {
        queue_pairs: 4,
        ..CardConfig::default()
    });
    nic.steering_mut().set_ready(0b1111);
    nic.misorder_mut()
        .set(MisorderSettings::of_degree(2))
        .expect("a degree");
    nic.start_recorder(1024);
    let headers = headers();
    let owner = MacAddr([2, 0, 0, 0, 0, 1]);
    let (mut watched, mut rung) = (0, 0);
    let info = allocation_counter::measure(|| {
        for mode in [SteeringMode::Off, SteeringMode::Flow, SteeringMode::Endpoint] {
            let settings = SteeringSettings {
                mode,
                ..SteeringSettings::DEFAULT
            };
            nic.steering_mut().set(settings).expect("good settings");
            nic.set_watchdog(Time::ZERO, None, 100_000).expect("in range");
            for (timer, kind) in [(1, TimerKind::Clock), (2, TimerKind::Once)] {
                let armed = nic.timers_mut().arm(Time::ZERO, timer, kind, 1_000_000, owner);
                armed.expect("room for two");
            }
            for step in 0..10_000 {
                let now = Time::from_nanos(step * 10_000);
                let header = &headers[step as usize % headers.len()];
                // Whatever it wants done is the driver's.
                let _ = nic.misorder_mut().sent(header);
                let queue = nic.steering_mut().queue(header).expect("all are ready");
                let rx = nic.rx(queue);
                let packet = rx.classify(header, 1500);
                rx.arrive(now, packet).expect("the queue is polled");
                for queue in 0..4 {
                    while let Some(event) = nic.rx(queue).poll(now) {
                        if event == Event::FetchHostState {
                            watched += 1;
                            let state = HostState {
                                interrupts_enabled: watched % 2 == 0,
                                processed: 0,
                            };
                            nic.rx(queue).host_state(now, state);
                        }
                    }
                }
                while let Some(event) = nic.timers_mut().poll(now) {
                    if let TimerEvent::FetchClockState { timer } = event {
                        let state = ClockState {
                            running_timers: 1,
                            last_poll: None,
                        };
                        nic.timers_mut().clock_state(now, timer, state, 0);
                    } else {
                        rung += 1;
                        nic.rx(0).ring(now);
                    }
                }
                assert!(nic.next_event().is_some());
            }
            for timer in [1, 2] {
                nic.timers_mut().disarm(timer);
            }
            (0..4).for_each(|queue| nic.rx(queue).reset());
        }
    });
    assert!(
        watched > 500 && rung > 200,
        "{watched} looks and {rung} rings show little"
    );
    assert_eq!(info.count_total, 0, "allocations for {watched} looks and {rung} rings");
}

/// Two cards in each other's group: what one emits the other receives.
fn multicast(cards: &mut [Multicast], start_ns: u64, packets: u32) -> u64 {
    let mut delivered = 0;
    for count in 0..packets {
        let now = Time::from_nanos(start_ns + u64::from(count));
        let mut frame = [0; 60];
        let head = frame.first_chunk_mut().expect("longer than a tag");
        Tag::send(MacAddr([2, 0, 0, 0, 0, 1]), 7, 22).write(head);
        let accepted = cards[0].send(now, &frame, 60).expect("room");
        let mut at = Some((0, accepted));
        while let Some((card, accepted)) = at.take() {
            cards[card].prepare(&accepted, frame.first_chunk_mut().expect("longer than a tag"));
            let to = cards[card].targets(&accepted).next();
            signals(cards, now);
            if let Some(to) = to {
                frame[..6].copy_from_slice(&to.0);
                let card = usize::from(to.0[5]) - 1;
                if let Received::Data(accepted) = cards[card].receive(now, &frame, 60) {
                    delivered += 1;
                    at = Some((card, accepted));
                }
            }
            signals(cards, now);
        }
    }
    delivered
}

/// Hands all signals over; packets that waited for one are dropped by this driver.
fn signals(cards: &mut [Multicast], now: Time) {
    for card in 0..cards.len() {
        while let Some(action) = cards[card].poll(now) {
            if let Action::Emit(frame) = action
                && let Some(other) = cards.get_mut(usize::from(frame[5]).wrapping_sub(1))
            {
                assert_eq!(other.receive(now, &frame, 60), Received::Consumed);
            }
        }
    }
}

#[test]
fn m_bv5_no_allocation_per_packet_or_credit() {
    let members: Vec<_> = (1..=8).map(|n| MacAddr([2, 0, 0, 0, 0, n])).collect();
    let mut cards: Vec<_> = (0..8).map(|_| Multicast::default()).collect();
    for (own, card) in cards.iter_mut().enumerate() {
        let table = GroupTable {
            group: 7,
            generation: 1,
            class: Class::Plain,
            own: own as u8,
            members: &members,
            rows: &rows(TreeShape::Chain, 8, own),
        };
        card.set_group(Time::ZERO, &table).expect("a good table");
    }
    let mut delivered = 0;
    let info = allocation_counter::measure(|| delivered = multicast(&mut cards, 1_000, 10_000));
    assert!(delivered > 60_000, "{delivered} deliveries show little");
    assert_eq!(info.count_total, 0, "allocations for {delivered} deliveries");
}
