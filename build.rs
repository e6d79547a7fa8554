//! Builds this crate's own `topologies/`; all logic is in `topoforge-codegen`.

use topoforge_codegen::toolkit::STANDARD_ARCHS;
use topoforge_codegen::{Element, Forge, ForgeError, Set};

fn main() -> Result<(), ForgeError> {
    let feature = |name: &str| {
        let variable = format!("CARGO_FEATURE_{}", name.to_uppercase().replace('-', "_"));
        std::env::var_os(variable).is_some()
    };
    let elements: Vec<Element> = (Element::ALL.iter().copied()).filter(|e| feature(e.name())).collect();
    let sets: Vec<Set> = Set::ALL.iter().copied().filter(|s| feature(s.name())).collect();
    let archs: Vec<u32> = (STANDARD_ARCHS.iter().copied())
        .filter(|sm| feature(&format!("sm-{sm}")))
        .collect();
    Forge::new()
        .topologies("topologies")
        .elements(&elements)
        .sets(&sets)
        .archs(&archs)
        .host_executor(feature("host-executor"))
        .require_cuda(feature("require-cuda"))
        .toolkit_fallback(concat!(env!("CARGO_MANIFEST_DIR"), "/.toolkit"))
        .tools()
        .compile()
}
