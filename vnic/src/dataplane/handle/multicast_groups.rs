//! Multicast groups as hosts change and see them. The tables that follow are written by `dataplane::multicast_groups`.

use ether::MacAddr;
use firmware::multicast::{TreeShape, rows};

use super::Fabric;
use crate::dataplane::DataPlane;
use crate::dataplane::error::{FabricError, invalid};
use vnicd_protocol::{GroupInfo, GroupMember};

impl Fabric {
    /// All multicast groups with their members.
    pub fn groups(&self) -> Vec<GroupInfo> {
        self.runner.with(|plane, _| plane.group_infos())
    }

    /// Makes the card of a port a member of a group, or not one any more; returns all groups.
    ///
    /// # Errors
    /// No such port, group 0, an address that is not known, or a limit; then nothing was changed.
    pub fn change_group(&self, port: &str, group: u16, join: bool) -> Result<Vec<GroupInfo>, FabricError> {
        self.runner.with(|plane, now| {
            let index = plane
                .card_index(port)
                .ok_or_else(|| FabricError::NoSuchPort(port.to_owned()))?;
            if join {
                plane.join_configured(index, group, now)?;
            } else {
                plane.change_group(index, group, false, None, now).map_err(invalid)?;
            }
            Ok(plane.group_infos())
        })
    }

    /// Chooses the tree of a group, which may have no members yet; returns all groups.
    ///
    /// # Errors
    /// Group 0 or an unknown shape; then nothing was changed.
    pub fn set_tree(&self, group: u16, tree: &str) -> Result<Vec<GroupInfo>, FabricError> {
        let shape: TreeShape = tree.parse().map_err(invalid)?;
        if group == 0 {
            return Err(invalid("groups are numbered from 1"));
        }
        self.runner.with(|plane, now| {
            plane.set_tree(group, shape, now);
            Ok(plane.group_infos())
        })
    }
}

impl DataPlane {
    /// Each group of each network, and the trees that wait for members.
    fn group_infos(&self) -> Vec<GroupInfo> {
        let name = |card: usize| self.cards()[card].name().to_owned();
        let info = |number: u16, members: &[(MacAddr, usize)]| {
            let shape = self.groups.shape(number);
            let member = |own: usize| {
                let row = rows(shape, members.len(), own).swap_remove(own);
                let (mac, port) = members[own];
                let children = row.children().iter();
                GroupMember {
                    port: name(port),
                    mac: mac.to_string(),
                    children: children.map(|child| name(members[usize::from(child.rank)].1)).collect(),
                }
            };
            GroupInfo {
                group: number,
                tree: shape.name().to_owned(),
                members: (0..members.len()).map(member).collect(),
            }
        };
        let all = self.groups.all();
        let mut infos: Vec<_> = all.map(|(number, members)| info(number, members)).collect();
        infos.sort_by_key(|info| info.group);
        infos
    }
}
