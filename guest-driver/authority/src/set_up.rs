//! Whether the last authority of an interface was one with settings that was killed: it is started again by whoever gave it those, and
//! nobody starts one without them in its place. It leaves a mark while it serves, which an end in good order takes away. Who makes or
//! believes the mark on the authority's side has the interface's lock.

use std::fs;

use ether::MacAddr;
use netif::Interface;

use crate::{OmxdError, Place, lock::own_file};

/// This process, which has the lock, serves with settings.
///
/// # Errors
/// [`OmxdError::Io`].
pub fn mark(place: &Place, mac: MacAddr) -> Result<(), OmxdError> {
    fs::write(place.set_up(), mac.to_string()).map_err(OmxdError::io("note that this omxd was set up"))
}

/// Nobody waits for one with settings any more.
pub fn unmark(place: &Place) {
    let _ = fs::remove_file(place.set_up());
}

/// Nobody waits any more for an authority with settings that was killed. Whether there was one; one that serves stays as it is.
///
/// # Errors
/// [`OmxdError::Io`].
pub fn forget_killed(interface: &Interface) -> Result<bool, OmxdError> {
    let place = Place::of(interface.index)?;
    if !is_marked(&place, interface.mac) {
        return Ok(false);
    }
    let lock = own_file(&place.lock())?;
    if lock.is_some() {
        unmark(&place);
    }
    Ok(lock.is_some())
}

/// Whether one serves the interface with settings, or did so to the last. A mark of another interface that was called the same says
/// nothing of this one.
pub fn is_marked(place: &Place, mac: MacAddr) -> bool {
    fs::read_to_string(place.set_up()).is_ok_and(|text| text == mac.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_for_the_interface_it_was_made_for_and_ends() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::at(dir.path(), 7, 1);
        let macs = [1, 2].map(|last| MacAddr([2, 0, 0, 0, 0, last]));
        assert!(!is_marked(&place, macs[0]));
        mark(&place, macs[0]).unwrap();
        assert!(is_marked(&place, macs[0]) && !is_marked(&place, macs[1]));
        assert!(!is_marked(&Place::at(dir.path(), 7, 2), macs[0]));
        unmark(&place);
        assert!(!is_marked(&place, macs[0]));
    }
}
