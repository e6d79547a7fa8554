//! The bound that knows about channels: the least sum of durations over all ways to spread a demand over channels.
//!
//! It is a covering program with a column for each channel there is: far too many to write down, so they are made as they are
//! needed. The program over the columns known so far prices pairs (microseconds for a megabyte); the heaviest channel at
//! these prices is the next column, and when it weighs no more than 1 no other column helps either. Any prices prove a
//! bound, once divided by the weight of the heaviest channel, so it holds wherever the search stops. New channels are
//! looked for between the last prices and the best ones, which begin with those of the program over paths: prices
//! of few columns are extreme, and columns made for them serve for little. Start at [`bound`].

use super::solver;
use good_lp::ResolutionError;
use topoforge_planner::alltoallv::{Demand, Fabric, Plan};

/// A path of a pair in use.
pub struct Lane {
    /// Which of the pairs that have bytes.
    pub pair: usize,
    /// 10^9 bytes a second.
    pub rate: f64,
    /// What it uses of [`Lanes::slots`].
    pub uses: Vec<usize>,
}

/// All lanes that a demand can use, and what they share.
pub struct Lanes {
    /// Megabytes of each pair that has some.
    pub megabytes: Vec<f64>,
    /// Pairs one after the other.
    pub all: Vec<Lane>,
    /// How many lanes at a time: of each resource that has a limit, then one of each sending and each receiving rank.
    pub slots: Vec<usize>,
}

impl Lanes {
    /// The lanes of a demand.
    pub fn new(fabric: &Fabric, demand: &Demand) -> Self {
        let (n, resources) = (demand.ranks(), fabric.resources());
        let slots = |r: usize| {
            fabric
                .resource(r as u32)
                .slots()
                .map_or(usize::MAX, |slots| slots as usize)
        };
        let mut lanes = Self {
            megabytes: Vec::new(),
            all: Vec::new(),
            slots: (0..resources + 2 * n)
                .map(|r| if r < resources { slots(r) } else { 1 })
                .collect(),
        };
        for (from, to) in (0..n * n).map(|pair| (pair / n, pair % n)) {
            if demand.get(from, to) == 0 {
                continue;
            }
            for path in fabric.paths(from, to) {
                let shared = path.resources().iter().map(|&r| r as usize);
                lanes.all.push(Lane {
                    pair: lanes.megabytes.len(),
                    rate: 1e6 / f64::from(path.inv_fs),
                    uses: shared.chain([resources + from, resources + n + to]).collect(),
                });
            }
            lanes.megabytes.push(demand.get(from, to) as f64 * 1e-6);
        }
        lanes
    }

    /// The rates of each pair in a channel; lanes for which there is room are added, fastest pairs' first.
    pub fn column(&self, channel: &[usize]) -> Vec<f64> {
        let mut room = self.slots.clone();
        let mut rates = vec![0.0; self.megabytes.len()];
        for lane in channel.iter().copied().chain(0..self.all.len()) {
            let lane = &self.all[lane];
            if rates[lane.pair] == 0.0 && lane.uses.iter().all(|&r| room[r] > 0) {
                lane.uses.iter().for_each(|&r| room[r] -= 1);
                rates[lane.pair] = lane.rate;
            }
        }
        rates
    }

    /// What a demand costs at prices of its pairs, microseconds.
    fn cost(&self, prices: &[f64]) -> f64 {
        self.megabytes.iter().zip(prices).map(|(mb, price)| mb * price).sum()
    }
}

/// Between what and what the bound lies.
pub struct Configuration {
    /// Proved by prices, nanoseconds: no plan's durations are less, however the search ended.
    pub at_least_ns: f64,
    /// The optimum over the channels found, nanoseconds: the bound itself is no more.
    pub at_most_ns: f64,
    /// Channels found.
    pub columns: usize,
    /// Searches for the heaviest channel.
    pub priced: usize,
    /// No channel helps any more: both figures are the bound, but for rounding.
    pub closed: bool,
}

/// Both ends are the same when they differ by no more than this part.
const SAME: f64 = 1e-6;

/// The bound, after at most `most` searches for a channel; `plan` is one for the demand, whose channels it begins with.
///
/// # Errors
/// What the solver says.
pub fn bound(fabric: &Fabric, demand: &Demand, plan: &Plan, most: usize) -> Result<Configuration, ResolutionError> {
    let lanes = Lanes::new(fabric, demand);
    let columns = channels_of(&lanes, demand, plan);
    search(&lanes, columns, most)
}

/// The same from channels that serve every pair.
fn search(lanes: &Lanes, mut columns: Vec<Vec<f64>>, most: usize) -> Result<Configuration, ResolutionError> {
    let mut best = solver::path_prices(lanes)?;
    let mut low = 0.0;
    let (mut high, mut prices) = solver::prices(&lanes.megabytes, &columns)?;
    let (mut pull, mut priced, mut closed) = (1.0, 0, false);
    while priced < most {
        let mixed = best.iter().zip(&prices);
        let mixed: Vec<f64> = mixed.map(|(best, last)| pull * best + (1.0 - pull) * last).collect();
        let (weight, channel) = solver::heaviest(lanes, &mixed)?;
        priced += 1;
        let weight = weight.max(f64::MIN_POSITIVE);
        let proved = lanes.cost(&mixed) / weight;
        if proved > low {
            low = proved;
            best = mixed.iter().map(|price| price / weight).collect();
        }
        if high - low <= SAME * high {
            closed = true;
            break;
        }
        let column = lanes.column(&channel);
        let gain: f64 = column
            .iter()
            .zip(&prices)
            .map(|(rate, price)| rate * 1e-3 * price)
            .sum();
        if gain > 1.0 + 1e-9 {
            columns.push(column);
            (high, prices) = solver::prices(&lanes.megabytes, &columns)?;
            pull = PULL;
        } else if pull == 0.0 {
            closed = true;
            break;
        } else {
            // Nothing new so near the best prices: look nearer the last ones.
            pull = if pull > 0.2 { pull * 0.6 } else { 0.0 };
        }
    }
    Ok(Configuration {
        at_least_ns: low * 1e3,
        at_most_ns: high * 1e3,
        columns: columns.len(),
        priced,
        closed,
    })
}

/// How much of the best prices there is in those that channels are looked for at.
const PULL: f64 = 0.7;

/// The channels of a plan, filled up.
fn channels_of(lanes: &Lanes, demand: &Demand, plan: &Plan) -> Vec<Vec<f64>> {
    let n = demand.ranks();
    // First lane of each pair of ranks.
    let mut first = vec![usize::MAX; n * n];
    let mut pairs = (0..n * n).filter(|&pair| demand.bytes()[pair] > 0);
    let mut last = None;
    for (at, lane) in lanes.all.iter().enumerate() {
        if last != Some(lane.pair) {
            last = Some(lane.pair);
            if let Some(pair) = pairs.next() {
                first[pair] = at;
            }
        }
    }
    let lane = |from: u16, to: u16, path: u16| first[usize::from(from) * n + usize::from(to)] + usize::from(path);
    let channel = |of: &[topoforge_planner::alltoallv::Chunk]| -> Vec<usize> {
        of.iter().map(|chunk| lane(chunk.from, chunk.to, chunk.path)).collect()
    };
    plan.activations().map(|of| lanes.column(&channel(of))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::channels::channels_of as all_channels;
    use topoforge_planner::alltoallv::{Planner, Strategy, TreeSpec};

    fn planned(number: u64) -> (Fabric, Demand, Plan) {
        let fabric = Fabric::new(&TreeSpec::pcie_2x2()).expect("a machine");
        let demand = Demand::skewed(number, 4, 64_000_000).expect("a demand");
        let mut planner = Planner::new(&fabric);
        let plan = planner.plan_by(&demand, Strategy::Peel).expect("four ranks").clone();
        (fabric, demand, plan)
    }

    /// The bound over every channel there is, nanoseconds.
    fn enumerated(fabric: &Fabric, demand: &Demand) -> f64 {
        let (bytes, channels) = all_channels(fabric, demand);
        let megabytes: Vec<f64> = bytes.iter().map(|bytes| bytes * 1e-6).collect();
        solver::prices(&megabytes, &channels).expect("solved").0 * 1e3
    }

    #[test]
    fn channels_made_as_needed_bound_as_all_channels_do() {
        for number in 0..12 {
            let (fabric, demand, plan) = planned(number);
            let (found, all) = (
                bound(&fabric, &demand, &plan, 200).expect("solved"),
                enumerated(&fabric, &demand),
            );
            assert!(found.closed, "demand {number}: {} searches", found.priced);
            for end in [found.at_least_ns, found.at_most_ns] {
                assert!(
                    (end / all - 1.0).abs() < 2e-6,
                    "demand {number}: {end}, all channels {all}"
                );
            }
        }
    }

    /// Three lanes, any two of which share something: a third of the time for each, where paths alone say half of it.
    #[test]
    fn lanes_that_meet_in_a_ring_take_longer_than_their_paths_say() {
        let lane = |pair| Lane {
            pair,
            rate: 1e3,
            uses: vec![pair, (pair + 1) % 3],
        };
        let lanes = Lanes {
            megabytes: vec![1.0; 3],
            all: (0..3).map(lane).collect(),
            slots: vec![1; 3],
        };
        let paths = lanes.cost(&solver::path_prices(&lanes).expect("solved"));
        let columns = (0..3).map(|pair| lanes.column(&[pair])).collect();
        let found = search(&lanes, columns, 50).expect("solved");
        assert!((paths - 2.0).abs() < 1e-9, "{paths} us over paths");
        assert!(
            found.closed && (found.at_least_ns - 3e3).abs() < 1e-3,
            "{} ns",
            found.at_least_ns
        );
        assert!((found.at_most_ns - 3e3).abs() < 1e-3, "{} ns", found.at_most_ns);
    }

    #[test]
    fn a_search_that_stops_early_says_so_and_still_has_the_bound_between_its_ends() {
        let mut open = 0;
        for number in 0..12 {
            let (fabric, demand, plan) = planned(number);
            let (found, all) = (
                bound(&fabric, &demand, &plan, 1).expect("solved"),
                enumerated(&fabric, &demand),
            );
            open += u32::from(!found.closed);
            assert!(found.at_least_ns <= all * (1.0 + 1e-6), "demand {number}");
            assert!(found.at_most_ns >= all * (1.0 - 1e-6), "demand {number}");
        }
        assert!(open > 0, "one search is never enough for all of them");
    }

    #[test]
    fn the_heaviest_channel_is_that_of_all_channels() {
        for number in 0..12 {
            let (fabric, demand, _) = planned(number);
            let lanes = Lanes::new(&fabric, &demand);
            // Any prices: here, what each pair has to send.
            let prices: Vec<f64> = lanes.megabytes.clone();
            let weight = |rates: &[f64]| {
                rates
                    .iter()
                    .zip(&prices)
                    .map(|(rate, price)| rate * 1e-3 * price)
                    .sum::<f64>()
            };
            let (_, channels) = all_channels(&fabric, &demand);
            let most = channels.iter().map(|rates| weight(rates)).fold(0.0, f64::max);
            let (found, channel) = solver::heaviest(&lanes, &prices).expect("solved");
            assert!((found / most - 1.0).abs() < 1e-9, "demand {number}: {found} {most}");
            assert!(
                (weight(&lanes.column(&channel)) / most - 1.0).abs() < 1e-9,
                "demand {number}"
            );
        }
    }
}
