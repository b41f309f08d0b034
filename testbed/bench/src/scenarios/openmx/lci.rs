//! LCI-host: packets over an engine that acknowledges them and sends lost ones again.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::ensure;
use ether::MacAddr;
use lci_port::{Lci, Options};

use super::{turns::End, work::Trip};

/// One end of packets there and back.
struct RoundTrips {
    node: Lci,
    arrived: Arc<AtomicU64>,
    trips: u64,
    length: usize,
}

/// Opens an end, and waits for the other one. `nodes` are the end that measures and the one that answers.
pub fn open_end(interface: &str, nodes: [MacAddr; 2], trip: Trip) -> anyhow::Result<Box<dyn End>> {
    let node = Lci::open(interface, &nodes, &Options::default())?;
    let arrived = Arc::new(AtomicU64::new(0));
    let count = arrived.clone();
    node.set_upcall(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    Ok(Box::new(RoundTrips {
        node,
        arrived,
        trips: 0,
        length: trip.length,
    }))
}

impl RoundTrips {
    fn send(&self) -> anyhow::Result<()> {
        Ok(self
            .node
            .unicast(1 - self.node.me(), self.node.allocate(), self.length)?)
    }

    fn receive(&self) {
        let has_come = || self.arrived.load(Ordering::Relaxed) >= self.trips;
        self.node.wait_until(|_| has_come().then_some(()));
    }
}

impl End for RoundTrips {
    fn trip(&mut self) -> anyhow::Result<()> {
        self.trips += 1;
        if self.node.me() == 0 {
            self.send()?;
            self.receive();
            return Ok(());
        }
        self.receive();
        self.send()
    }

    fn finish(self: Box<Self>) -> anyhow::Result<()> {
        let lost = self.node.finalize();
        ensure!(lost.is_empty(), "the other node did not end in order");
        Ok(())
    }
}
