//! One line of the control socket in, one line out. Every line gets an answer, and a line that makes no sense gets one sentence
//! that says what would. No I/O; what it changes, it changes through [`Fabric`].

use std::time::Instant;

use firmware::StrategyKind;
use firmware::recorder::{RECORD_LEN, RECORD_VERSION, RECORDER_EVENTS_MAX, RECORDER_EVENTS_MIN};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::dataplane::{CaptureReader, Drain, Fabric, TRACE_EVENTS_DEFAULT, TraceReader};
use crate::report::{
    CoalescingChange, Direction, DmaChange, LinkChange, MisorderChange, PortInfo, PortStats, SteeringChange,
    VlanChange, VlanSettings,
};

/// The operations, for the sentence that names them.
const OPS: &str = "info, stats, coalesce, steering, misorder, link, dma, trunk, vlan, switch, macs, memberships, group, watch, capture, trace, drain, ping, shutdown";

/// Largest `snaplen` that makes sense: no frame is longer, segmentation offload included.
const SNAPLEN_MAX: u64 = 1 << 18;

/// What follows from a line besides its answer.
pub enum Next {
    /// The client may send its next line.
    Go,
    /// The connection now carries changes of settings.
    Watch,
    /// The connection now carries this capture.
    Capture(CaptureReader),
    /// The connection now carries the records of a card's flight recorder.
    Trace(TraceReader),
    /// Nothing is taken from guests until the connection or the process ends.
    Drain(Drain),
    /// The process is to end.
    Shutdown,
}

/// Answers one line (without its line end). The answer ends with one.
pub fn answer(line: &[u8], fabric: &Fabric, started: Instant) -> (String, Next) {
    let (id, result) = match parse(line) {
        Ok((id, op, fields)) => (id, run(&op, fields, fabric, started)),
        Err((id, sentence)) => (id, Err(sentence)),
    };
    let (answer, next) = match result {
        Ok((value, next)) => (json!({ "id": id, "ok": value }), next),
        Err(sentence) => (json!({ "id": id, "error": sentence }), Next::Go),
    };
    (format!("{answer}\n"), next)
}

/// The answer to something that is no line, or one too many.
pub fn error_line(sentence: &str) -> String {
    format!("{}\n", json!({ "id": null, "error": sentence }))
}

type Parsed = (Value, String, Map<String, Value>);

fn parse(line: &[u8]) -> Result<Parsed, (Value, String)> {
    let value: Value =
        serde_json::from_slice(line).map_err(|error| (Value::Null, format!("the line is not JSON: {error}")))?;
    let Value::Object(mut fields) = value else {
        return Err((
            Value::Null,
            "the line must be a JSON object, such as {\"id\":1,\"op\":\"info\"}".to_owned(),
        ));
    };
    let id = fields.remove("id").unwrap_or(Value::Null);
    if !matches!(id, Value::Null | Value::Number(_) | Value::String(_)) {
        return Err((Value::Null, "\"id\" must be a number or a string".to_owned()));
    }
    match fields.remove("op") {
        Some(Value::String(op)) => Ok((id, op, fields)),
        Some(_) => Err((id, format!("\"op\" must be one of {OPS}"))),
        None => Err((id, format!("\"op\" is missing: one of {OPS}"))),
    }
}

fn run(op: &str, mut fields: Map<String, Value>, fabric: &Fabric, started: Instant) -> Result<(Value, Next), String> {
    let fields = &mut fields;
    let value = match op {
        "ping" => {
            no_more(op, fields)?;
            json!({})
        }
        "shutdown" => {
            no_more(op, fields)?;
            return Ok((json!({}), Next::Shutdown));
        }
        "drain" => {
            no_more(op, fields)?;
            let mut drain = fabric.drain();
            let (left, waited) = drain.wait();
            let timers = drain.take_timers().into_iter();
            let timers: Vec<_> = timers
                .map(|(port, timer)| json!({ "port": port, "timer": timer }))
                .collect();
            let answer = json!({
                "on_links": left.on_links,
                "in_dma": left.in_dma,
                "waited_ns": u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX),
                "timers": timers,
            });
            return Ok((answer, Next::Drain(drain)));
        }
        "info" => {
            no_more(op, fields)?;
            info(fabric, started)
        }
        "stats" => {
            let port = optional_text(op, fields, "port")?;
            no_more(op, fields)?;
            stats(fabric, port)?
        }
        "coalesce" => {
            let (port, change) = (port(op, fields)?, rest::<CoalescingChange>(op, fields)?);
            to_value(
                &fabric
                    .set_coalescing(&port, &change)
                    .map_err(|error| error.to_string())?,
            )
        }
        "link" => {
            let port = port(op, fields)?;
            let direction = match fields.remove("direction") {
                None => Direction::Both,
                Some(value) => serde_json::from_value(value)
                    .map_err(|_| "link: \"direction\" must be both, to_guest or from_guest".to_owned())?,
            };
            let change = rest::<LinkChange>(op, fields)?;
            to_value(
                &fabric
                    .set_link(&port, direction, &change)
                    .map_err(|error| error.to_string())?,
            )
        }
        "dma" => {
            let (port, change) = (port(op, fields)?, rest::<DmaChange>(op, fields)?);
            to_value(&fabric.set_dma(&port, &change).map_err(|error| error.to_string())?)
        }
        "steering" => {
            let (port, change) = (port(op, fields)?, rest::<SteeringChange>(op, fields)?);
            to_value(&fabric.set_steering(&port, &change).map_err(|error| error.to_string())?)
        }
        "misorder" => {
            let (port, change) = (port(op, fields)?, rest::<MisorderChange>(op, fields)?);
            to_value(&fabric.set_misorder(&port, &change).map_err(|error| error.to_string())?)
        }
        "trunk" => {
            let mut switch = |name| {
                optional_text(op, fields, name)?
                    .ok_or_else(|| format!("{op}: {name:?} is missing: the name of a switch"))
            };
            let (a, b) = (switch("a")?, switch("b")?);
            let ways = match optional_text(op, fields, "direction")?.as_deref() {
                None | Some("both") => (true, true),
                Some("a_to_b") => (true, false),
                Some("b_to_a") => (false, true),
                Some(_) => return Err("trunk: \"direction\" must be both, a_to_b or b_to_a".to_owned()),
            };
            let number = match fields.remove("number") {
                None | Some(Value::Null) => None,
                Some(value) => Some(
                    value
                        .as_u64()
                        .and_then(|number| usize::try_from(number).ok())
                        .ok_or_else(|| "trunk: \"number\" must be a number from 1".to_owned())?,
                ),
            };
            let change = rest::<LinkChange>(op, fields)?;
            to_value(
                &fabric
                    .set_trunk((&a, &b), number, ways, &change)
                    .map_err(|error| error.to_string())?,
            )
        }
        "vlan" => {
            let port = port(op, fields)?;
            let change = match fields.remove("default") {
                Some(Value::Bool(true)) => {
                    no_more(op, fields)?;
                    Some(VlanChange::Default)
                }
                Some(_) => return Err(format!("{op}: \"default\" must be true")),
                None if fields.is_empty() => None,
                None => Some(VlanChange::Set(rest::<VlanSettings>(op, fields)?)),
            };
            json!({ "vlans": to_value(&fabric.set_vlans(&port, change).map_err(|error| error.to_string())?) })
        }
        "switch" => {
            let name = optional_text(op, fields, "switch")?;
            no_more(op, fields)?;
            json!({ "switches": to_value(&of_switch(name, |name| fabric.switch_info(name))?) })
        }
        "macs" => {
            let name = optional_text(op, fields, "switch")?;
            no_more(op, fields)?;
            json!({ "macs": to_value(&of_switch(name, |name| fabric.stations(name))?) })
        }
        "memberships" => {
            let name = optional_text(op, fields, "switch")?;
            no_more(op, fields)?;
            json!({ "memberships": to_value(&of_switch(name, |name| fabric.memberships(name))?) })
        }
        "group" => group(op, fields, fabric)?,
        "watch" => {
            no_more(op, fields)?;
            return Ok((json!({}), Next::Watch));
        }
        "capture" => {
            let (ports, snaplen) = capture_fields(op, fields)?;
            no_more(op, fields)?;
            let reader = fabric
                .start_capture(&ports, snaplen)
                .map_err(|error| error.to_string())?;
            return Ok((json!({}), Next::Capture(reader)));
        }
        "trace" => {
            let port = port(op, fields)?;
            let events = match fields.remove("events") {
                None => TRACE_EVENTS_DEFAULT,
                Some(value) => value
                    .as_u64()
                    .and_then(|events| usize::try_from(events).ok())
                    .filter(|events| (RECORDER_EVENTS_MIN..=RECORDER_EVENTS_MAX).contains(events))
                    .ok_or_else(|| {
                        format!("{op}: \"events\" must be a number from {RECORDER_EVENTS_MIN} to {RECORDER_EVENTS_MAX}")
                    })?,
            };
            no_more(op, fields)?;
            let reader = fabric.start_trace(&port, events).map_err(|error| error.to_string())?;
            let answer = json!({
                "record_version": RECORD_VERSION,
                "record_bytes": RECORD_LEN,
                "origin_unix_ns": reader.origin_unix_ns,
                "strategies": StrategyKind::NAMES,
            });
            return Ok((answer, Next::Trace(reader)));
        }
        _ => return Err(format!("there is no operation {op:?}, only {OPS}")),
    };
    Ok((value, Next::Go))
}

/// Lists the multicast groups, behind a change if one is asked for.
fn group(op: &str, fields: &mut Map<String, Value>, fabric: &Fabric) -> Result<Value, String> {
    let port = optional_text(op, fields, "port")?;
    let tree = optional_text(op, fields, "tree")?;
    let join = match fields.remove("join") {
        None => None,
        Some(Value::Bool(join)) => Some(join),
        Some(_) => return Err(format!("{op}: \"join\" must be true or false")),
    };
    let number = match fields.remove("group") {
        None => None,
        Some(value) => Some(
            value
                .as_u64()
                .and_then(|number| u16::try_from(number).ok())
                .ok_or_else(|| format!("{op}: \"group\" must be a number up to {}", u16::MAX))?,
        ),
    };
    no_more(op, fields)?;
    let groups = match (number, port, join, tree) {
        (None, None, None, None) => Ok(fabric.groups()),
        (Some(group), Some(port), Some(join), None) => fabric.change_group(&port, group, join),
        (Some(group), None, None, Some(tree)) => fabric.set_tree(group, &tree),
        _ => {
            return Err(format!(
                "{op}: either nothing, or group, port and join, or group and tree"
            ));
        }
    };
    Ok(json!({ "groups": to_value(&groups.map_err(|error| error.to_string())?) }))
}

fn info(fabric: &Fabric, started: Instant) -> Value {
    let ports: Vec<PortInfo> = fabric
        .port_names()
        .iter()
        .filter_map(|name| fabric.port_info(name))
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "uptime_ns": u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        "strategies": StrategyKind::NAMES,
        "ports": to_value(&ports),
    })
}

/// What a switch is asked for, if there is such a one.
fn of_switch<T>(name: Option<String>, ask: impl FnOnce(Option<&str>) -> Option<T>) -> Result<T, String> {
    ask(name.as_deref()).ok_or_else(|| format!("there is no switch {:?}", name.unwrap_or_default()))
}

fn stats(fabric: &Fabric, port: Option<String>) -> Result<Value, String> {
    let ports: Vec<PortStats> = match port {
        Some(name) => vec![
            fabric
                .port_stats(&name)
                .ok_or_else(|| format!("there is no port {name:?}"))?,
        ],
        None => fabric
            .port_names()
            .iter()
            .filter_map(|name| fabric.port_stats(name))
            .collect(),
    };
    Ok(json!({ "ports": to_value(&ports) }))
}

fn capture_fields(op: &str, fields: &mut Map<String, Value>) -> Result<(Vec<String>, u32), String> {
    let ports: Vec<String> = match fields.remove("ports") {
        None => Vec::new(),
        Some(value) => {
            serde_json::from_value(value).map_err(|_| format!("{op}: \"ports\" must be a list of port names"))?
        }
    };
    if let Some(twice) = (1..ports.len()).find(|at| ports[..*at].contains(&ports[*at])) {
        return Err(format!("{op}: {:?} is named twice", ports[twice]));
    }
    let snaplen = match fields.remove("snaplen") {
        None => 0,
        Some(value) => value
            .as_u64()
            .filter(|len| *len <= SNAPLEN_MAX)
            .ok_or_else(|| format!("{op}: \"snaplen\" must be a number up to {SNAPLEN_MAX} (0 = whole frames)"))?,
    };
    Ok((ports, snaplen as u32))
}

fn port(op: &str, fields: &mut Map<String, Value>) -> Result<String, String> {
    optional_text(op, fields, "port")?.ok_or_else(|| format!("{op}: \"port\" is missing: the name of a port"))
}

fn optional_text(op: &str, fields: &mut Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("{op}: {name:?} must be a string")),
    }
}

fn rest<T: DeserializeOwned>(op: &str, fields: &mut Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(std::mem::take(fields))).map_err(|error| format!("{op}: {error}"))
}

fn no_more(op: &str, fields: &Map<String, Value>) -> Result<(), String> {
    match fields.keys().next() {
        None => Ok(()),
        Some(field) => Err(format!("{op}: the field {field:?} is unknown")),
    }
}

fn to_value(value: &impl Serialize) -> Value {
    // Plain data with string keys: there is nothing in it that JSON cannot say.
    serde_json::to_value(value).unwrap_or(Value::Null)
}
