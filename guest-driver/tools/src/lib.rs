//! Command-line tools that run in a guest or on a host: `nicctl` talks to the guest's own card; `omx_info`, `omx_perf`
//! and the small tools of `board` show, time, test and name the parts of Open-MX.
//!
//! The bodies of the tools are in this library, so that tests reach them; the programs in `bin/` are one line each. The
//! tools know no protocol: messages are the business of `omx`, control frames of `firmware::control`.

pub mod board;
pub mod copies;
pub mod esp_ping;
pub mod esp_ss;
pub mod info;
pub mod nicctl;
pub mod perf;
mod run;
mod stop;

pub use run::{run, run_omx, run_ping, say};
pub use stop::Stop;
