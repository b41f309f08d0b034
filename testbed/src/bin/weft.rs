//! `weft`: labs of QEMU guests on programmable network cards. Everything is in the library, where tests can reach it.

fn main() -> std::process::ExitCode {
    testbed::cli::main()
}
