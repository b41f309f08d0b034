//! Large messages: the side that announces one and answers pulls ([`sender`]), and the side that pulls it ([`receiver`]), with what is
//! known of the path between them ([`path`]).
//!
//! None of these parts knows another one, or the connection: [`Engine`](super::Engine) takes what one returns to the next.

pub(super) mod path;
pub(super) mod receiver;
pub(super) mod sender;
