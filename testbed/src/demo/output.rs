//! The demo's results as text, JSON and charts, on standard output and in a folder.

use std::{collections::BTreeSet, fmt::Write as _, io::Write as _, path::Path};

use anyhow::Result;

use super::{
    measure::Setting,
    reading,
    result::{Demo, Interrupts, Outcome},
};
use crate::report::{
    chart::{Bar, BarChart, short},
    file::OutFolder,
    table::{self, Columns},
};

/// Characters of a line of running text.
const LINE_WIDTH: usize = 110;

/// Tables and reading, as printed and as written to `demo.txt`.
pub(super) fn text(demo: &Demo) -> String {
    let mut text = format!(
        "weft demo: two guests, one switch; accelerator {}, QEMU {}, rounds: {}, {} s\n\n",
        demo.accel,
        demo.qemu,
        demo.rounds,
        short(demo.seconds.round())
    );
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short);
    let columns = Columns::<Outcome>::default()
        .words("STRATEGY", |row| row.setting.to_string())
        .numbers("SMALL µs", |row| short(row.small.rtt_us_median))
        .numbers("IRQ/MSG", |row| short(row.small.interrupts_per_message()))
        .numbers("32 KiB µs", |row| short(row.medium.rtt_us_median))
        .numbers("IRQ/MSG", |row| short(row.medium.interrupts_per_message()))
        .numbers("STREAM MSG/s", |row| short(row.stream.messages_per_s))
        .numbers("PACKETS/IRQ", |row| short(row.stream.counted.packets_per_interrupt()))
        .numbers("PING ms", move |row| optional(row.ping_ms))
        .numbers("TCP Mbit/s", move |row| optional(row.tcp_mbit_per_s));
    text += &table::text(&demo.outcomes, &columns);
    text += "\nWhy the receiving card interrupted (and packets per interrupt of that reason):\n\n";
    let columns = Columns::<Outcome>::default()
        .words("STRATEGY", |row| row.setting.to_string())
        .words("SMALL MESSAGES", |row| why(&row.small.counted))
        .words("32-KiB MESSAGES", |row| why(&row.medium.counted))
        .words("STREAM", |row| why(&row.stream.counted));
    text += &table::text(&demo.outcomes, &columns);
    text += "\nReading\n";
    for paragraph in reading::paragraphs(demo) {
        text.push('\n');
        text += &wrap(&paragraph);
    }
    text
}

/// `mark 98 % (1.0), timeout 2 % (3.4)`: share of the interrupts, and packets that each announced.
fn why(counted: &Interrupts) -> String {
    if counted.interrupts == 0 {
        return "none".to_owned();
    }
    let mut reasons: Vec<_> = counted.reasons.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let mut text = String::new();
    for (reason, count) in reasons {
        let share = 100.0 * *count as f64 / counted.interrupts as f64;
        let share = if share < 1.0 {
            "<1".to_owned()
        } else {
            format!("{share:.0}")
        };
        // Writing into a string does not fail.
        let packets = counted.packets_by_reason.get(reason).copied().unwrap_or(0);
        let packets = short(packets as f64 / *count as f64);
        _ = write!(
            text,
            "{}{reason} {share} % ({packets})",
            if text.is_empty() { "" } else { ", " }
        );
    }
    text
}

/// Breaks running text into lines.
fn wrap(text: &str) -> String {
    let mut wrapped = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > LINE_WIDTH {
            wrapped.push('\n');
            width = 0;
        }
        if width > 0 {
            wrapped.push(' ');
            width += 1;
        }
        wrapped += word;
        width += length;
    }
    wrapped.push('\n');
    wrapped
}

/// Prints the text, or with `json` only the JSON.
pub(super) fn print(demo: &Demo, text: &str, json: bool) -> Result<()> {
    if json {
        return table::print_json(&demo.json());
    }
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

/// Writes text, JSON and charts into the folder `path`, or nothing.
pub(super) fn write(path: &Path, demo: &Demo, text: &str) -> Result<()> {
    let mut folder = OutFolder::make(path)?;
    folder.write("demo.txt", text.as_bytes())?;
    folder.write("demo.json", &serde_json::to_vec_pretty(&demo.full_json())?)?;
    for (name, chart) in charts(demo) {
        folder.write(&format!("{name}.svg"), chart.svg()?.as_bytes())?;
    }
    folder.keep();
    Ok(())
}

/// Name of each chart's file, and the chart.
fn charts(demo: &Demo) -> Vec<(&'static str, BarChart)> {
    let accel = demo.accel;
    let plain = |title: &str, axis: &str, value: fn(&Outcome) -> f64| {
        let bar = |outcome: &Outcome| Bar {
            label: label(outcome.setting),
            values: vec![value(outcome)],
        };
        BarChart {
            title: format!("{title} ({accel})"),
            axis: axis.to_owned(),
            parts: vec![axis.to_owned()],
            bars: demo.outcomes.iter().map(bar).collect(),
        }
    };
    // Values of optional measurements are shown only when every setting has one.
    let all = |value: fn(&Outcome) -> Option<f64>| demo.outcomes.iter().all(|outcome| value(outcome).is_some());
    let mut charts = vec![
        (
            "small-time",
            plain("Small messages: there and back", "µs", |row| row.small.rtt_us_median),
        ),
        (
            "medium-time",
            plain("32-KiB messages: there and answered", "µs", |row| {
                row.medium.rtt_us_median
            }),
        ),
        (
            "stream-rate",
            plain("Stream of 128-byte messages", "messages per second", |row| {
                row.stream.messages_per_s
            }),
        ),
        (
            "small-interrupts",
            by_reason(
                demo,
                "Small messages: interrupts by reason",
                "interrupts per message",
                |row| (&row.small.counted, row.small.messages),
            ),
        ),
        (
            "medium-interrupts",
            by_reason(
                demo,
                "32-KiB messages: interrupts by reason",
                "interrupts per message",
                |row| (&row.medium.counted, row.medium.messages),
            ),
        ),
        (
            "stream-interrupts",
            by_reason(demo, "Stream: interrupts by reason", "interrupts per packet", |row| {
                (&row.stream.counted, row.stream.counted.packets)
            }),
        ),
    ];
    if all(|row| row.ping_ms) {
        charts.push(("ping", plain("Ping", "ms", |row| row.ping_ms.unwrap_or(0.0))));
    }
    if all(|row| row.tcp_mbit_per_s) {
        charts.push((
            "tcp",
            plain("TCP throughput", "Mbit/s", |row| row.tcp_mbit_per_s.unwrap_or(0.0)),
        ));
    }
    charts
}

/// Bars stacked from the reasons of interrupts, per whatever the second number counts.
fn by_reason(demo: &Demo, title: &str, axis: &str, part: fn(&Outcome) -> (&Interrupts, u64)) -> BarChart {
    // The same reasons in every chart, so that each keeps its colour.
    let all = demo
        .outcomes
        .iter()
        .flat_map(|row| [&row.small.counted, &row.medium.counted, &row.stream.counted]);
    let reasons: BTreeSet<&String> = all.flat_map(|counted| counted.reasons.keys()).collect();
    let bars = demo.outcomes.iter().map(|outcome| {
        let (counted, per) = part(outcome);
        let share = |reason: &&String| counted.reasons.get(*reason).copied().unwrap_or(0) as f64 / per.max(1) as f64;
        Bar {
            label: label(outcome.setting),
            values: reasons.iter().map(share).collect(),
        }
    });
    BarChart {
        title: format!("{title} ({})", demo.accel),
        axis: axis.to_owned(),
        bars: bars.collect(),
        parts: reasons.into_iter().cloned().collect(),
    }
}

/// Two lines under a bar: strategy and delay.
fn label(setting: Setting) -> String {
    setting.to_string().replacen(' ', "\n", 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::result::tests::example;

    #[test]
    fn the_output_folder_gets_text_json_and_a_chart_for_everything_measured() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let demo = example(false);
        let folder = folder.path().join("new").join("one");
        write(&folder, &demo, &text(&demo)).expect("can be written");
        let mut names: Vec<_> = std::fs::read_dir(&folder)
            .expect("readable")
            .map(|entry| entry.expect("readable").file_name().into_string().expect("plain names"))
            .collect();
        names.sort();
        let expected = [
            "demo.json",
            "demo.txt",
            "medium-interrupts.svg",
            "medium-time.svg",
            "ping.svg",
            "small-interrupts.svg",
            "small-time.svg",
            "stream-interrupts.svg",
            "stream-rate.svg",
            "tcp.svg",
        ];
        assert_eq!(names, expected);
        if let Some(keep) = std::env::var_os("WEFT_KEEP_CHARTS") {
            write(Path::new(&keep), &demo, &text(&demo)).expect("can be written");
        }
    }

    #[test]
    fn the_table_shows_every_setting_once() {
        let text = text(&example(false));
        for setting in super::super::SETTINGS {
            assert_eq!(
                text.matches(&format!("\n{setting}  ")).count(),
                2,
                "{setting} in\n{text}"
            );
        }
        assert!(text.lines().all(|line| line.chars().count() <= 140), "{text}");
    }

    #[test]
    fn running_text_is_wrapped_between_words() {
        let wrapped = wrap(&"word ".repeat(50));
        assert!(
            wrapped
                .lines()
                .all(|line| line.chars().count() <= LINE_WIDTH && line.ends_with("word"))
        );
        assert_eq!(wrapped.split_whitespace().count(), 50);
    }
}
