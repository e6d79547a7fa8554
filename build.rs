//! Builds this crate's own `topologies/`; all logic is in `topoforge-codegen`.

use topoforge_codegen::{Forge, ForgeError};

fn main() -> Result<(), ForgeError> {
    let feature = |name: &str| std::env::var_os(format!("CARGO_FEATURE_{name}")).is_some();
    Forge::new()
        .topologies("topologies")
        .host_executor(feature("HOST_EXECUTOR"))
        .require_cuda(feature("REQUIRE_CUDA"))
        .toolkit_fallback(concat!(env!("CARGO_MANIFEST_DIR"), "/.toolkit"))
        .tools()
        .compile()
}
