//! Kernels over shared regions (R-BV5, R-BV6), each compared with a sequential run.

pub mod barnes_hut;
pub mod fft;
pub mod radix;

use crate::node::ProgramError;

/// How the kernels run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whether nodes let themselves be interrupted.
    pub interrupts: bool,
    /// How long nothing may happen before the kernel is given up.
    pub patience_ns: u64,
}

/// The part of `count` things that node `node` of `nodes` has.
fn share(count: usize, nodes: usize, node: usize) -> std::ops::Range<usize> {
    count * node / nodes..count * (node + 1) / nodes
}

/// Compares a result by its bytes.
fn check(node: usize, what: &str, found: &[u8], expected: &[u8]) -> Result<(), ProgramError> {
    if found == expected {
        return Ok(());
    }
    let sum = |bytes: &[u8]| format!("{:#x}", crate::numbers::check_sum(bytes.iter().copied()));
    Err(ProgramError::Wrong {
        node,
        what: format!("the check sum of {what}"),
        found: sum(found),
        expected: sum(expected),
    })
}

/// The counter of spin barriers: a region that no data is in.
const COUNTER: u32 = u32::MAX;
