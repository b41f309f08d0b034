//! The authority of an interface: names, discovery, RAW frames, and refusals for endpoints that are not open.

mod names;
mod refusals;
mod rig;
