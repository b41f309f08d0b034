//! Programs over LCI, each of which checks its own results: what the paper measures, over a small trait ([`Node`]).
//!
//! Every program is an `async` function. Live, a node's future never waits: what waits polls its port ([`live`]). A simulator can
//! implement the trait over virtual time and run the same programs.

pub mod absent;
pub mod asp;
pub mod broadcast;
pub mod cli;
pub mod kernels;
pub mod live;
pub mod messages;
pub mod node;
pub mod numbers;
pub mod ping_pong;
pub mod qr;
pub mod region;
pub mod report;

pub use node::{Node, ProgramError, Target};
