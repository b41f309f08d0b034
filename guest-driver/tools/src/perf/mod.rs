//! `omx_perf`: ping-pong of MX messages, with the options, the protocol and the output of the reference's tool. It also
//! prints the columns of IMB, and measures the message rate and how much of a transfer computation hides. The sender
//! tells the receiver what to do.

mod cli;
mod overlap;
mod parameters;
mod phases;
mod pingpong;
mod rate;
mod side;
mod window;

pub use cli::{Arguments, main};
