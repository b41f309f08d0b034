//! The command line of `weft`: verbs, options and their help. Nothing here does anything.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::nic_queues::{QueueList, queue_list_argument};
use super::switch::{Untagged, untagged_argument};
use crate::{
    accel::AccelChoice,
    lab::{
        SteeringMode,
        cable::{Distribution, EcnThreshold, Loss, QueueLimit},
        settings::{
            FRAMES_MAX, coalescing_delay_argument, jitter_argument, link_delay_argument, reorder_delay_argument,
        },
        units::{Rate, Share, Size, Span},
    },
    vnicd_client::report::VlanList,
};

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed; one sentence on standard error says why
  2    the command line or the lab file has a mistake
  125  exec: weft itself failed; otherwise exec ends with the command's own status
       (126: it cannot be started, 127: it was not found)
  130  interrupted";

/// Labs of real QEMU guests on programmable network cards.
#[derive(Debug, Parser)]
#[command(name = "weft", version, max_term_width = 110, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub struct Cli {
    /// The lab to talk to. Needed only when more than one runs.
    #[arg(short, long, global = true, env = "WEFT_LAB", value_name = "NAME")]
    pub lab: Option<String>,
    /// Print tables as JSON.
    #[arg(long, global = true)]
    pub json: bool,
    /// Say more of what happens (twice: everything).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What `weft` can do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Is this machine able to run labs? What is missing, and how to get it.
    Check,
    /// Write an example lab file.
    Init {
        /// File to write.
        #[arg(default_value = "lab.toml")]
        file: PathBuf,
        /// Replace the file if it exists.
        #[arg(long)]
        force: bool,
    },
    /// Start a lab and keep it until Ctrl-C; with -d, leave it running. If it runs already, make it what its file says now.
    ///
    /// A lab that runs is compared with its file: the plan is said, nodes, switches and trunks are added and removed, settings are
    /// changed, and everything else runs on. Settings that were changed meanwhile (`weft link set`, `nicctl`) are those of the
    /// file again. Nodes whose guests would see a change (memory, MTU, …) are switched off and on again.
    Up(UpArgs),
    /// Start a lab and leave it running: `up` with -d.
    Deploy(DeployArgs),
    /// Wait until nodes are ready.
    Wait {
        /// Nodes (default: all that run our agent).
        nodes: Vec<String>,
        /// Give up after this time.
        #[arg(long, default_value = "120s")]
        timeout: Span,
    },
    /// Show the running labs and their nodes.
    #[command(visible_aliases = ["inspect", "ls"])]
    Ps,
    /// Run a command in a node. Its output, error output and exit status become weft's.
    ///
    /// In several nodes it runs at once, each line with its node before it, without standard input; the exit status is that of the
    /// first node, in the order of the lab, where it is not 0.
    Exec(ExecArgs),
    /// Copy a file or folder into a node or out of it.
    Cp {
        /// Copy a folder with all that is in it; that is so without it.
        #[arg(short, short_alias = 'R', long)]
        recursive: bool,
        /// What to copy: `PATH` or `NODE:PATH`.
        source: String,
        /// Where to: `PATH` or `NODE:PATH`.
        destination: String,
    },
    /// Open a shell in a node (Ctrl-D ends it), or its serial line if it does not run our agent (Ctrl-] leaves it).
    Console {
        /// The node.
        node: String,
        /// The serial line, even if there is an agent.
        #[arg(long)]
        serial: bool,
    },
    /// Show what a node printed on its serial line, or the log of `vnicd`, or of the supervisor (`weft`); of a lab that failed,
    /// too, until `weft clean`.
    Logs {
        /// A node, `vnicd` or `weft`.
        what: String,
        /// Go on showing what is added, until Ctrl-C.
        #[arg(short, long)]
        follow: bool,
    },
    /// Switch nodes off: by their agents, or by the power button where none answers.
    Stop {
        /// The node; or several: `all`, `n*`, `n[1-3]`, `n1,n4`.
        #[arg(value_name = "NODES")]
        node: String,
        /// Pull the plug, whatever the guest is doing.
        #[arg(short, long)]
        force: bool,
    },
    /// Switch nodes on that are off.
    Start {
        /// The node; or several: `all`, `n*`, `n[1-3]`, `n1,n4`.
        #[arg(value_name = "NODES")]
        node: String,
    },
    /// Switch nodes off and on again.
    Restart {
        /// The node; or several: `all`, `n*`, `n[1-3]`, `n1,n4`.
        #[arg(value_name = "NODES")]
        node: String,
    },
    /// Let every node ping every other one; fails unless all answer.
    Pingall(super::pingall::PingallArgs),
    /// Describe the nodes to ssh, Ansible, or as lines for /etc/hosts.
    ///
    /// ssh and Ansible reach a node through its agent, so no address of it must be reachable from here: the node needs an ssh
    /// server on its port 22, and nc.
    Inventory(super::inventory::InventoryArgs),
    /// Draw a lab: its nodes, switches and cables.
    Graph(super::graph::GraphArgs),
    /// The programmable cards: counters, interrupt coalescing, state.
    #[command(subcommand)]
    Nic(NicVerb),
    /// The cables between cards and switches.
    #[command(subcommand)]
    Link(LinkVerb),
    /// The cables between switches.
    #[command(subcommand)]
    Trunk(TrunkVerb),
    /// The switches: their ports, what they know, what they counted and dropped.
    #[command(subcommand)]
    Switch(SwitchVerb),
    /// Write the frames of cards, both ways, as pcapng, to standard output.
    #[command(after_help = dissector_help())]
    Capture(CaptureArgs),
    /// End a lab.
    #[command(visible_alias = "destroy")]
    Down {
        /// End all labs.
        #[arg(long)]
        all: bool,
    },
    /// Save a running lab in a folder; `weft up --restore` goes on with it.
    ///
    /// The folder holds the guests, what is set on cards and cables, and what the guests boot.
    /// All guests are stopped at the same time, written to the folder one after the other, and go on (--stop: the lab ends). Frames
    /// that are under way arrive before, unless a cable delays them by more than half a second: those are lost, as with a cable that is
    /// pulled. A lab that goes on from a save has its guests with their memory, processes, open connections and timers, and the
    /// settings that were in force. Counters begin with 0, switches learn addresses and find their spanning trees anew, captures
    /// and traces are not there, commands of `weft exec` have ended, and connections to the outside (`uplink`) are gone. The clocks of the
    /// guests go on where they stood, behind the time of the day: `weft exec all -- date -s @$(date +%s)` sets them.
    ///
    /// Not possible with nodes that boot a disk of their own or have folders of this machine (`mount`).
    Save(SaveArgs),
    /// Remove what dead labs left behind and the logs of those that failed, and with --cache the images built so far.
    Clean {
        /// Remove the built images too.
        #[arg(long)]
        cache: bool,
    },
    /// Two guests, one switch, seven interrupt settings: measure them and explain the result.
    Demo(DemoArgs),
    /// Print a completion script for a shell.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Options of `up`.
#[derive(Args, Debug)]
pub struct UpArgs {
    /// The lab file.
    #[arg(default_value = "lab.toml")]
    pub file: PathBuf,
    /// Return when the lab is up and leave it running.
    #[arg(short, long)]
    pub detach: bool,
    /// Only say what would be done: what `up` starts, or changes of the lab that runs.
    #[arg(long)]
    pub dry_run: bool,
    /// Make a running lab of this name what the file says, even if it was started from another file.
    #[arg(long)]
    pub reconcile: bool,
    /// Go on with a saved lab (`weft save`) instead of starting one: under the same QEMU, and kvm or tcg as before.
    ///
    /// The folder must stay as long as the lab runs. Restore only what you trust, as with any virtual machine.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["file", "dry_run", "reconcile"])]
    pub restore: Option<PathBuf>,
    /// How guests run.
    #[command(flatten)]
    pub guests: GuestArgs,
    /// Be the supervisor behind `up --detach`.
    #[arg(long, hide = true)]
    pub supervise: bool,
}

/// Options of `save`.
#[derive(Args, Debug)]
pub struct SaveArgs {
    /// The folder to write (default: the lab's name with .save behind it). It needs about as much room as the guests' memory.
    #[arg(value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Replace the folder if it is a saved lab.
    #[arg(long)]
    pub force: bool,
    /// End the lab with its saved state instead of letting the guests go on.
    #[arg(long)]
    pub stop: bool,
}

/// Options of `deploy`.
#[derive(Args, Debug)]
pub struct DeployArgs {
    /// The lab file (default: lab.toml).
    pub file: Option<PathBuf>,
    /// The lab file, as containerlab has it.
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub topo: Option<PathBuf>,
    /// How guests run.
    #[command(flatten)]
    pub guests: GuestArgs,
}

impl DeployArgs {
    /// What `up` is told for it.
    #[must_use]
    pub fn detached(&self) -> UpArgs {
        UpArgs {
            file: (self.file.as_ref().or(self.topo.as_ref()))
                .cloned()
                .unwrap_or_else(|| PathBuf::from("lab.toml")),
            detach: true,
            dry_run: false,
            reconcile: false,
            restore: None,
            guests: self.guests.clone(),
            supervise: false,
        }
    }
}

/// How guests run.
#[derive(Args, Clone, Debug)]
pub struct GuestArgs {
    /// What runs the guests' instructions: auto, kvm or tcg. `auto` takes KVM only after a guest really booted under it.
    #[arg(long, default_value = "auto", value_parser = parse_accel)]
    pub accel: AccelChoice,
    /// Give up on a node that boots and shows nothing for this time: it prints nothing, is not reset, and its agent does not
    /// answer. One that goes on, but is not ready after ten times as long, is given up, too.
    #[arg(long, default_value = "180s", value_name = "TIME")]
    pub boot_timeout: Span,
}

fn parse_accel(text: &str) -> Result<AccelChoice, String> {
    text.parse()
}

/// Options of `exec`.
#[derive(Args, Debug)]
pub struct ExecArgs {
    /// The node; or several: `all`, `n*`, `n[1-3]`, `n1,n4`.
    #[arg(value_name = "NODES")]
    pub node: String,
    /// Give the command a terminal: keys go to it, Ctrl-C too.
    #[arg(short, long)]
    pub tty: bool,
    /// Pass standard input on; that is so without it.
    #[arg(short, long, overrides_with = "no_stdin")]
    pub interactive: bool,
    /// Do not pass standard input on (for use in loops that read it).
    #[arg(short = 'n', long)]
    pub no_stdin: bool,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Verbs about cards.
#[derive(Debug, Subcommand)]
pub enum NicVerb {
    /// Frames, drops, and interrupts with their reasons.
    Stats {
        /// `NODE` or `NODE.ethN` (default: all).
        nic: Option<String>,
    },
    /// Show or change when a card interrupts its guest.
    Coalesce {
        /// `NODE` or `NODE.ethN`.
        nic: String,
        /// The strategy, such as open-mx; vnicd says which there are if it does not know it.
        strategy: Option<String>,
        /// Longest time a packet waits for its interrupt.
        #[arg(long, value_name = "TIME", value_parser = coalescing_delay_argument)]
        delay: Option<Span>,
        /// Interrupt when this many packets wait; 0: no such limit.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(FRAMES_MAX)))]
        frames: Option<u32>,
        /// Whether the card looks at marks.
        #[arg(long)]
        marks: Option<OnOff>,
    },
    /// Show or change which receive queue a frame goes to.
    Steering {
        /// `NODE` or `NODE.ethN`.
        nic: String,
        /// What frames are told apart by.
        mode: Option<SteeringMode>,
        /// Queues of the endpoints 0, 1, …, such as 0,1,1, repeated behind the end; or even.
        #[arg(long, value_name = "QUEUES", value_parser = queue_list_argument)]
        endpoints: Option<QueueList>,
        /// Queues of the 128 values of the flow hash, repeated behind the end; or even.
        #[arg(long, value_name = "QUEUES", value_parser = queue_list_argument)]
        indirection: Option<QueueList>,
    },
    /// Show or change by how many fragments a card moves the mark of the medium messages that its guest sends.
    #[command(
        after_help = "The frames keep their order. That they change it is a fault of the cable: weft link set NIC --reorder 5% --reorder-delay 50us"
    )]
    Misorder {
        /// `NODE` or `NODE.ethN`.
        nic: String,
        /// How many fragments before the last; 0: the mark stays where the driver put it.
        #[arg(value_parser = clap::value_parser!(u8).range(0..=i64::from(firmware::MISORDER_DEGREE_MAX)))]
        degree: Option<u8>,
    },
    /// Show or change the VLANs of a card at its switch.
    Vlan {
        /// `NODE` or `NODE.ethN`.
        nic: String,
        /// The VLAN of frames without a tag, none for a port that drops them, or default for one of which nobody says anything.
        /// Without --tagged, a VLAN makes it an access port.
        #[arg(value_name = "VLAN|none|default", value_parser = untagged_argument)]
        vlan: Option<Untagged>,
        /// VLANs that the guest sees with their tags, such as 10,20-30, or all.
        #[arg(long, value_name = "LIST")]
        tagged: Option<VlanList>,
    },
    /// What each receive queue counted.
    Queues {
        /// `NODE` or `NODE.ethN` (default: all).
        nic: Option<String>,
    },
    /// What adaptive moderation measured and chose: a row for each receive queue under which it is on.
    Adaptive {
        /// `NODE` or `NODE.ethN` (default: all).
        nic: Option<String>,
    },
    /// Show or set the polling watchdog: interrupts only when the guest does not take its packets by itself.
    Watchdog {
        /// `NODE` or `NODE.ethN`.
        nic: String,
        /// After what time it looks; `off` for none.
        #[arg(value_name = "TIME|off", value_parser = watchdog_delay)]
        delay: Option<WatchdogDelay>,
    },
    /// Multicast groups of cards: who is in which, and what each card did with their packets.
    #[command(subcommand)]
    Group(GroupVerb),
    /// What a node's cards do, event by event, as a picture or as a list.
    ///
    /// Switches the flight recorders of the cards on, off again at the end: after --seconds, or with Ctrl-C. Then writes what
    /// they told to standard output.
    Trace(TraceArgs),
    /// Swap a rebuilt vnicd in under running guests; their links, rings and settings stay.
    ///
    /// It is tried first; if it does not start, the running one goes on. Guests are without network for as long as their QEMU takes to
    /// find it, a second at most.
    Reload {
        /// The new vnicd, such as target/course/vnicd (default: the one beside this weft, or in $WEFT_BIN_DIR).
        program: Option<std::path::PathBuf>,
    },
    /// Copies of the cards that are connected to themselves.
    CopyEngine {
        /// `NODE` or `NODE.ethN` (default: all).
        nic: Option<String>,
    },
    /// Connection, rings, offloads.
    Info {
        /// `NODE` or `NODE.ethN` (default: all).
        nic: Option<String>,
    },
}

/// The delay of a watchdog in nanoseconds; 0 = off.
#[derive(Clone, Copy, Debug)]
pub struct WatchdogDelay(pub u64);

fn watchdog_delay(text: &str) -> Result<WatchdogDelay, String> {
    if text == "off" {
        return Ok(WatchdogDelay(0));
    }
    text.parse::<Span>().map(|span| WatchdogDelay(span.0))
}

/// Verbs about multicast groups.
#[derive(Debug, Subcommand)]
pub enum GroupVerb {
    /// Show the groups, the children of each member when it sends, and what was counted.
    List,
    /// Make a card a member of a group.
    Join {
        /// `NODE` or `NODE.ethN`.
        nic: String,
        /// Number of the group.
        #[arg(value_parser = clap::value_parser!(u16).range(1..))]
        group: u16,
    },
    /// Take a card out of a group.
    Leave {
        /// `NODE` or `NODE.ethN`.
        nic: String,
        /// Number of the group.
        #[arg(value_parser = clap::value_parser!(u16).range(1..))]
        group: u16,
    },
    /// Choose the shape of a group's trees; the group starts anew.
    Tree {
        /// Number of the group.
        #[arg(value_parser = clap::value_parser!(u16).range(1..))]
        group: u16,
        /// The shape.
        #[arg(value_parser = ["binary", "binomial", "chain"])]
        shape: String,
    },
}

/// Options of `nic trace`.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// `NODE`, or `NODE.ethN`.
    pub node: String,
    /// Only this card of the node: 0 is eth0.
    #[arg(long, value_name = "N")]
    pub card: Option<usize>,
    /// Write to a file instead.
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// `perfetto` is JSON for https://ui.perfetto.dev, `text` a line per event.
    #[arg(long, value_name = "FORMAT", default_value = "perfetto")]
    pub format: TraceFormat,
    /// End by itself after so long.
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Option<u64>,
}

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TraceFormat {
    /// Chrome's trace event format.
    Perfetto,
    /// Lines.
    Text,
}

/// Verbs about cables.
#[derive(Debug, Subcommand)]
pub enum LinkVerb {
    /// Show the cables of all NICs, or of one.
    Ls {
        /// `NODE` or `NODE.ethN` (default: all).
        nic: Option<String>,
    },
    /// Change a NIC's cable while the lab runs; without options, show it.
    Set(Box<LinkArgs>),
}

/// Options of `link set`.
#[derive(Args, Debug)]
pub struct LinkArgs {
    /// `NODE.ethN`; `NODE` is enough for a node with one NIC.
    pub nic: Option<String>,
    /// Plug the cable in, or pull it out. The guest sees its card's carrier change.
    pub state: Option<UpDown>,
    /// Only one direction of the cable.
    #[arg(long, default_value = "both")]
    pub direction: DirectionArg,
    /// What to change.
    #[command(flatten)]
    pub change: CableArgs,
}

/// Verbs about switches.
#[derive(Debug, Subcommand)]
pub enum SwitchVerb {
    /// Show the switches of the lab.
    Ls,
    /// Show the stations that switches know, and behind which port.
    Macs {
        /// The switch (default: all).
        switch: Option<String>,
    },
    /// Show the VLANs that each port carries, without and with a tag.
    Vlans {
        /// The switch (default: all).
        switch: Option<String>,
    },
    /// Show the spanning tree: the root, and the role and state of each port.
    Stp {
        /// The switch (default: all).
        switch: Option<String>,
    },
    /// Show the IP multicast groups that are wanted behind each port, where a switch snoops.
    Groups {
        /// The switch (default: all).
        switch: Option<String>,
    },
    /// Show what each port counted, and every frame that ended in the switch under its reason.
    Stats {
        /// The switch (default: all).
        switch: Option<String>,
    },
}

/// Verbs about cables between switches.
#[derive(Debug, Subcommand)]
pub enum TrunkVerb {
    /// Show the cables between switches.
    Ls,
    /// Change the cable between two switches while the lab runs; without options, show it.
    Set(Box<TrunkArgs>),
}

/// Options of `trunk set`.
#[derive(Args, Debug)]
pub struct TrunkArgs {
    /// A switch.
    pub from: String,
    /// The switch at the other end.
    pub to: String,
    /// Plug the cable in, or pull it out.
    pub state: Option<UpDown>,
    /// Which of several cables between the two, from 1, in the order of the lab file.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub number: Option<u16>,
    /// Only the direction from the first switch to the second.
    #[arg(long)]
    pub one_way: bool,
    /// What to change.
    #[command(flatten)]
    pub change: CableArgs,
}

/// What can be changed of any cable.
#[derive(Args, Debug)]
pub struct CableArgs {
    /// Bit rate, such as 10Gbit, or unlimited.
    #[arg(long)]
    pub rate: Option<Rate>,
    /// Bytes that may be sent at once after a pause: the size of a token bucket; 0B for none.
    #[arg(long, value_name = "SIZE")]
    pub burst: Option<Size>,
    /// Propagation delay.
    #[arg(long, value_name = "TIME", value_parser = link_delay_argument)]
    pub delay: Option<Span>,
    /// How far delays are from --delay; 0 for not at all.
    #[arg(long, value_name = "TIME", value_parser = jitter_argument)]
    pub jitter: Option<Span>,
    /// How they spread around it.
    #[arg(long, visible_alias = "distribution", value_name = "KIND")]
    pub jitter_distribution: Option<Distribution>,
    /// Whether frames with a short delay overtake those before them.
    #[arg(long, value_name = "on|off")]
    pub jitter_reorders: Option<OnOff>,
    /// Room in front of a link with a rate, such as 64K, "100 packets" or 20ms.
    #[arg(long, value_name = "LENGTH")]
    pub queue: Option<QueueLimit>,
    /// Length of that queue above which packets of ECN-capable transports are marked, or off.
    #[arg(long, value_name = "LENGTH|off")]
    pub ecn_threshold: Option<EcnThreshold>,
    /// Largest payload in bytes.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(68..=9000))]
    pub mtu: Option<u32>,
    /// Probability that a frame is lost, such as 0.1%; or bursts of losses, such as "gemodel 1% 25%" (P, R, 1-H, 1-K).
    #[arg(long, value_name = "SHARE|MODEL")]
    pub loss: Option<Loss>,
    /// Every so many frames, one is lost; 0 for none.
    #[arg(long, value_name = "N")]
    pub loss_every: Option<u32>,
    /// Probability that a frame is held back by --reorder-delay.
    #[arg(long, value_name = "SHARE")]
    pub reorder: Option<Share>,
    /// How long a reordered frame is held back.
    #[arg(long, value_name = "TIME", value_parser = reorder_delay_argument)]
    pub reorder_delay: Option<Span>,
    /// Probability that a frame arrives twice.
    #[arg(long, value_name = "SHARE")]
    pub duplicate: Option<Share>,
    /// Probability that one bit of a frame is flipped.
    #[arg(long, value_name = "SHARE")]
    pub corrupt: Option<Share>,
    /// Deliver corrupted frames instead of dropping them.
    #[arg(long, value_name = "on|off")]
    pub corrupt_past_fcs: Option<OnOff>,
    /// Seed of the random choices.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Options of `capture`.
#[derive(Args, Debug)]
pub struct CaptureArgs {
    /// `NODE` or `NODE.ethN` (default: all).
    pub nics: Vec<String>,
    /// Bytes kept of each frame (default: all).
    #[arg(long, value_name = "BYTES")]
    pub snaplen: Option<u32>,
    /// Write to a file instead.
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

/// Options of `demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Folder for text, JSON and charts.
    #[arg(short, long, default_value = "weft-demo", value_name = "FOLDER")]
    pub output: PathBuf,
    /// Also write the frames of the first round as pcapng (TCP is then measured in the other rounds only).
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Rounds in which the strategies alternate.
    #[arg(long, default_value_t = crate::demo::ROUNDS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub rounds: u32,
    /// How guests run.
    #[command(flatten)]
    pub guests: GuestArgs,
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    /// On.
    On,
    /// Off.
    Off,
}

/// State of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UpDown {
    /// Plugged in.
    Up,
    /// Pulled out.
    Down,
}

/// Direction of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DirectionArg {
    /// Both directions.
    Both,
    /// From the switch to the guest.
    ToGuest,
    /// From the guest to the switch.
    FromGuest,
}

/// How to make Wireshark and tshark name MXoE and control frames.
fn dissector_help() -> String {
    let lua = super::dissector_path();
    format!(
        "Wireshark and tshark name MXoE and control frames with the dissector\n  {0}\nFor example:\n  weft capture | tshark \
         -X lua_script:{0} -r -\n  weft capture | wireshark -X lua_script:{0} -k -i -",
        lua.display()
    )
}
