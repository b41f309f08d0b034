//! The command line of `esp-run`. The package's man page is made from it, too, without the rest of the program.

use std::{ffi::OsString, path::PathBuf};

use clap::Parser;

/// Start a program whose TCP connections use ESP, stream sockets straight over Ethernet, where the peer speaks it.
///
/// Any dynamic program can be run so, and so can what it starts: nothing of it is changed. Connections by ESP need an omxd at both hosts;
/// a program that root runs starts its own, and an ordinary user is served by one that was set up (`systemctl start omxd@eth1`) if it is
/// of the group that omxd serves. Everything else goes by TCP as ever: connections within a host, to hosts without ESP, to programs
/// that were not started with esp-run, and those of static and set-user-ID programs, into which nothing can be loaded.
///
/// With ESP_STATISTICS=- in the environment each process says at its end on standard error how many connections it had by ESP, and how
/// many it left to TCP; with ESP_STATISTICS=FILE it adds that line to a file.
///
/// The exit status is the program's, and as env's 127 if there is no such program, 126 if it cannot be started, 125 for another failure:
/// a mistake in the command line, too.
#[derive(Parser)]
#[command(
    name = "esp-run",
    version,
    override_usage = "esp-run [OPTIONS] PROGRAM [ARGUMENT]..."
)]
pub struct Arguments {
    /// Fail connections that ESP cannot make, instead of making them by TCP.
    ///
    /// As ESP_FALLBACK=never in the environment.
    #[arg(long)]
    pub never_fall_back: bool,
    /// Microseconds that a waiting thread looks for frames before it sleeps.
    ///
    /// As ESP_SPIN_US in the environment. Default: 50. 0 saves processor time where programs wait long or share processors.
    #[arg(long, value_name = "US")]
    pub spin_us: Option<u64>,
    /// The preloaded library, if it is elsewhere.
    #[arg(long, value_name = "FILE", env = "ESP_PRELOAD_LIBRARY")]
    pub library: Option<PathBuf>,
    /// Serve a connection for programs that share it: for the library's own use.
    #[arg(long, hide = true, value_name = "INTERFACE")]
    pub keep_connection: Option<String>,
    /// Deliver what a program sent last: for the library's own use.
    #[arg(long, hide = true, value_name = "INTERFACE", conflicts_with = "keep_connection")]
    pub finish_connections: Option<String>,
    /// Start the omxd of an interface: for the library's own use.
    #[arg(long, hide = true, value_name = "INTERFACE", conflicts_with_all = ["keep_connection", "finish_connections"])]
    pub start_authority: Option<String>,
    /// The program and its arguments.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present_any = ["keep_connection", "finish_connections", "start_authority"],
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}
