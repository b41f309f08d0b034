//! The "Bad input" against the real `vnicd`: hostile rings, odd session messages, guests that
//! stall, the daemon killed under traffic; and, as the other side, unusual guests that break no rule. One program,
//! since all share the daemon and the neighbours.

mod attacker;
mod attacks;
mod daemon;
mod event_files;
mod killed;
mod ring_rules;
mod session_messages;
mod sound_guests;
mod stalled;
