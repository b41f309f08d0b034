//! The test kit of the card: it plays the guest (vhost-user front end and virtio-net driver) over a real socket with real
//! shared memory, generates load, and starts the backends under test.
//!
//! It speaks vhost-user and virtio only and depends on nothing of `vnic`, so that tests and benchmarks judge `vnicd` from
//! outside. It panics where the backend breaks the rules, and is never part of a product.

mod frames;
mod frontend;
pub mod load;
mod memory;
mod prefetch;
mod process;
mod queue;
mod raw_session;
mod ring;
mod seed;
mod slots;

pub use frames::{FRAME_LEN_MIN, Numbered, Tracker};
pub use frontend::*;
pub use memory::{GuestMemory, MEMORY_BASE, REGIONS_MAX, Region};
pub use process::{ControlClient, ProcessUse, Service, pin_thread};
pub use queue::{RxRing, TxRing};
pub use raw_session::{RawReply, RawSession, memory_table_body, shift_user_address};
pub use ring::{
    AVAIL_NO_INTERRUPT, DESC_INDIRECT, DESC_LEN, DESC_NEXT, DESC_WRITE, Descriptor, DriverRing, Interrupts,
    USED_NO_NOTIFY, need_event, table_len,
};
pub use seed::Seed;
pub use slots::{HEADER_LEN, Layout, write_descriptor};
