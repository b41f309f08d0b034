//! `weft-agent`: the init of a guest (as process 1), and the server of its `weft.agent` port (`weft-agent serve`).
//! As init it sets the guest up and keeps the server running; all work for the host is done by the server.

mod init;
mod network;
mod serve;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
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
