//! Checks a lab file as written and makes a lab of it. Each kind of thing is checked in the file of its name (`nodes`,
//! `nics`, `trunks`, …), values of single keys where they are read (`units`, `settings`).

use std::collections::BTreeMap;

use super::{
    Lab, Problem, SWITCHES_MAX, cables, count,
    domains::Domains,
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
