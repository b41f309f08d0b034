//! The C interfaces of MX (`mx_…`) and Open-MX (`omx_…`) over `omx`. This crate translates arguments, numbers and error
//! handlers, and does nothing else (`mx-api.md`). `scripts/libraries` links it into `libopen-mx.so.0` with the version
//! map beside it.
//!
//! The page `docs/book/src/open-mx/codes.md` says which code comes from where, and which cannot occur.
//!
//! No panic crosses the boundary: every function is wrapped (`boundary`).

mod both;
mod boundary;
mod calls;
mod codes;
mod connections;
mod contexts;
mod fault;
mod info;
mod maps;
mod mx;
mod open_mx;
mod raw;
mod raw_endpoint;
mod slots;
mod state;
mod types;
