//! The files of the repository, as text and as syntax trees.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold no sources: what cargo and git make, and inputs of fuzz targets.
const NOT_SOURCES: [&str; 4] = ["target", ".git", "corpus", "node_modules"];

/// The folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Paths of all files whose names end so, from the repository on, in order.
pub fn files(ends: &[&str]) -> Vec<String> {
    let (root, mut found, mut folders) = (root(), Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let (name, kind) = (entry.file_name().into_string().unwrap(), entry.file_type().unwrap());
            if kind.is_dir() && !NOT_SOURCES.contains(&&*name) {
                folders.push(folder.join(name));
            } else if kind.is_file() && ends.iter().any(|end| name.ends_with(end)) {
                found.push(folder.join(name).into_os_string().into_string().unwrap());
            }
        }
    }
    found.sort();
    found
}

/// A file's text.
pub fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A file of Rust.
pub struct Source {
    /// From the repository on.
    pub path: String,
    pub syntax: syn::File,
}

/// All files of Rust.
pub fn sources() -> Vec<Source> {
    let parse = |path: String| {
        let syntax = syn::parse_file(&text(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        Source { path, syntax }
    };
    files(&[".rs"]).into_iter().map(parse).collect()
}
