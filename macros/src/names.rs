//! Resolves a family's name at compile time.
//!
//! Topoforge's own names are those of its `topologies/` folder, which lies beside this crate; a caller's own set is
//! looked up in the caller's manifest. Start at [`family`].

use crate::expand;
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use std::path::Path;
use syn::parse::{Parse, ParseStream};
use syn::{Ident, LitStr, Token};
use topoforge_planner::names::nearest;
use topoforge_planner::topology::parse_descriptor;

/// `name`, `"name"`, `SET, name` or `SET, "name"`.
pub(crate) struct Query {
    set: Option<syn::Path>,
    name: Name,
}

/// A family's name as written: an identifier, with `_` for `-`, or a text for names that are no identifiers.
struct Name {
    text: String,
    span: Span,
}

impl Parse for Name {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(LitStr) {
            let text: LitStr = input.parse()?;
            return Ok(Self {
                text: text.value(),
                span: text.span(),
            });
        }
        let name: Ident = input.parse()?;
        Ok(Self::of(&name))
    }
}

impl Name {
    fn of(name: &Ident) -> Self {
        Self {
            text: name.to_string().replace('_', "-"),
            span: name.span(),
        }
    }
}

impl Parse for Query {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(LitStr) {
            return Ok(Self {
                set: None,
                name: input.parse()?,
            });
        }
        let first = syn::Path::parse_mod_style(input)?;
        if input.peek(Token![,]) {
            input.parse::<Token![,]>()?;
            return Ok(Self {
                set: Some(first),
                name: input.parse()?,
            });
        }
        let name = first
            .get_ident()
            .map(Name::of)
            .ok_or_else(|| syn::Error::new_spanned(&first, "expected a family's name, e.g. nvlink_pair"))?;
        Ok(Self { set: None, name })
    }
}

pub(crate) fn family(query: &Query) -> TokenStream {
    let (name, span) = (&query.name.text, query.name.span);
    let known = match &query.set {
        None => own_names(),
        // A set of another crate has no manifest here: it is looked up when the program runs.
        Some(_) => expand::manifest()
            .map(|m| {
                (m.families.into_iter())
                    .flat_map(|f| f.aliases.into_iter().chain([f.name]))
                    .collect()
            })
            .unwrap_or_default(),
    };
    if !known.is_empty() && !known.contains(name) {
        let near = offers(name, &known);
        let hint = if near.is_empty() {
            format!("known: {}", known.join(", "))
        } else {
            format!("did you mean {}?", near.join(" or "))
        };
        let text = LitStr::new(&format!("no family `{name}`: {hint}"), span);
        return quote_spanned!(span => ::core::compile_error!(#text));
    }
    let set = match &query.set {
        Some(path) => quote!(#path),
        None => quote!(::topoforge::BUILTIN),
    };
    quote!(::topoforge::registry::named(#set, #name))
}

fn own_names() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../topologies");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|e| e.path().extension().is_some_and(|x| x == "ron"))
        .filter_map(|e| std::fs::read_to_string(e.path()).ok())
        // By the name inside, which need not be the file's.
        .filter_map(|text| parse_descriptor(&text, "").ok())
        .flat_map(|t| t.aliases.into_iter().chain([t.name]))
        .collect();
    names.sort();
    names
}

/// Names to offer, as the macro takes them.
fn offers(name: &str, known: &[String]) -> Vec<String> {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let near = nearest(name, &known);
    near.iter().map(|k| format!("`{}`", k.replace('-', "_"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_offered_as_the_macro_takes_them() {
        let known = ["nvlink-pair", "nvlink-quad", "pix-pair"].map(String::from);
        assert_eq!(offers("nvlink-pare", &known), ["`nvlink_pair`"]);
        assert_eq!(offers("pix-pear", &known)[0], "`pix_pair`");
        assert!(offers("cube", &known).is_empty());
    }
}
