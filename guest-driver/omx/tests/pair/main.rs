//! Promises of endpoints that hold on any port, over two ports joined in memory.

mod copies;
mod handler;
mod waits;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use ether::MacAddr;
use mxoe::{engine::Lost, wire::Preset};
use netif::memory_pair;
use omx::{Address, Counter, Endpoint, EndpointOptions, Error, Request, Segment, Status, StatusCode};

const LIMIT: Option<Duration> = Some(Duration::from_secs(20));
const KEY: u32 = 77;

struct Pair {
    a: Endpoint,
    b: Endpoint,
    /// Address of `b` as `a` knows it.
    to_b: Address,
}

fn options() -> EndpointOptions {
    EndpointOptions {
        key: KEY,
        ..EndpointOptions::default()
    }
}

fn pair_with(options: &EndpointOptions) -> Pair {
    let macs = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
    let (port_a, port_b) = memory_pair(macs, 1500, 256).unwrap();
    let a = Endpoint::open_on(options, Box::new(port_a), Preset::Native1500).unwrap();
    let b = Endpoint::open_on(options, Box::new(port_b), Preset::Native1500).unwrap();
    let stop = Arc::new(AtomicUsize::new(0));
    let other = thread::spawn({
        let (b, stop) = (b.clone(), Arc::clone(&stop));
        move || {
            while stop.load(Ordering::Relaxed) == 0 {
                b.progress();
                thread::yield_now();
            }
        }
    });
    let to_b = a.connect(macs[1], 0, KEY, LIMIT).unwrap();
    stop.store(1, Ordering::Relaxed);
    other.join().unwrap();
    Pair { a, b, to_b }
}

fn pair() -> Pair {
    pair_with(&options())
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + seed) as u8).collect()
}

fn irecv(endpoint: &Endpoint, buffer: &mut [u8], match_info: u64, mask: u64) -> Request {
    // SAFETY: the tests keep the buffer until the request is over.
    unsafe { endpoint.irecv(&[Segment::of_mut(buffer)], match_info, mask, 0) }.unwrap()
}

fn isend(endpoint: &Endpoint, data: &[u8], to: Address, match_info: u64, synchronous: bool) -> Request {
    // SAFETY: the tests keep the buffer until the request is over.
    unsafe { endpoint.isend(&[Segment::of(data)], to, match_info, 0, synchronous) }.unwrap()
}

fn wait(endpoint: &Endpoint, request: Request) -> Status {
    endpoint.wait(request, LIMIT).unwrap().expect("within the limit")
}

#[test]
fn packets_lost_on_purpose_are_sent_again() {
    let lossy = EndpointOptions {
        packet_loss: vec![(Lost::Any, 5)],
        ..options()
    };
    let Pair { a, b, to_b } = pair_with(&lossy);
    for (number, len) in [0, 100, 5000, 200_000].into_iter().cycle().take(12).enumerate() {
        let (data, mut buffer) = (bytes(len, number), vec![0; len]);
        let receive = irecv(&b, &mut buffer, 1, u64::MAX);
        let send = isend(&a, &data, to_b, 1, false);
        wait(&b, receive);
        wait(&a, send);
        assert_eq!(buffer, data);
    }
    assert!(a.counters().get(Counter::LostOnPurpose) > 5 && b.counters().get(Counter::LostOnPurpose) > 0);
}

#[test]
fn messages_of_every_class_arrive_whole_expected_and_unexpected() {
    let Pair { a, b, to_b } = pair();
    for len in [0, 1, 32, 33, 128, 129, 1400, 5000, 32_768, 32_769, 200_000, 1 << 20] {
        for expected in [true, false] {
            let data = bytes(len, len);
            let mut got = vec![0; len];
            let posted = expected.then(|| irecv(&b, &mut got, 5, u64::MAX));
            let sender = thread::spawn({
                let (a, data) = (a.clone(), data.clone());
                move || a.send(&data, to_b, 5).unwrap()
            });
            let receive = posted.unwrap_or_else(|| {
                let seen = b.probe(5, u64::MAX, LIMIT).unwrap().expect("within the limit");
                assert_eq!((seen.length as usize, seen.match_info), (len, 5));
                irecv(&b, &mut got, 0, 0)
            });
            let status = wait(&b, receive);
            assert_eq!(
                (status.code, status.length as usize),
                (StatusCode::Success, len),
                "{len} {expected}"
            );
            assert_eq!(status.transferred as usize, len);
            let sent = sender.join().unwrap();
            assert_eq!((sent.code, sent.transferred as usize), (StatusCode::Success, len));
            assert!(got == data, "{len} bytes, expected {expected}");
        }
    }
}

#[test]
fn a_received_address_can_be_answered_at_once() {
    let Pair { a, b, to_b } = pair();
    a.send(b"question", to_b, 1).unwrap();
    let mut buffer = [0; 16];
    let status = b.receive(&mut buffer, 1, u64::MAX).unwrap();
    let source = status.address.unwrap();
    assert_eq!((source.mac(), source.endpoint()), (a.address().mac(), 0));
    b.send(b"answer", source, 2).unwrap();
    assert_eq!(a.receive(&mut buffer, 2, u64::MAX).unwrap().transferred, 6);
    assert_eq!(&buffer[..6], b"answer");
}

#[test]
fn a_short_buffer_gets_the_beginning_and_a_large_sender_learns_of_it() {
    let Pair { a, b, to_b } = pair();
    for len in [100, 5000, 100_000] {
        let data = bytes(len, 3);
        let mut got = vec![0; len / 2];
        let receive = irecv(&b, &mut got, 0, 0);
        let sender = thread::spawn({
            let (a, data) = (a.clone(), data.clone());
            move || a.send(&data, to_b, 9).unwrap()
        });
        let status = wait(&b, receive);
        assert_eq!(status.code, StatusCode::Truncated);
        assert_eq!((status.length as usize, status.transferred as usize), (len, len / 2));
        assert!(got == data[..len / 2]);
        let large = len > 32_768;
        let expected = if large {
            StatusCode::Truncated
        } else {
            StatusCode::Success
        };
        assert_eq!(sender.join().unwrap().code, expected, "{len}");
    }
}

#[test]
fn lists_of_256_segments_are_sent_and_received_and_257_refused() {
    let Pair { a, b, to_b } = pair();
    for piece in [1usize, 17, 700] {
        let data = bytes(256 * piece, piece);
        let mut got = vec![0; 256 * piece];
        let sends: Vec<Segment> = data.chunks(piece).map(Segment::of).collect();
        let receives: Vec<Segment> = got.chunks_mut(piece).rev().map(Segment::of_mut).collect();
        // SAFETY: both buffers live until both requests are over.
        let (receive, send) = unsafe {
            (
                b.irecv(&receives, 4, u64::MAX, 0).unwrap(),
                a.isend(&sends, to_b, 4, 0, true).unwrap(),
            )
        };
        let receiver = thread::spawn({
            let b = b.clone();
            move || wait(&b, receive)
        });
        assert_eq!(wait(&a, send).code, StatusCode::Success);
        assert_eq!(receiver.join().unwrap().transferred as usize, data.len());
        let turned: Vec<u8> = got.chunks(piece).rev().flatten().copied().collect();
        assert!(turned == data);
    }
    let many = vec![Segment::of(b"x"); 257];
    // SAFETY: refused.
    let refused = unsafe { a.isend(&many, to_b, 0, 0, false) };
    assert!(matches!(refused, Err(Error::BadSegments)));
    assert!(matches!(
        a.iconnect(a.address().mac(), 1, KEY, 0, 0),
        Err(Error::SameInterface)
    ));
}

#[test]
fn posted_receives_match_in_order_and_by_mask() {
    let Pair { a, b, to_b } = pair();
    let (mut one, mut two, mut three) = ([0u8; 8], [0u8; 8], [0u8; 8]);
    let first = irecv(&b, &mut one, 0x10, 0xf0);
    let exact = irecv(&b, &mut two, 0x12, u64::MAX);
    let any = irecv(&b, &mut three, 0, 0);
    for (info, text) in [(0x12, b"a"), (0x12, b"b"), (0x99, b"c")] {
        a.send(text, to_b, info).unwrap();
    }
    assert_eq!(wait(&b, first).match_info, 0x12);
    assert_eq!(wait(&b, exact).match_info, 0x12);
    assert_eq!(wait(&b, any).match_info, 0x99);
    assert_eq!((one[0], two[0], three[0]), (b'a', b'b', b'c'));
    // SAFETY: refused.
    let bad = unsafe { b.irecv(&[], 0x100, 0xff, 0) };
    assert!(matches!(bad, Err(Error::BadMatchMask)));
}

#[test]
fn completions_are_found_by_match_information_in_order() {
    let Pair { a, b, to_b } = pair();
    for info in [7u64, 8, 7] {
        a.send(&[info as u8], to_b, info).unwrap();
    }
    let mut buffers = [[0u8; 4]; 3];
    let mut requests = Vec::new();
    for buffer in &mut buffers {
        requests.push(irecv(&b, buffer, 0, 0));
    }
    let (got, status) = b.wait_any(8, u64::MAX, LIMIT).unwrap().unwrap();
    assert_eq!((got, status.match_info), (requests[1], 8));
    assert_eq!(b.peek(LIMIT).unwrap(), Some(requests[0]));
    assert_eq!(wait(&b, requests[2]).match_info, 7);
    assert_eq!(b.wait_any(0, 0, LIMIT).unwrap().unwrap().0, requests[0]);
    assert_eq!((b.test_any(0, 0).unwrap(), b.ipeek().unwrap()), (None, None));
    assert!(matches!(b.test(requests[0]), Err(Error::BadRequest)), "it is over");
}

#[test]
fn cancel_takes_back_what_has_no_message_and_nothing_else() {
    let Pair { a, b, to_b } = pair();
    let mut buffer = [0; 8];
    let receive = irecv(&b, &mut buffer, 1, u64::MAX);
    assert!(b.cancel(receive).unwrap());
    assert!(matches!(b.test(receive), Err(Error::BadRequest)));
    let kept = irecv(&b, &mut buffer, 1, u64::MAX);
    assert!(b.cancel_and_keep(kept).unwrap());
    assert_eq!(wait(&b, kept).code, StatusCode::Cancelled);
    a.send(b"x", to_b, 1).unwrap();
    let late = irecv(&b, &mut buffer, 1, u64::MAX);
    while b.ipeek().unwrap().is_none() {}
    assert!(!b.cancel(late).unwrap());
    assert_eq!(wait(&b, late).transferred, 1);
    let send = isend(&a, &[0; 50_000], to_b, 3, true);
    assert!(matches!(a.cancel(send), Err(Error::BadRequest)));
    let absent = a.iconnect(MacAddr([2, 0, 0, 0, 0, 9]), 0, 0, 0, 0).unwrap();
    assert!(a.cancel(absent).unwrap());
    a.disconnect(to_b).unwrap();
    assert_eq!(wait(&a, send).code, StatusCode::Unreachable);
}

#[test]
fn a_partner_that_was_given_up_stays_unreachable_until_it_shows_itself() {
    let impatient = EndpointOptions {
        give_up: Duration::from_secs(1),
        progress: false,
        ..options()
    };
    let Pair { a, b: _silent, to_b } = pair_with(&impatient);
    for len in [10, 100_000] {
        for synchronous in [true, false] {
            let data = bytes(len, 1);
            // Only the first waits: from then on nothing is sent.
            let send = isend(&a, &data, to_b, 1, synchronous);
            assert_eq!(wait(&a, send).code, StatusCode::Unreachable, "{len} {synchronous}");
        }
    }
}

#[test]
fn messages_to_oneself_complete_when_matched_and_use_no_frame() {
    let Pair { a, .. } = pair();
    let own = a.connect(a.address().mac(), 0, KEY, LIMIT).unwrap();
    assert_eq!(own, a.address());
    let before = a.counters();
    let mut data = bytes(100_000, 1);
    let send = isend(&a, &data, own, 6, false);
    assert!(a.is_buffered(send).unwrap());
    let copy = data.clone();
    data.fill(0);
    assert_eq!(a.test(send).unwrap(), None);
    assert_eq!(a.iprobe(6, u64::MAX).unwrap().unwrap().length, 100_000);
    let mut got = vec![0; 60_000];
    let status = a.receive(&mut got, 6, u64::MAX).unwrap();
    assert_eq!((status.code, status.address), (StatusCode::Truncated, Some(own)));
    assert_eq!(wait(&a, send).code, StatusCode::Truncated);
    assert!(got == copy[..60_000]);
    let receive = irecv(&a, &mut got, 6, u64::MAX);
    let send = isend(&a, b"me", own, 6, true);
    assert_eq!((wait(&a, receive).transferred, wait(&a, send).transferred), (2, 2));
    assert_eq!(a.counters().get(Counter::SendTiny), before.get(Counter::SendTiny));
    assert!(matches!(
        a.connect(a.address().mac(), 0, KEY + 1, LIMIT),
        Err(Error::Failed(StatusCode::BadKey))
    ));
}

#[test]
fn receives_must_hold_the_context_id_in_their_mask() {
    let with = |context_id| EndpointOptions {
        context_id,
        ..options()
    };
    let Pair { a, b, to_b } = pair_with(&with((4, 60)));
    // SAFETY: an empty list.
    let bad = unsafe { b.irecv(&[], 0, 0x0fff_ffff_ffff_ffff, 0) };
    assert!(matches!(bad, Err(Error::BadMaskForContextId)));
    a.send(b"", to_b, 3 << 60).unwrap();
    assert!(b.probe(0, 0, LIMIT).unwrap().is_some(), "probes may leave it out");
    b.receive(&mut [], 3 << 60, u64::MAX).unwrap();
    let (port, _other) = memory_pair([MacAddr([2; 6]), MacAddr([4; 6])], 1500, 4).unwrap();
    let bad = Endpoint::open_on(&with((17, 0)), Box::new(port), Preset::Native1500);
    assert!(matches!(bad, Err(Error::BadParameter)));
}

#[test]
fn at_the_limit_of_unexpected_bytes_nothing_is_lost() {
    let options = EndpointOptions {
        unexpected_bytes_max: 64 << 10,
        ..options()
    };
    let Pair { a, b, to_b } = pair_with(&options);
    let data = bytes(8000, 0);
    let sender = thread::spawn({
        let (a, data) = (a.clone(), data.clone());
        move || {
            for info in 0..40 {
                a.send(&data, to_b, info).unwrap();
            }
        }
    });
    let mut got = vec![0; 8000];
    while b.counters().get(Counter::UnexpEventqFull) == 0 {
        b.progress();
    }
    for info in 0..40 {
        got.fill(0);
        assert_eq!(b.receive(&mut got, info, u64::MAX).unwrap().transferred, 8000);
        assert!(got == data);
    }
    sender.join().unwrap();
}

#[test]
fn a_closed_endpoint_says_so() {
    let Pair { a, b, to_b } = pair();
    let waiter = thread::spawn({
        let b = b.clone();
        move || b.peek(None)
    });
    b.clone().close().unwrap();
    assert!(matches!(waiter.join().unwrap(), Err(Error::BadEndpoint)));
    assert!(matches!(b.iprobe(0, 0), Err(Error::BadEndpoint)));
    // There is no answer: given up within the request's own time.
    let send = isend(&a, &[1; 40_000], to_b, 0, false);
    a.set_request_timeout(Some(send), Duration::from_millis(200)).unwrap();
    assert_eq!(wait(&a, send).code, StatusCode::Unreachable);
}
