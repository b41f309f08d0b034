//! `omx_perf`: ping-pong of MX messages, with the options, the protocol and the output of the reference's tool; beyond them the
//! columns of IMB, message rate, and how much of a transfer computation hides. The receiver learns from the sender what to do.

mod cli;
mod overlap;
mod parameters;
mod pingpong;
mod rate;
mod side;
mod window;

pub use cli::{Arguments, main};
