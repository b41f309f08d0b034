//! The C interface of LCI (`include/lci.h`) over `lci_port`. This crate translates arguments and results, and does nothing else. The
//! script `link` makes `liblci.so.0` of it, with the version map beside it.
//!
//! No panic crosses the boundary: every function is wrapped (`boundary`).

mod boundary;
mod calls;
mod settings;
mod state;

pub use calls::{LciEvent, UpcallFunction};
