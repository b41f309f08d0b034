//! MXoE, the message-passing protocol of MX and Open-MX over Ethernet: the wire format.
//!
//! [`wire`] turns frames into checked values and back. There is no I/O, no clock, no allocation and no connection state
//! here: sequence numbers, acknowledgements and retransmission are decided by whoever uses these values.
#![no_std]
#![forbid(unsafe_code)]

pub mod wire;
