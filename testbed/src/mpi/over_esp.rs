//! Whether the ranks of a program reached each other over ESP, by the line that each process writes at its end.

use std::collections::BTreeMap;

use super::launch::Share;

/// Variable that names the file of these lines.
pub(super) const STATISTICS: &str = "ESP_STATISTICS";

/// What one rank did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Connections {
    over_esp: u64,
    fallen_back: u64,
}

/// Parses the lines of a node's processes.
fn of_node(text: &str) -> Vec<Connections> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("esp "));
    let of_line = |line: &str| {
        let fields: BTreeMap<_, _> = line.split(' ').filter_map(|word| word.split_once('=')).collect();
        let number = |name| fields.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        Connections {
            over_esp: number("connects") + number("accepts"),
            fallen_back: number("fall_backs"),
        }
    };
    lines.map(of_line).collect()
}

/// Returns a sentence unless every rank had a connection over ESP, and none over TCP to another node. `said` has the lines of each node.
/// Ranks of one node have TCP between them, which a rank does not distinguish from TCP to another node.
pub(super) fn not_over_esp(shares: &[Share], said: &[(String, String)]) -> Option<String> {
    if shares.len() < 2 {
        return None;
    }
    let is_alone = shares.iter().all(|(_, ranks)| *ranks == 1);
    let missing = shares.iter().filter_map(|(node, ranks)| {
        let of_node = said
            .iter()
            .filter(|(name, _)| name == node)
            .flat_map(|(_, text)| of_node(text));
        let is_over_esp = |one: &Connections| one.over_esp > 0 && (one.fallen_back == 0 || !is_alone);
        let missing = ranks.saturating_sub(of_node.filter(is_over_esp).count());
        (missing > 0).then(|| format!("{node}: {missing}"))
    });
    let missing: Vec<_> = missing.collect();
    let what = if is_alone { ", or one by TCP" } else { "" };
    (!missing.is_empty()).then(|| {
        format!(
            "ranks had no connection over ESP{what} ({}): something else was measured",
            missing.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::launch::tests::spread;

    fn line(process: u64, connects: u64, accepts: u64, fall_backs: u64) -> String {
        format!("esp process={process} connects={connects} accepts={accepts} fall_backs={fall_backs}\n")
    }

    fn said(of_first: &str, of_second: &str) -> Vec<(String, String)> {
        [("n1", of_first), ("n2", of_second)]
            .map(|(node, text)| (node.to_owned(), text.to_owned()))
            .to_vec()
    }

    #[test]
    fn a_rank_without_a_connection_over_esp_or_with_one_by_tcp_is_told_with_its_node() {
        let shares = spread(&["n1", "n2"], 2);
        let told = |of_first: &str, of_second: &str| not_over_esp(&shares, &said(of_first, of_second));
        assert_eq!(told(&line(7, 1, 0, 0), &line(8, 0, 1, 0)), None);
        let sentence = "ranks had no connection over ESP, or one by TCP (n2: 1): something else was measured";
        for of_second in [
            line(8, 0, 0, 0),
            line(8, 2, 1, 1),
            "nonsense\n".to_owned(),
            String::new(),
        ] {
            assert_eq!(
                told(&line(7, 1, 0, 0), &of_second).as_deref(),
                Some(sentence),
                "{of_second}"
            );
        }
    }

    #[test]
    fn ranks_that_share_a_node_may_have_tcp_between_them() {
        let shares = spread(&["n1", "n2"], 3);
        let both = line(7, 1, 0, 1) + &line(9, 1, 0, 0);
        assert_eq!(not_over_esp(&shares, &said(&both, &line(8, 0, 1, 0))), None);
        assert_eq!(
            not_over_esp(&shares, &said(&line(7, 1, 0, 1), &line(8, 0, 1, 0))).as_deref(),
            Some("ranks had no connection over ESP (n1: 1): something else was measured")
        );
        assert_eq!(not_over_esp(&spread(&["n1"], 2), &[]), None, "nothing leaves the node");
    }
}
