//! Observers of the data plane: they see frames and settings, and change nothing about either.

pub mod capture;
pub mod watchers;
