//! A function is read at one look.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::{Finding, exceptions, judge, tree};

/// Lines of a function at most, from its first attribute to its last brace.
const LINES_MAX: usize = 70;

struct Functions<'a> {
    path: &'a str,
    /// The type or modules around, each with a colon behind it.
    around: String,
    findings: Vec<Finding>,
}

impl Functions<'_> {
    fn check(&mut self, name: &syn::Ident, whole: proc_macro2::Span) {
        let lines = whole.end().line - whole.start().line + 1;
        if lines > LINES_MAX {
            self.findings.push(Finding {
                place: format!("{} {}{name}", self.path, self.around),
                what: format!("has {lines} lines"),
            });
        }
    }

    fn within(&mut self, name: &str, go_on: impl FnOnce(&mut Self)) {
        let len = self.around.len();
        self.around += name;
        self.around += "::";
        go_on(self);
        self.around.truncate(len);
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.check(&item.sig.ident, item.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.check(&item.sig.ident, item.span());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.check(&item.sig.ident, item.span());
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = super::types::self_type(item).unwrap_or_default();
        self.within(&name, |this| visit::visit_item_impl(this, item));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.within(&item.ident.to_string(), |this| visit::visit_item_mod(this, item));
    }
}

#[test]
fn functions_have_at_most_70_lines() {
    let mut findings = Vec::new();
    for source in tree::sources() {
        let mut functions = Functions {
            path: &source.path,
            around: String::new(),
            findings: Vec::new(),
        };
        functions.visit_file(&source.syntax);
        findings.append(&mut functions.findings);
    }
    judge("functions have at most 70 lines", &findings, exceptions::LONG_FUNCTIONS);
}
