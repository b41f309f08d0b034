//! The examples of this crate do what they say.

#[path = "../examples/two_engines.rs"]
mod two_engines;

#[test]
fn two_engines_exchange_messages_of_every_class() {
    two_engines::main();
    for length in [0_usize, 32, 128, 1000, 32_768, 200_000] {
        let message: Vec<u8> = (0..length).map(|i| (i % 253) as u8).collect();
        let exchanged = two_engines::exchange(&message);
        assert!(exchanged.received == message, "{length} bytes");
        assert!(
            exchanged.frames_out >= 2 && exchanged.frames_back >= 1,
            "{length} bytes"
        );
    }
}
