//! The listeners that programs registered: TCP sockets whose programs take ESP connections, too.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
};

use esp::wire::Names;
use weft_authority::{
    Refusal,
    esp::{EspKey, EspListening, TOKEN_SOURCE, TOKEN_SOURCE_V6},
};

/// Listeners in all.
const LISTENERS_MAX: usize = 1024;
/// Listeners of one user other than root.
const USER_LISTENERS_MAX: usize = LISTENERS_MAX / 2;

/// A place where programs listen: several sockets may (`SO_REUSEPORT`), among which the kernel chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) address: SocketAddr,
    pub(super) only_v6: bool,
}

impl Place {
    fn takes_v4(&self) -> bool {
        match self.address.ip() {
            IpAddr::V4(_) => true,
            IpAddr::V6(ip) => ip.is_unspecified() && !self.only_v6,
        }
    }

    /// Says how well a connection to an address fits; `None`: not at all.
    fn fits(&self, destination: Option<IpAddr>) -> Option<u8> {
        let is_any = self.address.ip().is_unspecified();
        let Some(destination) = destination else {
            return Some(u8::from(is_any));
        };
        if self.address.ip() == destination {
            return Some(2);
        }
        let takes = if destination.is_ipv4() {
            self.takes_v4()
        } else {
            self.address.is_ipv6()
        };
        (is_any && takes).then(|| u8::from(self.address.is_ipv4() == destination.is_ipv4()))
    }

    /// Returns where a token is sent from, and where to.
    pub(super) fn token_path(&self) -> (IpAddr, SocketAddr) {
        let port = self.address.port();
        if !self.address.ip().is_unspecified() {
            let from = match self.address {
                SocketAddr::V4(_) => TOKEN_SOURCE.into(),
                SocketAddr::V6(_) => TOKEN_SOURCE_V6.into(),
            };
            return (from, self.address);
        }
        if self.takes_v4() {
            (TOKEN_SOURCE.into(), (Ipv4Addr::LOCALHOST, port).into())
        } else {
            (TOKEN_SOURCE_V6.into(), (TOKEN_SOURCE_V6, port).into())
        }
    }
}

/// What a program may prove to have a listener by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) user: u32,
    pub(super) key: EspKey,
}

#[derive(Debug)]
struct Listener {
    place: Place,
    pid: u32,
    owner: Owner,
    /// The reading end of the pipe whose other ends are in its programs.
    alive: OwnedFd,
}

/// All listeners, by number.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    by_id: BTreeMap<u64, Listener>,
    next: u64,
}

impl Listeners {
    /// Refuses a further listener of a user where there are too many.
    pub(super) fn check_limits(&self, user: u32, privileged: bool) -> Result<(), (Refusal, String)> {
        let of_user = || {
            self.by_id
                .values()
                .filter(|listener| listener.owner.user == user)
                .count()
        };
        let sentence = if self.by_id.len() >= LISTENERS_MAX {
            format!("{LISTENERS_MAX} sockets listen by ESP, as many as can be")
        } else if !privileged && of_user() >= USER_LISTENERS_MAX {
            format!("{USER_LISTENERS_MAX} sockets of user {user} listen by ESP, as many as one user may have")
        } else {
            return Ok(());
        };
        Err((Refusal::Busy, sentence))
    }

    /// Returns the number of the next one.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Adds a listener, under the [next](Self::next) number.
    pub(super) fn add(&mut self, place: Place, pid: u32, owner: Owner, alive: OwnedFd) {
        let listener = Listener {
            place,
            pid,
            owner,
            alive,
        };
        self.by_id.insert(self.next, listener);
        self.next += 1;
    }

    /// Forgets a listener; returns its port if it was the last one there, and its pipe.
    pub(super) fn remove(&mut self, id: u64) -> Option<(Option<u16>, OwnedFd)> {
        let listener = self.by_id.remove(&id)?;
        let port = listener.place.address.port();
        Some(((!self.has_port(port)).then_some(port), listener.alive))
    }

    /// Returns the key of a listener.
    pub(super) fn key(&self, id: u64) -> Option<EspKey> {
        self.by_id.get(&id).map(|listener| listener.owner.key)
    }

    /// Lists those at a place.
    pub(super) fn at(&self, place: Place) -> impl Iterator<Item = u64> {
        let listeners = self.by_id.iter().filter(move |(_, listener)| listener.place == place);
        listeners.map(|(id, _)| *id)
    }

    /// Returns what proves the right to a place's connections.
    pub(super) fn owners_of(&self, place: Place) -> Vec<Owner> {
        let there = self.by_id.values().filter(|listener| listener.place == place);
        there.map(|listener| listener.owner).collect()
    }

    /// Whether any listener has a port.
    pub(super) fn has_port(&self, port: u16) -> bool {
        self.by_id
            .values()
            .any(|listener| listener.place.address.port() == port)
    }

    /// Finds where a connection to this port goes: the place that fits its address best.
    pub(super) fn find(&self, port: u16, names: Option<&Names>) -> Option<Place> {
        let destination = names.map(|names| names.destination().to_canonical());
        let there = self.by_id.values().map(|listener| listener.place);
        let fitting = there
            .filter(|place| place.address.port() == port)
            .filter_map(|place| Some((place.fits(destination)?, place)));
        fitting.max_by_key(|(fits, _)| *fits).map(|(_, place)| place)
    }

    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Lists those behind a number.
    pub(super) fn list(&self, after: Option<u64>) -> impl Iterator<Item = EspListening> {
        let first = after.map_or(0, |after| after.saturating_add(1));
        self.by_id.range(first..).map(|(id, listener)| EspListening {
            id: *id,
            address: listener.place.address,
            only_v6: listener.place.only_v6,
            pid: listener.pid,
            user: listener.owner.user,
            half_open: 0,
            unclaimed: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(address: &str, only_v6: bool) -> Place {
        Place {
            address: address.parse().unwrap(),
            only_v6,
        }
    }

    fn with(places: &[Place]) -> Listeners {
        let mut listeners = Listeners::default();
        for place in places {
            let (alive, _) = rustix::pipe::pipe().unwrap();
            let owner = Owner { user: 7, key: [1, 2] };
            listeners.add(*place, 1, owner, alive);
        }
        listeners
    }

    #[test]
    fn a_connection_goes_where_its_address_fits_best() {
        let (any, one, any6, one6, only6) = (
            place("0.0.0.0:80", false),
            place("10.7.0.1:80", false),
            place("[::]:80", false),
            place("[fd00::1]:80", false),
            place("[::]:80", true),
        );
        let to = |destination: &str| {
            let source = if destination.contains(':') {
                "[fd00::9]:1"
            } else {
                "10.7.0.9:1"
            };
            Names::new(source.parse().unwrap(), destination.parse().unwrap())
        };
        for (places, destination, expected) in [
            (&[any, one][..], "10.7.0.1", Some(one)),
            (&[one, any], "10.7.0.2", Some(any)),
            (&[one], "10.7.0.2", None),
            (&[any], "fd00::1", None),
            (&[any6], "fd00::1", Some(any6)),
            (&[any6], "10.7.0.1", Some(any6)),
            (&[any6, any], "10.7.0.1", Some(any)),
            (&[any, any6], "10.7.0.1", Some(any)),
            (&[only6], "10.7.0.1", None),
            (&[only6, one6], "fd00::1", Some(one6)),
            (&[only6, one6], "fd00::2", Some(only6)),
        ] {
            let listeners = with(places);
            let names = to(destination);
            assert_eq!(listeners.find(80, names.as_ref()), expected, "{places:?} {destination}");
            assert_eq!(listeners.find(81, names.as_ref()), None);
        }
        assert_eq!(with(&[one, any]).find(80, None), Some(any));
        assert_eq!(with(&[one]).find(80, None), Some(one));
    }

    #[test]
    fn tokens_come_by_ipv4_wherever_that_is_taken() {
        for (place, from, to) in [
            (place("0.0.0.0:80", false), "127.0.69.83", "127.0.0.1:80"),
            (place("10.7.0.1:80", false), "127.0.69.83", "10.7.0.1:80"),
            (place("[::]:80", false), "127.0.69.83", "127.0.0.1:80"),
            (place("[::]:80", true), "::1", "[::1]:80"),
            (place("[fd00::1]:80", false), "::1", "[fd00::1]:80"),
        ] {
            assert_eq!(place.token_path(), (from.parse().unwrap(), to.parse().unwrap()));
        }
    }

    #[test]
    fn listeners_are_limited_and_the_last_one_of_a_port_ends_it() {
        let both = place("0.0.0.0:80", false);
        let mut listeners = with(&[both, both]);
        assert_eq!(listeners.owners_of(both).len(), 2);
        assert_eq!(listeners.remove(0).unwrap().0, None);
        assert_eq!(listeners.remove(1).unwrap().0, Some(80));
        assert!(listeners.remove(1).is_none());
        let mut listeners = with(&vec![both; USER_LISTENERS_MAX]);
        assert!(listeners.check_limits(7, false).is_err() && listeners.check_limits(8, false).is_ok());
        assert!(listeners.check_limits(7, true).is_ok());
        for _ in USER_LISTENERS_MAX..LISTENERS_MAX {
            let (alive, _) = rustix::pipe::pipe().unwrap();
            listeners.add(both, 1, Owner { user: 0, key: [0; 2] }, alive);
        }
        assert!(listeners.check_limits(0, true).is_err());
    }
}
