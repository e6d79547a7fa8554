//! Lower bounds: no plan can be faster, whatever it does.
//!
//! Two figures make them. *Load*: prices on resources, any prices that are not negative, show that some resource must be
//! busy for at least so long, since each byte pays at least its cheapest path. *Count*: the same with a lane in place of
//! a byte shows how many activations there must be. The best prices come from a linear program over paths, solved here
//! exactly by a small simplex for one node at a time, and from the prices of a balanced path plan where nodes are coupled.
//! Whatever the prices are, the bound holds. Start at `Bound::of`.

use super::demand::Demand;
use super::lp;
use super::net::{Net, UNLIMITED};

/// What no plan can beat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The busiest resource's least load, nanoseconds.
    pub load_ns: f64,
    /// The fewest activations.
    pub activations: u64,
    /// Least time with a barrier before each activation, nanoseconds.
    pub barrier_ns: f64,
    /// Least time when resources are handed on, nanoseconds.
    pub hand_off_ns: f64,
    /// The prices are optimal: the load bound is the linear program's optimum, not merely below it.
    pub exact: bool,
}

/// Rows and columns up to which the linear program is solved.
const MOST_CELLS: usize = 6_000_000;

impl Bound {
    /// The bounds of a demand.
    pub(super) fn of(net: &Net, nodes: usize, demand: &Demand) -> Self {
        let bytes: Vec<f64> = demand.bytes().iter().map(|&b| b as f64).collect();
        let lanes: Vec<f64> = bytes.iter().map(|&b| f64::from(u8::from(b > 0.0))).collect();
        let (byte_time, lane_time) = (Weight::Bytes, Weight::Lanes);
        let (load, prices, exact) = best(net, nodes, &bytes, byte_time);
        let (count, counting, _) = best(net, nodes, &lanes, lane_time);
        let activations = round_up(count).max(u64::from(demand.total() > 0));
        let alpha_h = f64::from(net.alpha_h);
        // A resource that is handed on is busy for its bytes and once more for each lane.
        let joint = |prices: &[f64]| {
            price_bound(net, &bytes, prices, byte_time) + alpha_h * price_bound(net, &lanes, prices, lane_time)
        };
        let apart = (load).max(alpha_h * count);
        Self {
            load_ns: load,
            activations,
            barrier_ns: load + f64::from(net.alpha) * activations as f64,
            hand_off_ns: joint(&prices).max(joint(&counting)).max(apart),
            exact,
        }
    }
}

/// Up to the next whole number, less what rounding may have added.
fn round_up(count: f64) -> u64 {
    let whole = count as u64;
    if count - whole as f64 > 1e-6 { whole + 1 } else { whole }
}

/// What a unit of a pair's amount costs a resource.
#[derive(Clone, Copy)]
enum Weight {
    /// Nanoseconds a byte.
    Bytes,
    /// One lane.
    Lanes,
}

impl Weight {
    fn of(self, net: &Net, lane: usize, r: u16) -> f64 {
        match self {
            Self::Bytes => f64::from(net.hold(lane, r)),
            Self::Lanes if net.slots[usize::from(r)] == UNLIMITED || net.own[usize::from(r)] > 0.0 => 0.0,
            Self::Lanes => f64::from(net.share[usize::from(r)]),
        }
    }
}

/// The bound that prices prove: they are scaled to a sum of 1.
fn price_bound(net: &Net, amounts: &[f64], prices: &[f64], weight: Weight) -> f64 {
    let sum: f64 = prices.iter().sum();
    if sum.is_nan() || sum <= 0.0 {
        return 0.0;
    }
    let mut total = 0.0;
    for (pair, &amount) in amounts.iter().enumerate().filter(|(_, amount)| **amount > 0.0) {
        let cost = |lane: usize| -> f64 {
            let uses = net.uses(lane).iter();
            uses.map(|&r| prices[usize::from(r)] * weight.of(net, lane, r)).sum()
        };
        total += amount * net.lanes(pair).map(cost).fold(f64::INFINITY, f64::min);
    }
    total / sum
}

/// The best bound found, its prices, and whether they are optimal.
fn best(net: &Net, nodes: usize, amounts: &[f64], weight: Weight) -> (f64, Vec<f64>, bool) {
    let n = net.ranks;
    let per_node = n / nodes.max(1);
    let several = |pair: usize| amounts[pair] > 0.0 && net.lanes(pair).len() > 1;
    let beyond = |pair: usize| {
        let far = pair / n / per_node != pair % n / per_node;
        far || net.lanes(pair).any(|lane| !net.leaf_uses(lane).is_empty())
    };
    let coupled = (0..n * n).any(|pair| several(pair) && beyond(pair));
    let mut base = vec![0.0; net.resources];
    for (pair, &amount) in amounts.iter().enumerate().filter(|(_, amount)| **amount > 0.0) {
        let lane = net.first[pair] as usize;
        for &r in net.uses(lane) {
            base[usize::from(r)] += amount * weight.of(net, lane, r);
        }
    }
    let mut found = (0.0, vec![0.0; net.resources], true);
    let mut consider = |prices: Vec<f64>, exact: bool| {
        let bound = price_bound(net, amounts, &prices, weight);
        if bound > found.0 {
            found = (bound, prices, exact);
        }
    };
    // Without pairs between nodes that may choose, nodes do not touch each other's loads.
    let parts = if coupled { 1 } else { nodes };
    let mut all_exact = true;
    for part in 0..parts {
        let rows = part * n / parts..(part + 1) * n / parts;
        let pairs = rows
            .flat_map(|i| (0..n).map(move |j| i * n + j))
            .filter(|&pair| several(pair));
        let pairs: Vec<usize> = pairs.collect();
        match solve(
            net,
            amounts,
            weight,
            &base,
            &pairs,
            if coupled {
                0..net.resources
            } else {
                part * net.per_node..(part + 1) * net.per_node
            },
        ) {
            Some(prices) => consider(prices, true),
            None => {
                all_exact = false;
                consider(descend(net, amounts, weight, &base, &pairs), false);
            }
        }
    }
    if !coupled {
        // Nobody has a choice about leaf switches: the busiest of their ports is a bound by itself.
        let busier = |a: usize, b: usize| if base[b] > base[a] { b } else { a };
        if let Some(port) = (net.leaf_ports..net.resources).reduce(busier) {
            let mut prices = vec![0.0; net.resources];
            prices[port] = 1.0;
            consider(prices, true);
        }
    }
    found.2 &= all_exact;
    found
}

/// Optimal prices on `resources` when `pairs` may choose their paths; none where the program is too large.
fn solve(
    net: &Net,
    amounts: &[f64],
    weight: Weight,
    base: &[f64],
    pairs: &[usize],
    resources: std::ops::Range<usize>,
) -> Option<Vec<f64>> {
    let mut program = lp::Program::new(&base[resources.clone()]);
    for &pair in pairs {
        let lanes = net.lanes(pair);
        let first = lanes.start;
        let columns = lanes.skip(1).map(|lane| {
            let mut column: Vec<(usize, f64)> = Vec::new();
            for &r in net.uses(lane) {
                column.push((usize::from(r) - resources.start, weight.of(net, lane, r)));
            }
            for &r in net.uses(first) {
                column.push((usize::from(r) - resources.start, -weight.of(net, first, r)));
            }
            column
        });
        program.choice(amounts[pair], columns);
    }
    if program.cells() > MOST_CELLS {
        return None;
    }
    let duals = program.solve()?;
    let mut prices = vec![0.0; net.resources];
    prices[resources].copy_from_slice(&duals);
    Some(prices)
}

/// Good prices by balancing paths: pairs move to the path that is cheapest where dearer loads count ever more.
fn descend(net: &Net, amounts: &[f64], weight: Weight, base: &[f64], pairs: &[usize]) -> Vec<f64> {
    let mut load = base.to_vec();
    let mut split: Vec<Vec<f64>> = pairs
        .iter()
        .map(|&pair| {
            let mut split = vec![0.0; net.lanes(pair).len()];
            split[0] = amounts[pair];
            split
        })
        .collect();
    let mut best = (0.0, vec![0.0; net.resources]);
    let mut sharpness = 4u32;
    for round in 0..60 {
        if round % 6 == 5 && sharpness < 10 {
            sharpness += 1;
        }
        let most = load.iter().copied().fold(0.0, f64::max);
        if most <= 0.0 {
            break;
        }
        let price = |load: f64| {
            let mut p = load / most;
            for _ in 0..sharpness {
                p *= p;
            }
            p
        };
        for (split, &pair) in split.iter_mut().zip(pairs) {
            let lanes = net.lanes(pair);
            let cost = |lane: usize| -> f64 {
                let uses = net.uses(lane).iter();
                uses.map(|&r| price(load[usize::from(r)]) * weight.of(net, lane, r))
                    .sum()
            };
            let (mut dear, mut cheap) = ((0, -1.0), (0, f64::INFINITY));
            for (at, lane) in lanes.clone().enumerate() {
                let cost = cost(lane);
                if split[at] > 0.0 && cost > dear.1 {
                    dear = (at, cost);
                }
                if cost < cheap.1 {
                    cheap = (at, cost);
                }
            }
            if dear.0 == cheap.0 || dear.1 <= cheap.1 {
                continue;
            }
            let moved = split[dear.0] * if dear.1 > 2.0 * cheap.1 { 0.25 } else { 0.05 };
            split[dear.0] -= moved;
            split[cheap.0] += moved;
            for (at, bytes) in [(dear.0, -moved), (cheap.0, moved)] {
                let lane = lanes.start + at;
                for &r in net.uses(lane) {
                    load[usize::from(r)] += bytes * weight.of(net, lane, r);
                }
            }
        }
        let most = load.iter().copied().fold(0.0, f64::max);
        for sharpness in [4, 6, 8, 10, 12] {
            let prices: Vec<f64> = load
                .iter()
                .map(|&l| {
                    let mut p = l / most;
                    (0..sharpness).for_each(|_| p *= p);
                    p
                })
                .collect();
            let bound = price_bound(net, amounts, &prices, weight);
            if bound > best.0 {
                best = (bound, prices);
            }
        }
    }
    best.1
}
