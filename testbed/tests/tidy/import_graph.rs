//! Which module of a crate names items of which other one, read from its sources. Follows re-exports to the module that defines an
//! item, so that a facade does not stand for what it passes on. What only tests use is left out.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use super::{macros, tree::Source};

/// Names from the root of a crate to a module, or to an item in it.
pub type Path = Vec<String>;

/// Steps from one re-export to the next at most: two modules may re-export each other.
const REEXPORTS_MAX: usize = 16;

/// One `use`: `name` is `None` for all names (`*`).
struct Import {
    name: Option<String>,
    target: Path,
}

/// One module of a crate.
#[derive(Default)]
struct Module {
    /// The file that it is written in.
    file: String,
    /// Items that it defines, apart from modules.
    items: BTreeSet<String>,
    imports: Vec<Import>,
    /// Paths that its code names, absolute.
    named: Vec<Path>,
}

/// The modules of one crate, by their paths.
pub struct Crate {
    modules: BTreeMap<Path, Module>,
}

/// A file that names something in another one.
pub struct Edge {
    pub from: Path,
    pub to: Path,
    /// Files of both.
    pub files: [String; 2],
}

impl Crate {
    /// Reads the crate whose root is the file `root`, out of all files of the repository.
    pub fn read(root: &str, sources: &BTreeMap<&str, &Source>) -> Self {
        let mut this = Self {
            modules: BTreeMap::new(),
        };
        this.read_file(root, Vec::new(), &super::modules::modules_folder(root), sources);
        this.resolve_names();
        this
    }

    fn read_file(&mut self, file: &str, path: Path, folder: &str, sources: &BTreeMap<&str, &Source>) {
        let source = sources[file];
        let module = Module {
            file: file.to_owned(),
            ..Module::default()
        };
        self.modules.insert(path.clone(), module);
        self.read_items(file, &source.syntax.items, path, folder, sources);
    }

    fn read_items(
        &mut self,
        file: &str,
        items: &[syn::Item],
        path: Path,
        folder: &str,
        sources: &BTreeMap<&str, &Source>,
    ) {
        let mut names = Names::default();
        for item in items.iter().filter(|item| !is_for_tests(item)) {
            let syn::Item::Mod(child) = item else {
                names.visit_item(item);
                names.items.extend(defined(item));
                if let syn::Item::Macro(item) = item {
                    names.items.extend(macros::defined(item).into_iter().map(|of| of.name));
                }
                continue;
            };
            let name = child.ident.to_string();
            let below = [path.as_slice(), std::slice::from_ref(&name)].concat();
            let inner = format!("{folder}/{name}");
            if let Some((_, items)) = &child.content {
                let module = Module {
                    file: file.to_owned(),
                    ..Module::default()
                };
                self.modules.insert(below.clone(), module);
                self.read_items(file, items, below, &inner, sources);
                continue;
            }
            let beside = [format!("{inner}.rs"), format!("{inner}/mod.rs")];
            if let Some(file) = beside.iter().find(|file| sources.contains_key(file.as_str())) {
                self.read_file(file, below, &inner, sources);
            }
        }
        let module = self.modules.get_mut(&path).expect("it was entered before its items");
        module.items = names.items;
        // Relative to this module, until all are known.
        module.imports = names.imports;
        module.named = names.named;
    }

    /// Makes the paths absolute, and forgets those that lead out of the crate.
    fn resolve_names(&mut self) {
        let known: BTreeSet<_> = self.modules.keys().cloned().collect();
        for (path, module) in &mut self.modules {
            let imports = std::mem::take(&mut module.imports);
            for import in imports {
                let Some(target) = absolute(&import.target, path, &known) else {
                    continue;
                };
                module.imports.push(Import { target, ..import });
            }
            let named = std::mem::take(&mut module.named);
            module.named = named.iter().filter_map(|named| absolute(named, path, &known)).collect();
        }
    }

    /// The module that defines what `path` names.
    fn defining(&self, path: &[String], steps: usize) -> Option<Path> {
        let mut at = Path::new();
        for (index, name) in path.iter().enumerate() {
            let (module, rest) = (&self.modules[&at], &path[index + 1..]);
            let below = [at.as_slice(), std::slice::from_ref(name)].concat();
            if rest.is_empty() && module.items.contains(name) {
                return Some(at);
            }
            if !rest.is_empty() && self.modules.contains_key(&below) {
                at = below;
                continue;
            }
            let named = module
                .imports
                .iter()
                .filter(|import| import.name.as_ref() == Some(name));
            for import in named.filter(|_| steps < REEXPORTS_MAX) {
                let target = [import.target.as_slice(), rest].concat();
                if target != path
                    && let Some(found) = self.defining(&target, steps + 1)
                {
                    return Some(found);
                }
            }
            if self.modules.contains_key(&below) {
                return Some(below);
            }
            if module.items.contains(name) {
                return Some(at);
            }
            let all = module.imports.iter().filter(|import| import.name.is_none());
            return all.filter(|_| steps < REEXPORTS_MAX).find_map(|import| {
                let target = [import.target.as_slice(), &path[index..]].concat();
                self.defining(&target, steps + 1)
            });
        }
        Some(at)
    }

    /// Every file that names something of another file of the crate.
    pub fn edges(&self) -> Vec<Edge> {
        let mut edges = Vec::new();
        for (from, module) in &self.modules {
            for named in &module.named {
                let Some(to) = self.defining(named, 0) else { continue };
                let other = &self.modules[&to].file;
                if *other != module.file {
                    edges.push(Edge {
                        from: from.clone(),
                        to,
                        files: [module.file.clone(), other.clone()],
                    });
                }
            }
        }
        edges
    }

    /// Whether modules below this one have files of their own, so that it is a folder.
    pub fn is_folder(&self, path: &[String]) -> bool {
        let file = &self.modules[path].file;
        self.modules
            .iter()
            .any(|(other, module)| other.len() > path.len() && other.starts_with(path) && module.file != *file)
    }
}

/// Whether an item is there only for tests.
fn is_for_tests(item: &syn::Item) -> bool {
    use syn::Item;
    let attributes = match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|path| path.is_ident("test"))
    })
}

/// The name that an item gives to what it defines.
fn defined(item: &syn::Item) -> Option<String> {
    use syn::Item;
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// A path as seen from the root of the crate; `None` if it leads out of it.
fn absolute(path: &[String], from: &[String], known: &BTreeSet<Path>) -> Option<Path> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([from, rest].concat()),
        "super" => {
            let mut from = from;
            let mut left = path;
            while let Some((_, rest)) = left.split_first().filter(|(first, _)| *first == "super") {
                from = from.split_last()?.1;
                left = rest;
            }
            Some([from, left].concat())
        }
        name => {
            let below = [from, &[name.to_owned()]].concat();
            known.contains(&below).then(|| [below.as_slice(), rest].concat())
        }
    }
}

/// What the items of one module name.
#[derive(Default)]
struct Names {
    items: BTreeSet<String>,
    imports: Vec<Import>,
    named: Vec<Path>,
}

impl Names {
    /// Takes a `use` apart. What a module re-exports of those below it is no use of them.
    fn import(&mut self, tree: &syn::UseTree, mut before: Path, is_public: bool) {
        let (name, target) = match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                return self.import(&path.tree, before, is_public);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, before.clone(), is_public);
                }
                return;
            }
            syn::UseTree::Glob(_) => (None, before),
            syn::UseTree::Name(name) if name.ident == "self" => (before.last().cloned(), before),
            syn::UseTree::Name(name) => {
                let name = name.ident.to_string();
                (Some(name.clone()), [before.as_slice(), &[name]].concat())
            }
            syn::UseTree::Rename(rename) => {
                let target = match rename.ident.to_string().as_str() {
                    "self" => before,
                    name => [before.as_slice(), &[name.to_owned()]].concat(),
                };
                (Some(rename.rename.to_string()), target)
            }
        };
        let leads_out = matches!(target.first().map(String::as_str), Some("crate" | "super"));
        if !is_public || leads_out {
            self.named.push(target.clone());
        }
        self.imports.push(Import { name, target });
    }

    /// Paths in what a macro is given, which may be no expression.
    fn tokens(&mut self, tokens: proc_macro2::TokenStream) {
        use proc_macro2::TokenTree;
        let mut path = Path::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        path.clear();
                    }
                    path.push(name.to_string());
                    colons = 0;
                    if path.len() > 1 {
                        self.named.push(path.clone());
                    }
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    path.clear();
                    self.tokens(group.stream());
                }
                _ => path.clear(),
            }
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        self.import(&item.tree, Path::new(), is_public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let names = path.segments.iter().map(|segment| segment.ident.to_string());
            self.named.push(names.collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }

    // `pub(in a::b)` names no item.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}
