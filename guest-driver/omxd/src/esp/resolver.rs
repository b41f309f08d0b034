//! Which host on this Ethernet has an IP address and speaks ESP: by EDP pings to all, whose answers are remembered for a while.

use std::{collections::HashMap, net::IpAddr};

use esp::wire::Pong;
use ether::{MacAddr, Time};
use weft_authority::esp::EspCounter;

use super::counters::Counts;

const MS: u64 = 1_000_000;
/// A host that answered is remembered for so long.
const HOST_NS: u64 = 30_000 * MS;
/// That no host answered is remembered for so long.
const NO_HOST_NS: u64 = 5_000 * MS;
/// Pings are sent so long after the question, each in case the one before was lost.
const PINGS_NS: [u64; 3] = [0, 50 * MS, 150 * MS];
/// A host that has not answered after this does not speak ESP.
const PATIENCE_NS: u64 = 300 * MS;
/// Addresses that are remembered or asked for.
const ENTRIES_MAX: usize = 4096;

/// A host that speaks ESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) mac: MacAddr,
    /// Its MTU in bytes.
    pub(super) mtu: u16,
}

#[derive(Debug)]
enum Entry {
    Asking {
        cookie: u64,
        begin: Time,
        /// Pings that were sent.
        sent: usize,
        /// Connections that wait for the answer.
        waiting: Vec<u64>,
    },
    Known {
        host: Option<Host>,
        until: Time,
    },
}

/// The addresses that were asked for.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    entries: HashMap<IpAddr, Entry>,
}

/// An answer for a connection that has waited.
pub(super) type Answer = (u64, IpAddr, Option<Host>);

impl Resolver {
    /// Answers a question from memory, or lets the connection wait. `Err`: too many addresses are asked for at present.
    pub(super) fn ask(
        &mut self,
        ip: IpAddr,
        connection: u64,
        cookie: u64,
        now: Time,
        counts: &mut Counts,
    ) -> Result<Option<Option<Host>>, ()> {
        match self.entries.get_mut(&ip) {
            Some(Entry::Known { host, until }) if *until > now => {
                counts.count(EspCounter::ResolvedFromCache);
                return Ok(Some(*host));
            }
            Some(Entry::Asking { waiting, .. }) => {
                waiting.push(connection);
                return Ok(None);
            }
            _ => {}
        }
        if self.entries.len() >= ENTRIES_MAX {
            // Those that are out of date, or else all that is known: it can be asked for again.
            self.entries
                .retain(|_, entry| !matches!(entry, Entry::Known { until, .. } if *until <= now));
            if self.entries.len() >= ENTRIES_MAX {
                self.entries.retain(|_, entry| matches!(entry, Entry::Asking { .. }));
            }
        }
        if self.entries.len() >= ENTRIES_MAX {
            return Err(());
        }
        let asking = Entry::Asking {
            cookie,
            begin: now,
            sent: 0,
            waiting: vec![connection],
        };
        self.entries.insert(ip, asking);
        Ok(None)
    }

    /// Takes an answer to a ping; `None`: to none of these.
    pub(super) fn handle(&mut self, mac: MacAddr, pong: &Pong, now: Time) -> Option<Vec<Answer>> {
        for ip in pong.addresses.as_slice() {
            let Some(entry) = self.entries.get_mut(ip) else {
                continue;
            };
            let Entry::Asking { cookie, waiting, .. } = entry else {
                continue;
            };
            if *cookie != pong.cookie {
                continue;
            }
            let host = Some(Host { mac, mtu: pong.mtu });
            let answers = waiting.iter().map(|connection| (*connection, *ip, host)).collect();
            let until = now.plus_nanos(HOST_NS);
            *entry = Entry::Known { host, until };
            return Some(answers);
        }
        None
    }

    /// Does what is due: returns pings to be sent, by cookie and address, and answers where no host has said anything.
    pub(super) fn handle_timeout(&mut self, now: Time) -> (Vec<(u64, IpAddr)>, Vec<Answer>) {
        let (mut pings, mut answers) = (Vec::new(), Vec::new());
        for (ip, entry) in &mut self.entries {
            let Entry::Asking {
                cookie,
                begin,
                sent,
                waiting,
            } = entry
            else {
                continue;
            };
            if now >= begin.plus_nanos(PATIENCE_NS) {
                answers.extend(waiting.iter().map(|connection| (*connection, *ip, None)));
                *entry = Entry::Known {
                    host: None,
                    until: now.plus_nanos(NO_HOST_NS),
                };
            } else if PINGS_NS.get(*sent).is_some_and(|after| now >= begin.plus_nanos(*after)) {
                *sent += 1;
                pings.push((*cookie, *ip));
            }
        }
        (pings, answers)
    }

    /// Returns when [`Resolver::handle_timeout`] has something to do.
    pub(super) fn due(&self) -> Option<Time> {
        let due = |entry: &Entry| match entry {
            Entry::Asking { begin, sent, .. } => {
                Some(begin.plus_nanos(PINGS_NS.get(*sent).copied().unwrap_or(PATIENCE_NS)))
            }
            Entry::Known { .. } => None,
        };
        self.entries.values().filter_map(due).min()
    }
}

#[cfg(test)]
mod tests {
    use esp::wire::Addresses;

    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn ip(last: u8) -> IpAddr {
        [10, 7, 0, last].into()
    }

    fn pong(cookie: u64, addresses: &[IpAddr]) -> Pong {
        Pong {
            cookie,
            mtu: 9000,
            addresses: addresses.iter().copied().collect::<Addresses>(),
        }
    }

    #[test]
    fn a_host_that_answers_is_known_to_all_that_wait_and_for_half_a_minute() {
        let (mut resolver, mut counts) = (Resolver::default(), Counts::default());
        let mut ask = |resolver: &mut Resolver, connection, now| resolver.ask(ip(9), connection, 77, now, &mut counts);
        let t = Time::from_nanos;
        assert_eq!(ask(&mut resolver, 1, t(0)), Ok(None));
        assert_eq!(ask(&mut resolver, 2, t(1)), Ok(None));
        assert_eq!(resolver.handle_timeout(t(1)).0, [(77, ip(9))]);
        assert_eq!(resolver.due(), Some(t(PINGS_NS[1])));
        // Another cookie, and another address.
        assert_eq!(resolver.handle(MAC, &pong(78, &[ip(9)]), t(2)), None);
        assert_eq!(resolver.handle(MAC, &pong(77, &[ip(8)]), t(2)), None);
        let host = Some(Host { mac: MAC, mtu: 9000 });
        let answers = resolver.handle(MAC, &pong(77, &[ip(8), ip(9)]), t(2)).unwrap();
        assert_eq!(answers, [(1, ip(9), host), (2, ip(9), host)]);
        assert_eq!(resolver.due(), None);
        // A second answer changes nothing.
        let other = MacAddr([2, 0, 0, 0, 0, 10]);
        assert_eq!(resolver.handle(other, &pong(77, &[ip(9)]), t(3)), None);
        assert_eq!(ask(&mut resolver, 3, t(HOST_NS)), Ok(Some(host)));
        assert_eq!(ask(&mut resolver, 3, t(HOST_NS + 2)), Ok(None));
    }

    #[test]
    fn a_host_that_says_nothing_is_asked_three_times_and_known_for_five_seconds() {
        let (mut resolver, mut counts) = (Resolver::default(), Counts::default());
        assert_eq!(resolver.ask(ip(9), 1, 77, Time::ZERO, &mut counts), Ok(None));
        let mut pings = 0;
        let answers = loop {
            let now = resolver.due().unwrap();
            let (sent, answers) = resolver.handle_timeout(now);
            pings += sent.len();
            if !answers.is_empty() {
                assert_eq!(now, Time::from_nanos(PATIENCE_NS));
                break answers;
            }
        };
        assert_eq!((pings, answers), (3, vec![(1, ip(9), None)]));
        let soon = Time::from_nanos(PATIENCE_NS + NO_HOST_NS - 1);
        assert_eq!(resolver.ask(ip(9), 1, 78, soon, &mut counts), Ok(Some(None)));
        let late = Time::from_nanos(PATIENCE_NS + NO_HOST_NS);
        assert_eq!(resolver.ask(ip(9), 1, 78, late, &mut counts), Ok(None));
    }

    #[test]
    fn addresses_are_forgotten_for_others_but_not_while_they_are_asked_for() {
        let (mut resolver, mut counts) = (Resolver::default(), Counts::default());
        for number in 0..ENTRIES_MAX as u32 {
            let ip = IpAddr::from(number.to_be_bytes());
            assert_eq!(resolver.ask(ip, 1, 77, Time::ZERO, &mut counts), Ok(None));
        }
        assert_eq!(resolver.ask(ip(9), 1, 77, Time::ZERO, &mut counts), Err(()));
        resolver.handle_timeout(Time::from_nanos(PATIENCE_NS));
        assert_eq!(
            resolver.ask(ip(9), 1, 77, Time::from_nanos(PATIENCE_NS), &mut counts),
            Ok(None)
        );
        assert_eq!(resolver.entries.len(), 1);
    }
}
