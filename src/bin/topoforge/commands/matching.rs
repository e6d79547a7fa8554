//! `match`: which compiled family fits the live machine or a described one, and why the others do not.
//!
//! A match is a proposal: it must still qualify and win. Start at [`run`].

use super::plan::target;
use crate::args::MatchArgs;
use crate::failure::{Failure, Outcome};
use crate::report::Output;
use crate::report::plans::{MatchLine, MatchReport};
use topoforge::matching::{FamilyMatch, match_families, match_subsets};
use topoforge::planner::matching::{Devices, Kind, Options};
use topoforge::probe::probe;
use topoforge::registry::Registry;

/// `topoforge match`
pub fn run(args: &MatchArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let registry = Registry::builtin();
    let (topology, level, gpus) = match &args.target {
        Some(text) => (target(text)?, "descriptor", Vec::new()),
        None => {
            let live = probe().map_err(Failure::work)?;
            for warning in &live.warnings {
                output.warn(warning);
            }
            let gpus = live.gpus.iter().map(|g| format!("{} at {}", g.name, g.pci)).collect();
            (live.topology, live.level.name(), gpus)
        }
    };
    let devices = if args.any {
        Devices::AnyOf((0..topology.ranks).collect())
    } else {
        Devices::All
    };
    let options = Options {
        devices,
        ..Options::default()
    };
    let found = match_families(&registry, &topology, &options);
    let best = found
        .first()
        .filter(|m| m.is_feasible())
        .map(|m| m.family.name.to_owned());
    output.emit(&MatchReport {
        topology: topology.name.clone(),
        ranks: topology.ranks,
        level: level.to_owned(),
        gpus,
        best: best.clone(),
        families: found.iter().enumerate().map(|(place, m)| line(place, m)).collect(),
    })?;
    Ok(match best {
        Some(_) => Outcome::Done,
        None => {
            let some = match_subsets(&registry, &topology, &options);
            let some = some.first().filter(|m| m.is_feasible() && !args.any).map(|m| {
                let taken = m.found.placement.len();
                format!(
                    "take {taken} of its {} ranks for {} with --any, or ",
                    topology.ranks, m.family.name
                )
            });
            Outcome::Failed(format!(
                "no compiled family fits {}: {}describe it in a file of its own under topologies/ and rebuild",
                topology.name,
                some.unwrap_or_default()
            ))
        }
    })
}

fn line(place: usize, m: &FamilyMatch) -> MatchLine {
    let (kind, reason) = match &m.found.kind {
        Kind::Exact => ("exact", None),
        Kind::Compatible => ("compatible", None),
        Kind::Degraded => ("degraded", None),
        Kind::Infeasible(reason) => ("infeasible", Some(reason.to_string())),
    };
    let behind = || match m.found.changes.len() {
        0 => "as near, but later by name".to_owned(),
        1 => "farther: 1 link differs in class".to_owned(),
        n => format!("farther: {n} links differ in class"),
    };
    MatchLine {
        family: m.family.name.to_owned(),
        kind,
        distance: m.found.distance,
        placement: m.found.placement.clone(),
        optimal: m.found.optimal,
        reason: reason.or_else(|| (place > 0).then(behind)),
        changes: m.found.changes.iter().map(ToString::to_string).collect(),
    }
}
