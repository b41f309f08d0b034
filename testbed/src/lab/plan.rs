//! The plan to reconcile a running lab with a lab file: compared here, carried out by the supervisor.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Lab, Nic, Node, Trunk,
    units::{Rate, Share, Size, Span},
};

mod words;

/// Settings of a NIC that its guest does not notice: a change of another one requires a restart.
const NIC_KEYS_LIVE: [&str; 8] = [
    "switch",
    "coalescing",
    "dma",
    "steering",
    "misorder",
    "vlans",
    "aggregate",
    CABLE,
];

/// The key of the settings of a NIC's cable.
const CABLE: &str = "link";

/// What the settings of the direction to a guest begin with.
const TO_GUEST: &str = "to_guest.";

/// The key of a node's labels, which its guest does not notice.
const LABELS: &str = "labels";

/// The key of the place, which is not a setting: it follows from the other nodes or trunks.
const PLACE: &str = "place";

/// The changes to make, in the order in which they are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the lab.
    pub lab: String,
    /// Changes to make; empty if the lab is as the file says.
    pub changes: Vec<Change>,
}

/// A change to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Action of the change.
    pub action: Action,
    /// Kind of thing that changes.
    pub kind: Kind,
    /// Name of the thing: `n1`, `n1.eth0`, `s1`, `s1-s2`.
    pub name: String,
    /// Settings that change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Setting>,
}

/// The actions of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The thing is removed.
    Remove,
    /// The thing is added.
    Add,
    /// The node is switched off and on again, with other settings.
    Restart,
    /// The node is stopped and is started.
    Start,
    /// Settings change while the thing keeps running.
    Set,
}

/// The kinds of things in a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A guest.
    Node,
    /// A switch.
    Switch,
    /// The cable between two switches.
    Trunk,
    /// The NIC of a guest.
    Nic,
    /// The cable of a NIC.
    Cable,
}

/// A setting that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Name of the setting, such as `to_guest.delay_ns`.
    pub key: String,
    /// Value in force.
    pub from: Value,
    /// Value in the file.
    pub to: Value,
}

impl Plan {
    /// Returns the names of the nodes with this action.
    pub fn nodes(&self, action: Action) -> impl Iterator<Item = &str> {
        let changes = self.changes.iter();
        let of_nodes = changes.filter(move |change| (change.kind, change.action) == (Kind::Node, action));
        of_nodes.map(|change| change.name.as_str())
    }

    /// Returns whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Renders one line for each change, as in `+ node n3`.
    #[must_use]
    pub fn text(&self) -> String {
        self.changes
            .iter()
            .map(|change| format!("{}\n", change.text()))
            .collect()
    }
}

impl Change {
    fn new(action: Action, kind: Kind, name: impl Into<String>, settings: Vec<Setting>) -> Self {
        Self {
            action,
            kind,
            name: name.into(),
            settings,
        }
    }

    fn text(&self) -> String {
        let kind = match self.kind {
            Kind::Node => "node",
            Kind::Switch => "switch",
            Kind::Trunk => "trunk",
            Kind::Nic => "nic",
            Kind::Cable => "cable",
        };
        let (sign, verb) = match self.action {
            Action::Remove => ("-", ""),
            Action::Add => ("+", ""),
            Action::Restart => ("!", " is restarted"),
            Action::Start => ("+", " is stopped, and is started"),
            Action::Set => ("~", ""),
        };
        let settings: Vec<_> = self.settings.iter().map(Setting::text).collect();
        let colon = if settings.is_empty() { "" } else { ": " };
        format!("{sign} {kind} {}{verb}{colon}{}", self.name, settings.join(", "))
    }
}

impl Setting {
    fn text(&self) -> String {
        let (key, unit) = Unit::split(&self.key);
        format!("{key} {} → {}", show(unit, &self.from), show(unit, &self.to))
    }
}

/// The unit at the end of a setting's name, which is shown with the value as in a lab file.
#[derive(Clone, Copy)]
enum Unit {
    Nanoseconds,
    BitsPerSecond,
    MegabitsPerSecond,
    Bytes,
    Millionths,
    Mebibytes,
}

impl Unit {
    const SUFFIXES: [(&'static str, Self); 6] = [
        ("_ns", Self::Nanoseconds),
        ("_bps", Self::BitsPerSecond),
        ("_mbps", Self::MegabitsPerSecond),
        ("_bytes", Self::Bytes),
        ("_ppm", Self::Millionths),
        ("_mib", Self::Mebibytes),
    ];

    /// Splits a setting's name into the name without unit, and the unit.
    fn split(key: &str) -> (&str, Option<Self>) {
        let split = |(suffix, unit)| key.strip_suffix(suffix).map(|key| (key, Some(unit)));
        Self::SUFFIXES.into_iter().find_map(split).unwrap_or((key, None))
    }

    fn show(self, number: u64) -> String {
        match self {
            Self::Nanoseconds => Span(number).to_string(),
            Self::BitsPerSecond => Rate(number).to_string(),
            Self::MegabitsPerSecond => Rate(number.saturating_mul(1_000_000)).to_string(),
            Self::Bytes => Size(number).to_string(),
            Self::Millionths => Share(u32::try_from(number).unwrap_or(u32::MAX)).to_string(),
            Self::Mebibytes => Size(number << 20).to_string(),
        }
    }
}

/// Renders a value. Of settings that are added or removed together, only those with a meaning are named.
fn show(unit: Option<Unit>, value: &Value) -> String {
    let inner = |key: &str, value: &Value| {
        let (key, unit) = Unit::split(key);
        format!("{key} {}", show(unit, value))
    };
    let says = |value: &Value| !(value.is_null() || value == "" || value == &Value::Array(Vec::new()));
    match (unit, value) {
        (Some(unit), Value::Number(number)) if number.is_u64() => unit.show(number.as_u64().unwrap_or_default()),
        (_, Value::Null) => "none".to_owned(),
        (_, Value::String(text)) if text.is_empty() => "none".to_owned(),
        (_, Value::String(text)) => text.clone(),
        (_, Value::Array(values)) if values.is_empty() => "none".to_owned(),
        (_, Value::Array(values)) => {
            let words: Vec<_> = values.iter().map(|value| show(unit, value)).collect();
            format!("[{}]", words.join(", "))
        }
        // The address tells which NIC it is, and its line in the lab file the rest.
        (_, Value::Object(nic)) if nic.contains_key("mac") => show(None, &nic["mac"]),
        (_, Value::Object(settings)) => {
            let said = settings.iter().filter(|(_, value)| says(value));
            let words: Vec<_> = said.map(|(key, value)| inner(key, value)).collect();
            format!("({})", words.join(", "))
        }
        (_, other) => other.to_string(),
    }
}

/// Compares the lab `before`, with the settings in force, with the lab `after`. The nodes in `off` have been switched
/// off.
#[must_use]
pub fn between(before: &Lab, after: &Lab, off: &[String]) -> Plan {
    let mut changes = Vec::new();
    let gone = |name: &str, kind| Change::new(Action::Remove, kind, name, Vec::new());
    let come = |name: &str, kind| Change::new(Action::Add, kind, name, Vec::new());

    // A node whose NICs are called otherwise is another one.
    let same = |lab: &'_ Lab, node: &Node| {
        lab.node(&node.name)
            .is_some_and(|other| other.first_interface == node.first_interface)
    };
    let nodes_gone = before.nodes.iter().filter(|node| !same(after, node));
    changes.extend(nodes_gone.map(|node| gone(&node.name, Kind::Node)));
    let (old_trunks, new_trunks) = (named_trunks(before), named_trunks(after));
    let of_name = |trunks: &[(String, &Trunk)], name: &str| trunks.iter().any(|(other, _)| other == name);
    let trunks_gone = old_trunks.iter().filter(|(name, _)| !of_name(&new_trunks, name));
    changes.extend(trunks_gone.map(|(name, _)| gone(name, Kind::Trunk)));
    compare_switches(before, after, &mut changes);
    for (name, trunk) in &new_trunks {
        match old_trunks.iter().find(|(other, _)| other == name) {
            None => changes.push(come(name, Kind::Trunk)),
            Some((_, old)) => set(Kind::Trunk, name, differences(&json(old), &json(trunk)), &mut changes),
        }
    }
    for node in &after.nodes {
        match before.node(&node.name).filter(|_| same(before, node)) {
            None => changes.push(come(&node.name, Kind::Node)),
            Some(old) => compare_nodes(old, node, off.contains(&node.name), &mut changes),
        }
    }
    changes.retain_mut(|change| {
        if change.kind == Kind::Cable && after.far_end(&change.name).is_some() {
            // What a guest gets is what the other one sends.
            change.settings.retain(|setting| !setting.key.starts_with(TO_GUEST));
        }
        change.kind != Kind::Cable || !change.settings.is_empty()
    });
    Plan {
        lab: after.name.clone(),
        changes,
    }
}

/// Returns trunks by name; several between two switches are numbered.
fn named_trunks(lab: &Lab) -> Vec<(String, &Trunk)> {
    let mut named: Vec<(String, &Trunk)> = Vec::new();
    for trunk in &lab.trunks {
        let same = named
            .iter()
            .filter(|(_, other)| (&other.a, &other.b) == (&trunk.a, &trunk.b))
            .count();
        let number = if same == 0 {
            String::new()
        } else {
            format!("#{}", same + 1)
        };
        named.push((format!("{}-{}{number}", trunk.a, trunk.b), trunk));
    }
    named
}

fn compare_switches(before: &Lab, after: &Lab, changes: &mut Vec<Change>) {
    for switch in before.switches.iter().filter(|switch| !after.switches.contains(switch)) {
        changes.push(Change::new(Action::Remove, Kind::Switch, switch, Vec::new()));
    }
    for switch in &after.switches {
        if !before.switches.contains(switch) {
            changes.push(Change::new(Action::Add, Kind::Switch, switch, Vec::new()));
            continue;
        }
        let settings = |lab: &Lab| json(&lab.switch_settings.get(switch).cloned().unwrap_or_default());
        set(
            Kind::Switch,
            switch,
            differences(&settings(before), &settings(after)),
            changes,
        );
    }
}

fn compare_nodes(old: &Node, new: &Node, is_off: bool, changes: &mut Vec<Change>) {
    let seen = |node: &Node| {
        let mut value = json(node);
        value.as_object_mut().map(|node| node.remove(LABELS));
        for nic in value["nics"].as_array_mut().into_iter().flatten() {
            for key in NIC_KEYS_LIVE {
                nic.as_object_mut().map(|nic| nic.remove(key));
            }
        }
        words::of_node(node, value)
    };
    let labels = |node: &Node| json(node)[LABELS].clone();
    set(
        Kind::Node,
        &new.name,
        below(LABELS, &labels(old), &labels(new)),
        changes,
    );
    let settings = differences(&seen(old), &seen(new));
    let restarts = !settings.is_empty();
    if is_off {
        changes.push(Change::new(Action::Start, Kind::Node, &new.name, settings));
    } else if restarts {
        changes.push(Change::new(Action::Restart, Kind::Node, &new.name, settings));
    }
    for (index, (old, new_nic)) in old.nics.iter().zip(&new.nics).enumerate() {
        let name = new.port(index);
        let part = |nic: &Nic, cable: bool| {
            let value = json(nic);
            let keys = NIC_KEYS_LIVE.iter().filter(|key| (**key == CABLE) == cable);
            let pairs = keys.map(|key| ((*key).to_owned(), value[*key].clone()));
            Value::Object(pairs.collect::<Map<_, _>>())
        };
        set(
            Kind::Nic,
            &name,
            differences(&part(old, false), &part(new_nic, false)),
            changes,
        );
        let (old, new_nic) = (part(old, true), part(new_nic, true));
        set(Kind::Cable, &name, differences(&old[CABLE], &new_nic[CABLE]), changes);
    }
}

fn set(kind: Kind, name: &str, settings: Vec<Setting>, changes: &mut Vec<Change>) {
    if !settings.is_empty() {
        changes.push(Change::new(Action::Set, kind, name, settings));
    }
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Returns the [`differences`] of a part with this name.
fn below(key: &str, old: &Value, new: &Value) -> Vec<Setting> {
    let mut found = Vec::new();
    collect(key, old, new, &mut found);
    found
}

/// Returns every value that differs, by its name from the outside in. Lists of plain values are compared as a whole,
/// unless they have equal lengths.
fn differences(old: &Value, new: &Value) -> Vec<Setting> {
    below("", old, new)
}

fn collect(key: &str, old: &Value, new: &Value, found: &mut Vec<Setting>) {
    let below = |name: &str| {
        if key.is_empty() {
            name.to_owned()
        } else {
            format!("{key}.{name}")
        }
    };
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
            for name in names.filter(|name| *name != PLACE) {
                let [old, new] = [old, new].map(|map| map.get(name).unwrap_or(&Value::Null));
                collect(&below(name), old, new, found);
            }
        }
        (Value::Array(old), Value::Array(new))
            if old.len() == new.len() || old.iter().chain(new).all(Value::is_object) =>
        {
            for index in 0..old.len().max(new.len()) {
                let [old, new] = [old, new].map(|list| list.get(index).unwrap_or(&Value::Null));
                collect(&below(&index.to_string()), old, new, found);
            }
        }
        _ if old == new => {}
        _ => found.push(Setting {
            key: words::of_key(key),
            from: old.clone(),
            to: new.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::lab::{Boot, LabFolder};

    fn lab(text: &str, before: Option<&Lab>) -> Lab {
        Lab::parse_in(
            text,
            "lab.toml",
            "lab",
            LabFolder::without_files(Path::new("/")),
            before,
        )
        .expect(text)
    }

    fn text(before: &Lab, after: &str) -> String {
        between(before, &lab(after, Some(before)), &[]).text()
    }

    #[test]
    fn what_stays_keeps_its_addresses_when_others_come_and_go() {
        let before = lab(
            "[[node]]\nname = \"a\"\n[[node]]\nname = \"b\"\n[[node]]\nname = \"c\"\n",
            None,
        );
        let file = "[[node]]\nname = \"d\"\n[[node]]\nname = \"c\"\n[[node]]\nname = \"b\"\n";
        let after = lab(file, Some(&before));
        let plan = between(&before, &after, &[]);
        assert_eq!(plan.text(), "- node a\n+ node d\n");
        assert_eq!((after.nodes[1].place, after.nodes[2].place), (2, 1));
        assert_eq!(after.nodes[0].place, 0, "the lowest that is free");
        assert_eq!(after.nodes[0].address(), before.nodes[0].address());
        assert_ne!(after.nodes[0].nics[0].mac, before.nodes[1].nics[0].mac);
        assert!(between(&after, &after, &[]).is_empty());
        // A node that states the address of another one gets it.
        let stated = "[[node]]\nname = \"a\"\n[[node]]\nname = \"e\"\nnic = [{ address = \"10.77.1.1/24\" }]\n";
        let plan = text(&before, stated);
        assert!(
            plan.contains("! node a is restarted: eth0.address 10.77.1.1/24 → "),
            "{plan}"
        );
    }

    #[test]
    fn only_what_a_guest_sees_restarts_it() {
        let before = lab(
            "[[switch]]\nname = \"s1\"\n[[node]]\nname = \"a\"\nnic = [{ switch = \"s1\" }]\n",
            None,
        );
        let live = "[[switch]]\nname = \"s1\"\n[[switch]]\nname = \"s2\"\n[[node]]\nname = \"a\"\n\
                    nic = [{ switch = \"s1\", coalescing = { delay = \"1ms\" }, link = { rate = \"1Gbit\" } }]\n";
        assert_eq!(
            text(&before, live),
            "+ switch s2\n~ nic a.eth0: coalescing.delay 75us → 1ms\n\
             ~ cable a.eth0: link_from_guest.rate unlimited → 1Gbit, link_to_guest.rate unlimited → 1Gbit\n"
        );
        let seen = "[[switch]]\nname = \"s1\"\n[[node]]\nname = \"a\"\nmemory = \"256M\"\nnic = [{ mtu = 9000 }]\n";
        assert_eq!(
            text(&before, seen),
            "! node a is restarted: eth0.mtu 1500 → 9000, memory 192M → 256M\n"
        );
    }

    #[test]
    fn settings_that_come_or_go_together_are_told_in_words() {
        let switches = "[[switch]]\nname = \"s1\"\n";
        let before = lab(
            &format!("{switches}[[node]]\nname = \"a\"\nnic = [{{ vlan = 10 }}]\n"),
            None,
        );
        let after = "[[switch]]\nname = \"s1\"\nstp = true\n[[node]]\nname = \"a\"\nnic = [{ vlans = [10, 20] }]\n";
        let plan = text(&before, after);
        assert!(!plan.contains(['{', '"']), "{plan}");
        assert!(plan.contains("~ switch s1: stp none → ("), "{plan}");
        assert!(
            plan.contains("~ nic a.eth0: vlans none → 10,20, vlan 10 → 1\n"),
            "{plan}"
        );
        let plan = text(
            &before,
            &format!("{switches}[[node]]\nname = \"a\"\nnic = [{{}}, {{}}]\n"),
        );
        assert!(
            plan.contains("! node a is restarted: eth1 none → 52:54:00:00:01:02\n"),
            "{plan}"
        );
        assert!(plan.contains("~ nic a.eth0: vlans (untagged 10) → none"), "{plan}");
    }

    #[test]
    fn a_plan_has_the_words_of_the_lab_file() {
        let before = lab("[[node]]\nname = \"a\"\nexec = [\"x\"]\n", None);
        let after = "[[node]]\nname = \"a\"\nimage = \"network\"\npackages = [\"frr\"]\nappend = \"quiet\"\nexec = [\"y\"]\nsysctl = { \"a.b\" = 1 }\n\
                     files = [{ text = \"t\", to = \"/t\", mode = \"0750\" }]\nmodules = [\"nfs\"]\ncpus = 2\n";
        let plan = text(&before, after);
        let settings = plan.strip_prefix("! node a is restarted: ").expect(&plan);
        assert_eq!(
            settings.trim_end().split(", ").collect::<Vec<_>>(),
            [
                "cpus 1 → 2",
                "exec.0 x → y",
                "files.0 none → (mode 0750",
                "text t",
                "to /t)",
                "image minimal → network",
                "memory 192M → 256M",
                "sysctl.a.b none → 1",
                "append none → quiet",
                "modules none → [nfs]",
                "packages none → [frr]",
            ],
            "{plan}"
        );
        let disk = Boot::Disk {
            image: "/d.raw".into(),
            writable: true,
        };
        let mut other = before.clone();
        other.nodes[0].boot = disk;
        let plan = between(&before, &other, &[]).text();
        assert_eq!(
            plan,
            "! node a is restarted: image minimal → none, disk none → /d.raw, disk_writable none → true\n"
        );
        let counted = "[defaults]\nfirst_interface = 1\n[[node]]\nname = \"a\"\n";
        assert_eq!(text(&before, counted), "- node a\n+ node a\n");
    }

    #[test]
    fn labels_change_while_the_node_runs() {
        let before = lab("[[node]]\nname = \"a\"\nlabels = { role = \"client\" }\n", None);
        let after = "[[node]]\nname = \"a\"\nlabels = { role = \"server\", rack = \"1\" }\n";
        assert_eq!(
            text(&before, after),
            "~ node a: labels.role client → server, labels.rack none → 1\n"
        );
    }

    #[test]
    fn a_node_that_is_stopped_is_started() {
        let before = lab("[[node]]\nname = \"a\"\n", None);
        let plan = between(&before, &before, &["a".to_owned()]);
        assert_eq!(plan.text(), "+ node a is stopped, and is started\n");
        assert_eq!(plan.nodes(Action::Start).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn trunks_come_go_and_change() {
        let switches = "[[switch]]\nname = \"s1\"\n[[switch]]\nname = \"s2\"\n[[switch]]\nname = \"s3\"\n";
        let node = "[[node]]\nname = \"a\"\nnic = []\n";
        let trunk = |a, b, more: &str| format!("[[trunk]]\nbetween = [\"{a}\", \"{b}\"]\n{more}\n");
        let before = lab(
            &format!("{switches}{}{}{node}", trunk("s1", "s2", ""), trunk("s2", "s3", "")),
            None,
        );
        let file = format!(
            "{switches}{}{}{node}",
            trunk("s1", "s3", ""),
            trunk("s2", "s3", "link_back = { delay = \"1us\" }")
        );
        assert_eq!(
            text(&before, &file),
            "- trunk s1-s2\n+ trunk s1-s3\n~ trunk s2-s3: link_back.delay 0 → 1us\n"
        );
    }
}
