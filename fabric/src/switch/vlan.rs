//! VLANs of IEEE 802.1Q: sets of them, and which ones a port carries.
//!
//! Where frames go is decided elsewhere.

use alloc::boxed::Box;
use core::fmt;

use super::DropReason;
use crate::vlan_tag::{EgressForm, FrameTag, VlanId};

/// A set of VLANs.
#[derive(Clone, PartialEq, Eq)]
pub struct VlanSet(Box<[u64; 64]>);

impl VlanSet {
    /// No VLAN.
    pub fn none() -> Self {
        Self(Box::new([0; 64]))
    }

    /// All 4094.
    pub fn all() -> Self {
        let mut bits = [u64::MAX; 64];
        // 0 and 4095 are no VLANs.
        bits[0] &= !1;
        bits[63] &= !(1 << 63);
        Self(Box::new(bits))
    }

    /// Adds one.
    pub fn insert(&mut self, vlan: VlanId) {
        self.0[usize::from(vlan.number()) / 64] |= 1 << (vlan.number() % 64);
    }

    /// Takes one out.
    pub fn remove(&mut self, vlan: VlanId) {
        self.0[usize::from(vlan.number()) / 64] &= !(1 << (vlan.number() % 64));
    }

    /// Whether it is in the set.
    #[inline]
    pub fn contains(&self, vlan: VlanId) -> bool {
        self.0[usize::from(vlan.number()) / 64] & 1 << (vlan.number() % 64) != 0
    }

    /// The VLANs of the set, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = VlanId> + '_ {
        (1..=VlanId::MAX.number())
            .filter_map(VlanId::new)
            .filter(|vlan| self.contains(*vlan))
    }
}

impl FromIterator<VlanId> for VlanSet {
    fn from_iter<T: IntoIterator<Item = VlanId>>(vlans: T) -> Self {
        let mut set = Self::none();
        vlans.into_iter().for_each(|vlan| set.insert(vlan));
        set
    }
}

impl fmt::Debug for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(VlanId::number)).finish()
    }
}

/// The VLANs of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortVlans {
    /// The VLAN of frames without a tag (the port's PVID), whose frames leave the port without a tag, too. `None`: frames
    /// without a tag are dropped.
    pub untagged: Option<VlanId>,
    /// VLANs whose frames come and go with a tag.
    pub tagged: VlanSet,
}

impl PortVlans {
    /// An access port: what is behind it knows of no VLANs.
    pub fn access(vlan: VlanId) -> Self {
        Self {
            untagged: Some(vlan),
            tagged: VlanSet::none(),
        }
    }

    /// A trunk port: `tagged` VLANs come and go with a tag, those of `native` without.
    pub fn trunk(native: Option<VlanId>, tagged: VlanSet) -> Self {
        Self {
            untagged: native,
            tagged,
        }
    }

    /// Whether frames of the VLAN leave here, and how.
    #[inline]
    pub(super) fn egress(&self, vlan: VlanId) -> Option<EgressForm> {
        if self.untagged == Some(vlan) {
            Some(EgressForm::Untagged)
        } else if self.tagged.contains(vlan) {
            Some(EgressForm::Tagged)
        } else {
            None
        }
    }

    /// The VLAN that a frame belongs to that came in here, or why it is dropped. IEEE 802.1Q, 6.9 and 8.6.2: all frame types
    /// are admitted, and ingress filtering is on. A priority tag (number 0) says nothing about the VLAN, and a tag of the
    /// port's own untagged VLAN is right.
    #[inline]
    pub(super) fn classify(&self, tag: FrameTag) -> Result<VlanId, DropReason> {
        match VlanId::new(tag.number()) {
            None if tag.number() == 0 => self.untagged.ok_or(DropReason::VlanMissing),
            None => Err(DropReason::VlanInvalid),
            Some(vlan) if self.egress(vlan).is_some() => Ok(vlan),
            Some(_) => Err(DropReason::VlanNotAllowed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn sets_hold_what_was_put_in_and_nothing_else() {
        assert_eq!(VlanId::new(0), None);
        assert_eq!(VlanId::new(4095), None);
        let all = VlanSet::all();
        assert_eq!(all.iter().count(), 4094);
        let mut some: VlanSet = [63, 64, 4094].into_iter().filter_map(VlanId::new).collect();
        assert_eq!(some.iter().map(VlanId::number).collect::<Vec<_>>(), [63, 64, 4094]);
        let [first, second] = [63, 64].map(|number| VlanId::new(number).unwrap());
        some.remove(second);
        assert!(!some.contains(second) && some.contains(first));
    }
}
