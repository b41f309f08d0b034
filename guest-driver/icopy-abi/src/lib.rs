//! The C interface of copies (`include/icopy.h`) over `icopy`. This crate translates arguments and results, and does nothing else.
//! The script `link` makes `libicopy.so.0` of it, with the version map beside it.
//!
//! No panic crosses the boundary: every function is wrapped (`boundary`).

use shared_features as _;

mod boundary;
mod calls;
