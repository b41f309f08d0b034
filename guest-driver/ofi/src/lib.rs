//! The libfabric provider `mx`: reliable datagram endpoints, tagged and untagged messages over the `omx` crate. The library
//! is loaded by libfabric at run time (`libmx-fi.so`); MPI implementations use it unmodified. What they need of it is in
//! `docs/spec/ofi-provider.md`.
//!
//! - `abi`: the structures and numbers of libfabric.
//! - `info`: what the provider supports, and the checks of what a program asks for.
//! - `object`, `fabric`, `domain`, `address_vector`, `completion_queue`, `counter`, `event_queue`, `memory_region`: the objects.
//! - `regions`, `atomic`: the memory that others may access, and what atomic operations make of it.
//! - `endpoint`: messages; it translates them to requests of `omx`.
//!
//! libfabric jumps into these functions from C with pointers that the program gives. Every object begins with the
//! structure that C sees, and lives from its `open` call to its `close`.

mod abi;
mod address;
mod address_vector;
mod atomic;
mod bound;
mod completion_queue;
mod counter;
mod domain;
mod endpoint;
mod event_queue;
mod fabric;
mod idle;
mod info;
mod log;
mod memory_region;
mod object;
mod refusal;
mod regions;

use std::{cell::UnsafeCell, ptr};

use abi::{FiProvider, fi_version};

/// The structure by which libfabric knows the provider, and in which it keeps its own state.
struct Provider(UnsafeCell<FiProvider>);

// SAFETY: only libfabric, which guards it, writes to the structure.
unsafe impl Sync for Provider {}

static PROVIDER: Provider = Provider(UnsafeCell::new(FiProvider {
    version: fi_version(1, 0),
    // Programs that ask for a later version than this would not see the provider, and nothing checks an upper bound.
    fi_version: fi_version(2, 99),
    context: [ptr::null_mut(); 4],
    name: c"mx".as_ptr(),
    getinfo: info::getinfo,
    fabric: fabric::open,
    cleanup,
}));

/// Ends nothing: endpoints are closed by their programs, and the code stays loaded (`-z nodelete`) for the helper thread
/// of `omx`.
unsafe extern "C" fn cleanup() {
    refusal::tell_at_the_end();
}

/// The function that libfabric looks for in a plug-in.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut std::ffi::c_void {
    PROVIDER.0.get().cast()
}
