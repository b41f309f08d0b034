//! Two endpoints on ports joined in memory, which can be told to be full, or to have a bulk path: what endpoints
//! promise whatever their ports do.

mod batching;
mod bulk;
mod immediate_send;

use std::{
    collections::VecDeque,
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use ether::MacAddr;
use mxoe::wire::{PacketType, Preset};
use netif::{Interest, MemoryPort, Netif, NetifCounters, NetifError, Wake, memory_pair};
use omx::{Address, Counter, Endpoint, EndpointOptions, Request, Segment};

const LIMIT: Duration = Duration::from_secs(20);
const MATCH_INFO: u64 = 3;
/// Where the type is; its mark is bit 7.
const TYPE_OFFSET: usize = 16;

/// What a port is told.
#[derive(Default)]
struct Told {
    /// By a test: it has no room.
    full: AtomicBool,
    /// Frames it took that carry a short message.
    short_sent: AtomicU32,
    /// Set by a test: the port has a bulk path, and hands out what came on it only while the endpoint expects some.
    has_bulk_path: AtomicBool,
    /// By its endpoint: data is to come.
    expects: AtomicBool,
    /// The number of frames handed out that came on the bulk path.
    data: AtomicU32,
}

struct Port {
    port: MemoryPort,
    told: Arc<Told>,
    data: VecDeque<Vec<u8>>,
    lent: Vec<u8>,
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
        let has_bulk_path = self.told.has_bulk_path.load(Ordering::Relaxed);
        while let Some(frame) = self.port.poll_receive()? {
            if has_bulk_path && frame[TYPE_OFFSET] & 0x7f == PacketType::PullReply.code() {
                self.data.push_back(frame.to_vec());
            } else {
                self.lent = frame.to_vec();
                return Ok(Some(&self.lent));
            }
        }
        if !self.told.expects.load(Ordering::Relaxed) {
            return Ok(None);
        }
        Ok(self.data.pop_front().map(|frame| {
            self.told.data.fetch_add(1, Ordering::Relaxed);
            self.lent = frame;
            &self.lent[..]
        }))
    }
    fn expect_bulk(&mut self, expected: bool) {
        self.told.expects.store(expected, Ordering::Relaxed);
    }
    fn bulk_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.port.as_fd())
    }
    fn send_burst(&mut self, frames: &[&[IoSlice<'_>]]) -> Result<usize, NetifError> {
        if self.told.full.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let taken = self.port.send_burst(frames)?;
        let is_short = |frame: &&&[IoSlice<'_>]| {
            let frame_type = frame[0][TYPE_OFFSET] & 0x7f;
            [PacketType::Tiny.code(), PacketType::Small.code()].contains(&frame_type)
        };
        let short = frames[..taken].iter().filter(is_short).count();
        self.told.short_sent.fetch_add(short as u32, Ordering::Relaxed);
        Ok(taken)
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

/// Two endpoints that know each other.
struct Pair {
    a: Endpoint,
    b: Endpoint,
    /// The second's address as the first knows it.
    to_b: Address,
    /// What the first one's port is told, and the second one's.
    told: [Arc<Told>; 2],
}

fn pair(options: &EndpointOptions) -> Pair {
    let macs = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
    let (port_a, port_b) = memory_pair(macs, 1500, 2048).unwrap();
    let told = [(); 2].map(|()| Arc::new(Told::default()));
    let open = |port, told: &Arc<Told>| {
        let port = Port {
            port,
            told: Arc::clone(told),
            data: VecDeque::new(),
            lent: Vec::new(),
        };
        Endpoint::open_on(options, Box::new(port), Preset::Native1500).unwrap()
    };
    let (a, b) = (open(port_a, &told[0]), open(port_b, &told[1]));
    let request = a.iconnect(macs[1], 0, options.key, 0, 0).unwrap();
    let begin = Instant::now();
    let connected = loop {
        b.progress();
        if let Some(status) = a.test(request).unwrap() {
            break status;
        }
        assert!(begin.elapsed() < LIMIT, "no connection");
    };
    Pair {
        a,
        b,
        to_b: connected.address.unwrap(),
        told,
    }
}

impl Pair {
    /// Short messages that the first one counts as sent, and those its port took. Each may be there more than once: a program that is
    /// kept off the processor sees no acknowledgement in time.
    fn short_sent(&self) -> [u32; 2] {
        // Between the two nothing is sent.
        self.a.disable_progression();
        let counters = self.a.counters();
        let sent = [
            counters.get(Counter::SendTiny) + counters.get(Counter::SendSmall),
            self.told[0].short_sent.load(Ordering::Relaxed),
        ];
        self.a.reenable_progression();
        sent
    }
}

/// Endpoints without the helper thread.
fn unhelped() -> EndpointOptions {
    EndpointOptions {
        progress: false,
        ..EndpointOptions::default()
    }
}

fn isend(endpoint: &Endpoint, data: &[u8], to: Address) -> Request {
    // SAFETY: the tests keep the data until the request is over.
    unsafe { endpoint.isend(&[Segment::of(data)], to, MATCH_INFO, 0, false) }.unwrap()
}

fn irecv(endpoint: &Endpoint, buffer: &mut [u8]) -> Request {
    // SAFETY: the tests keep the buffer until the request is over.
    unsafe { endpoint.irecv(&[Segment::of_mut(buffer)], MATCH_INFO, u64::MAX, 0) }.unwrap()
}
