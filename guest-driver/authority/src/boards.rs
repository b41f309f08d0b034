//! Boards: which interfaces are boards, and what numbers they have.

use std::fmt;

use ether::ETHERNET_HEADER_LEN;
use mxoe::wire::Preset;
use netif::{Interface, NetifError};

/// Why an interface that no setting names is no board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// It is switched off.
    Down,
    /// Its frames are too short for any sizes on the wire.
    MtuTooSmall {
        /// Its MTU, in bytes.
        mtu: usize,
        /// The MTU that would do, in bytes.
        mtu_min: usize,
    },
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down => f.write_str("it is down"),
            Self::MtuTooSmall { mtu, mtu_min } => write!(f, "its MTU of {mtu} is below {mtu_min}"),
        }
    }
}

/// An interface that has a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedInterface {
    /// Its number.
    pub number: u32,
    /// The interface.
    pub interface: Interface,
    /// Why it is no board now.
    pub left_out: Option<LeftOut>,
}

/// Lists the interfaces that have numbers, in order: those that `wanted` names (a list with commas), or every Ethernet
/// interface but loopback where it is `None`, empty or `all`. Those that are named are boards; of all, those that are
/// up and have the MTU.
///
/// Numbers do not depend on that: the names of boards are made of them, and programs and authorities that find them out at different
/// times must find the same, whatever was switched in between. So there are holes where interfaces are left out.
///
/// # Errors
/// [`NetifError`] for a name in the list that does not exist.
pub fn interfaces(wanted: Option<&str>) -> Result<Vec<NumberedInterface>, NetifError> {
    let named = wanted.filter(|names| !names.is_empty() && names.trim() != "all");
    let found: Vec<Interface> = match named {
        Some(names) => names
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(Interface::find)
            .collect::<Result<_, _>>()?,
        None => {
            let mut all = Interface::list()?;
            all.retain(|interface| !interface.loopback);
            all
        }
    };
    let numbered = |(number, interface)| NumberedInterface {
        number,
        left_out: left_out(&interface).filter(|_| named.is_none()),
        interface,
    };
    Ok((0..).zip(found).map(numbered).collect())
}

/// Returns the MTU that sizes on the wire need, in bytes, by the name of their preset; without a name the least that
/// any preset needs.
pub fn mtu_needed(preset: Option<&str>) -> usize {
    let preset = preset
        .and_then(|preset| preset.parse().ok())
        .unwrap_or(Preset::Native1500);
    (preset.sizes().frame_len_max() as usize).saturating_sub(ETHERNET_HEADER_LEN)
}

fn left_out(interface: &Interface) -> Option<LeftOut> {
    let mtu_min = mtu_needed(None);
    if !interface.up {
        Some(LeftOut::Down)
    } else if interface.mtu < mtu_min {
        Some(LeftOut::MtuTooSmall {
            mtu: interface.mtu,
            mtu_min,
        })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use weft_guest_driver_testkit::{Veth, in_private_network};

    use super::*;

    #[test]
    fn interfaces_that_are_down_or_too_small_are_no_boards_and_numbers_stay() {
        let test = "boards::tests::interfaces_that_are_down_or_too_small_are_no_boards_and_numbers_stay";
        in_private_network(test, || {
            let (first, second) = (Veth::new(1500), Veth::new(1500));
            let found = |wanted: Option<&str>| {
                let found = interfaces(wanted).unwrap();
                found
                    .into_iter()
                    .map(|one| (one.number, one.interface.name, one.left_out))
                    .collect::<Vec<_>>()
            };
            let before = found(None);
            assert_eq!(before.len(), 4);
            assert!(
                (0..)
                    .zip(&before)
                    .all(|(at, (number, _, out))| (*number, *out) == (at, None))
            );
            first.set_up(&first.a, false);
            second.change(&second.b, &["mtu", "1485"]);
            let mut after = found(None);
            for (_, name, left_out) in &mut after {
                let expected = if *name == first.a {
                    Some(LeftOut::Down)
                } else if *name == second.b {
                    Some(LeftOut::MtuTooSmall {
                        mtu: 1485,
                        mtu_min: 1486,
                    })
                } else {
                    None
                };
                assert_eq!(left_out.take(), expected, "{name}");
            }
            assert_eq!(after, before, "no other number changes");
            for all in ["", "all", " all "] {
                assert_eq!(found(Some(all)), found(None));
            }
            // An interface that is named is wanted.
            let named = format!("{}, {}", second.b, first.a);
            assert_eq!(
                found(Some(&named)),
                [(0, second.b.clone(), None), (1, first.a.clone(), None)]
            );
            assert_eq!(found(Some(" ")), []);
        });
    }
}
