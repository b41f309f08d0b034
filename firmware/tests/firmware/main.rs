//! The firmware against what the papers say.

mod control;
mod control_fuzz;
mod guard;
mod mechanisms;
mod misorder;
mod neutrality;
mod reference;
mod sequences;
mod settings;
mod steering;
mod support;
