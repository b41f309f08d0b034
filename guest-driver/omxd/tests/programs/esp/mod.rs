//! ESP: whole stages between a host that connects and an authority with programs, over veth. The host's engine and the programs' are the
//! tests' own.

mod blocks;
mod claims;
mod endings;
mod floods;
mod listeners;
mod pings;
mod rig;
