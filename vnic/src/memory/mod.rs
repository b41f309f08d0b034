//! Guest memory as the data path sees it: one translation function, one kind of piece, one function that copies.
//!
//! A [`MemoryMap`] is a snapshot of a port's memory table; it keeps the mappings alive, so pointers made from it stay
//! valid for as long as it does, whatever the frontend does to the table meanwhile. A frontend that truncates its
//! memory file is caught by `sigbus`. What the pieces mean (descriptors, frames) is not known here.
//!
//! The addresses of a guest behind an IOMMU of its own are looked up in a [`Translation`], which holds what the frontend said
//! about them; what it has not said yet is noted in [`Misses`].

mod iotlb;
mod map;
mod misses;
mod sigbus;
mod translation;

pub use iotlb::{Mapping, Permission};
pub use map::{Access, CACHE_LINE, MemoryMap, Piece, Unreachable, prefetch, prefetch_for_write};
pub use misses::{Miss, Misses};
pub use translation::Translation;
