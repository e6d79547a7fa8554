//! `families!` and `family!`: descriptors and the build's manifest become a typed static registry.
//!
//! No planning of its own: `expand` prints what the manifest says and checks that it still fits the descriptors,
//! `names` resolves a family's name with near names on a miss. Start at [`families`].

mod expand;
mod names;

use proc_macro::TokenStream;

/// Expands to a `&'static topoforge::registry::FamilySet` of everything that this crate's `build.rs` compiled from the
/// descriptors of a folder.
///
/// Each fault of a descriptor becomes a `compile_error!` whose text begins `topologies/x.ron:12:5:`.
///
/// ```ignore
/// static FAMILIES: &topoforge::registry::FamilySet = topoforge::families!("topologies");
/// ```
#[proc_macro]
pub fn families(input: TokenStream) -> TokenStream {
    let folder = syn::parse_macro_input!(input as syn::LitStr);
    expand::families(&folder).into()
}

/// Names one family: `family!(nvlink_pair)` of topoforge's own, `family!(SET, my_box)` of a set of yours. Expands to a
/// `&'static topoforge::registry::Family`; a name that does not exist is an error at its place, with near names.
#[proc_macro]
pub fn family(input: TokenStream) -> TokenStream {
    let query = syn::parse_macro_input!(input as names::Query);
    names::family(&query).into()
}
