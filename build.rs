//! Builds this crate's own `topologies/`; all logic is in `topoforge-codegen`.

use topoforge_codegen::{Element, Forge, ForgeError};

fn main() -> Result<(), ForgeError> {
    let feature = |name: &str| std::env::var_os(format!("CARGO_FEATURE_{name}")).is_some();
    let elements: Vec<Element> = (Element::ALL.iter().copied())
        .filter(|e| feature(&e.name().to_uppercase()))
        .collect();
    Forge::new()
        .topologies("topologies")
        .elements(&elements)
        .host_executor(feature("HOST_EXECUTOR"))
        .require_cuda(feature("REQUIRE_CUDA"))
        .toolkit_fallback(concat!(env!("CARGO_MANIFEST_DIR"), "/.toolkit"))
        .tools()
        .compile()
}
