//! A node that computes without polling while another broadcasts (M-BV5): who waits for it, and what is lost.

use crate::{
    broadcast::message,
    messages::{Forwarding, Messages},
    node::{Node, ProgramError},
};

const DATA: u16 = 1;
const DONE: u16 = 2;
/// Bytes of a broadcast: one packet.
const LENGTH: usize = 1000;
/// The node that computes: a child of node 0 in every tree, with children of its own where there are enough nodes.
const ABSENT: usize = 1;

/// What a run has shown; at node 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Broadcasts that some node did not get, or got with other bytes or out of order.
    pub lost: u64,
    /// Broadcasts that each of the other nodes had got when three quarters of the time were over, at least.
    pub received_meanwhile: u64,
    /// The longest time that node 0 waited for a packet to become free, in nanoseconds.
    pub waited_ns: u64,
}

/// Broadcasts `count` packets from node 0 while node 1 computes for `compute_ns` and does not poll.
///
/// # Errors
/// [`ProgramError`] of the node, or if nothing arrives for too long.
pub async fn run<N: Node>(
    node: &N,
    forwarding: Forwarding,
    count: u64,
    compute_ns: u64,
) -> Result<Outcome, ProgramError> {
    if node.size() < 3 {
        let what = "there is to be a node that sends, one that computes and one that receives meanwhile";
        return Err(ProgramError::Settings(what.to_owned()));
    }
    let messages = Messages::new(node, forwarding);
    messages.barrier().await?;
    let start_ns = node.now_ns();
    let mut outcome = Outcome::default();
    if node.me() == 0 {
        for number in 0..count {
            let before_ns = node.now_ns();
            messages.broadcast(DATA, &message(number, LENGTH)).await?;
            outcome.waited_ns = outcome.waited_ns.max(node.now_ns() - before_ns);
        }
        outcome.received_meanwhile = u64::MAX;
        for other in 1..node.size() {
            let said = messages.receive(other, DONE).await?;
            let Some(&[lost, meanwhile]) = said.as_chunks::<8>().0.first_chunk() else {
                return Err(ProgramError::Settings("a node sent no counts".to_owned()));
            };
            outcome.lost = outcome.lost.max(u64::from_le_bytes(lost));
            if other != ABSENT {
                outcome.received_meanwhile = outcome.received_meanwhile.min(u64::from_le_bytes(meanwhile));
            }
        }
        messages.barrier().await?;
        return Ok(outcome);
    }
    if node.me() == ABSENT {
        compute(node, start_ns + compute_ns).await;
    }
    let deadline_ns = start_ns + compute_ns / 4 * 3;
    let (mut lost, mut meanwhile) = (0u64, 0u64);
    for number in 0..count {
        let is_right = *messages.receive(0, DATA).await? == message(number, LENGTH);
        lost += u64::from(!is_right);
        meanwhile += u64::from(node.now_ns() < deadline_ns);
    }
    let said = [lost, meanwhile].map(u64::to_le_bytes);
    messages.send(0, DONE, said.as_flattened()).await?;
    messages.barrier().await?;
    Ok(outcome)
}

/// Has the processor busy until `end_ns`.
async fn compute<N: Node>(node: &N, end_ns: u64) {
    loop {
        let now_ns = node.now_ns();
        if now_ns >= end_ns {
            return;
        }
        node.compute(end_ns - now_ns).await;
        std::hint::spin_loop();
    }
}
