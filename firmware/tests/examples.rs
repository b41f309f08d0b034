//! The examples of this crate do what they say.

#[path = "../examples/strategy.rs"]
mod strategy;

#[test]
fn the_strategy_that_is_driven_by_hand_interrupts_for_large_packets_and_after_the_timeout() {
    strategy::main();
    let raised = strategy::drive(&[(1_000, 60), (20_000, 60), (30_000, 1500), (100_000, 60)]);
    assert_eq!(raised, [(30_000, "strategy", 3), (175_000, "timeout", 1)]);
    assert_eq!(strategy::drive(&[]), [], "an idle host is not interrupted");
}
