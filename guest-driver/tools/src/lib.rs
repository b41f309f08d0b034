//! Command-line tools that run in a guest or on a host: `nicctl` talks to the own card, `omx_info`, `omx_perf` and the small
//! tools of `board` show, time, test and name what sends MX messages.
//!
//! What the tools do is here, so that tests reach it; the programs in `bin/` are one line each. No protocol knowledge
//! lives here: messages are `omx`, control frames `firmware::control`.

pub mod board;
pub mod info;
pub mod nicctl;
pub mod perf;
mod run;
mod stop;

pub use run::{run, run_omx, say};
pub use stop::Stop;
