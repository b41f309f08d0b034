//! The connection to each partner: agreeing on a conversation ([`handshake`], [`conversation`]), messages out ([`transmit`]) and in
//! ([`receive`]), and their acknowledgements ([`acknowledge`]).
//!
//! None of these parts knows another one: [`Engine`](super::Engine) takes what one returns to the next.

pub(super) mod acknowledge;
pub(super) mod conversation;
pub(super) mod handshake;
pub(super) mod message;
pub(super) mod patience;
pub(super) mod receive;
pub(super) mod rtt;
pub(super) mod transmit;
