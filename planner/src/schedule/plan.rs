//! From a topology to ranked, verified schedules: generate, verify, predict, keep a diverse few.
//!
//! It never decides what is served (that is measured on the live machine) and never lets an unverified schedule out.
//! The same topology and options give the same plan. Start at [`plan`].

use super::cost::{Profile, Protocol, Widths};
use super::edges::{EdgePolicy, Edges};
use super::generate::generate;
use super::ir::Schedule;
use super::verify::{Verified, VerifyError, verify_on};
use crate::topology::Topology;

/// Shapes that are always part of a class's baseline where the topology allows them.
const BASELINE: [&str; 2] = ["one-shot", "one-shot-pull"];

/// A candidate predicted to take more than this times the best one's time is left out of a shortlist.
const WORTH_MEASURING: f64 = 1.4;

/// So many shapes stay whatever they are predicted to take, as estimates may be wrong.
const FEWEST_SHAPES: usize = 2;

/// Within this times the best one's time a candidate stays even if another is better at every payload.
const NEAR: f64 = 1.2;

/// A range of payloads that is ranked for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassSpec {
    /// E.g. `small`.
    pub name: String,
    /// Largest payload of the class, bytes a rank.
    pub most_bytes: u64,
    /// The payload that the class is ranked at, bytes a rank.
    pub ranked_at: u64,
}

/// What to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Most candidates to make and verify.
    pub budget: usize,
    /// Most schedules to keep for a size class.
    pub shortlist: usize,
    /// Buffers a slot.
    pub buffers: u32,
    /// Width of elements and of partial sums.
    pub widths: Widths,
    /// Which edges may be used. Where no schedule exists over peer edges, the plan falls back to host staging and
    /// [`Plan::policy`] says so.
    pub policy: EdgePolicy,
    /// Payload ranges, smallest first.
    pub classes: Vec<ClassSpec>,
}

impl Default for PlanOptions {
    /// 2,048 candidates, a shortlist of 8, two buffers, f16 with f16 partials, peer edges; small to 16 KiB, medium to
    /// 128 KiB, large to 1 MiB.
    fn default() -> Self {
        let class = |name: &str, ranked_kib: u64, most_kib: u64| ClassSpec {
            name: name.into(),
            most_bytes: most_kib << 10,
            ranked_at: ranked_kib << 10,
        };
        Self {
            budget: 2048,
            shortlist: 8,
            buffers: 2,
            widths: Widths::default(),
            policy: EdgePolicy::Peer,
            classes: vec![
                class("small", 5, 16),
                class("medium", 48, 128),
                class("large", 384, 1024),
            ],
        }
    }
}

/// The edges that a family is planned over: peer access where it joins all ranks, else host memory.
pub fn family_policy(topology: &Topology) -> EdgePolicy {
    if topology.is_peer_connected() {
        EdgePolicy::Peer
    } else {
        EdgePolicy::Host
    }
}

/// How a family of 2-byte elements is planned; `partials_width` is the width of partial sums in bytes. Whoever shows a
/// family's plan must take these, or shows another plan than the compiled one.
pub fn family_options(topology: &Topology, partials_width: u32) -> PlanOptions {
    PlanOptions {
        widths: Widths {
            element: 2,
            partials: partials_width,
        },
        policy: family_policy(topology),
        ..PlanOptions::default()
    }
}

/// A schedule with its place in a ranking.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// The schedule.
    pub schedule: Verified<Schedule>,
    /// The idea it is an instance of: its name less the placement.
    pub shape: String,
    /// The protocol that the prediction is for.
    pub protocol: Protocol,
    /// Predicted time of a call at the class's [`ClassSpec::ranked_at`], microseconds.
    pub predicted_us: f64,
}

/// A size class and what is worth trying in it.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeClass {
    /// Which payloads.
    pub spec: ClassSpec,
    /// Best prediction of each shape, then further placements, each part fastest first.
    pub shortlist: Vec<Ranked>,
    /// One-shot push and pull where edges allow them, whatever their prediction.
    pub baseline: Vec<Ranked>,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The topology's name.
    pub topology: String,
    /// The edges that schedules use: the options' policy, or `Host` where peer edges carry no schedule.
    pub policy: EdgePolicy,
    /// How many candidates were made.
    pub candidates: usize,
    /// How many of them the verifier accepted.
    pub verified: usize,
    /// Those that it refused, by name, with the reason. A generator's fault unless the topology limits peers.
    pub rejected: Vec<(String, VerifyError)>,
    /// In the order of the options.
    pub classes: Vec<SizeClass>,
}

impl Plan {
    /// Every schedule of shortlists and baselines once, in the order of first appearance: what is to be lowered.
    pub fn schedules(&self) -> Vec<&Verified<Schedule>> {
        let mut unique: Vec<&Verified<Schedule>> = Vec::new();
        for ranked in self.classes.iter().flat_map(|c| c.shortlist.iter().chain(&c.baseline)) {
            if !unique.iter().any(|s| s.name == ranked.schedule.name) {
                unique.push(&ranked.schedule);
            }
        }
        unique
    }

    /// Whether there is nothing to run: a single rank, or more than 64.
    pub fn is_empty(&self) -> bool {
        self.verified == 0
    }
}

/// Searches schedules for `topology`.
pub fn plan(topology: &Topology, options: &PlanOptions) -> Plan {
    let found = plan_over(topology, options, options.policy);
    if found.is_empty() && options.policy == EdgePolicy::Peer {
        return plan_over(topology, options, EdgePolicy::Host);
    }
    found
}

/// [`plan`] for one payload, in bytes a rank, with a single class named `payload`.
pub fn plan_at(topology: &Topology, bytes: u64, options: &PlanOptions) -> Plan {
    let class = ClassSpec {
        name: "payload".into(),
        most_bytes: bytes,
        ranked_at: bytes,
    };
    plan(
        topology,
        &PlanOptions {
            classes: vec![class],
            ..options.clone()
        },
    )
}

struct Accepted {
    schedule: Verified<Schedule>,
    shape: String,
    profile: Profile,
}

fn plan_over(topology: &Topology, options: &PlanOptions, policy: EdgePolicy) -> Plan {
    let edges = Edges::new(topology, policy);
    let candidates = generate(&edges, options.budget);
    let made = candidates.len();
    let mut accepted = Vec::with_capacity(made);
    let mut rejected = Vec::new();
    for candidate in candidates {
        let name = candidate.schedule.name.clone();
        match verify_on(candidate.schedule, &edges, options.buffers) {
            Ok(schedule) => {
                let profile = Profile::of(&schedule, &edges, options.widths);
                accepted.push(Accepted {
                    schedule,
                    shape: candidate.shape,
                    profile,
                });
            }
            Err(error) => rejected.push((name, error)),
        }
    }
    Plan {
        topology: topology.name.clone(),
        policy,
        candidates: made,
        verified: accepted.len(),
        rejected,
        classes: options
            .classes
            .iter()
            .map(|spec| rank(&accepted, spec, options.shortlist))
            .collect(),
    }
}

fn rank(accepted: &[Accepted], spec: &ClassSpec, most: usize) -> SizeClass {
    let mut order: Vec<(Protocol, f64, &Accepted)> = accepted
        .iter()
        .map(|a| {
            let (protocol, us) = a.profile.best(spec.ranked_at);
            (protocol, us, a)
        })
        .collect();
    // Stable, so equal predictions keep the generator's order.
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    // Nothing that another candidate beats at every payload, unless estimates are too close to tell: ideas differ in
    // ways that no estimate sees, so a near one is worth a measurement and a far one never.
    let fastest = order.first().map_or(0.0, |entry| entry.1);
    let beaten = |entry: &(Protocol, f64, &Accepted)| {
        entry.1 > fastest * NEAR && accepted.iter().any(|a| a.profile.dominates(&entry.2.profile))
    };
    let mut shapes: Vec<&str> = Vec::new();
    let worth: Vec<_> = (order.iter())
        .filter(|entry| {
            let known = shapes.contains(&entry.2.shape.as_str());
            let kept = entry.1 <= fastest * WORTH_MEASURING && !beaten(entry) || !known && shapes.len() < FEWEST_SHAPES;
            if kept && !known {
                shapes.push(&entry.2.shape);
            }
            kept
        })
        .collect();
    let mut kept: Vec<&(Protocol, f64, &Accepted)> = Vec::new();
    // First the best of each shape, then other placements; one that predicts the same is taken for a renaming.
    for of_new_shape in [true, false] {
        for &entry in &worth {
            if kept.len() >= most {
                break;
            }
            let same_shape = |k: &&&(Protocol, f64, &Accepted)| k.2.shape == entry.2.shape;
            let wanted = match of_new_shape {
                true => !kept.iter().any(|k| same_shape(&k)),
                false => !kept.iter().filter(same_shape).any(|k| k.1 == entry.1),
            };
            if wanted {
                kept.push(entry);
            }
        }
    }
    let ranked = |(protocol, us, a): &(Protocol, f64, &Accepted)| Ranked {
        schedule: a.schedule.clone(),
        shape: a.shape.clone(),
        protocol: *protocol,
        predicted_us: *us,
    };
    let best_of = |shape: &&str| order.iter().find(|entry| entry.2.shape == *shape).map(ranked);
    SizeClass {
        spec: spec.clone(),
        shortlist: kept.into_iter().map(ranked).collect(),
        baseline: BASELINE.iter().filter_map(best_of).collect(),
    }
}
