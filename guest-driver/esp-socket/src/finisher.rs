//! Finishers: programs that deliver what a process sent last, after its end, as the kernel does for TCP.
//!
//! A finisher is a process of the same user, so what waits counts as that user's memory, takes one of that user's blocks of ports, and
//! harms nobody else; it ends when all is delivered or the peers are given up. The authority carries no bytes.

use std::os::fd::AsRawFd;

use esp::Handover;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::{
    counters::{self, Count},
    host::{Host, now},
    keeper::{self, Given},
    links,
};

/// The argument by which the program [`keeper::PROGRAM_VARIABLE`] becomes a finisher; the interface follows.
pub const ARGUMENT: &str = "--finish-connections";
/// So long a finisher delivers at most, in nanoseconds: a little longer than the engine keeps a connection that was closed.
const DELIVERY_LIMIT_NS: u64 = 70_000_000_000;
/// So long a finisher waits for peers to learn the connections' ports before it says that it is ready, in nanoseconds, and once more for
/// the peer that it waits for then.
const SETTLE_LIMIT_NS: u64 = 1_000_000_000;

/// Puts connections behind each other, each behind its length.
fn pack(connections: &[Handover]) -> Vec<u8> {
    let mut packed = Vec::new();
    for connection in connections {
        let bytes = connection.to_bytes();
        packed.extend((bytes.len() as u64).to_be_bytes());
        packed.extend(bytes);
    }
    packed
}

/// Takes the first of packed connections; `None` at the end, and for what is none.
fn unpack<'a>(packed: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = packed.split_first_chunk()?;
    let len = usize::try_from(u64::from_be_bytes(*len)).ok()?;
    let (connection, rest) = rest.split_at_checked(len)?;
    *packed = rest;
    Some(connection)
}

/// Leaves what was not acknowledged so far of closed connections to a finisher. If there can be none, they stay this process's.
pub(crate) fn leave_to_one(host: &Host) {
    let connections = host.run(|state, now| state.engine.detach_undelivered(now));
    if connections.is_empty() {
        return;
    }
    // A finisher has no pair; an empty file fills the place.
    let given = memfd_create("esp-none", MemfdFlags::CLOEXEC)
        .map_err(std::io::Error::from)
        .and_then(|none| keeper::start(ARGUMENT, host, none.as_raw_fd()))
        .map(|starting| starting.give(&pack(&connections)));
    match given {
        Ok(Ok(())) => {}
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::TimedOut => {}
        Ok(Err(_)) | Err(_) => {
            connections.iter().for_each(|one| take_up(host, &one.to_bytes()));
            return;
        }
    }
    connections.iter().for_each(|_| counters::count(Count::Finishes));
}

fn take_up(host: &Host, connection: &[u8]) {
    if let Some(id) = host.attach(connection) {
        host.run(|state, now| state.close(id, false, now));
    }
}

/// Is a finisher: takes connections up at an interface, and delivers what was sent on them.
///
/// # Errors
/// When the descriptors are not those of a finisher, or there is no authority.
pub fn run(interface: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut given = Given::take();
    let link = links::link(interface).ok_or("no authority speaks ESP on the interface")?;
    let host = link.host()?;
    let handover = given.receive(&host)?;
    let mut packed = &handover[..];
    let mut ids = Vec::new();
    while let Some(connection) = unpack(&mut packed) {
        ids.extend(host.attach(connection));
    }
    // Peers that do not answer now are told in the course of time.
    let begin = now();
    for id in &ids {
        if now().nanos_since(begin) < SETTLE_LIMIT_NS {
            host.await_settled(*id);
        }
    }
    host.run(|state, now| ids.iter().for_each(|id| state.close(*id, false, now)));
    given.confirm()?;
    drop(given);
    host.deliver(now().plus_nanos(DELIVERY_LIMIT_NS));
    Ok(())
}
