//! A shard: switches with all their ports, run to completion by one thread at a time.
//!
//! Whoever gets a kick takes the shard and runs it; a thread of its own runs it for timers and under lasting load. The
//! vhost-user session, the control socket and the metrics use it through [`Fabric`]; decisions about interrupts are the
//! firmware's, decisions about ways the switch's.

mod capture;
mod card_settings;
mod cards;
mod counters;
mod crossing;
mod drain;
mod due;
mod fabric_handle;
mod fifo;
mod forward;
mod frame;
mod groups;
mod hold;
mod host_state;
mod loopback;
mod polling;
mod pool;
mod port;
mod receive;
mod retag;
mod returning;
#[cfg(any(test, feature = "testing"))]
pub mod rig;
mod run;
mod stats;
mod straight;
mod switch_frames;
mod switch_handle;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_captures;
#[cfg(test)]
mod tests_card;
#[cfg(test)]
mod tests_faults;
#[cfg(test)]
mod tests_links;
#[cfg(test)]
mod tests_loopback;
#[cfg(test)]
mod tests_multicast;
#[cfg(test)]
mod tests_multicast_waits;
#[cfg(test)]
mod tests_shortcuts;
#[cfg(test)]
mod tests_switches;
#[cfg(test)]
mod tests_timed;
#[cfg(test)]
mod tests_vlans;
#[cfg(test)]
mod tests_ways;
mod timed;
mod trace;
mod transmit;
mod trunk;
mod watch;
mod way;

use std::panic::{AssertUnwindSafe, catch_unwind};

use ether::Time;
use fabric::{Egress, Switch, Target};

pub use capture::{CaptureReader, Chunk};
pub use card_settings::CardSettings;
pub use drain::{Drain, UnderWay};
pub use fabric_handle::{Fabric, FabricError, FabricSettings, SwitchId};
pub use hold::HOLD_NS_MAX;
pub(crate) use run::Shard;
pub use switch_handle::TrunkOptions;
pub use trace::{TRACE_EVENTS_DEFAULT, TraceReader};
pub use watch::Watch;

use crate::ring::Rule;
use cards::CardQueue;
use groups::Groups;
use polling::Polling;
use pool::Pool;
pub(crate) use port::Port;
use returning::Returning;
use transmit::{Batch, TxOrigin};
use trunk::Trunk;
use vnicd_protocol::{SwitchSettings, drops};
use watch::Watcher;
use way::Shortcuts;

/// A switch and which port of the shard is behind each of its ports.
struct SwitchState {
    name: String,
    settings: SwitchSettings,
    switch: Switch,
    /// Shard port by switch port number; trunks have no shard port.
    ports: Vec<usize>,
}

/// Everything the lock of a shard protects.
pub(crate) struct Inner {
    switches: Vec<SwitchState>,
    ports: Vec<Port>,
    trunks: Vec<Trunk>,
    pool: Pool,
    batch: Option<Box<Batch>>,
    gather: Vec<u8>,
    /// Where the floods in work go: of one behind a trunk on top of the one that it belongs to.
    targets: Vec<Egress>,
    /// As `targets`, of a switch that says what becomes of tags.
    tagged_targets: Vec<Target>,
    /// When a switch has something to do by itself next; never, if none takes part in a spanning tree or snoops.
    switches_due: Time,
    /// Private memory for a frame whose tag is changed.
    retagged: Vec<u8>,
    /// Receive queues that got something in the batch in work: port, queue.
    touched: Vec<(usize, usize)>,
    /// The port with one queue pair that the last frame went to straight; asked for by the batch in work.
    last_straight: Option<usize>,
    /// Whether the short ways are open.
    shortcuts: Shortcuts,
    /// Trunks that the frame in work and its copies have crossed straight.
    straight_crossings: u32,
    /// The port whose rings are being worked on for another one: a panic is its fault.
    working_on: Option<usize>,
    watchers: Vec<Watcher>,
    /// Frames between cards that are on their way through this round.
    cards: CardQueue,
    /// Who is in which multicast group.
    groups: Groups,
    /// What [`Time::ZERO`] is in nanoseconds since 1970.
    origin_unix_ns: u64,
    /// How long the runner goes on without work.
    polling: Polling,
    /// The guests of a process that was here before may still be on their way back; see [`returning`].
    returning: Returning,
    /// How many want that nothing more is taken from guests; see [`drain`].
    drains: u32,
}

impl Inner {
    fn new(origin_unix_ns: u64, settings: FabricSettings) -> Self {
        Self {
            returning: Returning::new(settings.return_ns),
            drains: 0,
            switches: Vec::new(),
            ports: Vec::new(),
            trunks: Vec::new(),
            pool: Pool::default(),
            batch: None,
            gather: Vec::new(),
            targets: Vec::new(),
            tagged_targets: Vec::new(),
            retagged: Vec::new(),
            switches_due: Time::MAX,
            touched: Vec::new(),
            last_straight: None,
            shortcuts: Shortcuts::default(),
            straight_crossings: 0,
            working_on: None,
            watchers: Vec::new(),
            cards: CardQueue::default(),
            groups: Groups::default(),
            origin_unix_ns,
            polling: Polling::new(settings.poll_ns),
        }
    }

    /// The port with number `index`, which never goes away.
    pub(crate) fn port(&mut self, index: usize) -> &mut Port {
        &mut self.ports[index]
    }

    /// One round over everything that can be done now. True if anything was.
    fn pass(&mut self, now: Time) -> bool {
        let mut worked = self.guarded(None, now, |inner| inner.move_due(now));
        if now >= self.switches_due {
            worked |= self.guarded(None, now, |inner| inner.serve_switches(now));
        }
        self.look_for_returned(now);
        for port in 0..self.ports.len() {
            for pair in 0..self.ports[port].pairs.len() {
                if self.ports[port].pairs[pair].tx.is_ready() {
                    worked |= self.guarded(Some(port), now, |inner| inner.transmit(port, pair, now));
                }
            }
        }
        if worked && self.pool.next_due().is_some_and(|at| at <= now) {
            self.guarded(None, now, |inner| inner.move_due(now));
        }
        self.guarded(None, now, |inner| {
            inner.announce_touched(now);
            false
        });
        for index in 0..self.ports.len() {
            self.guarded(Some(index), now, |inner| {
                inner.tend(index, now);
                false
            });
        }
        worked
    }

    /// What is due at the port with number `index` without a frame: a memory fault, timers, completions.
    #[inline]
    fn tend(&mut self, index: usize, now: Time) {
        let port = &mut self.ports[index];
        if port.take_memory_fault() {
            port.fail_rule(Rule::MemoryTruncated, now);
            return;
        }
        if port.nic.next_event().is_some_and(|at| at <= now) {
            self.serve_due(index, now);
        }
        let port = &mut self.ports[index];
        (0..port.pairs.len()).for_each(|pair| port.publish_transmitted(pair, now));
    }

    #[inline(never)]
    fn serve_due(&mut self, index: usize, now: Time) {
        self.serve_timers(index, now);
        let multicast = self.ports[index].nic.multicast();
        if multicast.next_event().is_some_and(|at| at <= now) {
            self.tend_multicast(index, now);
        }
        let port = &mut self.ports[index];
        (0..port.pairs.len()).for_each(|queue| port.announce(queue, now));
    }

    /// Runs `work` for `port`; if it panics, that port fails and the shard goes on.
    #[inline]
    fn guarded(&mut self, port: Option<usize>, now: Time, work: impl FnOnce(&mut Self) -> bool) -> bool {
        self.contained(port, now, work).unwrap_or(true)
    }

    /// Runs `work` for `port`. If it panics (`None`), the port whose rings were being worked on fails, or else `port`, and
    /// no other one loses anything by it.
    #[inline]
    fn contained<T>(&mut self, port: Option<usize>, now: Time, work: impl FnOnce(&mut Self) -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(result) => Some(result),
            Err(_) => {
                self.after_panic(port, now);
                None
            }
        }
    }

    #[cold]
    fn after_panic(&mut self, port: Option<usize>, now: Time) {
        self.targets.clear();
        self.tagged_targets.clear();
        if let Some(sender) = port {
            // Scratch memory that was in use went with the stack, and is made anew when needed; the frames of a batch that
            // were not handed over are still in their ring.
            self.ports[sender]
                .pairs
                .iter_mut()
                .for_each(|pair| pair.tx.untake_unfinished());
        }
        let Some(blamed) = self.working_on.take().or(port) else {
            tracing::error!("an internal error (a panic) outside any port; frames on their way may be lost");
            return;
        };
        self.touched.retain(|(touched, _)| *touched != blamed);
        let port = &mut self.ports[blamed];
        port.pairs.iter_mut().for_each(|pair| pair.rx.touched = false);
        port.fail("an internal error (a panic) in its data path".to_owned(), now);
    }

    /// Takes one batch from a transmit ring and sends it on.
    #[inline]
    fn transmit(&mut self, index: usize, pair: usize, now: Time) -> bool {
        if self.must_wait(index, pair, now) {
            return false;
        }
        let mut batch = self.batch.take().unwrap_or_else(|| Box::new(Batch::new()));
        let port = &mut self.ports[index];
        let side = &mut port.pairs[pair].tx;
        let (Some(ring), Some(map)) = (&mut side.ring, &port.map) else {
            self.batch = Some(batch);
            return false;
        };
        ring.kicks_off();
        let broken = batch.fill(ring, map).err();
        let origin = TxOrigin::new(index, pair);
        let mut taken = 0;
        while taken < batch.len() {
            let frame = batch.frame(taken);
            self.last_straight = None;
            let Some(left_at) = self.take_from_guest(origin, &frame, now) else {
                break;
            };
            let side = &mut self.ports[index].pairs[pair].tx;
            side.finish(batch.head(taken), left_at, now);
            taken += 1;
            if self.ports[index].pairs[pair].tx.ring.is_none() {
                // A frame of the batch made the port itself fail: what is left of it came with the ring that stopped.
                self.batch = Some(batch);
                return true;
            }
            if let Some(next) = batch.ethernet_header(taken)
                && let Some(mut run) = self.begin_run(origin, &frame, next)
            {
                taken += self.follow(&mut run, (index, pair), &batch, taken, now);
                self.end_run(index, &run, now);
            }
        }
        let held = taken < batch.len();
        let left = batch.entries() - taken as u16;
        self.batch = Some(batch);
        self.announce_touched(now);
        let port = &mut self.ports[index];
        if held && let Some(ring) = &mut port.pairs[pair].tx.ring {
            // The held frame and all behind it will be read anew, one that broke a rule included.
            ring.untake(left);
        }
        port.publish_transmitted(pair, now);
        match broken {
            Some(rule) if !held => {
                port.fail_rule(rule, now);
                true
            }
            _ => taken > 0,
        }
    }

    #[inline]
    fn announce_touched(&mut self, now: Time) {
        while let Some((port, queue)) = self.touched.pop() {
            self.working_on = Some(port);
            self.count_straight(port, queue);
            let port = &mut self.ports[port];
            port.pairs[queue].rx.touched = false;
            port.announce(queue, now);
            self.working_on = None;
        }
    }

    /// True if the frames of a transmit ring wait for a receiver, and trying again now would be in vain.
    #[inline]
    fn must_wait(&mut self, index: usize, pair: usize, now: Time) -> bool {
        let side = &self.ports[index].pairs[pair].tx;
        if self.drains != 0 || self.returning.is_on() && side.resumed {
            return true;
        }
        match side.held {
            None => false,
            Some(held) => now < side.held_until && self.ports[held.port].still_stalled(held.queue, now),
        }
    }

    /// When something is due without anybody's kick.
    fn next_due(&self, now: Time) -> Option<Time> {
        let pairs = self.ports.iter().flat_map(|port| &port.pairs);
        let held = pairs.filter_map(|pair| pair.tx.held.map(|_| pair.tx.held_until));
        let holds = self
            .ports
            .iter()
            .filter_map(|port| port.hold_ends(now))
            .chain(held.filter(|at| *at > now));
        let timers = self.ports.iter().filter_map(|port| port.nic.next_event());
        let sending = self.ports.iter().flat_map(|port| &port.pairs);
        let left = sending.filter_map(|pair| pair.tx.next_left());
        let due = holds.chain(timers).chain(left).chain(self.pool.next_due());
        let switches = Some(self.switches_due).filter(|at| *at != Time::MAX);
        due.chain(self.returning.ends()).chain(switches).min()
    }

    /// Notes for which ports' receive buffers frames wait.
    fn mark_awaited(&mut self) {
        self.ports
            .iter_mut()
            .for_each(|port| port.awaited = !port.waiting.is_empty());
        for index in 0..self.ports.len() {
            for pair in 0..self.ports[index].pairs.len() {
                if let Some(held) = self.ports[index].pairs[pair].tx.held {
                    self.ports[held.port].awaited = true;
                }
            }
        }
    }

    /// Asks every driver to kick from now on. True if there is work already, or a port failed.
    fn kicks_on(&mut self, now: Time) -> bool {
        let mut work = false;
        self.mark_awaited();
        for index in 0..self.ports.len() {
            for pair in 0..self.ports[index].pairs.len() {
                let held = self.must_wait(index, pair, now);
                let port = &mut self.ports[index];
                let hold = port.awaited && port.hold_ends(now).is_some();
                let pair = &mut port.pairs[pair];
                let mut outcome = Ok(0);
                if pair.tx.is_ready()
                    && let Some(ring) = &mut pair.tx.ring
                {
                    // A ring whose head frame waits for a receiver is not looked at again before that one refills.
                    outcome = ring.kicks_on().map(|available| if held { 0 } else { available });
                }
                if hold
                    && outcome.is_ok()
                    && pair.rx.is_ready()
                    && let Some(ring) = &mut pair.rx.ring
                {
                    outcome = ring.kicks_on();
                }
                match outcome {
                    Ok(available) => work |= available > 0,
                    Err(rule) => {
                        port.fail_rule(rule, now);
                        work = true;
                    }
                }
            }
        }
        work
    }
}
