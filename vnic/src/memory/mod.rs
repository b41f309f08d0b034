//! Guest memory as the data path sees it: one translation function, one kind of piece, one function that copies.
//!
//! A [`MemoryMap`] is a snapshot of a port's memory table; it keeps the mappings alive, so pointers made from it stay
//! valid for as long as it does, whatever the frontend does to the table meanwhile. A frontend that truncates its
//! memory file is caught by `sigbus`. What the pieces mean (descriptors, frames) is not known here.

mod map;
mod sigbus;

pub use map::{Access, CACHE_LINE, MemoryMap, OutsideMemory, Piece, prefetch, prefetch_for_write};
