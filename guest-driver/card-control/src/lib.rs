//! The conversation with a Weft card over the network interface that it is behind, in band (`docs/spec/card-control.md`).

mod card;

pub use card::{CONTROL_RING_LEN, Card, CardError};
