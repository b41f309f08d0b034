//! What `vnicd --config` reads: switches, ports with their settings, trunks. Plain data in the daemon's own JSON names;
//! nothing here checks a value, `lab` has done that.

use serde::{Deserialize, Serialize};

use crate::lab::Strategy;

/// The whole configuration of one `vnicd`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnicdConfig {
    /// Switches by name.
    pub switches: Vec<SwitchConfig>,
    /// One port per NIC.
    pub ports: Vec<PortConfig>,
    /// Links between switches.
    pub trunks: Vec<TrunkConfig>,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchConfig {
    /// Name.
    pub name: String,
}

/// A port with its card, cable and vhost-user socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortConfig {
    /// `node.ethN`.
    pub name: String,
    /// Switch it belongs to.
    pub switch: String,
    /// Socket that `vnicd` listens on.
    pub listen: String,
    /// MAC address of the card.
    pub mac: String,
    /// Queue pairs offered.
    pub queue_pairs: u16,
    /// MTU offered, bytes of payload.
    pub mtu: u32,
    /// Checksum and segmentation offloads offered.
    pub offloads: bool,
    /// Interrupt coalescing.
    pub coalescing: Coalescing,
    /// Modelled DMA engine.
    pub dma: Dma,
    /// The cable, both directions.
    pub link: PortLink,
}

/// Interrupt coalescing of one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coalescing {
    /// Strategy.
    pub strategy: Strategy,
    /// Longest wait, in nanoseconds.
    pub delay_ns: u64,
    /// Packets that end the wait; 0 is no limit.
    pub frames: u32,
    /// Whether the card looks at marks.
    pub marks: bool,
}

impl Default for Coalescing {
    /// The card's default in GF: time-out, 75 µs.
    fn default() -> Self {
        Self {
            strategy: Strategy::Timeout,
            delay_ns: 75_000,
            frames: 0,
            marks: true,
        }
    }
}

/// Modelled DMA engine of one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dma {
    /// Set-up time per transfer, in nanoseconds.
    pub setup_ns: u64,
    /// Rate in bits per second; 0 is unlimited.
    pub rate_bps: u64,
    /// Transfers under way at a time.
    pub parallelism: u32,
}

impl Default for Dma {
    fn default() -> Self {
        Self {
            setup_ns: 0,
            rate_bps: 0,
            parallelism: 1,
        }
    }
}

/// Both directions of a NIC's cable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortLink {
    /// Switch to guest.
    pub to_guest: LinkSettings,
    /// Guest to switch.
    pub from_guest: LinkSettings,
}

/// One direction of a cable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSettings {
    /// Plugged in.
    pub up: bool,
    /// Bits per second; 0 is unlimited.
    pub rate_bps: u64,
    /// Propagation delay in nanoseconds.
    pub delay_ns: u64,
    /// Room in front of the link, in bytes.
    pub queue_bytes: u64,
    /// Largest payload, in bytes.
    pub mtu: u32,
    /// Loss, in millionths.
    pub loss_ppm: u32,
    /// Reordering, in millionths.
    pub reorder_ppm: u32,
    /// How long a reordered frame is held back, in nanoseconds.
    pub reorder_delay_ns: u64,
    /// Duplication, in millionths.
    pub duplicate_ppm: u32,
    /// Corruption, in millionths.
    pub corrupt_ppm: u32,
    /// Deliver corrupted frames.
    pub corrupt_past_fcs: bool,
    /// Seed of the link's random choices.
    pub seed: u64,
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self {
            up: true,
            rate_bps: 0,
            delay_ns: 0,
            queue_bytes: 1 << 20,
            mtu: 9000,
            loss_ppm: 0,
            reorder_ppm: 0,
            reorder_delay_ns: 0,
            duplicate_ppm: 0,
            corrupt_ppm: 0,
            corrupt_past_fcs: false,
            seed: 0,
        }
    }
}

/// A link between two switches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrunkConfig {
    /// First switch.
    pub a: String,
    /// Second switch.
    pub b: String,
    /// The cable.
    pub link: TrunkLink,
}

/// Both directions of a trunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrunkLink {
    /// First to second.
    pub a_to_b: LinkSettings,
    /// Second to first.
    pub b_to_a: LinkSettings,
}
