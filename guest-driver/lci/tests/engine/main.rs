//! The engine in virtual time: programs of several nodes over a network that loses, repeats, reorders and splits; single frames made
//! by hand are in `fuzz.rs` beside this folder.

mod acks;
mod card;
mod cards;
mod deaths;
mod flow;
mod groups;
mod liars;
mod node;
mod order;
mod world;
