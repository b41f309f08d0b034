//! The trait over a live node.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

use lci_port::{Event, GroupId, Lci, LciError, PACKET_LEN_MAX, RemovalReason};

use crate::node::{Arrival, Node, Outlet, PATIENCE_NS, ProgramError, Target, Upcall};

/// A live node.
pub struct Live {
    lci: Lci,
    patience_ns: u64,
}

impl Live {
    /// The trait over `lci`.
    pub fn new(lci: Lci) -> Self {
        Self {
            lci,
            patience_ns: PATIENCE_NS,
        }
    }

    /// Sets another limit on waiting for what must happen.
    pub fn with_patience(self, patience_ns: u64) -> Self {
        Self { patience_ns, ..self }
    }

    /// The node below.
    pub fn lci(&self) -> &Lci {
        &self.lci
    }
}

/// Runs a program to its end. Its future is always ready: a live node waits by polling.
pub fn run<T>(program: impl Future<Output = T>) -> T {
    let mut program = pin!(program);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = program.as_mut().poll(&mut context) {
            return value;
        }
    }
}

struct LiveOutlet<'a>(&'a Lci);

impl Outlet for LiveOutlet<'_> {
    fn send(&self, target: Target, head: &[u8], body: &[u8]) {
        // Within an upcall, this moves frames until a packet is free, and delivers none.
        let mut packet = self.0.allocate();
        packet[..head.len()].copy_from_slice(head);
        packet[head.len()..head.len() + body.len()].copy_from_slice(body);
        // Where the other is gone, the program is told by its event.
        let _ = launch(self.0, target, packet, head.len() + body.len());
    }
}

fn launch(lci: &Lci, target: Target, packet: lci_port::SendPacket, size: usize) -> Result<(), LciError> {
    match target {
        Target::Node(node) => lci.unicast(node, packet, size),
        Target::Group(group) => lci.multicast(group, packet, size),
    }
}

impl Node for Live {
    fn me(&self) -> usize {
        self.lci.me()
    }

    fn size(&self) -> usize {
        self.lci.size()
    }

    fn patience_ns(&self) -> u64 {
        self.patience_ns
    }

    fn now_ns(&self) -> u64 {
        lci_port::now_ns()
    }

    fn set_upcall(&self, mut upcall: Upcall) {
        self.lci.set_upcall(move |lci, packet| {
            let arrival = Arrival {
                source: packet.source(),
                group: packet.group(),
                bytes: &packet,
            };
            upcall(&LiveOutlet(lci), arrival);
        });
    }

    fn try_send(&self, target: Target, head: &[u8], body: &[u8]) -> Result<bool, ProgramError> {
        let size = head.len() + body.len();
        if size > PACKET_LEN_MAX {
            let sentence = format!("a packet has at most {PACKET_LEN_MAX} bytes, not {size}");
            return Err(ProgramError::Settings(sentence));
        }
        let Some(mut packet) = self.lci.try_allocate() else {
            return Ok(false);
        };
        packet[..head.len()].copy_from_slice(head);
        packet[head.len()..size].copy_from_slice(body);
        launch(&self.lci, target, packet, size)?;
        Ok(true)
    }

    fn poll(&self) -> Result<usize, ProgramError> {
        let count = self.lci.poll();
        if count > 0 {
            return Ok(count);
        }
        if let Some(error) = self.lci.take_failure() {
            return Err(error.into());
        }
        match self.lci.next_event() {
            Some(Event::Removed { node, reason }) if reason != RemovalReason::Left => Err(ProgramError::Gone { node }),
            Some(Event::Excluded { by }) => Err(ProgramError::Excluded { by }),
            _ => Ok(0),
        }
    }

    async fn idle(&self) {
        self.lci.idle();
    }

    async fn compute(&self, _ns: u64) {}

    fn set_interrupts(&self, enabled: bool) -> Result<(), ProgramError> {
        if enabled {
            self.lci.enable_interrupts()?;
        } else {
            self.lci.disable_interrupts();
        }
        Ok(())
    }

    async fn create_group(&self, members: &[usize]) -> Result<GroupId, ProgramError> {
        Ok(self.lci.create_group(members)?)
    }
}
