//! (in work)
pub mod report;
#[cfg(feature = "testing")]
pub mod testing;
