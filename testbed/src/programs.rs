//! The programs of this project: beside the running `weft`, in `$WEFT_BIN_DIR`, or where `$WEFT_BUILD` has built them. No
//! other place is searched, so that a `weft` never runs a `vnicd` of another build.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use anyhow::{Context, Result, bail, ensure};

/// Variable with the folder of the programs. They are not built then.
const BIN_DIR: &str = "WEFT_BIN_DIR";

/// Variable with the program that builds programs, `scripts/build`; `scripts/weft` sets it.
const BUILD: &str = "WEFT_BUILD";

/// Name of the full profile, with which everything is built that is measured.
const FULL_PROFILE: &str = "release";

/// The profiles of `scripts/build`, each the name of a folder.
const PROFILES: [&str; 3] = ["quick", FULL_PROFILE, "ci"];

/// The profile to build with, if it is not the one of the running `weft`.
static PROFILE: OnceLock<&'static str> = OnceLock::new();

/// Folder of the programs that this process had built.
static BUILT: OnceLock<PathBuf> = OnceLock::new();

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
        "the program {name} is not in {}: build it (`scripts/weft` does), or set {BIN_DIR}",
        folder.display()
    )
}

/// Returns the folder of this project's programs.
///
/// # Errors
/// Fails when the system does not reveal the path of the running program.
pub fn folder() -> Result<PathBuf> {
    if let Some(folder) = set(BIN_DIR) {
        return Ok(folder);
    }
    if let Some(folder) = BUILT.get() {
        return Ok(folder.clone());
    }
    beside()
}

/// Names the build of the programs, for the conditions of a measurement: the profile that they were built with, or the folder that
/// they were installed in.
///
/// # Errors
/// Fails when the system does not reveal the path of the running program.
pub fn build() -> Result<String> {
    let folder = folder()?;
    let profile = folder.file_name().and_then(|name| name.to_str());
    Ok(match profile {
        Some(profile) if PROFILES.contains(&profile) => profile.to_owned(),
        _ => folder.display().to_string(),
    })
}

/// Has all programs built with the full profile from now on, because they are to be measured.
pub fn want_full_profile() {
    // A second call wants the same.
    _ = PROFILE.set(FULL_PROFILE);
}

/// Returns whether programs are built when they are needed: not those of an installed `weft`, nor those that the user named.
#[must_use]
pub fn are_built_on_demand() -> bool {
    builder().is_some()
}

/// Builds those of the programs `names` that are not there or older than their sources, and shows what is done on
/// standard error. The names are those of `scripts/build`. Does nothing where programs are not built on demand.
///
/// # Errors
/// Fails when a program cannot be built; the reason is on standard error then.
pub fn provide<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let Some(builder) = builder() else {
        return Ok(());
    };
    let own = beside()?;
    let own_profile = own.file_name().and_then(|name| name.to_str());
    let profile = PROFILE.get().copied().or(own_profile).unwrap_or(FULL_PROFILE);
    let output = Command::new(&builder)
        .arg(profile)
        .args(names)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", builder.display()))?;
    ensure!(output.status.success(), "not all programs could be built");
    let folder = String::from_utf8(output.stdout).context("the folder of the programs is not UTF-8")?;
    // Later calls build with the same profile, and so in the same folder.
    _ = BUILT.set(PathBuf::from(folder.trim_end()));
    Ok(())
}

/// Returns the program that builds others.
fn builder() -> Option<PathBuf> {
    set(BIN_DIR).is_none().then(|| set(BUILD)).flatten()
}

/// Returns the folder of the running program.
fn beside() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find out where the running weft is")?;
    Ok(own.parent().unwrap_or(Path::new("/")).to_owned())
}

/// Returns the path in an environment variable, unless it is empty.
fn set(variable: &str) -> Option<PathBuf> {
    let value = std::env::var_os(variable).filter(|value| !value.is_empty())?;
    Some(PathBuf::from(value))
}
