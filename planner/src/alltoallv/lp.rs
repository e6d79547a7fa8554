//! A small linear program: spread amounts over alternatives so that the largest of many loads is least.
//!
//! Exact but for rounding, by the simplex method with upper bounds on a dense table; meant for tens of loads and
//! hundreds of alternatives. It knows nothing about machines. Start at [`Program`].

/// Least `T` with `base_r + sum_c column_cr x_c <= T` for every row, `x >= 0`, and amounts on the sums of choices.
pub(super) struct Program {
    rows: usize,
    base: Vec<f64>,
    /// Columns with the most that each may have.
    columns: Vec<(Vec<(usize, f64)>, f64)>,
    /// Columns that share one amount, with it: a row each.
    shared: Vec<(Vec<usize>, f64)>,
}

const EPSILON: f64 = 1e-9;

impl Program {
    /// Rows with their loads when nothing is chosen.
    pub fn new(base: &[f64]) -> Self {
        Self {
            rows: base.len(),
            base: base.to_vec(),
            columns: Vec::new(),
            shared: Vec::new(),
        }
    }

    /// Up to `amount` may go to these columns together.
    pub fn choice(&mut self, amount: f64, columns: impl Iterator<Item = Vec<(usize, f64)>>) {
        let begin = self.columns.len();
        self.columns.extend(columns.map(|column| (column, amount)));
        if self.columns.len() > begin + 1 {
            self.shared.push(((begin..self.columns.len()).collect(), amount));
        }
    }

    /// Size of the table that [`Program::solve`] works on.
    pub fn cells(&self) -> usize {
        (self.rows + self.shared.len()) * (self.columns.len() + self.rows + self.shared.len())
    }

    /// The rows' prices at the optimum, summing to 1; none if the method did not end.
    pub fn solve(&self) -> Option<Vec<f64>> {
        let top = (0..self.rows).max_by(|&a, &b| self.base[a].total_cmp(&self.base[b]))?;
        let scale = self.base[top];
        if scale <= 0.0 {
            return None;
        }
        // Variables: columns, then a slack for each row of either kind. T stays basic in the row of `top`, whose slack
        // begins outside the basis. Amounts are scaled to 1 a column, loads to 1 at the top.
        let (m, cols) = (self.rows + self.shared.len(), self.columns.len());
        let width = cols + m;
        let mut table = vec![0.0; m * width];
        let mut value = vec![0.0; m];
        for (value, base) in value.iter_mut().zip(&self.base) {
            *value = (self.base[top] - base) / scale;
        }
        value[top] = 1.0;
        let mut upper = vec![f64::INFINITY; width];
        for (c, (column, amount)) in self.columns.iter().enumerate() {
            upper[c] = 1.0;
            for &(r, a) in column {
                table[r * width + c] += a * amount / scale;
            }
        }
        for (s, (members, _)) in self.shared.iter().enumerate() {
            let row = self.rows + s;
            members.iter().for_each(|&c| table[row * width + c] = 1.0);
            value[row] = 1.0;
        }
        // Row r: s_r = T - base_r - A_r x. With T = base_top + A_top x + s_top this is
        // s_r + (A_r - A_top) x - s_top = base_top - base_r, and T - A_top x - s_top = base_top.
        let top_row: Vec<f64> = table[top * width..(top + 1) * width].to_vec();
        for r in (0..self.rows).filter(|&r| r != top) {
            for c in 0..cols {
                table[r * width + c] -= top_row[c];
            }
            table[r * width + cols + top] = -1.0;
            table[r * width + cols + r] = 1.0;
        }
        for c in 0..cols {
            table[top * width + c] = -top_row[c];
        }
        table[top * width + cols + top] = -1.0;
        for s in 0..self.shared.len() {
            table[(self.rows + s) * width + cols + self.rows + s] = 1.0;
        }
        // T is basic in row `top`: its row is the objective. Cost of raising a nonbasic x by 1: minus its entry.
        const T: usize = usize::MAX;
        let mut basis: Vec<usize> = (0..m).map(|r| if r == top { T } else { cols + r }).collect();
        let mut at_upper = vec![false; width];
        let mut basic = vec![false; width];
        basis.iter().filter(|&&b| b != T).for_each(|&b| basic[b] = true);
        let mut stalled = 0;
        for _ in 0..50 * (m + cols) + 1000 {
            let gain = |c: usize| {
                let entry = table[top * width + c];
                if at_upper[c] { -entry } else { entry }
            };
            let open = (0..width).filter(|&c| !basic[c] && gain(c) > EPSILON);
            let entering = if stalled > 2 * m {
                open.min()
            } else {
                open.fold(None, |best: Option<usize>, c| match best {
                    Some(b) if gain(b) >= gain(c) => Some(b),
                    _ => Some(c),
                })
            };
            let Some(c) = entering else {
                return Some(self.prices(&table[top * width..(top + 1) * width], cols));
            };
            let direction = if at_upper[c] { -1.0 } else { 1.0 };
            let mut step = upper[c];
            let mut leaving: Option<(usize, bool)> = None;
            for r in 0..m {
                let change = table[r * width + c] * direction;
                let (room, to_upper) = if change > EPSILON {
                    (value[r].max(0.0) / change, false)
                } else if change < -EPSILON && basis[r] != T && upper[basis[r]].is_finite() {
                    ((upper[basis[r]] - value[r]).max(0.0) / -change, true)
                } else {
                    continue;
                };
                let better = match leaving {
                    _ if room < step - 1e-12 => true,
                    Some((l, _)) if room <= step => {
                        // Among equals the largest pivot, or the least number when it stalls.
                        if stalled > 2 * m {
                            basis[r] < basis[l]
                        } else {
                            change.abs() > table[l * width + c].abs()
                        }
                    }
                    _ => false,
                };
                if better {
                    step = step.min(room);
                    leaving = Some((r, to_upper));
                }
            }
            stalled = if step > 1e-12 { 0 } else { stalled + 1 };
            for r in 0..m {
                value[r] -= table[r * width + c] * direction * step;
            }
            let Some((row, to_upper)) = leaving else {
                if !step.is_finite() {
                    return None;
                }
                at_upper[c] = !at_upper[c];
                continue;
            };
            if basis[row] == T {
                // The largest load would be 0.
                return None;
            }
            let out = basis[row];
            let entered = if at_upper[c] { upper[c] - step } else { step };
            at_upper[out] = to_upper;
            basic[out] = false;
            basic[c] = true;
            at_upper[c] = false;
            basis[row] = c;
            value[row] = entered;
            pivot(&mut table, width, row, c);
        }
        None
    }

    /// Reduced costs of the rows' slacks.
    fn prices(&self, objective: &[f64], cols: usize) -> Vec<f64> {
        (0..self.rows).map(|r| (-objective[cols + r]).max(0.0)).collect()
    }
}

/// Makes a column a unit vector with its 1 in `row`.
fn pivot(table: &mut [f64], width: usize, row: usize, column: usize) {
    let (before, rest) = table.split_at_mut(row * width);
    let (own, after) = rest.split_at_mut(width);
    let scale = 1.0 / own[column];
    own.iter_mut().for_each(|x| *x *= scale);
    own[column] = 1.0;
    for other in before.chunks_mut(width).chain(after.chunks_mut(width)) {
        let factor = other[column];
        if factor != 0.0 {
            other.iter_mut().zip(own.iter()).for_each(|(x, &o)| *x -= factor * o);
            other[column] = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_loads_with_one_choice_meet_in_the_middle() {
        let mut program = Program::new(&[10.0, 2.0]);
        program.choice(10.0, std::iter::once(vec![(0, -1.0), (1, 1.0)]));
        let prices = program.solve().expect("solved");
        assert!(
            (prices[0] - 0.5).abs() < 1e-9 && (prices[1] - 0.5).abs() < 1e-9,
            "{prices:?}"
        );
    }

    #[test]
    fn a_choice_that_is_used_up_leaves_the_price_where_it_was() {
        let mut program = Program::new(&[10.0, 2.0]);
        program.choice(1.0, std::iter::once(vec![(0, -1.0), (1, 1.0)]));
        assert_eq!(program.solve().expect("solved"), [1.0, 0.0]);
    }
}
