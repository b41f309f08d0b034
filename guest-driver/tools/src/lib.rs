//! Command-line tools that run in a guest or on a host: `mxoe-gen` makes MXoE traffic, `nicctl` talks to the own card.
//!
//! What the tools do is here, so that tests reach it; the programs in `bin/` are one line each. No protocol knowledge
//! lives here: frames are `mxoe::wire`, control frames `firmware::control`.

pub mod generator;
pub mod nicctl;
mod run;
mod stop;

pub use run::run;
pub use stop::Stop;
