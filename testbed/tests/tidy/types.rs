//! A type has few parts, and its methods stand where it does.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};

use super::{Finding, exceptions, judge, macros, tree};

/// Named fields of a struct at most: more are parts of their own.
const FIELDS_MAX: usize = 15;

/// The name of the type that an `impl` is for, if it is a plain one.
pub fn self_type(item: &syn::ItemImpl) -> Option<String> {
    match &*item.self_ty {
        syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}

#[derive(Default)]
struct Types {
    /// Names of the types defined here, with the number of their named fields.
    defined: Vec<(String, usize)>,
    /// Names of the types with inherent methods here.
    with_methods: Vec<String>,
}

impl<'ast> Visit<'ast> for Types {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let fields = match &item.fields {
            syn::Fields::Named(fields) => fields.named.len(),
            _ => 0,
        };
        self.defined.push((item.ident.to_string(), fields));
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.defined.push((item.ident.to_string(), 0));
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.defined.push((item.ident.to_string(), 0));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.trait_.is_none() {
            self.with_methods.extend(self_type(item));
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        let types = macros::defined(item).into_iter();
        self.defined.extend(types.map(|of| (of.name, of.fields)));
    }
}

fn types(source: &tree::Source) -> Types {
    let mut types = Types::default();
    types.visit_file(&source.syntax);
    types
}

/// The crate that a file belongs to: the folder that holds `src`, `tests` or `benches`.
fn crate_of(path: &str) -> &str {
    let ends = ["/src/", "/tests/", "/benches/", "/examples/"];
    let end = ends.iter().filter_map(|folder| path.find(folder)).min();
    end.map_or(path, |end| &path[..end])
}

/// Whether methods of a type that is defined in one file may stand in the other: in its folder.
fn is_beside(defined: &str, methods: &str) -> bool {
    let folder = match defined.strip_suffix("/mod.rs") {
        Some(folder) => folder,
        None => defined.trim_end_matches(".rs"),
    };
    defined == methods || methods.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

#[test]
fn structs_have_at_most_15_fields_or_named_parts() {
    let mut findings = Vec::new();
    for source in tree::sources() {
        let wide = types(&source)
            .defined
            .into_iter()
            .filter(|(_, fields)| *fields > FIELDS_MAX);
        findings.extend(wide.map(|(name, fields)| Finding {
            place: format!("{} {name}", source.path),
            what: format!("has {fields} fields"),
        }));
    }
    judge(
        "structs have at most 15 fields or named parts",
        &findings,
        exceptions::WIDE_STRUCTS,
    );
}

#[test]
fn inherent_methods_of_a_type_stand_in_its_own_file_or_folder() {
    let of_files: Vec<_> = tree::sources()
        .iter()
        .map(|source| (source.path.clone(), types(source)))
        .collect();
    let mut homes = BTreeMap::<(&str, &str), Vec<&str>>::new();
    for (path, types) in &of_files {
        for (name, _) in &types.defined {
            homes.entry((crate_of(path), name)).or_default().push(path);
        }
    }
    let mut findings = Vec::new();
    for (path, types) in &of_files {
        for name in &types.with_methods {
            let homes = homes.get(&(crate_of(path), &**name)).map_or(&[][..], Vec::as_slice);
            // A type that a library's macro defines is found nowhere, and cannot be defined elsewhere by hand.
            if !homes.is_empty() && !homes.iter().any(|home| is_beside(home, path)) {
                findings.push(Finding {
                    place: format!("{path} {name}"),
                    what: format!("is defined in {}", homes.join(" or ")),
                });
            }
        }
    }
    judge(
        "inherent methods of a type stand in its own file or folder",
        &findings,
        exceptions::METHODS_ELSEWHERE,
    );
}

#[test]
fn what_is_beside_a_type_is_its_folder() {
    for (defined, methods, beside) in [
        ("a/src/b.rs", "a/src/b.rs", true),
        ("a/src/b.rs", "a/src/b/c.rs", true),
        ("a/src/b/mod.rs", "a/src/b/c/d.rs", true),
        ("a/src/b.rs", "a/src/bc.rs", false),
        ("a/src/b/c.rs", "a/src/b/mod.rs", false),
        ("a/src/b/c.rs", "a/src/b/d.rs", false),
    ] {
        assert_eq!(is_beside(defined, methods), beside, "{defined} {methods}");
    }
}
