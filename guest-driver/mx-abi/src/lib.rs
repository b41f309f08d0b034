//! The C interfaces of MX (`mx_…`) and Open-MX (`omx_…`) over `omx`: translation of arguments, numbers and error handlers, and
//! nothing else (`mx-api.md`). Linked into `libopen-mx.so.0` by `scripts/libraries` with the version map beside it.
//!
//! Which code comes from where, and which cannot occur, is in `docs/book/src/open-mx/codes.md`.
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
