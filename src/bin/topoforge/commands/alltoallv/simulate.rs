//! `alltoallv simulate`: our plan and what others would do, under three laws of what happens when lanes meet.
//!
//! It measures nothing: figures are predictions. Start at [`run`].

use super::{Exchange, exchange, planner};
use crate::args::AlltoallvSimulateArgs;
use crate::failure::{Failure, Outcome};
use crate::names;
use crate::report::Output;
use crate::report::alltoallv::simulate::{AlltoallvSimulationReport, StrategyLine};
use std::path::Path;
use topoforge::planner::alltoallv::simulate::{Law, Traffic, Usage, simulate, svg};
use topoforge::planner::alltoallv::{Baseline, Demand, Fabric, Planner, Strategy};

/// Ranks up to which lanes that share are simulated one by one.
const MOST_SHARING: usize = 64;
/// Steps of time in a picture.
const STEPS: usize = 240;

/// `topoforge alltoallv simulate`
pub fn run(args: &AlltoallvSimulateArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let Exchange {
        name,
        fabric,
        demand,
        shown,
        sequences,
    } = exchange(&args.exchange)?;
    if let Some(path) = &args.svg {
        names::writable(path)?;
    }
    let laws = [Law::Serial, Law::Fluid, Law::Lossy(args.eta)];
    let small = fabric.ranks() <= MOST_SHARING;
    let mut planner = planner(&name, &fabric, &sequences)?;
    let mut all: Vec<(String, Traffic)> = Vec::new();
    planner.plan(&demand).map_err(|e| Failure::usage(e.to_string()))?;
    let chosen = planner.predict().strategy;
    all.push((format!("topoforge ({chosen})"), of_plan(&fabric, &planner)));
    let mut ways = vec![Strategy::Peel, Strategy::Pack, Strategy::Rotation, Strategy::Fluid];
    if !sequences.is_empty() {
        ways.push(Strategy::Base);
    }
    for strategy in ways
        .into_iter()
        .filter(|s| *s != chosen && (*s != Strategy::Fluid || fabric.is_fluid()))
    {
        if strategy == Strategy::Peel && !small {
            continue;
        }
        planner
            .plan_by(&demand, strategy)
            .map_err(|e| Failure::usage(e.to_string()))?;
        all.push((format!("topoforge, {strategy}"), of_plan(&fabric, &planner)));
    }
    let others = Baseline::ALL
        .into_iter()
        .filter(|b| small && (fabric.nodes() > 1 || !b.needs_nodes()));
    all.extend(others.map(|baseline| (baseline.name().to_owned(), baseline.traffic(&fabric, &demand))));
    let mut lines = Vec::new();
    let mut first: Option<[Option<f64>; 3]> = None;
    for (at, (strategy, traffic)) in all.iter().enumerate() {
        output.show(&format!("simulating {strategy} ({} of {})", at + 1, all.len()));
        let time = |law| (small || law == Law::Serial).then(|| simulate(&fabric, traffic, law, None).total_ns * 1e-3);
        let times = laws.map(time);
        let ours = *first.get_or_insert(times);
        let ratio = |k: usize| Some(times[k]? / ours[k]?).filter(|r| r.is_finite());
        lines.push(StrategyLine {
            strategy: strategy.clone(),
            serial_us: times[0],
            fluid_us: times[1],
            lossy_us: times[2],
            serial_ratio: ratio(0),
            fluid_ratio: ratio(1),
            lossy_ratio: ratio(2),
        });
    }
    let bound_us = planner.bound(&demand).load_ns * 1e-3;
    if let Some(path) = &args.svg {
        picture(path, &fabric, &format!("{name}, {shown}"), &all, &demand)?;
        output.note(&format!("load over time is in {}", path.display()));
    }
    output.emit(&AlltoallvSimulationReport {
        topology: name,
        ranks: fabric.ranks(),
        demand: shown,
        bytes: demand.total(),
        load_bound_us: bound_us,
        eta: args.eta,
        sharing_simulated: small,
        strategies: lines,
    })?;
    Ok(Outcome::Done)
}

fn of_plan(fabric: &Fabric, planner: &Planner) -> Traffic {
    Traffic::of_plan(fabric, planner.last(), planner.is_of_rounds())
}

/// Draws our plan under the law it is made for, and everything at once under the one where lanes share.
fn picture(
    path: &Path,
    fabric: &Fabric,
    title: &str,
    all: &[(String, Traffic)],
    demand: &Demand,
) -> Result<(), Failure> {
    let mut panels: Vec<(String, Usage)> = Vec::new();
    let mut add = |name: String, traffic: &Traffic, law| {
        let usage = simulate(fabric, traffic, law, Some(STEPS)).usage;
        panels.extend(usage.map(|usage| (name, usage)));
    };
    if let Some((name, traffic)) = all.first() {
        add(format!("{name}, serial"), traffic, Law::Serial);
    }
    if fabric.ranks() <= MOST_SHARING {
        let traffic = Baseline::AllAtOnce.traffic(fabric, demand);
        add(format!("{}, fluid", Baseline::AllAtOnce.name()), &traffic, Law::Fluid);
    }
    let panels: Vec<(String, &Usage)> = panels.iter().map(|(name, usage)| (name.clone(), usage)).collect();
    let text = svg(fabric, title, &panels);
    std::fs::write(path, text).map_err(|e| Failure::work(format!("cannot write {}: {e}", path.display())))
}
