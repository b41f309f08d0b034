//! The comparisons. Each gives its rivals, measurements and bars to the [harness](crate::harness) and measures what it asks for.

pub mod dataplane;
mod forwarder;
mod guest_pair;
pub mod guests;
mod iperf3;
pub mod links;
pub mod openmx;
