//! The contract between the agent inside a guest and its client on the host: the frames and messages of the
//! `weft.agent` port, the guest's configuration, credit, and the packing of copied files. `docs/spec/agent-protocol.md`
//! describes it for users. This library opens no port and runs no command: the binary of this crate and
//! `testbed::guest_channel` do.
#![forbid(unsafe_code)]

pub mod config;
pub mod credit;
pub mod frame;
pub mod message;
pub mod transfer;
