//! Loops between switches are refused.

use fabric::{LoopError, TrunkGraph};

#[test]
fn a_tree_is_taken_and_the_trunk_that_closes_a_loop_is_not() {
    let mut graph = TrunkGraph::new(5);
    assert_eq!(graph.join(0, 1), Ok(()));
    assert_eq!(graph.join(2, 3), Ok(()));
    assert_eq!(graph.join(1, 2), Ok(()));
    assert_eq!(graph.join(3, 0), Err(LoopError { a: 3, b: 0 }));
    assert_eq!(
        graph.join(1, 0),
        Err(LoopError { a: 1, b: 0 }),
        "two trunks side by side are a loop too"
    );
    assert_eq!(graph.join(4, 4), Err(LoopError { a: 4, b: 4 }));
    assert_eq!(graph.join(4, 3), Ok(()), "a refused trunk changed nothing");
}

#[test]
fn a_chain_of_a_thousand_switches_is_no_loop() {
    let mut graph = TrunkGraph::new(1000);
    for n in 1..1000 {
        graph.join(n - 1, n).unwrap();
    }
    assert!(graph.join(0, 999).is_err());
}

#[test]
fn switches_that_trunks_join_are_one_network_and_others_are_not() {
    let mut graph = TrunkGraph::new(5);
    graph.join(3, 1).unwrap();
    graph.join(1, 4).unwrap();
    let networks: Vec<_> = (0..5).map(|switch| graph.network_of(switch)).collect();
    assert_eq!(networks[1], networks[3]);
    assert_eq!(networks[1], networks[4]);
    assert_eq!((networks[0], networks[2]), (0, 2));
    assert!([1, 3, 4].contains(&networks[1]));
}
