//! The firmware against what the papers say.

mod control;
mod guard;
mod mechanisms;
mod neutrality;
mod reference;
mod sequences;
mod support;
