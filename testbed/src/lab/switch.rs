//! Switches and VLANs as the lab file has them: how a switch works, and which VLANs a NIC or trunk carries.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use vnicd_protocol::TrunkGraph;

use toml::{Spanned, Value};

use super::{
    file::{LabFile, NicFile, ReservedFile, SwitchFile, TrunkFile},
    names::checked_name,
    problems::Problems,
};
use vnicd_protocol::{Reserved, StpSettings, SwitchSettings, VLAN_MAX, VlanList, VlanSettings};

/// The highest path cost of IEEE 802.1D.
const STP_COST_MAX: u32 = 200_000_000;

/// Returns the settings of the switches that the file has settings for, by name.
pub(super) fn settings(file: &LabFile, problems: &mut Problems) -> BTreeMap<String, SwitchSettings> {
    let mut of = |switch: &SwitchFile| SwitchSettings {
        reserved: match switch.reserved {
            Some(ReservedFile::Forward) => Reserved::Forward,
            Some(ReservedFile::Drop) | None => Reserved::Drop,
        },
        stp: stp_of(switch, problems),
        snooping: switch.snooping.unwrap_or(false),
        cable: false,
    };
    let named = file
        .switch
        .iter()
        .map(|switch| (switch.name.get_ref().clone(), of(switch)));
    named
        .filter(|(_, settings)| *settings != SwitchSettings::default())
        .collect()
}

fn stp_of(switch: &SwitchFile, problems: &mut Problems) -> Option<StpSettings> {
    let takes_part = switch.stp == Some(true);
    let mut settings = StpSettings::default();
    if let Some(priority) = &switch.stp_priority {
        if !takes_part {
            problems.add(
                priority.span(),
                "`stp_priority` on a switch that takes no part in the spanning tree",
                "add stp = true, or leave it out",
            );
        }
        let (step, max) = (StpSettings::PRIORITY_STEP, StpSettings::PRIORITY_MAX);
        match u16::try_from(*priority.get_ref()) {
            Ok(number) if number % step == 0 && number <= max => settings.priority = number,
            _ => {
                let message = format!("{} is no priority in the spanning tree", priority.get_ref());
                problems.add(priority.span(), message, format!("a multiple of {step} up to {max}"));
            }
        }
    }
    takes_part.then_some(settings)
}

/// Returns the path cost of a trunk in the spanning tree, if the file states it.
pub(super) fn cost_of(trunk: &TrunkFile, problems: &mut Problems) -> Option<u32> {
    let cost = trunk.stp_cost.as_ref()?;
    let number = u32::try_from(*cost.get_ref())
        .ok()
        .filter(|number| (1..=STP_COST_MAX).contains(number));
    if number.is_none() {
        let message = format!("{} is no path cost", cost.get_ref());
        problems.add(cost.span(), message, format!("from 1 to {STP_COST_MAX}"));
    }
    number
}

/// The message and help for a trunk that closes a loop.
pub(super) const LOOP: (&str, &str) = (
    "this trunk closes a loop: frames would circle in it without end",
    "one path between two switches, or stp = true on every switch of the loop, or the same `aggregate` for trunks side by side; none \
     from a switch to itself",
);

/// Finds trunks that close a loop in which no spanning tree keeps frames from circling.
pub(super) struct Loops {
    graph: TrunkGraph,
    /// Whether each switch takes part in the spanning tree.
    has_tree: Vec<bool>,
    aggregates: BTreeSet<(String, usize, usize)>,
}

impl Loops {
    /// Starts with only the trunks between switches that take part in the spanning tree, among which loops are allowed.
    pub(super) fn new(file: &LabFile, switches: &[String]) -> Self {
        let of = |name: &String| {
            let mut written = file.switch.iter();
            written.any(|switch| switch.name.get_ref() == name && switch.stp == Some(true))
        };
        let has_tree: Vec<_> = switches.iter().map(of).collect();
        let mut graph = TrunkGraph::new(switches.len());
        for trunk in &file.trunk {
            let ends = trunk.between.get_ref().0.each_ref();
            let ends = ends.map(|end| switches.iter().position(|switch| switch == end.get_ref()));
            if let [Some(a), Some(b)] = ends
                && has_tree[a]
                && has_tree[b]
            {
                // A trunk from a switch to itself is found when it is checked.
                _ = graph.join_redundant(a, b);
            }
        }
        Self {
            graph,
            has_tree,
            aggregates: BTreeSet::new(),
        }
    }

    /// Returns whether the trunk is allowed beside those that were checked before.
    pub(super) fn allows(&mut self, a: usize, b: usize, trunk: &TrunkFile) -> bool {
        if a == b || (self.has_tree[a] && self.has_tree[b]) {
            return a != b;
        }
        if let Some(name) = &trunk.aggregate
            && !self.aggregates.insert((name.get_ref().clone(), a.min(b), a.max(b)))
        {
            return true;
        }
        self.graph.join(a, b).is_ok()
    }
}

/// Returns the VLANs of a NIC, if the file names them.
pub(super) fn of_nic(nic: &NicFile, problems: &mut Problems) -> Option<VlanSettings> {
    let vlans = vlans(nic.vlan.as_ref(), nic.vlans.as_ref(), problems)?;
    if nic.loopback.as_ref().is_some_and(|on| *on.get_ref()) {
        let span = nic.vlan.as_ref().or(nic.vlans.as_ref()).map_or(0..0, Spanned::span);
        problems.add(
            span,
            "a NIC that is connected to itself is in no VLAN",
            "leave out loopback, or vlan and vlans",
        );
    }
    Some(vlans)
}

/// Returns the name of the aggregate that a NIC is in, if the file states one.
pub(super) fn aggregate_of(nic: &NicFile, problems: &mut Problems) -> Option<String> {
    let name = nic.aggregate.as_ref()?;
    if nic.is_loopback() || nic.cable.is_some() {
        problems.add(
            name.span(),
            "a NIC that is at no switch is in no aggregate",
            "leave it out: over a cable between two NICs, LACP of their guests passes",
        );
    }
    Some(checked_name(name, "aggregate", problems))
}

/// Returns the VLANs of a trunk, if the file names them.
pub(super) fn of_trunk(trunk: &TrunkFile, problems: &mut Problems) -> Option<VlanSettings> {
    vlans(trunk.vlan.as_ref(), trunk.vlans.as_ref(), problems)
}

fn vlans(
    untagged: Option<&Spanned<Value>>,
    tagged: Option<&Spanned<Value>>,
    problems: &mut Problems,
) -> Option<VlanSettings> {
    if untagged.is_none() && tagged.is_none() {
        return None;
    }
    let untagged = untagged.map_or(VlanSettings::default().untagged, |value| {
        untagged_of(value.get_ref(), value.span(), problems)
    });
    let tagged = tagged.map_or_else(VlanList::default, |value| {
        list_of(value.get_ref()).unwrap_or_else(|message| {
            problems.add(
                value.span(),
                message,
                "a list, as in [10, 20], or a text, as in \"10,20-30\" or \"all\"",
            );
            VlanList::default()
        })
    });
    Some(VlanSettings { untagged, tagged })
}

fn untagged_of(value: &Value, span: Range<usize>, problems: &mut Problems) -> Option<u16> {
    if value.as_str() == Some("none") {
        return None;
    }
    let number = value.as_integer().and_then(|number| u16::try_from(number).ok());
    let number = number.filter(|number| (1..=VLAN_MAX).contains(number));
    if number.is_none() {
        let message = format!("{value} is no VLAN for frames without a tag");
        problems.add(span, message, format!("a number from 1 to {VLAN_MAX}, or \"none\""));
    }
    number
}

fn list_of(value: &Value) -> Result<VlanList, String> {
    let one = |item: &Value| match item {
        Value::Integer(number) => number.to_string().parse::<VlanList>(),
        Value::String(text) => text.parse(),
        other => Err(format!("{other} is no VLAN")),
    };
    match value {
        Value::Array(items) => {
            let mut numbers = Vec::new();
            for item in items {
                numbers.extend(one(item)?.numbers());
            }
            Ok(numbers.into_iter().collect())
        }
        other => one(other),
    }
}
