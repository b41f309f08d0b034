//! What a node tells its own card of itself (M-BV8 to M-BV10): the record in memory that the card's watchdog and clock look at.

use ether::Time;
use firmware::host_record::field;
use netif::virtio::Told;

/// The record of a node. The port counts in it what was processed.
#[derive(Clone)]
pub(crate) struct HostState(Told);

impl HostState {
    /// A record that begins with `key`, of a node that does not let itself be interrupted and has no timers.
    pub(crate) fn new(told: Told, key: u32) -> Self {
        told.set_word(field::KEY, key);
        Self(told)
    }

    /// The program does, or does not, let itself be interrupted (M-BV9).
    #[inline]
    pub(crate) fn set_interrupts(&self, enabled: bool) {
        self.0.set_word(field::INTERRUPTS, enabled.into());
    }

    /// So many timers run.
    #[inline]
    pub(crate) fn set_timers(&self, running: u32) {
        self.0.set_word(field::RUNNING_TIMERS, running);
    }

    /// The node looked at the clock.
    #[inline]
    pub(crate) fn polled(&self, now: Time) {
        self.0.set_long(field::LAST_POLL, now.as_nanos());
    }
}

#[cfg(test)]
mod tests {
    use firmware::HOST_RECORD_LEN;

    use super::*;

    #[test]
    fn m_bv8_the_card_reads_as_much_as_the_port_has_room_for() {
        assert_eq!(HOST_RECORD_LEN, Told::LEN);
    }
}
