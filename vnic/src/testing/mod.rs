//! The test frontend: plays the guest (vhost-user frontend and virtio-net driver) over a real socket
//! with real shared memory, and is the load generator of the benchmarks. Panics where the
//! backend breaks the rules; never used by `vnicd` itself.

mod frames;
mod frontend;
mod hostile;
pub mod load;
mod memory;
mod process;
mod queue;
mod ring;
mod slots;

pub use frames::{FRAME_LEN_MIN, Numbered, Tracker};
pub use frontend::*;
pub use hostile::{RawReply, RawSession, Seed, memory_table_body, shift_user_address, table_len};
pub use memory::{GuestMemory, MEMORY_BASE, REGIONS_MAX, Region};
pub use process::{ControlClient, ProcessUse, Service, pin_thread};
pub use queue::{RxRing, TxRing};
pub use ring::{
    AVAIL_NO_INTERRUPT, DESC_INDIRECT, DESC_LEN, DESC_NEXT, DESC_WRITE, Descriptor, DriverRing, Interrupts,
    USED_NO_NOTIFY, need_event,
};
pub use slots::{HEADER_LEN, Layout, write_descriptor};
