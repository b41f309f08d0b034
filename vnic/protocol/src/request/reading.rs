//! Reads a request out of a line, field by field. A line that makes no sense is answered by one sentence that says what would.

use firmware::recorder::{RECORDER_EVENTS_MAX, RECORDER_EVENTS_MIN};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{GroupChange, OfPort, OfSwitch, Request};
use crate::{CardChange, Direction, TrunkDirection, VlanChange};

/// The operations, for the sentence that names them.
const OPS: &str = "info, stats, coalesce, steering, misorder, link, dma, trunk, vlan, switch, macs, memberships, group, watch, capture, trace, drain, ping, shutdown";

/// Largest `snaplen` that makes sense: no frame is longer, segmentation offload included.
const SNAPLEN_MAX: u64 = 1 << 18;

impl Request {
    /// Reads a line: the `id` that the client gave it, and the request, or what is wrong with the line.
    pub fn read(line: &[u8]) -> (Value, Result<Self, String>) {
        let mut fields = match serde_json::from_slice(line) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => {
                let sentence = "the line must be a JSON object, such as {\"id\":1,\"op\":\"info\"}";
                return (Value::Null, Err(sentence.to_owned()));
            }
            Err(error) => return (Value::Null, Err(format!("the line is not JSON: {error}"))),
        };
        let id = fields.remove("id").unwrap_or(Value::Null);
        if !matches!(id, Value::Null | Value::Number(_) | Value::String(_)) {
            return (Value::Null, Err("\"id\" must be a number or a string".to_owned()));
        }
        let request = match fields.remove("op") {
            Some(Value::String(op)) => Fields { op, fields }.read(),
            Some(_) => Err(format!("\"op\" must be one of {OPS}")),
            None => Err(format!("\"op\" is missing: one of {OPS}")),
        };
        (id, request)
    }
}

/// The fields of a request that were not read yet.
struct Fields {
    op: String,
    fields: Map<String, Value>,
}

impl Fields {
    fn read(mut self) -> Result<Request, String> {
        let request = match self.op.as_str() {
            "ping" => Request::Ping,
            "shutdown" => Request::Shutdown,
            "drain" => Request::Drain,
            "info" => Request::Info,
            "stats" => Request::Stats {
                port: self.optional_text("port")?,
            },
            "coalesce" => Request::Coalesce(self.of_port()?),
            "steering" => Request::Steering(self.of_port()?),
            "misorder" => Request::Misorder(self.of_port()?),
            "dma" => Request::Dma(self.of_port()?),
            "link" => Request::Link {
                port: self.port()?,
                direction: self.chosen::<Direction>("direction", "both, to_guest or from_guest")?,
                change: self.rest()?,
            },
            "trunk" => Request::Trunk {
                a: self.text("a", "the name of a switch")?,
                b: self.text("b", "the name of a switch")?,
                number: self.number("number", "a number from 1")?,
                direction: self.chosen::<TrunkDirection>("direction", "both, a_to_b or b_to_a")?,
                change: self.rest()?,
            },
            "vlan" => Request::Vlan {
                port: self.port()?,
                change: self.vlan_change()?,
            },
            "switch" => Request::Switch(self.of_switch()?),
            "macs" => Request::Macs(self.of_switch()?),
            "memberships" => Request::Memberships(self.of_switch()?),
            "group" => Request::Group(self.group_change()?),
            "watch" => Request::Watch,
            "capture" => self.capture()?,
            "trace" => Request::Trace {
                port: self.port()?,
                events: self.events()?,
            },
            op => return Err(format!("there is no operation {op:?}, only {OPS}")),
        };
        self.no_more()?;
        Ok(request)
    }

    fn of_port<C: CardChange>(&mut self) -> Result<OfPort<C>, String> {
        Ok(OfPort {
            port: self.port()?,
            change: self.rest()?,
        })
    }

    fn of_switch(&mut self) -> Result<OfSwitch, String> {
        Ok(OfSwitch {
            switch: self.optional_text("switch")?,
        })
    }

    fn vlan_change(&mut self) -> Result<Option<VlanChange>, String> {
        match self.fields.remove("default") {
            Some(Value::Bool(true)) => Ok(Some(VlanChange::Default)),
            Some(_) => Err(format!("{}: \"default\" must be true", self.op)),
            None if self.fields.is_empty() => Ok(None),
            None => self.rest().map(|settings| Some(VlanChange::Set(settings))),
        }
    }

    fn group_change(&mut self) -> Result<GroupChange, String> {
        let (port, tree) = (self.optional_text("port")?, self.optional_text("tree")?);
        let join = match self.fields.remove("join") {
            None => None,
            Some(Value::Bool(join)) => Some(join),
            Some(_) => return Err(format!("{}: \"join\" must be true or false", self.op)),
        };
        let number = self.number("group", format_args!("a number up to {}", u16::MAX))?;
        self.no_more()?;
        match (number, port, join, tree) {
            (None, None, None, None) => Ok(GroupChange::None),
            (Some(group), Some(port), Some(join), None) => Ok(GroupChange::Member { port, group, join }),
            (Some(group), None, None, Some(tree)) => Ok(GroupChange::Tree { group, tree }),
            _ => Err(format!(
                "{}: either nothing, or group, port and join, or group and tree",
                self.op
            )),
        }
    }

    fn capture(&mut self) -> Result<Request, String> {
        let ports: Vec<String> = match self.fields.remove("ports") {
            None => Vec::new(),
            Some(value) => serde_json::from_value(value)
                .map_err(|_| format!("{}: \"ports\" must be a list of port names", self.op))?,
        };
        if let Some(twice) = (1..ports.len()).find(|at| ports[..*at].contains(&ports[*at])) {
            return Err(format!("{}: {:?} is named twice", self.op, ports[twice]));
        }
        let what = format_args!("a number up to {SNAPLEN_MAX} (0 = whole frames)");
        let snaplen = self.number_in("snaplen", 0..=SNAPLEN_MAX, what)?;
        Ok(Request::Capture { ports, snaplen })
    }

    fn events(&mut self) -> Result<Option<usize>, String> {
        let (min, max) = (RECORDER_EVENTS_MIN as u64, RECORDER_EVENTS_MAX as u64);
        self.number_in("events", min..=max, format_args!("a number from {min} to {max}"))
    }

    fn port(&mut self) -> Result<String, String> {
        self.text("port", "the name of a port")
    }

    fn text(&mut self, name: &str, what: &str) -> Result<String, String> {
        let text = self.optional_text(name)?;
        text.ok_or_else(|| format!("{}: {name:?} is missing: {what}", self.op))
    }

    fn optional_text(&mut self, name: &str) -> Result<Option<String>, String> {
        match self.fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("{}: {name:?} must be a string", self.op)),
        }
    }

    fn number<T: TryFrom<u64>>(&mut self, name: &str, what: impl std::fmt::Display) -> Result<Option<T>, String> {
        self.number_in(name, 0..=u64::MAX, what)
    }

    fn number_in<T: TryFrom<u64>>(
        &mut self,
        name: &str,
        range: std::ops::RangeInclusive<u64>,
        what: impl std::fmt::Display,
    ) -> Result<Option<T>, String> {
        let value = match self.fields.remove(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value.as_u64().filter(|number| range.contains(number)),
        };
        let number = value.and_then(|number| T::try_from(number).ok());
        let wrong = || format!("{}: {name:?} must be {what}", self.op);
        number.ok_or_else(wrong).map(Some)
    }

    /// One of some names; the default if none is given.
    fn chosen<T: DeserializeOwned + Default>(&mut self, name: &str, names: &str) -> Result<T, String> {
        match self.fields.remove(name) {
            None | Some(Value::Null) => Ok(T::default()),
            Some(value) => serde_json::from_value(value).map_err(|_| format!("{}: {name:?} must be {names}", self.op)),
        }
    }

    /// All fields that were not read yet, as a change.
    fn rest<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let fields = Value::Object(std::mem::take(&mut self.fields));
        serde_json::from_value(fields).map_err(|error| format!("{}: {error}", self.op))
    }

    fn no_more(&self) -> Result<(), String> {
        match self.fields.keys().next() {
            None => Ok(()),
            Some(field) => Err(format!("{}: the field {field:?} is unknown", self.op)),
        }
    }
}
