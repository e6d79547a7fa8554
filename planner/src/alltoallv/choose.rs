//! The planner of a machine: takes demands, chooses how to plan each by predicted time, and hands out activations.
//!
//! Every rank makes the same plan from the same demand: floats are added and multiplied in fixed order, ties go by number,
//! nothing depends on clocks, addresses or hashing. After [`Planner::new`] nothing is allocated. Start at
//! [`Planner::plan`], or at [`Planner::begin`] to get the first activation before the others are made.

mod fixed;
mod selectors;

use super::base::Sequences;
use super::bound::Bound;
use super::cache::Cache;
use super::demand::Demand;
use super::fabric::Fabric;
use super::net::Net;
use super::pack::{Pack, Work};
use super::peel::{Effort, PEEL_MOST, Peel};
use super::plan::{Chunk, Plan, PlanFault};
use super::polish::Polish;
use super::sequence::Step;
use super::split::Split;
use super::strategy::{Prediction, Refused, Strategy};
use super::{base, fluid, handoff, rotate};

/// Ranks up to which a demand is peeled; more are packed.
pub const PEEL_RANKS: usize = 64;
/// Shortest load that is worth planning round by round, nanoseconds.
const WORTH_PEELING: f32 = 300_000.0;
/// Shortest load that is worth polishing, nanoseconds.
const WORTH_POLISHING: f32 = 1_000_000.0;
/// Other numbers of rounds to aim at, as parts of the first.
const RHO_FACTORS: [f32; 5] = [0.66, 1.4, 2.0, 0.8, 1.2];
/// Ranks up to which plans are kept.
const CACHE_RANKS: usize = 64;

/// Plans for one machine, with all the memory they need. No clone: it would lose the room that is not in use.
#[derive(Debug)]
pub struct Planner {
    net: Net,
    nodes: usize,
    groups: Vec<(usize, usize)>,
    singles: Vec<(usize, usize)>,
    fluid: bool,
    effort: Effort,
    /// The same for plans that are handed out one activation after the other; none if it follows the demand.
    streamed: Option<Effort>,
    peel: Peel,
    pack: Pack,
    split: Split,
    polish: Polish,
    rotation: rotate::Room,
    /// Sequences recorded ahead of time, and which of them was run last.
    recorded: Option<base::Room>,
    served: usize,
    cache: Option<Cache>,
    plan: Plan,
    other: Plan,
    times: handoff::Room,
    /// Activations handed out, and whether more of them are to be peeled.
    handed: usize,
    peeling: bool,
    strategy: Strategy,
    /// The plan made last is of channels: ports have one lane at a time.
    rounds: bool,
}

impl Planner {
    /// A planner for a machine, with full effort.
    pub fn new(fabric: &Fabric) -> Self {
        let net = Net::new(fabric);
        let n = net.ranks;
        let groups: Vec<_> = (0..fabric.groups())
            .map(|g| fabric.group(g).ranks)
            .map(|r| (r.start, r.end))
            .collect();
        let peeled = Peel::most_activations(&net);
        let lanes = Pack::most_chunks(&net) + Peel::most_lanes(&net);
        let rooms = lanes.min(Pack::most_chunks(&net) + peeled);
        let kept = 6 * n * n + 64;
        Self {
            nodes: fabric.nodes(),
            fluid: fabric.is_fluid(),
            effort: Effort::for_ranks(n),
            streamed: None,
            peel: Peel::new(&net, fabric.nodes(), |rank| fabric.egress(rank)),
            pack: Pack::new(&net, &groups),
            split: Split::new(
                &net,
                groups.iter().map(|(begin, end)| end - begin).max().unwrap_or(1),
                rooms,
            ),
            polish: Polish::new(&net, peeled, if n <= PEEL_RANKS { lanes } else { 0 }),
            rotation: rotate::Room::new(&net, n),
            recorded: None,
            served: 0,
            cache: (n <= CACHE_RANKS).then(|| Cache::new(n, kept, kept)),
            plan: Plan::with_room(lanes, rooms),
            other: Plan::with_room(lanes, rooms),
            times: handoff::Room::new(&net),
            handed: 0,
            peeling: false,
            strategy: Strategy::Peel,
            rounds: true,
            singles: (0..n).map(|rank| (rank, rank + 1)).collect(),
            groups,
            net,
        }
    }

    /// The same with another effort for peeling, whole plans and streamed ones.
    #[must_use]
    pub fn with_effort(mut self, effort: Effort) -> Self {
        (self.effort, self.streamed) = (effort, Some(effort));
        self
    }

    pub(super) fn set_effort(&mut self, effort: Effort) {
        self.effort = effort;
    }

    /// The same with a sequence for uniform demand and none for profiles; an empty one changes nothing.
    ///
    /// # Errors
    /// As [`Planner::with_sequences`].
    pub fn with_base(self, steps: &[Step]) -> Result<Self, PlanFault> {
        self.with_sequences(&steps.to_vec().into())
    }

    /// The same with sequences recorded ahead of time, such as a catalogue holds, in place of those it had.
    ///
    /// # Errors
    /// A sequence is none of this machine's: what is wrong with the plan that it makes.
    pub fn with_sequences(mut self, sequences: &Sequences) -> Result<Self, PlanFault> {
        self.recorded = None;
        if sequences.is_empty() {
            return Ok(self);
        }
        let room = base::Room::new(&self.net, self.nodes, sequences)?;
        // Pairs that a profile lacks are packed behind its sequence.
        let lanes = room.lanes() + Pack::most_chunks(&self.net);
        for plan in [&mut self.plan, &mut self.other] {
            plan.clear();
            plan.lanes.reserve(lanes);
            plan.ends.reserve(lanes);
        }
        let examples: Vec<Vec<u64>> = (0..room.len()).map(|which| room.example(which)).collect();
        self.recorded = Some(room);
        for (which, bytes) in examples.into_iter().enumerate() {
            let demand = Demand::from_checked(self.net.ranks, bytes);
            self.rounds = true;
            self.plan.clear();
            let complete = self.run_recorded(which, &demand);
            let name = self.sequence_name(which);
            if !complete {
                return Err(PlanFault(format!("{name}: a pair that it is for has no lane")));
            }
            (self.check(&demand)).map_err(|PlanFault(what)| PlanFault(format!("{name}: {what}")))?;
        }
        self.plan.clear();
        Ok(self)
    }

    /// Ranks of the machine.
    pub fn ranks(&self) -> usize {
        self.net.ranks
    }

    /// Plans a demand by whatever is predicted to be fastest.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn plan(&mut self, demand: &Demand) -> Result<&Plan, Refused> {
        self.accepts(demand)?;
        let (strategy, _) = self.first_choice(demand);
        self.make(demand, strategy);
        if strategy != Strategy::Fluid {
            self.prefer_fixed(demand);
        }
        self.handed = self.plan.len();
        Ok(&self.plan)
    }

    /// Plans a demand in one way, however good it is.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn plan_by(&mut self, demand: &Demand, strategy: Strategy) -> Result<&Plan, Refused> {
        self.accepts(demand)?;
        self.make(demand, strategy);
        self.handed = self.plan.len();
        Ok(&self.plan)
    }

    /// Plans a demand that looks like one of the last eight planned so; else as [`Planner::plan`], and keeps the plan.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn plan_cached(&mut self, demand: &Demand) -> Result<&Plan, Refused> {
        self.accepts(demand)?;
        let cached = self
            .cache
            .as_mut()
            .and_then(|cache| cache.find(demand.bytes(), &mut self.plan));
        if let Some(rounds) = cached {
            (self.strategy, self.rounds) = (Strategy::Cached, rounds);
            self.handed = self.plan.len();
            return Ok(&self.plan);
        }
        self.plan(demand)?;
        if let Some(cache) = &mut self.cache {
            cache.keep(demand.bytes(), &self.plan, self.rounds);
        }
        Ok(&self.plan)
    }

    /// Takes a demand whose activations [`Planner::advance`] hands out one by one.
    ///
    /// Unless [`Planner::with_effort`] said otherwise, it is peeled with the effort that keeps ahead of sending
    /// ([`Effort::streamed`]).
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn begin(&mut self, demand: &Demand) -> Result<(), Refused> {
        self.accepts(demand)?;
        let (strategy, load) = self.first_choice(demand);
        self.plan.clear();
        self.handed = 0;
        self.strategy = strategy;
        self.rounds = strategy != Strategy::Fluid;
        self.peeling = strategy == Strategy::Peel;
        if self.peeling {
            let effort = self.streamed.unwrap_or_else(|| Effort::streamed(self.net.ranks, load));
            self.peel.begin(&self.net, demand, effort);
        } else {
            self.make(demand, strategy);
            self.handed = 0;
        }
        Ok(())
    }

    /// The next activation of what [`Planner::begin`] took, made now; none when all bytes are handed out.
    pub fn advance(&mut self) -> Option<&[Chunk]> {
        if self.peeling && self.handed == self.plan.len() {
            self.peeling = self.peel.step(&self.net, &mut self.plan);
            if self.peeling && self.plan.len() == Peel::most_activations(&self.net) {
                self.pack(None);
                self.peeling = false;
            }
        }
        let at = self.handed;
        (at < self.plan.len()).then(|| {
            self.handed += 1;
            self.plan.activation(at)
        })
    }

    /// The plan made last.
    pub fn last(&self) -> &Plan {
        &self.plan
    }

    /// The recorded sequence that the plan made last is of: `uniform`, or the name of a profile; none of other plans.
    pub fn sequence(&self) -> Option<&str> {
        (self.strategy == Strategy::Base).then(|| self.sequence_name(self.served))
    }

    /// Whether the plan made last is of channels: of lanes that can all be under way at once.
    pub fn is_of_rounds(&self) -> bool {
        self.rounds
    }

    /// How the plan made last was made, and what it is predicted to take.
    pub fn predict(&mut self) -> Prediction {
        let hand_off_ns = self.hand_off();
        // Lanes that may not share wait for each other, barrier or not.
        let barrier_ns = if self.rounds || self.fluid {
            self.barrier()
        } else {
            hand_off_ns
        };
        Prediction {
            strategy: self.strategy,
            barrier_ns,
            hand_off_ns,
        }
    }

    /// Whether the plan made last keeps every invariant for a demand; it allocates.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn check(&self, demand: &Demand) -> Result<(), PlanFault> {
        self.plan.check(&self.net, demand, self.rounds)
    }

    /// What no plan for a demand can beat; it allocates.
    pub fn bound(&self, demand: &Demand) -> Bound {
        Bound::of(&self.net, self.nodes, demand)
    }

    fn hand_off(&mut self) -> f64 {
        handoff::hand_off(&self.net, &self.plan, self.rounds, &mut self.times)
    }

    /// What is tried first, and the busiest resource's load on first paths, nanoseconds: nothing is planned for it.
    fn first_choice(&mut self, demand: &Demand) -> (Strategy, f32) {
        if self.fluid {
            return (Strategy::Fluid, 0.0);
        }
        let loads = &mut self.times.free;
        loads.fill(0.0);
        for (pair, &bytes) in demand.bytes().iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
            let lane = self.net.first[pair] as usize;
            for &r in self.net.uses(lane) {
                loads[usize::from(r)] += bytes as f64 * f64::from(self.net.hold(lane, r));
            }
        }
        let most = loads.iter().fold(0.0, |a: f64, &b| a.max(b)) as f32;
        let strategy = match most {
            _ if self.is_recorded(demand) => Strategy::Base,
            _ if self.net.ranks > PEEL_RANKS => Strategy::Pack,
            most if most < WORTH_PEELING => Strategy::Pack,
            _ => Strategy::Peel,
        };
        (strategy, most)
    }

    fn make(&mut self, demand: &Demand, strategy: Strategy) {
        // So many ranks have no room to be peeled.
        let strategy = match strategy {
            Strategy::Peel | Strategy::Cached if self.net.ranks > PEEL_MOST => Strategy::Pack,
            Strategy::Base if self.recorded.is_none() => Strategy::Rotation,
            other => other,
        };
        self.plan.clear();
        self.strategy = strategy;
        self.rounds = strategy != Strategy::Fluid;
        self.peeling = false;
        match strategy {
            Strategy::Peel | Strategy::Cached => {
                self.peel_all(demand, self.effort);
                let more = self.effort.tries > 1;
                let mut least = if more { self.barrier() } else { 0.0 };
                for factor in RHO_FACTORS.into_iter().take(self.effort.tries.saturating_sub(1)) {
                    std::mem::swap(&mut self.plan, &mut self.other);
                    let rho = self.effort.rho * factor;
                    self.peel_all(demand, Effort { rho, ..self.effort });
                    let time = self.barrier();
                    if time < least {
                        least = time;
                    } else {
                        std::mem::swap(&mut self.plan, &mut self.other);
                    }
                }
            }
            Strategy::Pack => {
                self.peel.plan_paths(&self.net, demand.bytes(), self.effort);
                self.pack(Some(demand.bytes()));
            }
            Strategy::Rotation => {
                rotate::rotation(
                    &self.net,
                    &self.groups,
                    demand.bytes(),
                    &mut self.rotation,
                    &mut self.plan,
                );
            }
            Strategy::Base => {
                let nearest = self.recorded.as_ref().and_then(|room| room.nearest(demand.bytes()));
                if let Some((which, _)) = nearest {
                    self.run_recorded(which, demand);
                }
            }
            Strategy::Fluid => {
                self.peel.plan_paths(&self.net, demand.bytes(), self.effort);
                fluid::all(&self.net, demand.bytes(), self.peel.shares(), &mut self.plan);
            }
        }
    }

    fn peel_all(&mut self, demand: &Demand, effort: Effort) {
        self.plan.clear();
        self.peel.begin(&self.net, demand, effort);
        while self.peel.step(&self.net, &mut self.plan) {
            if self.plan.len() == Peel::most_activations(&self.net) {
                self.pack(None);
                break;
            }
        }
        if effort.polish && self.peel.busiest() >= WORTH_POLISHING {
            // The first activation is under way by then.
            self.polish.run(&self.net, &mut self.plan, 1);
        }
    }

    fn barrier(&mut self) -> f64 {
        handoff::barrier(&self.net, &self.plan, &mut self.times)
    }

    /// Packs a demand whose paths are planned, or what peeling has left.
    fn pack(&mut self, bytes: Option<&[u64]>) {
        let (whole, rem) = bytes.map_or_else(|| self.peel.left(), |bytes| (bytes, bytes));
        let work = Work {
            whole,
            rem,
            share: self.peel.shares(),
            quantum: self.peel.quantum(),
        };
        let fans = self.net.ranks > PEEL_RANKS;
        let made = self.plan.len();
        self.pack.run(&self.net, &work, fans, &mut self.plan);
        self.split.run(&self.net, &mut self.plan, made);
    }
}
