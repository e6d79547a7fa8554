//! Chooses what a family compiles: the plan's shortlists, in the protocols that fit their size classes, within the
//! kernel budget.
//!
//! It plans through the planner and lowers; it compiles nothing. Start at [`select`].

use crate::headers;
use crate::lower::{Element, Lowered, Partials, Protocol, lower};
use crate::manifest::VariantEntry;
use std::collections::{BTreeMap, BTreeSet};
use topoforge_planner::schedule::{
    EdgePolicy, Plan, PlanOptions, Schedule, Verified, family_options, family_policy, plan,
};
use topoforge_planner::topology::Topology;

/// Distinct kernels a family may have for one element type: the first place of every size class, partials policy and
/// protocol, and then some.
pub const MAX_KERNELS: usize = 16;

/// Largest class bound in which packets, which double the bytes, are listed beside sentinels.
const PACKET_UP_TO: u64 = 16 << 10;
/// Smallest class bound in which lines get room of their own.
const LINES_FROM: u64 = 128 << 10;
/// Smallest class bound whose payloads may amortise the flag protocol's fence.
const FLAG_FROM: u64 = 128 << 10;

/// A family's variants and the kernels behind them, in shortlist order.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// What the registry lists.
    pub variants: Vec<VariantEntry>,
    /// Kernels by content hash.
    pub kernels: BTreeMap<String, crate::lower::KernelText>,
    /// Schedules that the verifier refused or that could not be lowered, with the reason; never silent.
    pub dropped: Vec<String>,
}

/// The planner's options for a partials policy. Plans know the ratio of the two widths and no types: f32 elements are
/// planned as f16 with f16 partials are.
fn options(topology: &Topology, partials: Partials) -> PlanOptions {
    let width = match partials {
        Partials::Element => 2,
        Partials::F32 => 4,
    };
    family_options(topology, width)
}

/// One candidate of the selection: where it stands on its shortlist decides what the budget drops.
struct Wanted<'p> {
    position: usize,
    bound: u64,
    schedule: &'p Verified<Schedule>,
    protocol: Protocol,
    element: Element,
    partials: Partials,
    baseline: bool,
}

/// Everything that a family compiles for these element types, one after the other.
pub fn select(topology: &Topology, elements: &[Element]) -> Selection {
    if topology.is_alltoallv_only() {
        return Selection::default();
    }
    let plans: Vec<(Partials, Plan)> = [Partials::Element, Partials::F32]
        .into_iter()
        .filter(|p| elements.iter().any(|e| e.policies().contains(p)))
        .map(|p| (p, plan(topology, &options(topology, p))))
        .collect();
    let mut selection = Selection::default();
    for element in elements {
        select_element(topology, *element, &plans, &mut selection);
    }
    // Baselines last, the rest in the order of the best place.
    selection.variants.sort_by_key(|v| v.classes.is_empty());
    selection
}

fn select_element(topology: &Topology, element: Element, plans: &[(Partials, Plan)], selection: &mut Selection) {
    let staged = family_policy(topology) == EdgePolicy::Host;
    let mut wanted = Vec::new();
    for (partials, plan) in plans.iter().filter(|(p, _)| element.policies().contains(p)) {
        for class in &plan.classes {
            let bound = class.spec.most_bytes;
            for (baseline, list) in [(false, &class.shortlist), (true, &class.baseline)] {
                for (position, ranked) in list.iter().enumerate() {
                    // A baseline is there to be compared with: one protocol does.
                    let most = if baseline { 1 } else { usize::MAX };
                    for protocol in protocols(&ranked.schedule, bound, position, staged)
                        .into_iter()
                        .take(most)
                    {
                        let position = match protocol {
                            _ if baseline => 0,
                            // Small payloads have sentinels and packets: room that is left, or a kernel that is there.
                            Protocol::Packet128 if bound < LINES_FROM => usize::MAX,
                            _ => position,
                        };
                        wanted.push(Wanted {
                            position,
                            bound,
                            schedule: &ranked.schedule,
                            protocol,
                            element,
                            partials: *partials,
                            baseline,
                        });
                    }
                }
            }
        }
    }
    // Best places first, so that the budget drops what every class ranks low; the sort is stable.
    wanted.sort_by_key(|w| w.position);
    let mut budget = Budget::default();
    let mut lowered: BTreeMap<(String, Protocol, Partials), Option<Lowered>> = BTreeMap::new();
    for w in wanted {
        let key = (w.schedule.name.clone(), w.protocol, w.partials);
        let entry = lowered.entry(key).or_insert_with(|| {
            lower(
                w.schedule,
                w.protocol,
                element,
                w.partials,
                &headers::digest(w.protocol.name()),
            )
            .map_err(|e| selection.dropped.push(e.to_string()))
            .ok()
        });
        if let Some(lowered) = entry {
            add(selection, &mut budget, &w, lowered, staged);
        }
    }
}

/// Kernels of one element type so far.
type Budget = BTreeSet<String>;

fn protocols(schedule: &Verified<Schedule>, bound: u64, position: usize, staged: bool) -> Vec<Protocol> {
    [
        Protocol::Sentinel,
        Protocol::Packet,
        Protocol::Packet128,
        Protocol::Flag,
        Protocol::Pull,
    ]
    .into_iter()
    .filter(|p| p.delivery() == schedule.delivery && schedule.admits(p.idea()).is_ok())
    .filter(|p| match p {
        Protocol::Packet => bound <= PACKET_UP_TO,
        Protocol::Flag => bound >= FLAG_FROM,
        Protocol::Sentinel => true,
        // Another form of what is best in a class. Links that keep lines only: `admits` has seen to that.
        Protocol::Packet128 => position == 0,
        // Reads peers' inputs where they are, which takes peer access.
        Protocol::Pull => !staged,
    })
    .collect()
}

/// `schedule/protocol/partials`; the last part begins with the element where that is not f16.
fn name(w: &Wanted<'_>, both: bool, staged: bool) -> String {
    let policy = if both { "any" } else { w.partials.name(w.element) };
    let element = match w.element {
        Element::F16 => String::new(),
        other => format!("{}-", other.name()),
    };
    let suffix = if staged { "@host" } else { "" };
    format!("{}/{}/{element}{policy}{suffix}", w.schedule.name, w.protocol.name())
}

fn add(selection: &mut Selection, budget: &mut Budget, w: &Wanted<'_>, lowered: &Lowered, staged: bool) {
    let both = lowered.serves_both_partials;
    let name = name(w, both, staged);
    // A kernel that serves both policies is compiled once, from the plan that comes first.
    if selection.variants.iter().any(|v| v.name == name) {
        return mark(selection, &name, w);
    }
    let partials = if both {
        vec![Partials::Element, Partials::F32]
    } else {
        vec![w.partials]
    };
    if !budget.contains(&lowered.kernel.hash) && budget.len() >= MAX_KERNELS {
        selection
            .dropped
            .push(format!("{name}: over the budget of {MAX_KERNELS} kernels a family"));
        return;
    }
    budget.insert(lowered.kernel.hash.clone());
    selection
        .kernels
        .entry(lowered.kernel.hash.clone())
        .or_insert_with(|| lowered.kernel.clone());
    selection.variants.push(VariantEntry {
        name,
        schedule: w.schedule.name.clone(),
        protocol: w.protocol,
        staged,
        element: w.element,
        partials,
        kernel: lowered.kernel.hash.clone(),
        chunks: w.schedule.chunks,
        stages: w.schedule.stages.len() as u32,
        planes: lowered.planes,
        ranks: lowered.ranks.clone(),
        expressions: lowered.expressions.clone(),
        expression_of: lowered.expression_of.clone(),
        classes: if w.baseline { Vec::new() } else { vec![w.bound] },
    });
}

/// Notes another size class of a variant that is already listed.
fn mark(selection: &mut Selection, name: &str, w: &Wanted<'_>) {
    let listed = selection.variants.iter_mut().find(|v| v.name == name);
    if let Some(variant) = listed
        && !w.baseline
        && !variant.classes.contains(&w.bound)
    {
        variant.classes.push(w.bound);
        variant.classes.sort_unstable();
    }
}
