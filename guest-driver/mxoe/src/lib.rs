//! MXoE, the message-passing protocol of MX and Open-MX over Ethernet, without I/O and without a clock.
//!
//! [`wire`] turns frames into checked values and back; [`engine`] is the protocol of one endpoint (connection, reliable
//! messages, rendezvous and pull); [`matching`] holds posted receives and unexpected messages; [`authority`] answers for
//! a whole interface; [`finisher`] pays what closed endpoints owe. What they are to each other and to the crates above is in `ENGINE.md`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod authority;
pub mod engine;
pub mod finisher;
pub mod matching;
mod source_key;
pub mod wire;
