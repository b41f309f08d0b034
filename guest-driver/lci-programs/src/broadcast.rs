//! Broadcasts (R-BV3): how long until the last receiver has one, and how many bytes per second a sender can broadcast.

use crate::{
    messages::{Forwarding, Messages},
    node::{Node, ProgramError},
    numbers::check_sum,
};

const DATA: u16 = 1;
const DONE: u16 = 2;

/// What node 0 measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// For each broadcast, nanoseconds from its beginning until the answers of all receivers were back, in order of length.
    pub answered_ns: Vec<u64>,
    /// Nanoseconds of all broadcasts one after the other, until the answers of all receivers were back.
    pub stream_ns: u64,
}

pub(crate) fn message(round: u64, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at as u64 ^ round.wrapping_mul(131)) as u8)
        .collect()
}

/// Broadcasts `rounds` messages of `length` bytes from node 0, each answered by all; then as many without waiting.
///
/// # Errors
/// [`ProgramError`] of the node, or if a message has other bytes than were sent.
pub async fn run<N: Node>(
    node: &N,
    forwarding: Forwarding,
    rounds: u64,
    length: usize,
) -> Result<Outcome, ProgramError> {
    let messages = Messages::new(node, forwarding);
    let mut outcome = Outcome::default();
    messages.barrier().await?;
    for round in 0..rounds {
        let sent = message(round, length);
        let start_ns = node.now_ns();
        if node.me() == 0 {
            messages.broadcast(DATA, &sent).await?;
            for other in 1..node.size() {
                messages.receive(other, DONE).await?;
            }
            outcome.answered_ns.push(node.now_ns() - start_ns);
        } else {
            check(node, &sent, &messages.receive(0, DATA).await?)?;
            messages.send(0, DONE, &[]).await?;
        }
    }
    messages.barrier().await?;
    let start_ns = node.now_ns();
    for round in 0..rounds {
        let sent = message(round, length);
        if node.me() == 0 {
            messages.broadcast(DATA, &sent).await?;
        } else {
            check(node, &sent, &messages.receive(0, DATA).await?)?;
        }
    }
    messages.barrier().await?;
    outcome.stream_ns = node.now_ns() - start_ns;
    outcome.answered_ns.sort_unstable();
    Ok(outcome)
}

fn check<N: Node>(node: &N, sent: &[u8], got: &[u8]) -> Result<(), ProgramError> {
    if sent == got {
        return Ok(());
    }
    Err(ProgramError::Wrong {
        node: node.me(),
        what: "the check sum of a broadcast".to_owned(),
        found: format!("{:#x}", check_sum(got.iter().copied())),
        expected: format!("{:#x}", check_sum(sent.iter().copied())),
    })
}
