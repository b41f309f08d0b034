//! Labs of QEMU guests on programmable cards: the lab file, the supervisor that owns a running lab, the verbs of
//! `weft`, and the demo. This crate controls other programs; no frame passes through it.

pub mod accel;
mod card_comparison;
pub mod cli;
mod containerlab;
pub mod demo;
mod digest;
pub mod graph;
pub mod guest_channel;
mod guest_memory;
pub mod guest_tools;
pub mod harness;
pub mod image;
mod interrupted;
pub mod lab;
pub mod lab_file;
mod log_tail;
pub mod mpi;
pub(crate) mod prepare;
pub mod programs;
pub mod qemu;
pub mod report;
pub mod save;
pub mod seed;
mod settings_in_force;
pub mod state;
pub mod supervisor;
pub mod supervisor_client;
pub mod trace;
pub mod vnicd_client;
