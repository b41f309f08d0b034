//! The values with which a switch is asked and answers.

use crate::ports::PortId;
use crate::vlan_tag::{TagChange, VlanId};

/// A trunk to another switch, in this process or elsewhere; numbered by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrunkId(pub u16);

/// A multicast group with members; valid until the next [`Switch::join`] or [`Switch::leave`].
///
/// [`Switch::join`]: super::Switch::join
/// [`Switch::leave`]: super::Switch::leave
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u16);

/// Where a frame leaves the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Egress {
    /// To the card behind this port.
    Local(PortId),
    /// Over a trunk to another switch.
    Trunk(TrunkId),
}

/// One port that a frame leaves by, and what happens to its tag there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where it goes.
    pub egress: Egress,
    /// What becomes of its tag.
    pub tag: TagChange,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// It leaves by one port as it is; never back to its own port.
    One(Egress),
    /// It leaves where [`Switch::targets`] lists, each with what becomes of its tag: an answer of a switch with VLANs,
    /// link aggregation or snooping.
    ///
    /// [`Switch::targets`]: super::Switch::targets
    Several,
    /// It was for the switch itself, which has read it.
    Taken,
    /// More than its first bytes say where it goes: [`Switch::inspect`] is to be asked at once, with all of it. An answer of a
    /// switch that snoops.
    ///
    /// [`Switch::inspect`]: super::Switch::inspect
    Inspect,
    /// It goes to every other port that is up ([`Switch::flood_targets`]).
    ///
    /// [`Switch::flood_targets`]: super::Switch::flood_targets
    Flood,
    /// It goes to the members of a group that are up, its own port excepted ([`Switch::flood_targets`]).
    ///
    /// [`Switch::flood_targets`]: super::Switch::flood_targets
    Group(GroupId),
    /// It ends here; the reason is counted already.
    Drop(DropReason),
}

weft_settings::named! {
    /// Why a frame ends in the switch.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum DropReason {
        /// Shorter than an Ethernet header.
        TooShort = "too-short",
        /// The port it came from is down or was removed (then it is counted nowhere).
        PortDown = "port-down",
        /// To the address of the cards themselves: never forwarded.
        CardControl = "card-control",
        /// The source is a group address, all zero, or the card address, which no station can have.
        InvalidSource = "invalid-source",
        /// To 01:80:c2:00:00:0x, which ends at the first bridge (IEEE 802.1D table 7-10).
        ReservedAddress = "reserved-address",
        /// The destination is behind the port it came from.
        SamePort = "same-port",
        /// Its tag states a VLAN that the port does not carry.
        VlanNotAllowed = "vlan-not-allowed",
        /// It has no tag, and the port takes only frames with one.
        VlanMissing = "vlan-missing",
        /// Its tag states the number 4095, which is no VLAN.
        VlanInvalid = "vlan-invalid",
        /// The path to its destination carries no frames just now: its trunks are down, the spanning tree keeps it closed, or the far
        /// end of a cable between two cards has no carrier.
        NoWay = "no-way",
        /// The spanning tree keeps the port closed that it came from, or its partner by LACP is not ready.
        Discarding = "discarding",
        /// To a multicast group that no station behind another port wants.
        NoMember = "no-member",
    }
}

/// Counts of one port since it was added. "In" is from the port into the switch.
///
/// `in_frames` = frames forwarded + `in_control` + [`PortCounters::dropped_total`]; `out_frames` + `out_control` = frames that the
/// port's link is given. What happens to a frame after the switch sent it to a port (link, receive ring) is counted there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PortCounters {
    /// Frames that came from the port, dropped ones included.
    pub in_frames: u64,
    /// Their bytes, from the first of the Ethernet header, without frame check sequence.
    pub in_bytes: u64,
    /// Of those frames, the ones to ff:ff:ff:ff:ff:ff that were flooded.
    pub in_broadcast: u64,
    /// Of those frames, the ones to other group addresses that were flooded or sent to a group.
    pub in_multicast: u64,
    /// Of those frames, the ones to one station that were flooded, because its port was not known.
    pub in_unknown: u64,
    /// Of those frames, the ones that were for the switch itself.
    pub in_control: u64,
    /// Frames sent to the port, those of the switch itself aside.
    pub out_frames: u64,
    /// Their bytes, counted as `in_bytes`.
    pub out_bytes: u64,
    /// Of the frames sent to the port, the ones that were flooded or went to a group.
    pub out_flooded: u64,
    /// Frames that the switch itself sent to the port: BPDUs and queries.
    pub out_control: u64,
    /// Their bytes, counted as `in_bytes`.
    pub out_control_bytes: u64,
    /// Addresses learned on the port that the table did not hold before.
    pub learned: u64,
    /// Addresses that came from the port and were known on another one until then. Many of them mean a loop, or two
    /// stations with one address.
    pub moved: u64,
    /// Times a source address was not learned, because the table or the port's part of it was full. Frames to such an
    /// address are flooded; while it goes on sending to one station, it is tried again every 10 ms.
    pub not_learned: u64,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(super) dropped: [u64; DropReason::ALL.len()],
}

impl PortCounters {
    pub(super) const ZERO: Self = Self {
        in_frames: 0,
        in_bytes: 0,
        in_broadcast: 0,
        in_multicast: 0,
        in_unknown: 0,
        in_control: 0,
        out_frames: 0,
        out_bytes: 0,
        out_flooded: 0,
        out_control: 0,
        out_control_bytes: 0,
        learned: 0,
        moved: 0,
        not_learned: 0,
        dropped: [0; DropReason::ALL.len()],
    };

    /// Counts frames to `dst` that go to several ports.
    #[inline]
    pub(super) fn note_flooded(&mut self, dst: ether::MacAddr, frames: u64) {
        if dst.is_broadcast() {
            self.in_broadcast += frames;
        } else if dst.is_multicast() {
            self.in_multicast += frames;
        } else {
            self.in_unknown += frames;
        }
    }

    /// Frames from the port that ended in the switch for this reason.
    pub const fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Frames from the port that ended in the switch.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }
}

/// One line of the forwarding table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// The station.
    pub mac: ether::MacAddr,
    /// The VLAN that it is known in; none in a switch without VLANs.
    pub vlan: Option<VlanId>,
    /// The port it was last seen on.
    pub port: PortId,
    /// Time since then, in nanoseconds.
    pub age_ns: u64,
}
