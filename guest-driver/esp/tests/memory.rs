//! What an engine allocates, as the allocator sees it: nothing per packet once it is warm, and little per idle connection.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use esp::{Address, Config, ConnectionId, Engine, ListenOptions, Options};
use ether::{MacAddr, Time};

thread_local! {
    /// Whether this thread's allocations are counted: only while the engine under test runs.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: i64) {
    if COUNTED.get() {
        LIVE_BYTES.set(LIVE_BYTES.get() + bytes);
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

const fn mac(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number])
}

/// Two engines and the time. What the first allocates is counted.
struct Pair {
    engines: [Engine; 2],
    now: Time,
    random: u64,
    lose: u64,
}

impl Pair {
    fn new() -> Self {
        let engine = |number| counted(|| Engine::new(Config::new(mac(number), 1_500), number.into()).unwrap());
        let mut engines = [engine(1), engine(2)];
        let options = ListenOptions {
            backlog: 4_096,
            hold: false,
        };
        engines[1].listen(80, options).unwrap();
        Self {
            engines,
            now: Time::from_nanos(1),
            random: 1,
            lose: 0,
        }
    }

    fn carry(&mut self, from: usize) -> bool {
        let mut frame = [0; 1_514];
        let mut any = false;
        loop {
            let [a, b] = &mut self.engines;
            let (own, other) = if from == 0 { (a, b) } else { (b, a) };
            let len = if from == 0 {
                counted(|| own.poll_transmit(self.now, &mut frame))
            } else {
                own.poll_transmit(self.now, &mut frame)
            };
            let Some(len) = len else { return any };
            any = true;
            self.now = self.now.plus_nanos(1_000);
            let now = self.now;
            let mut handle = || {
                other.handle(&frame[..len], now);
                while other.poll_event().is_some() {}
            };
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if (self.random >> 33) % 1_000 >= self.lose {
                if from == 0 { handle() } else { counted(handle) }
            }
        }
    }

    fn exchange(&mut self) {
        while self.carry(0) | self.carry(1) {}
    }

    fn wait(&mut self, ns: u64) {
        self.now = self.now.plus_nanos(ns);
        counted(|| self.engines[0].handle_timeout(self.now));
        self.engines[1].handle_timeout(self.now);
        self.exchange();
    }

    fn connect(&mut self, port: u16) -> [ConnectionId; 2] {
        let peer = Address { mac: mac(2), port: 80 };
        let now = self.now;
        let client = counted(|| self.engines[0].connect(port, peer, Options::default(), now).unwrap());
        self.exchange();
        [client, self.engines[1].accept(80).unwrap()]
    }

    /// Both send so many bytes, and read all.
    fn talk(&mut self, ids: [ConnectionId; 2], len: usize, room: &mut [u8]) {
        let mut left = [len; 2];
        let mut unread = [len; 2];
        let bytes = [7; 100_000];
        while unread != [0; 2] {
            for side in 0..2 {
                let now = self.now;
                let engine = &mut self.engines[side];
                let mut work = || {
                    if left[side] > 0 {
                        let len = left[side].min(bytes.len());
                        left[side] -= engine.send(ids[side], &bytes[..len], true, now).unwrap_or(0);
                    }
                    while let Ok(len) = engine.receive(ids[side], room, now) {
                        unread[side] -= len;
                    }
                };
                if side == 0 { counted(work) } else { work() }
            }
            self.exchange();
            if unread != [0; 2] {
                self.wait(1_000_000);
            }
        }
        self.wait(1_000_000);
    }
}

#[test]
fn a_warm_engine_allocates_nothing_not_even_under_loss() {
    let mut pair = Pair::new();
    let ids = pair.connect(5_000);
    let mut room = vec![0; 200_000];
    let mut warm = 0;
    for round in 0..900 {
        if round == 600 {
            warm = ALLOCATIONS.get();
        }
        pair.lose = if round % 3 == 0 { 20 } else { 0 };
        for len in [1, 100, 1_475, 20_000, 700_000] {
            pair.talk(ids, len, &mut room);
        }
    }
    assert!(pair.engines[0].counters().of(esp::Counter::OutOfOrder) > 1_000);
    assert!(pair.engines[0].counters().of(esp::Counter::Retransmitted) > 1_000);
    assert_eq!(ALLOCATIONS.get(), warm, "allocations by a warm engine");
}

#[test]
fn ten_thousand_idle_connections_take_at_most_two_kib_each() {
    let before = LIVE_BYTES.get();
    let mut pair = Pair::new();
    let mut room = vec![0; 70_000];
    for port in 0..10_000 {
        let ids = pair.connect(1_000 + port);
        pair.talk(ids, 20_000, &mut room);
    }
    pair.wait(1_000_000_000);
    assert_eq!(pair.engines[0].connections(), 10_000);
    assert_eq!(pair.engines[0].buffer_bytes(), 0);
    let bytes = LIVE_BYTES.get() - before;
    println!("{} bytes per idle connection", bytes / 10_000);
    assert!(bytes < 10_000 * 2_048, "{bytes} bytes");
}
