//! Programs for a solver that others keep: good_lp with microlp.
//!
//! It checks our own figures and is used for nothing else; the feature `solver` turns it on. [`load_bound`] and
//! [`optimum`] are whole programs, the others are parts of the search in [`super::configuration`].

use super::configuration::{Lane, Lanes};
use good_lp::{Expression, ResolutionError, Solution, SolverModel, Variable, constraint, microlp, variable, variables};
use topoforge_planner::alltoallv::{Demand, Fabric};

/// The least largest load over all ways to split pairs over paths, nanoseconds.
///
/// # Errors
/// What the solver says.
pub fn load_bound(fabric: &Fabric, demand: &Demand) -> Result<f64, ResolutionError> {
    let n = demand.ranks();
    let mut all = variables!();
    // Microseconds and megabytes: figures near one.
    let most = all.add(variable().min(0.0));
    let mut loads: Vec<Expression> = vec![Expression::from(0.0); fabric.resources()];
    let mut sums: Vec<(Expression, f64)> = Vec::new();
    for pair in (0..n * n).filter(|&pair| demand.bytes()[pair] > 0) {
        let (from, to) = (pair / n, pair % n);
        let mut sum = Expression::from(0.0);
        for class in 0..fabric.path_count(from, to) {
            let part: Variable = all.add(variable().min(0.0));
            sum += part;
            let path = fabric.path(from, to, class);
            for &r in path.resources() {
                let resource = fabric.resource(r);
                let hold = f64::from(resource.hold_fs(path.inv_fs)) * 1e-3 / f64::from(resource.slots().unwrap_or(1));
                loads[r as usize] += hold * part;
            }
        }
        sums.push((sum, demand.bytes()[pair] as f64 * 1e-6));
    }
    let mut model = all.minimise(most).using(microlp);
    for (sum, megabytes) in sums {
        model = model.with(constraint!(sum == megabytes));
    }
    for load in loads {
        model = model.with(constraint!(load <= most));
    }
    Ok(model.solve()?.value(most) * 1e3)
}

/// The least time of a schedule with barriers, nanoseconds, given the rates of each pair in each channel.
///
/// # Errors
/// What the solver says.
pub fn optimum(bytes: &[f64], channels: &[Vec<f64>], alpha_ns: f64) -> Result<f64, ResolutionError> {
    let mut all = variables!();
    let mut cost = Expression::from(0.0);
    let mut served: Vec<Expression> = vec![Expression::from(0.0); bytes.len()];
    let mut limits = Vec::new();
    for channel in channels {
        let longest = (channel.iter().zip(bytes)).filter(|(rate, _)| **rate > 0.0);
        let longest = longest.map(|(rate, bytes)| bytes / rate * 1e-3).fold(0.0, f64::max);
        let (duration, used) = (all.add(variable().min(0.0)), all.add(variable().binary()));
        cost += duration + alpha_ns * 1e-3 * used;
        limits.push((duration, used, longest));
        for (served, &rate) in served.iter_mut().zip(channel).filter(|(_, rate)| **rate > 0.0) {
            // 10^9 bytes a second for a microsecond are a thousandth of a megabyte.
            *served += rate * 1e-3 * duration;
        }
    }
    let mut model = all.minimise(cost.clone()).using(microlp);
    for (served, bytes) in served.into_iter().zip(bytes) {
        model = model.with(constraint!(served >= *bytes * 1e-6));
    }
    for (duration, used, longest) in limits {
        model = model.with(constraint!(duration <= longest * used));
    }
    Ok(model.solve()?.eval(&cost) * 1e3)
}

/// Prices of pairs, microseconds for a megabyte, that the program over paths proves its bound with: no channel weighs over 1.
///
/// # Errors
/// What the solver says.
pub fn path_prices(lanes: &Lanes) -> Result<Vec<f64>, ResolutionError> {
    let mut all = variables!();
    let slots = |r: usize| lanes.slots[r];
    let prices: Vec<Variable> = lanes.megabytes.iter().map(|_| all.add(variable().min(0.0))).collect();
    // Fluid resources weigh nothing here: a channel's duration is that of its slowest lane.
    let held: Vec<Option<Variable>> = (0..lanes.slots.len())
        .map(|r| (slots(r) != usize::MAX).then(|| all.add(variable().min(0.0))))
        .collect();
    let cost: Expression = (prices.iter().zip(&lanes.megabytes)).map(|(&p, &mb)| mb * p).sum();
    let mut model = all.maximise(cost).using(microlp);
    for lane in &lanes.all {
        let held = lane.uses.iter().filter_map(|&r| held[r].map(|v| (v, slots(r))));
        let own: Expression = held.map(|(v, slots)| v * (1e3 / lane.rate / slots as f64)).sum();
        model = model.with(constraint!(Expression::from(prices[lane.pair]) <= own));
    }
    let sum: Expression = held.iter().flatten().map(|&v| Expression::from(v)).sum();
    let solved = model.with(constraint!(sum <= 1.0)).solve()?;
    Ok(prices.iter().map(|&price| solved.value(price)).collect())
}

/// The least sum of durations over these channels, microseconds, and the price of a megabyte of each pair that proves it.
///
/// This is the dual program: the solver hands out no duals of the other one.
///
/// # Errors
/// What the solver says.
pub fn prices(megabytes: &[f64], channels: &[Vec<f64>]) -> Result<(f64, Vec<f64>), ResolutionError> {
    let mut all = variables!();
    let prices: Vec<Variable> = megabytes.iter().map(|_| all.add(variable().min(0.0))).collect();
    let cost: Expression = prices.iter().zip(megabytes).map(|(&p, &mb)| mb * p).sum();
    let mut model = all.maximise(cost.clone()).using(microlp);
    for channel in channels {
        let used = channel.iter().zip(&prices).filter(|(rate, _)| **rate > 0.0);
        let weight: Expression = used.map(|(&rate, &price)| rate * 1e-3 * price).sum();
        model = model.with(constraint!(weight <= 1.0));
    }
    let solved = model.solve()?;
    Ok((
        solved.eval(&cost),
        prices.iter().map(|&price| solved.value(price)).collect(),
    ))
}

/// The heaviest channel at prices of pairs, as lanes, with its weight: megabytes a microsecond, each at its price.
///
/// # Errors
/// What the solver says.
pub fn heaviest(lanes: &Lanes, prices: &[f64]) -> Result<(f64, Vec<usize>), ResolutionError> {
    let mut all = variables!();
    let weight = |lane: &Lane| lane.rate * 1e-3 * prices[lane.pair];
    let chosen: Vec<(usize, Variable)> = (0..lanes.all.len())
        .filter(|&at| weight(&lanes.all[at]) > 1e-12)
        .map(|at| (at, all.add(variable().binary())))
        .collect();
    let mut used: Vec<Expression> = vec![Expression::from(0.0); lanes.slots.len()];
    let mut sum = Expression::from(0.0);
    for &(at, variable) in &chosen {
        sum += weight(&lanes.all[at]) * variable;
        lanes.all[at].uses.iter().for_each(|&r| used[r] += variable);
    }
    let mut model = all.maximise(sum.clone()).using(microlp);
    for (used, &slots) in used
        .into_iter()
        .zip(&lanes.slots)
        .filter(|(_, slots)| **slots != usize::MAX)
    {
        model = model.with(constraint!(used <= slots as f64));
    }
    let solved = model.solve()?;
    let taken = chosen.iter().filter(|(_, variable)| solved.value(*variable) > 0.5);
    Ok((solved.eval(&sum), taken.map(|&(at, _)| at).collect()))
}
