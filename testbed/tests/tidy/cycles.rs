//! Files of different folders do not import each other in a circle.
//!
//! The modules directly below one module, and the module's own file (`self` here: `mod.rs`, `lib.rs`), are compared with each other:
//! one depends on another when a file in the first, or below it, names an item that is defined in the second, or below it. A circle is
//! a set of them that all depend on each other, in which at least one is a folder; plain files of one folder may import each other as
//! they like. What a module declares (`mod`) and re-exports (`pub use`) of the modules below it does not make it depend on them. An
//! item that is re-exported belongs to the module that defines it. Code under `#[cfg(test)]` does not count.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Finding, exceptions,
    import_graph::{Crate, Edge},
    judge, tree,
};

/// The name of a module's own file among those of the modules below it.
const OWN_FILE: &str = "self";

/// Files where a crate begins.
fn is_crate(path: &str) -> bool {
    path.ends_with("/src/lib.rs")
        || path.ends_with("/src/main.rs")
        || (path.contains("/src/bin/") && path.ends_with("/main.rs"))
}

/// Which of the modules below one depend on which, each with an example of files.
type Siblings = BTreeMap<String, BTreeMap<String, [String; 2]>>;

/// Edges by the innermost module that has both ends below it.
fn siblings(edges: Vec<Edge>) -> BTreeMap<Vec<String>, Siblings> {
    let mut all = BTreeMap::<_, Siblings>::new();
    for edge in edges {
        let shared = (edge.from.iter().zip(&edge.to)).take_while(|(one, other)| one == other);
        let depth = shared.count();
        let below = |path: &[String]| path.get(depth).map_or(OWN_FILE, String::as_str).to_owned();
        let (from, to) = (below(&edge.from), below(&edge.to));
        let parent = all.entry(edge.from[..depth].to_vec()).or_default();
        parent.entry(from).or_default().entry(to).or_insert(edge.files);
    }
    all
}

/// Everything that `from` leads to.
fn reachable<'a>(siblings: &'a Siblings, from: &str) -> BTreeSet<&'a str> {
    let (mut found, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(at) = left.pop() {
        for next in siblings.get(at).into_iter().flat_map(BTreeMap::keys) {
            if found.insert(next.as_str()) {
                left.push(next);
            }
        }
    }
    found
}

/// Sets of modules that all lead to each other.
fn circles(siblings: &Siblings) -> BTreeSet<Vec<&str>> {
    let leads_to: BTreeMap<_, _> = siblings
        .keys()
        .map(|name| (name.as_str(), reachable(siblings, name)))
        .collect();
    let of = |name: &str| {
        let back = |other: &&&str| leads_to.get(**other).is_some_and(|found| found.contains(name));
        leads_to[name].iter().filter(back).copied().collect::<Vec<_>>()
    };
    let circles = siblings.keys().map(|name| of(name));
    circles.filter(|circle| circle.len() > 1).collect()
}

/// The circles of one crate, whose root is the file `root`.
fn findings(root: &str, sources: &BTreeMap<&str, &tree::Source>) -> Vec<Finding> {
    let of_crate = Crate::read(root, sources);
    let mut findings = Vec::new();
    for (parent, siblings) in siblings(of_crate.edges()) {
        let is_folder =
            |name: &&str| *name != OWN_FILE && of_crate.is_folder(&[parent.as_slice(), &[(*name).to_owned()]].concat());
        for circle in circles(&siblings) {
            if !circle.iter().any(is_folder) {
                continue;
            }
            let examples = circle.iter().flat_map(|from| {
                let others = siblings[*from].iter().filter(|(to, _)| circle.contains(&to.as_str()));
                others.map(|(_, [from, to])| format!("\n    {from} names {to}"))
            });
            let module = [&[root.to_owned()], parent.as_slice()].concat().join("::");
            findings.push(Finding {
                place: format!("{module} {}", circle.join(", ")),
                what: format!("import each other:{}", examples.collect::<String>()),
            });
        }
    }
    findings
}

#[test]
fn files_of_different_folders_do_not_import_each_other_in_a_circle() {
    let sources = tree::sources();
    let by_path: BTreeMap<_, _> = sources.iter().map(|source| (source.path.as_str(), source)).collect();
    let roots = by_path.keys().filter(|path| is_crate(path));
    let found: Vec<_> = roots.flat_map(|root| findings(root, &by_path)).collect();
    judge(
        "files of different folders do not import each other in a circle",
        &found,
        exceptions::IMPORT_CIRCLES,
    );
}

#[test]
fn circles_are_found_through_re_exports_and_macros_and_not_in_facades_tests_and_among_files_of_a_folder() {
    let places = |files: &[(&str, &str)]| {
        let sources: Vec<_> = files
            .iter()
            .map(|(path, text)| tree::Source {
                path: (*path).to_owned(),
                syntax: syn::parse_file(text).expect("this is Rust"),
            })
            .collect();
        let by_path = sources.iter().map(|source| (source.path.as_str(), source)).collect();
        let found = findings("x/src/lib.rs", &by_path).into_iter();
        found.map(|finding| finding.place).collect::<Vec<_>>()
    };
    let folder_a = ("x/src/a/mod.rs", "mod c; pub use c::Thing; pub struct Of;");
    let lib = ("x/src/lib.rs", "mod a; mod b;");
    let thing = ("x/src/a/c.rs", "pub struct Thing;");
    // A folder and a file that names it: no circle.
    assert!(places(&[lib, folder_a, thing, ("x/src/b.rs", "use crate::a::Thing;")]).is_empty());
    let circle = ["x/src/lib.rs a, b".to_owned()];
    for (c, b) in [
        (
            "use crate::b::Other; pub struct Thing;",
            "use crate::a::Thing; pub struct Other;",
        ),
        (
            "pub struct Thing(super::super::b::Other);",
            "use super::a; pub struct Other;",
        ),
        (
            "pub struct Thing; fn f() { g!(1, crate::b::f()); }",
            "pub fn f() { crate::a::Thing; }",
        ),
    ] {
        assert_eq!(
            places(&[lib, folder_a, ("x/src/a/c.rs", c), ("x/src/b.rs", b)]),
            circle,
            "{c}"
        );
    }
    // What a facade declares and re-exports is no use; what it names is.
    let of = ("x/src/a/c/mod.rs", "mod d; use super::Of; pub struct Thing(Of);");
    let d = ("x/src/a/c/d.rs", "");
    assert!(places(&[lib, folder_a, of, d, ("x/src/b.rs", "")]).is_empty());
    let user = ("x/src/a/mod.rs", "mod c; use c::Thing; pub struct Of(Thing);");
    assert_eq!(
        places(&[lib, user, of, d, ("x/src/b.rs", "")]),
        ["x/src/lib.rs::a c, self"]
    );
    // Tests, and files of one folder, may do as they like.
    let tested = (
        "x/src/a/c.rs",
        "pub struct Thing; #[cfg(test)] mod tests { use crate::b::Other; }",
    );
    assert!(
        places(&[
            lib,
            folder_a,
            tested,
            ("x/src/b.rs", "use crate::a::Thing; pub struct Other;")
        ])
        .is_empty()
    );
    let files = [
        lib,
        ("x/src/a.rs", "use crate::b::Two; pub struct One;"),
        ("x/src/b.rs", "use crate::a::One; pub struct Two;"),
    ];
    assert!(places(&files).is_empty());
}
