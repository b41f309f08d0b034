//! Promises of the in-memory pair: order, back-pressure, waking, and an end that is noticed.

use std::{
    io::IoSlice,
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use ether::MacAddr;
use netif::{BURST_MAX, FrameLender, Interest, MemoryPort, Netif, NetifError, Wake, memory_pair};
use proptest::prelude::*;

const LIMIT: Duration = Duration::from_secs(10);

fn pair(queue_frames_max: usize) -> (MemoryPort, MemoryPort) {
    memory_pair(
        [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])],
        1500,
        queue_frames_max,
    )
    .unwrap()
}

proptest! {
    #[test]
    fn what_is_taken_arrives_in_order_and_no_more_than_fits_is_taken(
        queue in 1..40_usize, bursts in prop::collection::vec((0..80_usize, 0..60_usize), 1..20),
    ) {
        let (mut a, mut b) = pair(queue);
        let (mut sent, mut received) = (0_u32, 0_u32);
        for (send, take) in bursts {
            let numbers: Vec<[u8; 4]> = (0..send as u32).map(|i| (sent + i).to_be_bytes()).collect();
            let parts: Vec<[IoSlice<'_>; 2]> =
                numbers.iter().map(|n| [IoSlice::new(&n[..1]), IoSlice::new(&n[1..])]).collect();
            let frames: Vec<&[IoSlice<'_>]> = parts.iter().map(|p| &p[..]).collect();
            let waiting = (sent - received) as usize;
            let taken = a.send_burst(&frames).unwrap();
            prop_assert_eq!(taken, send.min(BURST_MAX).min(queue - waiting));
            sent += taken as u32;
            for _ in 0..take {
                match b.poll_receive().unwrap() {
                    Some(frame) => {
                        prop_assert_eq!(frame, received.to_be_bytes());
                        received += 1;
                    }
                    None => prop_assert_eq!(received, sent),
                }
            }
        }
    }
}

#[test]
fn two_threads_exchange_frames_through_short_queues_without_losing_a_wake_up() {
    let (mut a, mut b) = pair(4);
    let count = 20_000_u32;
    thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..count {
                while !a.send(&[IoSlice::new(&i.to_be_bytes())]).unwrap() {
                    assert_eq!(
                        a.wait(Interest::Send, Instant::now() + LIMIT, None).unwrap(),
                        Wake::Ready
                    );
                }
            }
            // The other side's end is noticed.
            let error = a.wait(Interest::Receive, Instant::now() + LIMIT, None).unwrap_err();
            assert!(matches!(error, NetifError::Down { .. }));
        });
        for i in 0..count {
            loop {
                if let Some(frame) = b.poll_receive().unwrap() {
                    assert_eq!(frame, i.to_be_bytes());
                    break;
                }
                assert_eq!(
                    b.wait(Interest::Receive, Instant::now() + LIMIT, None).unwrap(),
                    Wake::Ready
                );
            }
        }
        drop(b);
    });
}

#[test]
fn frames_sent_before_the_peer_ended_are_still_received() {
    let (mut a, mut b) = pair(4);
    assert!(a.send(&[IoSlice::new(b"last")]).unwrap());
    drop(a);
    assert_eq!(
        b.wait(Interest::Receive, Instant::now() + LIMIT, None).unwrap(),
        Wake::Ready
    );
    assert_eq!(b.poll_receive().unwrap(), Some(&b"last"[..]));
    assert!(matches!(b.poll_receive(), Err(NetifError::Down { .. })));
    assert!(matches!(b.send(&[IoSlice::new(b"x")]), Err(NetifError::Down { .. })));
}

#[test]
fn stop_and_deadline_end_a_wait() {
    let (mut a, _b) = pair(4);
    assert_eq!(
        a.wait(Interest::Receive, Instant::now() + Duration::from_millis(5), None)
            .unwrap(),
        Wake::Deadline
    );
    let (stop, stopper) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(stopper);
    assert_eq!(
        a.wait(Interest::Receive, Instant::now() + LIMIT, Some(stop.as_fd()))
            .unwrap(),
        Wake::Stop
    );
}

#[test]
fn too_long_frames_are_refused_and_those_before_them_are_sent() {
    let (mut a, mut b) = pair(8);
    let (short, long) = ([1; 1514], [2; 1515]);
    let (short, long) = ([IoSlice::new(&short)], [IoSlice::new(&long)]);
    assert_eq!(a.send_burst(&[&short, &long, &short]).unwrap(), 1);
    assert!(matches!(
        a.send_burst(&[&long]),
        Err(NetifError::FrameTooLong { len_max: 1514, .. })
    ));
    assert_eq!(b.poll_receive().unwrap().map(<[u8]>::len), Some(1514));
    assert_eq!(b.poll_receive().unwrap(), None);
}

#[test]
fn m_om_a_frames_that_are_kept_stay_as_they_are_until_they_are_released() {
    let (mut a, mut b) = pair(4);
    assert!(!b.keep(), "there is no frame");
    let kept_max = b.kept_max();
    let mut kept = Vec::new();
    let mut number = 0_u32;
    for round in 0..20 {
        while kept.len() < kept_max {
            assert!(a.send(&[IoSlice::new(&number.to_be_bytes())]).unwrap());
            let frame = b.poll_receive().unwrap().unwrap().as_ptr_range();
            // Every third goes back with the next call.
            if number.is_multiple_of(3) {
                assert!(b.keep());
                assert!(!b.keep(), "each once");
                kept.push((frame, number));
            }
            number += 1;
        }
        assert!(a.send(&[IoSlice::new(&number.to_be_bytes())]).unwrap());
        assert_eq!(b.poll_receive().unwrap().unwrap(), number.to_be_bytes());
        assert!(!b.keep(), "no more than are promised");
        number += 1;
        let mut moved = b;
        for (frame, number) in &kept {
            // SAFETY: the frame is kept.
            let bytes = unsafe { std::slice::from_raw_parts(frame.start, 4) };
            assert_eq!(bytes, number.to_be_bytes());
        }
        let count = 1 + round % kept_max;
        moved.release(count);
        kept.drain(..count);
        b = moved;
    }
}
