//! The types of the C interface, laid out as `mx-api.md` section 2 says, and the use of their pointers: every
//! dereference of a C program's pointer is in this file.

use std::{
    ffi::{CStr, c_char, c_void},
    time::Duration,
};

use omx::Address;

/// The interface that a call belongs to; their numbers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavor {
    Mx,
    OpenMx,
}

impl Flavor {
    /// Converts a time limit in milliseconds; `None`: there is no limit.
    pub(crate) fn limit(self, timeout_ms: u32) -> Option<Duration> {
        match (self, timeout_ms) {
            (Self::Mx, 0) | (Self::OpenMx, u32::MAX) => None,
            (_, ms) => Some(Duration::from_millis(ms.into())),
        }
    }
}

/// `mx_endpoint_addr_t`, `omx_endpoint_addr_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CAddress(pub(crate) [u64; 2]);

impl From<Address> for CAddress {
    fn from(address: Address) -> Self {
        Self(address.to_words())
    }
}

impl CAddress {
    pub(crate) const NONE: Self = Self([0; 2]);

    pub(crate) const fn address(self) -> Address {
        Address::from_words(self.0)
    }
}

/// `mx_status_t`, `omx_status_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CStatus {
    pub(crate) code: u32,
    pub(crate) address: CAddress,
    pub(crate) match_info: u64,
    pub(crate) msg_length: u32,
    pub(crate) xfer_length: u32,
    pub(crate) context: u64,
}

/// `mx_param_t`, `omx_endpoint_param_t`: the union as its first eight bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CParam {
    pub(crate) key: u32,
    pub(crate) value: u64,
}

const _: () = {
    assert!(size_of::<CStatus>() == 48 && size_of::<CParam>() == 16 && size_of::<CAddress>() == 16);
    assert!(std::mem::offset_of!(CStatus, address) == 8 && std::mem::offset_of!(CStatus, context) == 40);
    assert!(size_of::<omx::Segment>() == 16 && std::mem::offset_of!(omx::Segment, len) == 8);
};

/// An error handler, which gets a text and a code. The call returns what it returns.
pub(crate) type ErrorHandler = extern "C" fn(*mut c_char, u32) -> u32;

/// An unexpected handler.
pub(crate) type UnexpectedHandler = extern "C" fn(*mut c_void, CAddress, u64, u32, *mut c_void) -> u32;

impl CParam {
    /// Returns the value as an error handler; `None`: NULL.
    pub(crate) fn handler(self) -> Option<ErrorHandler> {
        // SAFETY: the caller says with the key that this member of the union was written: a function of this type or NULL,
        // and both sides have 64 bits (`Option` of a function pointer is NULL for `None`).
        unsafe { std::mem::transmute::<u64, Option<ErrorHandler>>(self.value) }
    }
}

/// The place for a result: a pointer of the C program, NULL where it does not want the result.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T: Copy> Out<T> {
    pub(crate) const fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn put(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: only the C program makes one, and promises that a pointer that is not NULL points to such a value.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    pub(crate) fn get(self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: as in `put`; the value was written by the C program or by `put`.
        Some(unsafe { self.0.read_unaligned() })
    }

    /// Returns the element at an index; the caller has checked that it is there.
    pub(crate) fn at(self, index: usize) -> Self {
        Self(if self.0.is_null() {
            self.0
        } else {
            self.0.wrapping_add(index)
        })
    }

    /// Writes values behind each other; the caller has checked that there is room.
    pub(crate) fn put_all(self, values: &[T]) {
        for (index, value) in values.iter().enumerate() {
            self.at(index).put(*value);
        }
    }
}

/// Memory of the C program, of a length given beside it.
pub(crate) type Bytes = Out<u8>;

impl Out<c_void> {
    pub(crate) const fn bytes(self) -> Bytes {
        Out(self.0.cast())
    }

    pub(crate) const fn ptr(self) -> *mut u8 {
        self.0.cast()
    }

    pub(crate) fn bits(self) -> u64 {
        self.0.expose_provenance() as u64
    }
}

/// Converts a value that was kept for the program to a pointer.
pub(crate) fn pointer(bits: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(bits as usize)
}

/// A list of the C program, of a length given beside it.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct List<T>(*const T);

impl<T: Copy> List<T> {
    pub(crate) const fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Copies the elements; there are none for NULL.
    pub(crate) fn to_vec(self, count: u32) -> Vec<T> {
        if self.0.is_null() {
            return Vec::new();
        }
        let at = |index: u32| self.0.wrapping_add(index as usize);
        // SAFETY: the C program promises that a list that is not NULL has the elements it says.
        (0..count).map(|index| unsafe { at(index).read_unaligned() }).collect()
    }
}

/// A text of the C program.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    pub(crate) fn to_string(self) -> Option<String> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the C program promises that a text that is not NULL ends with a zero.
        Some(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}
