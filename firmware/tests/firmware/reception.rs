//! M-BV3 and M-BV4: the five methods that tell a host that a packet is there, byte by byte, and what they cost (R-BV1, R-BV2).

use firmware::reception::{
    HOST_BUFFER_LEN, PAYLOAD_MAX, PollPlace, PollingScheme, ReceptionCosts, SPLIT_LEN, Stream, StreamOutcome, WORD_LEN,
};

const FULL: [u8; 4] = [0xf0, 0x11, 0xf0, 0x11];
const STATUS_AT: usize = (HOST_BUFFER_LEN - WORD_LEN) as usize;

fn payload(len: u32) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + 1) as u8).collect()
}

/// The host's buffer while the card writes it byte by byte, in order of addresses. After each byte the host polls; gives what
/// it takes for the packet when it sees one.
fn seen_by_the_host(scheme: PollingScheme, payload: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0xee; HOST_BUFFER_LEN as usize];
    buffer[STATUS_AT..].fill(0);
    let transactions = scheme.transactions(payload.len() as u32);
    for (number, transaction) in transactions.as_slice().iter().enumerate() {
        let start = transaction.address.offset() as usize;
        let end = start + transaction.len as usize;
        assert!(end <= buffer.len(), "{scheme}: beyond the buffer");
        let mut bytes = if number == 0 { payload.to_vec() } else { Vec::new() };
        let words = [
            transaction.displacement.map(u32::to_le_bytes),
            transaction.ends_with_status.then_some(FULL),
        ];
        let words: Vec<u8> = words.into_iter().flatten().flatten().collect();
        bytes.resize(transaction.len as usize - words.len(), 0);
        bytes.extend(words);
        for (at, byte) in (start..end).zip(bytes) {
            buffer[at] = byte;
            if scheme.poll() == PollPlace::CachedWord && buffer[STATUS_AT..] == FULL {
                assert_eq!(
                    (at, number),
                    (HOST_BUFFER_LEN as usize - 1, transactions.as_slice().len() - 1),
                    "{scheme}: FULL before the last byte"
                );
            }
        }
    }
    // The length is in the packet's own header; the host needs to know where it begins.
    let start = match scheme {
        PollingScheme::PacketShifting => {
            let word = &buffer[STATUS_AT - WORD_LEN as usize..STATUS_AT];
            u32::from_le_bytes(word.try_into().expect("a word")) as usize
        }
        _ => 0,
    };
    buffer[start..start + payload.len()].to_vec()
}

#[test]
fn m_bv3_m_bv4_a_host_sees_full_only_behind_the_whole_payload_and_finds_its_start() {
    for scheme in PollingScheme::ALL {
        for len in [0, 1, 4, 511, 512, 513, 1023, 1024] {
            let sent = payload(len);
            assert_eq!(seen_by_the_host(scheme, &sent), sent, "{scheme}, {len} bytes");
        }
    }
}

#[test]
fn m_bv3_packet_shifting_is_one_transaction_to_the_end_of_the_buffer() {
    for len in 0..=PAYLOAD_MAX {
        let transactions = PollingScheme::PacketShifting.transactions(len);
        let [transaction] = transactions.as_slice() else {
            panic!("{transactions:?}")
        };
        assert_eq!(transaction.len, len + 2 * WORD_LEN);
        assert_eq!(transaction.address.offset() + transaction.len, HOST_BUFFER_LEN);
        assert_eq!(transaction.displacement, Some(transaction.address.offset()));
    }
}

#[test]
fn m_bv4_the_rival_schemes_transfer_what_the_paper_says() {
    let lens = |scheme: PollingScheme, len| {
        let transactions = scheme.transactions(len);
        transactions.as_slice().iter().map(|t| t.len).collect::<Vec<_>>()
    };
    for len in [0, 100, 511, 512, 1024] {
        assert_eq!(lens(PollingScheme::ProgrammedIo, len), [len]);
        assert_eq!(lens(PollingScheme::FullPacket, len), [HOST_BUFFER_LEN]);
        assert_eq!(lens(PollingScheme::DoubleDma, len), [len, WORD_LEN]);
        let as_which = if len < SPLIT_LEN {
            PollingScheme::DoubleDma
        } else {
            PollingScheme::FullPacket
        };
        assert_eq!(lens(PollingScheme::StaticSplit, len), lens(as_which, len));
    }
    let over_the_bus = PollingScheme::ALL.map(|scheme| scheme.poll() == PollPlace::CardMemory);
    assert_eq!(over_the_bus, [false, true, false, false, false]);
    for scheme in PollingScheme::ALL {
        assert_eq!(scheme.name().parse(), Ok(scheme));
    }
    let error = "guess"
        .parse::<PollingScheme>()
        .expect_err("no such scheme")
        .to_string();
    assert!(error.contains("packet-shifting") && error.contains("static-split"));
}

fn stream(scheme: PollingScheme, len: u32) -> StreamOutcome {
    let mut stream = Stream::new(scheme, ReceptionCosts::LCI);
    (0..200).for_each(|_| stream.message(len));
    stream.outcome()
}

/// Throughput in tenths of a per cent of that of packet shifting.
fn relative(scheme: PollingScheme, len: u32) -> u64 {
    let best = stream(PollingScheme::PacketShifting, len).bytes_per_s();
    stream(scheme, len).bytes_per_s() * 1000 / best
}

#[test]
fn m_bv3_packet_shifting_and_programmed_io_are_the_fastest_at_every_size() {
    for len in (16..=PAYLOAD_MAX).step_by(16) {
        let programmed = relative(PollingScheme::ProgrammedIo, len);
        assert!((980..=1020).contains(&programmed), "{len} bytes: {programmed}");
        for scheme in [
            PollingScheme::StaticSplit,
            PollingScheme::FullPacket,
            PollingScheme::DoubleDma,
        ] {
            assert!(relative(scheme, len) <= 1000, "{scheme}, {len} bytes");
        }
    }
    // But each poll of the card's memory crosses the bus, and none of the others does.
    assert!(stream(PollingScheme::ProgrammedIo, 512).polls_io > 200);
    assert_eq!(stream(PollingScheme::PacketShifting, 512).polls_io, 0);
}

#[test]
fn m_bv4_static_split_is_ahead_of_its_halves_and_behind_packet_shifting() {
    let mut ahead = [false; 2];
    for len in (16..=PAYLOAD_MAX).step_by(16) {
        let split = relative(PollingScheme::StaticSplit, len);
        for (ahead, half) in ahead
            .iter_mut()
            .zip([PollingScheme::FullPacket, PollingScheme::DoubleDma])
        {
            let half = relative(half, len);
            // At the split the two cost equally much but for the words beside the payload.
            assert!(split + 6 >= half, "{len} bytes: {split}, {half}");
            *ahead |= split > half + 100;
        }
    }
    assert_eq!(ahead, [true, true]);
    assert!(relative(PollingScheme::StaticSplit, 600) < 850);
}

#[test]
fn m_bv4_full_packet_is_poor_until_packets_are_nearly_full_and_double_dma_above_half() {
    for (len, most) in [(64, 550), (256, 620), (512, 800), (768, 900)] {
        assert!(relative(PollingScheme::FullPacket, len) < most, "{len} bytes");
    }
    assert!(relative(PollingScheme::FullPacket, 1008) > 980);
    for len in (528..=PAYLOAD_MAX).step_by(16) {
        let [double, full] = [PollingScheme::DoubleDma, PollingScheme::FullPacket].map(|scheme| relative(scheme, len));
        assert!(double < full && double < 800, "{len} bytes: {double}, {full}");
    }
}

#[test]
fn m_bv3_m_bv4_every_scheme_peaks_at_full_packets_and_keeps_that_but_for_dips() {
    for scheme in PollingScheme::ALL {
        let rate = |len| stream(scheme, len).bytes_per_s();
        let peak = rate(PAYLOAD_MAX);
        let mut before = 0;
        for len in (16..=PAYLOAD_MAX).step_by(16) {
            let now = rate(len);
            let at_the_split = scheme == PollingScheme::StaticSplit && len == SPLIT_LEN;
            assert!(now >= before || at_the_split, "{scheme}, {len} bytes");
            before = now;
        }
        for packets in 2..6 {
            let whole = rate(packets * PAYLOAD_MAX);
            // Less the time in which the pipeline fills.
            assert!(
                whole <= peak * 1_010 / 1_000 && whole >= peak * 990 / 1_000,
                "{scheme}, {packets} packets"
            );
            assert!(
                rate(packets * PAYLOAD_MAX + 16) < whole,
                "{scheme}: the dip behind {packets} packets"
            );
        }
    }
}

#[test]
fn m_bv4_polls_cost_what_the_paper_measured() {
    let idle = |scheme| {
        let mut stream = Stream::new(
            scheme,
            ReceptionCosts {
                host_packet_ns: 0,
                ..ReceptionCosts::LCI
            },
        );
        let done = stream.packet(0).as_nanos();
        (done, stream.outcome().polls_failed)
    };
    // Sender 2 µs, card 2 µs, set-up 4 µs; shifting's two words take 62 ns.
    let there = 8_000 + 62;
    let failed = u64::div_ceil(there, 5);
    assert_eq!(idle(PollingScheme::PacketShifting), (failed * 5 + 74, failed));
    let failed = u64::div_ceil(8_000, 467);
    assert_eq!(idle(PollingScheme::ProgrammedIo), (failed * 467 + 467, failed));
}
