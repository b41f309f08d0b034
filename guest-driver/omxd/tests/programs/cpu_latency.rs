//! Idle processors wake up in time while a program may be waiting.

use std::{fs, os::unix::ffi::OsStrExt, path::Path};

use weft_guest_driver_testkit::Veth;

use crate::{
    authority::Omxd,
    rig::{in_own_world, open, wait_until},
};

const DEVICE: &str = "/dev/cpu_dma_latency";
/// Before a program: its `/dev` is empty but for what the words that follow put there.
const OWN_DEV: [&str; 4] = ["unshare", "--mount", "sh", "-c"];

fn has_open(pid: u32, path: &str) -> bool {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    fds.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok())
        .any(|target| target.as_os_str().as_bytes() == path.as_bytes())
}

#[test]
fn processors_are_kept_from_deep_idle_states_while_endpoints_are_open_and_only_if_asked_for() {
    in_own_world(
        "cpu_latency::processors_are_kept_from_deep_idle_states_while_endpoints_are_open_and_only_if_asked_for",
        || {
            let veth = Veth::new(1500);
            let with_device = "mount -t tmpfs dev /dev && : > /dev/cpu_dma_latency && exec \"$0\" \"$@\"";
            for (options, limit) in [
                (&[][..], None),
                (&["--cpu-latency-us-max", "0"], Some(0_i32)),
                (&["--cpu-latency-us-max", "20"], Some(20)),
            ] {
                let before = [&OWN_DEV[..], &[with_device]].concat();
                let omxd = Omxd::start(&before, &veth.b, options);
                let pid = omxd.child.id();
                let device = Path::new(&format!("/proc/{pid}/root")).join(&DEVICE[1..]);
                for _ in 0..2 {
                    assert!(!has_open(pid, DEVICE), "no endpoint is open");
                    let first = open(&veth.b, None).unwrap();
                    let second = open(&veth.b, None).unwrap();
                    assert_eq!(has_open(pid, DEVICE), limit.is_some(), "{options:?}");
                    let written = fs::read(&device).unwrap();
                    assert_eq!(written, limit.map_or(vec![], |limit| limit.to_ne_bytes().to_vec()));
                    drop(first);
                    assert_eq!(has_open(pid, DEVICE), limit.is_some(), "one is open still");
                    drop(second);
                    wait_until("no limit once no endpoint is open", || !has_open(pid, DEVICE));
                    // An authority that is killed before is followed by one that has its endpoints.
                    wait_until("no open endpoint", || omxd.status().0.endpoints.is_empty());
                }
            }
        },
    );
}

#[test]
fn an_authority_that_may_not_limit_idle_states_serves_all_the_same() {
    in_own_world(
        "cpu_latency::an_authority_that_may_not_limit_idle_states_serves_all_the_same",
        || {
            let veth = Veth::new(1500);
            let without = [&OWN_DEV[..], &["mount -t tmpfs dev /dev && exec \"$0\" \"$@\""]].concat();
            let omxd = Omxd::start(&without, &veth.b, &["--cpu-latency-us-max", "0"]);
            for _ in 0..2 {
                open(&veth.b, None).unwrap();
            }
            assert!(!has_open(omxd.child.id(), DEVICE));
        },
    );
}
