//! Which compiled families fit a machine, and with which placement.
//!
//! Joins the registry with the planner's matcher: what a family asks of links is what its compiled variants use. Matching is
//! per schedule: where a machine lacks a link that only some schedules use, the family fits with the others as long as each
//! size class keeps one. Never touches a device. Start at [`match_families`].

use crate::planner::matching::{Devices, Match, Options, Pattern, Use, place};
use crate::planner::topology::{Link, Topology, parse_descriptor};
use crate::registry::{Family, Memory, Protocol, Registry, Variant};
use std::cmp::Reverse;

/// A family and how it fits.
#[derive(Clone, Debug)]
pub struct FamilyMatch {
    /// What was compiled.
    pub family: &'static Family,
    /// Kind, distance and placement; `placement[family rank]` is the live rank.
    pub found: Match,
    /// Variants that use a link which this placement does not have; they are of no use here.
    pub left_out: Vec<&'static str>,
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
    let mut found: Vec<FamilyMatch> = parsed
        .iter()
        .enumerate()
        .map(|(index, (family, topology))| {
            let (mut found, left_out) = fit(family, topology, live, options);
            found.index = index;
            FamilyMatch {
                family,
                found,
                left_out,
            }
        })
        .collect();
    found.sort_by(|a, b| key(a).cmp(&key(b)));
    found
}

/// As [`match_families`]; where no family takes all devices, the largest ones that take some of them come first.
pub fn match_subsets(registry: &Registry, live: &Topology, options: &Options) -> Vec<FamilyMatch> {
    let all = match_families(registry, live, options);
    let ranks: Vec<usize> = match &options.devices {
        Devices::All => (0..live.ranks).collect(),
        Devices::These(ranks) => ranks.clone(),
        Devices::AnyOf(_) => return all,
    };
    if all.iter().any(FamilyMatch::is_feasible) {
        return all;
    }
    let options = Options {
        devices: Devices::AnyOf(ranks),
        ..options.clone()
    };
    let mut some = match_families(registry, live, &options);
    some.sort_by_key(|m| Reverse(m.found.placement.len()));
    if some.iter().any(FamilyMatch::is_feasible) {
        some
    } else {
        all
    }
}

type Key<'a> = (u32, bool, Reverse<usize>, &'a str, &'a [usize], usize);

/// Nearest first; of two that are as near, a whole one, then the one that makes use of more of the machine's links.
fn key(m: &FamilyMatch) -> Key<'_> {
    let distance = m.found.distance.unwrap_or(u32::MAX);
    let mut links: Vec<(usize, usize)> = m
        .family
        .variants
        .iter()
        .flat_map(uses)
        .map(|u| (u.from, u.to))
        .collect();
    links.sort_unstable();
    links.dedup();
    let partly = !m.left_out.is_empty();
    (
        distance,
        partly,
        Reverse(links.len()),
        &m.found.family,
        &m.found.placement,
        m.found.index,
    )
}

/// The nearest placement for all variants, else for parts of them that still serve every size class.
fn fit(family: &Family, topology: &Topology, live: &Topology, options: &Options) -> (Match, Vec<&'static str>) {
    let whole = place(&pattern(family, topology), live, options);
    if whole.is_feasible() {
        let left_out = lacking_lines(family, &whole, live);
        return (whole, left_out);
    }
    let mut best: Option<Match> = None;
    for part in parts(family) {
        let uses: Vec<Use> = part.into_iter().flat_map(uses).collect();
        let found = place(&Pattern::of_uses(topology, uses), live, options);
        let nearer = |best: &Match| (found.distance, &found.placement) < (best.distance, &best.placement);
        if found.is_feasible() && best.as_ref().is_none_or(nearer) {
            best = Some(found);
        }
    }
    let Some(found) = best else {
        return (whole, Vec::new());
    };
    let served = |u: &Use| {
        let link = live.link(found.placement[u.from], found.placement[u.to]);
        link.is_some_and(|l| l.class.is_peer() && (l.read || !u.read) && (l.write || !u.write))
    };
    let lines = lacking_lines(family, &found, live);
    let lacks = |v: &&Variant| !uses(v).iter().all(served) || lines.contains(&v.name);
    let left_out = family.variants.iter().filter(lacks).map(|v| v.name).collect();
    (found, left_out)
}

/// Variants that need 128-byte lines to arrive whole, and stand on a live link that does not keep them.
fn lacking_lines(family: &Family, found: &Match, live: &Topology) -> Vec<&'static str> {
    let keeps = |u: &Use| {
        let link = live.link(found.placement[u.from], found.placement[u.to]);
        link.is_some_and(Link::keeps_lines)
    };
    let lacks = |v: &&Variant| v.protocol == Protocol::Packet128 && !uses(v).iter().all(keeps);
    family.variants.iter().filter(lacks).map(|v| v.name).collect()
}

/// Parts of a family's variants of which each serves every size class: without peer reads, one schedule, two schedules.
fn parts(family: &Family) -> Vec<Vec<&Variant>> {
    /// Families have a few dozen schedules at most; this many pairs of them are tried.
    const PAIRS: usize = 256;
    let pushing = || {
        family
            .variants
            .iter()
            .filter(|v| v.memory == Memory::Peer && v.protocol != Protocol::Pull)
    };
    let mut classes: Vec<u64> = family.variants.iter().flat_map(|v| v.classes).copied().collect();
    classes.sort_unstable();
    classes.dedup();
    let mut schedules: Vec<&str> = pushing().map(|v| v.schedule).collect();
    schedules.sort_unstable();
    schedules.dedup();
    let of = |names: &[&str]| -> Vec<&Variant> { pushing().filter(|v| names.contains(&v.schedule)).collect() };
    let mut out = vec![pushing().collect::<Vec<_>>()];
    out.extend(schedules.iter().map(|s| of(&[s])));
    let pairs = schedules
        .iter()
        .enumerate()
        .flat_map(|(i, a)| schedules[i + 1..].iter().map(move |b| [*a, *b]));
    out.extend(pairs.take(PAIRS).map(|pair| of(&pair)));
    let whole = |part: &Vec<&Variant>| {
        let serves = |class: &u64| part.iter().any(|v| v.classes.contains(class));
        !part.is_empty() && classes.iter().all(serves)
    };
    out.retain(whole);
    out
}

fn pattern<'a>(family: &Family, topology: &'a Topology) -> Pattern<'a> {
    if family.variants.iter().all(|v| v.memory == Memory::Host) {
        // Needs no peer link; its own links say for which machines it is meant.
        return Pattern::all_links(topology);
    }
    Pattern::of_uses(topology, family.variants.iter().flat_map(uses).collect())
}

/// Ordered pairs of positions in `devices` between which 128-byte lines may be cut: all whose link is not known to keep
/// them. One device's own memory does.
pub fn cut_lines(live: &Topology, devices: &[usize]) -> Vec<(usize, usize)> {
    let places = || devices.iter().enumerate();
    let pairs = places().flat_map(|a| places().map(move |b| (a, b)));
    let cut = pairs.filter(|((_, a), (_, b))| a != b && !live.link(**a, **b).is_some_and(Link::keeps_lines));
    cut.map(|((a, _), (b, _))| (a, b)).collect()
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
    use crate::planner::topology::{LinkClass, PcieClass};

    fn own(name: &str) -> Topology {
        let family = Registry::builtin().family(name).expect("built in");
        parse_descriptor(family.descriptor, family.file).expect("compiled")
    }

    #[test]
    fn every_built_in_machine_matches_its_own_family_exactly() {
        let registry = Registry::builtin();
        for family in registry.families().into_iter().filter(|f| !f.variants.is_empty()) {
            let best = &match_families(&registry, &own(family.name), &Options::default())[0];
            assert_eq!((best.family.name, &best.found.kind), (family.name, &Kind::Exact));
        }
    }

    #[test]
    fn an_unknown_pair_takes_the_nearest_peer_family() {
        let live = Topology::new("live", 2).with_pair(0, 1, LinkClass::NvLink { lanes: 18, r#gen: 4 });
        let best = &match_families(&Registry::builtin(), &live, &Options::default())[0];
        assert_eq!(best.family.name, "nvswitch-2");
        let bridged = Topology::new("live", 2).with_pair(0, 1, LinkClass::NvLink { lanes: 4, r#gen: 3 });
        let best = &match_families(&Registry::builtin(), &bridged, &Options::default())[0];
        assert_eq!(best.family.name, "nvlink-pair");
        assert!(best.is_feasible());
    }

    #[test]
    fn a_machine_that_forbids_peer_reads_keeps_the_family_without_its_pulls() {
        let mut live = Topology::new("live", 2).with_pair(0, 1, LinkClass::NvLink { lanes: 2, r#gen: 2 });
        live.links.iter_mut().for_each(|l| l.read = false);
        let all = match_families(&Registry::builtin(), &live, &Options::default());
        let pair = all.iter().find(|m| m.family.name == "nvlink-pair").expect("built in");
        assert!(pair.is_feasible());
        let pulls: Vec<&str> = (pair.family.variants.iter())
            .filter(|v| v.protocol == Protocol::Pull)
            .map(|v| v.name)
            .collect();
        assert_eq!(pair.left_out, pulls);
        live.links[0].write = false;
        let all = match_families(&Registry::builtin(), &live, &Options::default());
        assert!(all.iter().all(|m| !m.is_feasible() || m.family.name == "no-peer-pair"));
    }

    #[test]
    fn a_link_that_may_cut_lines_takes_the_variants_that_need_them_whole() {
        let lines_of = |live: &Topology| {
            let all = match_families(&Registry::builtin(), live, &Options::default());
            let pair = all.iter().find(|m| m.family.name == "nvlink-pair").expect("built in");
            assert!(pair.is_feasible());
            let needs = |v: &&Variant| v.protocol == Protocol::Packet128;
            assert!(pair.family.variants.iter().filter(needs).count() > 0);
            let all_of_them = |v: &str| pair.family.variants.iter().filter(needs).any(|n| n.name == v);
            assert!(pair.left_out.iter().all(|v| all_of_them(v)), "{:?}", pair.left_out);
            pair.left_out.len()
        };
        let mut live = Topology::new("live", 2).with_pair(0, 1, LinkClass::NvLink { lanes: 2, r#gen: 2 });
        assert_eq!(lines_of(&live), 0);
        // What doctor has seen of one direction.
        live.links[0].lines = false;
        assert!(lines_of(&live) > 0);
        assert_eq!(cut_lines(&live, &[0, 1, 1]), [(0, 1), (0, 2)]);
        let pcie = Topology::new("live", 2).with_pair(0, 1, LinkClass::Pcie(PcieClass::Pix));
        assert!(lines_of(&pcie) > 0);
    }

    #[test]
    fn a_machine_without_a_family_of_its_size_gets_one_for_some_of_its_gpus() {
        let live = Topology::new("live", 9).with_pair(0, 2, LinkClass::NvLink { lanes: 4, r#gen: 3 });
        let best = &match_subsets(&Registry::builtin(), &live, &Options::default())[0];
        assert_eq!(best.family.name, "nvlink-pair");
        assert_eq!(best.found.placement, [0, 2]);
    }

    #[test]
    fn without_peer_access_only_the_staged_family_fits() {
        let live = Topology::new("live", 2).with_pair(0, 1, LinkClass::Host);
        let all = match_families(&Registry::builtin(), &live, &Options::default());
        let fitting: Vec<_> = all.iter().filter(|m| m.is_feasible()).map(|m| m.family.name).collect();
        assert_eq!(fitting, ["no-peer-pair"]);
    }
}
