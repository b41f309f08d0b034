//! Holds the dissector against our own decoders, with tshark as the judge in between.

mod common;
mod control;
mod expected;
mod multicast;
mod mxoe;
