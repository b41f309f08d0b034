//! The domain: one interface, and what its objects need to know of it. `fabric` opens it.

use std::sync::Arc;

use crate::{abi::*, regions::Regions};

/// A domain as C sees it, and what its objects need to know of it.
#[repr(C)]
pub(crate) struct Domain {
    fid: FidDomain,
    /// The version that the program asked for.
    api_version: u32,
    /// The name of the interface.
    interface: Option<String>,
    /// Regions can be accessed by others.
    has_regions: bool,
    regions: Arc<Regions>,
}

impl Domain {
    /// # Safety
    /// A domain that the program has opened and not closed.
    pub(crate) unsafe fn of<'a>(domain: *mut FidDomain) -> &'a Self {
        // SAFETY: the caller's promise; [`Self::into_fid`] made it.
        unsafe { &*domain.cast() }
    }

    /// Makes the domain of an interface, which lives until it is [taken back](Self::from_fid).
    pub(crate) fn into_fid(
        fid: FidDomain,
        api_version: u32,
        interface: Option<String>,
        has_regions: bool,
    ) -> *mut FidDomain {
        Box::into_raw(Box::new(Self {
            fid,
            api_version,
            interface,
            has_regions,
            regions: Arc::default(),
        }))
        .cast()
    }

    /// Takes back a domain that the program closes.
    ///
    /// # Safety
    /// [`Self::into_fid`] made it, and nothing uses it any more.
    pub(crate) unsafe fn from_fid(fid: *mut Fid) -> Box<Self> {
        // SAFETY: the caller's promise.
        unsafe { Box::from_raw(fid.cast()) }
    }

    pub(crate) const fn api_version(&self) -> u32 {
        self.api_version
    }

    pub(crate) fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// Whether regions can be accessed by others.
    pub(crate) const fn has_regions(&self) -> bool {
        self.has_regions
    }

    pub(crate) const fn regions(&self) -> &Arc<Regions> {
        &self.regions
    }
}
