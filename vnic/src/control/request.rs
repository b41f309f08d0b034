//! One request of the control socket, carried out: what it changes or asks, it changes or asks through [`Fabric`]. There is no
//! I/O here; `vnicd_protocol` reads the lines.

use std::time::Instant;

use firmware::StrategyKind;
use firmware::recorder::{RECORD_LEN, RECORD_VERSION};
use serde_json::{Value, json};
use vnicd_protocol::request::{GroupChange, OfPort, OfSwitch};
use vnicd_protocol::{
    Drained, Empty, Groups, Info, Memberships, PortTimer, Request, Stations, Stats, Switches, TraceInfo, Vlans,
};

use crate::dataplane::{
    CaptureReader, CardSettings, Drain, Fabric, FabricError, TRACE_EVENTS_DEFAULT, TraceReader, Watch,
};

/// What follows from a line besides its answer.
pub enum Follows {
    /// Nothing.
    Nothing,
    /// The connection now carries changes of settings.
    Watch(Option<Watch>),
    /// The connection now carries this capture.
    Capture(CaptureReader),
    /// The connection now carries the records of a card's flight recorder.
    Trace(TraceReader),
    /// Nothing is taken from guests until the connection or the process ends. The request with this `id` is answered when what is in
    /// flight has arrived.
    Drain(Value, Drain),
    /// The process is to end.
    Shutdown,
}

/// Answers one line (without its line end). The answer ends with one.
pub fn answer(line: &[u8], fabric: &Fabric, started: Instant) -> (String, Follows) {
    let (id, request) = Request::read(line);
    let result = request.and_then(|request| run(request, fabric, started).map_err(|error| error.to_string()));
    match result {
        Ok((_, Follows::Drain(_, drain))) => (String::new(), Follows::Drain(id, drain)),
        Ok((value, follows)) => (ok_line(&id, &value), follows),
        Err(sentence) => (
            format!("{}\n", json!({ "id": id, "error": sentence })),
            Follows::Nothing,
        ),
    }
}

fn ok_line(id: &Value, value: &Value) -> String {
    format!("{}\n", json!({ "id": id, "ok": value }))
}

/// The answer to something that is no line, or one too many.
pub fn error_line(sentence: &str) -> String {
    format!("{}\n", json!({ "id": null, "error": sentence }))
}

fn run(request: Request, fabric: &Fabric, started: Instant) -> Result<(Value, Follows), FabricError> {
    let value = match request {
        Request::Ping => json!(Empty {}),
        Request::Shutdown => return Ok((json!(Empty {}), Follows::Shutdown)),
        Request::Watch => return Ok((json!(Empty {}), Follows::Watch(None))),
        Request::Drain => return Ok((Value::Null, Follows::Drain(Value::Null, fabric.drain()))),
        Request::Info => json!(info(fabric, started)),
        Request::Stats { port } => json!(stats(fabric, port)?),
        Request::Coalesce(change) => set(fabric, change)?,
        Request::Steering(change) => set(fabric, change)?,
        Request::Misorder(change) => set(fabric, change)?,
        Request::Dma(change) => set(fabric, change)?,
        Request::Link {
            port,
            direction,
            change,
        } => json!(fabric.set_link(&port, direction, &change)?),
        Request::Trunk {
            a,
            b,
            number,
            direction,
            change,
        } => json!(fabric.set_trunk((&a, &b), number, direction.selected(), &change)?),
        Request::Vlan { port, change } => json!(Vlans {
            vlans: fabric.set_vlans(&port, change)?,
        }),
        Request::Switch(of) => json!(Switches {
            switches: of_switch(&of, |name| fabric.switch_info(name))?,
        }),
        Request::Macs(of) => json!(Stations {
            macs: of_switch(&of, |name| fabric.stations(name))?,
        }),
        Request::Memberships(of) => json!(Memberships {
            memberships: of_switch(&of, |name| fabric.memberships(name))?,
        }),
        Request::Group(change) => json!(Groups {
            groups: match change {
                GroupChange::None => fabric.groups(),
                GroupChange::Member { port, group, join } => fabric.change_group(&port, group, join)?,
                GroupChange::Tree { group, tree } => fabric.set_tree(group, &tree)?,
            },
        }),
        Request::Capture { ports, snaplen } => {
            let reader = fabric.start_capture(&ports, snaplen.unwrap_or(0))?;
            return Ok((json!(Empty {}), Follows::Capture(reader)));
        }
        Request::Trace { port, events } => {
            let reader = fabric.start_trace(&port, events.unwrap_or(TRACE_EVENTS_DEFAULT))?;
            let answer = TraceInfo {
                record_version: RECORD_VERSION,
                record_bytes: RECORD_LEN,
                origin_unix_ns: reader.origin_unix_ns,
                strategies: strategies(),
            };
            return Ok((json!(answer), Follows::Trace(reader)));
        }
    };
    Ok((value, Follows::Nothing))
}

/// Changes settings of a card; the settings in force are the answer.
fn set<C: CardSettings>(fabric: &Fabric, OfPort { port, change }: OfPort<C>) -> Result<Value, FabricError> {
    Ok(json!(fabric.set(&port, &change)?))
}

/// The answer to the request with this `id`, once what is in flight has arrived.
pub fn drained(id: &Value, drain: &mut Drain) -> Option<String> {
    let (left, waited) = drain.outcome()?;
    let timers = drain.take_timers().into_iter();
    let lost = left.on_links + left.in_dma > 0;
    let answer = Drained {
        on_links: left.on_links,
        in_dma: left.in_dma,
        waited_ns: u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX),
        timers: timers.map(|(port, timer)| PortTimer { port, timer }).collect(),
        packets_given: if lost { Vec::new() } else { drain.packets_given() },
    };
    Some(ok_line(id, &json!(answer)))
}

fn info(fabric: &Fabric, started: Instant) -> Info {
    let names = fabric.port_names();
    Info {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        strategies: strategies(),
        ports: names.iter().filter_map(|name| fabric.port_info(name)).collect(),
    }
}

fn strategies() -> Vec<String> {
    StrategyKind::NAMES.iter().map(|name| (*name).to_owned()).collect()
}

fn stats(fabric: &Fabric, port: Option<String>) -> Result<Stats, FabricError> {
    let names = port.map_or_else(|| fabric.port_names(), |port| vec![port]);
    let stats = |name: &String| {
        fabric
            .port_stats(name)
            .ok_or_else(|| FabricError::NoSuchPort(name.clone()))
    };
    Ok(Stats {
        ports: names.iter().map(stats).collect::<Result<_, _>>()?,
    })
}

/// What a switch is asked for, if there is such a one.
fn of_switch<T>(of: &OfSwitch, ask: impl FnOnce(Option<&str>) -> Option<T>) -> Result<T, FabricError> {
    let name = of.switch.as_deref();
    ask(name).ok_or_else(|| FabricError::NoSuchSwitch(name.unwrap_or_default().to_owned()))
}
