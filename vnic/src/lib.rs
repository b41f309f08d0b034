//! (in work)
pub mod report;
pub mod session;
#[cfg(feature = "testing")]
pub mod testing;
