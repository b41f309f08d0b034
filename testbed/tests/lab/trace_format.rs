//! Checks a trace of `weft nic trace` against Chrome's trace event format. The unit tests of the writer use this file
//! too.

use std::collections::BTreeMap;

use serde_json::Value;

/// Checks a trace against the format, as a viewer needs it: the phases used here with their fields, spans of a track
/// one after the other, each asynchronous event begun and ended once.. The
/// error is a sentence about the mistake.
pub fn check(text: &str) -> Result<usize, String> {
    let whole: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let events = whole["traceEvents"].as_array().ok_or("there are no traceEvents")?;
    let mut spans: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    let mut begun: BTreeMap<u64, f64> = BTreeMap::new();
    for event in events {
        let field = |name: &str| event.get(name).ok_or_else(|| format!("no {name} in {event}"));
        let number = |name: &str| {
            field(name)?
                .as_f64()
                .ok_or_else(|| format!("{name} of {event} is no number"))
        };
        let whole = |name: &str| {
            field(name)?
                .as_u64()
                .ok_or_else(|| format!("{name} of {event} is no number"))
        };
        let place = (whole("pid")?, whole("tid")?);
        field("name")?
            .as_str()
            .ok_or_else(|| format!("the name of {event} is no text"))?;
        match field("ph")?.as_str() {
            Some("M") => {
                _ = event["args"]["name"]
                    .as_str()
                    .ok_or_else(|| format!("{event} names nothing"))?
            }
            Some("i") if matches!(event["s"].as_str(), Some("t" | "p" | "g")) && number("ts")? >= 0.0 => {}
            Some("C") if number("ts")? >= 0.0 && event["args"]["packets"].is_u64() => {}
            Some("X") if number("dur")? > 0.0 => {
                let start = number("ts")?;
                spans.entry(place).or_default().push((start, start + number("dur")?));
            }
            Some("b") => {
                field("cat")?;
                if begun.insert(whole("id")?, number("ts")?).is_some() {
                    return Err(format!("{event} begins twice"));
                }
            }
            Some("e") => {
                field("cat")?;
                let start = begun
                    .remove(&whole("id")?)
                    .ok_or_else(|| format!("{event} never began"))?;
                if start > number("ts")? {
                    return Err(format!("{event} ends before it begins"));
                }
            }
            _ => return Err(format!("{event} is no event of this format")),
        }
    }
    for (place, mut spans) in spans {
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Sums of fractions of a microsecond are not exact.
        if let Some(pair) = spans.windows(2).find(|pair| pair[0].1 > pair[1].0 + 1e-6) {
            return Err(format!("spans of track {place:?} overlap: {pair:?}"));
        }
    }
    Ok(events.len())
}
