//! The boundary between C and Rust: results become a value or -1 with `errno`, and a panic ends here as `EIO`.

use std::{
    ffi::{CStr, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use esp_socket::Errno;

/// The function of the C library that has the same name as one of ours.
pub(crate) struct Real {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Returns its address.
    #[inline]
    pub(crate) fn get(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // There is nobody to whom this could be returned: the program's C library has no such function.
            // SAFETY: ends the program.
            unsafe { libc::abort() };
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

fn errno() -> *mut c_int {
    // SAFETY: always returns this thread's place.
    unsafe { libc::__errno_location() }
}

/// The value that a call returns when it fails.
pub(crate) trait Failed {
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: Self = -1;
}

impl Failed for isize {
    const FAILED: Self = -1;
}

/// Runs the body of a function. `errno` is as it was unless the call fails.
pub(crate) fn guarded<T: Failed>(body: impl FnOnce() -> Result<T, Errno>) -> T {
    // SAFETY: the place belongs to this thread.
    let before = unsafe { *errno() };
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno(libc::EIO)));
    let (value, now) = match result {
        Ok(value) => (value, before),
        Err(Errno(code)) => (T::FAILED, code),
    };
    // SAFETY: as above.
    unsafe { *errno() = now };
    value
}

/// Does something beside a call; a panic ends here, and the call goes on.
pub(crate) fn aside(act: impl FnOnce()) {
    let _: i32 = guarded(|| {
        act();
        Ok(0)
    });
}

/// Defines functions that take the place of those of the C library. `real` is the latter; the body says what is done instead, or
/// `None` for a descriptor that is none of ours.
macro_rules! functions {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $returns:ty = |$real:ident| if $ours:expr => $body:expr;)*) => {
        $(
            $(#[$meta])*
            ///
            /// # Safety
            /// As the function of the C library.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> $returns {
                static REAL: $crate::boundary::Real = $crate::boundary::Real::new(
                    // SAFETY: one zero, at the end.
                    unsafe { std::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) },
                );
                let $real = || {
                    // SAFETY: the C library's function of this name has this type.
                    let real: unsafe extern "C" fn($($kind),*) -> $returns = unsafe { std::mem::transmute(REAL.get()) };
                    // SAFETY: the caller's promise.
                    unsafe { real($($argument),*) }
                };
                if !$ours {
                    return $real();
                }
                $body
            }
        )*
    };
}
pub(crate) use functions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_at_the_boundary_as_an_error() {
        let value: isize = guarded(|| panic!("on purpose"));
        assert_eq!(value, -1);
        // SAFETY: the place belongs to this thread.
        assert_eq!(unsafe { *errno() }, libc::EIO);
    }

    #[test]
    fn a_call_that_succeeds_leaves_errno_as_it_was() {
        // SAFETY: the place belongs to this thread.
        unsafe { *errno() = 7 };
        assert_eq!(guarded(|| Ok(3)), 3);
        // SAFETY: as above.
        assert_eq!(unsafe { *errno() }, 7);
    }
}
