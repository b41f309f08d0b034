//! What the libfabric provider carried, by the lines that each rank writes when it closes an endpoint.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use serde::Serialize;

use super::launch::{ANSWER_TIME, Share};
use crate::{guest_channel::GuestChannel, supervisor_client::client::Client};

/// What the provider of one rank has carried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Carried {
    /// Node that the rank ran in.
    pub node: String,
    /// Process identifier in the node.
    pub process: u64,
    /// Messages that the rank sent.
    pub sent_messages: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// Messages that the rank received.
    pub received_messages: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// Messages that had to be sent again.
    pub resent_messages: u64,
}

impl Carried {
    /// Parses the lines of a node's endpoints; those of one process are added up.
    #[must_use]
    pub fn of_node(node: &str, text: &str) -> Vec<Self> {
        let mut ranks = BTreeMap::<u64, Self>::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("mx ")) {
            let fields: BTreeMap<_, _> = line.split(' ').filter_map(|word| word.split_once('=')).collect();
            let number = |name| fields.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            let process = number("process");
            let rank = ranks.entry(process).or_insert_with(|| Self {
                node: node.to_owned(),
                process,
                sent_messages: 0,
                sent_bytes: 0,
                received_messages: 0,
                received_bytes: 0,
                resent_messages: 0,
            });
            rank.sent_messages += number("sent_messages");
            rank.sent_bytes += number("sent_bytes");
            rank.received_messages += number("received_messages");
            rank.received_bytes += number("received_bytes");
            rank.resent_messages += number("resent_messages");
        }
        ranks.into_values().collect()
    }

    fn is_nothing(&self) -> bool {
        self.sent_messages + self.received_messages == 0
    }
}

/// Returns the path of a file in the nodes that no other run uses.
pub(crate) fn statistics_path() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("/tmp/weft-mpirun-{}-{}", std::process::id(), since.as_nanos())
}

/// Returns what the providers of all ranks have carried, in the order of the nodes, and removes the files that say so.
pub(crate) fn collect_carried(client: &Client, shares: &[Share], statistics: &str) -> Result<Vec<Carried>> {
    let said = collect_lines(client, shares, statistics)?;
    Ok(said
        .iter()
        .flat_map(|(node, text)| Carried::of_node(node, text))
        .collect())
}

/// Returns what the ranks of each node wrote to a file there, in the order of the nodes, and removes the files.
pub(super) fn collect_lines(client: &Client, shares: &[Share], statistics: &str) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for (node, _) in shares {
        let script = "if test -e \"$1\"; then cat \"$1\" && rm \"$1\"; fi";
        let channel: GuestChannel = client.agent(node)?;
        let silent = || format!("{node} does not say what its ranks have carried");
        channel.wait_ready(ANSWER_TIME).with_context(silent)?;
        let output = channel.output(&["/bin/sh", "-c", script, "sh", statistics], ANSWER_TIME);
        let text = String::from_utf8_lossy(&output.with_context(silent)?.stdout).into_owned();
        all.push((node.clone(), text));
    }
    Ok(all)
}

/// Returns a sentence if the provider of some rank carried nothing. One rank alone has no other to send to.
pub(crate) fn silent_ranks(shares: &[Share], carried: &[Carried]) -> Option<String> {
    let of = |node: &str| {
        carried
            .iter()
            .filter(|rank| rank.node == node && !rank.is_nothing())
            .count()
    };
    let silent: Vec<_> = shares
        .iter()
        .map(|(node, ranks)| (node, ranks.saturating_sub(of(node))))
        .filter(|(_, silent)| *silent > 0)
        .collect();
    let ranks: usize = shares.iter().map(|(_, ranks)| ranks).sum();
    if silent.is_empty() || ranks == 1 {
        return None;
    }
    let total: usize = silent.iter().map(|(_, silent)| silent).sum();
    let places: Vec<_> = silent
        .iter()
        .map(|(node, silent)| format!("{node}: {silent}"))
        .collect();
    Some(format!(
        "{total} of {ranks} ranks carried no message over the provider mx ({}): the program used another transport, or none",
        places.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::launch::tests::spread;

    #[test]
    fn a_rank_whose_provider_carried_nothing_is_told_with_its_node() {
        let line = |process, messages| {
            format!(
                "mx process={process} endpoint=02:00:00:00:0a:01/0 sent_messages={messages} sent_bytes=80 \
                 received_messages=0 received_bytes=0 resent_messages=0\n"
            )
        };
        let shares = spread(&["n1", "n2"], 3);
        let mut carried = Carried::of_node("n1", &(line(7, 2) + &line(7, 3) + &line(8, 1) + "nonsense\n"));
        assert_eq!(
            (carried.len(), carried[0].sent_messages, carried[0].sent_bytes),
            (2, 5, 160)
        );
        carried.extend(Carried::of_node("n2", &line(7, 0)));
        assert_eq!(
            silent_ranks(&shares, &carried).as_deref(),
            Some(
                "1 of 3 ranks carried no message over the provider mx (n2: 1): the program used another transport, or none"
            )
        );
        carried.extend(Carried::of_node("n2", &line(9, 1)));
        assert_eq!(silent_ranks(&shares, &carried), None);
        assert_eq!(
            silent_ranks(&spread(&["n1"], 1), &[]),
            None,
            "it has no other rank to send to"
        );
    }
}
