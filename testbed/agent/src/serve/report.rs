//! The guest's own counters, read from `/proc` and `/sys`, which the host compares with the card's counters.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use weft_agent::message::{InterfaceReport, InterruptReport, Report};

/// Reads all counters.
pub fn report() -> Result<Report> {
    let uptime = fs::read_to_string("/proc/uptime").context("/proc/uptime")?;
    let seconds: f64 = uptime
        .split_whitespace()
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    let mut interfaces = Vec::new();
    for entry in fs::read_dir("/sys/class/net").context("/sys/class/net")? {
        interfaces.push(interface(&entry?.path()));
    }
    interfaces.sort_by(|a, b| a.name.cmp(&b.name));
    let table = fs::read_to_string("/proc/interrupts").context("/proc/interrupts")?;
    Ok(Report {
        uptime_ms: (seconds * 1000.0) as u64,
        interfaces,
        interrupts: interrupts(&table),
    })
}

fn interface(path: &Path) -> InterfaceReport {
    let read = |name: &str| {
        fs::read_to_string(path.join(name))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let mut statistics = BTreeMap::new();
    for entry in fs::read_dir(path.join("statistics")).into_iter().flatten().flatten() {
        if let Some(value) = fs::read_to_string(entry.path())
            .ok()
            .and_then(|text| text.trim().parse().ok())
        {
            statistics.insert(entry.file_name().to_string_lossy().into_owned(), value);
        }
    }
    InterfaceReport {
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        mac: read("address"),
        mtu: read("mtu").parse().unwrap_or_default(),
        operstate: read("operstate"),
        statistics,
    }
}

/// Parses `/proc/interrupts`: a head line with one word per processor, then `name: count … description`.
fn interrupts(table: &str) -> Vec<InterruptReport> {
    let mut lines = table.lines();
    let cpus = lines.next().map_or(0, |head| head.split_whitespace().count());
    let mut all = Vec::new();
    for (name, rest) in lines.filter_map(|line| line.split_once(':')) {
        let mut words = rest.split_whitespace().peekable();
        let mut taken = Vec::new();
        while taken.len() < cpus
            && let Some(count) = words.peek().and_then(|word| word.parse().ok())
        {
            taken.push(count);
            words.next();
        }
        let description = words.collect::<Vec<_>>().join(" ");
        all.push(InterruptReport {
            name: name.trim().to_owned(),
            taken,
            description,
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_interrupts_is_read_with_any_number_of_processors() {
        let table = "            CPU0       CPU1       \n  1:          9          0   IO-APIC   1-edge      i8042\n \
                     24:      12345         67   PCI-MSIX-0000:00:02.0   0-edge      virtio0-input.0\nERR:          0\n";
        let read = interrupts(table);
        assert_eq!(read[1].name, "24");
        assert_eq!(read[1].taken, [12345, 67]);
        assert_eq!(read[1].description, "PCI-MSIX-0000:00:02.0 0-edge virtio0-input.0");
        assert_eq!(
            read[2],
            InterruptReport {
                name: "ERR".into(),
                taken: vec![0],
                description: String::new()
            }
        );
    }
}
