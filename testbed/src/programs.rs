//! The programs of this project: beside the running `weft`, or in `$WEFT_BIN_DIR`. No other place is searched, so that
//! a `weft` never runs a `vnicd` of another build.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Returns the full path of the program `name` (`vnicd`).
///
/// # Errors
/// Fails with one sentence that names the place that was searched.
pub fn find(name: &str) -> Result<PathBuf> {
    let folder = folder()?;
    let path = folder.join(name);
    if path.is_file() {
        return Ok(path);
    }
    bail!(
        "the program {name} is not in {}: build it (`scripts/weft` does), or set WEFT_BIN_DIR",
        folder.display()
    )
}

/// Returns the folder of this project's programs.
///
/// # Errors
/// Fails when the system does not reveal the path of the running program.
pub fn folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("WEFT_BIN_DIR").filter(|folder| !folder.is_empty()) {
        return Ok(PathBuf::from(folder));
    }
    let own = std::env::current_exe().context("cannot find out where the running weft is")?;
    Ok(own.parent().unwrap_or(Path::new("/")).to_owned())
}
