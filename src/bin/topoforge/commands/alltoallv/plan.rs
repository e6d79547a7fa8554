//! `alltoallv plan`: plans one demand and says how good the plan is and how long planning took.
//!
//! It simulates nothing and touches no device. Start at [`run`].

use super::{Exchange, exchange, planner};
use crate::args::{AlltoallvPlanArgs, SelectorArg, StrategyArg};
use crate::failure::{Failure, Outcome};
use crate::report::Output;
use crate::report::alltoallv::plan::{ActivationLine, PlanReport};
use std::time::Instant;
use topoforge::planner::alltoallv::{Catalogue, Chunk, Effort, Fabric, Planner, Selector, Strategy};

/// Plans that are timed; the shortest counts, since nothing makes planning shorter than it is.
const RUNS: usize = 5;
/// Activations shown in a table.
const MOST_LINES: usize = 64;

/// `topoforge alltoallv plan`
pub fn run(args: &AlltoallvPlanArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let Exchange {
        name,
        fabric,
        demand,
        shown,
        sequences,
    } = exchange(&args.exchange)?;
    let mut planner = planner(&name, &fabric, &sequences)?;
    let wanted = args.strategy.map(|strategy| match strategy {
        StrategyArg::Peel => Strategy::Peel,
        StrategyArg::Pack => Strategy::Pack,
        StrategyArg::Rotation => Strategy::Rotation,
        StrategyArg::Base => Strategy::Base,
        StrategyArg::Fluid => Strategy::Fluid,
    });
    let wanted = match args.selector {
        None => wanted,
        Some(_) if wanted.is_some_and(|strategy| strategy != Strategy::Peel) => {
            return Err(Failure::usage(
                "--selector says how peeling selects lanes: leave --strategy out, or take --strategy peel",
            ));
        }
        Some(selector) => {
            planner = selecting(&name, planner, &fabric, selector)?;
            Some(Strategy::Peel)
        }
    };
    let mut planning_us = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        let planned = match wanted {
            Some(strategy) => planner.plan_by(&demand, strategy),
            None => planner.plan(&demand),
        };
        planned.map_err(|e| Failure::usage(e.to_string()))?;
        planning_us = planning_us.min(start.elapsed().as_secs_f64() * 1e6);
    }
    let fault = planner.check(&demand).err();
    let predicted = planner.predict();
    let plan = planner.last();
    let bound = planner.bound(&demand);
    // A fan is one lane to a whole group and a fluid plan has no rounds: only loads bound them.
    let fans = plan.lanes().iter().any(|lane| lane.turn > 0);
    let free = fans || predicted.strategy == Strategy::Fluid;
    let count = plan.len() as f64;
    let alpha_us = f64::from(fabric.alpha_ns()) * 1e-3;
    let load_us = bound.load_ns * 1e-3;
    let (lower_bound_us, barrier_bound_us) = if free {
        (load_us, load_us + if demand.total() > 0 { alpha_us } else { 0.0 })
    } else {
        (bound.hand_off_ns * 1e-3, bound.barrier_ns * 1e-3)
    };
    let over = |time: f64, bound: f64| if bound > 0.0 { time / bound - 1.0 } else { 0.0 };
    let (predicted_us, barrier_us) = (predicted.hand_off_ns * 1e-3, predicted.barrier_ns * 1e-3);
    let line = |(number, lanes): (usize, &[Chunk])| ActivationLine {
        number,
        lanes: lanes.len(),
        bytes: lanes.iter().map(|lane| lane.bytes).sum(),
        text: lanes
            .iter()
            .take(8)
            .map(|l| format!("{}>{}{}", l.from, l.to, path(l.path)))
            .collect::<Vec<_>>()
            .join(" ")
            + if lanes.len() > 8 { " ..." } else { "" },
    };
    output.emit(&PlanReport {
        topology: name,
        ranks: planner.ranks(),
        demand: shown,
        bytes: demand.total(),
        strategy: predicted.strategy.name(),
        sequence: planner.sequence().map(str::to_owned),
        activations: plan.len(),
        fewest_activations: if free {
            u64::from(demand.total() > 0)
        } else {
            bound.activations
        },
        lanes: plan.lanes().len(),
        predicted_us,
        lower_bound_us,
        gap: over(predicted_us, lower_bound_us),
        bound: match (free, bound.exact) {
            (true, _) => "busiest resource, optimum of the linear program over paths, without overheads",
            (false, true) => {
                "busiest resource, optimum of the linear program over paths, with a hand-over for each lane"
            }
            (false, false) => "busiest resource, by prices that need not be the best, with a hand-over for each lane",
        },
        barrier_us,
        barrier_lower_bound_us: barrier_bound_us,
        barrier_gap: over(barrier_us, barrier_bound_us),
        planning_us,
        planning_us_per_activation: if count > 0.0 { planning_us / count } else { 0.0 },
        plan_hash: format!("{:016x}", plan.hash()),
        lines: plan.activations().enumerate().take(MOST_LINES).map(line).collect(),
    })?;
    Ok(match fault {
        None => Outcome::Done,
        Some(fault) => Outcome::Failed(format!("the plan is wrong, please report it: {fault}")),
    })
}

/// The planner with another selector.
fn selecting(name: &str, planner: Planner, fabric: &Fabric, selector: SelectorArg) -> Result<Planner, Failure> {
    let selector = match selector {
        SelectorArg::Critical => Selector::Critical,
        SelectorArg::Greedy => Selector::Greedy,
        SelectorArg::Family => Selector::Family,
    };
    let planner = planner.with_effort(Effort {
        selector,
        ..Effort::for_ranks(fabric.ranks())
    });
    if selector != Selector::Family {
        return Ok(planner);
    }
    let catalogue = Catalogue::build(fabric, false, Vec::new());
    let catalogue = catalogue.map_err(|e| Failure::usage(format!("{name}: --selector family: {e}")))?;
    let planner = planner.with_catalogue(fabric, &catalogue);
    planner.map_err(|e| Failure::usage(format!("{name}: --selector family: {e}")))
}

/// How a lane's path is shown: nothing for the fastest.
fn path(path: u16) -> String {
    if path == 0 { String::new() } else { format!("/{path}") }
}
