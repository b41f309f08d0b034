//! The speed that a NIC reports to its guest: a word of the driver's, which slows nothing down.

use toml::Spanned;
use vnicd_protocol::PortLinks;

use super::{problems::Problems, units::Rate};
use crate::qemu::Nic;

/// Bits per second of a speed of 1.
const MBIT: u64 = 1_000_000;

/// Largest speed, in Mbit/s.
const SPEED_MBPS_MAX: u64 = 1_000_000;

/// Checks the speed that a file states.
pub(super) fn of_nic(speed: Option<&Spanned<Rate>>, problems: &mut Problems) -> Option<u32> {
    let speed = speed?;
    let rate = *speed.get_ref();
    let mbps = rate.0 / MBIT;
    if rate.0 % MBIT != 0 || !(1..=SPEED_MBPS_MAX).contains(&mbps) {
        let message = format!("a NIC cannot have a speed of {rate}");
        problems.add(speed.span(), message, "whole Mbit/s, from 1Mbit to 1000Gbit");
        return None;
    }
    u32::try_from(mbps).ok()
}

/// Returns the speed of a NIC at this cable, in Mbit/s: the rate of its slower direction.
#[must_use]
pub fn of_cable(link: &PortLinks) -> u32 {
    let rates = [link.to_guest.rate_bps, link.from_guest.rate_bps];
    let slower = rates.into_iter().filter(|rate| *rate != 0).min();
    slower.map_or(Nic::SPEED_MBPS_DEFAULT, |rate| {
        u32::try_from((rate / MBIT).clamp(1, SPEED_MBPS_MAX)).unwrap_or(u32::MAX)
    })
}
