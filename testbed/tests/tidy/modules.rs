//! A file of Rust is part of a program, and says what it is for.

use std::collections::BTreeSet;

use super::{Finding, exceptions, judge, tree};

/// Whether cargo finds a file by its place alone.
fn is_root(path: &str) -> bool {
    let parts: Vec<_> = path.split('/').collect();
    let is_program = matches!(parts[..], [.., "build.rs"] | [.., "src", "lib.rs" | "main.rs"]);
    // Each file is one, or each folder with a main.rs.
    let of_many = |folder: &[&str]| matches!(folder, [.., "tests" | "benches" | "examples"] | [.., "src", "bin"]);
    match &parts[..] {
        [folder @ .., _, "main.rs"] if of_many(folder) => true,
        [folder @ .., _] => is_program || of_many(folder),
        [] => false,
    }
}

/// The folder in which the modules of a file are.
pub fn modules_folder(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "mod.rs" | "main.rs" | "lib.rs" => folder.to_owned(),
        // The modules of a test that is one file are beside it, as those of a program are.
        _ if is_root(path) => folder.to_owned(),
        name => format!("{folder}/{}", name.trim_end_matches(".rs")),
    }
}

/// Files that the items of one file name as modules.
fn modules(folder: &str, items: &[syn::Item], found: &mut Vec<String>) {
    for item in items {
        let syn::Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        match &module.content {
            Some((_, items)) => modules(&format!("{folder}/{name}"), items, found),
            None => {
                let stated = module.attrs.iter().find_map(|attribute| match &attribute.meta {
                    syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                        syn::Expr::Lit(syn::ExprLit {
                            lit: syn::Lit::Str(path),
                            ..
                        }) => Some(path.value()),
                        _ => None,
                    },
                    _ => None,
                });
                match stated {
                    Some(path) => found.push(normal(&format!("{folder}/{path}"))),
                    None => found.extend([format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")]),
                }
            }
        }
    }
}

/// A path without `..` in it.
fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn every_file_of_rust_is_part_of_a_program() {
    let sources = tree::sources();
    let mut named = BTreeSet::new();
    for source in &sources {
        let mut found = Vec::new();
        modules(&modules_folder(&source.path), &source.syntax.items, &mut found);
        named.extend(found);
    }
    // Programs that name a file in their Cargo.toml.
    for manifest in tree::files(&["Cargo.toml"]) {
        let folder = manifest.trim_end_matches("Cargo.toml").to_owned();
        let stated = tree::text(&manifest);
        let paths = stated
            .lines()
            .filter_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"'));
        named.extend(paths.map(|path| format!("{folder}{path}")));
    }
    let dead = sources
        .iter()
        .filter(|source| !is_root(&source.path) && !named.contains(&source.path));
    let findings: Vec<_> = dead
        .map(|source| Finding {
            place: source.path.clone(),
            what: "is no module of any program".to_owned(),
        })
        .collect();
    judge(
        "every file of Rust is part of a program",
        &findings,
        exceptions::NO_MODULES,
    );
}

#[test]
fn every_file_of_rust_says_what_it_is_for() {
    let says = |source: &tree::Source| {
        source
            .syntax
            .attrs
            .iter()
            .any(|attribute| attribute.path().is_ident("doc"))
    };
    let silent = tree::sources().into_iter().filter(|source| !says(source));
    let findings: Vec<_> = silent
        .map(|source| Finding {
            place: source.path,
            what: "has no `//!` at its head".to_owned(),
        })
        .collect();
    judge("every file of Rust says what it is for", &findings, &[]);
}
