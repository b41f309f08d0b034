//! Multicast in the card (M-BV5) against what is promised: every member exactly once, in order, without deadlock.

mod deadlock;
mod delivery;
mod fuzz;
mod giving_up;
mod links;
mod net;
mod reliable;
mod rules;
