//! What a card counts itself. Rings, links, firmware and switches have counters as well; `stats` puts all together.

use firmware::HostRecordCounters;

use super::translation::TranslationCounters;
use crate::ring::RuleCounters;
use crate::session::SessionRuleCounters;
use vnicd_protocol::drops::{RxDrop, TxDrop};

/// What a card counts itself.
#[derive(Clone, Debug, Default)]
pub struct CardCounters {
    /// Frames from the guest that were taken.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames delivered to the guest.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Bytes of frames copied towards this guest, into its memory or in flight to it.
    pub copied_bytes: u64,
    /// Drops towards the guest.
    pub rx_drops: [u64; RxDrop::ALL.len()],
    /// Drops of what the guest sent.
    pub tx_drops: [u64; TxDrop::ALL.len()],
    /// Broken rules of rings and memory.
    pub rules: RuleCounters,
    /// Broken rules of sessions.
    pub session_rules: SessionRuleCounters,
    /// What was heard of the guest's IOMMU.
    pub translation: TranslationCounters,
    /// What was read of the guest's records.
    pub host_record: HostRecordCounters,
    /// Transmit completions that had something to tell.
    pub tx_decided: u64,
    /// Of these, unwanted by the driver.
    pub tx_suppressed: u64,
    /// Of these, signalled.
    pub tx_signalled: u64,
}
