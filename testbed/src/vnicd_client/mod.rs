//! Talking to a running `vnicd`: its configuration file and its control socket.

pub mod config;
