//! Layouts of the operations about multicast groups, JOIN_GROUP, LEAVE_GROUP and GET_GROUPS, and the card's answers.
//!
//! A card cannot join a group by itself: trees concern all members. It notes what its guest wants and leaves the answer to
//! whoever keeps the groups ([`Card::take_group_request`]).

use alloc::borrow::Cow;
use core::fmt;

use ether::{MacAddr, Time};

use super::{
    CONTROL_FRAME_MAX, GroupReport, Refusal, RefusalCode, Reply, Request,
    request::Reject,
    wire::{Reader, Writer, operation},
};
use crate::{Card, multicast::GroupCounters};

/// How often a guest may change its groups: each change writes the tables of all members, which is everybody's time.
pub const GROUP_CHANGES_PER_S: u64 = 20;
/// Changes that a guest may make at once after a pause: joining and leaving every group it can be in.
pub const GROUP_CHANGES_BURST: u64 = 32;

const NS_PER_CHANGE: u64 = 1_000_000_000 / GROUP_CHANGES_PER_S;

/// A wish of the guest that concerns the other members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRequest {
    /// Number of the group, not 0.
    pub group: u16,
    /// To join; otherwise to leave.
    pub join: bool,
    /// The address that the guest sent the request from.
    pub guest: MacAddr,
    id: u16,
}

/// Why a wish was not fulfilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRefusal {
    /// The card is in [`GROUPS_MAX`](crate::multicast::GROUPS_MAX) groups.
    TooManyGroups,
    /// The group has [`MEMBERS_MAX`](crate::multicast::MEMBERS_MAX) members.
    Full,
    /// The guest has another address than the one it asked from, or another member has this one.
    Address,
    /// More changes than [`GROUP_CHANGES_PER_S`].
    TooOften,
    /// The card is connected to itself: no other card can be reached from it.
    Loopback,
}

impl GroupRefusal {
    /// For people.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::TooManyGroups => "the card is in 16 groups, and can be in no more",
            Self::Full => "the group has 128 members, and can have no more",
            Self::Address => "the request does not come from the address that the card knows, or another member has it",
            Self::TooOften => "groups are changed too often; try again in a moment",
            Self::Loopback => "the card is connected to itself, and can be in no group with others",
        }
    }
}

impl fmt::Display for GroupRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl core::error::Error for GroupRefusal {}

/// What a card knows of its guest's wishes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupWishes {
    request: Option<GroupRequest>,
    credit_ns: u64,
    since: Time,
}

impl GroupWishes {
    pub(crate) const fn new() -> Self {
        Self {
            request: None,
            credit_ns: GROUP_CHANGES_BURST * NS_PER_CHANGE,
            since: Time::ZERO,
        }
    }

    /// What nobody took has no answer: the guest asks again.
    pub(crate) const fn forget(&mut self) {
        self.request = None;
    }

    /// Notes who asked; false if nobody did.
    pub(super) fn note_sender(&mut self, guest: MacAddr, id: u16) -> bool {
        let wish = self.request.as_mut();
        wish.map(|request| (request.guest, request.id) = (guest, id)).is_some()
    }

    fn take(&mut self, now: Time) -> bool {
        let earned_ns = now.nanos_since(self.since);
        self.since = self.since.max(now);
        self.credit_ns = self
            .credit_ns
            .saturating_add(earned_ns)
            .min(GROUP_CHANGES_BURST * NS_PER_CHANGE);
        let left = self.credit_ns.checked_sub(NS_PER_CHANGE);
        self.credit_ns = left.unwrap_or(self.credit_ns);
        left.is_some()
    }
}

impl Card {
    /// What the guest wants, by the control frame that was handled last, if it concerns other members of a group: then that
    /// frame has no reply yet. Whoever keeps the groups does it, or not, and says so by [`Card::answer_group`].
    pub fn take_group_request(&mut self) -> Option<GroupRequest> {
        self.group_wishes.request.take()
    }

    /// Answers a request that was taken; returns the length of the reply written to `reply`, as
    /// [`Card::handle_control`] does. If it was done, the group's table is written already.
    pub fn answer_group(
        &mut self,
        request: GroupRequest,
        outcome: Result<(), GroupRefusal>,
        reply: &mut [u8; CONTROL_FRAME_MAX],
    ) -> usize {
        let code = if request.join {
            operation::JOIN_GROUP
        } else {
            operation::LEAVE_GROUP
        };
        let answer = match outcome {
            Ok(()) => {
                self.control_counters.served += 1;
                let report = report(self, request.group);
                if request.join {
                    Reply::JoinGroup(report)
                } else {
                    Reply::LeaveGroup(report)
                }
            }
            Err(refusal) => {
                self.control_counters.refused[RefusalCode::Group as usize - 1] += 1;
                Reply::Refused(Refusal {
                    code: RefusalCode::Group.code(),
                    reason: Cow::Borrowed(refusal.sentence()),
                })
            }
        };
        answer.encode(request.guest, request.id, code, reply)
    }
}

/// Notes a wish; the answer that counts comes later.
pub(super) fn wish(nic: &mut Card, now: Time, group: u16, join: bool) -> Result<GroupReport, Reject> {
    let is_member = |nic: &Card| nic.multicast().groups().any(|(number, ..)| number == group);
    // What is so already costs nothing, and may be asked for as often as anything.
    if is_member(nic) != join && !nic.group_wishes.take(now) {
        return Err(Reject::new(RefusalCode::Group, GroupRefusal::TooOften.sentence()));
    }
    nic.group_wishes.request = Some(GroupRequest {
        group,
        join,
        guest: MacAddr::default(),
        id: 0,
    });
    Ok(report(nic, group))
}

fn report(nic: &Card, group: u16) -> GroupReport {
    let mut groups = nic.multicast().groups();
    let found = groups.find(|(number, ..)| *number == group);
    found.map_or(
        GroupReport {
            group,
            members: 0,
            counters: GroupCounters::default(),
        },
        |(group, counters, members)| GroupReport {
            group,
            members: members.len() as u16,
            counters: *counters,
        },
    )
}

/// The group with the lowest number above `after`; number 0 if there is none.
pub(super) fn next_report(nic: &Card, after: u16) -> GroupReport {
    let numbers = nic.multicast().groups().map(|(number, ..)| number);
    report(nic, numbers.filter(|number| *number > after).min().unwrap_or(0))
}

pub(super) fn write_request(writer: &mut Writer, number: u16) {
    writer.u16(number);
    writer.u16(0);
}

pub(super) fn read_request(code: u8, reader: &mut Reader) -> Option<Result<Request, Reject>> {
    let (number, reserved) = (reader.u16()?, reader.u16()?);
    let request = match code {
        operation::JOIN_GROUP => Request::JoinGroup { group: number },
        operation::LEAVE_GROUP => Request::LeaveGroup { group: number },
        _ => Request::GetGroups { after: number },
    };
    Some(if reserved != 0 {
        Err(super::request::RESERVED)
    } else if number == 0 && code != operation::GET_GROUPS {
        Err(Reject::new(RefusalCode::Range, "groups are numbered from 1"))
    } else {
        Ok(request)
    })
}

pub(super) fn write_report(writer: &mut Writer, report: &GroupReport) {
    writer.u16(report.group);
    writer.u16(report.members);
    writer.u32(0);
    let named = report.counters.named();
    named.iter().for_each(|(_, count)| writer.u64(*count));
}

pub(super) fn read_report(reader: &mut Reader) -> Option<GroupReport> {
    let (group, members, _) = (reader.u16()?, reader.u16()?, reader.u32()?);
    Some(GroupReport {
        group,
        members,
        counters: GroupCounters {
            sent: reader.u64()?,
            forwarded: reader.u64()?,
            delivered: reader.u64()?,
            duplicates: reader.u64()?,
            missed: reader.u64()?,
            no_buffer: reader.u64()?,
            refused: reader.u64()?,
            waited: reader.u64()?,
            given_up: reader.u64()?,
        },
    })
}
