//! The protocol between `weft` verbs and a supervisor on `weft.sock`: one JSON request line, one JSON answer line.
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

/// Length of the longest request line, which contains names and numbers.
pub const REQUEST_LEN_MAX: u64 = 64 << 10;

/// Factor between the patience for a silent guest and for one that gives signs of life without becoming ready.
pub(crate) const BOOT_PATIENCE_FACTOR: u32 = 10;

/// A request to the supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Request {
    /// Requests a [`LabStatus`].
    Status,
    /// Requests a [`LabStatus`] now and after each change.
    Watch,
    /// Requests a [`Topology`](crate::lab::topology::Topology): nodes, switches and cables with their current settings.
    Topology,
    /// Switches a node off and on again; the answer comes when its new QEMU runs.
    Restart {
        /// Name of the node.
        node: String,
    },
    /// Switches a node off without its agent; the answer comes when that has begun.
    PowerOff {
        /// Name of the node.
        node: String,
        /// Whether to pull the plug instead of pressing the power button, which a guest may ignore.
        force: bool,
    },
    /// Changes a card's coalescing, and remembers it; the answer contains the settings in force.
    Coalesce {
        /// Name of the card: `node.ethN`.
        port: String,
        /// Settings to change.
        change: CoalescingChange,
    },
    /// Changes a cable, and remembers it; the answer contains the settings in force.
    Link {
        /// Name of the card: `node.ethN`.
        port: String,
        /// Direction to change.
        direction: Direction,
        /// Settings to change.
        change: LinkChange,
    },
    /// Changes the cable between two switches, and remembers it; the answer contains the settings in force.
    Trunk {
        /// Name of one switch.
        a: String,
        /// Name of the switch at the other end.
        b: String,
        /// Number of the trunk among those between them, from 1; needed where there are several.
        number: Option<usize>,
        /// Direction to change, between `a` and `b` as they are named here.
        direction: TrunkDirection,
        /// Settings to change.
        change: LinkChange,
    },
    /// Reconciles the lab with its file; the answer is a [`Plan`](crate::lab::plan::Plan) when everything in it has
    /// begun.
    Apply {
        /// Full path of the lab file.
        file: PathBuf,
        /// Whether to return only the plan.
        dry_run: bool,
        /// Whether to accept another file than the lab was started from.
        other_file: bool,
    },
    /// Swaps in this `vnicd` for the running one; the answer is a [`ReloadReport`] when it serves the guests again.
    Reload {
        /// Full path of the program.
        program: PathBuf,
    },
    /// Saves the lab; the answers are [`SaveNews`], the last of which is a [`SaveReport`]. Closing the connection
    /// earlier stops the save.
    Save {
        /// Full path of the folder to write.
        target: PathBuf,
        /// Whether to replace an existing save.
        replace: bool,
        /// Whether to end the lab then, without letting its guests continue.
        stop: bool,
    },
    /// Joins this connection to the agent of a node.
    Agent {
        /// Name of the node.
        node: String,
    },
    /// Ends the lab; the answer comes when only the supervisor is left.
    Down,
}

/// An answer of the supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer<T> {
    /// The request succeeded.
    Ok(T),
    /// The request failed, with one sentence.
    Error(String),
}

/// The result of a reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadReport {
    /// The `vnicd` that ran before.
    pub old: VnicdBuild,
    /// The `vnicd` that runs now.
    pub new: VnicdBuild,
    /// Reason why the old program runs again; `None` if the requested one runs.
    pub went_back: Option<String>,
    /// Number of frames that did not arrive: on links with a long delay, or within a modelled DMA.
    pub lost_frames: u64,
    /// Number of cards that had their guest before.
    pub cards: usize,
    /// Names of those cards that have not found their guest again.
    pub missing: Vec<String>,
    /// Time in milliseconds from the last frame that the old one took until the last card had its guest again.
    pub pause_ms: u64,
}

/// A report about a save in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SaveNews {
    /// A step is in progress.
    Step {
        /// Description of the step.
        what: String,
        /// Number of bytes of the step so far.
        bytes: u64,
    },
    /// The save is complete.
    Done(SaveReport),
}

/// The result of a save.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveReport {
    /// Name of the lab.
    pub lab: String,
    /// Path of the folder.
    pub folder: PathBuf,
    /// Guests that were saved.
    pub nodes: Vec<SavedGuest>,
    /// Number of bytes in the folder.
    pub bytes: u64,
    /// Time that the guests were stopped, in milliseconds.
    pub paused_ms: u64,
    /// Number of frames that did not arrive before, on links with a long delay or within a modelled DMA.
    pub lost_frames: u64,
    /// Whether the lab has ended with the save.
    pub ended: bool,
}

/// A guest that was saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedGuest {
    /// Name of the node.
    pub name: String,
    /// Length of its state in bytes.
    pub bytes: u64,
}

/// The identity of a `vnicd`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnicdBuild {
    /// Version of the program.
    pub version: String,
    /// First bytes of the SHA-256 of the program, in hexadecimal, which distinguish builds of one version.
    pub digest: String,
    /// Process of the `vnicd`.
    pub pid: u32,
}

/// The status of a lab, as `ps` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabStatus {
    /// Name of the lab.
    pub lab: String,
    /// Phase of the lab's life.
    pub phase: LabPhase,
    /// Accelerator that runs the guests' instructions.
    pub accel: Accel,
    /// Version of QEMU.
    pub qemu: String,
    /// Process of the supervisor.
    pub pid: u32,
    /// Process of `vnicd`, while it runs.
    pub vnicd_pid: Option<u32>,
    /// Number of times that `vnicd` was started again.
    pub vnicd_restarts: u32,
    /// Status of each guest.
    pub nodes: Vec<NodeStatus>,
}

/// The phases of a lab's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabPhase {
    /// Guests are booting for the first time.
    Starting,
    /// All guests were ready once, or ran without an agent.
    Up,
    /// The lab is being ended.
    Stopping,
}

/// The status of a node, as `ps` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Name of the node.
    pub name: String,
    /// Phase of the node's life.
    pub phase: NodePhase,
    /// Whether Weft's agent runs in it for certain: it boots a recipe, or cloud-init installs the agent.
    pub recipe: bool,
    /// Why it is not running, what it shows without an agent, or what the guest could not set up.
    pub note: Option<String>,
    /// First IPv4 address.
    pub address: Option<String>,
    /// First IPv6 address, except the link-local ones.
    #[serde(default)]
    pub address6: Option<String>,
    /// Labels of the user.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Number of processors.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Process of QEMU, while it runs.
    pub pid: Option<u32>,
    /// Time from the start of QEMU to the agent's first answer, in milliseconds.
    pub boot_ms: Option<u64>,
    /// Release of the kernel, as the agent reports it; `None` while it does not answer.
    pub kernel: Option<String>,
    /// Time that it has shown nothing while it boots, in milliseconds.
    #[serde(default)]
    pub silent_ms: Option<u64>,
}

/// The phases of a node's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodePhase {
    /// QEMU is being started, or waits until others have booted.
    Starting,
    /// QEMU runs, and the agent has not answered.
    Booting,
    /// The guest runs the user's image, and no agent has answered; the note says what it shows instead.
    NoAgent,
    /// The agent answers.
    Ready,
    /// QEMU has ended; the note gives the reason.
    Stopped,
}

impl NodePhase {
    /// Returns the word that is shown.
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
