//! `weft-agent`: the init of a guest (as process 1), the server of its `weft.agent` port (`weft-agent serve`), and the
//! power switch (under the names `reboot`, `poweroff` and `halt`). As init it sets the guest up and keeps the server
//! running; the server does all work for the host.

mod disks;
mod init;
mod interpreter;
mod network;
mod serve;
mod services;
mod setup;

use std::path::Path;
use std::process::ExitCode;

use rustix::system::RebootCommand;

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let called = arguments.next().unwrap_or_default();
    match Path::new(&called).file_name().and_then(|name| name.to_str()) {
        Some("reboot") => return switch(RebootCommand::Restart),
        // A halted guest would only keep its QEMU waiting.
        Some("poweroff" | "halt") => return switch(RebootCommand::PowerOff),
        _ => {}
    }
    match (arguments.next().as_deref(), std::process::id()) {
        (Some("serve"), _) => match serve::serve(&arguments.collect::<Vec<_>>()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("weft-agent: {error:#}");
                ExitCode::FAILURE
            }
        },
        (Some("--version"), _) => {
            println!("weft-agent {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        (_, 1) => {
            let error = init::run();
            // Process 1 must not end: the kernel would panic with a message that hides this one.
            eprintln!("weft-agent: init cannot go on: {error:#}");
            loop {
                std::thread::park();
            }
        }
        _ => {
            eprintln!(
                "weft-agent: this is the init of a weft guest; in a guest with an init of its own run: weft-agent serve"
            );
            ExitCode::from(2)
        }
    }
}

/// Switches the guest off or boots it again. Options such as `-f` are accepted and have no effect, since there is no
/// confirmation to skip.
fn switch(command: RebootCommand) -> ExitCode {
    init::power(command);
    ExitCode::FAILURE
}
