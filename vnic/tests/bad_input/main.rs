//! The "Bad input" against the real `vnicd`: hostile rings, odd session messages, guests that
//! stall, the daemon killed under traffic; and, as the other side, unusual guests that break no rule. One program,
//! since all share the daemon and the neighbours.
//!
//! More than 10⁵ cases are generated and judged one by one; what a case is, the header of each module says.

mod attacker;
mod attacks;
mod behind_iommu;
mod captured;
mod daemon;
mod event_files;
mod guests_that_stall;
mod judged_rings;
mod killed;
mod model;
mod moved_guests;
mod resumed_rings;
mod returning;
mod ring_rules;
mod session_attacks;
mod session_messages;
mod session_rules;
mod sound_guests;
