//! Counts of one engine, each with the name that users see and a sentence.

#[rustfmt::skip]
ether::counters! {
    /// An event that is counted.
    pub enum Counter:

    UnicastsSent "unicasts_sent" "packets for single nodes that the program sent",
    MulticastsSent "multicasts_sent" "packets for groups that the program sent",
    UnicastsDelivered "unicasts_delivered" "packets from single nodes that the program got",
    MulticastsDelivered "multicasts_delivered" "packets for groups that the program got",
    Forwarded "forwarded" "copies of others' packets that were passed on to children",
    FramesSent "frames_sent" "frames sent, of every kind",
    FramesReceived "frames_received" "frames received and taken, of every kind",
    AcksSent "acks_sent" "frames sent that are nothing but an acknowledgement",
    AcksPiggybacked "acks_piggybacked" "delayed acknowledgements that travelled with another frame",
    Retransmitted "retransmitted" "frames sent again",
    Repaired "repaired" "packets of a tree sent again because a member is gone",
    Probes "probes" "questions whether a silent node is still there",
    Duplicates "duplicates" "frames and packets that came a second time",
    OutOfOrder "out_of_order" "frames that came before an earlier one and waited for it",
    Blocked "blocked" "times that a link stood still because the program took nothing",
    Abandoned "abandoned" "copies for nodes that were removed",
    Removed "removed" "nodes that were removed because they were silent, reported or restarted, or packets of them were lost",
    Missed "missed" "frames that a network that is to lose nothing has lost",
    CardFrames "card_frames" "frames from the card: packets of its group, and what it says of it",
    Malformed "drop_malformed" "frames dropped: not of this layout, version or EtherType",
    OtherJob "drop_other_job" "frames dropped: of another program on the same network",
    WrongSender "drop_wrong_sender" "frames dropped: not from the address of the node that they name, or for another node",
    Stale "drop_stale" "frames dropped: of an earlier start of a node, or of one that was removed",
    BadAck "drop_bad_ack" "frames dropped: they acknowledge what was never sent",
    BeyondWindow "drop_beyond_window" "frames dropped: their number is beyond the window",
    NoBuffer "drop_no_buffer" "frames dropped: all receive buffers are in use",
    UnknownGroup "drop_unknown_group" "packets dropped: this node is not in their group",
    WrongPath "drop_wrong_path" "packets dropped: their tree does not come this path",
    OldTree "drop_old_tree" "packets dropped: of a tree that was replaced when a member was removed",
    Gap "drop_gap" "packets dropped: their number in the group does not come next",
    BadControl "drop_bad_control" "groups, joins and reports dropped: they contradict what is known",
    FalseReports "false_reports" "reports of removed nodes that were heard of lately",
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
