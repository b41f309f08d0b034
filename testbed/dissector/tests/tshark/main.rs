//! Tests that compare the dissector with the decoders of the workspace, through tshark.

mod common;
mod control;
mod copies;
mod esp;
mod expected;
mod lci;
mod multicast;
mod mxoe;
