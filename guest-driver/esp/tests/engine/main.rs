//! Engines in virtual time, over a network that loses, repeats and reorders.

mod basics;
mod blocks;
mod bulk;
mod faults;
mod liars;
mod limits;
mod loss;
mod moving;
mod names;
mod program;
mod world;
