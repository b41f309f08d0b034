//! `weft-bench`: the speed comparisons that `scripts/bench` builds and starts.

fn main() -> std::process::ExitCode {
    weft_bench::main()
}
