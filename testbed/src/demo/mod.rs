//! `weft demo`.
/// Rounds in which the strategies alternate, unless the user says otherwise.
pub const ROUNDS_DEFAULT: u32 = 5;

/// Runs the demo.
pub fn run(_args: &crate::cli::args::DemoArgs, _json: bool) -> anyhow::Result<()> {
    Ok(())
}
