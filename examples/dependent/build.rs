fn main() -> Result<(), topoforge_codegen::ForgeError> {
    topoforge_codegen::Forge::new().topologies("topologies").compile()
}
