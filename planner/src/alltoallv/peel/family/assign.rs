//! The best assignment of rows to columns: which rank takes which lane.
//!
//! Exact: over all sets of columns up to four of them, by shortest augmenting paths above. Start at [`Assigner::best`].

/// Columns up to which all sets of them are looked at.
const FEW: usize = 4;

/// Room for assignments.
#[derive(Clone, Debug)]
pub(super) struct Assigner {
    /// The heaviest assignment of the first rows to each set of columns, and its last column.
    sets: [(f64, u8); 1 << FEW],
    /// Of the paths, one entry more than rows and columns: prices, the row of each column, and the way back.
    row_price: Vec<f64>,
    column_price: Vec<f64>,
    row_of: Vec<usize>,
    slack: Vec<f64>,
    before: Vec<usize>,
    visited: Vec<bool>,
}

impl Assigner {
    /// Room for so many columns.
    pub fn new(columns: usize) -> Self {
        let room = columns + 1;
        Self {
            sets: [(0.0, 0); 1 << FEW],
            row_price: vec![0.0; room],
            column_price: vec![0.0; room],
            row_of: vec![0; room],
            slack: vec![0.0; room],
            before: vec![0; room],
            visited: vec![false; room],
        }
    }

    /// A column of its own for each row, with the greatest sum of weights. There are as many columns as `columns`, weights stand
    /// row by row, and there are no more rows than columns.
    pub fn best(&mut self, columns: usize, weights: &[f32], column_of: &mut [u16]) {
        if columns <= FEW {
            self.by_sets(columns, weights, column_of);
        } else {
            self.by_paths(columns, weights, column_of);
        }
    }

    fn by_sets(&mut self, columns: usize, weights: &[f32], column_of: &mut [u16]) {
        self.sets[0] = (0.0, 0);
        // A set comes after its parts.
        for set in 1..1usize << columns {
            let row = set.count_ones() as usize - 1;
            if row >= column_of.len() {
                continue;
            }
            let (mut most, mut last) = (f64::NEG_INFINITY, 0);
            for column in (0..columns).filter(|column| set >> column & 1 != 0) {
                let sum = self.sets[set & !(1 << column)].0 + f64::from(weights[row * columns + column]);
                if sum > most {
                    (most, last) = (sum, column);
                }
            }
            self.sets[set] = (most, last as u8);
        }
        let full = (0..1usize << columns).filter(|set| set.count_ones() as usize == column_of.len());
        let (mut set, mut most) = (0, f64::NEG_INFINITY);
        for candidate in full {
            if self.sets[candidate].0 > most {
                (set, most) = (candidate, self.sets[candidate].0);
            }
        }
        for column in column_of.iter_mut().rev() {
            *column = u16::from(self.sets[set].1);
            set &= !(1 << *column);
        }
    }

    /// The Hungarian method with prices: one more row at a time, by the path of least slack. Rows and columns count from 1;
    /// column 0 stands for the row that comes in.
    fn by_paths(&mut self, columns: usize, weights: &[f32], column_of: &mut [u16]) {
        self.row_price.fill(0.0);
        self.column_price.fill(0.0);
        self.row_of.fill(0);
        for row in 1..=column_of.len() {
            self.row_of[0] = row;
            self.slack.fill(f64::INFINITY);
            self.visited.fill(false);
            let mut at = 0;
            // Each turn visits one more column.
            for _ in 0..=columns {
                self.visited[at] = true;
                let from = self.row_of[at];
                if from == 0 {
                    break;
                }
                let (mut least, mut next) = (f64::INFINITY, 0);
                for column in (1..=columns).filter(|&column| !self.visited[column]) {
                    let cost = -f64::from(weights[(from - 1) * columns + column - 1]);
                    let slack = cost - self.row_price[from] - self.column_price[column];
                    if slack < self.slack[column] {
                        (self.slack[column], self.before[column]) = (slack, at);
                    }
                    if self.slack[column] < least {
                        (least, next) = (self.slack[column], column);
                    }
                }
                for column in 0..=columns {
                    if self.visited[column] {
                        self.row_price[self.row_of[column]] += least;
                        self.column_price[column] -= least;
                    } else {
                        self.slack[column] -= least;
                    }
                }
                at = next;
            }
            while at != 0 {
                let before = self.before[at];
                self.row_of[at] = self.row_of[before];
                at = before;
            }
        }
        for column in 1..=columns {
            if let Some(mine) = self.row_of[column]
                .checked_sub(1)
                .and_then(|row| column_of.get_mut(row))
            {
                *mine = (column - 1) as u16;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alltoallv::maths::Dice;

    type Way = fn(&mut Assigner, usize, &[f32], &mut [u16]);

    /// The greatest sum over all ways, one by one.
    fn by_hand(columns: usize, weights: &[f32], row: usize, used: u32) -> f64 {
        if (row + 1) * columns > weights.len() {
            return 0.0;
        }
        let free = (0..columns).filter(|column| used >> column & 1 == 0);
        free.map(|column| {
            let rest = by_hand(columns, weights, row + 1, used | 1 << column);
            f64::from(weights[row * columns + column]) + rest
        })
        .fold(f64::NEG_INFINITY, f64::max)
    }

    #[test]
    fn assignments_are_as_heavy_as_the_heaviest_of_all() {
        let mut dice = Dice::new(5);
        let mut assigner = Assigner::new(7);
        for columns in 1..=6 {
            for rows in 1..=columns {
                for round in 0..40 {
                    // Ties and zeros, and weights far apart.
                    let weight = |dice: &mut Dice| match round % 3 {
                        0 => dice.below(4) as f32,
                        1 => dice.unit() as f32,
                        _ => (1u64 << dice.below(40)) as f32,
                    };
                    let weights: Vec<f32> = (0..rows * columns).map(|_| weight(&mut dice)).collect();
                    let best = by_hand(columns, &weights, 0, 0);
                    let mut column_of = vec![0; rows];
                    let mut ways: Vec<Way> = vec![Assigner::best, Assigner::by_paths];
                    if columns <= FEW {
                        ways.push(Assigner::by_sets);
                    }
                    for way in ways {
                        way(&mut assigner, columns, &weights, &mut column_of);
                        let mut seen = column_of.clone();
                        seen.sort_unstable();
                        seen.dedup();
                        assert_eq!(seen.len(), rows, "{columns} columns: {column_of:?}");
                        let sum: f64 = (column_of.iter().enumerate())
                            .map(|(row, &column)| f64::from(weights[row * columns + usize::from(column)]))
                            .sum();
                        assert!(
                            (sum - best).abs() <= 1e-9 * best,
                            "{rows} of {columns}: {sum}, not {best}"
                        );
                    }
                }
            }
        }
    }
}
