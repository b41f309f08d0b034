//! Expectation traces as TOML: packets that arrive, and the interrupts that should follow.

use std::{fs, path::Path};

use ether::Time;
use firmware::{
    DMA_SETUP_NS_MAX, PacketInfo, Reason,
    coalescing::{DELAY_NS_MAX, FRAMES_MAX_MAX},
    conformance::{Arrival, Expectation, Expected},
};
use serde::Deserialize;

/// Packets of a trace at most: no course draws more by hand, and a queue holds no more at a time.
const PACKETS_MAX: usize = firmware::PENDING_MAX;

/// A trace file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The delay of the settings.
    #[serde(default = "delay")]
    delay: String,
    /// The count limit; 0 = none.
    #[serde(default)]
    frames: u32,
    /// How long each DMA takes.
    #[serde(default = "no_time")]
    dma: String,
    arrivals: Vec<Packets>,
    interrupts: Vec<Interrupt>,
}

/// Packets that arrive together.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Packets {
    at: String,
    #[serde(default = "bytes")]
    bytes: u32,
    #[serde(default)]
    marked: bool,
    #[serde(default = "one")]
    count: usize,
}

/// An interrupt that is expected.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Interrupt {
    at: String,
    reason: Option<String>,
    packets: Option<u32>,
}

fn delay() -> String {
    "75us".to_owned()
}

fn no_time() -> String {
    "0".to_owned()
}

fn bytes() -> u32 {
    60
}

fn one() -> usize {
    1
}

/// Reads a trace file.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn read(path: &Path) -> Result<Expectation, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    let file: File = toml::from_str(&text).map_err(|error| format!("is no trace: {error}"))?;
    let delay_ns = nanoseconds("delay", &file.delay)?;
    if !(1..=DELAY_NS_MAX).contains(&delay_ns) {
        return Err("delay: from 1ns to 1s; 0 would turn the strategy off".to_owned());
    }
    if file.frames > FRAMES_MAX_MAX {
        return Err(format!("frames: at most {FRAMES_MAX_MAX}"));
    }
    let dma_ns = nanoseconds("dma", &file.dma)?;
    if dma_ns > DMA_SETUP_NS_MAX {
        return Err(format!("dma: at most {DMA_SETUP_NS_MAX} ns"));
    }
    Ok(Expectation {
        delay_ns,
        frames_max: file.frames,
        dma_ns,
        arrivals: arrivals(&file.arrivals)?,
        interrupts: file.interrupts.iter().map(expected).collect::<Result<_, _>>()?,
    })
}

fn arrivals(packets: &[Packets]) -> Result<Vec<Arrival>, String> {
    let mut all: Vec<Arrival> = Vec::new();
    for some in packets {
        let at = Time::from_nanos(nanoseconds("at", &some.at)?);
        if all.last().is_some_and(|last| last.at > at) {
            return Err(format!("arrivals: the one at {} is behind a later one", some.at));
        }
        if all.len() + some.count > PACKETS_MAX {
            return Err(format!("arrivals: at most {PACKETS_MAX} packets"));
        }
        let packet = PacketInfo {
            len: some.bytes,
            marked: some.marked,
        };
        all.extend(std::iter::repeat_n(Arrival { at, packet }, some.count));
    }
    Ok(all)
}

fn expected(interrupt: &Interrupt) -> Result<Expected, String> {
    let reason = match &interrupt.reason {
        None => None,
        Some(name) => Some(
            name.parse::<Reason>()
                .map_err(|error| format!("reason: {name:?} is {error}"))?,
        ),
    };
    Ok(Expected {
        at: Time::from_nanos(nanoseconds("at", &interrupt.at)?),
        reason,
        packets: interrupt.packets,
    })
}

/// `75us`, `1.5ms`, `0`.
fn nanoseconds(what: &str, text: &str) -> Result<u64, String> {
    let wrong = || format!("{what}: {text:?} is no time, such as \"75us\", \"1.5ms\" or \"0\"");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ns = match &text[digits.len()..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" if digits == "0" => 1.0,
        _ => return Err(wrong()),
    };
    let value: f64 = digits.parse().map_err(|_| wrong())?;
    let ns = (value * unit_ns).round();
    // An hour is more than any trace needs, and far from where a float loses nanoseconds.
    if !(0.0..=3.6e12).contains(&ns) {
        return Err(wrong());
    }
    Ok(ns as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Expectation, String> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), text).expect("can be written");
        read(file.path())
    }

    #[test]
    fn a_trace_is_read_with_its_units_and_defaults() {
        let trace = of(r#"
            delay = "1.5ms"
            arrivals = [{ at = "0" }, { at = "2us", bytes = 1500, marked = true, count = 2 }]
            interrupts = [{ at = "2us", reason = "strategy", packets = 3 }, { at = "1s" }]
        "#)
        .expect("right");
        assert_eq!((trace.delay_ns, trace.frames_max, trace.dma_ns), (1_500_000, 0, 0));
        assert_eq!(trace.arrivals.len(), 3);
        assert_eq!(
            trace.arrivals[2].packet,
            PacketInfo {
                len: 1500,
                marked: true
            }
        );
        assert_eq!(trace.interrupts[0].reason, Some(Reason::Strategy));
        assert_eq!((trace.interrupts[1].reason, trace.interrupts[1].packets), (None, None));
    }

    #[test]
    fn mistakes_are_told_in_a_sentence() {
        for (text, sentence) in [
            ("arrivals = []", "missing field `interrupts`"),
            ("arrivals = []\ninterrupts = []\nlate = 1", "unknown field `late`"),
            (
                "delay = \"0\"\narrivals = []\ninterrupts = []",
                "0 would turn the strategy off",
            ),
            ("arrivals = [{ at = \"5\" }]\ninterrupts = []", "\"5\" is no time"),
            ("arrivals = [{ at = \"-5us\" }]\ninterrupts = []", "is no time"),
            ("arrivals = [{ at = \"2h\" }]\ninterrupts = []", "is no time"),
            (
                "arrivals = [{ at = \"5us\" }, { at = \"4us\" }]\ninterrupts = []",
                "behind a later one",
            ),
            (
                "arrivals = [{ at = \"0\", count = 2000 }]\ninterrupts = []",
                "at most 1024 packets",
            ),
            (
                "arrivals = []\ninterrupts = [{ at = \"0\", reason = \"whim\" }]",
                "known are every-packet",
            ),
        ] {
            let error = of(text).expect_err(text);
            assert!(error.contains(sentence), "{text}: {error}");
        }
    }
}
