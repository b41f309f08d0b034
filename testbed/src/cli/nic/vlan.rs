//! `weft nic vlan`: shows and changes the VLANs of a card at its switch.

use anyhow::{Result, bail};
use serde::Serialize;

use crate::{
    cli::common::{CommonOptions, client, ports, show, with_cable},
    report::{
        table::{self, Columns},
        vlan::{tagged, untagged},
    },
    vnicd_client::report::{VlanChange, VlanList, VlanSettings},
};

/// Show or change the VLANs of a card at its switch.
#[derive(Debug, clap::Args)]
#[command(add = show(&[
    ("weft nic vlan n1", "its VLANs"),
    ("weft nic vlan n1 10", "an access port of VLAN 10"),
    ("weft nic vlan n1 none --tagged 10,20", "only frames with tags"),
    ("weft nic vlan n1 default", "as the lab file says"),
]))]
pub(in crate::cli) struct VlanArgs {
    /// `NODE` or `NODE.ethN`.
    nic: String,
    /// The VLAN of untagged frames. `none` drops them; `default` gives back what the lab file says. Without --tagged, a VLAN makes it an access port.
    #[arg(value_name = "VLAN|none|default", value_parser = untagged_argument)]
    vlan: Option<Untagged>,
    /// VLANs that the guest sees tagged, such as 10,20-30, or all.
    #[arg(long, value_name = "LIST")]
    tagged: Option<VlanList>,
}

/// The VLANs of a NIC at its switch.
#[derive(Serialize)]
struct NicVlans {
    nic: String,
    vlans: Option<VlanSettings>,
}

/// The treatment of frames without a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Untagged {
    /// The frames belong to this VLAN.
    Vlan(u16),
    /// The frames are dropped.
    None,
    /// The VLANs are those of the lab file, tagged ones, too.
    Default,
}

/// Parses the treatment of frames without a tag.
fn untagged_argument(text: &str) -> Result<Untagged, String> {
    match text {
        "none" => return Ok(Untagged::None),
        "default" => return Ok(Untagged::Default),
        _ => {}
    }
    match text.parse::<VlanList>().map(|list| list.numbers().collect::<Vec<_>>()) {
        Ok(numbers) if numbers.len() == 1 => Ok(Untagged::Vlan(numbers[0])),
        _ => Err(format!(
            "{text:?} is no VLAN: a number from 1 to 4094, none, or default"
        )),
    }
}

/// Makes the change to request; `now` are the VLANs in force, `of_file` those of the lab file. A port that is given only a VLAN for frames without a tag
/// becomes an access port.
fn vlan_change(
    untagged: Option<Untagged>,
    tagged: Option<&VlanList>,
    now: Option<&VlanSettings>,
    of_file: Option<&VlanSettings>,
) -> Result<Option<VlanChange>> {
    let untagged = match (untagged, tagged) {
        (None, None) => return Ok(None),
        (Some(Untagged::Default), None) => {
            return Ok(Some(
                of_file.map_or(VlanChange::Default, |vlans| VlanChange::Set(vlans.clone())),
            ));
        }
        (Some(Untagged::Default), Some(_)) => bail!("`default` takes back what --tagged says: name one of them"),
        (Some(Untagged::None), tagged) if tagged.is_none_or(VlanList::is_empty) => {
            bail!("`none` without --tagged lets no frame pass: `weft link set NIC down` does that")
        }
        (Some(Untagged::None), _) => None,
        (Some(Untagged::Vlan(vlan)), _) => Some(vlan),
        (None, Some(_)) => now.map_or(VlanSettings::default().untagged, |now| now.untagged),
    };
    Ok(Some(VlanChange::Set(VlanSettings {
        untagged,
        tagged: tagged.cloned().unwrap_or_default(),
    })))
}

pub(in crate::cli) fn run(options: &CommonOptions, args: &VlanArgs) -> Result<()> {
    let client = client(options)?;
    let topology = client.topology()?;
    let mut rows = Vec::new();
    for port in with_cable(ports(&client, Some(&args.nic))?) {
        let mut vnicd = client.vnicd()?;
        let mut vlans = vnicd.vlans(&port.name, None)?;
        let nic = topology.nics().find(|nic| nic.name == port.name);
        let of_file = nic.and_then(|nic| nic.vlans_of_file.as_ref());
        if let Some(change) = vlan_change(args.vlan, args.tagged.as_ref(), vlans.as_ref(), of_file)? {
            vlans = vnicd.vlans(&port.name, Some(&change))?;
        }
        rows.push(NicVlans { nic: port.name, vlans });
    }
    let columns = Columns::<NicVlans>::default()
        .words("NIC", |row| row.nic.clone())
        .words("UNTAGGED", |row| untagged(row.vlans.as_ref()))
        .words("TAGGED", |row| tagged(row.vlans.as_ref()));
    table::print(options.json, &rows, &columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_about_untagged_frames_is_a_vlan_none_or_the_default() {
        assert_eq!(untagged_argument("none"), Ok(Untagged::None));
        assert_eq!(untagged_argument("default"), Ok(Untagged::Default));
        assert_eq!(untagged_argument("10"), Ok(Untagged::Vlan(10)));
        for wrong in ["0", "10,11", "all", "x"] {
            assert!(untagged_argument(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_named_is_meant_and_what_lets_no_frame_pass_is_refused() {
        let list: VlanList = "20".parse().unwrap();
        let set = |untagged, tagged: &str| {
            Some(VlanChange::Set(VlanSettings {
                untagged,
                tagged: tagged.parse().unwrap(),
            }))
        };
        let now = VlanSettings {
            untagged: Some(7),
            tagged: "8".parse().unwrap(),
        };
        for (untagged, tagged, asked) in [
            (None, None, None),
            (Some(Untagged::Default), None, Some(VlanChange::Default)),
            (Some(Untagged::Vlan(10)), None, set(Some(10), "")),
            (Some(Untagged::Vlan(10)), Some(&list), set(Some(10), "20")),
            (Some(Untagged::None), Some(&list), set(None, "20")),
            (None, Some(&list), set(Some(7), "20")),
        ] {
            assert_eq!(vlan_change(untagged, tagged, Some(&now), None).unwrap(), asked);
        }
        assert_eq!(vlan_change(None, Some(&list), None, None).unwrap(), set(Some(1), "20"));
        let default = Some(Untagged::Default);
        assert_eq!(vlan_change(default, None, None, Some(&now)).unwrap(), set(Some(7), "8"));
        assert!(vlan_change(Some(Untagged::None), None, Some(&now), None).is_err());
        assert!(vlan_change(default, Some(&list), None, None).is_err());
    }
}
