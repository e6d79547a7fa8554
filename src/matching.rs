//! Which compiled families fit a machine, and with which placement.
//!
//! Joins the registry with the planner's matcher: what a family asks of links is what its compiled variants use. Never
//! touches a device. Start at [`match_families`].

use crate::planner::matching::{Match, Options, Pattern, Use, nearest};
use crate::planner::topology::{Topology, parse_descriptor};
use crate::registry::{Family, Memory, Protocol, Registry, Variant};

/// A family and how it fits.
#[derive(Clone, Debug)]
pub struct FamilyMatch {
    /// What was compiled.
    pub family: &'static Family,
    /// Kind, distance and placement; `placement[family rank]` is the live rank.
    pub found: Match,
}

impl FamilyMatch {
    /// Whether the family can run there at all.
    pub fn is_feasible(&self) -> bool {
        self.found.is_feasible()
    }
}

/// All families on `live`, best first; infeasible ones last, each with its reason. A family whose embedded descriptor
/// does not parse, which the build rules out, is left out.
pub fn match_families(registry: &Registry, live: &Topology, options: &Options) -> Vec<FamilyMatch> {
    let parsed: Vec<(&'static Family, Topology)> = registry
        .families()
        .into_iter()
        .filter(|f| !f.variants.is_empty())
        .filter_map(|f| parse_descriptor(f.descriptor, f.file).ok().map(|t| (f, t)))
        .collect();
    let patterns: Vec<Pattern<'_>> = parsed.iter().map(|(f, t)| pattern(f, t)).collect();
    nearest(&patterns, live, options)
        .into_iter()
        .map(|found| FamilyMatch {
            family: parsed[found.index].0,
            found,
        })
        .collect()
}

fn pattern<'a>(family: &Family, topology: &'a Topology) -> Pattern<'a> {
    if family.variants.iter().all(|v| v.memory == Memory::Host) {
        // Needs no peer link; its own links say for which machines it is meant.
        return Pattern::all_links(topology);
    }
    Pattern::of_uses(topology, family.variants.iter().flat_map(uses).collect())
}

/// The directed links that a variant uses.
pub fn uses(variant: &Variant) -> Vec<Use> {
    if variant.memory == Memory::Host {
        return Vec::new();
    }
    let read = variant.protocol == Protocol::Pull;
    let mut uses = Vec::new();
    for (from, ports) in variant.ranks.iter().enumerate() {
        // A pull's puts are signal words, its gets reads of the peers' inputs.
        uses.extend(ports.puts.iter().map(|put| Use {
            from,
            to: put.peer as usize,
            read,
            write: true,
        }));
    }
    uses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::matching::Kind;
    use crate::planner::topology::LinkClass;

    fn own(name: &str) -> Topology {
        let family = Registry::builtin().family(name).expect("built in");
        parse_descriptor(family.descriptor, family.file).expect("compiled")
    }

    #[test]
    fn every_built_in_machine_matches_its_own_family_exactly() {
        let registry = Registry::builtin();
        for family in registry.families() {
            let best = &match_families(&registry, &own(family.name), &Options::default())[0];
            assert_eq!((best.family.name, &best.found.kind), (family.name, &Kind::Exact));
        }
    }

    #[test]
    fn an_unknown_pair_takes_the_nearest_peer_family() {
        let live = Topology::new("live", 2).with_pair(0, 1, LinkClass::NvLink { lanes: 18, r#gen: 4 });
        let best = &match_families(&Registry::builtin(), &live, &Options::default())[0];
        assert_eq!(best.family.name, "nvlink-pair");
        assert!(best.is_feasible());
    }

    #[test]
    fn without_peer_access_only_the_staged_family_fits() {
        let live = Topology::new("live", 2).with_pair(0, 1, LinkClass::Host);
        let all = match_families(&Registry::builtin(), &live, &Options::default());
        let fitting: Vec<_> = all.iter().filter(|m| m.is_feasible()).map(|m| m.family.name).collect();
        assert_eq!(fitting, ["no-peer-pair"]);
    }
}
