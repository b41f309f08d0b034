//! A port that receives data of large messages apart from all else, and hands it out only while it is told to expect some.

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
use omx::{Endpoint, EndpointOptions, Segment, StatusCode};

const LIMIT: Duration = Duration::from_secs(20);
/// Where the type is; its mark is bit 7.
const TYPE_OFFSET: usize = 16;

#[derive(Default)]
struct Told {
    expects: AtomicBool,
    /// Frames handed out of those that came apart.
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
        while let Some(frame) = self.port.poll_receive()? {
            if frame[TYPE_OFFSET] & 0x7f == PacketType::PullReply.code() {
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
    fn send_burst(&mut self, frames: &[&[IoSlice<'_>]]) -> Result<usize, NetifError> {
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

#[test]
fn a_port_is_told_to_expect_data_from_when_it_is_asked_for_until_it_is_there() {
    let macs = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
    let (port_a, port_b) = memory_pair(macs, 1500, 2048).unwrap();
    let told = Arc::new(Told::default());
    let port_b = Port {
        port: port_b,
        told: Arc::clone(&told),
        data: VecDeque::new(),
        lent: Vec::new(),
    };
    let options = EndpointOptions {
        progress: false,
        ..EndpointOptions::default()
    };
    let a = Endpoint::open_on(&options, Box::new(port_a), Preset::Native1500).unwrap();
    let b = Endpoint::open_on(&options, Box::new(port_b), Preset::Native1500).unwrap();
    let request = a.iconnect(macs[1], 0, options.key, 0, 0).unwrap();
    let begin = Instant::now();
    let to_b = loop {
        b.progress();
        if let Some(status) = a.test(request).unwrap() {
            break status.address.unwrap();
        }
        assert!(begin.elapsed() < LIMIT, "no connection");
    };
    let expects = || told.expects.load(Ordering::Relaxed);
    for len in [8, 300_000, 8, 300_000] {
        let data = vec![len as u8; len];
        let mut received = vec![0; len];
        let large = len > 1000;
        let data_before = told.data.load(Ordering::Relaxed);
        // SAFETY: data and buffer outlive the requests, which end below.
        let (send, receive) = unsafe {
            (
                a.isend(&[Segment::of(&data)], to_b, 3, 0, false).unwrap(),
                b.irecv(&[Segment::of_mut(&mut received)], 3, u64::MAX, 0).unwrap(),
            )
        };
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
