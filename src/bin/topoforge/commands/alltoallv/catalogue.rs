//! `alltoallv catalogue`: builds a catalogue, checks it, times it, and holds it against the one that was compiled in.
//!
//! Start at [`run`].

use super::machine;
use crate::args::CatalogueArgs;
use crate::failure::{Failure, Outcome};
use crate::names;
use crate::report::Output;
use crate::report::alltoallv::catalogue::{CatalogueReport, PartLine, ProfileLine};
use std::time::Instant;
use topoforge::planner::alltoallv::catalogue::NodeCatalogue;
use topoforge::planner::alltoallv::{Catalogue, base};
use topoforge::registry::Registry;

/// Builds that are timed; the shortest counts, since nothing makes a build shorter than it is.
const BUILDS: usize = 3;

/// `topoforge alltoallv catalogue`
pub fn run(args: &CatalogueArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let (name, machine) = machine(&args.target)?;
    let embedded = match names::is_file(&args.target) {
        true => None,
        false => names::family(&Registry::builtin(), &args.target)?.alltoallv,
    };
    let (mut build_ms, mut base_ms) = (f64::INFINITY, f64::INFINITY);
    let mut built = None;
    for _ in 0..BUILDS {
        let start = Instant::now();
        let sequences = base::recorded(&machine);
        base_ms = base_ms.min(start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        let catalogue =
            Catalogue::of_machine(&machine, sequences).map_err(|e| Failure::work(format!("{name}: {e}")))?;
        let bytes = catalogue.to_bytes();
        build_ms = build_ms.min(start.elapsed().as_secs_f64() * 1e3);
        built = Some((catalogue, bytes));
    }
    let (catalogue, bytes) = built.ok_or_else(|| Failure::work("nothing was built"))?;
    let node = machine
        .fabric(None)
        .map_err(|e| Failure::work(format!("{name}: {e}")))?;
    let fault = match (catalogue.verify(&node), embedded) {
        (Err(e), _) => Some(format!("{name}: {e}")),
        (Ok(()), Some(compiled)) if compiled != bytes => {
            Some(format!("{name}: the catalogue compiled in is another one: build again"))
        }
        _ => None,
    };
    let counts = catalogue.counts();
    let part = |nodes: &'static str, part: &NodeCatalogue| PartLine {
        nodes,
        families: part.families.len(),
        shapes: part.shapes,
        orbits: part.orbits.len(),
        symmetries: part.symmetry.groups.len(),
        lane_types: part.template.types.len(),
        searched: part.searched,
    };
    let alone = catalogue.alone.iter().map(|p| part("one", p));
    let member = catalogue.member.iter().map(|p| part("several", p));
    output.emit(&CatalogueReport {
        topology: name,
        ranks_per_node: node.ranks_per_node(),
        nodes: (!machine.any_nodes).then_some(machine.spec.nodes),
        families: counts.families,
        shapes: counts.shapes,
        orbits: counts.orbits,
        bytes: bytes.len(),
        build_ms,
        base_steps: catalogue.sequences.uniform.len(),
        profiles: (catalogue.sequences.profiles.iter())
            .map(|recorded| ProfileLine {
                name: recorded.profile.name().to_owned(),
                steps: recorded.steps.len(),
            })
            .collect(),
        base_ms,
        embedded: embedded.is_some(),
        parts: alone.chain(member).collect(),
    })?;
    Ok(fault.map_or(Outcome::Done, Outcome::Failed))
}
