//! Programs as they are under `esp-run`, between two network namespaces.

mod cost;
mod crowds;
mod differential;
mod endings;
mod faults;
mod floods;
mod hosts;
mod links;
mod measured;
mod mpi;
mod mtu;
mod named;
mod real;
mod shown;
mod spawn;
mod started;
mod users;

use weft_guest_driver_testkit::in_private_network_as_root;

/// Runs a test between two hosts in a network of its own.
fn between_hosts(test: &str, body: impl FnOnce(hosts::Hosts)) {
    in_private_network_as_root(test, || body(hosts::Hosts::new(1500)));
}
