//! The types that a macro of this project defines (`settings!`, `named!` and others): they stand in its tokens, where `syn` sees
//! no items.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// A type that is defined inside a macro's tokens.
#[derive(Debug, PartialEq, Eq)]
pub struct Defined {
    pub name: String,
    /// Named fields, if the type is a struct.
    pub fields: usize,
    pub is_public: bool,
}

/// The types that a macro is given to define.
pub fn defined(item: &syn::ItemMacro) -> Vec<Defined> {
    // A macro's own rules define nothing.
    if item.ident.is_some() {
        return Vec::new();
    }
    let tokens: Vec<_> = item.mac.tokens.clone().into_iter().collect();
    let is = |token: Option<&TokenTree>, word: &str| matches!(token, Some(TokenTree::Ident(ident)) if ident == word);
    let mut types = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let is_struct = is(Some(token), "struct");
        if !is_struct && !is(Some(token), "enum") {
            continue;
        }
        let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else {
            continue;
        };
        let body = tokens[at..].iter().find_map(|token| match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.stream()),
            _ => None,
        });
        types.push(Defined {
            name: name.to_string(),
            fields: body.filter(|_| is_struct).map_or(0, fields),
            is_public: at > 0 && is(tokens.get(at - 1), "pub"),
        });
    }
    types
}

/// Counts the colons that stand alone: each is a field's.
fn fields(body: TokenStream) -> usize {
    let mut count = 0;
    let mut follows_colon = false;
    for token in body {
        let TokenTree::Punct(punct) = token else {
            follows_colon = false;
            continue;
        };
        let is_colon = punct.as_char() == ':';
        count += usize::from(is_colon && punct.spacing() == Spacing::Alone && !follows_colon);
        follows_colon = is_colon && punct.spacing() == Spacing::Joint;
    }
    count
}

#[test]
fn types_and_fields_in_macros_are_seen() {
    let item = syn::parse_quote! {
        settings! {
            pub struct Link<S = Kind>, changed by struct Change {
                pub rate: Option<crate::Rate>,
                pub delay as "delay-ns": u64,
            }
            enum Reason { Mark = "mark" }
        }
    };
    let found: Vec<_> = defined(&item)
        .into_iter()
        .map(|of| (of.name, of.fields, of.is_public))
        .collect();
    let expected = [("Link", 2, true), ("Change", 2, false), ("Reason", 0, false)];
    assert_eq!(
        found,
        expected.map(|(name, fields, public)| (name.to_owned(), fields, public))
    );
}
