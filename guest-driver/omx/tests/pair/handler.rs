//! The unexpected handler: what it sees, consumes and posts, and what others find meanwhile.

use std::{
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Instant,
};

use omx::{Action, Endpoint, Error, Segment, StatusCode, Unexpected};

use crate::{KEY, LIMIT, Pair, bytes, isend, pair, wait};

#[test]
fn the_handler_sees_what_is_unexpected_and_may_consume_it_or_post() {
    let Pair { a, b, to_b } = pair();
    let seen = Arc::new(AtomicUsize::new(0));
    let mut buffer = Box::new([0u8; 16]);
    let place = Segment::of_mut(&mut buffer[..]);
    let place = (place.ptr as usize, place.len);
    b.set_unexpected_handler(Some(Box::new({
        let seen = Arc::clone(&seen);
        move |endpoint, message| {
            seen.fetch_add(1, Ordering::Relaxed);
            match message.match_info {
                1 => {
                    assert_eq!(message.data, Some(&b"eat me"[..]));
                    assert!(matches!(endpoint.clone().close(), Err(Error::InHandler)));
                    Action::Finished
                }
                2 => {
                    let segment = Segment {
                        ptr: place.0 as *mut u8,
                        len: place.1,
                    };
                    // SAFETY: the test keeps the buffer until the request is over.
                    unsafe { endpoint.irecv(&[segment], 2, u64::MAX, 22) }.unwrap();
                    Action::Continue
                }
                3 => {
                    assert_eq!((message.length, message.data), (100_000, None));
                    Action::Finished
                }
                _ => Action::Continue,
            }
        }
    })));
    a.send(b"eat me", to_b, 1).unwrap();
    a.send(b"post", to_b, 2).unwrap();
    let (_, status) = b.wait_any(2, u64::MAX, LIMIT).unwrap().unwrap();
    assert_eq!((status.context, status.transferred), (22, 4));
    assert_eq!(&buffer[..4], b"post");
    let large = bytes(100_000, 0);
    let send = isend(&a, &large, to_b, 3, false);
    let receiver = thread::spawn({
        let b = b.clone();
        move || b.probe(4, u64::MAX, LIMIT).unwrap().expect("within the limit")
    });
    assert_eq!(wait(&a, send).code, StatusCode::Truncated, "declined");
    a.send(b"stays", to_b, 4).unwrap();
    assert_eq!(receiver.join().unwrap().length, 5);
    assert_eq!(b.iprobe(1, u64::MAX).unwrap(), None, "consumed");
    assert_eq!(seen.load(Ordering::Relaxed), 4);
}

/// It does not matter whether the last fragment came in the same poll as the first one.
#[test]
fn the_handler_gets_the_bytes_of_a_message_in_one_fragment_and_never_those_of_one_in_several() {
    let Pair { a, b, to_b } = pair();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let seen = Arc::clone(&seen);
        move |_: &Endpoint, message: Unexpected<'_>| {
            seen.lock()
                .unwrap()
                .push((message.length, message.data.map(<[u8]>::to_vec)));
            Action::Continue
        }
    };
    b.set_unexpected_handler(Some(Box::new(handler)));
    for len in [1000, 3000, 32_000] {
        let data = bytes(len, len);
        a.send(&data, to_b, 1).unwrap();
        let mut got = vec![0; len];
        let status = loop {
            // All that there is in one poll.
            if let Some(status) = b.iprobe(1, u64::MAX).unwrap() {
                break status;
            }
        };
        assert_eq!(status.length as usize, len);
        b.receive(&mut got, 1, u64::MAX).unwrap();
        assert!(got == data);
    }
    let expected = [(1000, Some(bytes(1000, 1000))), (3000, None), (32_000, None)];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn a_receive_posted_in_the_handler_gets_the_message_only_if_the_handler_leaves_it() {
    let Pair { a, b, to_b } = pair();
    let own = b
        .connect(b.address().mac(), b.address().endpoint(), KEY, LIMIT)
        .unwrap();
    let mut buffers = [[0u8; 16]; 2];
    let places = buffers.each_mut().map(|buffer| {
        let segment = Segment::of_mut(buffer);
        (segment.ptr as usize, segment.len)
    });
    let shown = Arc::new(AtomicUsize::new(0));
    let handle_with = |action: Action, post: usize| {
        let shown = Arc::clone(&shown);
        b.set_unexpected_handler(Some(Box::new(move |endpoint, _| {
            if shown.fetch_add(1, Ordering::Relaxed) == 0 {
                for (ptr, len) in places.iter().take(post) {
                    let segment = Segment {
                        ptr: *ptr as *mut u8,
                        len: *len,
                    };
                    // SAFETY: the test keeps the buffers until the requests are over.
                    unsafe { endpoint.irecv(&[segment], 0, 0, 0) }.unwrap();
                    assert_eq!(endpoint.iprobe(0, 0).unwrap(), None, "it is not decided yet");
                }
            }
            action
        })));
    };
    let received = || {
        let (_, status) = b.wait_any(0, 0, LIMIT).unwrap().unwrap();
        (status.match_info, status.transferred)
    };
    let large = bytes(100_000, 0);

    handle_with(Action::Finished, 1);
    a.send(b"first", to_b, 1).unwrap();
    a.send(b"the second", to_b, 2).unwrap();
    assert_eq!(received(), (2, 10));
    assert_eq!(shown.swap(0, Ordering::Relaxed), 1, "the second one was expected");

    let send = isend(&a, &large, to_b, 3, false);
    a.send(b"next", to_b, 4).unwrap();
    assert_eq!(received(), (4, 4));
    assert_eq!(wait(&a, send).code, StatusCode::Truncated, "declined");
    shown.store(0, Ordering::Relaxed);

    handle_with(Action::Continue, 2);
    a.send(b"5", to_b, 5).unwrap();
    a.send(b"66", to_b, 6).unwrap();
    assert_eq!([received(), received()], [(5, 1), (6, 2)], "in order");

    shown.store(0, Ordering::Relaxed);
    handle_with(Action::Finished, 0);
    let send = isend(&b, b"to me", own, 7, false);
    let status = wait(&b, send);
    assert_eq!(
        (status.code, status.transferred),
        (StatusCode::Success, 5),
        "the handler had it"
    );
}

#[test]
fn receives_and_messages_of_the_handler_keep_their_order() {
    let Pair { b, .. } = pair();
    let own = b
        .connect(b.address().mac(), b.address().endpoint(), KEY, LIMIT)
        .unwrap();
    for (action, expected) in [(Action::Continue, [1, 3]), (Action::Finished, [2, 3])] {
        let posted = Arc::new(Mutex::new(Vec::new()));
        b.set_unexpected_handler(Some(Box::new({
            let posted = Arc::clone(&posted);
            move |endpoint, message| {
                if message.match_info != 1 {
                    return Action::Continue;
                }
                for info in [2, 3] {
                    let send = isend(endpoint, b"", own, info, false);
                    endpoint.forget(send).unwrap();
                    if info == 2 {
                        // SAFETY: no memory.
                        posted
                            .lock()
                            .unwrap()
                            .push(unsafe { endpoint.irecv(&[], 0, 0, 0) }.unwrap());
                        // SAFETY: no memory.
                        posted
                            .lock()
                            .unwrap()
                            .push(unsafe { endpoint.irecv(&[], 3, u64::MAX, 0) }.unwrap());
                    }
                }
                action
            }
        })));
        let send = isend(&b, b"", own, 1, false);
        wait(&b, send);
        let posted = std::mem::take(&mut *posted.lock().unwrap());
        let got: Vec<_> = posted.into_iter().map(|receive| wait(&b, receive).match_info).collect();
        assert_eq!(got, expected, "{action:?}");
        b.set_unexpected_handler(None);
        while b.iprobe(0, 0).unwrap().is_some() {
            b.receive(&mut [], 0, 0).unwrap();
        }
    }
}

#[test]
fn who_probes_while_the_handler_runs_learns_of_the_message_when_it_returns() {
    let Pair { a, b, to_b } = pair();
    let (runs, ends) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    b.set_unexpected_handler(Some(Box::new({
        let (runs, ends) = (Arc::clone(&runs), Arc::clone(&ends));
        move |_, _| {
            runs.wait();
            ends.wait();
            Action::Continue
        }
    })));
    a.send(b"x", to_b, 1).unwrap();
    thread::scope(|threads| {
        let progress = threads.spawn(|| {
            while b.iprobe(0, 0).unwrap().is_none() {
                b.progress();
            }
        });
        runs.wait();
        let (say, told) = mpsc::channel();
        let b = &b;
        let prober = threads.spawn(move || {
            say.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
            b.probe(0, 0, LIMIT).unwrap().map(|status| status.match_info)
        });
        let stat = format!("/proc/self/task/{}/stat", told.recv().unwrap());
        while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
            thread::yield_now();
        }
        let begin = Instant::now();
        ends.wait();
        assert_eq!(prober.join().unwrap(), Some(1));
        assert!(begin.elapsed() < LIMIT.unwrap() / 2, "it slept on");
        progress.join().unwrap();
    });
}
