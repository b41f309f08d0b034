//! Checksum and segmentation offloads: the 12-byte virtio-net header, and doing in software what a guest asked its card
//! to do when the frame goes somewhere that cannot.
//!
//! On an ideal link between two guests that negotiated equal offloads none of this runs: the header passes through.
//! The functions work on a whole frame in private memory; rings and pools are not known here.

mod header;
mod segment;

pub use header::{BadOffload, LEGACY_NET_HEADER_LEN, NET_HEADER_LEN, NetHeader, Offloads};
pub use segment::{Cut, HEADERS_MAX, OnWire, Segments, complete_checksum};
