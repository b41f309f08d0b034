//! Tests of the choice of an accelerator on this machine, whatever it has.

use std::time::Instant;

use testbed::accel::{self, Accel, AccelChoice};
use testbed::image::Cache;
use testbed::qemu::Qemu;

#[test]
fn kvm_is_taken_only_after_a_guest_booted_and_the_verdict_is_kept() {
    let (qemu, image) = (Qemu::discover().unwrap(), crate::support::image());
    let cache = Cache::open_default().unwrap();
    let first = accel::resolve(AccelChoice::Auto, &qemu, &image, &cache).unwrap();
    println!("{}: {}", first.accel, first.reason);
    let begin = Instant::now();
    assert_eq!(accel::resolve(AccelChoice::Auto, &qemu, &image, &cache).unwrap(), first);
    assert!(begin.elapsed().as_secs() < 5, "a kept verdict needs no guest");
    assert_eq!(
        accel::resolve(AccelChoice::Tcg, &qemu, &image, &cache).unwrap().accel,
        Accel::Tcg
    );
}
