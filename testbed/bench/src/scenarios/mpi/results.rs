//! What the programs report: the JSON of `imb`, the table of `memory`, and the statistics of the provider.

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use testbed::{
    harness::fields,
    mpi::{Carried, imb::Row},
};

/// Parses what `memory` prints: the means over its ranks are the last line of a table.
pub fn of_memory(text: &str) -> Result<Vec<Row>> {
    let means = text.lines().find_map(|line| line.trim_start().strip_prefix("mean"));
    let kib: Vec<u64> = means
        .context("memory printed no table")?
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .context("memory printed no numbers")?;
    let ranks = text
        .lines()
        .filter(|line| line.trim_start().starts_with(|first: char| first.is_ascii_digit()))
        .count() as u64;
    let [init_rss, init_hwm, peers_rss, peers_hwm, difference] = kib[..] else {
        bail!("memory printed another table than expected: {kib:?}");
    };
    ensure!(ranks > 1, "memory ran with {ranks} ranks");
    let row = json!({
        "benchmark": "memory",
        "bytes": 0,
        "ranks": ranks,
        "init_rss_kib": init_rss,
        "init_hwm_kib": init_hwm,
        "peers_rss_kib": peers_rss,
        "peers_hwm_kib": peers_hwm,
        "per_peer_kib": difference as f64 / (ranks - 1) as f64,
    });
    Ok(vec![Row::new(fields(row))])
}

/// Fails unless the provider carried messages of every rank, and as many as the operations that were timed take.
pub fn check_carried(statistics: &str, ranks: usize, rows: &[Row]) -> Result<()> {
    let carried = Carried::of_node("", statistics);
    let is_used = |rank: &&Carried| rank.sent_messages > 0 && rank.received_messages > 0;
    let used = carried.iter().filter(is_used).count();
    ensure!(
        used == ranks,
        "the provider mx carried messages of {used} ranks where {ranks} ran: something else was measured"
    );
    let sent: u64 = carried.iter().map(|rank| rank.sent_messages).sum();
    let expected: u64 = rows.iter().map(Row::operations).sum();
    ensure!(
        sent >= expected,
        "the provider mx carried {sent} messages where {expected} operations were timed: something else was measured"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use testbed::mpi::imb;

    use super::*;
    use crate::scenarios::mpi::figure::{Figure, Kind};
    use crate::scenarios::mpi::plan::Part;

    const IMB: &str = r#"[
  {"benchmark": "PingPong", "ranks": 2, "bytes": 0, "repetitions": 1000, "rounds": 5, "min_us": 2.100, "median_us": 2.250, "max_us": 3.000, "mbytes_per_s": 0.00},
  {"benchmark": "PingPong", "ranks": 2, "bytes": 4194304, "repetitions": 30, "rounds": 5, "min_us": 2000.000, "median_us": 2097.152, "max_us": 2200.000, "mbytes_per_s": 2000.00},
  {"benchmark": "Barrier", "ranks": 4, "bytes": 0, "repetitions": 100, "rounds": 3, "min_us": 9.000, "median_us": 10.000, "max_us": 11.000},
  {"benchmark": "Overlap", "ranks": 2, "rank": 0, "bytes": 4194304, "rounds": 15, "pure_us": 800.0, "compute_us": 900.0, "overlapped_us": 950.0, "hidden_percent": 93.7},
  {"benchmark": "Overlap", "ranks": 2, "rank": 1, "bytes": 4194304, "rounds": 15, "pure_us": 800.0, "compute_us": 900.0, "overlapped_us": 990.0, "hidden_percent": 88.8}
]
"#;

    fn figure(part: Part, kind: Kind) -> Figure {
        Figure { part, mtu: 1500, kind }
    }

    #[test]
    fn figures_are_found_in_the_json_of_imb() {
        let rows = imb::rows(IMB).unwrap();
        let value = |part, kind| figure(part, kind).sample(&rows).unwrap().value;
        let time = |benchmark, bytes| Kind::Time { benchmark, bytes };
        assert_eq!(value(Part::PingPong, time("PingPong", 0)), 2250.0);
        assert_eq!(value(Part::PingPong, Kind::Rate { bytes: 4 << 20 }), 2e9);
        assert_eq!(value(Part::Operations, time("Barrier", 0)), 10_000.0);
        let hidden = |rank| Kind::Hidden { rank, bytes: 4 << 20 };
        assert_eq!([0, 1].map(|rank| value(Part::Overlap, hidden(rank))), [93.7, 88.8]);
        let sample = figure(Part::PingPong, time("PingPong", 0)).sample(&rows).unwrap();
        assert_eq!(sample.further("repetitions"), Some(1000.0));
        let missing = figure(Part::Operations, time("Bcast", 16)).sample(&rows);
        assert_eq!(
            missing.unwrap_err().to_string(),
            "the result of Bcast at 16 bytes is missing"
        );
        assert!(imb::rows("").is_err() && imb::rows("[]").is_err());
    }

    #[test]
    fn memory_is_the_mean_over_the_ranks() {
        let text = "resident memory of 2 ranks, one message of 1024 bytes between each two\n \
                    rank   init RSS   init HWM  peers RSS  peers HWM difference   (KiB)\n    \
                    0      22676      22676      22904      22904        228\n    \
                    1      22372      22372      22604      22604        232\n \
                    mean      22524      22524      22754      22754        230\n";
        let rows = of_memory(text).unwrap();
        let memory = figure(Part::Memory, Kind::Memory { peers: 1 }).sample(&rows).unwrap();
        assert_eq!(memory.value, 22754.0 * 1024.0);
        assert_eq!(memory.further("per_peer_kib"), Some(230.0));
        assert_eq!(memory.further("ranks"), Some(2.0));
        assert!(of_memory("").is_err() && of_memory(" mean 1 2\n").is_err());
    }

    #[test]
    fn messages_that_the_provider_did_not_carry_are_noticed() {
        let rows = imb::rows(IMB).unwrap();
        let line = |process, sent, received| {
            format!(
                "mx process={process} endpoint=02:00:00:00:0a:01/0 sent_messages={sent} sent_bytes=9 received_messages={received} \
                 received_bytes=9 resent_messages=0\n"
            )
        };
        // 1000 × 5, 30 × 5, 100 × 3 and 15 of each rank.
        let check = |statistics: String| check_carried(&statistics, 2, &rows).map_err(|error| error.to_string());
        check(line(7, 2740, 2740) + &line(8, 2740, 2740)).unwrap();
        for (statistics, sentence) in [
            (String::new(), "carried messages of 0 ranks where 2 ran"),
            (line(7, 9000, 9000), "carried messages of 1 ranks where 2 ran"),
            (
                line(7, 9000, 0) + &line(8, 9000, 9000),
                "carried messages of 1 ranks where 2 ran",
            ),
            (
                line(7, 2739, 2740) + &line(8, 2740, 2740),
                "carried 5479 messages where 5480 operations",
            ),
        ] {
            let error = check(statistics).unwrap_err();
            assert!(error.contains(sentence), "{error}");
        }
    }
}
