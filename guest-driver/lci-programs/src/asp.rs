//! All shortest paths (R-BV4): Floyd and Warshall's algorithm on a matrix whose rows are spread over the nodes. In step *k* the owner of
//! row *k* broadcasts it: a pipeline of broadcasts from one node after the other.

use crate::{
    messages::{Forwarding, Messages},
    node::{Node, ProgramError},
    numbers::{Numbers, check_sum},
};

const ROW: u16 = 1;

/// How a run is done.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Rows and columns; the paper's rows have 4 KiB, which are 1,024 columns.
    pub size: usize,
    /// How broadcasts are forwarded.
    pub forwarding: Forwarding,
    /// Poll after the work on each own row, so that others' broadcasts are forwarded meanwhile.
    pub polls: bool,
}

/// The weight of the edge between two vertices, the same at all nodes; about a third of all edges are missing.
fn row(size: usize, vertex: usize) -> Vec<u32> {
    /// Larger than any path, and small enough to be added to itself.
    const MISSING: u32 = 1 << 30;
    let mut numbers = Numbers::new(vertex as u64 + 1);
    let mut row: Vec<_> = (0..size)
        .map(|_| match numbers.next_u64() >> 32 {
            number if number % 3 == 0 => MISSING,
            number => (number % 1_000) as u32 + 1,
        })
        .collect();
    row[vertex] = 0;
    row
}

fn relax(row: &mut [u32], through: &[u32], k: usize) {
    let first = row[k];
    for (to, rest) in row.iter_mut().zip(through) {
        *to = (*to).min(first + rest);
    }
}

/// Which rows one node has.
fn share(size: usize, nodes: usize, node: usize) -> std::ops::Range<usize> {
    size * node / nodes..size * (node + 1) / nodes
}

/// The result of a sequential run.
pub fn sequential(size: usize) -> Vec<Vec<u32>> {
    let mut rows: Vec<_> = (0..size).map(|vertex| row(size, vertex)).collect();
    for k in 0..size {
        let through = rows[k].clone();
        rows.iter_mut().for_each(|row| relax(row, &through, k));
    }
    rows
}

/// Computes this node's part and returns the time that it took in nanoseconds. `expected` is compared with it, if there is one.
///
/// # Errors
/// [`ProgramError`] of the node, or if the result is another one.
pub async fn run<N: Node>(node: &N, settings: &Settings, expected: Option<&[Vec<u32>]>) -> Result<u64, ProgramError> {
    let Settings {
        size,
        forwarding,
        polls,
    } = *settings;
    let messages = Messages::new(node, forwarding);
    let own = share(size, node.size(), node.me());
    let mut rows: Vec<_> = own.clone().map(|vertex| row(size, vertex)).collect();
    messages.barrier().await?;
    let start_ns = node.now_ns();
    let mut owner = 0;
    for k in 0..size {
        while !share(size, node.size(), owner).contains(&k) {
            owner += 1;
        }
        let through: Vec<u32> = if owner == node.me() {
            let through = rows[k - own.start].clone();
            let bytes: Vec<_> = through.iter().flat_map(|weight| weight.to_le_bytes()).collect();
            messages.broadcast(ROW, &bytes).await?;
            through
        } else {
            let bytes = messages.receive(owner, ROW).await?;
            bytes
                .as_chunks()
                .0
                .iter()
                .map(|word| u32::from_le_bytes(*word))
                .collect()
        };
        for row in &mut rows {
            relax(row, &through, k);
            node.compute(size as u64).await;
            if polls {
                messages.progress().await?;
            }
        }
    }
    messages.barrier().await?;
    let took_ns = node.now_ns() - start_ns;
    let Some(expected) = expected else { return Ok(took_ns) };
    let sum = |rows: &[Vec<u32>]| check_sum(rows.iter().flatten().flat_map(|weight| weight.to_le_bytes()));
    if rows != expected[own.clone()] {
        return Err(ProgramError::Wrong {
            node: node.me(),
            what: "the check sum of the shortest paths".to_owned(),
            found: format!("{:#x}", sum(&rows)),
            expected: format!("{:#x}", sum(&expected[own])),
        });
    }
    Ok(took_ns)
}
