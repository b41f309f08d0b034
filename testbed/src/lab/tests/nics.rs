//! Tests of cards.

use super::*;

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
fn a_card_has_the_speed_of_its_cable_unless_the_file_states_one() {
    let lab = parse(
        r#"
        [[node]]
        name = "n1"
        nic = [
            {},
            { link = { rate = "1Gbit" }, link_to_guest = { rate = "100Mbit" } },
            { link = { rate = "100kbit" } },
            { link = { rate = "1Gbit" }, speed = "25Gbit" },
        ]
        "#,
    )
    .expect("valid");
    let settings = crate::settings_in_force::Settings::of(&lab);
    let speeds: Vec<_> = lab
        .ports()
        .map(|(port, _, nic)| settings.speed_mbps(&port, nic))
        .collect();
    assert_eq!(speeds, [10_000, 100, 1, 25_000]);
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
    let strategies = || vec!["every-second".to_owned(), "open-mx".to_owned()];
    let folder = LabFolder::without_files(Path::new("/")).with_strategies(&strategies);
    let lab = Lab::parse_in(text, "lab.toml", "lab", folder, None).expect("vnicd says which there are");
    assert_eq!(lab.nodes[0].nics[0].coalescing.all.strategy, "every-second");
    for (table, place) in [
        ("[defaults.nic.coalescing]\n", "2:12"),
        ("[[node]]\nname = \"n0\"\n[[node.nic]]\ncoalescing.", "4:23"),
    ] {
        let wrong = format!("{table}strategy = \"openmx\"\n[[node]]\nname = \"n1\"\ncount = 2\n");
        let error = Lab::parse_in(&wrong, "lab.toml", "lab", folder, None)
            .expect_err("no strategy")
            .to_string();
        let says = format!("lab.toml:{place}: there is no strategy \"openmx\"");
        assert!(
            error.starts_with(&says)
                && error.contains("did you mean \"open-mx\"? The strategies of vnicd are: every-second, open-mx"),
            "{error}"
        );
        assert_eq!(error.matches("no strategy").count(), 1, "{error}");
    }
    let schema = include_str!("../../../lab.schema.json");
    assert!(!schema.contains("\"open-mx\""), "editors forbid none");
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
fn a_card_that_programs_drive_has_queue_pairs_for_endpoints_and_no_address() {
    let lab = parse(
        "[[node]]\nname = \"n1\"\nnic = [{}, { bypass = \"uio\" }, { bypass = \"vfio\", queue_pairs = 2 }, { bypass = \"uio\", loopback = true }]\n",
    )
    .expect("valid");
    let nics = &lab.nodes[0].nics;
    let found: Vec<_> = nics
        .iter()
        .map(|nic| (nic.bypass.map(Bypass::name), nic.queue_pairs, nic.address.is_some()))
        .collect();
    assert_eq!(
        found,
        [
            (None, 1, true),
            (Some("uio"), Bypass::QUEUE_PAIRS, false),
            (Some("vfio"), 2, false),
            (Some("uio"), 1, false)
        ]
    );
}

#[test]
fn frames_of_64_kib_are_for_cards_that_programs_drive_and_their_cables_carry_them() {
    let lab = parse(
        "[[node]]\nname = \"n1\"\nnic = [{ mtu = 9000 }, { bypass = \"uio\", mtu = 65521 }, { bypass = \"uio\", mtu = 65521, link = { mtu = 1500 } }, { loopback = true, mtu = 65535 }]\n",
    )
    .expect("valid");
    let mtus: Vec<_> = lab.nodes[0]
        .nics
        .iter()
        .map(|nic| [nic.mtu, nic.link.to_guest.mtu, nic.link.from_guest.mtu])
        .collect();
    let expected = [[9000; 3], [65_521; 3], [65_521, 1500, 1500], [65_535, 9000, 9000]];
    assert_eq!(mtus, expected);
    let refused = parse("[[node]]\nname = \"n1\"\nnic = [{ bypass = \"uio\", mtu = 65522 }]\n");
    assert!(refused.is_err());
}
