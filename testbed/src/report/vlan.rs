//! The VLAN settings of a port in words.

use super::table::or_dash;
use crate::vnicd_client::report::VlanSettings;

/// Renders the VLAN of frames without a tag.
#[must_use]
pub fn untagged(vlans: Option<&VlanSettings>) -> String {
    match vlans {
        // Tags are not read: there are no VLANs.
        None => "any".to_owned(),
        Some(vlans) => or_dash(vlans.untagged),
    }
}

/// Renders the VLANs of frames with a tag.
#[must_use]
pub fn tagged(vlans: Option<&VlanSettings>) -> String {
    match vlans {
        None => "any".to_owned(),
        Some(vlans) if vlans.tagged.is_empty() => "-".to_owned(),
        Some(vlans) => vlans.tagged.to_string(),
    }
}
