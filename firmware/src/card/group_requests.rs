//! How a guest joins and leaves multicast groups through its card.
//!
//! A card cannot join a group by itself: trees concern all members. It notes what its guest wants, and the driver, which keeps the
//! groups, takes the request and answers it.

use ether::Time;

use super::Card;
use crate::{
    control::{CONTROL_FRAME_MAX, GroupRefusal, GroupReport, GroupRequest, RefusalCode, Reject, Reply, operation},
    multicast::GroupCounters,
};

impl Card {
    /// Takes what the guest wants, by the control frame that was handled last, if it concerns other members of a group: then that
    /// frame has no reply yet. The driver does it, or not, and says so by [`Card::answer_group`].
    pub fn take_group_request(&mut self) -> Option<GroupRequest> {
        self.group_wishes.take()
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
                let report = self.group_report(request.group);
                if request.join {
                    Reply::JoinGroup(report)
                } else {
                    Reply::LeaveGroup(report)
                }
            }
            Err(refusal) => self.refuse(Reject::new(RefusalCode::Group, refusal.sentence())),
        };
        answer.encode(request.guest, request.id, code, reply)
    }

    /// Notes what the guest wants; the answer that counts comes later.
    pub(super) fn wish(&mut self, now: Time, group: u16, join: bool) -> Result<GroupReport, Reject> {
        let is_member = self.multicast.groups().any(|(number, ..)| number == group);
        // What is so already costs nothing, and may be asked for as often as anything.
        if is_member != join && !self.group_wishes.may_change(now) {
            return Err(Reject::new(RefusalCode::Group, GroupRefusal::TooOften.sentence()));
        }
        self.group_wishes.note(group, join);
        Ok(self.group_report(group))
    }

    /// Reports the group with the lowest number above `after`; number 0 if there is none.
    pub(super) fn next_group_report(&self, after: u16) -> GroupReport {
        let numbers = self.multicast.groups().map(|(number, ..)| number);
        self.group_report(numbers.filter(|number| *number > after).min().unwrap_or(0))
    }

    fn group_report(&self, group: u16) -> GroupReport {
        let mut groups = self.multicast.groups();
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
}
