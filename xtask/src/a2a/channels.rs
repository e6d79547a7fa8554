//! The channels of a small machine: sets of lanes that can all be under way at once.
//!
//! A schedule under barriers is a choice of maximal channels and a time for each; a pair is served if the rates that it has
//! in them, times their durations, cover its bytes, and two uses of one channel are one. So the optimum is a covering
//! program with a fixed charge for each channel used, exact for any number of activations. Start at [`channels_of`].

use topoforge_planner::alltoallv::{Demand, Fabric};

/// Most resources of a machine that is searched.
pub const MOST_RESOURCES: usize = 128;

/// Bytes of each pair that has some, and the rates that these pairs have in each channel that matters.
pub fn channels_of(fabric: &Fabric, demand: &Demand) -> (Vec<f64>, Vec<Vec<f64>>) {
    let pairs: Vec<(usize, usize)> = (0..demand.ranks())
        .flat_map(|i| (0..demand.ranks()).map(move |j| (i, j)))
        .filter(|&(i, j)| demand.get(i, j) > 0)
        .collect();
    let bytes = pairs.iter().map(|&(i, j)| demand.get(i, j) as f64).collect();
    (bytes, channels(fabric, &pairs))
}

/// The rates that each pair has in each maximal channel, without channels that are nowhere better than another one.
fn channels(fabric: &Fabric, pairs: &[(usize, usize)]) -> Vec<Vec<f64>> {
    let mut lanes = Vec::new();
    for (row, &(i, j)) in pairs.iter().enumerate() {
        for class in 0..fabric.path_count(i, j) {
            let path = fabric.path(i, j, class);
            let mask = path.resources().iter().fold(0u128, |mask, &r| mask | 1 << r);
            lanes.push((row, mask, 1e6 / f64::from(path.inv_fs)));
        }
    }
    let mut found = Vec::new();
    let mut rates = vec![0.0; pairs.len()];
    extend(&lanes, 0, 0, &mut rates, &mut found);
    found.sort_by(|a: &Vec<f64>, b| b.iter().sum::<f64>().total_cmp(&a.iter().sum()));
    let mut kept: Vec<Vec<f64>> = Vec::new();
    for channel in found {
        let worse = |better: &Vec<f64>| better.iter().zip(&channel).all(|(b, c)| b >= c);
        if !kept.iter().any(worse) {
            kept.push(channel);
        }
    }
    kept
}

fn extend(lanes: &[(usize, u128, f64)], at: usize, used: u128, rates: &mut [f64], found: &mut Vec<Vec<f64>>) {
    let Some(&(row, mask, rate)) = lanes.get(at) else {
        if lanes.iter().all(|(_, mask, _)| used & mask != 0) {
            found.push(rates.to_vec());
        }
        return;
    };
    if used & mask == 0 {
        rates[row] = rate;
        extend(lanes, at + 1, used | mask, rates, found);
        rates[row] = 0.0;
    }
    extend(lanes, at + 1, used, rates, found);
}
