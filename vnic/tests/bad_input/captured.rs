//! Captures that come and go under traffic: what one thread has allocated and another has freed stays with no one.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, Neighbours};

/// Captures before the first reading, and between it and the second.
const CAPTURES: u32 = 30;
/// How long each of them is read.
const LENGTH: Duration = Duration::from_millis(60);
/// Memory that the allocator may have for itself more at the second reading: one capture's buffers.
const SLACK: u64 = 8 << 20;

/// Captures both ports for a while; returns the bytes that came. It ends by a hang-up or, `in_order`, by the end of requests.
fn capture(daemon: &Daemon, in_order: bool) -> usize {
    let mut stream = UnixStream::connect(daemon.folder.path().join("control.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    stream.write_all(b"{\"op\":\"capture\"}\n").unwrap();
    let (mut bytes, mut count) = (vec![0; 1 << 20], 0);
    let end = Instant::now() + LENGTH;
    while Instant::now() < end {
        count += stream.read(&mut bytes).unwrap_or(0);
    }
    if in_order {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        while let Ok(more @ 1..) = stream.read(&mut bytes) {
            count += more;
        }
    }
    count
}

#[test]
fn captures_that_come_and_go_under_traffic_leave_the_memory_of_the_process_as_it_is() {
    let daemon = Daemon::start(&["left", "right"]);
    let neighbours = Neighbours::start(&daemon);
    let mut captured = 0;
    let mut run = || {
        for number in 0..CAPTURES {
            captured += capture(&daemon, number % 2 == 0);
        }
        daemon.settled_use().anonymous_bytes
    };
    let before = run();
    let after = run();
    println!("{captured} bytes captured; {before} bytes of memory before, {after} after");
    assert!(captured > 1 << 20);
    assert!(after <= before + SLACK, "{before} bytes before, {after} after");
    neighbours.finish();
    daemon.finish();
}
