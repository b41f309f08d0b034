//! The scenarios. Each provides its rivals, measurements and bars to the [harness](testbed::harness) and measures on
//! request.

pub mod dataplane;
pub mod esp;
mod forwarder;
mod guest_pair;
pub mod guests;
mod iperf3;
pub mod links;
pub mod mpi;
pub mod openmx;
