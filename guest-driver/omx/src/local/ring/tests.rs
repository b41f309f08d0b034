//! The rings of a pair of endpoints, driven from both ends within one process.

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;
use crate::Segment;

fn memory() -> Arc<Memory> {
    let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, PAIR_MEMORY_LEN as u64).unwrap();
    Memory::map(file).unwrap()
}

fn record(kind: u32, len: usize) -> Record {
    Record {
        kind: kind + 1,
        len: len as u32,
        words: [kind.into(), 7, 9],
    }
}

#[test]
fn records_of_all_lengths_come_out_whole_wherever_the_ring_ends() {
    let memory = memory();
    let (mut producer, _) = ends(&memory, Traffic::Messages, true);
    let (_, mut consumer) = ends(&memory, Traffic::Messages, false);
    let data: Vec<u8> = (0..PAYLOAD_LEN_MAX).map(|at| (at * 31 + at / 251) as u8).collect();
    let (mut written, mut read) = (0_u32, 0_u32);
    let len = |n: u32| [0, 1, 8, 513, 4099, PAYLOAD_LEN_MAX][n as usize % 6] - usize::from(n % 7 == 6 && n % 6 > 1);
    while read < 3000 {
        let from = [Segment::of(&data[..len(written)])];
        // SAFETY: `data` outlives the segments and is only read.
        let segments = unsafe { Segments::new(&from) }.unwrap();
        let next = record(written, len(written));
        match producer.push(&next, &Payload::Memory(&segments, 0)).unwrap() {
            true => written += 1,
            // Full: some are taken.
            false => {
                for _ in 0..1 + written % 5 {
                    let Some(next) = consumer.next().unwrap() else { break };
                    assert_eq!(next, record(read, len(read)));
                    let mut got = Vec::new();
                    consumer.for_payload(next.len, |at, bytes| {
                        assert_eq!(at as usize, got.len());
                        got.extend_from_slice(bytes);
                    });
                    assert!(got == data[..len(read)], "record {read}");
                    consumer.done(&next);
                    read += 1;
                }
                consumer.say_head(false);
            }
        }
    }
}

#[test]
fn whoever_sleeps_is_seen_once_by_whoever_writes() {
    let memory = memory();
    let (mut producer, _) = ends(&memory, Traffic::Messages, true);
    let (_, mut consumer) = ends(&memory, Traffic::Messages, false);
    assert!(!producer.consumer_sleeps());
    assert!(!consumer.sleep(), "nothing is there");
    producer.push(&record(1, 0), &Payload::None).unwrap();
    assert!(producer.consumer_sleeps() && !producer.consumer_sleeps());
    assert!(consumer.sleep(), "something is there");
    while producer.push(&record(2, 8), &Payload::Words(&[5])).unwrap() {}
    assert!(!producer.want_room(PAYLOAD_LEN_MAX));
    let mut waked = 0;
    while let Some(next) = consumer.next().unwrap() {
        consumer.done(&next);
        waked += usize::from(consumer.say_head(false));
    }
    assert_eq!(waked, 1);
    assert!(producer.want_room(PAYLOAD_LEN_MAX));
}

#[test]
fn a_producer_that_waits_for_room_gets_it_while_the_consumer_is_busy() {
    let memory = memory();
    let (mut producer, _) = ends(&memory, Traffic::Messages, true);
    let (_, mut consumer) = ends(&memory, Traffic::Messages, false);
    let one = record(1, 0);
    while producer.push(&one, &Payload::None).unwrap() {}
    assert!(!producer.want_room(PAYLOAD_LEN_MAX));
    let mut taken = 0;
    loop {
        let next = consumer.next().unwrap().unwrap();
        consumer.done(&next);
        taken += 1;
        if consumer.say_head(false) {
            break;
        }
    }
    assert!(taken < RECORDS_MAX / 4, "{taken} of {RECORDS_MAX}");
    for _ in 0..taken {
        assert!(producer.push(&one, &Payload::None).unwrap());
    }
    assert!(
        !producer.push(&one, &Payload::None).unwrap(),
        "the rest is not read yet"
    );
}

#[test]
fn what_lies_where_the_next_record_will_begin_is_never_taken_for_one() {
    let memory = memory();
    let (mut producer, _) = ends(&memory, Traffic::Messages, true);
    let (_, mut consumer) = ends(&memory, Traffic::Messages, false);
    // Each word of the ring could be the beginning of a record.
    let data = [1_u64 << 32; PAYLOAD_LEN_MAX / 8];
    let lens = [PAYLOAD_LEN_MAX, 96, 0, 32, 4096, 33];
    for round in 0..500 {
        let next = record(round, lens[round as usize % lens.len()]);
        let words = &data[..(next.len as usize).div_ceil(8)];
        assert!(producer.push(&next, &Payload::Words(words)).unwrap());
        assert_eq!(consumer.next(), Ok(Some(next)), "round {round}");
        consumer.done(&next);
        assert_eq!(consumer.next(), Ok(None), "round {round}");
        consumer.say_head(false);
    }
}

#[test]
fn a_consumer_that_claims_to_have_read_what_was_not_written_is_found_out() {
    let memory = memory();
    let (mut producer, _) = ends(&memory, Traffic::Messages, true);
    let (_, consumer) = ends(&memory, Traffic::Messages, false);
    consumer.lane.word(WORD_HEAD).store(1 << 50, Ordering::Release);
    let mut pushed = producer.push(&record(1, 0), &Payload::None);
    while pushed == Ok(true) {
        pushed = producer.push(&record(1, 0), &Payload::None);
    }
    assert_eq!(pushed, Err(Broken));
}

#[test]
fn a_consumer_that_stops_says_how_far_it_is() {
    let memory = memory();
    let (mut producer, _) = ends(&memory, Traffic::Messages, true);
    let (_, mut consumer) = ends(&memory, Traffic::Messages, false);
    let one = record(1, 0);
    while producer.push(&one, &Payload::None).unwrap() {}
    consumer.done(&one);
    consumer.say_head(false);
    assert!(!producer.want_room(0), "that can wait");
    assert!(consumer.say_head(true), "the producer waits");
    assert!(producer.push(&one, &Payload::None).unwrap());
}

#[test]
fn memory_of_another_layout_is_refused_with_a_sentence() {
    let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    for len in [0, PAIR_MEMORY_LEN - 1, PAIR_MEMORY_LEN + 4096] {
        ftruncate(&file, len as u64).unwrap();
        let refused = Memory::map(&file).err().expect("refused");
        assert_eq!(
            refused.to_string(),
            "omxd is of another version than this program's library"
        );
    }
}
