//! MPI in the nodes of a lab: how the implementations of the image `mpi` start ranks over a transport, what the libfabric provider
//! says that it carried, what `imb` measured, and the comparison of the provider with TCP.

mod carried;
pub(crate) mod comparison;
pub mod imb;
mod launch;

pub use carried::Carried;

pub(crate) use carried::{collect_carried, silent_ranks, statistics_path};
pub(crate) use launch::{Mpi, Share, Transport, check_image, is_success, shares};
