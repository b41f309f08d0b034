//! Limits how long idle processors may take to wake up: the kernel keeps such a limit while `/dev/cpu_dma_latency` is
//! open.
//!
//! A thread that waits for a message asleep returns no sooner than its processor wakes up. From a deep idle state that
//! takes a hundred microseconds and more; in a virtual machine each halt is left to the host, which may be away for as
//! long. Power saving off is part of the paper's tuned mode (papers.md M-OM10).

use std::{
    fs::{File, OpenOptions},
    io::Write,
};

const DEVICE: &str = "/dev/cpu_dma_latency";

/// The limit, which is in force while endpoints are open.
#[derive(Debug)]
pub(crate) struct CpuLatency {
    /// The limit in microseconds; `None` leaves idle processors as they are.
    us_max: Option<u32>,
    /// The open device: the kernel drops the limit when it is closed.
    device: Option<File>,
}

impl CpuLatency {
    pub(crate) const fn new(us_max: Option<u32>) -> Self {
        Self { us_max, device: None }
    }

    /// Returns the limit, unless it turned out that this process may set none.
    pub(crate) const fn us_max(&self) -> Option<u32> {
        self.us_max
    }

    /// Says whether endpoints are open, so that the limit is needed.
    pub(crate) fn set_needed(&mut self, needed: bool) {
        let Some(us_max) = self.us_max else { return };
        if !needed {
            self.device = None;
        } else if self.device.is_none() {
            match request(us_max) {
                Ok(device) => {
                    tracing::info!("idle processors wake up within {us_max} µs as long as endpoints are open");
                    self.device = Some(device);
                }
                Err(error) => {
                    tracing::warn!("{DEVICE}: {error}; the time that idle processors take to wake up is not limited");
                    // The next attempt would fail, too.
                    self.us_max = None;
                }
            }
        }
    }
}

fn request(us_max: u32) -> std::io::Result<File> {
    let mut device = OpenOptions::new().write(true).open(DEVICE)?;
    let us_max = i32::try_from(us_max).unwrap_or(i32::MAX);
    device.write_all(&us_max.to_ne_bytes())?;
    Ok(device)
}
