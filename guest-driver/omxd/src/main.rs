//! The program `omxd`; what it does is in the library, since in guests it is one program with the tools.

use std::process::ExitCode;

fn main() -> ExitCode {
    omxd::program::main()
}
