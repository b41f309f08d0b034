//! What `weft` verbs and a supervisor say to each other on `weft.sock`: one JSON request line, one JSON answer line.
//! After the answer to `watch` a line per change of state follows; after the answer to `agent` the frames of a guest's
//! agent (`docs/spec/agent-protocol.md`).

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    accel::Accel,
    vnicd_client::{
        TrunkDirection,
        report::{CoalescingChange, Direction, LinkChange},
    },
};

/// Longest request line: names and numbers.
pub const REQUEST_LEN_MAX: u64 = 64 << 10;

/// A guest that goes on and on without ever being ready is given up after so many times what a silent one is given.
pub(crate) const BOOT_PATIENCE_FACTOR: u32 = 10;

/// A request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Request {
    /// Answers a [`LabStatus`].
    Status,
    /// Answers a [`LabStatus`] now and after each change.
    Watch,
    /// Answers a [`Topology`](crate::lab::topology::Topology): nodes, switches and cables with what is set on them now.
    Topology,
    /// Switches a node off and on again; answers when its new QEMU runs.
    Restart {
        /// The node.
        node: String,
    },
    /// Switches a node off without its agent; answers when that is begun.
    PowerOff {
        /// The node.
        node: String,
        /// Pull the plug instead of pressing the power button, which a guest may not heed.
        force: bool,
    },
    /// Changes a card's coalescing, and remembers it; answers the settings in force.
    Coalesce {
        /// `node.ethN`.
        port: String,
        /// What to change.
        change: CoalescingChange,
    },
    /// Changes a cable, and remembers it; answers the settings in force.
    Link {
        /// `node.ethN`.
        port: String,
        /// Which way.
        direction: Direction,
        /// What to change.
        change: LinkChange,
    },
    /// Changes the cable between two switches, and remembers it; answers the settings in force.
    Trunk {
        /// A switch.
        a: String,
        /// The switch at the other end.
        b: String,
        /// Which of the trunks between them, from 1; needed where there are several.
        number: Option<usize>,
        /// Which way, as `a` and `b` are named here.
        direction: TrunkDirection,
        /// What to change.
        change: LinkChange,
    },
    /// Makes the lab what its file says now; answers a [`Plan`](crate::lab::plan::Plan) when all that was begun.
    Apply {
        /// Full path of the lab file.
        file: PathBuf,
        /// Only answer what would be done.
        dry_run: bool,
        /// Also if the lab was started from another file.
        other_file: bool,
    },
    /// Swaps this `vnicd` in for the one that runs; answers a [`ReloadReport`] when it serves the guests again.
    Reload {
        /// Full path of the program.
        program: PathBuf,
    },
    /// Saves the lab; answers [`SaveNews`], the last of which is a [`SaveReport`]. Whoever closes the connection before stops it.
    Save {
        /// Full path of the folder to write.
        target: PathBuf,
        /// Also if it is a saved lab already.
        replace: bool,
        /// End the lab then, without letting its guests go on.
        stop: bool,
    },
    /// Joins this connection to the agent of a node.
    Agent {
        /// The node.
        node: String,
    },
    /// Ends the lab; answers when nothing is left but the supervisor's last breath.
    Down,
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer<T> {
    /// Done.
    Ok(T),
    /// Not done; one sentence.
    Error(String),
}

/// What a reload did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadReport {
    /// The `vnicd` that ran before.
    pub old: VnicdBuild,
    /// The one that runs now.
    pub new: VnicdBuild,
    /// Why that is the old program again; none if it is the one that was asked for.
    pub went_back: Option<String>,
    /// Frames that did not arrive: on links with a long delay, or within a modelled DMA.
    pub lost_frames: u64,
    /// Cards that had their guest before.
    pub cards: usize,
    /// Of these, the ones that have not found their guest again.
    pub missing: Vec<String>,
    /// From the last frame that the old one took to the time when the last card had its guest again, in milliseconds.
    pub pause_ms: u64,
}

/// What is told of a save.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SaveNews {
    /// What is being done.
    Step {
        /// In words.
        what: String,
        /// Bytes of it so far.
        bytes: u64,
    },
    /// Done.
    Done(SaveReport),
}

/// What was saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveReport {
    /// The lab.
    pub lab: String,
    /// The folder.
    pub folder: PathBuf,
    /// Its guests.
    pub nodes: Vec<SavedGuest>,
    /// All bytes in the folder.
    pub bytes: u64,
    /// How long the guests were stopped, in milliseconds.
    pub paused_ms: u64,
    /// Frames that did not arrive before, on links with a long delay or within a modelled DMA.
    pub lost_frames: u64,
    /// Whether the lab has ended with it.
    pub ended: bool,
}

/// A guest that was saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedGuest {
    /// Its name.
    pub name: String,
    /// Bytes of its state.
    pub bytes: u64,
}

/// Which `vnicd` it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnicdBuild {
    /// Its version.
    pub version: String,
    /// First bytes of the SHA-256 of the program, in hexadecimal: builds of one version differ in it.
    pub digest: String,
    /// Its process.
    pub pid: u32,
}

/// A lab as `ps` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabStatus {
    /// Name.
    pub lab: String,
    /// Where it is in its life.
    pub phase: LabPhase,
    /// What runs the guests' instructions.
    pub accel: Accel,
    /// QEMU's version.
    pub qemu: String,
    /// The supervisor's process.
    pub pid: u32,
    /// The process of `vnicd`, while it runs.
    pub vnicd_pid: Option<u32>,
    /// How often `vnicd` was started again.
    pub vnicd_restarts: u32,
    /// Its guests.
    pub nodes: Vec<NodeStatus>,
}

/// Where a lab is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabPhase {
    /// Guests are booting for the first time.
    Starting,
    /// All guests were ready once, or ran without an agent.
    Up,
    /// Being ended.
    Stopping,
}

/// A node as `ps` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Name.
    pub name: String,
    /// Where it is in its life.
    pub phase: NodePhase,
    /// Whether our agent runs in it for certain: it boots our recipe, or cloud-init puts the agent in.
    pub recipe: bool,
    /// Why it is not running, what it shows without an agent, or what the guest could not set up.
    pub note: Option<String>,
    /// First IPv4 address.
    pub address: Option<String>,
    /// First IPv6 address, beside the link-local ones.
    #[serde(default)]
    pub address6: Option<String>,
    /// The user's words about it.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Processors.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// QEMU's process, while it runs.
    pub pid: Option<u32>,
    /// From the start of QEMU to the agent's first word, in milliseconds.
    pub boot_ms: Option<u64>,
    /// Kernel release, as the agent says; none while it does not answer.
    pub kernel: Option<String>,
    /// While it boots: for how long it has shown nothing, in milliseconds.
    #[serde(default)]
    pub silent_ms: Option<u64>,
}

/// Where a node is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodePhase {
    /// QEMU is being started, or waits until others have booted.
    Starting,
    /// QEMU runs, the agent has not answered.
    Booting,
    /// It runs an image of its own, and no agent has answered; the note says what it shows instead.
    NoAgent,
    /// The agent answers.
    Ready,
    /// QEMU has ended; the note says why.
    Stopped,
}

impl NodePhase {
    /// The word shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Booting => "booting",
            Self::NoAgent => "no agent",
            Self::Ready => "ready",
            Self::Stopped => "stopped",
        }
    }
}
