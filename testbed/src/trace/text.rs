//! The events as lines in the order of time.

use std::io::{self, Write};

use firmware::recorder::{Record, RecordKind};

use super::{CardTrace, drop_words, first_ns, is_of_card, reason};

/// Writes a line for each event: microseconds since the first one, card, receive queue, description.
///
/// # Errors
/// Fails when `out` cannot be written.
pub fn write_text(traces: &[CardTrace], mut out: impl Write) -> io::Result<()> {
    let first = first_ns(traces);
    let mut lines: Vec<(&CardTrace, &Record)> = traces
        .iter()
        .flat_map(|trace| trace.records.iter().map(move |record| (trace, record)))
        .collect();
    lines.sort_by_key(|(_, record)| record.at);
    let width = traces.iter().map(|trace| trace.nic.len()).max().unwrap_or(0).max(3);
    writeln!(out, "{:>14}  {:width$}  QUEUE  EVENT", "TIME (us)", "NIC")?;
    for (trace, record) in lines {
        let nic = &trace.nic;
        let ns = record.at.as_nanos() - first;
        let time = format!("{}.{:03}", ns / 1000, ns % 1000);
        let queue = if is_of_card(record) {
            "-".to_owned()
        } else {
            record.queue.to_string()
        };
        let event = format!("{:10}{}", record.kind.name(), words(record, &trace.strategies));
        writeln!(out, "{time:>14}  {nic:width$}  {queue:>5}  {}", event.trim_end())?;
    }
    Ok(())
}

fn words(record: &Record, strategies: &[String]) -> String {
    let count = |what: &str| {
        let plural = if record.count == 1 { "" } else { "s" };
        format!("{} {what}{plural}", record.count)
    };
    match record.kind {
        RecordKind::Lost => format!("{} older events were overwritten", record.number),
        RecordKind::Arrive => format!("{}, {} bytes", count("packet"), record.number),
        RecordKind::Forward => format!("{}, {} bytes", count("frame"), record.number),
        RecordKind::DmaStart | RecordKind::DmaEnd | RecordKind::Mark => count("packet"),
        RecordKind::Raise => format!(
            "irq {}: {}, {}",
            record.number,
            reason(record, strategies),
            count("packet")
        ),
        RecordKind::Drop => {
            let (direction, why) = drop_words(record);
            format!("{} {direction}: {why}", count("frame"))
        }
        RecordKind::Defer | RecordKind::Suppress | RecordKind::Signal => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use ether::Time;

    use super::*;

    #[test]
    fn events_are_lines_in_the_order_of_time() {
        let record = |at, kind, detail, count, number| Record {
            detail,
            count,
            number,
            ..Record::new(Time::from_nanos(at), kind)
        };
        let trace = |nic: &str, records| CardTrace {
            nic: nic.to_owned(),
            origin_unix_ns: 0,
            strategies: vec!["disabled".to_owned(), "every-second".to_owned()],
            records,
        };
        let traces = [
            trace(
                "n1.eth0",
                vec![
                    record(5_000, RecordKind::Arrive, 0, 3, 4500),
                    record(80_123, RecordKind::Raise, 2, 3, 17),
                ],
            ),
            trace(
                "n1.eth1",
                vec![
                    record(6_500, RecordKind::Drop, 0x82, 1, 0),
                    // The card has strategies whose reasons this program may not know.
                    record(90_000, RecordKind::Raise, 0x81, 2, 3),
                    record(91_000, RecordKind::Raise, 0x9e, 2, 4),
                ],
            ),
        ];
        let mut out = Vec::new();
        write_text(&traces, &mut out).expect("memory takes it");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "     TIME (us)  NIC      QUEUE  EVENT\n\
             \x20        0.000  n1.eth0      0  arrive    3 packets, 4500 bytes\n\
             \x20        1.500  n1.eth1      -  drop      1 frame from the guest: bad_offload\n\
             \x20       75.123  n1.eth0      0  raise     irq 17: timeout, 3 packets\n\
             \x20       85.000  n1.eth1      0  raise     irq 3: strategy:every-second, 2 packets\n\
             \x20       86.000  n1.eth1      0  raise     irq 4: strategy:30, 2 packets\n"
        );
    }
}
