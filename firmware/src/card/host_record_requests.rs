//! How a guest tells its card where its record is. Which memory the card reaches is the driver's to know: it takes the request and
//! answers it.

use super::Card;
use crate::control::{
    CONTROL_FRAME_MAX, HostRecordRefusal, HostRecordReport, HostRecordRequest, Reject, Reply, operation,
};

impl Card {
    /// Takes what the guest wants, by the control frame that was handled last, if it is about its record: then that frame has no
    /// reply yet. The driver does it, or not, and says so by [`Card::answer_host_record`].
    pub fn take_host_record_request(&mut self) -> Option<HostRecordRequest> {
        self.host_record_wish.take()
    }

    /// Answers a request that was taken; returns the length of the reply written to `reply`, as [`Card::handle_control`] does.
    pub fn answer_host_record(
        &mut self,
        request: HostRecordRequest,
        outcome: Result<HostRecordReport, HostRecordRefusal>,
        reply: &mut [u8; CONTROL_FRAME_MAX],
    ) -> usize {
        let answer = match outcome {
            Ok(report) => {
                self.control_counters.served += 1;
                Reply::SetHostRecord(report)
            }
            Err(refusal) => self.refuse(Reject::from(refusal)),
        };
        answer.encode(request.guest, request.id, operation::SET_HOST_RECORD, reply)
    }
}
