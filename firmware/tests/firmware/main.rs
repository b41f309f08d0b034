//! The firmware against what the papers say.

mod adaptive;
mod clock;
mod conformance;
mod control;
mod control_fuzz;
mod control_steering;
mod control_timed;
mod guard;
mod mechanisms;
mod misorder;
mod neutrality;
mod polled;
mod polled_late;
mod receive_path_conformance;
mod reception;
mod reference;
mod sequences;
mod settings;
mod steering;
mod support;
mod watchdog;
mod watchdog_reference;
