//! The variables of the environment that set something, looked at before a program starts: the library in it has no place to tell of a
//! mistake.

use std::{env, ffi::OsString, fs::OpenOptions, path, process::Command};

use anyhow::{Context, Result, bail};

/// Returns a variable that is set to something.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Checks the variables, and gives the program a place for its counts that stays where it is when the program changes its folder.
///
/// # Errors
/// A variable with a value that it cannot have.
pub(crate) fn prepare(program: &mut Command) -> Result<()> {
    if let Some(value) = variable("ESP_FALLBACK").filter(|value| value != "never") {
        bail!("ESP_FALLBACK is {}: it is `never`, or not set", value.display());
    }
    if let Some(value) = variable("ESP_SPIN_US") {
        let is_number = value.to_str().is_some_and(|text| text.parse::<u64>().is_ok());
        if !is_number {
            bail!("ESP_SPIN_US is {}: it is a number of microseconds", value.display());
        }
    }
    if let Some(place) = variable("ESP_STATISTICS").filter(|place| place != "-") {
        let place = path::absolute(place).context("the folder of ESP_STATISTICS is not known")?;
        let opened = OpenOptions::new().create(true).append(true).open(&place);
        opened.with_context(|| format!("ESP_STATISTICS is {}, which cannot be written", place.display()))?;
        program.env("ESP_STATISTICS", place);
    }
    Ok(())
}
