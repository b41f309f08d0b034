//! The rules that a frontend's messages can break, each with the name of its counter.
//!
//! A message that breaks one ends the session with one sentence. Messages are judged in `wire`, `rules` and `regions`; only counts
//! and names are here.

weft_settings::named! {
    /// What a frontend can do wrong in its session.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SessionRule {
        /// The connection was closed within a message.
        MessageCut = "message_cut",
        /// A message announces a body that is longer than any.
        BodyTooLong = "body_too_long",
        /// Files came with the body instead of the header.
        FilesMisplaced = "files_misplaced",
        /// A message brings more files than any needs.
        FilesTooMany = "files_too_many",
        /// The protocol has no such request.
        RequestUnknown = "request_unknown",
        /// The flags are not those of version 1.
        FlagsWrong = "flags_wrong",
        /// An answer to a question that was not asked.
        ReplyUnasked = "reply_unasked",
        /// The protocol has the request, this card does not.
        RequestNotServed = "request_not_served",
        /// The request needs a protocol feature that was not agreed on.
        FeatureNotAgreed = "feature_not_agreed",
        /// The body is not as long as the request's.
        BodySize = "body_size",
        /// Too few or too many files for the request.
        FileCount = "file_count",
        /// A file of another kind than the request needs.
        FileKind = "file_kind",
        /// A kick that gives one signal per read (EFD_SEMAPHORE).
        KickSemaphore = "kick_semaphore",
        /// The frontend asks for virtio features that the backend does not have.
        FeaturesNotOffered = "features_not_offered",
        /// The frontend asks for protocol features that the backend does not have.
        ProtocolFeaturesNotOffered = "protocol_features_not_offered",
        /// SET_OWNER came twice.
        OwnerTwice = "owner_twice",
        /// A ring that the card does not have.
        RingUnknown = "ring_unknown",
        /// A change that only a stopped ring can take.
        RingRunning = "ring_running",
        /// Bits or flags that have no meaning.
        UnknownBits = "unknown_bits",
        /// A ring can be switched on or off, nothing else.
        EnableValue = "enable_value",
        /// A start index that no ring has.
        RingBase = "ring_base",
        /// A number of entries that no ring has.
        RingSize = "ring_size",
        /// A part of a ring at an address that is not aligned.
        RingAddressMisaligned = "ring_address_misaligned",
        /// A part of a ring begins outside the shared memory.
        RingAddressOutside = "ring_address_outside",
        /// A memory table without a region.
        MemoryTableEmpty = "memory_table_empty",
        /// A region that is empty, wraps or does not start at a page of its file.
        MemoryRegion = "memory_region",
        /// A file that is smaller than its region.
        MemoryFileTooSmall = "memory_file_too_small",
        /// A file of a file system that may keep a thread that touches it waiting.
        MemoryFileSystem = "memory_file_system",
        /// Regions overlap.
        MemoryOverlap = "memory_overlap",
        /// An address that no station has is to be announced as a station.
        StationAddress = "station_address",
        /// More regions or bytes than a guest may share.
        MemoryTooMuch = "memory_too_much",
        /// A region to remove that is not there.
        MemoryNotShared = "memory_not_shared",
        /// Something about translations that is no answer: it leads outside the memory, has no addresses, or none was asked for.
        TranslationRefused = "translation_refused",
        /// A translation that was asked for and did not come.
        TranslationOverdue = "translation_overdue",
        /// Sound in form, but the backend or the system could not do it.
        NotPossible = "not_possible",
    }
}

impl SessionRule {
    /// The end of a session that broke this rule.
    pub fn broken(self, sentence: impl Into<String>) -> Refusal {
        Refusal {
            rule: self,
            sentence: sentence.into(),
        }
    }
}

/// Why a message ends its session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Refusal {
    /// The rule that it breaks.
    pub rule: SessionRule,
    /// What happened, in one sentence.
    pub sentence: String,
}

/// How often each rule was broken.
#[derive(Clone, Debug)]
pub struct SessionRuleCounters([u64; SessionRule::ALL.len()]);

impl Default for SessionRuleCounters {
    fn default() -> Self {
        SessionRuleCounters([0; SessionRule::ALL.len()])
    }
}

impl SessionRuleCounters {
    /// Counts one session that ended so.
    pub fn count(&mut self, rule: SessionRule) {
        self.0[rule as usize] += 1;
    }

    /// Sessions that ended by this rule.
    pub fn of(&self, rule: SessionRule) -> u64 {
        self.0[rule as usize]
    }

    /// Ended sessions per rule, all rules, in order.
    pub fn iter(&self) -> impl Iterator<Item = (SessionRule, u64)> + '_ {
        SessionRule::ALL.iter().map(|&rule| (rule, self.0[rule as usize]))
    }
}
