//! The parts that IPv4 and IPv6 networks have in common: their text form, and whether two have an address in common.

use std::{fmt, ops::RangeInclusive, str::FromStr};

/// An address and the length of its network's prefix.
pub(super) trait Network: Copy + PartialEq + fmt::Display + FromStr<Err = String> {
    /// Returns the network of this address, with all host bits zero.
    fn network(self) -> Self;

    /// Returns whether the two networks have an address in common.
    fn overlaps(self, other: Self) -> bool;
}

/// Parses an address and a prefix length, as in `example`.
pub(super) fn parse<A: FromStr>(
    text: &str,
    (family, example): (&str, &str),
    prefixes: RangeInclusive<u8>,
) -> Result<(A, u8), String> {
    let (host, _) = example.split_once('/').unwrap_or_default();
    let (address, prefix_len) = text
        .split_once('/')
        .ok_or_else(|| format!("the prefix length is missing, as in {example}"))?;
    let address = address
        .parse()
        .map_err(|_| format!("\"{address}\" is not an {family} address such as {host}"))?;
    match prefix_len.parse() {
        Ok(len) if prefixes.contains(&len) => Ok((address, len)),
        _ => {
            let (least, most) = (prefixes.start(), prefixes.end());
            Err(format!(
                "\"/{prefix_len}\" is not a prefix length from /{least} to /{most}"
            ))
        }
    }
}
