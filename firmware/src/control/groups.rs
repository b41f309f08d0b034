//! The operations about multicast groups, JOIN_GROUP, LEAVE_GROUP and GET_GROUPS: their values and layouts.

use ether::{MacAddr, Time};

use super::{
    GroupReport, RefusalCode, Request,
    rate_limit::RateLimit,
    request::Reject,
    wire::{Reader, Writer, operation},
};
use crate::multicast::GroupCounters;

/// How often a guest may change its groups: each change writes the tables of all members, which costs time of all cards.
pub const GROUP_CHANGES_PER_S: u64 = 20;
/// Changes that a guest may make at once after a pause: joining and leaving every group it can be in.
pub const GROUP_CHANGES_BURST: u64 = 32;

/// A wish of the guest that concerns the other members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRequest {
    /// Number of the group, not 0.
    pub group: u16,
    /// To join; otherwise to leave.
    pub join: bool,
    /// The address that the guest sent the request from.
    pub guest: MacAddr,
    /// Number of the control frame, which the reply repeats.
    pub(crate) id: u16,
}

weft_settings::errors! {
    /// Why a wish was not fulfilled.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum GroupRefusal {
        /// The card is in [`GROUPS_MAX`](crate::multicast::GROUPS_MAX) groups.
        TooManyGroups = "the card is in 16 groups, and can be in no more",
        /// The group has [`MEMBERS_MAX`](crate::multicast::MEMBERS_MAX) members.
        Full = "the group has 128 members, and can have no more",
        /// The guest has another address than the one it asked from, or another member has this one.
        Address = "the request does not come from the address that the card knows, or another member has it",
        /// More changes than [`GROUP_CHANGES_PER_S`].
        TooOften = "groups are changed too often; try again in a moment",
        /// The card is connected to itself: no other card can be reached from it.
        Loopback = "the card is connected to itself, and can be in no group with others",
    }
}

/// What a card knows of its guest's wishes about groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupWishes {
    request: Option<GroupRequest>,
    changes: RateLimit<GROUP_CHANGES_PER_S, GROUP_CHANGES_BURST>,
}

impl GroupWishes {
    pub(crate) const fn new() -> Self {
        Self {
            request: None,
            changes: RateLimit::new(),
        }
    }

    /// Forgets a request that the driver did not take: it has no answer, and the guest asks again.
    pub(crate) const fn forget(&mut self) {
        self.request = None;
    }

    /// Notes a request, whose sender is told by [`GroupWishes::note_sender`].
    pub(crate) fn note(&mut self, group: u16, join: bool) {
        self.request = Some(GroupRequest {
            group,
            join,
            guest: MacAddr::default(),
            id: 0,
        });
    }

    /// Notes who sent the request; false if there is none.
    pub(crate) fn note_sender(&mut self, guest: MacAddr, id: u16) -> bool {
        let wish = self.request.as_mut();
        wish.map(|request| (request.guest, request.id) = (guest, id)).is_some()
    }

    /// Takes the request, for the driver.
    pub(crate) fn take(&mut self) -> Option<GroupRequest> {
        self.request.take()
    }

    /// Whether the guest may change a group now; if so, this counts as a change.
    pub(crate) fn may_change(&mut self, now: Time) -> bool {
        self.changes.take(now)
    }
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
