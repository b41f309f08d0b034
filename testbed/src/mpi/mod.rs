//! MPI in the nodes of a lab: how the implementations of the image `mpi` start ranks over a transport, what the libfabric provider
//! says that it carried, whether their streams went over ESP, what `imb` measured, and the comparison of the provider with ESP and TCP.

mod carried;
pub(crate) mod comparison;
pub mod imb;
mod launch;
mod over_esp;

pub use carried::Carried;

pub(crate) use carried::{collect_carried, silent_ranks, statistics_path};
pub(crate) use launch::{Mpi, Share, Transport, check_image, has_program, is_success, shares};
