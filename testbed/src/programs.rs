//! Where the programs of this project are: beside the running `weft`, or in `$WEFT_BIN_DIR`. Looks nowhere else, so that
//! a `weft` never runs a `vnicd` of another build.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Full path of the program `name` (`vnicd`).
///
/// # Errors
/// One sentence that says where it was looked for.
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

/// The folder of this project's programs.
///
/// # Errors
/// When the system does not say where the running program is.
pub fn folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("WEFT_BIN_DIR").filter(|folder| !folder.is_empty()) {
        return Ok(PathBuf::from(folder));
    }
    let own = std::env::current_exe().context("cannot find out where the running weft is")?;
    Ok(own.parent().unwrap_or(Path::new("/")).to_owned())
}
