//! The C programs with a path between their boards that loses, duplicates and delays frames at random, from a seed: the
//! promises of MX do not depend on the network. (Raw frames are the exception, since they are not repeated: `raw` and
//! `raw_types` are not here.)

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use netif::Interface;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{RecvFlags, SendFlags, recv, send, sockopt},
};
use weft_guest_driver_testkit::Veth;

use crate::{First, kit::Kit, other_host::OtherHost, with_cable};

/// Of a thousand frames so many are lost, duplicated, and delayed.
const LOST: u64 = 10;
const REPEATED: u64 = 10;
const HELD_BACK: u64 = 20;
/// A frame is delayed until so many others passed, at most, or none came for a millisecond.
const PASSED_MAX: u64 = 16;
const IDLE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};
/// Longest frame of the interfaces, and more.
const FRAME_LEN_MAX: usize = 16 << 10;
/// Bytes that wait in a socket, so that nothing is lost that was not meant to be.
const QUEUE_LEN: usize = 16 << 20;

/// One of the two interfaces in the middle.
struct Side {
    socket: OwnedFd,
    /// The delayed frames that will leave here, and how many others must pass before each.
    delayed: VecDeque<(u64, Vec<u8>)>,
}

impl Side {
    fn of(interface: &str) -> Self {
        let index = Interface::find(interface).unwrap().index;
        let every_type = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers.
        let socket = unsafe { libc::socket(libc::AF_PACKET, kind, i32::from(every_type)) };
        assert!(socket >= 0, "{}", io::Error::last_os_error());
        // SAFETY: a new descriptor that is used nowhere else.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        sockopt::set_socket_recv_buffer_size_force(&socket, QUEUE_LEN).unwrap();
        let (on, len) = (1_i32, size_of::<i32>() as libc::socklen_t);
        // SAFETY: the value lives through the call and has the length that is said.
        let ignored = unsafe {
            let option = libc::PACKET_IGNORE_OUTGOING;
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                option,
                (&raw const on).cast(),
                len,
            )
        };
        assert_eq!(ignored, 0, "{}", io::Error::last_os_error());
        // SAFETY: all zeros is an address of this kind.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = every_type;
        address.sll_ifindex = index;
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address lives through the call and has the length that is said.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
        assert_eq!(bound, 0, "{}", io::Error::last_os_error());
        let delayed = VecDeque::new();
        Self { socket, delayed }
    }

    fn send(&self, frame: &[u8]) {
        // Where the other end is away, as on any cable, it is lost.
        let _ = send(&self.socket, frame, SendFlags::empty());
    }

    /// Sends the frames that were delayed long enough, after a frame passed, or none came for a while.
    fn release(&mut self, idle: bool) {
        for (left, _) in &mut self.delayed {
            *left = if idle { 0 } else { left.saturating_sub(1) };
        }
        let waiting = std::mem::take(&mut self.delayed).into_iter();
        let (go, stay): (VecDeque<_>, _) = waiting.partition(|(left, _)| *left == 0);
        self.delayed = stay;
        for (_, frame) in go {
            self.send(&frame);
        }
    }
}

/// Random numbers, equal for equal seeds (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }
}

/// Two cables, and what joins them.
struct FaultyPath {
    near: Veth,
    far: Veth,
    over: Arc<AtomicBool>,
    forwards: Option<JoinHandle<u64>>,
}

impl FaultyPath {
    fn new(seed: u64) -> Self {
        let (near, far) = (Veth::new(1500), Veth::new(1500));
        let mut sides = [Side::of(&near.b), Side::of(&far.a)];
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let forwards = thread::spawn(move || {
            let mut chance = Chance(seed);
            let mut faults = 0;
            while !ended.load(Ordering::Relaxed) {
                faults += forward(&mut sides, &mut chance);
            }
            faults
        });
        Self {
            near,
            far,
            over,
            forwards: Some(forwards),
        }
    }

    /// How many frames something was done to.
    fn finish(mut self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.forwards.take().unwrap().join().unwrap()
    }
}

/// Takes what is there, or waits a moment for it. How many frames it did something to.
fn forward(sides: &mut [Side; 2], chance: &mut Chance) -> u64 {
    let mut fds = sides.each_ref().map(|side| PollFd::new(&side.socket, PollFlags::IN));
    let idle = poll(&mut fds, Some(&IDLE)).unwrap_or(0) == 0;
    let mut faults = 0;
    let mut frame = [0; FRAME_LEN_MAX];
    for from in 0..2 {
        if idle {
            sides[1 - from].release(true);
            continue;
        }
        while let Ok((len, _)) = recv(sides[from].socket.as_fd(), &mut frame[..], RecvFlags::TRUNC) {
            let (frame, to) = (&frame[..len], &mut sides[1 - from]);
            let number = chance.below(1000);
            faults += u64::from(number < LOST + REPEATED + HELD_BACK);
            if number < LOST {
                continue;
            }
            if (LOST + REPEATED..LOST + REPEATED + HELD_BACK).contains(&number) {
                to.delayed.push_back((1 + chance.below(PASSED_MAX), frame.to_vec()));
                continue;
            }
            to.send(frame);
            if number < LOST + REPEATED {
                to.send(frame);
            }
            to.release(false);
        }
    }
    faults
}

/// Programs with two boards and their arguments.
const IN_ONE_PROCESS: [(&str, &[&str]); 7] = [
    ("messages", &["0", "1"]),
    ("calls", &["0", "1"]),
    ("full", &["0", "1"]),
    ("settings", &[]),
    ("ends", &[]),
    ("api", &[]),
    ("translated", &[]),
];

fn timed(what: &str, run: impl FnOnce()) {
    let begin = std::time::Instant::now();
    run();
    println!("{what}: {} ms", begin.elapsed().as_millis());
}

#[test]
fn programs_with_two_boards_pass_on_a_path_with_faults() {
    with_cable(
        "faults::programs_with_two_boards_pass_on_a_path_with_faults",
        1500,
        |kit, _| {
            let faults = AtomicU64::new(0);
            let count = &faults;
            thread::scope(|scope| {
                for ((name, args), seed) in IN_ONE_PROCESS.into_iter().zip(1..) {
                    scope.spawn(move || {
                        let first: &[&str] = if name == "translated" { &["translate"] } else { &[] };
                        let last = ["-lmyriexpress", "-lopen-mx", "-lpthread"];
                        let program = kit.compile(&format!("{name}.c"), name, first, &last);
                        let path = FaultyPath::new(seed);
                        timed(name, || {
                            kit.run(&program, &format!("{},{}", path.near.a, path.far.b), args)
                        });
                        count.fetch_add(path.finish(), Ordering::Relaxed);
                    });
                }
            });
            assert!(faults.into_inner() > 100, "next to nothing happened to frames");
        },
    );
}

/// One of them on the near board, one on the far one, which is another host.
fn between_hosts(kit: &Kit, program: &Path, seed: u64) {
    let path = FaultyPath::new(seed);
    let other = OtherHost::with(&path.far.b);
    let first = First::start(other.command(kit, program, &path.far.b));
    let mut second: Command = kit.command(program, &path.near.a);
    Kit::finishes(second.arg(&first.address));
    first.finish();
    assert!(path.finish() > 10, "next to nothing happened to frames");
}

#[test]
fn two_hosts_understand_each_other_on_a_path_with_faults() {
    with_cable(
        "faults::two_hosts_understand_each_other_on_a_path_with_faults",
        1500,
        |kit, _| {
            let echo = kit.compile("echo.c", "echo", &[], &["-lopen-mx", "-lpthread"]);
            let hosts = kit.compile("hosts.c", "hosts", &[], &["-lmyriexpress", "-lpthread"]);
            thread::scope(|scope| {
                for (program, seed) in [(&echo, 11), (&hosts, 12)] {
                    scope.spawn(move || timed("hosts", || between_hosts(kit, program, seed)));
                }
            });
        },
    );
}
