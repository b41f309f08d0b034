//! `guest-bench`: two real guests over `vnicd` and over tap devices on a Linux bridge. Called by `scripts/bench guests`.
//! Everything is in the library, where it can reach the rest of the testbed.

fn main() -> std::process::ExitCode {
    testbed::guest_bench::main()
}
