//! Engines in virtual time, over a network that loses, repeats and reorders.

mod basics;
mod names;
mod world;
