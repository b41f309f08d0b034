//! The mistakes found in a lab file so far. All are collected, instead of stopping at the first.

use std::ops::Range;

use super::Problem;

/// A list of the mistakes found so far.
#[derive(Default)]
pub(super) struct Problems(pub(super) Vec<Problem>);

impl Problems {
    /// Notes a mistake; an equal one at an equal place (a default used many times) counts once.
    pub(super) fn add(&mut self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        let problem = Problem {
            span,
            message: message.into(),
            help: help.into(),
        };
        if !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }
}
