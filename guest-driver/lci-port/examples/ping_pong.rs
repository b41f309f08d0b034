//! Half the round trip of short packets between two nodes: `ping_pong INTERFACE ROUNDS SIZE MAC MAC`, at both nodes.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use ether::MacAddr;
use lci_port::{Lci, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [interface, rounds, size, nodes @ ..] = &arguments[..] else {
        return Err("ping_pong INTERFACE ROUNDS SIZE MAC MAC".into());
    };
    let (rounds, size): (u64, usize) = (rounds.parse()?, size.parse()?);
    let nodes = nodes
        .iter()
        .map(|mac| mac.parse())
        .collect::<Result<Vec<MacAddr>, _>>()?;
    let node = Lci::open(interface, &nodes, &Options::default())?;
    let got = Arc::new(AtomicU64::new(0));
    let count = got.clone();
    node.set_upcall(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let other = 1 - node.me();
    let mut samples = Vec::new();
    for round in 0..rounds {
        let start = Instant::now();
        if node.me() == 0 {
            node.unicast(other, node.allocate(), size)?;
        }
        node.wait_until(|_| (got.load(Ordering::Relaxed) > round).then_some(()));
        if node.me() == 1 {
            node.unicast(other, node.allocate(), size)?;
        }
        samples.push(start.elapsed().as_nanos() as u64 / 2);
    }
    samples.sort_unstable();
    if node.me() == 0 {
        let at = |per_cent: usize| samples[(samples.len() - 1) * per_cent / 100] as f64 / 1_000.0;
        println!(
            "{size} bytes: half round trip {:.2} µs (median), {:.2} (10 %), {:.2} (90 %)",
            at(50),
            at(10),
            at(90)
        );
    }
    node.finalize();
    Ok(())
}
