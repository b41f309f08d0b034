//! Makes the file named by the variable `WEFT_STRATEGY` a module of the program, and the strategy in it the one that is checked.

use std::{env, fs, path::PathBuf, process::exit};

/// What is checked where no file is named: the example.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../strategies/every_second.rs");

fn main() {
    println!("cargo::rerun-if-env-changed=WEFT_STRATEGY");
    let file = PathBuf::from(env::var_os("WEFT_STRATEGY").unwrap_or_else(|| EXAMPLE.into()));
    println!("cargo::rerun-if-changed={}", file.display());
    let source =
        fs::read_to_string(&file).unwrap_or_else(|error| fail(&format!("cannot read {}: {error}", file.display())));
    let strategies: Vec<&str> = source.lines().filter_map(implements).collect();
    let [strategy] = strategies[..] else {
        fail(&format!(
            "{} should have one line `impl Strategy for TYPE {{`, and has {}",
            file.display(),
            strategies.len()
        ))
    };
    let path = file.to_str().unwrap_or_else(|| fail("the path is no UTF-8 text"));
    let module = format!(
        "#[path = {path:?}]\nmod strategy;\n/// What is checked.\ntype Checked = strategy::{strategy};\nconst FILE: &str = {path:?};\nconst NAME: &str = {strategy:?};\n"
    );
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_else(|| fail("cargo sets no OUT_DIR")));
    if let Err(error) = fs::write(out.join("checked.rs"), module) {
        fail(&format!("cannot write into {}: {error}", out.display()));
    }
}

/// The type of a line that implements the trait for one.
fn implements(line: &str) -> Option<&str> {
    let (trait_name, rest) = line.trim_start().strip_prefix("impl ")?.split_once(" for ")?;
    if trait_name.rsplit("::").next() != Some("Strategy") {
        return None;
    }
    rest.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
        .filter(|name| !name.is_empty())
}

/// Cargo fails for the sentence alone; for a status that is not 0 it would print all that this program wrote, too.
fn fail(sentence: &str) -> ! {
    println!("cargo::error={sentence}");
    exit(0);
}
