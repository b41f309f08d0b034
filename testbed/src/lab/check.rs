//! Checks a lab file as written and makes a lab of it. Each kind of thing is checked in the file of its name (`nodes`,
//! `nics`, `trunks`, …), values of single keys where they are read (`units`, `settings`).

use std::collections::BTreeMap;

use firmware::StrategyKind;

use super::{
    Lab, Problem, SWITCHES_MAX, cables, count,
    domains::Domains,
    error::nearest,
    file::LabFile,
    lab_folder::LabFolder,
    names::{check_unique, checked_lab_name, checked_name, is_lab_name},
    nodes::Nodes,
    problems::Problems,
    switch, trunks,
};

/// Checks `file`. Nodes and trunks that are also in `before` keep what the file does not state.
pub(super) fn check(
    file: LabFile,
    stem: &str,
    folder: LabFolder<'_>,
    before: Option<&Lab>,
) -> Result<Lab, Vec<Problem>> {
    let mut problems = Problems::default();
    check_strategies(&file, folder, &mut problems);
    let mut nodes = count::expand(&file.node, &mut problems);
    let cables = cables::plug_in(&file, &mut nodes, &mut problems);
    let file = &LabFile { node: nodes, ..file };
    let name = match &file.name {
        Some(name) => checked_lab_name(name, &mut problems),
        None if is_lab_name(stem) => stem.to_owned(),
        None => "lab".to_owned(),
    };
    let (switches, first_named) = check_switches(file, &mut problems);
    let switch_settings = switch::settings(file, &mut problems);
    let mut domains = Domains::new(switches.len() + cables.len());
    let trunks = trunks::check(file, &switches, before, &mut domains, &mut problems);
    domains.set_subnets(file, &switches, &mut problems);
    domains.set_subnets6(&name, file, &switches, &mut problems);
    let nodes = Nodes::new(file, folder, before, (&switches, &cables), first_named);
    let mut nodes = nodes.check(&mut domains, &mut problems);
    cables::join_directions(&cables, &mut nodes);
    let is_used = |switch: &str| {
        nodes
            .iter()
            .any(|node| node.nics.iter().any(|nic| nic.switch == switch))
    };
    let switches = match &switches[..] {
        // The switch of a lab that names none, and has cables between its cards alone.
        [only] if file.switch.is_empty() && !cables.is_empty() && !is_used(only) => Vec::new(),
        _ => switches,
    };
    if problems.0.is_empty() {
        Ok(Lab {
            name,
            switches,
            switch_settings,
            nodes,
            trunks,
            cables,
        })
    } else {
        Err(problems.0)
    }
}

/// Checks that `vnicd` has the strategies that cards name.
fn check_strategies(file: &LabFile, folder: LabFolder<'_>, problems: &mut Problems) {
    let of_nics = file.node.iter().flat_map(|node| node.nic.iter().flatten());
    let tables = of_nics
        .map(|nic| &nic.coalescing)
        .chain([&file.defaults.nic.coalescing]);
    for strategy in tables.flatten().filter_map(|table| table.strategy.as_ref()) {
        let name = strategy.get_ref();
        if StrategyKind::NAMES.contains(&&**name) {
            continue;
        }
        let known = folder.strategies();
        if !known.contains(name) {
            let near = nearest(name, known.iter().map(String::as_str));
            let hint = near.map_or_else(String::new, |near| format!("did you mean \"{near}\"? "));
            let help = format!("{hint}The strategies of vnicd are: {}", known.join(", "));
            problems.add(strategy.span(), format!("there is no strategy \"{name}\""), help);
        }
    }
}

fn check_switches(file: &LabFile, problems: &mut Problems) -> (Vec<String>, BTreeMap<String, &'static str>) {
    let mut taken = BTreeMap::new();
    if file.switch.is_empty() {
        return (vec!["s1".to_owned()], taken);
    }
    for switch in &file.switch {
        checked_name(&switch.name, "switch", problems);
        check_unique(&switch.name, "switch", &mut taken, problems);
    }
    if let Some(first_too_many) = file.switch.get(SWITCHES_MAX) {
        problems.add(
            first_too_many.name.span(),
            format!("a lab of {} switches is too large", file.switch.len()),
            format!("at most {SWITCHES_MAX} switches"),
        );
    }
    (
        file.switch.iter().map(|switch| switch.name.get_ref().clone()).collect(),
        taken,
    )
}
