//! The one test that holds every short path equal to the plain one: seeded traffic on two data planes, one of which has all
//! short paths closed, so that each frame goes by itself through private memory, links and pool. Equal are what guests receive and
//! when, their chains' and their own calls, all counters, and captures.
//!
//! Segmented frames may reach a guest uncut on a short path. There, what they are on the wire is compared, and not how often the
//! guest was interrupted for it.

use ether::{EtherType, Time};
use fabric::{LinkCounters, PortCounters};

use super::captures::{Captured, finish};
use super::card::medium;
use super::paths::TSO4_SHORT;
use super::switches::{igmp_report, to_ip_group};
use super::vlans;
use super::{NEEDS_CHECKSUM, introduce, tcp_frame};
use crate::dataplane::rig::{ALL_FEATURES, Rig, frame, multicast_frame, mxoe_frame};
use crate::dataplane::route::Condition;
use crate::dataplane::{CaptureReader, WAIT_NS_MAX};
use crate::offload::{NetHeader, Segments, complete_checksum};
use vnicd_protocol::{JitterDistribution, LinkSettings};

/// Guests: the sender, one with all offloads, one with none, one with two queue pairs, one behind a trunk, and one that is
/// connected to itself.
const GUESTS: usize = 6;
const SENDER: usize = 0;
const LOOPBACK: usize = 5;
const GROUP: u16 = 7;

/// A seeded stream of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A frame to be sent: from whom, what is asked of the card, and its bytes.
type Sent = (usize, [u8; 12], Vec<u8>);

const PLAIN: [u8; 12] = [0; 12];

/// One batch of traffic of one kind.
fn batch(random: &mut Random, kind: u64, most: usize) -> Vec<Sent> {
    let sizes = [1, 2, 3, 17, 64, 65, 130, 200, 256];
    let size = sizes[random.below(9) as usize].min(most);
    let to = |random: &mut Random| 1 + random.below(4) as u8;
    let one = to(random);
    let mut frames = Vec::new();
    if kind == 5 && random.below(2) == 0 {
        // Messages whose marks the injector moves.
        let messages = (0..=size / 8).flat_map(|sequence| medium(8, sequence as u8));
        return messages.take(size).map(|bytes| (SENDER, PLAIN, bytes)).collect();
    }
    for number in 0..size {
        let seed = number as u8;
        let each = to(random);
        let len = 60 + random.below(1400) as usize;
        let mut bytes = frame(if kind == 0 { one } else { each }, 0, len, seed);
        let mut header = PLAIN;
        match kind {
            // A burst to one, and frames to all in turn.
            0 | 1 => {}
            // Short bursts to one after the other, of which some do not fit into one buffer or the card.
            2 => {
                bytes[5] = 1 + (number / 5 % 4) as u8;
                if random.below(20) == 0 {
                    bytes.truncate(random.below(20) as usize);
                }
            }
            3 => match random.below(5) {
                0 => bytes[..6].fill(0xff),
                1 => bytes[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 1]),
                2 => bytes = to_ip_group(0, number as u8 % 3, &bytes),
                3 if random.below(4) == 0 => bytes = igmp_report(0, number as u8 % 3),
                _ => bytes[5] = 99,
            },
            4 => {
                bytes = tcp_frame(one, len % 900);
                header = NEEDS_CHECKSUM;
                // Its sender understands congestion marks.
                bytes[15] = 2;
                if random.below(10) == 0 {
                    header[6] = 0xff;
                }
            }
            5 => {
                bytes = mxoe_frame(one, 0, len, random.below(3) == 0);
                if one == 2 {
                    // ESP has its mark elsewhere.
                    bytes[12..14].copy_from_slice(&EtherType::ESP.0.to_be_bytes());
                    bytes[14] = bytes[16] >> 7 << 1;
                }
            }
            // Types that cards serve, to others.
            6 => {
                let types: [[u8; 4]; 5] = [
                    [0x88, 0xb5, 0x57, 0x43],
                    [0x88, 0xb6, 0, 0],
                    [0x81, 0, 0, 5],
                    [0x08, 0, 0x45, 0],
                    [0x88, 0xb6, 0x57, 0],
                ];
                bytes[5] = one;
                bytes[12..16].copy_from_slice(&types[random.below(5) as usize]);
            }
            7 => bytes[5] = if number % 2 == 0 { one } else { 0 },
            8 if number == 0 => bytes = multicast_frame(0, GROUP, 60 + len % 1000, seed),
            8 if number > 20 => break,
            8 => {}
            9 => {
                frames.push((LOOPBACK, header, frame(one, LOOPBACK as u8, len, seed)));
                continue;
            }
            _ => {
                if number >= 12 {
                    break;
                }
                // Ten segments at most, some headers that are wrong, and others in between.
                match random.below(6) {
                    0 => {}
                    1 => {
                        bytes = tcp_frame(one, 1900);
                        bytes[23] = 17;
                        header = TSO4_SHORT;
                    }
                    _ => {
                        bytes = tcp_frame(if random.below(8) == 0 { 99 } else { one }, len + 300);
                        header = TSO4_SHORT;
                    }
                }
                if random.below(6) == 0 {
                    frames.push((LOOPBACK, header, bytes.clone()));
                }
            }
        }
        frames.push((SENDER, header, bytes));
    }
    frames
}

/// How many kinds of batches there are; the last is of segmented frames.
const KINDS: u64 = 11;
const SEGMENTED: u64 = KINDS - 1;

/// What a guest saw at a time.
#[derive(PartialEq, Eq)]
struct Seen {
    at: Time,
    guest: usize,
    frames: Vec<Vec<u8>>,
    calls: u64,
    completed: usize,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Seen {
            at,
            guest,
            frames,
            calls,
            completed,
        } = self;
        write!(
            f,
            "at {at:?} guest {guest}: {calls} calls, {completed} chains, {} frames:",
            frames.len()
        )?;
        // Enough of a frame to know it by.
        frames
            .iter()
            .try_for_each(|bytes| write!(f, " {}:{:02x?}", bytes.len(), &bytes[12..bytes.len().min(16)]))
    }
}

/// One data plane with its guests, and what came of the traffic so far.
struct Side {
    rig: Rig,
    seen: Vec<Seen>,
    readers: Vec<Option<CaptureReader>>,
    captured: Vec<Vec<Captured>>,
    /// Segmented frames are among the traffic.
    is_cut: bool,
}

impl Side {
    fn new(closed: bool, scenario: &Scenario) -> Self {
        let &Scenario { is_cut, seed, .. } = scenario;
        let mut rig = Rig::new(&[ALL_FEATURES, ALL_FEATURES, 0]);
        let far = rig.add_switch();
        rig.add_guest_with(0, ALL_FEATURES, |settings| settings.queue_pairs = 2);
        rig.add_guest(far, ALL_FEATURES);
        rig.add_loopback_guest(ALL_FEATURES);
        if closed {
            rig.close_shortcuts();
        }
        match scenario.switches {
            Switches::Plain => {}
            Switches::WithVlans => set_vlans(&mut rig),
            Switches::Snooping => set_snooping(&mut rig),
        }
        (1..5).for_each(|guest| introduce(&mut rig, SENDER, guest));
        for guest in [0, 1, 4] {
            rig.join(guest, GROUP);
            // What cards tell each other of it is an ordinary frame to who is in another VLAN.
            rig.settle();
        }
        for guest in 0..GUESTS {
            let strategies = firmware::StrategyKind::ALL;
            let strategy = strategies[(seed as usize + guest) % strategies.len()];
            rig.set_coalescing(guest, strategy, 20_000);
        }
        let mut side = Self {
            rig,
            seen: Vec::new(),
            readers: (0..GUESTS).map(|_| None).collect(),
            captured: Vec::new(),
            is_cut,
        };
        side.run();
        side
    }

    fn capture(&mut self, guest: usize, on: bool) {
        if let Some(reader) = self.readers[guest].take() {
            let (mut frames, missing) = finish(reader);
            assert_eq!(missing, 0);
            for frame in &mut frames {
                // What is announced together, and when, depends on what is cut.
                if self.is_cut {
                    (frame.comment, frame.at_ns) = (None, 0);
                }
            }
            let (sent, received): (Vec<_>, Vec<_>) = frames.into_iter().partition(|frame| frame.is_outbound);
            self.captured.extend([sent, received]);
            self.rig.end_captures();
        }
        if on {
            self.readers[guest] = Some(self.rig.capture(guest));
        }
    }

    /// Puts frames on their senders' rings, and lets everything arrive or (`waits` not) leaves what is in flight there.
    fn send(&mut self, frames: &[Sent], waits: bool) {
        let mut next = [0; GUESTS];
        for (guest, header, bytes) in frames {
            if next[*guest] < crate::dataplane::rig::RING {
                self.rig.send_with_header(*guest, next[*guest], header, bytes);
                next[*guest] += 1;
            }
        }
        if waits {
            self.run();
        } else {
            self.rig.settle();
            (0..GUESTS).for_each(|guest| self.look(guest));
        }
    }

    /// Lets everything that was sent arrive.
    fn run(&mut self) {
        let end = self.rig.now.plus_nanos(50_000_000);
        loop {
            self.rig.settle();
            for guest in 0..GUESTS {
                self.look(guest);
            }
            match self.rig.next_due().filter(|due| *due < end) {
                Some(due) => self.rig.now = due,
                None => break,
            }
        }
        self.rig.now = end;
    }

    fn look(&mut self, guest: usize) {
        let frames: Vec<_> = self.rig.received(guest).into_iter().flat_map(on_wire).collect();
        let (calls, completed) = (self.rig.calls(guest), self.rig.completed(guest));
        let calls = if self.is_cut { 0 } else { calls };
        if frames.len() + completed + calls as usize > 0 {
            self.seen.push(Seen {
                at: self.rig.now,
                guest,
                frames,
                calls,
                completed,
            });
        }
    }

    /// All counters of a port but those that say how it was done.
    fn counters(&self, guest: usize) -> serde_json::Value {
        let mut stats = serde_json::to_value(self.rig.stats(guest)).expect("counters");
        let fields = stats.as_object_mut().expect("an object");
        let mut but = vec!["copied_bytes"];
        if self.is_cut {
            but.extend(["interrupts", "adaptive", "queues", "steering", "copy_engine"]);
        }
        for name in but {
            fields.remove(name);
        }
        stats
    }

    /// What the ports of all switches and the links of all trunks counted.
    fn between_guests(&self) -> (Vec<PortCounters>, Vec<LinkCounters>) {
        let plane = &self.rig.plane;
        let of_ports = plane.forwarding.switches.iter().flat_map(|state| {
            let switch = &state.switch;
            switch.ports().map(|port| *switch.counters(port))
        });
        let links = plane.forwarding.wiring.trunks.iter().flat_map(|trunk| &trunk.links);
        (of_ports.collect(), links.map(|link| *link.counters()).collect())
    }

    /// Sends plain frames, which only captures see.
    fn send_unseen(&mut self, frames: &[(usize, Vec<u8>)]) {
        let mut next = [0; GUESTS];
        for (guest, bytes) in frames {
            self.rig.send(*guest, next[*guest], bytes);
            next[*guest] += 1;
        }
        self.rig.settle();
    }

    /// All that each guest saw since the last question: frames in their order, and chains that came back.
    fn take_seen(&mut self) -> Vec<(Vec<Vec<u8>>, usize)> {
        let mut all = vec![(Vec::new(), 0); GUESTS];
        for seen in self.seen.drain(..) {
            all[seen.guest].0.extend(seen.frames);
            all[seen.guest].1 += seen.completed;
        }
        all
    }
}

/// What a packet that a guest received is on the wire.
fn on_wire((header, mut bytes): ([u8; 12], Vec<u8>)) -> Vec<Vec<u8>> {
    let header = NetHeader::parse(&header);
    if header.is_segmented() {
        let mut segments = Segments::new(&bytes, header).expect("as it was sent");
        let mut out = vec![0; bytes.len()];
        let cut = std::iter::from_fn(|| segments.write_next(&mut out).map(|len| out[..len].to_vec()));
        return cut.collect();
    }
    if header.needs_checksum() {
        complete_checksum(&mut bytes, header).expect("as it was sent");
    }
    vec![bytes]
}

/// The sender is in VLAN 10 without a tag and in 5 with one. Guest 1 is in 10, guest 2 in 5, and in 10 with a tag, guest 3 in 10 with
/// a tag only; the trunk carries all VLANs with tags, and the guest behind it is in 10.
fn set_vlans(rig: &mut Rig) {
    use fabric::{PortVlans, VlanId, VlanSet};
    let [five, ten] = [5, 10].map(|number| VlanId::new(number).expect("a VLAN"));
    let tagged = |untagged, vlan| PortVlans::trunk(untagged, VlanSet::from_iter([vlan]));
    vlans::set(rig, SENDER, tagged(Some(ten), five));
    vlans::set(rig, 1, PortVlans::access(ten));
    vlans::set(rig, 2, tagged(Some(five), ten));
    vlans::set(rig, 3, tagged(None, ten));
    vlans::set(rig, 4, PortVlans::access(ten));
}

/// Switches that snoop; 239.0.0.1 is wanted by guest 1 and by the one behind the trunk.
fn set_snooping(rig: &mut Rig) {
    for (number, state) in rig.plane.forwarding.switches.iter_mut().enumerate() {
        state
            .switch
            .set_snooping(Some(ether::MacAddr([2, 0, 0, 0, 1, number as u8])));
    }
    for guest in [1, 4] {
        rig.send(guest, 0, &igmp_report(guest as u8, 1));
        rig.settle();
    }
}

/// What the switches are, beside plain ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Switches {
    Plain,
    WithVlans,
    Snooping,
}

impl Switches {
    const ALL: [Self; 3] = [Self::Plain, Self::WithVlans, Self::Snooping];
}

/// A change of one setting of a link.
type Setting = (&'static str, fn(&mut LinkSettings));

/// Every setting; those that need another one to mean something come with it.
const SETTINGS: [Setting; 17] = [
    ("ideal", |_| ()),
    ("down", |link| link.up = false),
    ("rate", |link| link.rate_bps = 100_000_000),
    ("delay", |link| link.delay_ns = 3_000_000),
    ("queue", |link| {
        link.rate_bps = 200_000_000;
        link.queue_max = fabric::QueueLevel::bytes(20_000);
    }),
    ("bucket", |link| {
        link.rate_bps = 100_000_000;
        link.burst_bytes = 10_000;
    }),
    ("jitter", |link| {
        link.delay_ns = 2_000_000;
        link.jitter_ns = 500_000;
    }),
    ("jitter that reorders", |link| {
        link.jitter_ns = 300_000;
        link.jitter_distribution = JitterDistribution::Pareto;
        link.jitter_reorders = true;
    }),
    ("bursts of lost frames", |link| {
        link.loss_enter_ppm = 50_000;
        link.loss_leave_ppm = 300_000;
        link.loss_in_burst_ppm = 1_000_000;
    }),
    ("every fifth", |link| link.loss_every = 5),
    ("ECN", |link| {
        link.rate_bps = 300_000_000;
        link.ecn_above = fabric::QueueLevel::bytes(5_000);
    }),
    ("mtu", |link| link.mtu = 600),
    ("loss", |link| link.loss_ppm = 100_000),
    ("reorder", |link| {
        link.reorder_ppm = 100_000;
        link.reorder_delay_ns = 50_000;
    }),
    ("duplicate", |link| link.duplicate_ppm = 100_000),
    ("corrupt", |link| link.corrupt_ppm = 100_000),
    ("corrupt past fcs", |link| {
        link.corrupt_ppm = 100_000;
        link.corrupt_past_fcs = true;
    }),
];

/// Where a link has them.
const PLACES: [&str; 4] = ["from the sender", "to the receivers", "trunk", "all"];

fn set(rig: &mut Rig, place: usize, settings: &LinkSettings) {
    let ideal = LinkSettings::default();
    if matches!(place, 0 | 3) {
        rig.set_link(SENDER, &ideal, settings);
    }
    if matches!(place, 1 | 3) {
        for guest in 1..5 {
            let settings = LinkSettings {
                seed: settings.seed + guest as u64,
                ..*settings
            };
            rig.set_link(guest, &settings, &ideal);
        }
    }
    if matches!(place, 2 | 3) {
        rig.set_trunk(settings, settings);
    }
}

/// What one comparison is about.
#[derive(Clone, Debug)]
struct Scenario {
    what: String,
    place: usize,
    settings: LinkSettings,
    is_cut: bool,
    switches: Switches,
    seed: u64,
    /// What the side with the short paths forgets.
    forgotten: Option<Condition>,
}

/// Equal batches on both sides, with captures that come and go, an injector, and settings that change while frames are in flight.
fn compare(scenario: &Scenario) {
    let Scenario {
        what,
        place,
        settings,
        is_cut,
        switches,
        seed,
        ..
    } = scenario;
    let mut sides = [false, true].map(|closed| Side::new(closed, scenario));
    let mut random = Random(*seed);
    if let Some(condition) = scenario.forgotten {
        sides[0].rig.forget(condition);
    }
    // With duplicates, more would come than a receiver has buffers for.
    let most = if settings.duplicate_ppm > 0 { 100 } else { 256 };
    let mut sent = Vec::new();
    for step in 0..8 {
        let kind = match is_cut {
            true if random.below(3) > 0 => SEGMENTED,
            _ => random.below(SEGMENTED),
        };
        // Twice, the settings change in flight: what was sent before is small enough to come on top.
        let (is_first, is_second) = (matches!(step, 3 | 5), matches!(step, 4 | 6));
        let frames = batch(&mut random, kind, if is_first || is_second { 60 } else { most });
        let captured = random.below(3) == 0;
        let guest = random.below(GUESTS as u64) as usize;
        let degree = if random.below(3) == 0 { 3 } else { 0 };
        for side in &mut sides {
            if captured {
                let on = side.readers[guest].is_none();
                side.capture(guest, on);
            }
            side.rig.misorder(SENDER, degree);
            if step == 0 || step == 5 {
                set(&mut side.rig, *place, settings);
            } else if step == 4 {
                set(&mut side.rig, *place, &LinkSettings::default());
            }
            side.send(&frames, !is_first);
        }
        sent.push((kind, frames.len()));
        let [short, plain] = &sides;
        let what = || {
            let place = PLACES[*place];
            format!("{what} {place}, {switches:?}, seed {seed}, step {step}, batches {sent:?}")
        };
        for (a, b) in short.seen.iter().zip(&plain.seen) {
            assert!(a == b, "{}: {a:?}, and plainly {b:?}", what());
        }
        assert_eq!(short.seen.len(), plain.seen.len(), "{}", what());
        for guest in 0..GUESTS {
            assert_eq!(
                short.counters(guest),
                plain.counters(guest),
                "{}, guest {guest}",
                what()
            );
        }
        assert!(
            short.between_guests() == plain.between_guests(),
            "{}: {:?}, and plainly {:?}",
            what(),
            short.between_guests(),
            plain.between_guests()
        );
    }
    for side in &mut sides {
        (0..GUESTS).for_each(|guest| side.capture(guest, false));
    }
    let [short, plain] = &sides;
    assert!(
        short.captured == plain.captured,
        "captures: {what} {}, seed {seed}",
        PLACES[*place]
    );
}

/// Every setting by itself and every two together, wherever `place` says.
fn scenarios(place: usize) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (number, (a, change_a)) in SETTINGS.iter().enumerate() {
        for (other, (b, change_b)) in SETTINGS[..=number].iter().enumerate() {
            // Each by itself with and without segmented frames, and of the pairs every second one with them.
            for is_cut in [false, true] {
                if other != number && is_cut == ((number + other) % 2 == 0) {
                    continue;
                }
                // And each by itself with all kinds of switches.
                let kinds = if other == number {
                    &Switches::ALL[..]
                } else {
                    &Switches::ALL[..1]
                };
                for switches in kinds {
                    let seed = 1 + 1000 * place as u64 + scenarios.len() as u64;
                    let mut settings = LinkSettings {
                        seed,
                        ..LinkSettings::default()
                    };
                    change_b(&mut settings);
                    change_a(&mut settings);
                    scenarios.push(Scenario {
                        what: format!("{a} and {b}"),
                        place,
                        settings,
                        is_cut,
                        switches: *switches,
                        seed,
                        forgotten: None,
                    });
                }
            }
        }
    }
    scenarios
}

#[test]
fn short_ways_are_equal_to_the_plain_one_from_a_guest() {
    scenarios(0).iter().for_each(compare);
}

#[test]
fn short_ways_are_equal_to_the_plain_one_to_guests() {
    scenarios(1).iter().for_each(compare);
}

#[test]
fn short_ways_are_equal_to_the_plain_one_over_a_trunk() {
    scenarios(2).iter().for_each(compare);
}

#[test]
fn short_ways_are_equal_to_the_plain_one_everywhere_at_once() {
    scenarios(3).iter().for_each(compare);
}

/// Frames of the sender to a guest that has posted no buffers for them, in bursts, and of another guest to the sender and to itself.
fn beside_a_guest_without_buffers(random: &mut Random, stalled: usize, count: usize) -> Vec<(usize, Vec<u8>)> {
    let other = 1 + (stalled + random.below(3) as usize) % 4;
    let mut frames = Vec::new();
    for number in 0..count {
        let len = 60 + random.below(1400) as usize;
        frames.push((SENDER, frame(stalled as u8, SENDER as u8, len, number as u8)));
        if random.below(4) == 0 {
            let to = if random.below(2) == 0 { SENDER } else { other };
            frames.push((other, frame(to as u8, other as u8, len, number as u8)));
        }
    }
    frames
}

/// Guests that post no buffers for a moment: on the short side frames wait in their sender's ring, on the plain one at the port.
fn compare_without_buffers(switches: Switches, seed: u64) {
    let scenario = Scenario {
        what: "no buffers".to_owned(),
        place: 0,
        settings: LinkSettings::default(),
        is_cut: false,
        switches,
        seed,
        forgotten: None,
    };
    let mut sides = [false, true].map(|closed| Side::new(closed, &scenario));
    let mut random = Random(seed);
    for step in 0..8 {
        let stalled = 1 + random.below(4) as usize;
        let all_buffers: Vec<_> = (0..crate::dataplane::rig::RING)
            .map(|number| {
                (
                    SENDER,
                    frame(stalled as u8, SENDER as u8, 60 + usize::from(number), step),
                )
            })
            .collect();
        let rows = [70, 10, 10].map(|most| {
            let count = 1 + random.below(most) as usize;
            beside_a_guest_without_buffers(&mut random, stalled, count)
        });
        let [behind, between, after] = &rows;
        let mut between = between.clone();
        between.retain(|(guest, _)| *guest != SENDER);
        for side in &mut sides {
            let others_look = |side: &mut Side| {
                let others = (0..GUESTS).filter(|guest| *guest != stalled);
                others.for_each(|guest| side.look(guest));
            };
            side.send_unseen(&all_buffers);
            others_look(side);
            side.send_unseen(behind);
            others_look(side);
            // What is decided about while the sender's frames wait has nothing to do with them.
            side.send_unseen(&between);
            others_look(side);
            if step % 3 == 2 {
                // It takes too long for them.
                side.rig.now = side.rig.now.plus_nanos(WAIT_NS_MAX);
                side.rig.settle();
            }
            side.look(stalled);
            side.run();
            side.send_unseen(after);
            side.run();
        }
        let what = format!("{switches:?}, seed {seed}, step {step}, guest {stalled}");
        let [short, plain] = &mut sides;
        let (of_short, of_plain) = (short.take_seen(), plain.take_seen());
        for (guest, (a, b)) in of_short.iter().zip(&of_plain).enumerate() {
            assert!(
                a == b,
                "{what}: guest {guest} saw {} frames, plainly {}",
                a.0.len(),
                b.0.len()
            );
            assert_eq!(short.counters(guest), plain.counters(guest), "{what}, guest {guest}");
        }
        assert_eq!(short.between_guests(), plain.between_guests(), "{what}");
    }
}

#[test]
fn frames_that_wait_for_buffers_and_those_behind_them_are_counted_as_on_the_plain_way() {
    for switches in Switches::ALL {
        (0..12).for_each(|seed| compare_without_buffers(switches, 77 + seed));
    }
}

#[test]
fn each_condition_for_a_short_way_is_missed_when_it_is_forgotten() {
    use Condition::*;
    for condition in [
        FitsMtu,
        LinkIsIdeal,
        LinkIsDrained,
        LinkOnlyDelays,
        SenderIsNotCaptured,
        ReceiverIsNotCaptured,
        NoInjector,
    ] {
        let is_noticed = (0..PLACES.len()).flat_map(scenarios).any(|scenario| {
            let forgetful = Scenario {
                forgotten: Some(condition),
                ..scenario
            };
            std::panic::catch_unwind(|| compare(&forgetful)).is_err()
        });
        assert!(is_noticed, "{condition:?}");
    }
}
