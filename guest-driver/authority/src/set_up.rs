//! The mark of an authority with settings. It stands while the authority serves, and an orderly end removes it; so it
//! shows whether the last authority of an interface had settings and was killed. The service that has the settings
//! starts such an authority again, and no program starts one without settings in its place. On the authority's side
//! only the process that has the interface's lock writes or trusts the mark.

use std::fs;

use ether::MacAddr;
use netif::Interface;

use crate::{OmxdError, Place, lock::own_file};

/// Marks that this process, which has the lock, serves with settings.
///
/// # Errors
/// [`OmxdError::Io`].
pub fn mark(place: &Place, mac: MacAddr) -> Result<(), OmxdError> {
    fs::write(place.set_up(), mac.to_string()).map_err(OmxdError::io("note that this omxd was set up"))
}

/// Removes the mark, so that no program waits for an authority with settings any more.
pub fn unmark(place: &Place) {
    let _ = fs::remove_file(place.set_up());
}

/// Removes the mark of an authority with settings that was killed, so that no program waits for it any more. Returns
/// whether there was one; an authority that serves stays as it is.
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

/// Whether an authority with settings serves the interface, or did so until it was killed. The mark of another
/// interface with this name does not count.
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
