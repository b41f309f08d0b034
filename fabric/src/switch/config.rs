//! The settings of a switch and the limit of its ports.

use core::fmt;

use crate::ports::PORTS_MAX;

/// Largest table that can be asked for (8 MiB of memory: two slots of 16 bytes per entry).
const TABLE_ENTRIES_LIMIT: usize = 1 << 18;

/// Settings of a switch, fixed when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// A station that was silent for longer than this is forgotten, and frames to it are flooded. Default 300 s, as
    /// IEEE 802.1D recommends.
    pub ageing_ns: u64,
    /// Most addresses in the forwarding table, up to 2¹⁸. When it is full, new addresses are not learned (counted), and
    /// frames to them are flooded. Default 4096.
    pub table_entries_max: usize,
    /// Most addresses learned on one port, so that a guest that invents addresses fills its own part only. Default 256.
    /// Trunks count as ports, but have room for the whole table.
    pub port_entries_max: usize,
    /// Secret that spreads addresses over the table. A daemon takes a random one, so that guests cannot choose
    /// addresses that are slow to find; decisions do not depend on it. Default 0.
    pub hash_seed: u64,
}

impl SwitchConfig {
    /// Addresses that the table has room for.
    pub(super) fn entries_max(&self) -> usize {
        self.table_entries_max.min(TABLE_ENTRIES_LIMIT)
    }
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            ageing_ns: 300_000_000_000,
            table_entries_max: 4096,
            port_entries_max: 256,
            hash_seed: 0,
        }
    }
}

/// The switch has [`PORTS_MAX`] ports; none was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchFull;

impl fmt::Display for SwitchFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the switch has {PORTS_MAX} ports already; use a second switch and a trunk"
        )
    }
}

impl core::error::Error for SwitchFull {}
