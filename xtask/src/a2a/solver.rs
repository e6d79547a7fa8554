//! The same two programs by a solver that others keep: good_lp with microlp.
//!
//! It checks our own figures and is used for nothing else; the feature `solver` turns it on. Start at [`load_bound`] and
//! [`optimum`].

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
