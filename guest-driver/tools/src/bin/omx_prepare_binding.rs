//! `omx_prepare_binding`: writes where the interrupts of boards arrive, for `OMX_PROCESS_BINDING=file`.

use std::process::ExitCode;

use clap::Parser;
use tools::board::binding::{Arguments, main as binding};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tools::run_omx("omx_prepare_binding", false, || binding(&arguments))
}
