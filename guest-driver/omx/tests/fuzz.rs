//! A million frames, most of them nearly right, against a live endpoint with a program that takes what comes and sends at
//! times: no panic, no growth of memory, and the endpoint works afterwards. `OMX_FUZZ_FRAMES` sets how many.

use std::{
    collections::BTreeMap,
    fs,
    io::IoSlice,
    time::{Duration, Instant},
};

use ether::MacAddr;
use mxoe::wire::{
    Ack, Connect, ConnectKind, Dialect, Eager, Head, Medium, NackCode, NackLib, NackMcp, Notify, Packet, Preset, Pull,
    PullReply, Rndv, pull_magic,
};
use netif::{MemoryPort, Netif, memory_pair};
use omx::{Endpoint, EndpointOptions, Request, Segment, Status, StatusCode};

const FRAMES_DEFAULT: usize = 1_000_000;
/// Frames after which memory has the size it keeps: every table is as large as the limits allow it to become.
const WARM: usize = 200_000;
/// What it may grow by later: what the allocator does not give back, and messages that wait at that moment.
const GROWTH_KIB_MAX: u64 = 8 << 10;
const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const RECEIVES: usize = 32;
const BUFFER_LEN: usize = 40_000;

struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }
}

fn mac_of(peer: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, peer])
}

/// The other side: some hosts with some endpoints each, on one port.
struct Peers {
    port: MemoryPort,
    dialect: Dialect,
    session: u32,
    random: Random,
    /// The number that the endpoint expects next, from those that talk to it.
    next: BTreeMap<(MacAddr, u8), u16>,
    /// What it calls the hosts.
    index: BTreeMap<MacAddr, u16>,
    /// What it asked for and announced last.
    pulls: Vec<Pull>,
    rndvs: Vec<Rndv<'static>>,
}

impl Peers {
    /// Reads what the endpoint sends.
    fn listen(&mut self) {
        while let Ok(Some(frame)) = self.port.poll_receive() {
            let (head, packet) = self.dialect.decode(frame).expect("what an endpoint sends can be read");
            match packet {
                Packet::Connect(p) => {
                    self.next.insert((head.dst, p.dst_endpoint), p.recv_seqnum_start);
                    self.index.insert(head.dst, p.peer_index);
                }
                Packet::Ack(p) => _ = self.next.insert((head.dst, p.dst_endpoint), p.ack),
                Packet::Pull(pull) => self.pulls.push(pull),
                Packet::Rndv(rndv) => self.rndvs.push(Rndv { head: &[], ..rndv }),
                _ => {}
            }
        }
        let pulls = self.pulls.len().saturating_sub(16);
        self.pulls.drain(..pulls);
        let rndvs = self.rndvs.len().saturating_sub(16);
        self.rndvs.drain(..rndvs);
    }

    fn send(&mut self) {
        let (peer, endpoint) = (self.random.below(3) as u8, self.random.below(3) as u8);
        let mut frame = self.frame(peer, endpoint);
        if self.random.below(3) == 0 {
            for _ in 0..1 + self.random.below(4) {
                let at = self.random.below(frame.len().min(70) as u64) as usize;
                // The EtherType stays: other frames never reach an endpoint.
                if !(12..14).contains(&at) {
                    frame[at] = self.random.number() as u8;
                }
            }
        }
        if self.random.below(20) == 0 {
            frame.truncate(14 + self.random.below(60) as usize);
        }
        while !self.port.send(&[IoSlice::new(&frame)]).unwrap() {
            self.listen();
            std::thread::yield_now();
        }
    }

    fn frame(&mut self, peer: u8, src_endpoint: u8) -> Vec<u8> {
        let (mac, dst_endpoint, session) = (mac_of(peer), 0, self.session);
        let number = self.random.number() as u32;
        let seqnum = match self.next.get_mut(&(mac, src_endpoint)) {
            Some(next) if number.is_multiple_of(8) => next.wrapping_add(number as u16 % 300).wrapping_sub(40),
            Some(next) => *next,
            None => 1,
        };
        let piggyack = 1 + (number >> 8) as u16 % 64;
        let sizes = *self.dialect.sizes();
        let data = [0x5a; 1_500];
        let match_info = u64::from(number % 4);
        let eager = Eager {
            dst_endpoint,
            src_endpoint,
            seqnum,
            piggyack,
            match_info,
            session,
            data: &data[..number as usize % 33],
        };
        let mut sequenced = true;
        let packet = match self.random.below(100) {
            0..20 => Packet::Tiny(eager),
            20..30 => Packet::Small(eager),
            30..55 => {
                let length = sizes.fragment_payload() * (1 + number % 3) - 7;
                let frag_seqnum = (number >> 4) as u8 % sizes.fragments_of(length) as u8;
                let offset = u32::from(frag_seqnum) * sizes.fragment_payload();
                sequenced = offset + sizes.fragment_payload() >= length;
                Packet::Medium(Medium {
                    dst_endpoint,
                    src_endpoint,
                    length,
                    seqnum,
                    piggyack,
                    match_info,
                    session,
                    frag_seqnum,
                    frag_pipeline: 0,
                    data: &data[..(length - offset).min(sizes.fragment_payload()) as usize],
                })
            }
            55..62 => Packet::Rndv(Rndv {
                dst_endpoint,
                src_endpoint,
                seqnum,
                piggyack,
                match_info,
                session,
                msg_length: number >> (number % 32),
                rdma_id: number as u8,
                rdma_seqnum: 23,
                rdma_offset: 0,
                head: &[],
            }),
            62..66 => {
                let rndv = self.rndvs.get(number as usize % self.rndvs.len().max(1));
                let (rdma_id, rdma_seqnum) = rndv.map_or((0, 23), |rndv| (rndv.rdma_id, rndv.rdma_seqnum));
                Packet::Notify(Notify {
                    dst_endpoint,
                    src_endpoint,
                    session,
                    total_length: number,
                    rdma_id,
                    rdma_seqnum,
                    seqnum,
                    piggyack,
                })
            }
            kind => {
                sequenced = false;
                self.unsequenced(kind, src_endpoint, (number, piggyack), &data)
            }
        };
        if sequenced && let Some(next) = self.next.get_mut(&(mac, src_endpoint)) {
            *next = next.wrapping_add(1) & 0x3fff;
        }
        let head = Head {
            dst: OWN,
            src: mac,
            peer_index: self.index.get(&mac).copied().unwrap_or(0),
            marked: false,
        };
        let mut frame = vec![0; 1_500];
        let len = self
            .dialect
            .emit(&head, &packet, &mut frame)
            .expect("it can be encoded");
        frame.truncate(len);
        frame
    }

    fn unsequenced<'a>(&self, kind: u64, src_endpoint: u8, numbers: (u32, u16), data: &'a [u8]) -> Packet<'a> {
        let (number, piggyack) = numbers;
        let (dst_endpoint, session, sizes) = (0, self.session, self.dialect.sizes());
        let asked = self.pulls.get(number as usize % self.pulls.len().max(1));
        match (kind, asked) {
            (66..72, _) => {
                let rndv = self.rndvs.get(number as usize % self.rndvs.len().max(1));
                let (region, use_counter) = rndv.map_or((0, 23), |rndv| (rndv.rdma_id, rndv.rdma_seqnum));
                Packet::Pull(Pull {
                    dst_endpoint,
                    src_endpoint,
                    session,
                    total_length: number,
                    rdma_id: region.into(),
                    rdma_seqnum: use_counter,
                    rdma_offset: 0,
                    handle: number,
                    magic: pull_magic(src_endpoint),
                    first_frame_offset: number % 3,
                    block_length: number % sizes.block_len(),
                    frame_index: (number >> 20) % 40,
                })
            }
            (72..88, Some(pull)) => {
                let frames = pull.frames(sizes).expect("an endpoint asks for what can be answered");
                let frame = pull.frame_index + number % frames;
                let offset = frame * sizes.reply_payload();
                let len = sizes.reply_payload().min(pull.total_length.saturating_sub(offset));
                Packet::PullReply(PullReply {
                    frame_seqnum: frame as u8,
                    msg_offset: offset,
                    handle: pull.handle,
                    magic: pull.magic,
                    data: &data[..len as usize],
                })
            }
            (88..91, Some(pull)) => Packet::NackMcp(NackMcp {
                src_endpoint,
                code: NackCode::BadRdmaWindow,
                handle: pull.handle,
                magic: pull.magic,
            }),
            (91..93, _) => Packet::NackLib(NackLib {
                src_endpoint,
                dst_endpoint,
                code: NackCode::BadSession,
                peer_index: 0,
                seqnum: piggyack,
            }),
            (93..98, _) => Packet::Ack(Ack {
                dst_endpoint,
                src_endpoint,
                session,
                ack: piggyack,
                session_id: session,
                acknum: number >> 12,
                send_seq: piggyack,
                resent: 0,
            }),
            _ => Packet::Connect(Connect {
                dst_endpoint,
                src_endpoint,
                seqnum: 0,
                peer_index: number as u16,
                // Mostly the same instance.
                src_session: if number % 64 == 0 {
                    number
                } else {
                    7 + u32::from(src_endpoint)
                },
                recv_seqnum_start: 1,
                connect_seqnum: 0,
                kind: ConnectKind::Request { key: 0 },
                extension: None,
            }),
        }
    }
}

/// A program that takes every message, and sends to every sender.
struct Program {
    endpoint: Endpoint,
    buffers: Vec<Box<[u8]>>,
    /// The buffer of each receive.
    receives: BTreeMap<u64, usize>,
    data: Box<[u8]>,
    taken: u64,
    /// How the one send ended that was not forgotten.
    sent: Option<Status>,
}

impl Program {
    fn new(endpoint: Endpoint) -> Self {
        let mut program = Self {
            endpoint,
            buffers: (0..RECEIVES).map(|_| vec![0; BUFFER_LEN].into()).collect(),
            receives: BTreeMap::new(),
            data: vec![7; 100_000].into(),
            taken: 0,
            sent: None,
        };
        for buffer in 0..RECEIVES {
            program.post(buffer);
        }
        program
    }

    fn post(&mut self, buffer: usize) {
        let segment = Segment::of_mut(&mut self.buffers[buffer]);
        let (info, mask) = [(0, 0), (1, 3), (2, u64::MAX)][buffer % 3];
        // SAFETY: the buffer stays as long as the program, and belongs to this receive alone.
        let request: Request = unsafe { self.endpoint.irecv(&[segment], info, mask, 0) }.unwrap();
        self.receives.insert(request.to_bits(), buffer);
    }

    fn run(&mut self, random: &mut Random) {
        self.endpoint.progress();
        while let Some((request, status)) = self.endpoint.test_any(0, 0).unwrap() {
            let Some(buffer) = self.receives.remove(&request.to_bits()) else {
                self.sent = Some(status);
                continue;
            };
            self.taken += 1;
            assert!(status.transferred as usize <= BUFFER_LEN);
            self.post(buffer);
            if let Some(address) = status.address.filter(|_| random.below(8) == 0) {
                let length = [5, 100, 3_000, 100_000][random.below(4) as usize];
                let segment = Segment::of(&self.data[..length]);
                // SAFETY: the bytes stay as long as the program and are not written to.
                match unsafe { self.endpoint.isend(&[segment], address, 1, 0, false) } {
                    Ok(request) => self.endpoint.forget(request).unwrap(),
                    Err(omx::Error::NoResources) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

/// Memory of this process that is really there.
fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim_end_matches("kB").trim().parse().unwrap()
}

#[test]
fn a_million_fuzzed_frames_neither_break_a_live_endpoint_nor_make_it_grow() {
    let frames = std::env::var("OMX_FUZZ_FRAMES").map_or(FRAMES_DEFAULT, |count| count.parse().expect("a number"));
    let (own, other) = memory_pair([OWN, mac_of(0)], 1500, 256).unwrap();
    let options = EndpointOptions {
        unexpected_bytes_max: 1 << 20,
        // What is never answered is over soon.
        give_up: Duration::from_millis(200),
        ..EndpointOptions::default()
    };
    let endpoint = Endpoint::open_on(&options, Box::new(own), Preset::Native1500).unwrap();
    let mut peers = Peers {
        port: other,
        dialect: Dialect::new(Preset::Native1500.sizes()),
        session: endpoint.address().session(),
        random: Random(0x1234_5678_9abc_def1),
        next: BTreeMap::new(),
        index: BTreeMap::new(),
        pulls: Vec::new(),
        rndvs: Vec::new(),
    };
    let mut random = Random(77);
    let mut program = Program::new(endpoint);
    let (mut warm, mut peak) = (0, 0);
    for number in 0..frames {
        peers.send();
        if number % 4 == 0 {
            program.run(&mut random);
            peers.listen();
        }
        if number % 10_000 == 0 {
            let resident = resident_kib();
            if number <= WARM.min(frames / 2) {
                warm = warm.max(resident);
            }
            peak = peak.max(resident);
        }
    }
    let counters = program.endpoint.counters();
    let reached = counters.nonzero().count();
    println!(
        "{} messages taken, {reached} counters reached, {warm} KiB and at most {peak} KiB resident",
        program.taken
    );
    assert!(
        reached > 45 && program.taken > frames as u64 / 200,
        "the frames get far"
    );
    assert!(peak < warm + GROWTH_KIB_MAX, "from {warm} KiB to {peak} KiB");
    // It still does what it is for.
    let own_address = program.endpoint.address();
    let segment = Segment::of(&program.data[..9]);
    // Messages that wait may fill the room there is; receives that wait for the rest of a large one give it up first.
    let begin = Instant::now();
    let mut posted = false;
    let status = loop {
        // SAFETY: as above.
        posted = posted || unsafe { program.endpoint.isend(&[segment], own_address, 99, 0, false) }.is_ok();
        program.run(&mut random);
        peers.listen();
        if let Some(status) = program.sent {
            break status;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "nothing takes the message");
    };
    assert_eq!((status.code, status.transferred), (StatusCode::Success, 9));
}
