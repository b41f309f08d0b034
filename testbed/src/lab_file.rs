//! Reads lab files, and tells the model in [`crate::lab`] what is at the paths that they name.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
    process::Command,
};

use anyhow::{Context, Result, bail};
use firmware::StrategyKind;

use crate::{
    containerlab::{self, Translation},
    lab::{AtPath, Lab, LabError, LabFolder, Problem},
    programs,
};

/// Length of a lab file in bytes.
const FILE_LEN_MAX: u64 = 1 << 20;

/// Reads and checks a lab file.
///
/// # Errors
/// Fails with one sentence when the file cannot be read, or with every mistake in it, with line and column.
pub fn load(path: &Path) -> Result<Lab> {
    load_for(path, None)
}

/// Reads and checks a lab file for a lab that runs as `before`; see [`Lab::parse_in`].
///
/// # Errors
/// Fails as [`load`] does.
pub fn load_for(path: &Path, before: Option<&Lab>) -> Result<Lab> {
    let shown = path.display().to_string();
    let unreadable = || format!("cannot read the lab file {shown}");
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("there is no lab file {shown}; `weft init` writes an example")
        }
        opened => opened.with_context(unreadable)?,
    };
    let mut bytes = Vec::new();
    file.take(FILE_LEN_MAX + 1)
        .read_to_end(&mut bytes)
        .with_context(unreadable)?;
    let text = readable(bytes).map_err(|(text, problem)| LabError::new(&shown, &text, vec![problem]))?;
    let absolute = std::path::absolute(path)?;
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    if is_containerlab(path) {
        let text = text_of(&translation(&text, path, folder)?, path);
        return translated_lab(&text, path, before);
    }
    lab(&text, &shown, path, before)
}

/// Parses the text of the lab file `path`, which is called `shown`.
fn lab(text: &str, shown: &str, path: &Path, before: Option<&Lab>) -> Result<Lab> {
    let absolute = std::path::absolute(path)?;
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("lab");
    let folder = LabFolder::new(folder, &at_path).with_strategies(&strategies);
    Ok(Lab::parse_in(text, shown, stem, folder, before)?)
}

/// Returns the lab file that a topology of containerlab became, as it is written.
pub(crate) fn text_of(translation: &Translation, path: &Path) -> String {
    format!("# Translated from {}.\n{}", path.display(), translation.toml)
}

/// Parses the lab file that the topology `path` of containerlab became.
///
/// # Errors
/// Fails with every mistake in it, with line and column of the translation.
pub(crate) fn translated_lab(text: &str, path: &Path, before: Option<&Lab>) -> Result<Lab> {
    lab(
        text,
        &format!("`weft import containerlab {}`", path.display()),
        path,
        before,
    )
}

/// Returns whether the name of the file is that of a topology of containerlab.
#[must_use]
pub(crate) fn is_containerlab(path: &Path) -> bool {
    path.extension().is_some_and(|kind| kind == "yml" || kind == "yaml")
}

/// Translates a topology file of containerlab.
///
/// # Errors
/// Fails with one sentence when the file cannot be read, or is none.
pub(crate) fn translated(path: &Path) -> Result<Translation> {
    let unreadable = || format!("cannot read {}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(unreadable)?;
    file.take(FILE_LEN_MAX + 1)
        .read_to_end(&mut bytes)
        .with_context(unreadable)?;
    let shown = path.display().to_string();
    let text = readable(bytes).map_err(|(text, problem)| LabError::new(&shown, &text, vec![problem]))?;
    let absolute = std::path::absolute(path)?;
    translation(&text, path, absolute.parent().unwrap_or(Path::new("/")))
}

fn translation(text: &str, path: &Path, folder: &Path) -> Result<Translation> {
    containerlab::translate(text, &|named| at_path(&folder.join(named)))
        .map_err(|note| anyhow::anyhow!("{}:{note}", path.display()))
}

/// Returns the strategies of `vnicd`, which may have others than this program was built with; those of this program as long as there is no
/// `vnicd`.
fn strategies() -> Vec<String> {
    let own = || StrategyKind::NAMES.iter().map(|name| (*name).to_owned()).collect();
    let Ok(vnicd) = programs::find("vnicd") else {
        return own();
    };
    match Command::new(vnicd).arg("--strategies").output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect(),
        _ => own(),
    }
}

/// Returns what is at a path of this machine.
pub(crate) fn at_path(path: &Path) -> AtPath {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => AtPath::File,
        Ok(found) if found.is_dir() => AtPath::Folder,
        Ok(_) => AtPath::Other,
        Err(_) => AtPath::Nothing,
    }
}

/// Decodes a lab file as text; else returns what is shown of it and the problem.
fn readable(bytes: Vec<u8>) -> Result<String, (String, Problem)> {
    if bytes.len() as u64 > FILE_LEN_MAX {
        let problem = Problem {
            span: 0..0,
            message: "this file is too long to be a lab file".to_owned(),
            help: format!("at most {FILE_LEN_MAX} bytes"),
        };
        return Err((String::new(), problem));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let problem = Problem {
            // An invalid byte is shown as one character.
            span: at..at + '\u{fffd}'.len_utf8(),
            message: "this is not a text file".to_owned(),
            help: "a lab file is text in UTF-8".to_owned(),
        };
        (String::from_utf8_lossy(error.as_bytes()).into_owned(), problem)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_text_is_a_mistake_with_its_place() {
        let (text, problem) = readable(b"name = \"lab\"\n# \xff\n".to_vec()).expect_err("no text");
        let error = LabError::new("lab.toml", &text, vec![problem]).to_string();
        assert!(error.starts_with("lab.toml:2:3: this is not a text file\n"), "{error}");
        let (text, problem) = readable(vec![b'#'; FILE_LEN_MAX as usize + 1]).expect_err("too long");
        let error = LabError::new("lab.toml", &text, vec![problem]).to_string();
        assert!(error.starts_with("lab.toml:1:1: this file is too long"), "{error}");
        assert!(readable(vec![b'#'; FILE_LEN_MAX as usize]).is_ok());
    }
}
