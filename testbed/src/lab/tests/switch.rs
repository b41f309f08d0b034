//! Tests of switches, their VLANs and spanning trees.

use super::*;

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
