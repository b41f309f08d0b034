//! Tests of what a lab file may say, what it results in, and the message for each mistake.

use std::path::Path;

use super::{topology::Topology, *};
use vnicd_protocol::{JitterDistribution, LinkSettings, QueueLevel};

fn parse(text: &str) -> Result<Lab, LabError> {
    let folder = LabFolder::new(Path::new("/nowhere"), &crate::lab_file::at_path);
    Lab::parse_in(text, "lab.toml", "lab", folder, None)
}

/// Returns the first mistake found in `text`, as `line:column: message = help`.
fn mistake(text: &str) -> String {
    let error = parse(text).expect_err("this lab file has a mistake");
    let problem = &error.problems()[0];
    let (line, column) = error.position(problem.span.start);
    format!("{line}:{column}: {} = {}", problem.message, problem.help)
}

#[test]
fn two_names_are_a_whole_lab() {
    let lab = parse("[[node]]\nname = \"n1\"\n[[node]]\nname = \"n2\"\n").expect("valid");
    assert_eq!(lab.switches, ["s1"]);
    let nics: Vec<_> = lab
        .ports()
        .map(|(port, _, nic)| (port, nic.mac.to_string(), nic.address))
        .collect();
    assert_eq!(nics[0].0, "n1.eth0");
    assert_eq!(nics[0].1, "52:54:00:00:01:01");
    assert_eq!(nics[1].2.map(|net| net.to_string()).as_deref(), Some("10.77.1.2/24"));
    assert_eq!(lab.nodes[0].memory_mib, 128);
}

#[test]
fn settings_fall_through_from_defaults_to_one_direction() {
    let lab = parse(
        r#"
        [defaults.link]
        rate = "1Gbit"
        delay = "10us"
        [defaults.nic.coalescing]
        strategy = "open-mx"
        [[node]]
        name = "n1"
        [[node.nic]]
        coalescing = { delay = "1ms" }
        link = { delay = "20us" }
        link_to_guest = { loss = "1%" }
        "#,
    )
    .expect("valid");
    let nic = &lab.nodes[0].nics[0];
    assert_eq!(
        (nic.coalescing.all.strategy.as_str(), nic.coalescing.all.delay_ns),
        ("open-mx", 1_000_000)
    );
    assert_eq!(
        (nic.link.to_guest.rate_bps, nic.link.to_guest.delay_ns),
        (1_000_000_000, 20_000)
    );
    assert_eq!((nic.link.to_guest.loss_ppm, nic.link.from_guest.loss_ppm), (10_000, 0));
    assert_ne!(nic.link.to_guest.seed, nic.link.from_guest.seed);
}

#[test]
fn a_cable_has_what_emulators_have() {
    let lab = parse(
        r#"
        [defaults.link]
        queue = "64K"
        loss = "1%"
        [[node]]
        name = "n1"
        [[node.nic]]
        link = { rate = "10Mbit", burst = "32K", delay = "10ms", jitter = "1ms", jitter_distribution = "pareto" }
        link_to_guest = { queue = "100 packets", ecn_threshold = "5ms", loss_every = 100, jitter_reorders = true }
        link_from_guest = { loss = { enter = "1%", leave = "25%", outside = "0.1%" } }
        "#,
    )
    .expect("valid");
    let link = &lab.nodes[0].nics[0].link;
    let both = LinkSettings {
        rate_bps: 10_000_000,
        burst_bytes: 32 << 10,
        delay_ns: 10_000_000,
        jitter_ns: 1_000_000,
        jitter_distribution: JitterDistribution::Pareto,
        ..LinkSettings::default()
    };
    let to_guest = LinkSettings {
        jitter_reorders: true,
        queue_max: QueueLevel::frames(100),
        ecn_above: QueueLevel::nanos(5_000_000),
        loss_ppm: 10_000,
        loss_every: 100,
        seed: link.to_guest.seed,
        ..both
    };
    let from_guest = LinkSettings {
        queue_max: QueueLevel::bytes(64 << 10),
        loss_ppm: 1_000,
        loss_enter_ppm: 10_000,
        loss_leave_ppm: 250_000,
        loss_in_burst_ppm: 1_000_000,
        seed: link.from_guest.seed,
        ..both
    };
    assert_eq!((&link.to_guest, &link.from_guest), (&to_guest, &from_guest));
}

#[test]
fn switches_joined_by_a_trunk_share_a_network() {
    let lab = parse(
        r#"
        [[switch]]
        name = "a"
        [[switch]]
        name = "b"
        [[switch]]
        name = "c"
        [[trunk]]
        between = ["a", "b"]
        link = { rate = "10Gbit" }
        [[node]]
        name = "n1"
        nic = [{ switch = "a" }, { switch = "c" }]
        [[node]]
        name = "n2"
        nic = [{ switch = "b" }]
        "#,
    )
    .expect("valid");
    let addresses: Vec<_> = lab
        .ports()
        .filter_map(|(_, _, nic)| nic.address)
        .map(|net| net.to_string())
        .collect();
    assert_eq!(addresses, ["10.77.1.1/24", "10.77.3.1/24", "10.77.1.2/24"]);
    assert_eq!(lab.trunks[0].link.a_to_b.rate_bps, 10_000_000_000);
}

#[test]
fn switches_and_their_ports_are_as_the_file_says() {
    let lab = parse(
        r#"
        [[switch]]
        name = "a"
        reserved = "forward"
        snooping = true
        [[switch]]
        name = "b"
        [[trunk]]
        between = ["a", "b"]
        vlan = "none"
        vlans = "10,20-22"
        [[node]]
        name = "n1"
        nic = [{ switch = "a", vlan = 10 }, { switch = "b", vlans = [10, "20-22"] }, { switch = "b" }]
        "#,
    )
    .expect("valid");
    let vlans: Vec<_> = lab.nodes[0]
        .nics
        .iter()
        .map(|nic| nic.vlans.as_ref().map(ToString::to_string))
        .collect();
    assert_eq!(
        vlans,
        [Some("10".to_owned()), Some("1, tagged 10,20-22".to_owned()), None]
    );
    let trunk = lab.trunks[0].vlans.as_ref().map(ToString::to_string);
    assert_eq!(trunk.as_deref(), Some("tagged 10,20-22"));
    assert_eq!(lab.switch_settings["a"].reserved.name(), "forward");
    assert!(lab.switch_settings["a"].snooping);
    assert!(!lab.switch_settings.contains_key("b"));
}

#[test]
fn a_vlan_may_have_a_network_of_its_own() {
    let node = |name: &str, nic: &str| format!("[[node]]\nname = \"{name}\"\nnic = [{{ {nic} }}]\n");
    let of_vlan = node("n1", "vlan = 20, address = \"10.20.0.3/24\"");
    let lab = parse(&format!("{of_vlan}{}{}", node("n2", ""), node("n3", "vlan = 10"))).expect("valid");
    let of = |place: usize| lab.nodes[place].nics[0].address.map(|net| net.to_string());
    assert_eq!(
        [of(0), of(1), of(2)].map(Option::unwrap),
        ["10.20.0.3/24", "10.77.1.1/24", "10.77.1.2/24"]
    );
    assert_eq!(
        lab.nodes[0].nics[0].address6, None,
        "its number may be another's in the other network"
    );
    assert!(lab.nodes[1].nics[0].address6.is_some());
}

#[test]
fn trunks_may_make_loops_where_every_switch_of_the_loop_has_a_spanning_tree() {
    let lab = |stp: [bool; 3], aggregate: &str| {
        let switch = |(name, stp): (&str, bool)| format!("[[switch]]\nname = \"{name}\"\nstp = {stp}\n");
        let switches: String = ["a", "b", "c"].into_iter().zip(stp).map(switch).collect();
        let trunk = |a: &str, b: &str| format!("[[trunk]]\nbetween = [\"{a}\", \"{b}\"]\n{aggregate}");
        let trunks = [trunk("a", "b"), trunk("b", "c"), trunk("c", "a"), trunk("a", "c")].concat();
        parse(&format!(
            "{switches}{trunks}[[node]]\nname = \"n1\"\nnic = [{{ switch = \"a\" }}]\n"
        ))
    };
    assert_eq!(
        lab([true; 3], "stp_cost = 7\n").expect("valid").trunks[3].stp_cost,
        Some(7)
    );
    for without in 0..3 {
        let mut stp = [true; 3];
        stp[without] = false;
        assert!(lab(stp, "").expect_err("a loop").to_string().contains("closes a loop"));
    }
    let aggregate = "aggregate = \"both\"\n";
    let parallel = parse(&format!(
        "[[switch]]\nname = \"a\"\n[[switch]]\nname = \"b\"\n{0}{0}[[node]]\nname = \"n1\"\nnic = [{{ switch = \"a\" }}]\n",
        format_args!("[[trunk]]\nbetween = [\"a\", \"b\"]\n{aggregate}"),
    ));
    assert_eq!(parallel.expect("one aggregate").trunks.len(), 2);
}

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

/// Collects every key of a lab file by its path from the top, with whether the last table on the path is one of a list.
fn keys(
    schema: &serde_json::Value,
    at: &serde_json::Value,
    key_path: &[(String, bool)],
    found: &mut Vec<Vec<(String, bool)>>,
) {
    let resolve = |mut at: serde_json::Value| {
        loop {
            let alternatives = at["anyOf"].as_array().cloned();
            at = match (at["$ref"].as_str(), alternatives) {
                (Some(reference), _) => schema["$defs"][reference.trim_start_matches("#/$defs/")].clone(),
                (None, Some(alternatives)) => alternatives[0].clone(),
                (None, None) => return at,
            };
        }
    };
    for (name, key) in at["properties"].as_object().into_iter().flatten() {
        let (key, items) = (resolve(key.clone()), resolve(key["items"].clone()));
        let (table, is_list) = if items["properties"].is_object() {
            (items, true)
        } else {
            (key, false)
        };
        let mut key_path = key_path.to_vec();
        key_path.push((name.clone(), is_list));
        keys(schema, &table, &key_path, found);
        found.push(key_path);
    }
}

#[test]
fn whatever_stands_at_any_key_is_answered_in_words_that_are_not_those_of_the_reader() {
    let schema: serde_json::Value = serde_json::from_str(&schema()).expect("the schema is JSON");
    let mut found = Vec::new();
    keys(&schema, &schema, &[], &mut found);
    assert!(found.len() > 60, "{found:?}");
    let values = [
        "\"text\"",
        "5",
        "-1",
        "99999999999999999999",
        "1.5",
        "nan",
        "true",
        "1979-05-27T07:32:00Z",
        "07:32:00",
        "[]",
        "[1]",
        "[[]]",
        "[\"a\"]",
        "[\"a\", \"b\", \"c\"]",
        "{}",
        "{ x = 1 }",
        "[{ x = 1 }]",
    ];
    let never = [
        "invalid",
        "sequence",
        "tuple",
        "array",
        "struct",
        "variant",
        "map",
        "i64",
        "u64",
        "u32",
        "u16",
        "u8",
        "f64",
        "usize",
        "newtype",
        "untagged",
        "did not match",
        "unit",
        "Option",
        "enum",
        "floating point",
        "integer",
        "boolean",
        "string",
        "identifier",
        "`nan`",
        "type:",
        "borrowed",
        "$__",
    ];
    let mut wrong = Vec::new();
    for key_path in &found {
        for value in values {
            let text = written_at(key_path, value);
            let Err(error) = parse(&text) else { continue };
            for problem in error.problems() {
                let said = format!("{} = {}", problem.message, problem.help);
                if never.iter().any(|word| said.contains(word)) {
                    wrong.push(format!("{}: {said}", text.trim_end()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Makes a lab file in which only `value` is set, at the key of this path.
fn written_at(key_path: &[(String, bool)], value: &str) -> String {
    let mut text = value.to_owned();
    for (depth, (key, _)) in key_path.iter().enumerate().rev() {
        text = format!("{key} = {text}");
        let Some(outer) = depth.checked_sub(1) else { break };
        text = if key_path[outer].1 {
            format!("[{{ {text} }}]")
        } else {
            format!("{{ {text} }}")
        };
    }
    text + "\n"
}

#[test]
fn several_mistakes_are_shown_together_in_the_order_of_the_file() {
    let error = parse("[[node]]\nname = \"n1\"\ncpus = 99\nmemory = \"1M\"\n").expect_err("two mistakes");
    assert_eq!(
        error.to_string(),
        "lab.toml:3:8: 99 processors are not possible\n3 | cpus = 99\n  |        ^^\n  = from 1 to 16\n\
         lab.toml:4:10: a guest cannot have 1M of memory\n4 | memory = \"1M\"\n  |          ^^^^\n  \
         = whole MiB from 128M to 64G"
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

#[test]
fn a_card_that_is_connected_to_itself_needs_no_switch_and_may_have_any_address() {
    let lab = parse(
        "[[switch]]\nname = \"a\"\n[[switch]]\nname = \"b\"\n\
         [[node]]\nname = \"n1\"\nnic = [{ loopback = true, address = \"10.9.9.1/24\" }, { loopback = true }]\n",
    )
    .expect("valid");
    let addresses: Vec<_> = lab.ports().map(|(_, _, nic)| nic.address.is_some()).collect();
    assert_eq!(addresses, [true, false]);
}

#[test]
fn a_lab_file_takes_strategies_that_this_program_was_not_built_with() {
    let text = "[[node]]\nname = \"n1\"\nnic = [{ coalescing = { strategy = \"every-second\" } }]\n";
    let lab = Lab::parse(text, "lab.toml", "lab", Path::new("/")).expect("vnicd says which there are");
    assert_eq!(lab.nodes[0].nics[0].coalescing.all.strategy, "every-second");
    let schema = include_str!("../../lab.schema.json");
    assert!(!schema.contains("\"open-mx\""), "editors forbid none");
}

#[test]
fn the_shipped_schema_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab.schema.json");
    if std::env::var_os("WEFT_UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, schema()).expect("the schema can be written");
    }
    let shipped = std::fs::read_to_string(&path).expect("testbed/lab.schema.json is shipped");
    assert!(
        shipped == schema(),
        "run this test once with WEFT_UPDATE_SCHEMA=1 and commit testbed/lab.schema.json"
    );
}

#[test]
fn the_shipped_labs_are_valid_and_named_like_their_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).expect("labs are shipped") {
        let path = entry.expect("readable").path();
        let lab = crate::lab_file::load(&path).unwrap_or_else(|error| panic!("{error:#}"));
        assert_eq!(Some(lab.name.as_str()), path.file_stem().and_then(|stem| stem.to_str()));
        if lab.name == "cluster" {
            assert_eq!((lab.nodes.len(), lab.switches.len(), lab.trunks.len()), (4, 2, 1));
            assert!(lab.ports().all(|(_, _, nic)| nic.mtu == 9000 && nic.address.is_some()));
        }
        names.push(lab.name);
    }
    assert!(names.iter().any(|name| name == "cluster"), "{names:?}");
}

#[test]
fn a_watchdog_is_set_like_the_other_times_of_a_card_and_its_limits_are_those_of_the_card() {
    let lab = parse(
        r#"
        [defaults.nic.coalescing]
        watchdog = "1ms"
        [[node]]
        name = "n1"
        nic = [{}, { coalescing = { watchdog = "100us" }, queue_pairs = 2 }, { coalescing = { watchdog = "0" } }]
        "#,
    )
    .expect("valid");
    let set: Vec<_> = lab.ports().map(|(_, _, nic)| nic.coalescing.watchdog_ns).collect();
    assert_eq!(set, [1_000_000, 100_000, 0]);
    for (settings, wrong) in [
        (
            "watchdog = \"90us\" }, queue_pairs = 2",
            "a watchdog's delay of 90us is too short = 0 (off), or at least 100us",
        ),
        ("watchdog = \"2s\" }", "a watchdog's delay of 2s is too long"),
    ] {
        let said = mistake(&format!(
            "[[node]]\nname = \"n1\"\nnic = [{{ coalescing = {{ {settings} }}]\n"
        ));
        assert!(said.contains(wrong), "{said}");
    }
}

#[test]
fn what_a_node_has_of_its_own_is_the_labs_and_then_its_own() {
    let lab = parse(
        r#"
        [defaults]
        packages = ["tcpdump"]
        exec = ["first"]
        env = { A = "lab", B = "lab" }
        labels = { course = "os" }
        [[switch]]
        name = "s1"
        subnet6 = "fd00:1::/64"
        [[node]]
        name = "n1"
        packages = ["socat"]
        exec = ["second"]
        env = { B = "node" }
        sysctl.net.ipv4.ip_forward = 1
        nic = [{ address6 = "fd00:1::77/64" }]
        files = [{ text = "x", to = "/etc/x", mode = "0600" }]
        [[node]]
        name = "n2"
        ipv6 = false
        "#,
    )
    .expect("valid");
    let (n1, n2) = (&lab.nodes[0], &lab.nodes[1]);
    let Boot::Recipe { image, .. } = &n1.boot else {
        panic!("a recipe")
    };
    assert!(image.packages.iter().eq(["socat", "tcpdump"]) && image.root_is_on_disk());
    assert_eq!(n1.setup.exec, ["first", "second"]);
    assert_eq!(
        (n1.setup.env["A"].as_str(), n1.setup.env["B"].as_str()),
        ("lab", "node")
    );
    assert_eq!(n1.setup.sysctl["net.ipv4.ip_forward"], "1");
    assert_eq!(n1.setup.files[0].mode, Some(0o600));
    assert_eq!(
        n1.address6().map(|net| net.to_string()).as_deref(),
        Some("fd00:1::77/64")
    );
    assert_eq!((n1.memory_mib, n2.labels["course"].as_str()), (256, "os"));
    assert_eq!((n2.ipv6, n2.address6()), (false, None));
    let shown = Topology::of(&lab);
    let addresses = |node: usize| [false, true].map(|v6| shown.nodes[node].address(v6).is_some());
    assert_eq!((addresses(0), addresses(1)), ([true, true], [true, false]));
}

#[test]
fn mistakes_in_what_a_node_has_of_its_own_are_answered() {
    for (keys, says) in [
        (
            "packages = [\"rm -rf\"]",
            "3:13: \"rm -rf\" is not the name of a Debian package",
        ),
        (
            "packages = [\"tcpdump\"]\nmemory = \"128M\"",
            "4:10: a guest cannot have 128M of memory = whole MiB from 192M (with",
        ),
        (
            "files = [{ from = \"none\", to = \"/x\" }]",
            "3:19: there is no file or folder /nowhere/none",
        ),
        (
            "files = [{ text = \"\", to = \"/a/../b\" }]",
            "3:28: \"/a/../b\" is not a plain path in the guest",
        ),
        (
            "files = [{ to = \"/x\" }]",
            "3:17: the file /x needs either `from` or `text`",
        ),
        (
            "files = [{ text = \"\", to = \"/x\", mode = \"9\" }]",
            "3:41: \"9\" are no permissions",
        ),
        (
            "mount = [{ from = \"none\", to = \"/x\" }]",
            "3:19: there is no folder /nowhere/none",
        ),
        (
            "mount = [{ from = \"/\", to = \"/proc\" }]",
            "3:29: /proc is a folder that the guest needs itself",
        ),
        (
            "sysctl = { \"a b.c\" = 1 }",
            "3:10: \"a b.c\" is not the name of a kernel setting",
        ),
        (
            "sysctl = { \"a..c\" = 1 }",
            "3:10: \"a..c\" is not the name of a kernel setting",
        ),
        (
            "env = { \"a=b\" = \"1\" }",
            "3:7: \"a=b\" is not the name of an environment variable",
        ),
        ("modules = \"/\"", "3:11: `modules` without a `kernel`"),
        ("image = \"none\"", "3:"),
        (
            "nic = [{ address6 = \"fe80::1/64\" }]",
            "3:21: fe80::1/64 is not an address of a host",
        ),
        (
            "nic = [{ address6 = \"fd00::1\" }]",
            "3:21: the prefix length is missing",
        ),
    ] {
        let found = mistake(&format!("[[node]]\nname = \"n1\"\n{keys}\n"));
        assert!(found.starts_with(says), "{keys}: {found}");
    }
}

#[test]
fn cloud_init_is_for_images_and_says_what_is_wrong() {
    let folder = tempfile::tempdir().expect("temporary folder");
    for name in ["image.raw", "id.pub"] {
        std::fs::write(folder.path().join(name), "").expect("writable");
    }
    let lab = |text: &str| {
        Lab::parse_in(
            text,
            "lab.toml",
            "lab",
            LabFolder::new(folder.path(), &crate::lab_file::at_path),
            None,
        )
    };
    let node = "[[node]]\nname = \"n1\"\n";
    let disk = format!("{node}disk = \"image.raw\"\n");
    let of = |text: &str| lab(text).unwrap_or_else(|error| panic!("{error:#}")).nodes[0].clone();
    assert!(of(node).has_agent() && !of(&disk).has_agent());
    assert_eq!(of(&format!("{disk}cloud_init = false\n")).cloud_init, None);
    assert!(of(&format!("{disk}cloud_init = true\n")).has_agent());
    let full = of(&format!(
        "{disk}cloud_init = {{ user = \"student\", ssh_keys = [\"id.pub\"], agent = false }}\n"
    ));
    assert!(!full.has_agent());
    let cloud_init = full.cloud_init.expect("stated");
    assert_eq!(cloud_init.ssh_keys, [folder.path().join("id.pub")]);
    assert_eq!(cloud_init.user.as_deref(), Some("student"));
    for (text, says) in [
        (
            format!("{node}cloud_init = true\n"),
            "`cloud_init` has no effect without `disk` or `initramfs`",
        ),
        (
            format!("{disk}cloud_init = {{ user = \"a b\" }}\n"),
            "\"a b\" cannot be the name of a user",
        ),
        (
            format!("{disk}cloud_init = {{ ssh_keys = [\"no\"] }}\n"),
            "there is no ssh key ",
        ),
        (format!("{disk}cloud_init = {{ colour = 1 }}\n"), "unknown key `colour`"),
        (
            format!("{disk}cloud_init = 7\n"),
            "expected here: true, false, or a table such as",
        ),
    ] {
        let error = format!("{:#}", lab(&text).expect_err(says));
        assert!(error.contains(says), "{text}: {error}");
    }
}
