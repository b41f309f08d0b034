//! What is on a wire: MAC addresses, EtherTypes, frame views, checksums, virtual time, capture files, and counters of what happens to frames.
//!
//! Everything here works on bytes that the caller read; there is no I/O and no clock. Frames are always seen
//! without their frame check sequence. What a switch or a card decides with these values is not here.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod addr;
pub mod checksum;
mod counters;
pub mod ecn;
mod frame;
pub mod pcapng;
mod time;

pub use addr::{MacAddr, ParseMacError};
pub use frame::{ETHERNET_HEADER_LEN, EtherType, Frame};
pub use time::Time;
