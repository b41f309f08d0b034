//! Many programs of two hosts at once over a link of 1 Gbit/s, all with all, sleeping while they wait, with TCP beside them.

use std::{
    env,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use ether::MacAddr;
use omx::{Address, Endpoint, EndpointOptions, Segment, StatusCode, Waiting};
use weft_guest_driver_testkit::Veth;

use crate::rig::{LIMIT, OtherHost, Program, in_own_world};

const MEMBER: &str = "OMX_TEST_MEMBER";
const SOURCE: &str = "OMX_TEST_SOURCE";
/// Programs on each host.
const MEMBERS: u8 = 10;
/// Every program sends this much to each of the other host in every round, and so often: under 2 s of the whole link if it were alone.
const LEN: usize = 256 << 10;
const ROUNDS: u64 = 8;
/// Of what TCP has without messages beside it, the least that it keeps.
const TCP_SHARE_MIN: f64 = 0.4;
/// TCP alone is measured over this many bytes: a second of the link.
const TCP_ALONE_LEN: u64 = 120_000_000;

fn content(from: u8, to: u8, round: u64) -> impl Fn(usize) -> u8 {
    let seed = usize::from(from) * 31 + usize::from(to) * 7 + round as usize;
    move |at| (at * 13 + at / 255 + seed) as u8
}

/// One program: `OMX_TEST_MEMBER` is its interface, number and side. It says when it is there, connected, and done. Started by
/// the test below; on its own it has nothing to do.
#[test]
fn member_program_of_the_other_test() {
    let Ok(words) = env::var(MEMBER) else { return };
    let [interface, number, side] = words.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{words}")
    };
    let (number, side): (u8, u8) = (number.parse().unwrap(), side.parse().unwrap());
    let endpoint = Endpoint::open(&EndpointOptions {
        interface: Some(interface.to_owned()),
        endpoint: Some(number),
        waiting: Waiting::Sleep,
        ..EndpointOptions::default()
    })
    .unwrap();
    println!("\n@{}", endpoint.address().mac());
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    let mac: MacAddr = lines.next().unwrap().parse().unwrap();
    let peers: Vec<Address> = (0..MEMBERS)
        .map(|peer| endpoint.connect(mac, peer, 0, Some(LIMIT)).unwrap())
        .collect();
    println!("\n@connected");
    assert_eq!(lines.next().unwrap(), "go");
    let own = side * MEMBERS + number;
    let theirs = (1 - side) * MEMBERS;
    let mut buffers: Vec<Vec<u8>> = peers.iter().map(|_| vec![0; LEN]).collect();
    for round in 0..ROUNDS {
        let data: Vec<Vec<u8>> = (theirs..theirs + MEMBERS)
            .map(|to| (0..LEN).map(content(own, to, round)).collect())
            .collect();
        let mut requests = Vec::new();
        for (buffer, from) in buffers.iter_mut().zip(0..MEMBERS) {
            let info = round << 8 | u64::from(from);
            // SAFETY: both buffers stay until every request of the round is over, or the process ends.
            let request = unsafe { endpoint.irecv(&[Segment::of_mut(buffer)], info, u64::MAX, 0) };
            requests.push(request.unwrap());
        }
        for (data, to) in data.iter().zip(&peers) {
            // SAFETY: as above.
            let request =
                unsafe { endpoint.isend(&[Segment::of(data)], *to, round << 8 | u64::from(number), 0, false) };
            requests.push(request.unwrap());
        }
        for request in requests {
            let status = endpoint.wait(request, Some(LIMIT)).unwrap().expect("within the limit");
            assert_eq!((status.code, status.transferred as usize), (StatusCode::Success, LEN));
        }
        for (buffer, from) in buffers.iter().zip(theirs..) {
            let expected = content(from, own, round);
            assert!(
                buffer.iter().enumerate().all(|(at, byte)| *byte == expected(at)),
                "from {from}, round {round}"
            );
        }
    }
    println!("\n@done");
    // Others may still miss an acknowledgement.
    lines.next();
    endpoint.close().unwrap();
}

/// TCP without end to where `OMX_TEST_SOURCE` says. Started by the test below.
#[test]
fn tcp_source_of_the_other_test() {
    let Ok(to) = env::var(SOURCE) else { return };
    let mut stream = TcpStream::connect(to).unwrap();
    let data = vec![0x55; 128 << 10];
    // Until the test ends this program.
    while stream.write_all(&data).is_ok() {}
}

fn sh(words: &str) {
    let mut words = words.split_whitespace();
    let program = words.next().unwrap();
    let all: Vec<&str> = words.collect();
    let status = Command::new(program).args(&all).status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "`{program} {}` failed: this test needs iproute2, and a kernel with the token bucket (NET_SCH_TBF)",
        all.join(" ")
    );
}

/// Bytes per second that arrive while `body` runs.
fn rate_during<T>(received: &AtomicU64, body: impl FnOnce() -> T) -> (f64, T) {
    let (begin, before) = (Instant::now(), received.load(Ordering::Relaxed));
    let result = body();
    let bytes = received.load(Ordering::Relaxed) - before;
    (bytes as f64 / begin.elapsed().as_secs_f64(), result)
}

#[test]
fn ten_programs_with_ten_over_1_gbit_per_s_lose_nothing_and_leave_tcp_its_share() {
    in_own_world(
        "crowd::ten_programs_with_ten_over_1_gbit_per_s_lose_nothing_and_leave_tcp_its_share",
        || {
            let veth = Veth::new(1500);
            let other = OtherHost::start();
            other.take(&veth.b);
            let shape = |name: &str| format!("tc qdisc add dev {name} root tbf rate 1gbit burst 256kb latency 20ms");
            sh(&shape(&veth.a));
            sh(&format!("ip addr add 10.77.0.1/24 dev {}", veth.a));
            let there = other.enter().join(" ");
            sh(&format!("{there} {}", shape(&veth.b)));
            sh(&format!("{there} ip addr add 10.77.0.2/24 dev {}", veth.b));

            let mut sides = [(&veth.a, vec![]), (&veth.b, other.enter())].map(|(interface, before)| {
                let side = u8::from(!before.is_empty());
                let programs = (0..MEMBERS).map(|number| {
                    let value = format!("{interface} {number} {side}");
                    Program::start(&before, "crowd::member_program_of_the_other_test", MEMBER, &value)
                });
                programs.collect::<Vec<_>>()
            });
            let macs = sides.each_mut().map(|side| {
                let said: Vec<String> = side.iter_mut().map(Program::hear).collect();
                said[0].clone()
            });
            for (side, mac) in sides.iter_mut().zip(macs.iter().rev()) {
                side.iter_mut().for_each(|program| program.tell(mac));
            }
            let mut all: Vec<Program> = sides.into_iter().flatten().collect();
            for program in &mut all {
                assert_eq!(program.hear(), "connected");
            }

            let listener = TcpListener::bind("10.77.0.1:0").unwrap();
            let to = listener.local_addr().unwrap().to_string();
            let source = Program::start(&other.enter(), "crowd::tcp_source_of_the_other_test", SOURCE, &to);
            let (mut sink, _) = listener.accept().unwrap();
            let begin = Instant::now();
            let read = io::copy(&mut (&mut sink).take(TCP_ALONE_LEN), &mut io::sink()).unwrap();
            assert_eq!(read, TCP_ALONE_LEN, "the source goes on");
            let alone = read as f64 / begin.elapsed().as_secs_f64();
            let received = Arc::new(AtomicU64::new(0));
            let reader = thread::spawn({
                let received = Arc::clone(&received);
                move || {
                    let mut buffer = vec![0; 256 << 10];
                    while let Ok(len @ 1..) = sink.read(&mut buffer) {
                        received.fetch_add(len as u64, Ordering::Relaxed);
                    }
                }
            });
            let begin = Instant::now();
            let (beside, mut all) = rate_during(&received, move || {
                all.iter_mut().for_each(|program| program.tell("go"));
                for program in &mut all {
                    assert_eq!(program.hear(), "done");
                }
                all
            });
            let seconds = begin.elapsed().as_secs_f64();
            all.iter_mut().for_each(|program| program.tell("end"));
            for program in &mut all {
                assert!(program.child.wait().unwrap().success());
            }
            drop(source);
            reader.join().unwrap();
            let messages = u64::from(MEMBERS).pow(2) * ROUNDS * LEN as u64;
            println!(
                "TCP alone {:.0} Mbit/s, beside messages {:.0} Mbit/s; messages {:.0} Mbit/s in each direction for {seconds:.1} s",
                alone * 8e-6,
                beside * 8e-6,
                messages as f64 * 8e-6 / seconds
            );
            assert!(
                beside >= TCP_SHARE_MIN * alone,
                "TCP has {beside:.0} of {alone:.0} bytes/s"
            );
        },
    );
}
