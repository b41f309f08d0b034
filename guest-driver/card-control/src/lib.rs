//! The conversation with a Weft card over the network interface that it is behind, in band (`firmware/CONTROL.md`).

mod card;

pub use card::{CONTROL_RING_LEN, Card, CardError};
