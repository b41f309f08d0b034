//! The demo's results as text, JSON and charts, on standard output and in a folder.

use std::{fmt::Write as _, io::Write as _, path::Path};

use anyhow::Result;

use super::{
    BUDGET_S,
    charts::charts,
    page, reading,
    result::{Demo, Interrupts, Outcome, Spread},
};
use crate::report::{
    chart::short,
    file::OutFolder,
    table::{self, Columns},
};

/// Width of running text in characters.
const LINE_WIDTH: usize = 110;

/// A heading and a table with a row for each setting.
pub(super) struct Table {
    pub heading: String,
    pub columns: Columns<Outcome>,
}

/// Returns the first line: what was measured where.
pub(super) fn about(demo: &Demo) -> String {
    let left_out = match demo.rounds_left_out {
        0 => String::new(),
        more => format!(" ({more} more would have ended later than {BUDGET_S} s after the begin)"),
    };
    format!(
        "weft demo: two guests, one switch; accelerator {}, QEMU {}, programs: {}, rounds: {}{left_out}, {} s",
        demo.accel,
        demo.qemu,
        demo.build,
        demo.rounds,
        short(demo.seconds.round())
    )
}

/// Makes the tables as printed, as written to `demo.txt`, and as shown on the page.
pub(super) fn tables() -> Vec<Table> {
    let optional = |value: Option<Spread>| value.map_or_else(|| "-".to_owned(), |spread| short(spread.median));
    let measured = Columns::<Outcome>::default()
        .words("STRATEGY", |row| row.setting.to_string())
        .numbers("SMALL µs", |row| short(row.small.rtt_us_median))
        .numbers("IRQ/MSG", |row| short(row.small.interrupts_per_message()))
        .numbers("32 KiB µs", |row| short(row.medium.rtt_us_median))
        .numbers("IRQ/MSG", |row| short(row.medium.interrupts_per_message()))
        .numbers("STREAM MSG/s", |row| short(row.stream.messages_per_s))
        .numbers("PACKETS/IRQ", |row| short(row.stream.counted.packets_per_interrupt()))
        .numbers("PING ms", move |row| optional(row.ping_ms))
        .numbers("TCP Mbit/s", move |row| optional(row.tcp_mbit_per_s))
        .numbers("OVER ESP", move |row| optional(row.esp_mbit_per_s));
    let spread = Columns::<Outcome>::default()
        .words("STRATEGY", |row| row.setting.to_string())
        .numbers("SMALL µs", |row| quartiles(row.small.rtt_us))
        .numbers("32 KiB µs", |row| quartiles(row.medium.rtt_us))
        .numbers("STREAM MSG/s", |row| quartiles(row.stream.rate))
        .numbers("PING ms", |row| quartiles(row.ping_ms))
        .numbers("TCP Mbit/s", |row| quartiles(row.tcp_mbit_per_s))
        .numbers("OVER ESP", |row| quartiles(row.esp_mbit_per_s));
    let why = Columns::<Outcome>::default()
        .words("STRATEGY", |row| row.setting.to_string())
        .words("SMALL MESSAGES", |row| why(&row.small.counted))
        .words("32-KiB MESSAGES", |row| why(&row.medium.counted))
        .words("STREAM", |row| why(&row.stream.counted));
    let table = |heading: &str, columns| Table {
        heading: heading.to_owned(),
        columns,
    };
    vec![
        table(
            "Medians of the rounds, and interrupts of the receiving card over all of them:",
            measured,
        ),
        table(
            "Quartiles of the rounds: half of them were between the two. Settings whose quartiles overlap are not distinguished by this run:",
            spread,
        ),
        table(
            "Why the receiving card interrupted (and packets per interrupt of that reason):",
            why,
        ),
    ]
}

fn quartiles(spread: Option<Spread>) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |Spread {
             quartiles: (low, high), ..
         }| format!("{} to {}", short(low), short(high)),
    )
}

/// Renders tables and reading, as printed and as written to `demo.txt`.
pub(super) fn text(demo: &Demo) -> String {
    let mut text = about(demo) + "\n";
    for Table { heading, columns } in tables() {
        text += &format!("\n{}\n{}", wrap(&heading), table::text(&demo.outcomes, &columns));
    }
    text += "\nReading\n";
    for paragraph in reading::paragraphs(demo) {
        text.push('\n');
        text += &wrap(&paragraph);
    }
    text
}

/// Renders reasons such as `mark 98 % (1.0), timeout 2 % (3.4)`: share of the interrupts, and packets that each
/// announced.
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

/// Writes text, JSON, charts and the page with all of it into the folder `path`, or nothing.
pub(super) fn write(path: &Path, demo: &Demo, text: &str) -> Result<()> {
    let mut folder = OutFolder::make(path)?;
    folder.write("demo.txt", text.as_bytes())?;
    folder.write("demo.json", &serde_json::to_vec_pretty(&demo.json())?)?;
    let mut drawn = Vec::new();
    for (name, chart) in charts(demo) {
        let svg = chart.svg()?;
        folder.write(&format!("{name}.svg"), svg.as_bytes())?;
        drawn.push(svg);
    }
    folder.write("demo.html", page::page(demo, &drawn).as_bytes())?;
    folder.keep();
    Ok(())
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
            "demo.html",
            "demo.json",
            "demo.txt",
            "esp.svg",
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
                3,
                "{setting} in\n{text}"
            );
        }
        assert!(text.lines().all(|line| line.chars().count() <= 140), "{text}");
    }

    #[test]
    fn the_quartiles_stand_in_the_text() {
        let text = text(&example(false));
        let spread = text.split("Quartiles of the rounds").nth(1).expect("a table of them");
        let row = spread
            .lines()
            .find(|line| line.starts_with("timeout 1 ms"))
            .expect("a row");
        assert!(row.contains("2610 to 2630"), "{text}");
        assert!(
            spread
                .lines()
                .any(|line| line.starts_with("disabled") && line.contains("380 to 540")),
            "{text}"
        );
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
