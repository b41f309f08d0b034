//! `omx_prepare_binding`: writes where the interrupts of boards arrive, for `OMX_PROCESS_BINDING=file`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::tool!(run_omx, "omx_prepare_binding", tools::board::binding)
}
