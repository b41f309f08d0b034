//! Short sends that leave at once, over ports joined in memory that can be told to be full.

use std::{
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ether::MacAddr;
use mxoe::wire::Preset;
use netif::{Interest, MemoryPort, Netif, NetifCounters, NetifError, Wake, memory_pair};
use omx::{Address, Counter, Endpoint, EndpointOptions, Request, Segment, StatusCode};

const LIMIT: Duration = Duration::from_secs(20);

struct Port {
    port: MemoryPort,
    full: Arc<AtomicBool>,
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

impl Netif for Port {
    fn mac(&self) -> MacAddr {
        self.port.mac()
    }
    fn mtu(&self) -> usize {
        self.port.mtu()
    }
    fn poll_receive(&mut self) -> Result<Option<&[u8]>, NetifError> {
        self.port.poll_receive()
    }
    fn send_burst(&mut self, frames: &[&[IoSlice<'_>]]) -> Result<usize, NetifError> {
        if self.full.load(Ordering::Relaxed) {
            return Ok(0);
        }
        self.port.send_burst(frames)
    }
    fn wait(
        &mut self,
        interest: Interest,
        deadline: Instant,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Wake, NetifError> {
        self.port.wait(interest, deadline, stop)
    }
    fn counters(&mut self) -> NetifCounters {
        self.port.counters()
    }
}

/// Two endpoints, the address of the second as the first knows it, and whether the first one's port is full.
fn pair(options: &EndpointOptions) -> (Endpoint, Endpoint, Address, Arc<AtomicBool>) {
    let macs = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
    let (port_a, port_b) = memory_pair(macs, 1500, 2048).unwrap();
    let full = Arc::new(AtomicBool::new(false));
    let port_a = Port {
        port: port_a,
        full: Arc::clone(&full),
    };
    let a = Endpoint::open_on(options, Box::new(port_a), Preset::Native1500).unwrap();
    let b = Endpoint::open_on(options, Box::new(port_b), Preset::Native1500).unwrap();
    let request = a.iconnect(macs[1], 0, 0, 0, 0).unwrap();
    let begin = Instant::now();
    let connected = loop {
        b.progress();
        if let Some(status) = a.test(request).unwrap() {
            break status;
        }
        assert!(begin.elapsed() < LIMIT, "no connection");
    };
    (a, b, connected.address.unwrap(), full)
}

fn isend(endpoint: &Endpoint, data: &[u8], to: Address) -> Request {
    // SAFETY: the tests keep the data until the request is over.
    unsafe { endpoint.isend(&[Segment::of(data)], to, 3, 0, false) }.unwrap()
}

fn irecv(endpoint: &Endpoint, data: &mut [u8]) -> Request {
    // SAFETY: the tests keep the buffer until the request is over.
    unsafe { endpoint.irecv(&[Segment::of_mut(data)], 3, u64::MAX, 0) }.unwrap()
}

fn unhelped() -> EndpointOptions {
    EndpointOptions {
        progress: false,
        ..EndpointOptions::default()
    }
}

#[test]
fn a_message_that_met_a_full_port_is_counted_once() {
    let (a, _b, to_b, full) = pair(&unhelped());
    full.store(true, Ordering::Relaxed);
    let send = isend(&a, &[1; 8], to_b);
    full.store(false, Ordering::Relaxed);
    a.test(send).unwrap();
    // Enough looks for a whole step.
    for _ in 0..40 {
        a.ipeek().unwrap();
    }
    assert_eq!(
        a.counters().get(Counter::SendTiny),
        1,
        "counted when it was written and again"
    );
}

#[test]
fn after_a_full_port_the_next_call_sends() {
    let (a, b, to_b, full) = pair(&unhelped());
    let mut got = [0; 8];
    let receive = irecv(&b, &mut got);
    full.store(true, Ordering::Relaxed);
    isend(&a, &[1; 8], to_b);
    full.store(false, Ordering::Relaxed);
    let mut calls = 0;
    while b.test(receive).unwrap().is_none() {
        calls += 1;
        assert!(calls < 100);
        // A call that makes progress on a.
        let _ = a.ipeek().unwrap();
        b.progress();
    }
    assert!(calls <= 1, "{calls} calls");
}

#[test]
fn short_sends_that_meet_a_full_port_arrive_once_and_in_order() {
    let (a, b, to_b, full) = pair(&EndpointOptions::default());
    let mut got = [[0u8; 8]; 20];
    let receives: Vec<_> = got.iter_mut().map(|got| irecv(&b, got)).collect();
    for number in 0..20u8 {
        full.store(number % 3 != 0, Ordering::Relaxed);
        isend(&a, &[number; 8], to_b);
    }
    full.store(false, Ordering::Relaxed);
    for receive in receives {
        let status = b.wait(receive, Some(LIMIT)).unwrap().expect("within the limit");
        assert_eq!(status.code, StatusCode::Success);
    }
    for (number, got) in got.iter().enumerate() {
        assert_eq!(*got, [number as u8; 8]);
    }
    assert_eq!(
        a.counters().get(Counter::ResentMessages),
        0,
        "none was thought to be on the wire"
    );
}

#[test]
fn nothing_leaves_while_progress_is_stopped() {
    let (a, _b, to_b, _) = pair(&unhelped());
    a.disable_progression();
    isend(&a, &[1; 8], to_b);
    assert_eq!(a.counters().get(Counter::SendTiny), 0);
    a.reenable_progression();
    a.progress();
    assert_eq!(a.counters().get(Counter::SendTiny), 1);
}

#[test]
fn a_short_send_overtakes_nothing_that_waits_for_the_port() {
    let (a, b, to_b, full) = pair(&unhelped());
    let mut got = [[0u8; 8]; 2];
    let receives: Vec<_> = got.iter_mut().map(|got| irecv(&b, got)).collect();
    full.store(true, Ordering::Relaxed);
    isend(&a, &[1; 8], to_b);
    // It is in the burst now, and the port is full.
    a.progress();
    full.store(false, Ordering::Relaxed);
    isend(&a, &[2; 8], to_b);
    for receive in receives {
        b.wait(receive, Some(LIMIT)).unwrap().expect("within the limit");
    }
    assert_eq!(got, [[1; 8], [2; 8]]);
    assert_eq!(b.counters().get(Counter::RecvEarly), 0, "in order on the wire");
}
