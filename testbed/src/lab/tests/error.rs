//! Tests of the message for each mistake.

use super::*;

#[test]
fn every_mistake_is_answered_with_its_place_and_what_would_be_right() {
    let node = "[[node]]\nname = \"n1\"\n";
    let cases = [
        ("[[node]\n".to_owned(), "1:"),
        (
            format!("{node}cpu = 2\n"),
            "3:1: unknown key `cpu` = did you mean `cpus`?",
        ),
        (
            format!("{node}cpus = \"two\"\n"),
            "3:8: wrong kind of value: the text \"two\" = expected here: a whole number, without quotes",
        ),
        (
            format!("{node}cpus = 0\n"),
            "3:8: 0 processors are not possible = from 1 to 16",
        ),
        (
            format!("{node}memory = \"128\"\n"),
            "3:10: \"128\" is not a size = write it as",
        ),
        (
            format!("{node}memory = \"1M\"\n"),
            "3:10: a guest cannot have 1M of memory",
        ),
        (
            format!("{node}memory = 128\n"),
            "3:10: wrong kind of value: the number 128 = expected here: a size in quotes, such as \"128M\"",
        ),
        (
            format!("{node}nic = [{{ link = {{ delay = 5, rate = \"1Gbit\" }} }}]\n"),
            "3:27: wrong kind of value: the number 5 = expected here: a time in quotes, such as \"75us\"",
        ),
        (
            format!("{node}nic = [{{ link = {{ burst = \"32K\" }} }}]\n"),
            "3:27: a burst has no effect on a link of unlimited rate = add rate = …, such as \"100Mbit\", or leave out burst",
        ),
        (
            format!("{node}nic = [{{ link = {{ reorder = \"5%\" }} }}]\n"),
            "3:29: reordering has no effect without a delay = add reorder_delay = …",
        ),
        (
            format!("{node}nic = [{{ link = {{ queue = \"20 packets\", ecn_threshold = \"20 packets\" }} }}]\n"),
            "3:57: an ECN threshold of 20 packets is never exceeded in a queue of at most 20 packets = a lower threshold",
        ),
        (
            format!("{node}nic = [{{ bypass = \"uio\", address = \"10.77.1.9/24\" }}]\n"),
            "3:36: a NIC that programs drive themselves has no IP address = leave out bypass, or the address",
        ),
        (
            format!("{node}nic = [{{ bypass = \"uio\", offloads = true }}]\n"),
            "3:19: a NIC that programs drive themselves has no offloads = leave out offloads, or bypass",
        ),
        (
            format!("{node}nic = [{{ speed = \"100kbit\" }}]\n"),
            "3:18: a NIC cannot have a speed of 100kbit = whole Mbit/s, from 1Mbit to 1000Gbit",
        ),
        (
            format!("{node}nic = [{{ bypass = \"dpdk\" }}]\n"),
            "3:19: unknown value \"dpdk\" = possible are: uio, vfio",
        ),
        (
            format!("{node}nic = [{{ link = {{ queue = \"20\" }} }}]\n"),
            "3:27: \"20\" is not a length of a queue = write it as \"64K\", \"100 packets\" or \"20ms\"",
        ),
        (
            format!("{node}nic = [{{ link = {{ loss = 5 }} }}]\n"),
            "3:26: wrong kind of value: the number 5 = expected here: a probability in quotes, such as \"0.1%\", or a table",
        ),
        (
            format!("{node}nic = [{{ link = {{ loss = {{ enter = \"1%\", h = \"1%\" }} }} }}]\n"),
            "3:42: unknown key `h` = the keys here are: enter, leave, in_burst, outside",
        ),
        (
            format!("{node}nic = [{{ link = {{ jitter = \"1ms\", jitter_distribution = \"gamma\" }} }}]\n"),
            "3:57: unknown value \"gamma\" = possible are: uniform, normal, pareto",
        ),
        (
            format!("{node}nic = [{{ link = {{ loss_every = -1 }} }}]\n"),
            "3:32: losing every -1th frame is not possible = from 0 (none) to 4294967295",
        ),
        (
            format!("{node}nic = [{{ address = 5 }}]\n"),
            "3:20: wrong kind of value: the number 5 = expected here: a text in quotes",
        ),
        (
            format!("{node}nic = [{{ coalescing = \"open-mx\" }}]\n"),
            "3:23: wrong kind of value: the text \"open-mx\" = expected here: a table, such as { strategy = \"open-mx\"",
        ),
        (
            format!("{node}nic = [{{ coalescing = {{ frames = -3 }} }}]\n"),
            "3:34: an interrupt after -3 packets is not possible = from 0",
        ),
        (
            format!("{node}nic = [{{ misorder = 500 }}]\n"),
            "3:21: a misordering degree of 500 is not possible = from 0 (off) to 31",
        ),
        (
            format!("{node}[[switch]]\nname = \"s1\"\nstp = true\nstp_priority = 5000\n"),
            "6:16: 5000 is no priority in the spanning tree = a multiple of 4096 up to 61440",
        ),
        (
            format!("{node}[[switch]]\nname = \"s1\"\nstp_priority = 4096\n"),
            "5:16: `stp_priority` on a switch that takes no part",
        ),
        (
            format!("{node}nic = [{{ vlan = 4095 }}]\n"),
            "3:17: 4095 is no VLAN for frames without a tag = a number from 1 to 4094, or \"none\"",
        ),
        (
            format!("{node}nic = [{{ vlans = [10, \"20-\"] }}]\n"),
            "3:18: \"20-\" is no list of VLANs",
        ),
        (
            format!("{node}nic = [{{ loopback = true, vlan = 5 }}]\n"),
            "3:34: a NIC that is connected to itself is in no VLAN",
        ),
        (
            format!("{node}[[switch]]\nname = \"s1\"\nreserved = \"pass\"\n"),
            "5:12: unknown value \"pass\"",
        ),
        (
            format!("{node}nic = [{{ steering = {{ endpoints = [0, 300] }} }}]\n"),
            "3:35: this NIC has no queue 300 = it has 1",
        ),
        (
            format!("{node}nic = [{{ link = {{ seed = -1 }} }}]\n"),
            "3:26: wrong value: the number -1 = expected here: a whole number that is not negative",
        ),
        (
            format!("{node}nic = [{{ member_timeout = \"99ms\" }}]\n"),
            "3:27: a member timeout of 99ms is too short = at least 100ms",
        ),
        (
            format!("{node}nic = [{{ member_timeout = \"601s\" }}]\n"),
            "3:27: a member timeout of 601s is too long = at most 600s",
        ),
        (
            format!("{node}nic = [{{ loopback = true, switch = \"s1\" }}]\n"),
            "3:21: a NIC that is connected to itself is at no switch = leave out",
        ),
        (
            format!("{node}[[switch]]\nname = \"n1\"\n"),
            "2:8: the name \"n1\" is taken by a switch",
        ),
        (format!("{node}{node}"), "4:8: the name \"n1\" is taken by another node"),
        (
            "[[node]]\nname = \"N 1\"\n".to_owned(),
            "2:8: \"N 1\" cannot be the name of a node",
        ),
        ("[[node]]\ncpus = 1\n".to_owned(), "1:1: the key `name` is missing here"),
        (
            format!("{node}nic = [{{ switch = \"s2\" }}]\n"),
            "3:19: there is no switch \"s2\" = The switches of this lab: s1",
        ),
        (
            format!("{node}nic = [{{ mac = \"01:00:00:00:00:01\" }}]\n"),
            "3:16: 01:00:00:00:00:01 cannot be",
        ),
        (
            format!("{node}nic = [{{ mac = \"nonsense\" }}]\n"),
            "3:16: \"nonsense\" is not a MAC address",
        ),
        (
            format!("{node}nic = [{{ mtu = 9001 }}]\n"),
            "3:16: an MTU of 9001 bytes is not possible",
        ),
        (
            format!("{node}nic = [{{ queue_pairs = 17 }}]\n"),
            "3:24: 17 queue pairs are not possible = from 1 to 16",
        ),
        (
            format!("{node}nic = [{{ link = {{ loss = \"101%\" }} }}]\n"),
            "3:26: \"101%\" is not a probability",
        ),
        (
            format!("{node}nic = [{{ link = {{ delay = \"1h\" }} }}]\n"),
            "3:27: \"1h\" is not a time",
        ),
        (
            format!("{node}nic = [{{ address = \"10.0.0.1/24\" }}, {{ address = \"10.0.0.1/24\" }}]\n"),
            "3:49: the address 10.0.0.1 is taken by another NIC",
        ),
        (
            format!("{node}nic = [{{ address = \"10.0.0.1/24\" }}, {{ address = \"10.0.1.1/24\" }}]\n"),
            "3:49: 10.0.1.1/24 is not in the network 10.0.0.0/24",
        ),
        (
            format!("{node}kernel = \"vmlinuz\"\n"),
            "3:10: there is no kernel /nowhere/vmlinuz",
        ),
        (
            "[[switch]]\nname = \"a\"\nsubnet = \"10.0.0.1/24\"\n".to_owned() + node,
            "3:10: 10.0.0.1/24 is an address",
        ),
        (
            "[[switch]]\nname = \"a\"\n[[trunk]]\nbetween = [\"a\", \"a\"]\n".to_owned() + node,
            "4:11: this trunk closes a loop",
        ),
        (
            format!("{node}[[switch]]\nname = \"a\"\n[[trunk]]\nbetween = [\"a\"]\n"),
            "6:11: wrong number of values: 1 = expected here: the names of two switches, such as [\"s1\", \"s2\"]",
        ),
        (String::new(), "1:1: this lab has no node"),
    ];
    let wrong: Vec<String> = cases
        .into_iter()
        .map(|(text, expected)| (mistake(&text), expected))
        .filter(|(found, expected)| !found.starts_with(expected))
        .map(|(found, expected)| format!("expected {expected}\nfound    {found}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn several_mistakes_are_shown_together_in_the_order_of_the_file() {
    let error = parse("[[node]]\nname = \"n1\"\ncpus = 99\nmemory = \"1M\"\n").expect_err("two mistakes");
    assert_eq!(
        error.to_string(),
        "lab.toml:3:8: 99 processors are not possible\n3 | cpus = 99\n  |        ^^\n  = from 1 to 16\n\
         lab.toml:4:10: a guest cannot have 1M of memory\n4 | memory = \"1M\"\n  |          ^^^^\n  \
         = whole MiB from 144M to 64G"
    );
}

#[test]
fn a_mistake_shows_the_part_of_its_line_that_it_is_about_and_commands_no_terminal() {
    let text = format!("x = [{}\n", "[".repeat(100_000));
    let error = parse(&text).expect_err("too deep").to_string();
    assert!(error.lines().all(|line| line.chars().count() < 300), "{error}");
    let text = format!(
        "# {}\n[[node]]\nname = \"\\u001b[2J\u{7f}\" # {}\n",
        "x".repeat(500),
        "y".repeat(500)
    );
    let error = parse(&text).expect_err("a name").to_string();
    assert!(!error.contains(['\u{1b}', '\u{7f}']), "{error:?}");
    assert!(error.lines().all(|line| line.chars().count() < 300), "{error}");
}
