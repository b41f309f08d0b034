//! What the agent inside a guest and its client on the host agree on: the frames and messages of the `weft.agent`
//! port, the guest's configuration, credit, and the packing of copied files. Written for users in `docs/spec/agent-protocol.md`.
//! It opens no port and runs no command: the binary of this crate and `testbed::guest_channel` do.
#![forbid(unsafe_code)]

pub mod config;
pub mod credit;
pub mod frame;
pub mod message;
pub mod transfer;
