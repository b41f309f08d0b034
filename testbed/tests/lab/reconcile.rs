//! Tests that a running lab is reconciled with its file: what changed is done, and nothing else is touched.

use crate::support::{World, eventually};

const BEFORE: &str = "\
name = \"grows\"
[defaults]
ipv6 = false
[[switch]]
name = \"s1\"
[[node]]
name = \"n1\"
nic = [{ switch = \"s1\" }]
[[node]]
name = \"n2\"
nic = [{ switch = \"s1\" }]
";

/// In this file `n1` is removed, `n2` stays on its switch, `n3` is added behind a trunk.
const AFTER: &str = "\
name = \"grows\"
[defaults]
ipv6 = false
[[switch]]
name = \"s1\"
[[switch]]
name = \"s2\"
[[trunk]]
between = [\"s1\", \"s2\"]
[[node]]
name = \"n3\"
nic = [{ switch = \"s2\" }]
[[node]]
name = \"n2\"
nic = [{ switch = \"s1\", link = { delay = \"1ms\" } }]
";

#[test]
fn a_running_lab_becomes_what_its_changed_file_says_and_the_rest_runs_on() {
    let world = World::new(None);
    world.up(BEFORE);
    let (address, boot) = (
        world.mac("n2"),
        world.guest("n2", "cat /proc/sys/kernel/random/boot_id"),
    );
    world.ok(&["link", "set", "n2", "--loss", "1%"]);

    world.file("lab.toml", AFTER);
    let plan = "- node n1\n+ switch s2\n+ trunk s1-s2\n+ node n3\n\
                ~ cable n2.eth0: link_from_guest.delay 0 → 1ms, link_from_guest.loss 1% → 0, \
                link_to_guest.delay 0 → 1ms, link_to_guest.loss 1% → 0\n";
    let said = format!("lab grows: changes of the running lab:\n{plan}");
    assert_eq!(world.ok(&["up", "--dry-run"]), said);
    assert_eq!(world.json(&["ps"])[0]["name"], "n1", "it was only said");

    assert_eq!(world.ok(&["up"]), said);
    let rows = world.json(&["ps"]);
    let names: Vec<_> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["n3", "n2"]);
    assert_eq!(
        (
            world.mac("n2"),
            world.guest("n2", "cat /proc/sys/kernel/random/boot_id")
        ),
        (address, boot)
    );
    // The ping goes by name, over the new trunk; the node that was there before has been told of the new one.
    world.ok(&["exec", "n2", "--", "ping", "-c", "1", "-W", "10", "n3"]);
    assert!(
        !world.guest("n2", "cat /etc/hosts").contains("n1"),
        "who has gone has no name"
    );
    let directions = world.json(&["link", "set", "n2"]);
    for (index, direction) in ["to-guest", "from-guest"].into_iter().enumerate() {
        let settings = &directions[index];
        assert_eq!(
            (&settings["direction"], &settings["delay_ns"], &settings["loss_ppm"]),
            (&direction.into(), &1_000_000.into(), &0.into())
        );
    }

    // A cable alone is changed while frames pass.
    let vnicd = world.json(&["ps"])[0]["vnicd_pid"].clone();
    world.file("lab.toml", &AFTER.replace("1ms", "2ms"));
    world.ok(&["up"]);
    assert_eq!(world.json(&["ps"])[0]["vnicd_pid"], vnicd);
    assert_eq!(world.ok(&["up"]), "lab grows: nothing to do\n");

    // A strategy that vnicd does not have, or an invalid lab, changes nothing.
    world.file("lab.toml", "name = \"grows\"\n[[node]]\nname = \"n2\"\nmemory = 7\n");
    assert_eq!(world.run(&["up"]).status.code(), Some(2));
    assert_eq!(world.json(&["ps"]).as_array().unwrap().len(), 2);
    let unknown = "link = { delay = \"2ms\" }, coalescing = { strategy = \"no-such\" }";
    world.file("lab.toml", &AFTER.replace("link = { delay = \"1ms\" }", unknown));
    let refused = world.run(&["up"]);
    let sentence = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{sentence}");
    assert!(sentence.contains("there is no strategy \"no-such\""), "{sentence}");
    world.file("lab.toml", &AFTER.replace("1ms", "2ms"));
    assert_eq!(world.ok(&["up"]), "lab grows: nothing to do\n", "it is as it was");

    // A node that is stopped is started by a file that contains it.
    world.run(&["exec", "n3", "--", "poweroff", "-f"]);
    eventually("n3 is stopped", || world.json(&["ps"])[0]["phase"] == "stopped");
    let said = world.ok(&["up"]);
    assert!(said.contains("+ node n3 is stopped, and is started\n"), "{said}");
    world.ok(&["exec", "n3", "--", "ping", "-c", "1", "-W", "10", "n2"]);
}
