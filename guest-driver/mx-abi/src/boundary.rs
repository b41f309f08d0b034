//! The boundary between C and Rust: a panic ends here, as the code for an unexpected error.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::codes;

/// The value that a call returns if it panics.
pub(crate) trait Fallback {
    const FALLBACK: Self;
}

impl Fallback for u32 {
    const FALLBACK: Self = codes::BAD_ERROR;
}

impl Fallback for i32 {
    const FALLBACK: Self = -1;
}

/// Runs the body of a C function.
pub(crate) fn guarded<T: Fallback>(body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(T::FALLBACK)
}

/// Defines functions of the C interface.
macro_rules! c_functions {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $returns:ty $body:block)*) => {
        $(
            $(#[$meta])*
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: $kind),*) -> $returns {
                $crate::boundary::guarded(move || $body)
            }
        )*
    };
}
pub(crate) use c_functions;

/// Defines functions that both interfaces have: the body learns which interface was called, and under which name.
macro_rules! both_interfaces {
    ($(
        fn ($mx:ident, $open_mx:ident)($($argument:ident: $kind:ty),* $(,)?) |$flavor:ident, $name:ident| $body:block
    )*) => {
        $crate::boundary::c_functions! {
            $(
                fn $mx($($argument: $kind),*) -> u32 {
                    let ($flavor, $name) = ($crate::types::Flavor::Mx, stringify!($mx));
                    $body
                }

                fn $open_mx($($argument: $kind),*) -> u32 {
                    let ($flavor, $name) = ($crate::types::Flavor::OpenMx, stringify!($open_mx));
                    $body
                }
            )*
        }
    };
}
pub(crate) use both_interfaces;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_at_the_boundary_as_an_error_code() {
        let code: u32 = guarded(|| panic!("on purpose"));
        assert_eq!(code, codes::BAD_ERROR);
    }
}
