//! Checks the cables between switches.

use super::{
    Lab, NICS_MAX, NODES_MAX, Trunk,
    domains::Domains,
    file::{LabFile, TrunkFile},
    names::{checked_name, find_switch},
    places::{places, seed_directions},
    problems::Problems,
    settings, switch,
};
use vnicd_protocol::TrunkLinks;

pub(super) fn check(
    file: &LabFile,
    switches: &[String],
    before: Option<&Lab>,
    domains: &mut Domains,
    problems: &mut Problems,
) -> Vec<Trunk> {
    let mut trunks = Vec::new();
    let mut loops = switch::Loops::new(file, switches);
    let between = |trunk: &TrunkFile| trunk.between.get_ref().0.each_ref().map(|end| end.get_ref().clone());
    let keys: Vec<_> = file.trunk.iter().map(between).collect();
    let known = before.iter().flat_map(|lab| &lab.trunks);
    let known: Vec<_> = known
        .map(|trunk| ([trunk.a.clone(), trunk.b.clone()], trunk.place))
        .collect();
    for (trunk, place) in file.trunk.iter().zip(places(&keys, &known)) {
        let ends = trunk
            .between
            .get_ref()
            .0
            .each_ref()
            .map(|end| find_switch(end, switches, problems));
        let defaults = Some(&file.defaults.link);
        let link = TrunkLinks {
            a_to_b: settings::link(&[defaults, trunk.link.as_ref(), trunk.link_forth.as_ref()], 0, problems),
            b_to_a: settings::link(&[defaults, trunk.link.as_ref(), trunk.link_back.as_ref()], 0, problems),
        };
        let [Some(a), Some(b)] = ends else { continue };
        if !loops.allows(a, b, trunk) {
            problems.add(trunk.between.span(), switch::LOOP.0, switch::LOOP.1);
        }
        _ = domains.join(a, b);
        let mut link = link;
        // Seeds of trunks begin behind those of any number of NICs.
        let number = NODES_MAX * NICS_MAX + place;
        seed_directions(number, &mut link.a_to_b.seed, &mut link.b_to_a.seed);
        let made = Trunk {
            place,
            a: switches[a].clone(),
            b: switches[b].clone(),
            vlans: switch::of_trunk(trunk, problems),
            aggregate: trunk
                .aggregate
                .as_ref()
                .map(|name| checked_name(name, "aggregate", problems)),
            stp_cost: switch::cost_of(trunk, problems),
            link,
        };
        check_aggregate(trunk, &made, &trunks, problems);
        trunks.push(made);
    }
    trunks
}

/// Notes what a trunk says of its aggregate that differs from the first trunk in it, which stands for all.
fn check_aggregate(written: &TrunkFile, trunk: &Trunk, before: &[Trunk], problems: &mut Problems) {
    let ends = |trunk: &Trunk| {
        [
            trunk.a.clone().min(trunk.b.clone()),
            trunk.a.clone().max(trunk.b.clone()),
        ]
    };
    let same = |other: &&Trunk| other.aggregate == trunk.aggregate && ends(other) == ends(trunk);
    let Some((name, first)) = trunk.aggregate.as_ref().zip(before.iter().find(same)) else {
        return;
    };
    for (key, differs) in [
        ("vlans", trunk.vlans.is_some() && trunk.vlans != first.vlans),
        ("stp_cost", trunk.stp_cost.is_some() && trunk.stp_cost != first.stp_cost),
    ] {
        if differs {
            let message = format!("this trunk of the aggregate \"{name}\" has other {key} than the first one in it");
            problems.add(
                written.between.span(),
                message,
                "those of the first hold for all of them: leave them out here",
            );
        }
    }
}
