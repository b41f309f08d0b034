//! (in work)
pub mod report;
