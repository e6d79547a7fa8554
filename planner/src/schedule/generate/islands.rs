//! Islands: ranks that are near each other sum among themselves first, so that little crosses the slow links between.
//!
//! Three ways: scatter inside, exchange between the owners of each chunk, gather inside; everybody exchanges with one
//! partner in each other island; or one leader an island speaks for it. Islands may be of any sizes (4+2, 2+6, 3+1).
//! They are found from what edges cost, never from names. Start at [`generate`], then [`partitions`].

use super::Candidate;
use super::flow::Flow;
use super::links::cost;
use crate::schedule::edges::Edges;
use crate::schedule::ir::{Delivery, Rank, Schedule};

/// Most chunks that islands of different sizes are cut into to give all owners the same share.
const MOST_CHUNKS: usize = 16;

/// More islands than this exchange better in more than one stage, which grids do.
const MOST_ISLANDS: usize = 8;

/// Candidates of every partition, finest islands last.
pub(super) fn generate(edges: &Edges, most: usize) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = Vec::new();
    for islands in partitions(edges) {
        let sizes: Vec<String> = islands.iter().map(|i| i.len().to_string()).collect();
        let sizes = sizes.join("-");
        // Islands of one size are a grid's lines: the first two ways are among its shapes already.
        let grid = islands.iter().all(|i| i.len() == islands[0].len());
        let made = [
            ("scatter", (!grid).then(|| scattered(edges, &islands)).flatten()),
            ("exchange", (!grid).then(|| exchanged(edges, &islands)).flatten()),
            ("leader", led(edges, &islands)),
        ];
        for (way, schedule) in made {
            let shape = format!("islands-{way}-{sizes}");
            if candidates.iter().any(|c| c.shape == shape) {
                continue;
            }
            candidates.extend(schedule.map(|schedule| Candidate {
                schedule: Schedule {
                    name: shape.clone(),
                    ..schedule
                },
                shape,
            }));
        }
    }
    candidates.truncate(most);
    candidates
}

/// For each level of edge cost, the groups that edges of at most that cost join; groups whose members are not all
/// joined to each other are left out, and so are a single group and single ranks only.
pub(super) fn partitions(edges: &Edges) -> Vec<Vec<Vec<Rank>>> {
    let n = edges.ranks();
    if n < 3 {
        return Vec::new();
    }
    let two_way = |a: Rank, b: Rank| edges.allows(a, b, Delivery::Push) && edges.allows(b, a, Delivery::Push);
    let pairs = || (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b)));
    let mut levels: Vec<f64> = pairs()
        .filter(|&(a, b)| two_way(a, b))
        .map(|(a, b)| cost(edges, a, b))
        .collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup_by(|a, b| (*a - *b).abs() < 1e-6);
    let mut found: Vec<Vec<Vec<Rank>>> = Vec::new();
    for level in levels.into_iter().rev() {
        let mut part: Vec<usize> = (0..n).collect();
        for (a, b) in pairs().filter(|&(a, b)| two_way(a, b) && cost(edges, a, b) <= level + 1e-6) {
            let (from, to) = (part[a].max(part[b]), part[a].min(part[b]));
            part.iter_mut().filter(|p| **p == from).for_each(|p| *p = to);
        }
        let mut islands: Vec<Vec<Rank>> = Vec::new();
        for leader in 0..n {
            let island: Vec<Rank> = (0..n).filter(|&r| part[r] == leader).collect();
            if !island.is_empty() {
                islands.push(island);
            }
        }
        let complete = |island: &Vec<Rank>| island.iter().all(|&a| island.iter().all(|&b| a == b || two_way(a, b)));
        let fits = (2..=MOST_ISLANDS).contains(&islands.len())
            && islands.iter().any(|i| i.len() > 1)
            && islands.iter().all(complete);
        if fits && !found.contains(&islands) {
            found.push(islands);
        }
    }
    found
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Owners of one chunk, an island each, all joined to each other: the cheapest with the least to do so far.
fn owners(edges: &Edges, islands: &[Vec<Rank>], load: &[usize]) -> Option<Vec<Rank>> {
    let joined = |a: Rank, b: Rank| edges.allows(a, b, Delivery::Push) && edges.allows(b, a, Delivery::Push);
    let mut best: Option<(usize, f64, Vec<Rank>)> = None;
    // Greedy from each rank of the first island: the rest follow their nearest.
    for &first in &islands[0] {
        let mut chosen = vec![first];
        let (mut work, mut total) = (load[first], 0.0);
        for island in &islands[1..] {
            let open = island.iter().filter(|&&r| chosen.iter().all(|&c| joined(c, r)));
            let far = |r: Rank| -> f64 { chosen.iter().map(|&c| cost(edges, c, r)).sum() };
            let next = open.min_by(|&&a, &&b| load[a].cmp(&load[b]).then(far(a).total_cmp(&far(b))).then(a.cmp(&b)));
            let Some(&next) = next else { break };
            total += far(next);
            work += load[next];
            chosen.push(next);
        }
        let better = |b: &(usize, f64, Vec<Rank>)| (work, total) < (b.0, b.1);
        if chosen.len() == islands.len() && best.as_ref().is_none_or(better) {
            best = Some((work, total, chosen));
        }
    }
    best.map(|(_, _, chosen)| chosen)
}

/// Reduce-scatter inside, exchange between owners, all-gather inside.
fn scattered(edges: &Edges, islands: &[Vec<Rank>]) -> Option<Schedule> {
    let n = edges.ranks();
    let even = islands.iter().fold(1, |all, i| all / gcd(all, i.len()) * i.len());
    let largest = islands.iter().map(Vec::len).max()?;
    let chunks = if even <= MOST_CHUNKS { even } else { largest };
    let mut flow = Flow::new(n, chunks);
    let mut load = vec![0_usize; n];
    let mut totals = Vec::with_capacity(chunks);
    for chunk in 0..chunks {
        let owners = owners(edges, islands, &load)?;
        let mut sums = Vec::with_capacity(islands.len());
        for (island, &owner) in islands.iter().zip(&owners) {
            // Weighted, so that a small island's owners are not taken for idle ones.
            load[owner] += 1;
            let inputs: Vec<_> = island.iter().map(|&r| flow.values.input(r)).collect();
            for (&rank, &input) in island.iter().zip(&inputs) {
                if rank != owner {
                    flow.send(0, (rank, owner), chunk, input);
                }
            }
            sums.push(flow.values.fold(&inputs));
        }
        for (&a, &sum) in owners.iter().zip(&sums) {
            for &b in owners.iter().filter(|&&b| b != a) {
                flow.send(1, (a, b), chunk, sum);
            }
        }
        let total = flow.values.fold(&sums);
        let total = flow.rounded(total);
        for (island, &owner) in islands.iter().zip(&owners) {
            for &rank in island.iter().filter(|&&r| r != owner) {
                flow.send(2, (owner, rank), chunk, total);
            }
        }
        totals.push(total);
    }
    flow.finish(String::new(), totals)
}

/// All-reduce inside, then each rank has every other island's sum from one member of it.
fn exchanged(edges: &Edges, islands: &[Vec<Rank>]) -> Option<Schedule> {
    let n = edges.ranks();
    let mut flow = Flow::new(n, 1);
    let mut sums = Vec::with_capacity(islands.len());
    for island in islands {
        let inputs: Vec<_> = island.iter().map(|&r| flow.values.input(r)).collect();
        for (&a, &input) in island.iter().zip(&inputs) {
            for &b in island.iter().filter(|&&b| b != a) {
                flow.send(0, (a, b), 0, input);
            }
        }
        sums.push(flow.values.fold(&inputs));
    }
    let mut load = vec![0_usize; n];
    for (i, island) in islands.iter().enumerate() {
        for (j, other) in islands.iter().enumerate().filter(|(j, _)| *j != i) {
            for &to in island {
                let open = other.iter().filter(|&&from| edges.allows(from, to, Delivery::Push));
                let near = |a: Rank| edges.time_us(a, to, super::links::EDGE_BYTES);
                let from =
                    open.min_by(|&&a, &&b| load[a].cmp(&load[b]).then(near(a).total_cmp(&near(b))).then(a.cmp(&b)));
                let &from = from?;
                load[from] += 1;
                flow.send(1, (from, to), 0, sums[j]);
            }
        }
    }
    let total = flow.values.fold(&sums);
    flow.finish(String::new(), vec![total])
}

/// Members to their leader, leaders among themselves, leaders to their members.
fn led(edges: &Edges, islands: &[Vec<Rank>]) -> Option<Schedule> {
    let n = edges.ranks();
    let leaders = owners(edges, islands, &vec![0; n])?;
    let mut flow = Flow::new(n, 1);
    let mut sums = Vec::with_capacity(islands.len());
    for (island, &leader) in islands.iter().zip(&leaders) {
        let inputs: Vec<_> = island.iter().map(|&r| flow.values.input(r)).collect();
        for (&rank, &input) in island.iter().zip(&inputs) {
            if rank != leader {
                flow.send(0, (rank, leader), 0, input);
            }
        }
        sums.push(flow.values.fold(&inputs));
    }
    for (&a, &sum) in leaders.iter().zip(&sums) {
        for &b in leaders.iter().filter(|&&b| b != a) {
            flow.send(1, (a, b), 0, sum);
        }
    }
    let total = flow.values.fold(&sums);
    let total = flow.rounded(total);
    for (island, &leader) in islands.iter().zip(&leaders) {
        for &rank in island.iter().filter(|&&r| r != leader) {
            flow.send(2, (leader, rank), 0, total);
        }
    }
    flow.finish(String::new(), vec![total])
}
