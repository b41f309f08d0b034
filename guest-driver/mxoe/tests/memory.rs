//! What an endpoint allocates, as the allocator sees it: nothing per message once it is warm, and little per peer.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use ether::{MacAddr, Time};
use mxoe::{
    engine::{
        Arrival, Body, Config, Engine, Event, HEAD_BUFFER_LEN, Host, PartnerId, PeerMap, SendOptions, Token, Verdict,
    },
    matching::{MatchTable, Selector},
    wire::Preset,
};

thread_local! {
    /// Whether this thread's allocations are counted: only while the endpoint under test runs.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: i64) {
    if COUNTED.get() {
        LIVE_BYTES.set(LIVE_BYTES.get() + bytes);
        PEAK_BYTES.set(PEAK_BYTES.get().max(LIVE_BYTES.get()));
        if bytes > 0 {
            ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        }
    }
}

// SAFETY: every call is handed on unchanged to the system's allocator, which keeps the contract; counting in
// constant-initialised thread-locals allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promises about `layout` are those `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: `pointer` came from `System.alloc` above with the same layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn counted<T>(work: impl FnOnce() -> T) -> T {
    COUNTED.set(true);
    let result = work();
    COUNTED.set(false);
    result
}

/// Matches every message; bytes go nowhere.
struct Sink {
    table: MatchTable<u64, u64>,
    over: u64,
}

impl Host for Sink {
    fn arrive(&mut self, arrival: Arrival<'_>) -> Verdict {
        self.table.posted.post(Selector::exact(arrival.match_info), 1);
        self.table.posted.take(arrival.match_info).expect("it was just posted");
        match arrival.body {
            Body::Whole(_) => self.over += 1,
            Body::Fragments => {}
            Body::Announced { .. } => {
                return Verdict::Pull {
                    receive: 1,
                    length: arrival.length,
                };
            }
        }
        Verdict::Take(1)
    }

    fn deliver(&mut self, _: Token, _: u32, _: &[u8]) {}
}

struct End {
    engine: Engine<PeerMap>,
    sink: Sink,
}

const fn mac(number: u16) -> MacAddr {
    let [high, low] = number.to_be_bytes();
    MacAddr([2, 0, 0, 0, high, low])
}

fn end(number: u16, preset: Preset) -> End {
    let config = Config::new(mac(number), 0, 100 + u32::from(number), preset);
    End {
        engine: Engine::new(config, PeerMap::new(2_000, 1)),
        sink: Sink {
            table: MatchTable::new(1 << 20, 1),
            over: 0,
        },
    }
}

fn events(end: &mut End) {
    while let Some(event) = end.engine.poll_event() {
        if matches!(event, Event::Received { .. }) {
            end.sink.over += 1;
        }
    }
}

/// Frames between two ends until both are silent. What `a` allocates is counted.
fn exchange(now: &mut Time, a: &mut End, b: &mut End, mut lose: impl FnMut() -> bool) {
    let mut head = [0; HEAD_BUFFER_LEN];
    let mut frame = [0; 9_000];
    let mut idle = 0;
    while idle < 2 {
        idle += 1;
        for _ in 0..2 {
            while let Some(transmit) = counted(|| a.engine.poll_transmit(*now, &mut head)) {
                frame[..transmit.head_len].copy_from_slice(&head[..transmit.head_len]);
                *now = now.plus_nanos(1_000);
                idle = 0;
                if !lose() {
                    let frame = &frame[..transmit.frame_len()];
                    b.engine.handle(*now, frame, &mut b.sink);
                    events(b);
                }
            }
            while let Some(transmit) = b.engine.poll_transmit(*now, &mut head) {
                frame[..transmit.head_len].copy_from_slice(&head[..transmit.head_len]);
                *now = now.plus_nanos(1_000);
                idle = 0;
                if !lose() {
                    let frame = &frame[..transmit.frame_len()];
                    counted(|| {
                        a.engine.handle(*now, frame, &mut a.sink);
                        events(a);
                    });
                }
            }
        }
    }
}

fn wait(now: &mut Time, a: &mut End, b: &mut End) {
    *now = now.plus_nanos(2_000_000);
    counted(|| a.engine.handle_timeout(*now));
    b.engine.handle_timeout(*now);
    exchange(now, a, b, || false);
}

fn send(now: Time, from: &mut End, to: PartnerId, length: u32) {
    if length <= 128 {
        from.engine
            .send_inline(now, to, 7, 0, &[0; 128][..length as usize])
            .unwrap();
    } else {
        let options = SendOptions {
            copyable: true,
            synchronous: false,
        };
        from.engine.send(now, to, 7, 0, length, options).unwrap();
    }
}

#[test]
fn a_warm_endpoint_allocates_nothing_not_even_under_loss() {
    for preset in Preset::ALL {
        let (mut a, mut b) = (end(1, preset), end(2, preset));
        let mut now = Time::from_nanos(1);
        let to_b = a.engine.connect(now, mac(2), 0, 0, 0).unwrap();
        exchange(&mut now, &mut a, &mut b, || false);
        let to_a = b.engine.partners().next().unwrap();
        let mut state = 1u64;
        let mut warm = 0;
        for round in 0..600 {
            if round == 300 {
                warm = ALLOCATIONS.get();
            }
            for length in [0, 32, 128, 4_000, 32_768, 200_000] {
                counted(|| send(now, &mut a, to_b, length));
                send(now, &mut b, to_a, length);
            }
            let lossy = round % 3 == 0;
            exchange(&mut now, &mut a, &mut b, || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                lossy && (state >> 33).is_multiple_of(100)
            });
            for _ in 0..20 {
                wait(&mut now, &mut a, &mut b);
            }
            assert!(a.engine.is_idle() && b.engine.is_idle(), "{preset}, round {round}");
        }
        assert_eq!((a.sink.over, b.sink.over), (3_600, 3_600), "{preset}");
        assert_eq!(ALLOCATIONS.get(), warm, "{preset}: allocations by a warm endpoint");
    }
}

#[test]
fn an_endpoint_that_talked_to_a_thousand_peers_holds_little() {
    let before = LIVE_BYTES.get();
    let mut own = counted(|| end(0, Preset::Native9000));
    let mut now = Time::from_nanos(1);
    for number in 1..=1_000 {
        let mut peer = end(number, Preset::Native9000);
        let to = peer.engine.connect(now, mac(0), 0, 0, 0).unwrap();
        exchange(&mut now, &mut own, &mut peer, || false);
        let back = own.engine.partners().last().unwrap();
        for length in [8, 32_768, 100_000] {
            send(now, &mut peer, to, length);
            counted(|| send(now, &mut own, back, length));
        }
        exchange(&mut now, &mut own, &mut peer, || false);
        wait(&mut now, &mut own, &mut peer);
        wait(&mut now, &mut own, &mut peer);
        assert!(own.engine.is_idle());
    }
    let in_use = LIVE_BYTES.get() - before;
    println!("{in_use} bytes in use, {} at the peak", PEAK_BYTES.get());
    assert_eq!(own.sink.over, 3_000);
    assert!(in_use < 1_000 * (4 << 10), "{in_use} bytes: at most 4 KiB per peer");
    let reported = own.engine.memory() as i64;
    assert!(
        (in_use - reported).abs() < in_use / 4,
        "{in_use} in use, {reported} reported"
    );
}
