//! The names by which C programs know endpoints and requests. An endpoint is a place in a fixed table, so that a wrong
//! or stale name is noticed and never followed; a request is its number within the endpoint.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use omx::{Endpoint, Request};

use crate::{
    codes,
    fault::{Fault, Outcome},
    types::ErrorHandler,
};

/// At most this many endpoints of a process are open: as many as addresses can distinguish.
const SLOTS: usize = 256;

/// An endpoint that a C program opened.
pub(crate) struct Opened {
    pub(crate) endpoint: Endpoint,
    handler: Mutex<Option<ErrorHandler>>,
}

impl Opened {
    pub(crate) fn handler(&self) -> Option<ErrorHandler> {
        *self.handler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the endpoint's own handler, and returns the former one.
    pub(crate) fn set_handler(&self, handler: Option<ErrorHandler>) -> Option<ErrorHandler> {
        std::mem::replace(
            &mut *self.handler.lock().unwrap_or_else(PoisonError::into_inner),
            handler,
        )
    }
}

type Slot = RwLock<Option<Arc<Opened>>>;

static TABLE: [Slot; SLOTS] = [const { RwLock::new(None) }; SLOTS];

/// `mx_endpoint_t`, `omx_endpoint_t`: the address of a place in the table.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(usize);

impl Handle {
    pub(crate) const fn is_null(self) -> bool {
        self.0 == 0
    }

    fn slot(self) -> Option<&'static Slot> {
        let offset = self.0.checked_sub(TABLE.as_ptr().addr())?;
        let whole = offset.is_multiple_of(size_of::<Slot>());
        TABLE.get(offset / size_of::<Slot>()).filter(|_| whole)
    }

    /// Returns the endpoint.
    pub(crate) fn opened(self) -> Outcome<Arc<Opened>> {
        let slot = self.slot().ok_or_else(|| Fault::new(codes::BAD_ENDPOINT))?;
        let opened = slot.read().unwrap_or_else(PoisonError::into_inner).clone();
        opened.ok_or_else(|| Fault::new(codes::BAD_ENDPOINT))
    }

    /// Makes the name invalid.
    pub(crate) fn forget(self) {
        if let Some(slot) = self.slot() {
            *slot.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Keeps an endpoint under the number that its addresses have.
    pub(crate) fn keep(endpoint: Endpoint, handler: Option<ErrorHandler>) -> Self {
        let slot = &TABLE[usize::from(endpoint.address().opened_by())];
        let opened = Opened {
            endpoint,
            handler: Mutex::new(handler),
        };
        *slot.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(opened));
        Self(std::ptr::from_ref(slot).addr())
    }

    /// Returns every open endpoint.
    pub(crate) fn all() -> impl Iterator<Item = (Self, Arc<Opened>)> {
        TABLE.iter().filter_map(|slot| {
            let opened = slot.read().unwrap_or_else(PoisonError::into_inner).clone()?;
            Some((Self(std::ptr::from_ref(slot).addr()), opened))
        })
    }
}

/// `mx_request_t`, `omx_request_t`: number of the endpoint and of the request, never NULL.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CRequest(u64);

/// Bits of a request's number within its endpoint.
const REQUEST_BITS: u32 = 56;

impl CRequest {
    pub(crate) const NULL: Self = Self(0);

    pub(crate) const fn is_null(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn new(endpoint: &Endpoint, request: Request) -> Self {
        // One more than the number, so that it is not NULL. Places are far fewer than 2³², so nothing carries over.
        Self((u64::from(endpoint.address().opened_by()) << REQUEST_BITS | request.to_bits()) + 1)
    }

    /// Returns the request, if it is one of this endpoint.
    pub(crate) fn of(self, endpoint: &Endpoint) -> Outcome<Request> {
        let bits = self.0.checked_sub(1).ok_or_else(|| Fault::new(codes::BAD_REQUEST))?;
        if bits >> REQUEST_BITS != u64::from(endpoint.address().opened_by()) {
            return Err(Fault::new(codes::BAD_REQUEST));
        }
        Ok(Request::from_bits(bits & ((1 << REQUEST_BITS) - 1)))
    }

    /// Returns the endpoint that the request belongs to.
    pub(crate) fn opened(self) -> Outcome<Arc<Opened>> {
        let bits = self.0.checked_sub(1).ok_or_else(|| Fault::new(codes::BAD_REQUEST))?;
        let slot = &TABLE[(bits >> REQUEST_BITS) as usize];
        let opened = slot.read().unwrap_or_else(PoisonError::into_inner).clone();
        opened.ok_or_else(|| Fault::new(codes::BAD_REQUEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_were_never_given_are_no_endpoints() {
        let base = TABLE.as_ptr().addr();
        for wrong in [
            0,
            1,
            base + 1,
            base - 1,
            base + SLOTS * size_of::<Slot>(),
            usize::MAX,
            base,
        ] {
            let fault = Handle(wrong).opened().err().map(|fault| fault.code);
            assert_eq!(fault, Some(codes::BAD_ENDPOINT), "{wrong:#x}");
        }
        assert!(CRequest::NULL.opened().is_err() && CRequest(u64::MAX).opened().is_err());
    }
}
