//! A file holds one concept.
//!
//! A machine can see this much of it: two types that other files use, each with several methods of its own, are two concepts. Values
//! without much behaviour may stand beside the type that they belong to, and the file of a folder (`mod.rs`) beside its types.

use syn::visit::{self, Visit};

use super::{Finding, exceptions, judge, macros, tree, types::self_type};

/// Methods by which a type is a concept and not only a value.
const METHODS_MIN: usize = 5;

#[derive(Default)]
struct Concepts {
    /// Types that other files may use.
    public: Vec<String>,
    /// A type's name for each of its inherent methods that other files may use.
    methods: Vec<String>,
}

fn is_public(visibility: &syn::Visibility) -> bool {
    !matches!(visibility, syn::Visibility::Inherited)
}

impl<'ast> Visit<'ast> for Concepts {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.public.extend(is_public(&item.vis).then(|| item.ident.to_string()));
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.public.extend(is_public(&item.vis).then(|| item.ident.to_string()));
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        let types = macros::defined(item).into_iter().filter(|of| of.is_public);
        self.public.extend(types.map(|of| of.name));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let (None, Some(name)) = (&item.trait_, self_type(item)) {
            let methods = item.items.iter().filter(|item| match item {
                syn::ImplItem::Fn(method) => is_public(&method.vis),
                _ => false,
            });
            self.methods.extend(methods.map(|_| name.clone()));
        }
        visit::visit_item_impl(self, item);
    }
}

/// The concepts of a file, by name.
fn concepts(syntax: &syn::File) -> Vec<String> {
    let mut found = Concepts::default();
    found.visit_file(syntax);
    let Concepts { public, methods } = found;
    let count = |name: &String| methods.iter().filter(|of| *of == name).count();
    public.into_iter().filter(|name| count(name) >= METHODS_MIN).collect()
}

#[test]
fn a_file_holds_one_concept() {
    let is_facade = |path: &str| {
        ["/mod.rs", "/lib.rs", "/main.rs"]
            .iter()
            .any(|name| path.ends_with(name))
    };
    let sources = tree::sources();
    let sources = sources
        .iter()
        .filter(|source| source.path.contains("/src/") && !source.path.contains("/tests/") && !is_facade(&source.path));
    let findings: Vec<_> = sources
        .filter_map(|source| {
            let concepts = concepts(&source.syntax);
            (concepts.len() > 1).then(|| Finding {
                place: source.path.clone(),
                what: format!("holds {}", concepts.join(" and ")),
            })
        })
        .collect();
    judge("a file holds one concept", &findings, exceptions::SEVERAL_CONCEPTS);
}

#[test]
fn a_type_with_methods_that_others_call_is_a_concept() {
    let of = |methods: &str| {
        let text =
            format!("pub struct A; impl A {{ {methods} }} pub struct B(u8); impl B {{ pub fn one(&self) {{}} }}");
        concepts(&syn::parse_file(&text).expect("this is Rust"))
    };
    let methods = |visibility: &str| {
        (0..METHODS_MIN)
            .map(|n| format!("{visibility} fn m{n}(&self) {{}}"))
            .collect::<String>()
    };
    assert_eq!(of(&methods("pub(crate)")), ["A"]);
    assert!(of(&methods("")).is_empty());
}
