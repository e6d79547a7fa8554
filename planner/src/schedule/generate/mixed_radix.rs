//! Mixed-radix exchange: one construction behind one-shot, two-shot, recursive halving and doubling and all between.
//!
//! Ranks stand on the points of a grid `f1 x f2 x .. x fs`. Stage `k` works along axis `k`: the ranks that differ in
//! coordinate `k` only are a *line*. `Replicate` sends all of a rank's live chunks to all of its line, `Scatter` sends
//! each the part that it will own. Scatter stages are undone by gather stages at the end, in reverse order.
//!
//! After stage `k` a rank's value depends on its coordinates beyond `k` only, and each line sums in the order of
//! coordinates, so that all ranks end with one expression. Start at [`build`], then `generate`.

use super::{Candidate, placement};
use crate::schedule::edges::Edges;
use crate::schedule::ir::{Delivery, Rank, Schedule, Stage, Transfer, Value, ValueId, Values};

/// What a stage does along its axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// All-reduce inside each line: everybody sends everything to everybody.
    Replicate,
    /// Reduce-scatter inside each line, gathered at the end.
    Scatter,
}

/// A grid and what to do along each of its axes, in the order of stages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape(pub Vec<(usize, Mode)>);

impl Shape {
    /// How many ranks the grid holds.
    pub fn ranks(&self) -> usize {
        self.0.iter().map(|s| s.0).product()
    }

    /// The factors, first axis first.
    pub fn factors(&self) -> Vec<usize> {
        self.0.iter().map(|s| s.0).collect()
    }

    /// `one-shot`, `two-shot`, `exchange-2x4`, `halving-2x4`, or `exchange-2s4r` where modes differ.
    pub fn name(&self) -> String {
        let all = |mode| self.0.iter().all(|s| s.1 == mode);
        let factors = || {
            self.factors()
                .iter()
                .map(usize::to_string)
                .collect::<Vec<_>>()
                .join("x")
        };
        match (self.0.len(), all(Mode::Replicate), all(Mode::Scatter)) {
            (0 | 1, true, _) => "one-shot".into(),
            (1, _, true) => "two-shot".into(),
            (_, true, _) => format!("exchange-{}", factors()),
            (_, _, true) => format!("halving-{}", factors()),
            _ => {
                let letter = |mode| if mode == Mode::Scatter { 's' } else { 'r' };
                let parts: String = self.0.iter().map(|&(f, mode)| format!("{f}{}", letter(mode))).collect();
                format!("exchange-{parts}")
            }
        }
    }
}

/// Every shape of `n` ranks, fewest stages first.
pub fn shapes(n: usize) -> Vec<Shape> {
    let mut factorisations = vec![];
    factorise(n, &mut Vec::new(), &mut factorisations);
    factorisations.sort_by_key(|f| f.len());
    let mut shapes = Vec::new();
    for factors in factorisations {
        for modes in 0..1_usize << factors.len() {
            let mode = |k: usize| {
                if modes >> k & 1 == 1 {
                    Mode::Scatter
                } else {
                    Mode::Replicate
                }
            };
            shapes.push(Shape(factors.iter().enumerate().map(|(k, &f)| (f, mode(k))).collect()));
        }
    }
    shapes
}

/// Ordered factorisations of `n` into factors of at least 2.
fn factorise(n: usize, prefix: &mut Vec<usize>, found: &mut Vec<Vec<usize>>) {
    if n == 1 && !prefix.is_empty() {
        found.push(prefix.clone());
    }
    for f in (2..=n).filter(|f| n.is_multiple_of(*f)) {
        prefix.push(f);
        factorise(n / f, prefix, found);
        prefix.pop();
    }
}

/// Positions on the grid, first coordinate fastest.
pub(super) struct Grid<'a> {
    factors: &'a [usize],
    strides: Vec<usize>,
}

impl<'a> Grid<'a> {
    pub(super) fn new(factors: &'a [usize]) -> Self {
        let strides = factors
            .iter()
            .scan(1, |stride, f| Some(std::mem::replace(stride, *stride * f)));
        Self {
            factors,
            strides: strides.collect(),
        }
    }

    pub(super) fn coordinate(&self, position: usize, axis: usize) -> usize {
        position / self.strides[axis] % self.factors[axis]
    }

    /// `position` with its coordinate on `axis` replaced.
    pub(super) fn moved(&self, position: usize, axis: usize, coordinate: usize) -> usize {
        position - self.coordinate(position, axis) * self.strides[axis] + coordinate * self.strides[axis]
    }

    /// The others on the line, the right neighbour first, so that not all ranks turn to one receiver at a time.
    pub(super) fn others(&self, position: usize, axis: usize) -> impl Iterator<Item = usize> + '_ {
        let (own, f) = (self.coordinate(position, axis), self.factors[axis]);
        (1..f).map(move |d| self.moved(position, axis, (own + d) % f))
    }
}

/// How chunks are numbered: one digit for each scattered axis.
struct Chunks<'a> {
    grid: &'a Grid<'a>,
    /// `(axis, stride)` of each scattered axis.
    digits: Vec<(usize, usize)>,
    count: usize,
}

impl<'a> Chunks<'a> {
    fn new(grid: &'a Grid<'a>, shape: &Shape) -> Self {
        let mut count = 1;
        let mut digits = Vec::new();
        for (axis, &(f, mode)) in shape.0.iter().enumerate() {
            if mode == Mode::Scatter {
                digits.push((axis, count));
                count *= f;
            }
        }
        Self { grid, digits, count }
    }

    /// The chunks whose digits agree with `position` on all scattered axes before `axis`.
    fn live(&self, position: usize, axis: usize) -> Vec<usize> {
        let mut live = vec![0];
        for &(a, stride) in &self.digits {
            let digits = if a < axis {
                let own = self.grid.coordinate(position, a);
                own..own + 1
            } else {
                0..self.grid.factors[a]
            };
            live = digits.flat_map(|d| live.iter().map(move |c| c + d * stride)).collect();
        }
        live
    }

    /// The digit of `chunk` on a scattered axis.
    fn digit(&self, chunk: usize, axis: usize) -> usize {
        let stride = self.digits.iter().find(|d| d.0 == axis).map_or(1, |d| d.1);
        chunk / stride % self.grid.factors[axis]
    }
}

/// The schedule of `shape` with `placement[position]` the rank on each point of the grid, or none where `placement` is
/// not a permutation of the shape's ranks.
pub fn build(shape: &Shape, placement: &[Rank], name: String) -> Option<Schedule> {
    let n = shape.ranks();
    let mut sorted = placement.to_vec();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..n) {
        return None;
    }
    let factors = shape.factors();
    let grid = Grid::new(&factors);
    let chunks = Chunks::new(&grid, shape);
    let mut values = Values::default();
    let mut held: Vec<ValueId> = (0..n).map(|r| values.input(r)).collect();
    held = placement.iter().map(|&r| held[r]).collect();
    let mut stages = Vec::new();
    let stage = |held: &[ValueId], sends: &dyn Fn(usize, usize) -> Vec<usize>, axis: usize| {
        let mut transfers = Vec::new();
        for position in 0..n {
            for other in grid.others(position, axis) {
                transfers.extend(sends(position, other).into_iter().map(|chunk| Transfer {
                    from: placement[position],
                    to: placement[other],
                    chunk: u32::try_from(chunk).unwrap_or(u32::MAX),
                    value: held[position],
                }));
            }
        }
        Stage { transfers }
    };
    for (axis, &(f, mode)) in shape.0.iter().enumerate() {
        let sends = |position: usize, other: usize| {
            let mut live = chunks.live(position, axis);
            if mode == Mode::Scatter {
                live.retain(|&c| chunks.digit(c, axis) == grid.coordinate(other, axis));
            }
            live
        };
        stages.push(stage(&held, &sends, axis));
        held = (0..n)
            .map(|p| {
                let line: Vec<_> = (0..f).map(|a| held[grid.moved(p, axis, a)]).collect();
                values.fold(&line)
            })
            .collect();
    }
    let mut total = *held.first()?;
    if !chunks.digits.is_empty() {
        // Owners round once and everybody, they too, keeps the rounded total.
        total = values.intern(Value::Rounded(total));
        held.fill(total);
        for &(axis, _) in chunks.digits.iter().rev() {
            stages.push(stage(&held, &|position, _| chunks.live(position, axis + 1), axis));
        }
    }
    Some(Schedule {
        name,
        ranks: n,
        chunks: u32::try_from(chunks.count).ok()?,
        delivery: Delivery::Push,
        values: values.into_vec(),
        stages,
        outputs: vec![vec![total; chunks.count]; n],
    })
}

/// At most `most` candidates: shapes in the order of their best placement's estimate take turns, so that a small budget
/// still sees every idea. One-shot comes first wherever its edges exist.
pub(super) fn generate(edges: &Edges, most: usize) -> Vec<Candidate> {
    let shapes = shapes(edges.ranks());
    let found = placement::search(edges, &shapes);
    let mut candidates = Vec::new();
    let rounds = found.iter().map(|(_, placements)| placements.len()).max().unwrap_or(0);
    for round in 0..rounds {
        for (shape, placements) in &found {
            if candidates.len() == most {
                return candidates;
            }
            let Some(placed) = placements.get(round) else { continue };
            let base = shape.name();
            let name = match placed.number {
                0 => base.clone(),
                k => format!("{base}-p{k}"),
            };
            if let Some(schedule) = build(shape, &placed.ranks, name) {
                candidates.push(Candidate { schedule, shape: base });
            }
        }
    }
    candidates
}
