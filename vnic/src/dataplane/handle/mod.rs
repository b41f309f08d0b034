//! The handle of the data plane: what the session, the control socket and the metrics ask of it.

pub mod card_settings;
pub mod drain;
pub mod fabric;
pub mod flight_recorder;
mod stats;
pub mod switch;
pub mod trunk;
pub mod watch;
