//! `nicctl group`: multicast groups of the guest's own card, and a sender and a receiver to try them with.
//!
//! Packets are those of `docs/spec/card-multicast.md`; the card knows which members a group has.

use std::{
    collections::BTreeMap,
    fmt,
    io::IoSlice,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::{Subcommand, value_parser};
use ether::{EtherType, MacAddr};
use firmware::{
    control::{GroupReport, Request},
    multicast::{CARD_FRAME_MIN, Kind, TAG_END, Tag},
};
use netif::{AfPacket, AfPacketOptions, Interest, Netif, Wake};
use serde::Serialize;
use weft_card_control::{Card, CardError, ask};

use crate::{Stop, run::print};

/// Bytes of the tag behind the Ethernet header, which are part of an MTU.
const TAG_LEN: usize = TAG_END - ether::ETHERNET_HEADER_LEN;

#[derive(Debug, Subcommand)]
pub(super) enum Group {
    /// Become a member of a group
    Join {
        /// Number of the group
        #[arg(value_parser = value_parser!(u16).range(1..))]
        group: u16,
    },
    /// Leave a group
    Leave {
        /// Number of the group
        #[arg(value_parser = value_parser!(u16).range(1..))]
        group: u16,
    },
    /// The groups that this card is in, and what it counted there
    List {
        /// Only this one
        group: Option<u16>,
    },
    /// Send packets to the other members of a group
    Send {
        /// Number of the group
        #[arg(value_parser = value_parser!(u16).range(1..))]
        group: u16,
        /// How many
        #[arg(long, value_name = "N", default_value_t = 1)]
        count: u32,
        /// Bytes of each packet's payload
        #[arg(long, value_name = "BYTES", default_value_t = 64)]
        size: u16,
    },
    /// Receive packets of a group, until so many have come or the time is over
    Receive {
        /// Number of the group
        #[arg(value_parser = value_parser!(u16).range(1..))]
        group: u16,
        /// How many
        #[arg(long, value_name = "N", default_value_t = 1)]
        count: u32,
        /// How long to wait for them, in seconds
        #[arg(long, value_name = "S", default_value_t = 10, value_parser = value_parser!(u64).range(..=86_400))]
        timeout_s: u64,
    },
}

impl Group {
    /// Runs the command with the card behind `card` on `interface`.
    pub(super) fn run(
        &self,
        card: &mut Card<'_, impl Netif>,
        interface: &str,
        json: bool,
        stop: &Stop,
    ) -> anyhow::Result<()> {
        match *self {
            Self::Join { group } => {
                let report = ask!(card, &Request::JoinGroup { group }, JoinGroup)?;
                print(json, &GroupsOutput::from(vec![report]))
            }
            Self::Leave { group } => {
                // The card accepts leaving a group that it is not in, since it may hear the request twice; here it is
                // an error of the user.
                if own(card, group)?.is_none() {
                    bail!("this card is not in group {group}");
                }
                let report = ask!(card, &Request::LeaveGroup { group }, LeaveGroup)?;
                print(json, &GroupsOutput::from(vec![report]))
            }
            Self::List { group } => {
                let mut all = groups(card)?;
                all.retain(|report| group.is_none_or(|only| report.group == only));
                print(json, &GroupsOutput::from(all))
            }
            Self::Send { group, count, size } => {
                let before = member(card, group)?;
                let mut port = open(interface)?;
                send(&mut port, group, count, size, stop)?;
                let sent = |report: &GroupReport| report.counters.sent.saturating_sub(before.counters.sent);
                let mut after = member(card, group)?;
                // With several transmit queues, the question may be there before the last packets are.
                let mut progress = Instant::now();
                while sent(&after) < u64::from(count) && progress.elapsed() < TAKEN_WITHIN {
                    if port.wait(Interest::Receive, Instant::now() + LOOK_EVERY, Some(stop.as_fd()))? == Wake::Stop {
                        break;
                    }
                    let now = member(card, group)?;
                    if sent(&now) > sent(&after) {
                        progress = Instant::now();
                    }
                    after = now;
                }
                let output = SendOutput {
                    group,
                    members: after.members - 1,
                    size,
                    count,
                    taken: sent(&after),
                };
                print(json, &output)?;
                if output.taken < u64::from(count) {
                    bail!("the card took fewer packets than were sent: its neighbours give no credits fast enough");
                }
                Ok(())
            }
            Self::Receive {
                group,
                count,
                timeout_s,
            } => {
                // What comes from now on waits in the port.
                let mut port = open(interface)?;
                member(card, group)?;
                let output = receive(&mut port, group, count, Duration::from_secs(timeout_s), stop)?;
                print(json, &output)?;
                if output.packets < count {
                    bail!("{} of {count} packets came in {timeout_s} s", output.packets);
                }
                Ok(())
            }
        }
    }
}

fn open(interface: &str) -> anyhow::Result<AfPacket> {
    Ok(AfPacket::open(
        interface,
        EtherType::CARD_TO_CARD,
        &AfPacketOptions::default(),
    )?)
}

/// Returns the report of the first group behind this number; there is none if the number is not greater.
fn next_group(card: &mut Card<'_, impl Netif>, after: u16) -> Result<GroupReport, CardError> {
    ask!(card, &Request::GetGroups { after }, GetGroups)
}

fn groups(card: &mut Card<'_, impl Netif>) -> anyhow::Result<Vec<GroupReport>> {
    let mut all: Vec<GroupReport> = Vec::new();
    loop {
        let after = all.last().map_or(0, |report| report.group);
        let report = next_group(card, after)?;
        if report.group <= after {
            return Ok(all);
        }
        all.push(report);
    }
}

/// When a card takes none of the sent packets for this long, it is said that it took too few; the constant after it is
/// how often the card is asked meanwhile.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Returns the card's report of a group that it is in.
fn own(card: &mut Card<'_, impl Netif>, group: u16) -> anyhow::Result<Option<GroupReport>> {
    let report = next_group(card, group - 1)?;
    Ok((report.group == group).then_some(report))
}

fn member(card: &mut Card<'_, impl Netif>, group: u16) -> anyhow::Result<GroupReport> {
    own(card, group)?
        .with_context(|| format!("this card is not in group {group}; `nicctl group join {group}` makes it a member"))
}

fn send(port: &mut AfPacket, group: u16, count: u32, size: u16, stop: &Stop) -> anyhow::Result<()> {
    if TAG_LEN + usize::from(size) > port.mtu() {
        bail!(
            "{size} bytes do not fit: the MTU allows {}",
            port.mtu().saturating_sub(TAG_LEN)
        );
    }
    let mut frame = vec![0; (TAG_END + usize::from(size)).max(CARD_FRAME_MIN)];
    let tag = Tag::send(port.mac(), group, size);
    tag.write(frame.first_chunk_mut().context("a frame shorter than its tag")?);
    for number in 0..count {
        // The reader of a capture sees which packet it is.
        let payload = &mut frame[TAG_END..TAG_END + usize::from(size)];
        let known = payload.len().min(4);
        payload[..known].copy_from_slice(&number.to_be_bytes()[..known]);
        while !port.send(&[IoSlice::new(&frame)])? {
            let deadline = Instant::now() + Duration::from_secs(1);
            if port.wait(Interest::Send, deadline, Some(stop.as_fd()))? == Wake::Stop {
                bail!("ended after {number} packets");
            }
        }
    }
    Ok(())
}

fn receive(
    port: &mut AfPacket,
    group: u16,
    count: u32,
    timeout: Duration,
    stop: &Stop,
) -> anyhow::Result<ReceiveOutput> {
    let deadline = Instant::now() + timeout;
    let mut output = ReceiveOutput {
        group,
        packets: 0,
        senders: BTreeMap::new(),
    };
    while output.packets < count {
        let Some(frame) = port.poll_receive()? else {
            match port.wait(Interest::Receive, deadline, Some(stop.as_fd()))? {
                Wake::Ready => continue,
                Wake::Stop | Wake::Deadline => break,
            }
        };
        let tag = Tag::parse(frame, frame.len() as u32);
        let Some(tag) = tag.filter(|tag| tag.kind == Kind::Data && tag.group == group) else {
            continue;
        };
        output.packets += 1;
        let sender = output.senders.entry(Address(tag.sender)).or_insert(SenderOutput {
            packets: 0,
            bytes: 0,
            first: tag.sequence,
            last: tag.sequence,
            missing: 0,
            in_order: true,
            hops_max: 0,
        });
        if sender.packets > 0 {
            let ahead = tag.sequence.wrapping_sub(sender.last);
            let forward = (1..=u32::MAX / 2).contains(&ahead);
            sender.in_order &= forward;
            sender.missing += if forward { ahead - 1 } else { 0 };
        }
        sender.last = tag.sequence;
        sender.packets += 1;
        sender.bytes += u64::from(tag.payload_len);
        sender.hops_max = sender.hops_max.max(tag.hops);
    }
    Ok(output)
}

/// A group as the card knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupOutput {
    /// Its number.
    pub group: u16,
    /// Members, this card included; 0 = it is none.
    pub members: u16,
    /// Packets by what became of them.
    pub packets: BTreeMap<&'static str, u64>,
}

/// `nicctl group join`, `leave` and `list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupsOutput {
    /// The groups asked for.
    pub groups: Vec<GroupOutput>,
}

impl From<Vec<GroupReport>> for GroupsOutput {
    fn from(reports: Vec<GroupReport>) -> Self {
        let group = |report: GroupReport| GroupOutput {
            group: report.group,
            members: report.members,
            packets: report.counters.named().into_iter().collect(),
        };
        Self {
            groups: reports.into_iter().map(group).collect(),
        }
    }
}

impl fmt::Display for GroupsOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.groups.is_empty() {
            return f.write_str("this card is in no group");
        }
        for (number, group) in self.groups.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            if group.members == 0 {
                write!(f, "group {}: not a member", group.group)?;
                continue;
            }
            let members = if group.members == 1 { "member" } else { "members" };
            write!(f, "group {}: {} {members}", group.group, group.members)?;
            let counted: Vec<_> = (group.packets.iter().filter(|(_, count)| **count > 0))
                .map(|(name, count)| format!("{} {count}", name.replace('_', " ")))
                .collect();
            if !counted.is_empty() {
                write!(f, "; packets: {}", counted.join(", "))?;
            }
        }
        Ok(())
    }
}

/// `nicctl group send`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct SendOutput {
    group: u16,
    /// Other members.
    members: u16,
    size: u16,
    /// Packets handed to the card.
    count: u32,
    /// Packets that it took.
    taken: u64,
}

impl fmt::Display for SendOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            group,
            members,
            size,
            count,
            taken,
        } = self;
        let (packets, members) = (counted(*count, "packet"), counted(u32::from(*members), "other member"));
        write!(f, "{packets} of {size} bytes for the {members} of group {group}")?;
        if *taken < u64::from(*count) {
            write!(f, "; the card took {taken}")?;
        }
        Ok(())
    }
}

/// Formats a number of things.
fn counted(count: u32, thing: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{ending}")
}

/// A MAC address as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Address(MacAddr);

impl Serialize for Address {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// What came from one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct SenderOutput {
    packets: u32,
    /// Bytes of payload.
    bytes: u64,
    /// Numbers of the first and the last packet.
    first: u32,
    last: u32,
    /// Numbers between these that did not come.
    missing: u32,
    /// Each had a higher number than the one before.
    in_order: bool,
    /// The most cards that a packet came through.
    hops_max: u8,
}

/// `nicctl group receive`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct ReceiveOutput {
    group: u16,
    packets: u32,
    senders: BTreeMap<Address, SenderOutput>,
}

impl fmt::Display for ReceiveOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}: {}", self.group, counted(self.packets, "packet"))?;
        for (sender, of) in &self.senders {
            let order = if of.in_order { "in order" } else { "NOT in order" };
            let (packets, hops) = (counted(of.packets, "packet"), counted(u32::from(of.hops_max), "hop"));
            write!(
                f,
                "\nfrom {}: {packets}, {} bytes, numbers {} to {}, {order}",
                sender.0, of.bytes, of.first, of.last
            )?;
            if of.missing > 0 {
                write!(f, ", {} missing", of.missing)?;
            }
            write!(f, ", {hops}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use firmware::multicast::GroupCounters;

    use super::*;

    #[test]
    fn reports_say_what_happened_in_one_line_each() {
        let report = |group, members, sent| GroupReport {
            group,
            members,
            counters: GroupCounters {
                sent,
                no_buffer: sent,
                ..GroupCounters::default()
            },
        };
        let text = GroupsOutput::from(vec![report(7, 5, 2), report(8, 1, 0), report(9, 0, 0)]).to_string();
        assert_eq!(
            text,
            "group 7: 5 members; packets: no buffer 2, sent 2\ngroup 8: 1 member\ngroup 9: not a member"
        );
        assert_eq!(GroupsOutput::from(Vec::new()).to_string(), "this card is in no group");
        let sent = SendOutput {
            group: 7,
            members: 4,
            size: 64,
            count: 1,
            taken: 0,
        };
        assert_eq!(
            sent.to_string(),
            "1 packet of 64 bytes for the 4 other members of group 7; the card took 0"
        );
    }
}
