//! Data of large messages that a port receives on a bulk path.

use std::{sync::atomic::Ordering, time::Instant};

use omx::StatusCode;

use crate::{LIMIT, Pair, irecv, isend, pair, unhelped};

#[test]
fn a_port_is_told_to_expect_data_from_when_it_is_asked_for_until_it_is_there() {
    let Pair {
        a,
        b,
        to_b,
        told: [_, told],
    } = pair(&unhelped());
    told.has_bulk_path.store(true, Ordering::Relaxed);
    let expects = || told.expects.load(Ordering::Relaxed);
    for len in [8, 300_000, 8, 300_000] {
        let data = vec![len as u8; len];
        let mut received = vec![0; len];
        let large = len > 1000;
        let data_before = told.data.load(Ordering::Relaxed);
        let (send, receive) = (isend(&a, &data, to_b), irecv(&b, &mut received));
        let begin = Instant::now();
        let mut expected = false;
        let status = loop {
            expected |= expects();
            if let Some(status) = b.test(receive).unwrap() {
                break status;
            }
            a.progress();
            assert!(begin.elapsed() < LIMIT, "{len} bytes do not arrive");
        };
        assert_eq!((status.code, status.transferred as usize), (StatusCode::Success, len));
        assert!(received == data);
        assert_eq!(expected, large, "{len} bytes");
        assert_eq!(told.data.load(Ordering::Relaxed) > data_before, large);
        while a.test(send).unwrap().is_none() {
            b.progress();
            assert!(begin.elapsed() < LIMIT, "the send does not end");
        }
        b.progress();
        assert!(!expects(), "nothing is to come any more");
    }
}
