//! What programs need to talk to the supervisor of a running lab: the requests and answers on `weft.sock`, and a client
//! for them. The supervisor itself is in [`crate::supervisor`].

pub mod client;
pub mod protocol;
