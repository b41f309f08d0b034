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
    /// The lab. Needed only if more than one is running.
    #[arg(short, long, global = true, env = "WEFT_LAB", value_name = "NAME")]
    pub lab: Option<String>,
    /// Print tables as JSON.
    #[arg(long, global = true)]
    pub json: bool,
    /// Log more (twice: everything).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What `weft` can do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Check whether this machine can run labs, and say what is missing.
    Check,
    /// Write an example lab file.
    Init {
        /// File to write.
        #[arg(default_value = "lab.toml")]
        file: PathBuf,
        /// Overwrite the file if it exists.
        #[arg(long)]
        force: bool,
    },
    /// Start a lab and keep it until Ctrl-C, or with -d in the background. Update a lab that is already running.
    ///
    /// A running lab is compared with its file, and the plan is shown. Nodes, switches and trunks are added and removed, settings are
    /// changed, and everything else keeps running. Settings that were changed meanwhile (`weft link set`, `nicctl`) return to those of
    /// the file. Nodes whose guests would see a change (memory, MTU, …) are restarted.
    Up(UpArgs),
    /// Start a lab in the background: `up -d`.
    Deploy(DeployArgs),
    /// Wait until nodes are ready.
    Wait {
        /// Nodes (default: all that run weft-agent).
        nodes: Vec<String>,
        /// Give up after this time.
        #[arg(long, default_value = "120s")]
        timeout: Span,
    },
    /// Show the running labs and their nodes.
    #[command(visible_aliases = ["inspect", "ls"])]
    Ps,
    /// Run a command in a node. Output and exit status are the command's.
    ///
    /// In several nodes it runs in parallel, without standard input, and each line has its node in front. The exit status is that of
    /// the first node, in the order of the lab, whose command failed.
    Exec(ExecArgs),
    /// Copy a file or folder into a node or out of it.
    Cp {
        /// Accepted for convenience: folders are always copied whole.
        #[arg(short, short_alias = 'R', long)]
        recursive: bool,
        /// What to copy: `PATH` or `NODE:PATH`.
        source: String,
        /// Where to: `PATH` or `NODE:PATH`.
        destination: String,
    },
    /// Open a shell in a node (end it with Ctrl-D), or its serial line if it has no agent (leave it with Ctrl-]).
    Console {
        /// The node.
        node: String,
        /// Open the serial line even if the node has an agent.
        #[arg(long)]
        serial: bool,
    },
    /// Show a node's serial output, or the log of `vnicd` or of the supervisor (`weft`). Logs of failed labs are kept until `weft
    /// clean`.
    Logs {
        /// A node, `vnicd` or `weft`.
        what: String,
        /// Keep showing new lines, until Ctrl-C.
        #[arg(short, long)]
        follow: bool,
    },
    /// Shut nodes down, through their agent or with the power button.
    Stop {
        /// A node, or several: `all`, `n*`, `n[1-3]`, `n1,n4`.
        #[arg(value_name = "NODES")]
        node: String,
        /// Power off at once, without a shutdown.
        #[arg(short, long)]
        force: bool,
    },
    /// Start stopped nodes.
    Start {
        /// A node, or several: `all`, `n*`, `n[1-3]`, `n1,n4`.
        #[arg(value_name = "NODES")]
        node: String,
    },
    /// Shut nodes down and start them again.
    Restart {
        /// A node, or several: `all`, `n*`, `n[1-3]`, `n1,n4`.
        #[arg(value_name = "NODES")]
        node: String,
    },
    /// Ping between all pairs of nodes; fail unless all answer.
    Pingall(super::pingall::PingallArgs),
    /// Print the nodes for /etc/hosts, ssh or Ansible.
    ///
    /// ssh and Ansible reach a node through its agent, so its addresses need not be reachable from here. The node needs an ssh server
    /// on port 22, and nc.
    Inventory(super::inventory::InventoryArgs),
    /// Draw a lab: its nodes, switches and cables.
    Graph(super::graph::GraphArgs),
    /// Show and change the programmable cards.
    #[command(subcommand)]
    Nic(NicVerb),
    /// Show and change the cables between cards and switches.
    #[command(subcommand)]
    Link(LinkVerb),
    /// Show and change the cables between switches.
    #[command(subcommand)]
    Trunk(TrunkVerb),
    /// Show the switches: ports, addresses, counters and drops.
    #[command(subcommand)]
    Switch(SwitchVerb),
    /// Capture the frames of cards, in both directions, as pcapng on standard output.
    #[command(after_help = dissector_help())]
    Capture(CaptureArgs),
    /// Stop a lab.
    #[command(visible_alias = "destroy")]
    Down {
        /// Stop all labs.
        #[arg(long)]
        all: bool,
    },
    /// Save a running lab in a folder, for `weft up --restore`.
    ///
    /// The folder holds the guests, the settings of cards and cables, and what the guests boot. All guests are stopped at the same time,
    /// written to the folder one after the other, and resumed (or with --stop, ended). Frames under way arrive before that, unless a
    /// cable delays them by more than half a second: those are lost, as with a cable that is pulled.
    ///
    /// A restored lab has its guests with their memory, processes, open connections and timers, and the settings that were in force.
    /// Counters start at 0, switches learn addresses and build their spanning trees again, captures and traces are not there, commands of
    /// `weft exec` have ended, and connections to the outside (`uplink`) are gone. The clocks of the guests continue from where they
    /// stopped: `weft exec all -- date -s @$(date +%s)` sets them.
    ///
    /// Nodes that boot a disk of their own, or that mount folders of this machine, cannot be saved.
    Save(SaveArgs),
    /// Remove leftovers of dead labs, logs of failed labs and, with --cache, built images.
    Clean {
        /// Remove the built images too.
        #[arg(long)]
        cache: bool,
    },
    /// Measure seven interrupt settings between two guests, and explain the result.
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
    /// Return when the lab is up, and leave it running.
    #[arg(short, long)]
    pub detach: bool,
    /// Show what would be started or changed, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Update a running lab of this name even if it was started from another file.
    #[arg(long)]
    pub reconcile: bool,
    /// Continue a saved lab (`weft save`) instead of starting one, with the same QEMU and accelerator.
    ///
    /// The folder must stay for as long as the lab runs. Restore only saves that you trust, as with any virtual machine.
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
    /// The folder to write (default: LAB.save). It needs about as much space as the guests' memory.
    #[arg(value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Replace the folder if it contains a saved lab.
    #[arg(long)]
    pub force: bool,
    /// Stop the lab after saving instead of resuming the guests.
    #[arg(long)]
    pub stop: bool,
}

/// Options of `deploy`.
#[derive(Args, Debug)]
pub struct DeployArgs {
    /// The lab file (default: lab.toml).
    pub file: Option<PathBuf>,
    /// The lab file, spelled as in containerlab.
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
    /// Accelerator: auto, kvm or tcg. `auto` uses KVM only after a guest has booted under it.
    #[arg(long, default_value = "auto", value_parser = parse_accel)]
    pub accel: AccelChoice,
    /// Give up on a booting node that shows no sign of life for this time: no output, no reset, no answer of its agent. A node that
    /// is not ready after ten times as long is given up as well.
    #[arg(long, default_value = "180s", value_name = "TIME")]
    pub boot_timeout: Span,
}

fn parse_accel(text: &str) -> Result<AccelChoice, String> {
    text.parse()
}

/// Options of `exec`.
#[derive(Args, Debug)]
pub struct ExecArgs {
    /// A node, or several: `all`, `n*`, `n[1-3]`, `n1,n4`.
    #[arg(value_name = "NODES")]
    pub node: String,
    /// Run the command on a terminal.
    #[arg(short, long)]
    pub tty: bool,
    /// Pass standard input to the command (the default).
    #[arg(short, long, overrides_with = "no_stdin")]
    pub interactive: bool,
    /// Do not pass standard input (for use in loops that read it).
    #[arg(short = 'n', long)]
    pub no_stdin: bool,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Verbs about cards.
#[derive(Debug, Subcommand)]
pub enum NicVerb {
    /// Show frames, drops, and interrupts with their reasons.
    Stats {
        /// `NODE` or `NODE.ethN` (default: all).
        nic: Option<String>,
    },
    /// Show or change when a card interrupts its guest.
    Coalesce {
        /// `NODE` or `NODE.ethN`.
        nic: String,
        /// The strategy, such as open-mx. An unknown name is answered with the list.
        strategy: Option<String>,
        /// Longest time a packet waits for its interrupt.
        #[arg(long, value_name = "TIME", value_parser = coalescing_delay_argument)]
        delay: Option<Span>,
        /// Interrupt when this many packets wait; 0 for no limit.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(FRAMES_MAX)))]
        frames: Option<u32>,
        /// Whether the card looks at latency marks.
        #[arg(long)]
        marks: Option<OnOff>,
    },
    /// Show or change which receive queue a frame goes to.
    Steering {
        /// `NODE` or `NODE.ethN`.
        nic: String,
        /// How frames are distributed.
        mode: Option<SteeringMode>,
        /// Queues of the endpoints 0, 1, …, such as 0,1,1 (repeated beyond the end), or even.
        #[arg(long, value_name = "QUEUES", value_parser = queue_list_argument)]
        endpoints: Option<QueueList>,
        /// Queues of the 128 values of the flow hash (repeated beyond the end), or even.
        #[arg(long, value_name = "QUEUES", value_parser = queue_list_argument)]
        indirection: Option<QueueList>,
    },
    /// Show or change how early in outgoing medium messages the card puts the latency mark.
    #[command(
        after_help = "The frames keep their order. To reorder frames: weft link set NIC --reorder 5% --reorder-delay 50us"
    )]
    Misorder {
        /// `NODE` or `NODE.ethN`.
        nic: String,
        /// How many fragments before the last; 0 leaves the mark where the driver put it.
        #[arg(value_parser = clap::value_parser!(u8).range(0..=i64::from(firmware::MISORDER_DEGREE_MAX)))]
        degree: Option<u8>,
    },
    /// Show or change the VLANs of a card at its switch.
    Vlan {
        /// `NODE` or `NODE.ethN`.
        nic: String,
        /// The VLAN of untagged frames. `none` drops them; `default` makes the port as if it had no VLAN setting. Without --tagged, a
        /// VLAN makes it an access port.
        #[arg(value_name = "VLAN|none|default", value_parser = untagged_argument)]
        vlan: Option<Untagged>,
        /// VLANs that the guest sees tagged, such as 10,20-30, or all.
        #[arg(long, value_name = "LIST")]
        tagged: Option<VlanList>,
    },
    /// Show the counters of each receive queue.
    Queues {
        /// `NODE` or `NODE.ethN` (default: all).
        nic: Option<String>,
    },
    /// Show what adaptive moderation measured and chose, for each receive queue that uses it.
    Adaptive {
        /// `NODE` or `NODE.ethN` (default: all).
        nic: Option<String>,
    },
    /// Show or set the polling watchdog, which interrupts a guest only if it does not poll.
    Watchdog {
        /// `NODE` or `NODE.ethN`.
        nic: String,
        /// When it checks after an arrival; `off` for no watchdog.
        #[arg(value_name = "TIME|off", value_parser = watchdog_delay)]
        delay: Option<WatchdogDelay>,
    },
    /// Show and change the multicast groups of cards.
    #[command(subcommand)]
    Group(GroupVerb),
    /// Record what a node's cards do, event by event.
    ///
    /// Switches the cards' flight recorders on, and off again after --seconds or with Ctrl-C. Then writes the events to standard
    /// output.
    Trace(TraceArgs),
    /// Replace vnicd under running guests; links, rings and settings stay.
    ///
    /// The new vnicd is tried first; if it does not start, the running one continues. Guests have no network until their QEMU has
    /// reconnected, a second at most.
    Reload {
        /// The new vnicd, such as target/course/vnicd (default: the one beside this weft, or in $WEFT_BIN_DIR).
        program: Option<std::path::PathBuf>,
    },
    /// Show the copies of cards that are connected to themselves.
    CopyEngine {
        /// `NODE` or `NODE.ethN` (default: all).
        nic: Option<String>,
    },
    /// Show connection, rings and offloads.
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
    /// Show the groups: members, their children in the tree, and counters.
    List,
    /// Add a card to a group.
    Join {
        /// `NODE` or `NODE.ethN`.
        nic: String,
        /// Number of the group.
        #[arg(value_parser = clap::value_parser!(u16).range(1..))]
        group: u16,
    },
    /// Remove a card from a group.
    Leave {
        /// `NODE` or `NODE.ethN`.
        nic: String,
        /// Number of the group.
        #[arg(value_parser = clap::value_parser!(u16).range(1..))]
        group: u16,
    },
    /// Choose the shape of a group's trees; this restarts the group.
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
    /// `perfetto` is JSON for https://ui.perfetto.dev, `text` is a line per event.
    #[arg(long, value_name = "FORMAT", default_value = "perfetto")]
    pub format: TraceFormat,
    /// Stop after this many seconds.
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
    /// Change only one direction of the cable.
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
    /// Show the learned addresses, and behind which port they are.
    Macs {
        /// The switch (default: all).
        switch: Option<String>,
    },
    /// Show the VLANs of each port, untagged and tagged.
    Vlans {
        /// The switch (default: all).
        switch: Option<String>,
    },
    /// Show the spanning tree: the root, and the role and state of each port.
    Stp {
        /// The switch (default: all).
        switch: Option<String>,
    },
    /// Show the IP multicast groups with members behind each port of switches that snoop.
    Groups {
        /// The switch (default: all).
        switch: Option<String>,
    },
    /// Show the counters of each port, and drops with their reasons.
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
    /// Which of several cables between the two switches, from 1, in the order of the lab file.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub number: Option<u16>,
    /// Change only the direction from the first switch to the second.
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
    /// Size of the token bucket: bytes that may be sent at once after a pause; 0B for none.
    #[arg(long, value_name = "SIZE")]
    pub burst: Option<Size>,
    /// Propagation delay.
    #[arg(long, value_name = "TIME", value_parser = link_delay_argument)]
    pub delay: Option<Span>,
    /// Variation of the delay; 0 for none.
    #[arg(long, value_name = "TIME", value_parser = jitter_argument)]
    pub jitter: Option<Span>,
    /// Distribution of the delays.
    #[arg(long, visible_alias = "distribution", value_name = "KIND")]
    pub jitter_distribution: Option<Distribution>,
    /// Whether frames with a short delay overtake those before them.
    #[arg(long, value_name = "on|off")]
    pub jitter_reorders: Option<OnOff>,
    /// Queue in front of a link with a rate, such as 64K, "100 packets" or 20ms.
    #[arg(long, value_name = "LENGTH")]
    pub queue: Option<QueueLimit>,
    /// Queue length above which packets of ECN-capable transports are marked, or off.
    #[arg(long, value_name = "LENGTH|off")]
    pub ecn_threshold: Option<EcnThreshold>,
    /// Largest payload in bytes.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(68..=9000))]
    pub mtu: Option<u32>,
    /// Probability that a frame is lost, such as 0.1%; or bursts of losses, such as "gemodel 1% 25%" (P, R, 1-H, 1-K).
    #[arg(long, value_name = "SHARE|MODEL")]
    pub loss: Option<Loss>,
    /// Lose every Nth frame; 0 for none.
    #[arg(long, value_name = "N")]
    pub loss_every: Option<u32>,
    /// Probability that a frame is delayed by --reorder-delay.
    #[arg(long, value_name = "SHARE")]
    pub reorder: Option<Share>,
    /// How long a reordered frame is delayed.
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
    /// Folder for the results: text, JSON and charts.
    #[arg(short, long, default_value = "weft-demo", value_name = "FOLDER")]
    pub output: PathBuf,
    /// Also write the frames of the first round as pcapng (TCP is then measured only in the other rounds).
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
