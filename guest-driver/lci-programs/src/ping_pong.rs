//! Half the round trip of a packet between nodes 0 and 1.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::node::{self, Node, ProgramError, Target};

/// Sends `rounds` packets of `size` bytes back and forth; returns half the round trips in nanoseconds, in order of length. The other
/// nodes do nothing.
///
/// # Errors
/// [`ProgramError`] of the node, or if a packet has other bytes than were sent.
pub async fn run<N: Node>(node: &N, rounds: u64, size: usize) -> Result<Vec<u64>, ProgramError> {
    let got = Arc::new(AtomicU64::new(0));
    let wrong = Arc::new(AtomicU64::new(0));
    let (count, bad) = (got.clone(), wrong.clone());
    node.set_upcall(Box::new(move |_, arrival| {
        let round = count.fetch_add(1, Ordering::Relaxed);
        let is_right = arrival.bytes.len() == size && arrival.bytes.iter().all(|byte| *byte == round as u8);
        bad.fetch_add(u64::from(!is_right), Ordering::Relaxed);
    }));
    let mut halves_ns = Vec::new();
    if node.me() > 1 || node.size() < 2 {
        return Ok(halves_ns);
    }
    let other = Target::Node(1 - node.me());
    for round in 0..rounds {
        let body = vec![round as u8; size];
        let start_ns = node.now_ns();
        if node.me() == 0 {
            node::send(node, other, &[], &body).await?;
        }
        let came = || (got.load(Ordering::Relaxed) > round).then_some(());
        node::wait_until(node, "the other's packet is to come", came).await?;
        if node.me() == 1 {
            node::send(node, other, &[], &body).await?;
        }
        halves_ns.push((node.now_ns() - start_ns) / 2);
    }
    let wrong = wrong.load(Ordering::Relaxed);
    if wrong > 0 {
        return Err(ProgramError::Wrong {
            node: node.me(),
            what: "the count of packets with other bytes".to_owned(),
            found: wrong.to_string(),
            expected: "0".to_owned(),
        });
    }
    halves_ns.sort_unstable();
    Ok(halves_ns)
}
