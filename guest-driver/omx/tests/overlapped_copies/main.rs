//! Copies of large messages that an engine makes while the processor goes on (papers.md M-OM-A), and that a program's computation
//! hides (M-CI4).

mod equal;
mod overlap;
mod port;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use ether::MacAddr;
use mxoe::wire::Preset;
use omx::{Address, CopyEngine, CopyEngineKind, Endpoint, EndpointOptions, Request, Segment, StatusCode};

use crate::port::{Faults, Lending, lossy_pair};

const LIMIT: Duration = Duration::from_secs(60);
const MTU: usize = 9000;

/// Endpoints without the helper thread, whose own engine is none.
fn options() -> EndpointOptions {
    EndpointOptions {
        progress: false,
        copy_engine: CopyEngineKind::None,
        packet_loss: Vec::new(),
        ..EndpointOptions::default()
    }
}

/// Two endpoints that know each other.
struct Pair {
    a: Endpoint,
    b: Endpoint,
    /// The second's address as the first knows it.
    to_b: Address,
    /// What the second one's port lends.
    lending: Arc<Mutex<Lending>>,
}

fn pair_with(options: &EndpointOptions, faults: Faults) -> Pair {
    let macs = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
    let (port_a, port_b) = lossy_pair(macs, MTU, faults);
    let lending = port_b.lending();
    let a = Endpoint::open_on(options, Box::new(port_a), Preset::Native9000).unwrap();
    let b = Endpoint::open_on(options, Box::new(port_b), Preset::Native9000).unwrap();
    let request = a.iconnect(macs[1], 0, options.key, 0, 0).unwrap();
    let begin = Instant::now();
    let to_b = loop {
        b.progress();
        if let Some(status) = a.test(request).unwrap() {
            break status.address.unwrap();
        }
        assert!(begin.elapsed() < LIMIT, "no connection");
    };
    Pair { a, b, to_b, lending }
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + seed) as u8).collect()
}

fn irecv(endpoint: &Endpoint, buffer: &mut [u8], match_info: u64) -> Request {
    // SAFETY: the tests keep the buffer until the request is over.
    unsafe { endpoint.irecv(&[Segment::of_mut(buffer)], match_info, u64::MAX, 0) }.unwrap()
}

fn isend(endpoint: &Endpoint, data: &[u8], to: Address, match_info: u64) -> Request {
    // SAFETY: the tests keep the data until the request is over.
    unsafe { endpoint.isend(&[Segment::of(data)], to, match_info, 0, false) }.unwrap()
}

/// What an engine was given, and is allowed to do.
#[derive(Default)]
struct Told {
    jobs: VecDeque<(usize, usize, usize)>,
    submitted: u64,
    finished: u64,
    /// The counts that were waited for.
    waits: Vec<u64>,
}

impl Told {
    /// Makes the copies that were submitted first.
    fn copy(&mut self, count: usize) {
        for (from, to, len) in self.jobs.drain(..count) {
            let from = std::ptr::with_exposed_provenance::<u8>(from);
            let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
            // SAFETY: what `submit` was promised holds until the copy is counted.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
            self.finished += 1;
        }
    }

    fn copy_all(&mut self) {
        self.copy(self.jobs.len());
    }
}

/// Copies when the test says so, or when it is waited for.
struct ToldEngine(Arc<Mutex<Told>>);

// SAFETY: a copy is made before it is counted, and nothing else touches memory.
unsafe impl CopyEngine for ToldEngine {
    unsafe fn submit(&mut self, from: *const u8, to: *mut u8, len: usize) -> bool {
        let mut told = self.0.lock().unwrap();
        told.jobs
            .push_back((from.expose_provenance(), to.expose_provenance(), len));
        told.submitted += 1;
        true
    }

    fn finished(&mut self) -> u64 {
        self.0.lock().unwrap().finished
    }

    fn wait(&mut self, count: u64) {
        let mut told = self.0.lock().unwrap();
        told.waits.push(count);
        while told.finished < count {
            told.copy(1);
        }
    }
}

/// Gives an endpoint an engine that copies when it is told to.
fn engine(endpoint: &Endpoint) -> Arc<Mutex<Told>> {
    let told = Arc::default();
    endpoint.set_copy_engine(Some(Box::new(ToldEngine(Arc::clone(&told)))));
    told
}

/// Makes progress on both sides until `is_done`, within the limit.
fn drive(pair: &Pair, mut is_done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_done() {
        pair.a.progress();
        pair.b.progress();
        assert!(begin.elapsed() < LIMIT, "within the limit");
    }
}

fn is_success(code: StatusCode) -> bool {
    code == StatusCode::Success
}
