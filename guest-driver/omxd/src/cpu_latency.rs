//! How long idle processors may take to wake up: the kernel's promise to whoever holds `/dev/cpu_dma_latency` open.
//!
//! A thread that waits for a message asleep returns no sooner than its processor wakes up. From a deep idle state that takes a
//! hundred microseconds and more; in a virtual machine each halt is left to the host, which may be away for as long. Power saving
//! off is part of the paper's tuned mode (papers.md M-OM10).

use std::{
    fs::{File, OpenOptions},
    io::Write,
};

const DEVICE: &str = "/dev/cpu_dma_latency";

/// A limit that holds while endpoints are open.
#[derive(Debug)]
pub(crate) struct CpuLatency {
    /// Microseconds; without it processors idle as they do.
    us_max: Option<u32>,
    /// The kernel forgets the limit when this is closed.
    held: Option<File>,
}

impl CpuLatency {
    pub(crate) const fn new(us_max: Option<u32>) -> Self {
        Self { us_max, held: None }
    }

    /// The limit, unless it turned out that this process may set none.
    pub(crate) const fn us_max(&self) -> Option<u32> {
        self.us_max
    }

    /// Endpoints are open from now on, or none is.
    pub(crate) fn set_needed(&mut self, needed: bool) {
        let Some(us_max) = self.us_max else { return };
        if !needed {
            self.held = None;
        } else if self.held.is_none() {
            match hold(us_max) {
                Ok(held) => {
                    tracing::info!("idle processors wake up within {us_max} µs as long as endpoints are open");
                    self.held = Some(held);
                }
                Err(error) => {
                    tracing::warn!("{DEVICE}: {error}; idle processors take as long to wake up as they do");
                    // Nothing will be different next time.
                    self.us_max = None;
                }
            }
        }
    }
}

fn hold(us_max: u32) -> std::io::Result<File> {
    let mut device = OpenOptions::new().write(true).open(DEVICE)?;
    let us_max = i32::try_from(us_max).unwrap_or(i32::MAX);
    device.write_all(&us_max.to_ne_bytes())?;
    Ok(device)
}
