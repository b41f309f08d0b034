//! The examples of this crate do what they say.

#[path = "../examples/ping_pong.rs"]
mod ping_pong;

#[test]
fn messages_go_there_and_back_between_two_endpoints() {
    ping_pong::main().unwrap();
    assert!(!ping_pong::ping_pong(0, 3).unwrap().is_zero());
}
