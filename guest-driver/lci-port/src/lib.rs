//! LCI over an Ethernet port (`papers.md` M-BV1, M-BV9, M-BV10): the clock, the frames, the interrupts and the upcalls around the
//! engine of the crate `lci`.
//!
//! [`Lci`] is one node. Its program polls ([`Lci::poll`]), or lets itself be interrupted ([`Lci::enable_interrupts`]); each packet
//! reaches it by its upcall.

mod arena;
mod clock;
mod core;
mod error;
mod host_state;
mod idle;
mod interrupt;
mod node;
mod options;
mod own_card;
mod packet;
mod statistics;

pub use lci::{Counter, Event, GroupId, PACKET_LEN_MAX, Policy, RemovalReason};

pub use crate::{
    clock::now_ns,
    error::LciError,
    node::Lci,
    options::Options,
    packet::{Packet, SendPacket},
    statistics::{InterruptCounters, Statistics},
};
