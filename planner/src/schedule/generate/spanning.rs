//! Spanning trees: quickest, nearest to a root, and several that share no edge.
//!
//! It never makes a schedule. `disjoint` is matroid partition (an edge that fits no forest may push another edge into
//! the next one), so it finds as many trees as there are. Start at [`Tree`].

use super::links::{EDGE_BYTES, Links, cost};
use crate::schedule::cost::FITTED;
use crate::schedule::edges::Edges;
use crate::schedule::ir::{Delivery, Rank};

/// A tree to sum up along and one to send the total down along; the same edges unless links are one-way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    pub root: Rank,
    /// Whom each rank sends its sum to.
    pub up: Vec<Option<Rank>>,
    /// Whom each rank has the total from.
    pub down: Vec<Option<Rank>>,
}

impl Tree {
    fn both_ways(root: Rank, parent: Vec<Option<Rank>>) -> Self {
        Self {
            root,
            down: parent.clone(),
            up: parent,
        }
    }

    /// Children before parents, siblings in the order of ranks.
    pub(super) fn up_order(&self) -> Vec<Rank> {
        let mut order = order(self.root, &self.up);
        order.reverse();
        order
    }

    /// Parents before children.
    pub(super) fn down_order(&self) -> Vec<Rank> {
        order(self.root, &self.down)
    }

    /// Most children of a rank.
    pub(super) fn widest(&self) -> usize {
        let children = |r: Rank| self.down.iter().filter(|p| **p == Some(r)).count();
        (0..self.down.len()).map(children).max().unwrap_or(0)
    }

    fn depth(&self) -> usize {
        let mut depth = vec![0; self.down.len()];
        for rank in self.down_order() {
            if let Some(parent) = self.down[rank] {
                depth[rank] = depth[parent] + 1;
            }
        }
        depth.into_iter().max().unwrap_or(0)
    }
}

/// Breadth first from the root.
fn order(root: Rank, parent: &[Option<Rank>]) -> Vec<Rank> {
    let mut order = vec![root];
    let mut at = 0;
    while at < order.len() {
        let here = order[at];
        order.extend((0..parent.len()).filter(|&r| parent[r] == Some(here)));
        at += 1;
    }
    order
}

/// The tree over which a total is down at all ranks soonest, with at most `fan_out` children a rank; over all roots.
pub(super) fn quickest(edges: &Edges, links: &Links, fan_out: usize) -> Option<Tree> {
    let trees = (0..edges.ranks()).filter_map(|root| grow(edges, links, root, fan_out));
    trees.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, tree)| tree)
}

/// Joins the rank that can have the total soonest, until all have. What shares a port is sent one after the other.
fn grow(edges: &Edges, links: &Links, root: Rank, fan_out: usize) -> Option<(f64, Tree)> {
    let n = edges.ranks();
    let (mut parent, mut known, mut children) = (vec![None; n], vec![f64::INFINITY; n], vec![0_usize; n]);
    let mut busy = vec![0.0; n];
    known[root] = 0.0;
    let mut last = 0.0_f64;
    for _ in 1..n {
        let mut next: Option<(f64, Rank, Rank)> = None;
        for at in (0..n).filter(|&r| known[r].is_finite() && children[r] < fan_out) {
            for to in links.neighbours(at).filter(|&r| !known[r].is_finite()) {
                let queue = if edges.shares_port(at, to) { busy[at] } else { 0.0 };
                let time = known[at] + FITTED.stage_us + queue + cost(edges, at, to);
                if next.is_none_or(|best| time < best.0) {
                    next = Some((time, at, to));
                }
            }
        }
        let (time, at, to) = next?;
        parent[to] = Some(at);
        known[to] = time;
        children[at] += 1;
        busy[at] += EDGE_BYTES * edges.us_per_byte(at, to);
        last = last.max(time);
    }
    Some((last, Tree::both_ways(root, parent)))
}

/// The tree with the fewest hops from `root`; among equal hops each rank takes the parent with the fewest children,
/// then the cheapest.
pub(super) fn nearest(edges: &Edges, links: &Links, root: Rank) -> Option<Tree> {
    let n = edges.ranks();
    let (mut parent, mut children) = (vec![None; n], vec![0_usize; n]);
    let mut reached = 1_u64 << root;
    let mut layer = vec![root];
    while reached.count_ones() as usize != n {
        let mut next = Vec::new();
        for to in (0..n).filter(|&r| reached >> r & 1 == 0) {
            let near = layer.iter().copied().filter(|&at| links.near[at] >> to & 1 == 1);
            let key = |at: &Rank| (children[*at], cost(edges, *at, to), *at);
            let best = near.min_by(|a, b| {
                let (a, b) = (key(a), key(b));
                a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
            });
            if let Some(at) = best {
                parent[to] = Some(at);
                children[at] += 1;
                next.push(to);
            }
        }
        if next.is_empty() {
            return None;
        }
        next.iter().for_each(|&r| reached |= 1 << r);
        layer = next;
    }
    Some(Tree::both_ways(root, parent))
}

/// Breadth-first trees along the direction of links; rank 0 is the root.
pub(super) fn directed(edges: &Edges) -> Option<Tree> {
    let n = edges.ranks();
    let search = |joined: &dyn Fn(Rank, Rank) -> bool| -> Option<Vec<Option<Rank>>> {
        let mut parent = vec![None; n];
        let (mut order, mut at) = (vec![0], 0);
        while at < order.len() {
            let here = order[at];
            for (to, before) in parent.iter_mut().enumerate().skip(1) {
                if before.is_none() && joined(here, to) {
                    *before = Some(here);
                    order.push(to);
                }
            }
            at += 1;
        }
        (order.len() == n).then_some(parent)
    };
    Some(Tree {
        root: 0,
        up: search(&|here, to| edges.allows(to, here, Delivery::Push))?,
        down: search(&|here, to| edges.allows(here, to, Delivery::Push))?,
    })
}

/// `count` trees of which no two share an edge, cheapest edges first, each rooted at its middle.
pub(super) fn disjoint(edges: &Edges, links: &Links, count: usize) -> Option<Vec<Tree>> {
    let n = edges.ranks();
    let list = links.sorted(edges);
    if list.len() < count * (n - 1) {
        return None;
    }
    // Edge numbers of each forest.
    let mut forests: Vec<Vec<usize>> = vec![Vec::new(); count];
    for edge in 0..list.len() {
        if forests.iter().all(|f| f.len() == n - 1) {
            break;
        }
        insert(&list, n, &mut forests, edge);
    }
    if forests.iter().any(|f| f.len() != n - 1) {
        return None;
    }
    let mut roots_taken = vec![0_usize; n];
    let trees = forests.iter().map(|forest| {
        let mut near = vec![0_u64; n];
        for &e in forest {
            let (a, b) = list[e];
            near[a] |= 1 << b;
            near[b] |= 1 << a;
        }
        let forest = Links { near };
        // The middle of the tree; a root that is taken already would carry both trees' totals.
        let rooted = (0..n).filter_map(|root| nearest(edges, &forest, root));
        let best = rooted.min_by_key(|t| (t.depth() + roots_taken[t.root], t.root))?;
        roots_taken[best.root] += 1;
        Some(best)
    });
    trees.collect()
}

/// Puts `edge` into some forest, moving others along a shortest chain of exchanges if it must.
fn insert(list: &[(Rank, Rank)], n: usize, forests: &mut [Vec<usize>], edge: usize) {
    // For each edge seen: the edge that would take its place, and the forest it would do so in.
    let mut from: Vec<Option<(usize, usize)>> = vec![None; list.len()];
    let mut open = std::collections::VecDeque::from([edge]);
    let mut seen = vec![false; list.len()];
    seen[edge] = true;
    while let Some(at) = open.pop_front() {
        for f in 0..forests.len() {
            if forests[f].contains(&at) {
                continue;
            }
            match path(list, n, &forests[f], list[at]) {
                None => {
                    // It fits: move everyone along the chain.
                    let (mut moving, mut into) = (at, f);
                    loop {
                        forests[into].push(moving);
                        let Some((by, forest)) = from[moving] else { return };
                        forests[forest].retain(|&e| e != moving);
                        (moving, into) = (by, forest);
                    }
                }
                Some(cycle) => {
                    for e in cycle {
                        if !std::mem::replace(&mut seen[e], true) {
                            from[e] = Some((at, f));
                            open.push_back(e);
                        }
                    }
                }
            }
        }
    }
}

/// The forest's edges between the two ends, if they are joined in it.
fn path(list: &[(Rank, Rank)], n: usize, forest: &[usize], (start, end): (Rank, Rank)) -> Option<Vec<usize>> {
    let mut via: Vec<Option<(usize, Rank)>> = vec![None; n];
    let (mut open, mut seen) = (vec![start], 1_u64 << start);
    while let Some(at) = open.pop() {
        for &e in forest {
            let (a, b) = list[e];
            let to = match at {
                r if r == a => b,
                r if r == b => a,
                _ => continue,
            };
            if seen >> to & 1 == 0 {
                seen |= 1 << to;
                via[to] = Some((e, at));
                open.push(to);
            }
        }
    }
    let (mut edges, mut at) = (Vec::new(), end);
    while at != start {
        let (e, before) = via[at]?;
        edges.push(e);
        at = before;
    }
    Some(edges)
}
