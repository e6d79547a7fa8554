//! Fold-in: a group of an odd size lets a few ranks lend their input to a partner, the partners run a grid, and the
//! lenders have the total from them at the end.
//!
//! It never looks for its own grids: `placement` finds them among the partners. Start at [`generate`].

use super::mixed_radix::{self, Mode, Shape};
use super::{Candidate, placement};
use crate::schedule::edges::Edges;
use crate::schedule::ir::{Delivery, Rank, Schedule, Stage, Transfer, Value, ValueId, Values};

/// `(lender, partner)`.
type Lenders = Vec<(Rank, Rank)>;

/// Beyond this many partners a grid has too many shapes to try each.
const MOST_SHAPES: usize = 12;

/// Grids over the largest power of two below n, and over n - 1, each with its best placement.
pub(super) fn generate(edges: &Edges, most: usize) -> Vec<Candidate> {
    let n = edges.ranks();
    if n < 3 || n.is_power_of_two() {
        return Vec::new();
    }
    let mut candidates = Vec::new();
    let power = n.next_power_of_two() / 2;
    // With one lender there must be a grid to lend to: an even number of ranks leaves an odd one of partners.
    let other = (n % 2 == 1 && n - 1 != power).then_some(n - 1);
    for core in std::iter::once(power).chain(other) {
        let Some((partners, lenders)) = split(edges, core) else {
            continue;
        };
        let inner = edges.subset(&partners);
        let shapes: Vec<Shape> = mixed_radix::shapes(core)
            .into_iter()
            .filter(|s| s.0.len() > 1 || core < 4)
            .filter(|s| core <= 8 || s.0.iter().all(|f| f.1 == s.0[0].1))
            .collect();
        for (shape, placed) in placement::search(&inner, &shapes).into_iter().take(MOST_SHAPES) {
            let Some(best) = placed.first() else { continue };
            let ranks: Vec<Rank> = best.ranks.iter().map(|&at| partners[at]).collect();
            let name = format!("fold-in-{core}-{}", shape.name());
            candidates.extend(
                build(edges, shape, &ranks, &lenders, name.clone()).map(|schedule| Candidate { schedule, shape: name }),
            );
        }
    }
    candidates.truncate(most);
    candidates
}

/// Partners in ascending order, and `(lender, partner)`; the lenders are those with the cheapest edges to lend over.
fn split(edges: &Edges, core: usize) -> Option<(Vec<Rank>, Lenders)> {
    let n = edges.ranks();
    let two_way = |a: Rank, b: Rank| edges.allows(a, b, Delivery::Push) && edges.allows(b, a, Delivery::Push);
    let mut pairs: Vec<(f64, Rank, Rank)> = (0..n)
        .flat_map(|a| (0..n).map(move |b| (a, b)))
        // The higher rank lends, so that ranks keep their order among partners.
        .filter(|&(lender, partner)| lender > partner && two_way(lender, partner))
        .map(|(lender, partner)| (super::links::cost(edges, lender, partner), lender, partner))
        .collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then((n - a.1, n - a.2).cmp(&(n - b.1, n - b.2))));
    let (mut taken, mut lenders) = (0_u64, Vec::new());
    for (_, lender, partner) in pairs {
        if lenders.len() < n - core && taken >> lender & 1 == 0 && taken >> partner & 1 == 0 {
            taken |= 1 << lender | 1 << partner;
            lenders.push((lender, partner));
        }
    }
    let lends = |r: &Rank| lenders.iter().any(|l: &(Rank, Rank)| l.0 == *r);
    let partners: Vec<Rank> = (0..n).filter(|r| !lends(r)).collect();
    (lenders.len() == n - core).then_some((partners, lenders))
}

/// Renames a grid's values and ranks, lends before it and returns after it.
fn build(edges: &Edges, shape: &Shape, ranks: &[Rank], lenders: &[(Rank, Rank)], name: String) -> Option<Schedule> {
    let (n, core) = (edges.ranks(), ranks.len());
    let positions: Vec<usize> = (0..core).collect();
    let inner = mixed_radix::build(shape, &positions, String::new())?;
    let mut values = Values::default();
    let mut known: Vec<ValueId> = Vec::with_capacity(inner.values.len());
    for &value in &inner.values {
        let new = match value {
            Value::Input(at) => {
                let own = values.input(ranks[at]);
                let lent: Vec<ValueId> = lenders
                    .iter()
                    .filter(|l| l.1 == ranks[at])
                    .map(|l| values.input(l.0))
                    .collect();
                let mut all = vec![own];
                all.extend(lent);
                values.fold(&all)
            }
            Value::Sum(a, b) => values.fold(&[known[a.0 as usize], known[b.0 as usize]]),
            Value::Rounded(a) => values.intern(Value::Rounded(known[a.0 as usize])),
        };
        known.push(new);
    }
    let each_chunk = |ends: Vec<(Rank, Rank)>, value: &dyn Fn(Rank, usize) -> ValueId| Stage {
        transfers: ends
            .into_iter()
            .flat_map(|(from, to)| (0..inner.chunks).map(move |chunk| (from, to, chunk)))
            .map(|(from, to, chunk)| Transfer {
                from,
                to,
                chunk,
                value: value(from, chunk as usize),
            })
            .collect(),
    };
    let inputs: Vec<ValueId> = (0..n).map(|r| values.input(r)).collect();
    let mut totals: Vec<ValueId> = inner.outputs[0].iter().map(|v| known[v.0 as usize]).collect();
    if !shape.0.iter().any(|s| s.1 == Mode::Scatter) {
        totals = totals.into_iter().map(|t| values.intern(Value::Rounded(t))).collect();
    }
    let mut stages = vec![each_chunk(lenders.to_vec(), &|from, _| inputs[from])];
    for stage in &inner.stages {
        let renamed = stage.transfers.iter().map(|t| Transfer {
            from: ranks[t.from],
            to: ranks[t.to],
            value: known[t.value.0 as usize],
            ..*t
        });
        stages.push(Stage {
            transfers: renamed.collect(),
        });
    }
    let back = lenders.iter().map(|&(lender, partner)| (partner, lender)).collect();
    stages.push(each_chunk(back, &|_, chunk| totals[chunk]));
    Some(Schedule {
        name,
        ranks: n,
        chunks: inner.chunks,
        delivery: Delivery::Push,
        values: values.into_vec(),
        stages,
        outputs: vec![totals; n],
    })
}
