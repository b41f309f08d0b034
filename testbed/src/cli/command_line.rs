//! The command line of `weft`: its verbs in the order in which `--help` shows them. The arguments of each are in the
//! file of the verb.

use clap::{Parser, Subcommand};

use super::{
    capture, check, common::CommonOptions, completion, console, cp, demo, exec, graph, inventory, lab, link, logs, nic,
    node, pingall, switch, trunk,
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
    #[command(flatten)]
    pub(super) options: CommonOptions,
    #[command(subcommand)]
    pub(super) verb: Verb,
}

/// The verbs of `weft`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    Check(check::CheckArgs),
    Init(lab::init::InitArgs),
    Up(lab::up::UpArgs),
    Deploy(lab::deploy::DeployArgs),
    Wait(lab::wait::WaitArgs),
    Ps(lab::ps::PsArgs),
    Exec(exec::ExecArgs),
    Cp(cp::CpArgs),
    Console(console::ConsoleArgs),
    Logs(logs::LogsArgs),
    Stop(node::stop::StopArgs),
    Start(node::start::StartArgs),
    Restart(node::restart::RestartArgs),
    Pingall(pingall::PingallArgs),
    Inventory(inventory::InventoryArgs),
    Graph(graph::GraphArgs),
    #[command(subcommand)]
    Nic(nic::NicVerb),
    #[command(subcommand)]
    Link(link::LinkVerb),
    #[command(subcommand)]
    Trunk(trunk::TrunkVerb),
    #[command(subcommand)]
    Switch(switch::SwitchVerb),
    Capture(capture::CaptureArgs),
    Down(lab::down::DownArgs),
    Save(lab::save::SaveArgs),
    Clean(lab::clean::CleanArgs),
    Demo(demo::DemoArgs),
    Completion(completion::CompletionArgs),
}
