//! Other programs on the cores: whether the figures of a comparison can be trusted.

use anyhow::Result;

use super::{
    processor_time::{machine_ns, process_ns},
    record::Record,
    stats,
};
use crate::supervisor_client::client::Client;

/// Number of cores used by other programs above which figures are doubtful.
const CORES_MAX: f64 = 0.1;

/// Processor times since some moment, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    machine_ns: u64,
    lab_ns: u64,
}

impl Times {
    /// Returns the times of the machine and of a lab's processes until now.
    ///
    /// # Errors
    /// Fails when the lab does not answer, or a process of it has ended.
    pub fn of_lab(client: &Client) -> Result<Self> {
        let status = client.status()?;
        let guests = status.nodes.iter().filter_map(|node| node.pid);
        let mut lab_ns = 0;
        for process in guests.chain(status.vnicd_pid).chain([status.pid]) {
            lab_ns += process_ns(process)?;
        }
        Ok(Self {
            machine_ns: machine_ns()?,
            lab_ns,
        })
    }

    /// Returns the time that programs outside the lab used since `before`.
    #[must_use]
    pub const fn others_since(self, before: Self) -> u64 {
        let machine_ns = self.machine_ns.saturating_sub(before.machine_ns);
        machine_ns.saturating_sub(self.lab_ns.saturating_sub(before.lab_ns))
    }
}

/// Returns the median over all samples of the number of cores that other programs used.
#[must_use]
pub fn cores_of_others(record: &Record) -> f64 {
    stats::median(record.all().map(|sample| sample.disturbed)).unwrap_or_default()
}

/// Returns a line about other programs on the cores, if there were any.
#[must_use]
pub fn not_alone(cores_of_others: f64) -> String {
    if cores_of_others <= CORES_MAX {
        return String::new();
    }
    format!("NOT ALONE: other programs used {cores_of_others:.1} cores meanwhile; repeat on a quiet machine.\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_other_work_is_told_to_the_reader() {
        assert_eq!(not_alone(0.1), "");
        assert!(not_alone(0.26).contains("used 0.3 cores"));
    }

    #[test]
    fn what_the_lab_computes_is_not_the_work_of_others() {
        let times = |machine_ns, lab_ns| Times { machine_ns, lab_ns };
        assert_eq!(times(1_700, 600).others_since(times(1_000, 100)), 200);
        assert_eq!(times(1_010, 600).others_since(times(1_000, 100)), 0, "ticks are coarse");
    }
}
