//! The command line of `weft`: its verbs in the order in which `--help` shows them. The arguments of each are in the
//! file of the verb.

use clap::Parser;

use super::{
    bench, capture, check,
    common::{CommonOptions, NoArgs, NodesArgs, act, here_as_json, show, verb_list},
    completion, console, cp, demo, exec, graph, inventory, lab, link, logs, mpirun, nic, node, pingall, switch, trunk,
};

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed; one sentence on standard error says why
  2    the command line or the lab file has a mistake
  3    bench: the bar is missed, or there were too few rounds to judge it
  125  exec: weft itself failed; otherwise exec ends with the command's own status
       (126: it cannot be started, 127: it was not found); mpirun ends with the program's status
  130  interrupted";

/// Labs of real QEMU guests on programmable network cards.
#[derive(Debug, Parser)]
#[command(name = "weft", version, max_term_width = 110, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    pub(super) options: CommonOptions,
    #[command(subcommand)]
    pub(super) verb: Verb,
}

verb_list! {
    /// The verbs of `weft`.
    Verb {
        /// Check whether this machine can run labs, and say what is missing.
        #[command(add = here_as_json(&[("weft check", "check this machine")]))]
        Check(NoArgs) => check::run,
        Init(lab::init::InitArgs) => lab::init::run,
        Up(lab::up::UpArgs) => lab::up::run,
        Deploy(lab::deploy::DeployArgs) => lab::deploy::run,
        Import(lab::import::ImportArgs) => lab::import::run,
        Wait(lab::wait::WaitArgs) => lab::wait::run,
        /// Show the running labs and their nodes.
        #[command(visible_aliases = ["inspect", "ls"], add = show(&[
            ("weft ps", "labs and nodes"),
            ("weft ps --json", "for programs"),
        ]))]
        Ps(NoArgs) => lab::ps::run,
        Exec(exec::ExecArgs) => exec::run,
        Mpirun(mpirun::MpirunArgs) => mpirun::run,
        Cp(cp::CpArgs) => cp::run,
        Console(console::ConsoleArgs) => console::run,
        Logs(logs::LogsArgs) => logs::run,
        Stop(node::stop::StopArgs) => node::stop::run,
        /// Start stopped nodes.
        #[command(add = act(&[
            ("weft start n1", "start it again"),
            ("weft start all", "all stopped nodes"),
        ]))]
        Start(NodesArgs) => node::start::run,
        /// Shut nodes down and start them again.
        #[command(add = act(&[("weft restart n1", "shut n1 down and start it")]))]
        Restart(NodesArgs) => node::restart::run,
        Pingall(pingall::PingallArgs) => pingall::run,
        Inventory(inventory::InventoryArgs) => inventory::run,
        Graph(graph::GraphArgs) => graph::run,
        #[command(subcommand)]
        Nic(nic::NicVerb) => nic::NicVerb::run,
        #[command(subcommand)]
        Link(link::LinkVerb) => link::LinkVerb::run,
        #[command(subcommand)]
        Trunk(trunk::TrunkVerb) => trunk::TrunkVerb::run,
        #[command(subcommand)]
        Switch(switch::SwitchVerb) => switch::SwitchVerb::run,
        Capture(capture::CaptureArgs) => capture::run,
        Down(lab::down::DownArgs) => lab::down::run,
        Save(lab::save::SaveArgs) => lab::save::run,
        Clean(lab::clean::CleanArgs) => lab::clean::run,
        Demo(demo::DemoArgs) => demo::run,
        #[command(subcommand)]
        Bench(bench::BenchVerb) => bench::BenchVerb::run,
        Completion(completion::CompletionArgs) => completion::run,
    }
}
