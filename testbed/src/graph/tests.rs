//! Tests of the pictures of a lab, in each of their formats.

use std::path::Path;

use super::*;
use crate::lab::Lab;

const TWO_SWITCHES: &str = r#"
[[switch]]
name = "s1"
[[switch]]
name = "s2"
[[trunk]]
between = ["s1", "s2"]
link = { rate = "1Gbit" }
link_back = { delay = "5us" }
[[node]]
name = "n1"
uplink = true
nic = [{ switch = "s1", link = { loss = "1%" } }, { switch = "s2", link = { up = false } }]
[[node]]
name = "end"
nic = [{ switch = "s2" }, { loopback = true }]
[[node]]
name = "alone"
nic = []
"#;

fn topology(text: &str) -> Topology {
    Topology::of(&Lab::parse(text, "lab.toml", "lab", Path::new("/")).expect("valid"))
}

#[test]
fn a_lab_in_text_shows_every_cable_at_both_ends_with_what_is_set_on_it() {
    assert_eq!(
        draw(&topology(TWO_SWITCHES), Format::Text),
        "\
s1
├─ n1.eth0  52:54:00:00:01:01  10.77.1.1/24 fda5:1146:d380:1::1/64  loss 1%
└─ s2       trunk                                                   there: 1Gbit; back: 1Gbit, 5us
s2
├─ n1.eth1   52:54:00:00:01:02  10.77.1.2/24 fda5:1146:d380:1::2/64  down
├─ end.eth0  52:54:00:00:02:01  10.77.1.3/24 fda5:1146:d380:1::3/64
└─ s1        trunk                                                   there: 1Gbit, 5us; back: 1Gbit
at no switch
├─ end.eth1  connected to itself
└─ alone     no NIC
uplink to the host's network
└─ n1
"
    );
}

#[test]
fn a_lab_in_dot_and_mermaid_has_a_line_for_each_cable_and_no_word_of_theirs_as_a_name() {
    let lab = topology(TWO_SWITCHES);
    let dot = draw(&lab, Format::Dot);
    assert_eq!(dot.matches(" -- ").count(), 6, "{dot}");
    assert!(
        dot.contains(r#""n1" -- "s1" [taillabel="eth0\n10.77.1.1/24\nfda5:1146:d380:1::1/64", label="loss 1%"];"#),
        "{dot}"
    );
    assert!(dot.contains(r#""end" -- "end""#) && dot.ends_with("}\n"), "{dot}");
    let mermaid = draw(&lab, Format::Mermaid);
    assert!(mermaid.starts_with("graph LR\n"), "{mermaid}");
    assert!(mermaid.contains("  node_end([\"end\"])\n"), "{mermaid}");
    assert!(
        mermaid.contains("  node_n1 -.-|\"eth1 10.77.1.2/24 fda5:1146:d380:1::2/64<br>down\"| switch_s2\n"),
        "{mermaid}"
    );
    assert!(
        mermaid.contains("  switch_s1 ===|\"there: 1Gbit; back: 1Gbit, 5us\"| switch_s2\n"),
        "{mermaid}"
    );
}

#[test]
fn a_cable_between_two_cards_is_drawn_once() {
    let lab = topology(
        r#"
        [[node]]
        name = "r1"
        [[node]]
        name = "r2"
        [[cable]]
        between = ["r2.eth1", "r1.eth1"]
        link_forth = { delay = "1ms" }
        "#,
    );
    let text = draw(&lab, Format::Text);
    let branch = "between cards\n└─ r1.eth1  r2.eth1  10.77.2.1/24 ";
    assert!(
        text.contains(branch) && text.contains("there: ideal; back: 1ms\n"),
        "{text}"
    );
    assert!(!text.contains("at no switch"), "{text}");
    assert_eq!(draw(&lab, Format::Dot).matches(" -- ").count(), 3);
    assert_eq!(draw(&lab, Format::Mermaid).matches(" ---|").count(), 3);
    assert_eq!(draw(&lab, Format::Svg).matches("<path ").count(), 3);
}

#[test]
fn a_lab_in_svg_is_well_formed_keeps_boxes_apart_and_inside() {
    let many: String = (1..=20)
        .map(|n| format!("[[node]]\nname = \"node-with-a-long-name-{n}\"\n"))
        .collect();
    for text in [TWO_SWITCHES, &many] {
        let picture = draw(&topology(text), Format::Svg);
        let svg = roxmltree::Document::parse(&picture).expect("well-formed");
        let size = |node: roxmltree::Node<'_, '_>, name| {
            node.attribute(name)
                .and_then(|text| text.parse::<usize>().ok())
                .unwrap_or(0)
        };
        let root = svg.root_element();
        let boxes = root
            .children()
            .filter(|node| node.has_tag_name("rect") && node.has_attribute("x"));
        let boxes: Vec<_> = boxes
            .map(|node| {
                (
                    size(node, "x"),
                    size(node, "y"),
                    size(node, "width"),
                    size(node, "height"),
                )
            })
            .collect();
        let lab = topology(text);
        assert_eq!(boxes.len(), lab.switches.len() + lab.nodes.len());
        for (index, (x, y, width, height)) in boxes.iter().enumerate() {
            assert!(
                x + width < size(root, "width") && y + height < size(root, "height"),
                "{picture}"
            );
            let is_clear_of = |other: &(usize, usize, usize, usize)| {
                other.0 >= x + width || other.0 + other.2 <= *x || other.1 >= y + height || other.1 + other.3 <= *y
            };
            assert!(boxes[index + 1..].iter().all(is_clear_of), "{picture}");
        }
    }
}
