//! `omx_perf`: ping-pong of MX messages, with the options, the protocol and the output of the reference's tool.

mod cli;
mod parameters;
mod pingpong;

pub use cli::{Arguments, main};
