//! Prints the CUDA text of a variant: `cargo run -p topoforge-codegen --example show -- FILE.ron [VARIANT]`.
//! Without a variant: the names of all.

use topoforge_codegen::Element;
use topoforge_codegen::select::select;
use topoforge_planner::topology::parse_descriptor;

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("which descriptor?")?;
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
    let faults = |list: Vec<_>| list.iter().map(ToString::to_string).collect::<Vec<String>>().join("\n");
    let topology = parse_descriptor(&text, &file).map_err(faults)?;
    let selection = select(&topology, &[Element::F16]);
    match arguments.next() {
        None => selection.variants.iter().for_each(|v| println!("{}", v.name)),
        Some(name) => {
            let variant = selection
                .variants
                .iter()
                .find(|v| v.name == name)
                .ok_or("no such variant")?;
            print!("{}", selection.kernels[&variant.kernel].text);
        }
    }
    Ok(())
}
