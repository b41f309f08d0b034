//! A small distributed shared memory of regions, after CRL: each region has a home node, which knows who has copies. A node that misses
//! a copy asks the home; a node that wants to write has all other copies invalidated first.
//!
//! As CRL does, a node polls with interrupts disabled while it waits for a reply, and runs with interrupts enabled otherwise (R-BV5).
//! A read of a copy that is there does not poll: who spins on one needs an interrupt to see it change.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lci_port::GroupId;

use crate::node::{self, Arrival, Node, Outlet, ProgramError, Target};

/// Most bytes of a region: with its head, it fits a packet.
pub const REGION_LEN_MAX: usize = 1_000;
const HEAD_LEN: usize = 5;

/// What nodes tell each other of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Say {
    /// To the home: a copy to read is wanted.
    Read,
    /// To the home: the only copy is wanted.
    Write,
    /// From the home: here it is.
    Copy,
    /// From the home: here it is, and no other copy exists.
    Only,
    /// From the home: the copy is invalid now.
    Invalidate,
    /// From the home: others are to read it, too.
    Share,
    /// To the home: the copy is no longer written, or no longer there. The bytes follow if it was the only one.
    Back,
    /// To node 0: a node is at the barrier; from node 0: all are.
    Barrier,
}

impl Say {
    const ALL: [Self; 8] = [
        Self::Read,
        Self::Write,
        Self::Copy,
        Self::Only,
        Self::Invalidate,
        Self::Share,
        Self::Back,
        Self::Barrier,
    ];
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Invalid,
    Shared,
    Exclusive,
}

/// A node's copy of a region.
#[derive(Default)]
struct Copy {
    bytes: Vec<u8>,
    state: State,
    in_use: bool,
    /// What the home wants as soon as the copy is not in use.
    deferred: Option<Say>,
}

/// What the home of a region knows.
#[derive(Default)]
struct Home {
    bytes: Vec<u8>,
    readers: u128,
    writer: Option<usize>,
    /// Who is being served, what they want, and how many others have to give something back.
    serving: Option<(usize, Say, usize)>,
    queue: VecDeque<(usize, Say)>,
}

/// How often something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionCounters {
    /// Reads of copies that were there.
    pub hits: u64,
    /// Reads that asked the home.
    pub read_misses: u64,
    /// Writes that asked the home.
    pub write_misses: u64,
    /// Copies that others had invalidated.
    pub invalidations: u64,
}

struct Memory {
    me: usize,
    size: usize,
    region_len: usize,
    copies: BTreeMap<u32, Copy>,
    homes: BTreeMap<u32, Home>,
    arrived: usize,
    released: u64,
    counters: RegionCounters,
}

type Message = (Target, Say, u32, Vec<u8>);

impl Memory {
    fn home_of(&self, region: u32) -> Target {
        Target::Node(region as usize % self.size)
    }

    fn home(&mut self, region: u32) -> &mut Home {
        let region_len = self.region_len;
        self.homes.entry(region).or_insert_with(|| Home {
            bytes: vec![0; region_len],
            ..Home::default()
        })
    }

    fn handle(&mut self, source: usize, say: Say, region: u32, bytes: &[u8], out: &mut Vec<Message>) {
        match say {
            Say::Read | Say::Write => {
                self.home(region).queue.push_back((source, say));
                self.serve(region, out);
            }
            Say::Back => self.came_back(source, region, bytes, out),
            Say::Copy | Say::Only => {
                let copy = self.copies.entry(region).or_default();
                copy.bytes = bytes.to_vec();
                copy.state = if say == Say::Copy {
                    State::Shared
                } else {
                    State::Exclusive
                };
                // The program uses it before anything else happens to it, so that it gets on.
                copy.in_use = true;
            }
            Say::Invalidate | Say::Share => {
                let copy = self.copies.entry(region).or_default();
                copy.deferred = Some(say);
                if !copy.in_use {
                    self.give_back(region, out);
                }
            }
            Say::Barrier if self.me == 0 && region == 0 => {
                self.arrived += 1;
                if self.arrived == self.size {
                    self.arrived = 0;
                    self.released += 1;
                    out.push((Target::Group(GroupId::ALL), Say::Barrier, 1, Vec::new()));
                }
            }
            Say::Barrier => self.released += 1,
        }
    }

    /// Does what the home asked for.
    fn give_back(&mut self, region: u32, out: &mut Vec<Message>) {
        let home = self.home_of(region);
        let Some(copy) = self.copies.get_mut(&region) else {
            return;
        };
        let Some(say) = copy.deferred.take() else { return };
        let bytes = if copy.state == State::Exclusive {
            copy.bytes.clone()
        } else {
            Vec::new()
        };
        if say == Say::Share {
            copy.state = State::Shared;
        } else {
            copy.state = State::Invalid;
            self.counters.invalidations += 1;
        }
        out.push((home, Say::Back, region, bytes));
    }

    /// At the home: serves who comes next.
    fn serve(&mut self, region: u32, out: &mut Vec<Message>) {
        let home = self.home(region);
        if home.serving.is_some() {
            return;
        }
        let Some((who, wants)) = home.queue.pop_front() else {
            return;
        };
        let mut asked = 0;
        if let Some(writer) = home.writer {
            let say = if wants == Say::Read {
                Say::Share
            } else {
                Say::Invalidate
            };
            out.push((Target::Node(writer), say, region, Vec::new()));
            asked = 1;
        } else if wants == Say::Write {
            for reader in (0..128).filter(|reader| home.readers & 1 << reader != 0 && *reader != who) {
                out.push((Target::Node(reader), Say::Invalidate, region, Vec::new()));
                asked += 1;
            }
        }
        home.serving = Some((who, wants, asked));
        if asked == 0 {
            self.grant(region, out);
        }
    }

    /// At the home: a copy came back, or a reader has none any more.
    fn came_back(&mut self, source: usize, region: u32, bytes: &[u8], out: &mut Vec<Message>) {
        let home = self.home(region);
        if home.writer == Some(source) {
            home.bytes = bytes.to_vec();
            home.writer = None;
            home.readers = 1 << source;
        }
        let Some((_, wants, asked)) = &mut home.serving else {
            return;
        };
        if *wants == Say::Write {
            home.readers &= !(1 << source);
        }
        *asked -= 1;
        if *asked == 0 {
            self.grant(region, out);
        }
    }

    fn grant(&mut self, region: u32, out: &mut Vec<Message>) {
        let home = self.home(region);
        let Some((who, wants, _)) = home.serving.take() else {
            return;
        };
        let say = if wants == Say::Read {
            home.readers |= 1 << who;
            Say::Copy
        } else {
            home.readers = 0;
            home.writer = Some(who);
            Say::Only
        };
        out.push((Target::Node(who), say, region, home.bytes.clone()));
        self.serve(region, out);
    }
}

/// The shared memory, as one node has it.
pub struct Regions<'a, N> {
    node: &'a N,
    memory: Arc<Mutex<Memory>>,
    interrupts: std::cell::Cell<bool>,
    patience_ns: u64,
    barriers: std::cell::Cell<u64>,
}

fn lock(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

fn head(say: Say, region: u32) -> [u8; HEAD_LEN] {
    let [a, b, c, d] = region.to_le_bytes();
    [say as u8, a, b, c, d]
}

impl<'a, N: Node> Regions<'a, N> {
    /// Shared memory of regions of `region_len` bytes over `node`, whose upcall this is from now on; waits until all nodes have it.
    /// Without `interrupts`, the node answers others only while it waits itself. It gives up after `patience_ns` in which nothing
    /// comes.
    ///
    /// # Errors
    /// [`ProgramError::Settings`] if the regions are too long; [`ProgramError`] of the node.
    pub async fn new(node: &'a N, region_len: usize, interrupts: bool, patience_ns: u64) -> Result<Self, ProgramError> {
        if region_len > REGION_LEN_MAX {
            let sentence = format!("a region has at most {REGION_LEN_MAX} bytes, not {region_len}");
            return Err(ProgramError::Settings(sentence));
        }
        let memory = Arc::new(Mutex::new(Memory {
            me: node.me(),
            size: node.size(),
            region_len,
            copies: BTreeMap::new(),
            homes: BTreeMap::new(),
            arrived: 0,
            released: 0,
            counters: RegionCounters::default(),
        }));
        let handler = memory.clone();
        node.set_upcall(Box::new(move |outlet: &dyn Outlet, arrival: Arrival<'_>| {
            let Some((&[say, a, b, c, d], bytes)) = arrival.bytes.split_first_chunk::<HEAD_LEN>() else {
                return;
            };
            let Some(say) = Say::ALL.get(usize::from(say)) else {
                return;
            };
            let mut out = Vec::new();
            lock(&handler).handle(arrival.source, *say, u32::from_le_bytes([a, b, c, d]), bytes, &mut out);
            for (target, say, region, bytes) in out {
                outlet.send(target, &head(say, region), &bytes);
            }
        }));
        let regions = Self {
            node,
            memory,
            interrupts: std::cell::Cell::new(interrupts),
            patience_ns,
            barriers: std::cell::Cell::new(0),
        };
        regions.barrier().await?;
        Ok(regions)
    }

    /// Ends: waits until no node needs this one any more, and leaves interrupts disabled.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub async fn finish(self) -> Result<(), ProgramError> {
        self.interrupts.set(false);
        self.barrier().await
    }

    /// The node below.
    pub fn node(&self) -> &'a N {
        self.node
    }

    /// How often what happened.
    pub fn counters(&self) -> RegionCounters {
        lock(&self.memory).counters
    }

    /// Waits for something with interrupts disabled, polling.
    async fn wait(&self, what: &'static str, done: impl FnMut() -> Option<()>) -> Result<(), ProgramError> {
        self.node.set_interrupts(false)?;
        node::wait_for(self.node, what, self.patience_ns, done).await?;
        self.node.set_interrupts(self.interrupts.get())
    }

    async fn start(&self, region: u32, say: Say) -> Result<(), ProgramError> {
        let home = {
            let mut memory = lock(&self.memory);
            let home = memory.home_of(region);
            let Memory { copies, counters, .. } = &mut *memory;
            let copy = copies.entry(region).or_default();
            let is_there = copy.state == State::Exclusive || say == Say::Read && copy.state == State::Shared;
            if is_there {
                copy.in_use = true;
                counters.hits += 1;
                return Ok(());
            }
            if say == Say::Read {
                counters.read_misses += 1;
            } else {
                counters.write_misses += 1;
            }
            home
        };
        node::send(self.node, home, &head(say, region), &[]).await?;
        let memory = self.memory.clone();
        let came = move || {
            lock(&memory)
                .copies
                .get(&region)
                .is_some_and(|copy| copy.in_use)
                .then_some(())
        };
        self.wait("a region is to come", came).await
    }

    async fn end(&self, region: u32) -> Result<(), ProgramError> {
        let mut out = Vec::new();
        {
            let mut memory = lock(&self.memory);
            if let Some(copy) = memory.copies.get_mut(&region) {
                copy.in_use = false;
            }
            memory.give_back(region, &mut out);
        }
        for (target, say, region, bytes) in out {
            node::send(self.node, target, &head(say, region), &bytes).await?;
        }
        Ok(())
    }

    /// Reads a region.
    ///
    /// # Errors
    /// [`ProgramError`] of the node, or if the region does not come.
    pub async fn read(&self, region: u32) -> Result<Vec<u8>, ProgramError> {
        self.start(region, Say::Read).await?;
        let bytes = lock(&self.memory).copies.get(&region).map(|copy| copy.bytes.clone());
        self.end(region).await?;
        Ok(bytes.unwrap_or_default())
    }

    /// Changes a region.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn write(&self, region: u32, change: impl FnOnce(&mut [u8])) -> Result<(), ProgramError> {
        self.start(region, Say::Write).await?;
        if let Some(copy) = lock(&self.memory).copies.get_mut(&region) {
            change(&mut copy.bytes);
        }
        self.end(region).await
    }

    /// Waits until all nodes are here, by messages: it polls.
    ///
    /// # Errors
    /// [`ProgramError`] of the node, or if a node does not come.
    pub async fn barrier(&self) -> Result<(), ProgramError> {
        let passed = self.barriers.get() + 1;
        self.barriers.set(passed);
        node::send(self.node, Target::Node(0), &head(Say::Barrier, 0), &[]).await?;
        let memory = self.memory.clone();
        self.wait("all nodes are to be at a barrier", move || {
            (lock(&memory).released >= passed).then_some(())
        })
        .await
    }

    /// Waits until all nodes are here, by a counter in the shared memory: it spins on its copy and does not poll, so it only ends
    /// where the node is interrupted. `round` counts from 1.
    ///
    /// # Errors
    /// [`ProgramError::Stalled`] when nothing changes for too long; [`ProgramError`] of the node.
    pub async fn spin_barrier(&self, counter: u32, round: u64) -> Result<(), ProgramError> {
        let read = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        self.write(counter, |bytes| {
            let count = read(bytes) + 1;
            bytes[..8].copy_from_slice(&count.to_le_bytes());
        })
        .await?;
        let start_ns = self.node.now_ns();
        while read(&self.read(counter).await?) < round * self.node.size() as u64 {
            if self.node.now_ns() - start_ns > self.patience_ns {
                return Err(ProgramError::Stalled {
                    what: "a copy of a region is to change, without polling",
                    seconds: self.patience_ns / 1_000_000_000,
                });
            }
            self.node.idle().await;
        }
        Ok(())
    }
}
