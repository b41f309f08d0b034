//! Other programs on the cores: whether the figures of a comparison can be trusted.

use super::{record::Record, stats};

/// Number of cores used by other programs above which figures are doubtful.
const CORES_MAX: f64 = 0.1;

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
}
