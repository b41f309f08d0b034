//! Programs that send and read a stream each, by various patterns of calls.

use esp::{Address, ConnectionId, Error, Event, ListenOptions, Options, Reason, State};

use super::world::{Suffered, World, mac};

pub const PORT: u16 = 80;
pub const LISTEN: ListenOptions = ListenOptions {
    backlog: 16,
    hold: false,
};

/// How a program calls the engine.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// Bytes of a call that sends, and of one that reads.
    pub write: usize,
    pub read: usize,
    /// Whether each call is pushed; the end of the stream always is.
    pub push: bool,
    /// It sends only when it has read as much as it has sent.
    pub ping_pong: bool,
    /// It reads in one of so many steps.
    pub lazy: u64,
}

pub const BULK: Pattern = Pattern {
    write: 100_000,
    read: 100_000,
    push: true,
    ping_pong: false,
    lazy: 1,
};

pub const PATTERNS: [Pattern; 5] = [
    BULK,
    Pattern {
        write: 1,
        read: 10,
        ping_pong: true,
        ..BULK
    },
    Pattern {
        write: 37,
        read: 500,
        lazy: 40,
        ..BULK
    },
    Pattern {
        write: 700,
        read: 1_000,
        push: false,
        ..BULK
    },
    Pattern {
        write: 1_475,
        read: 3_000,
        ping_pong: true,
        ..BULK
    },
];

/// The byte at a position of the stream of a host.
fn byte(host: usize, at: usize) -> u8 {
    (at as u32)
        .wrapping_mul(2_654_435_761)
        .wrapping_add(host as u32 * 77)
        .to_be_bytes()[0]
}

/// One side's program.
#[derive(Debug)]
pub struct Program {
    pub host: usize,
    pub id: ConnectionId,
    pub pattern: Pattern,
    pub len: usize,
    /// Bytes that the other side sends.
    pub expected: usize,
    pub given: usize,
    pub taken: usize,
    pub has_shut: bool,
    pub has_end: bool,
    pub error: Option<Error>,
}

impl Program {
    pub fn new(host: usize, id: ConnectionId, pattern: Pattern, len: usize, expected: usize) -> Self {
        Self {
            host,
            id,
            pattern,
            len,
            expected,
            given: 0,
            taken: 0,
            has_shut: false,
            has_end: false,
            error: None,
        }
    }

    /// Does what can be done now.
    pub fn act(&mut self, world: &mut World) {
        self.read(world);
        self.write(world);
    }

    fn write(&mut self, world: &mut World) {
        let engine = &mut world.hosts[self.host].engine;
        while self.given < self.len && self.error.is_none() {
            if self.pattern.ping_pong && self.given > self.taken && self.taken < self.expected {
                return;
            }
            let mut len = self.pattern.write.min(self.len - self.given);
            if let Ok(space) = engine.space(self.id) {
                // One more byte than there is room for, so that a call finds none.
                len = len.min(space + 1);
            }
            let bytes: Vec<u8> = (self.given..self.given + len).map(|at| byte(self.host, at)).collect();
            let (first, second) = bytes.split_at(len / 3);
            match engine.send_slices(self.id, &[first, second], self.pattern.push, world.now) {
                Ok(len) => self.given += len,
                Err(Error::WouldBlock | Error::NotConnected) => return,
                Err(error) => self.error = Some(error),
            }
        }
        if !self.has_shut && self.error.is_none() {
            match engine.shutdown_write(self.id, world.now) {
                Err(Error::NotConnected) => {}
                result => {
                    self.error = result.err();
                    self.has_shut = true;
                }
            }
        }
    }

    fn read(&mut self, world: &mut World) {
        if self.pattern.lazy > 1 && world.random(self.pattern.lazy) > 0 {
            return;
        }
        if world.hosts[self.host].engine.is_readable(self.id) == Ok(false) {
            return;
        }
        let mut room = vec![0; self.pattern.read];
        while !self.has_end && self.error.is_none() {
            match world.hosts[self.host].engine.receive(self.id, &mut room, world.now) {
                Ok(0) => self.has_end = true,
                Ok(len) => {
                    for (at, got) in room[..len].iter().enumerate() {
                        assert_eq!(*got, byte(1 - self.host, self.taken + at), "byte {}", self.taken + at);
                    }
                    self.taken += len;
                    if self.pattern.lazy > 1 {
                        return;
                    }
                }
                Err(Error::WouldBlock | Error::NotConnected) => return,
                Err(error) => self.error = Some(error),
            }
        }
    }

    pub fn is_done(&self) -> bool {
        self.error.is_some() || self.has_end && self.has_shut
    }
}

/// Begins to connect host 0 to host 1.
pub fn begin(world: &mut World, local_port: u16) -> ConnectionId {
    if !world.hosts[1].engine.is_listening(PORT) {
        world.hosts[1].engine.listen(PORT, LISTEN).unwrap();
    }
    let now = world.now;
    let peer = Address {
        mac: mac(1),
        port: PORT,
    };
    let begun = world.hosts[0].engine.connect(local_port, peer, Options::default(), now);
    begun.unwrap()
}

/// Connects host 0 to host 1.
pub fn connect(world: &mut World) -> [ConnectionId; 2] {
    let local_port = 5_000 + world.hosts[0].engine.connections() as u16;
    let client = begin(world, local_port);
    let mut server = None;
    assert!(world.run_until(10_000_000_000, |world| {
        server = server.or_else(|| world.hosts[1].engine.accept(PORT));
        server.is_some() && world.hosts[0].engine.info(client).unwrap().state == State::Established
    }));
    [client, server.unwrap()]
}

/// Two programs that exchange streams of these lengths, to the end of both, and close. Returns the nanoseconds until both had all.
pub fn exchange(world: &mut World, pattern: Pattern, lens: [usize; 2]) -> u64 {
    let client = begin(world, 5_000);
    let begin = world.now;
    let mut programs = vec![Program::new(0, client, pattern, lens[0], lens[1])];
    // Keeps a world going whose programs look only now and then.
    let done = world.run_until(600_000_000_000, |world| {
        if programs.len() == 1
            && let Some(server) = world.hosts[1].engine.accept(PORT)
        {
            programs.push(Program::new(1, server, pattern, lens[1], lens[0]));
        }
        for program in &mut programs {
            program.act(world);
        }
        if pattern.lazy > 1 {
            world.tick(1_000);
        }
        programs.len() == 2 && programs.iter().all(Program::is_done)
    });
    let took_ns = world.now.nanos_since(begin);
    for program in &programs {
        let state = (program.error, program.given, program.taken);
        let len = lens[program.host];
        let info = world.hosts[program.host].engine.info(program.id);
        assert!(done, "{pattern:?} {program:?} {info:?}");
        assert_eq!(state, (None, len, lens[1 - program.host]), "{pattern:?} {info:?}");
    }
    finish(world, &[programs[0].id, programs[1].id]);
    took_ns
}

/// Both sides close a connection whose streams have ended; nothing is left.
fn finish(world: &mut World, ids: &[ConnectionId]) {
    let closed = world.run_until(60_000_000_000, |world| {
        (0..2).all(|host| {
            let id = ids[host];
            let event = Event::Closed {
                id,
                reason: Reason::Finished,
            };
            world.hosts[host].events.contains(&event)
        })
    });
    assert!(
        closed,
        "{:?}",
        [0, 1].map(|host| world.hosts[host].engine.info(ids[host]))
    );
    for (host, id) in ids.iter().enumerate() {
        let now = world.now;
        world.hosts[host].engine.close(*id, now).unwrap();
    }
    world.run_ns(10_000_000_000);
    for host in &mut world.hosts {
        assert_eq!((host.engine.connections(), host.engine.buffer_bytes()), (0, 0));
        assert_eq!(host.engine.poll_timeout(), None);
    }
}

/// Each of these kinds was lost, repeated and reordered at least once: else a test proves less than it says.
#[track_caller]
pub fn assert_each_suffered(suffered: &Suffered, kinds: &[esp::wire::Kind]) {
    for kind in kinds {
        for what in ["lost", "duplicated", "reordered"] {
            assert!(suffered.contains_key(&(*kind, what)), "no {kind:?} was {what}");
        }
    }
}
