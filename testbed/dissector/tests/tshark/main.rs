//! Tests that compare the dissector with the decoders of the workspace, through tshark.

mod common;
mod control;
mod expected;
mod multicast;
mod mxoe;
