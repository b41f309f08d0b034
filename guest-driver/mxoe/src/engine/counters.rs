//! Counters: one for everything that happens to a frame, each with the name users know and a sentence. The first 85 are
//! those of section 11, in its order; those behind them are Weft's. `DROPS.md` names the test of each reason to drop a
//! frame.

/// How many counters of section 11 there are; ours follow.
pub const REFERENCE_COUNTERS: usize = 85;

#[rustfmt::skip]
ether::counters! {
    /// An event that is counted.
    pub enum Counter:

    SendTiny "SEND_TINY" "TINY messages sent",
    SendSmall "SEND_SMALL" "SMALL messages sent",
    SendMediumsqFrag "SEND_MEDIUMSQ_FRAG" "fragments of medium messages sent from a copy",
    SendMediumvaFrag "SEND_MEDIUMVA_FRAG" "fragments of medium messages sent from the program's own buffer",
    SendRndv "SEND_RNDV" "announcements of large messages sent",
    SendNotify "SEND_NOTIFY" "ends of large messages sent",
    SendConnectRequest "SEND_CONNECT_REQUEST" "connection requests sent",
    SendConnectReply "SEND_CONNECT_REPLY" "connection replies sent",
    SendLiback "SEND_LIBACK" "acknowledgements sent on their own",
    SendNackLib "SEND_NACK_LIB" "refusals of messages and connections sent",
    SendNackMcp "SEND_NACK_MCP" "refusals of pulls sent",
    SendPullReq "SEND_PULL_REQ" "pull requests sent",
    SendPullReply "SEND_PULL_REPLY" "frames of pulled blocks sent",
    SendRaw "SEND_RAW" "RAW frames sent",
    SendHostQuery "SEND_HOST_QUERY" "name queries sent",
    SendHostReply "SEND_HOST_REPLY" "names sent",
    RecvTiny "RECV_TINY" "TINY messages accepted",
    RecvSmall "RECV_SMALL" "SMALL messages accepted",
    RecvMediumFrag "RECV_MEDIUM_FRAG" "fragments of medium messages accepted",
    RecvRndv "RECV_RNDV" "announcements of large messages accepted",
    RecvNotify "RECV_NOTIFY" "ends of large messages accepted",
    RecvConnectRequest "RECV_CONNECT_REQUEST" "connection requests accepted",
    RecvConnectReply "RECV_CONNECT_REPLY" "connection replies accepted",
    RecvLiback "RECV_LIBACK" "acknowledgements of their own accepted",
    RecvNackLib "RECV_NACK_LIB" "refusals of messages and connections accepted",
    RecvNackMcp "RECV_NACK_MCP" "refusals of pulls that arrived, checked or not",
    RecvPullReq "RECV_PULL_REQ" "pull requests that arrived, checked or not",
    RecvPullReply "RECV_PULL_REPLY" "frames of pulled blocks that arrived, checked or not",
    RecvRaw "RECV_RAW" "RAW frames queued for the mapping daemon",
    RecvHostQuery "RECV_HOST_QUERY" "name queries accepted",
    RecvHostReply "RECV_HOST_REPLY" "names accepted",
    DmarecvMediumFrag "DMARECV_MEDIUM_FRAG" "medium fragments copied by a copy engine",
    DmarecvPartialMediumFrag "DMARECV_PARTIAL_MEDIUM_FRAG" "medium fragments copied in part by a copy engine",
    DmarecvPullReply "DMARECV_PULL_REPLY" "pulled frames copied by a copy engine",
    DmarecvPartialPullReply "DMARECV_PARTIAL_PULL_REPLY" "pulled frames copied in part by a copy engine",
    DmarecvPullReplyWaitDeferred "DMARECV_PULL_REPLY_WAIT_DEFERRED" "pulls that waited for a copy engine at their end",
    RecvNonlinearHeader "RECV_NONLINEAR_HEADER" "frames whose header lay in several pieces",
    ExpEventqFull "EXP_EVENTQ_FULL" "expected events lost because a queue was full",
    UnexpEventqFull "UNEXP_EVENTQ_FULL" "messages refused because the limit on unexpected ones is reached; they are sent again",
    SendNomemSkb "SEND_NOMEM_SKB" "frames not sent for want of memory",
    SendNomemMediumDefevent "SEND_NOMEM_MEDIUM_DEFEVENT" "medium fragments not sent for want of memory",
    MediumsqFragSendLinear "MEDIUMSQ_FRAG_SEND_LINEAR" "medium fragments sent in one piece",
    PullNonfirstBlockDoneEarly "PULL_NONFIRST_BLOCK_DONE_EARLY" "pull blocks that were complete before an older one",
    PullRequestNotonlyfirstBlocks "PULL_REQUEST_NOTONLYFIRST_BLOCKS" "frames asked for again because later ones arrived",
    PullTimeoutHandlerFirstBlock "PULL_TIMEOUT_HANDLER_FIRST_BLOCK" "time-outs of a pull's oldest block",
    PullTimeoutHandlerNonfirstBlock "PULL_TIMEOUT_HANDLER_NONFIRST_BLOCK" "time-outs of a pull's other blocks",
    PullTimeoutAbort "PULL_TIMEOUT_ABORT" "pulls given up",
    PullReplySendLinear "PULL_REPLY_SEND_LINEAR" "pulled frames sent in one piece",
    PullReplyFillFailed "PULL_REPLY_FILL_FAILED" "pulled frames that could not be written to the program's buffer",
    DropBadHeaderDatalen "DROP_BAD_HEADER_DATALEN" "dropped: the frame ends inside its header",
    DropBadDatalen "DROP_BAD_DATALEN" "dropped: a length field is out of range",
    DropBadSkblen "DROP_BAD_SKBLEN" "dropped: less data than announced",
    DropBadPeerAddr "DROP_BAD_PEER_ADDR" "dropped: the sender's address is in no table",
    DropBadPeerIndex "DROP_BAD_PEER_INDEX" "dropped: the peer index is empty, or another peer's",
    DropBadEndpoint "DROP_BAD_ENDPOINT" "dropped: no such endpoint is open here",
    DropBadSession "DROP_BAD_SESSION" "dropped: the session is another one",
    DropPullBadReplies "DROP_PULL_BAD_REPLIES" "dropped pulls: more frames than a block holds",
    DropPullBadRegion "DROP_PULL_BAD_REGION" "dropped pulls: the region is not the sender's to read, or no longer",
    DropPullBadOffsetLength "DROP_PULL_BAD_OFFSET_LENGTH" "dropped pulls: outside the region",
    DropPullReplyBadMagicEndpoint "DROP_PULL_REPLY_BAD_MAGIC_ENDPOINT" "dropped pulled frames: the magic names no endpoint of ours",
    DropPullReplyBadWireHandle "DROP_PULL_REPLY_BAD_WIRE_HANDLE" "dropped pulled frames: no such pull, or another peer's",
    DropPullReplyBadSeqnumWraparound "DROP_PULL_REPLY_BAD_SEQNUM_WRAPAROUND" "dropped pulled frames: number and offset do not belong together, mostly late duplicates",
    DropPullReplyBadSeqnum "DROP_PULL_REPLY_BAD_SEQNUM" "dropped pulled frames: not asked for, or with another length than asked for",
    DropPullReplyDuplicate "DROP_PULL_REPLY_DUPLICATE" "dropped pulled frames: already there",
    DropNackMcpBadMagicEndpoint "DROP_NACK_MCP_BAD_MAGIC_ENDPOINT" "dropped refusals of pulls: the magic names no endpoint of ours",
    DropNackMcpBadWireHandle "DROP_NACK_MCP_BAD_WIRE_HANDLE" "dropped refusals of pulls: no such pull, or another peer's",
    DropHostReplyBadMagic "DROP_HOST_REPLY_BAD_MAGIC" "dropped names: they answer an older query",
    DropRawQueueFull "DROP_RAW_QUEUE_FULL" "dropped RAW frames: no program takes them",
    DropRawTooLarge "DROP_RAW_TOO_LARGE" "dropped RAW frames: longer than 1024 bytes",
    DropNosysType "DROP_NOSYS_TYPE" "never used",
    DropInvalidType "DROP_INVALID_TYPE" "dropped: a packet type of MX only",
    DropUnknownType "DROP_UNKNOWN_TYPE" "dropped: no such packet type, or marked where marks are off",
    SharedTiny "SHARED_TINY" "TINY messages inside the host",
    SharedSmall "SHARED_SMALL" "SMALL messages inside the host",
    SharedMediumsqFrag "SHARED_MEDIUMSQ_FRAG" "copied medium fragments inside the host",
    SharedMediumva "SHARED_MEDIUMVA" "uncopied medium messages inside the host",
    SharedRndv "SHARED_RNDV" "announcements inside the host",
    SharedNotify "SHARED_NOTIFY" "ends of large messages inside the host",
    SharedConnectRequest "SHARED_CONNECT_REQUEST" "connection requests inside the host",
    SharedConnectReply "SHARED_CONNECT_REPLY" "connection replies inside the host",
    SharedLiback "SHARED_LIBACK" "acknowledgements inside the host",
    SharedPull "SHARED_PULL" "pulls inside the host",
    SharedDmaMediumFrag "SHARED_DMA_MEDIUM_FRAG" "medium fragments inside the host copied by a copy engine",
    SharedDmaLarge "SHARED_DMA_LARGE" "large messages inside the host copied by a copy engine",
    SharedDmaPartialLarge "SHARED_DMA_PARTIAL_LARGE" "large messages inside the host copied in part by a copy engine",
    DropNotMxoe "DROP_NOT_MXOE" "ignored: not an MXoE frame",
    DropUnknownTruc "DROP_UNKNOWN_TRUC" "dropped: a TRUC that is no acknowledgement",
    DropUnknownNack "DROP_UNKNOWN_NACK" "ignored: a refusal with a code that does not exist",
    DropNackBadPeerIndex "DROP_NACK_BAD_PEER_INDEX" "ignored: a refusal with an invalid peer index",
    DropUnknownPartner "DROP_UNKNOWN_PARTNER" "ignored: the sending endpoint never connected",
    DropOldConversation "DROP_OLD_CONVERSATION" "dropped: the session bits are those of another conversation",
    DropOldMessage "DROP_OLD_MESSAGE" "dropped: a message that is complete already",
    DropDuplicateFragment "DROP_DUPLICATE_FRAGMENT" "dropped: a medium fragment that is there already",
    DropFragmentMismatch "DROP_FRAGMENT_MISMATCH" "dropped: a medium fragment that contradicts the first one seen",
    DropEarlyFull "DROP_EARLY_FULL" "dropped: a packet ahead of a missing one, and no room to keep it; it is sent again",
    DropOldAck "DROP_OLD_ACK" "ignored: an acknowledgement that says nothing new or impossible things",
    DropStrayConnectReply "DROP_STRAY_CONNECT_REPLY" "ignored: a connection reply that answers no request",
    DropStrayNotify "DROP_STRAY_NOTIFY" "ignored: the end of a large message that is over",
    DropPartnersFull "DROP_PARTNERS_FULL" "dropped: a connection request beyond the limit on partners",
    DropControlFull "DROP_CONTROL_FULL" "not sent: a reply or refusal beyond the limit on waiting ones",
    DropReplyBlocksFull "DROP_REPLY_BLOCKS_FULL" "dropped: a pull beyond the limit on blocks waiting to be sent",
    DropPullRepeated "DROP_PULL_REPEATED" "dropped: pulls for what waits to be sent anyway",
    DropConnectBadKey "DROP_CONNECT_BAD_KEY" "refused: connection requests with a wrong key",
    DropConnectMismatch "DROP_CONNECT_MISMATCH" "refused: connections between ends that are set differently",
    RecvEarly "RECV_EARLY" "packets kept because an earlier one is missing",
    ResentMessages "RESENT_MESSAGES" "messages sent again",
    ResentConnects "RESENT_CONNECTS" "connection requests sent again",
    PullSpurious "PULL_SPURIOUS" "frames asked for again that had only been late",
    PullProbes "PULL_PROBES" "silent pulls whose oldest missing frame was asked for before the time-out",
    EarlyCompletionStopped "EARLY_COMPLETION_STOPPED" "sends that did not complete early because a limit is reached",
    SendsThrottled "SENDS_THROTTLED" "sends that waited for a window or a region",
    PartnersLost "PARTNERS_LOST" "partners given up or replaced by a new instance",
    LostOnPurpose "LOST_ON_PURPOSE" "not sent: packets lost on purpose, for a test",
    PeersAdded "PEERS_ADDED" "peers that were added because they announced themselves",
    SharedBroken "SHARED_BROKEN" "programs of this host that broke the rules of shared memory; nothing more is taken from them",
    CopiesSubmitted "COPIES_SUBMITTED" "pieces of large messages that a copy engine was given to copy",
    CopiesFinished "COPIES_FINISHED" "of these, pieces that it is known to have copied",
}

/// The counts of one endpoint or board; 32 bits each, wrapping as users of the reference expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters([u32; Counter::ALL.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self([0; Counter::ALL.len()])
    }
}

impl Counters {
    /// Returns one count.
    #[inline]
    pub const fn get(&self, counter: Counter) -> u32 {
        self.0[counter as usize]
    }

    /// Adds one to a count.
    #[inline]
    pub const fn count(&mut self, counter: Counter) {
        self.add_to(counter, 1);
    }

    /// Adds `times` to a count.
    #[inline]
    pub const fn add_to(&mut self, counter: Counter, times: u32) {
        let value = &mut self.0[counter as usize];
        *value = value.wrapping_add(times);
    }

    /// Adds the counts of another endpoint of this board.
    pub fn add(&mut self, other: &Self) {
        for (value, more) in self.0.iter_mut().zip(other.0) {
            *value = value.wrapping_add(more);
        }
    }

    /// Returns all counts in order.
    pub const fn values(&self) -> &[u32] {
        &self.0
    }

    /// Returns every counter that is not 0.
    pub fn nonzero(&self) -> impl Iterator<Item = (Counter, u32)> {
        Counter::ALL
            .iter()
            .map(|counter| (*counter, self.get(*counter)))
            .filter(|(_, count)| *count != 0)
    }
}

/// Counts a frame that could not be decoded.
pub(crate) fn count_undecodable(counters: &mut Counters, error: crate::wire::WireError) {
    use crate::wire::WireError;
    counters.count(match error {
        WireError::HeaderTooShort => Counter::DropBadHeaderDatalen,
        WireError::BadLength => Counter::DropBadDatalen,
        WireError::Truncated => Counter::DropBadSkblen,
        WireError::RawTooLarge => Counter::DropRawTooLarge,
        WireError::InvalidType(_) => Counter::DropInvalidType,
        WireError::UnknownType(_) => Counter::DropUnknownType,
        WireError::NotMxoe => Counter::DropNotMxoe,
        WireError::UnknownTruc(_) => Counter::DropUnknownTruc,
        WireError::UnknownNack(_) => Counter::DropUnknownNack,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::WireError;

    #[test]
    fn the_first_85_stand_where_section_11_has_them() {
        let at = |number: usize| Counter::ALL[number].name();
        assert_eq!(
            [at(0), at(11), at(38), at(49), at(71), at(84)],
            [
                "SEND_TINY",
                "SEND_PULL_REQ",
                "UNEXP_EVENTQ_FULL",
                "DROP_BAD_HEADER_DATALEN",
                "DROP_UNKNOWN_TYPE",
                "SHARED_DMA_PARTIAL_LARGE"
            ]
        );
        for error in [
            WireError::HeaderTooShort,
            WireError::BadLength,
            WireError::Truncated,
            WireError::RawTooLarge,
            WireError::InvalidType(2),
            WireError::UnknownType(0),
        ] {
            let mut counters = Counters::default();
            count_undecodable(&mut counters, error);
            let (counter, _) = counters.nonzero().next().unwrap();
            assert_eq!(Some(counter as u8), error.counter());
        }
    }
}
