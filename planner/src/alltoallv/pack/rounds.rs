//! Which rounds each row is taken in, as bits, and the first round in which several are free at once.
//!
//! A row is a resource, or a part of what a resource does; [`super::fans`] says which. Marks are rows that no round is found
//! by: only one word of them is looked at. It knows nothing of bytes. Start at [`Rounds::place`].

/// No round.
pub(super) const LATE: u16 = u16::MAX;

/// Words that stand together: a line of the cache.
const BLOCK: usize = 8;
const ROUNDS: usize = 64 * BLOCK;

/// Rounds of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
struct Row([u64; BLOCK]);

const FREE: Row = Row([0; BLOCK]);

/// Rounds by row: a block of all rows after the other, since most are looked for in the same few.
#[derive(Clone, Debug)]
pub(super) struct Rounds {
    busy: Vec<Row>,
    rows: usize,
    /// Rounds by mark: a word of all marks after the other.
    marks: Vec<u64>,
    many: usize,
    blocks: usize,
    /// First word of each row that is not full.
    open: Vec<u16>,
    /// Blocks in use.
    used: usize,
    /// Rows whose first word has just been filled.
    full: Vec<u16>,
}

impl Rounds {
    /// Room for so many rows and marks, and at least so many rounds, fewer than `LATE`.
    pub fn new(rows: usize, marks: usize, rounds: usize) -> Self {
        let blocks = rounds.div_ceil(ROUNDS).min(usize::from(LATE) / ROUNDS);
        Self {
            busy: vec![FREE; blocks * rows],
            rows,
            marks: vec![0; BLOCK * blocks * marks],
            many: marks,
            blocks,
            open: vec![0; rows],
            used: blocks,
            full: Vec::with_capacity(2 * crate::alltoallv::MAX_RESOURCES),
        }
    }

    /// How many rounds there are.
    pub fn count(&self) -> usize {
        ROUNDS * self.blocks
    }

    /// Nothing is taken.
    pub fn clear(&mut self) {
        self.busy[..self.used * self.rows].fill(FREE);
        self.marks[..BLOCK * self.used * self.many].fill(0);
        self.open.fill(0);
        self.used = 0;
    }

    /// Takes the first round in which all of the rows `scan` and the marks `also` are free, for all of `scan` and the marks
    /// `mark`; `LATE` if there is none.
    #[inline(always)]
    pub fn place(&mut self, scan: &[u16], also: &[u16], mark: &[u16]) -> u16 {
        let mut word = scan
            .iter()
            .fold(0, |word, &r| usize::from(self.open[usize::from(r)]).max(word));
        while word < BLOCK * self.blocks {
            let block = word / BLOCK;
            let busy = &mut self.busy[block * self.rows..(block + 1) * self.rows];
            for k in word % BLOCK..BLOCK {
                let mut taken = scan.iter().fold(0, |taken, &r| taken | busy[usize::from(r)].0[k]);
                if taken == u64::MAX {
                    continue;
                }
                let word = BLOCK * block + k;
                let marks = &mut self.marks[word * self.many..(word + 1) * self.many];
                for &m in also {
                    taken |= marks[usize::from(m)];
                }
                if taken == u64::MAX {
                    continue;
                }
                let bit = (!taken).trailing_zeros();
                for &m in mark {
                    marks[usize::from(m)] |= 1 << bit;
                }
                for &r in scan {
                    let row = &mut busy[usize::from(r)].0[k];
                    *row |= 1 << bit;
                    if *row == u64::MAX && usize::from(self.open[usize::from(r)]) == word {
                        self.full.push(r);
                    }
                }
                self.used = self.used.max(block + 1);
                if !self.full.is_empty() {
                    self.skip_full();
                }
                return (64 * word) as u16 + bit as u16;
            }
            word = BLOCK * (block + 1);
        }
        LATE
    }

    /// Moves the first word that is not full on, of rows whose first one is full now.
    #[cold]
    fn skip_full(&mut self) {
        while let Some(r) = self.full.pop() {
            let r = usize::from(r);
            let first = usize::from(self.open[r]);
            let full = |word: &usize| {
                let row = self.busy.get(word / BLOCK * self.rows + r);
                row.is_some_and(|row| row.0[word % BLOCK] == u64::MAX)
            };
            self.open[r] = (first..BLOCK * self.blocks)
                .find(|word| !full(word))
                .unwrap_or(BLOCK * self.blocks) as u16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_round_with_room_for_all_is_taken() {
        let mut rounds = Rounds::new(3, 2, 600);
        let last = rounds.count() as u16;
        assert_eq!(last, 1024);
        let all = |rounds: &mut Rounds, ids: &[u16]| rounds.place(ids, &[], &[]);
        assert_eq!(
            [&[0, 1][..], &[0, 2], &[1, 2], &[1], &[2]].map(|ids| all(&mut rounds, ids)),
            [0, 1, 2, 1, 0]
        );
        // Marked, then looked at.
        assert_eq!(rounds.place(&[0], &[0, 1], &[1]), 2);
        assert_eq!(rounds.place(&[0], &[1], &[]), 3);
        assert_eq!(rounds.place(&[1], &[1], &[0]), 3);
        for round in 4..last {
            assert_eq!(all(&mut rounds, &[1, 2]), round);
        }
        assert_eq!([all(&mut rounds, &[1]), all(&mut rounds, &[2])], [LATE, 3]);
        assert_eq!(all(&mut rounds, &[2]), LATE);
        (4..last).for_each(|round| assert_eq!(rounds.place(&[0], &[0], &[1]), round));
        assert_eq!(rounds.place(&[0], &[], &[]), LATE);
        rounds.clear();
        assert_eq!(rounds.place(&[0, 1, 2], &[0, 1], &[]), 0);
    }

    #[test]
    fn rows_that_fill_out_of_order_are_not_looked_at_again() {
        let mut rounds = Rounds::new(2, 1, 512);
        // A mark keeps row 0 out of its first word until the others are full.
        (0..64).for_each(|round| assert_eq!(rounds.place(&[1], &[], &[0]), round));
        (64..512).for_each(|round| assert_eq!(rounds.place(&[0], &[0], &[]), round));
        assert_eq!(rounds.open, [0, 1]);
        (0..64).for_each(|round| assert_eq!(rounds.place(&[0], &[], &[]), round));
        assert_eq!(rounds.open, [8, 1]);
    }
}
