//! Counts of one engine, each with the name that users see and a sentence.

#[rustfmt::skip]
ether::counters! {
    /// An event that is counted.
    pub enum Counter:

    FramesSent "frames_sent" "frames sent, of every kind",
    FramesReceived "frames_received" "frames received and taken, of every kind",
    DataSent "data_sent" "packets of data sent for the first time",
    DataReceived "data_received" "packets of data taken, those out of order included",
    BytesSent "bytes_sent" "bytes of streams sent for the first time",
    BytesReceived "bytes_received" "bytes of streams that became readable",
    AcksSent "acks_sent" "packets sent that are nothing but an acknowledgement",
    AcksPiggybacked "acks_piggybacked" "delayed acknowledgements that travelled with another packet",
    Retransmitted "retransmitted" "packets sent again",
    FastRetransmits "fast_retransmits" "times that acknowledgements showed a loss before the time-out",
    Timeouts "timeouts" "retransmission time-outs",
    Pieces "pieces" "parts sent of packets that are too long for an MTU that has become smaller",
    WindowClosed "window_closed" "times that bytes waited because the peer takes no more",
    Probes "probes" "questions sent: for the window, or whether a silent peer is still there",
    OutOfOrder "out_of_order" "packets that came before an earlier one and waited for it",
    Duplicates "duplicates" "packets that came a second time",
    Connects "connects" "attempts to connect",
    Accepts "accepts" "connections that a listener got",
    Established "established" "handshakes completed, on either side",
    Refused "refused" "attempts that peers refused",
    ResetsSent "resets_sent" "resets sent",
    ResetsReceived "resets_received" "connections that peers reset",
    GivenUp "given_up" "connections given up because the peer did not answer",
    HandedOver "handed_over" "connections detached, to live in another engine",
    Attached "attached" "connections taken over from another engine",
    PeersMoved "peers_moved" "connections whose peer has moved to another port",
    Forwarded "forwarded" "answers to packets for a connection's old port that name the new one",
    HalfOpenEvicted "half_open_evicted" "half-open connections dropped to make room for newer ones",
    BacklogFull "backlog_full" "handshakes delayed because too many connections wait to be accepted",
    TimeWaitEvicted "time_wait_evicted" "connections in TIME-WAIT forgotten early for want of room",
    MovedEvicted "moved_evicted" "connections handed over and forgotten early for want of room",
    Edp "edp" "frames of EDP, left to the owner",
    DropMalformed "drop_malformed" "frames dropped: cut off, or of another version or layout",
    DropOtherHost "drop_other_host" "frames dropped: for another Ethernet address",
    DropCheck "drop_check" "frames dropped: the check sequence is wrong",
    DropUnknown "drop_unknown" "frames dropped: for no connection of ours",
    DropBadAck "drop_bad_ack" "frames dropped: they acknowledge what was never sent",
    DropBeyondWindow "drop_beyond_window" "packets dropped: their number is beyond the window",
    DropBadLength "drop_bad_length" "packets dropped: empty, longer than announced, or of another length than before",
    DropBadInstance "drop_bad_instance" "frames dropped: of another instance of the connection",
    DropBadReset "drop_bad_reset" "resets dropped: their numbers are not the connection's",
    DropLateReset "drop_late_reset" "resets dropped: of a peer that had finished, and that has all that was sent to it",
    DropBadState "drop_bad_state" "frames dropped: the state of the connection does not allow them",
    DropPastEnd "drop_past_end" "packets dropped: behind the end of the peer's stream",
    DropFrozen "drop_frozen" "frames dropped: the connection is frozen",
    DropMoved "drop_moved" "frames dropped: the connection has moved",
    DropPieceOrder "drop_piece_order" "parts of packets dropped: not the next",
    DropPortTaken "drop_port_taken" "frames dropped: another connection has the port that the peer moved to",
    DropNoMemory "drop_no_memory" "packets dropped: the limit on bytes is reached",
    DropNoConnection "drop_no_connection" "attempts to connect dropped: the limit on connections or ports is reached",
    DropAnswers "drop_answers" "answers dropped: too many wait to be sent",
}

/// The counts of one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters([u64; Counter::ALL.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self([0; Counter::ALL.len()])
    }
}

impl Counters {
    /// How often it happened.
    #[inline]
    pub const fn of(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Every counter with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> {
        Counter::ALL.iter().map(|counter| (*counter, self.of(*counter)))
    }

    #[inline]
    pub(crate) fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    #[inline]
    pub(crate) fn add(&mut self, counter: Counter, count: u64) {
        self.0[counter as usize] += count;
    }
}
