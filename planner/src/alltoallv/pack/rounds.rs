//! Which rounds each resource is taken in, as bits, and the first round in which several are free at once.
//!
//! It knows nothing of bytes. Start at [`Rounds::place`].

/// No round.
pub(super) const LATE: u32 = u32::MAX;

/// Words that stand together: half a line of the cache.
const BLOCK: usize = 4;
const ROUNDS: usize = 64 * BLOCK;

/// Rounds of one resource, never across two lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(32))]
struct Row([u64; BLOCK]);

const FREE: Row = Row([0; BLOCK]);
const FULL: Row = Row([u64::MAX; BLOCK]);

/// Rounds by resource: a block of all resources after the other, since most are looked for in the same few.
#[derive(Clone, Debug)]
pub(super) struct Rounds {
    busy: Vec<Row>,
    resources: usize,
    blocks: usize,
    /// First block of each resource that is not full.
    open: Vec<u16>,
    /// Blocks in use.
    used: usize,
}

impl Rounds {
    /// Room for at least so many rounds.
    pub fn new(resources: usize, rounds: usize) -> Self {
        let blocks = rounds.div_ceil(ROUNDS);
        Self {
            busy: vec![FREE; blocks * resources],
            resources,
            blocks,
            open: vec![0; resources],
            used: blocks,
        }
    }

    /// How many rounds there are.
    pub fn count(&self) -> usize {
        ROUNDS * self.blocks
    }

    /// Nothing is taken.
    pub fn clear(&mut self) {
        self.busy[..self.used * self.resources].fill(FREE);
        self.open.fill(0);
        self.used = 0;
    }

    /// Takes the first round in which all of `scan` and `also` are free, for all of `take`; `LATE` if there is none.
    ///
    /// It is found by `scan`, so those that are seldom taken belong into `also`.
    #[inline]
    pub fn place(
        &mut self,
        scan: impl Iterator<Item = u16> + Clone,
        also: impl Iterator<Item = u16> + Clone,
        take: impl Iterator<Item = u16>,
    ) -> u32 {
        let begin = scan.clone().map(|r| self.open[usize::from(r)]).max().unwrap_or(0);
        for block in usize::from(begin)..self.blocks {
            let busy = &mut self.busy[block * self.resources..(block + 1) * self.resources];
            let mut taken = [0; BLOCK];
            for r in scan.clone() {
                let Row(row) = &busy[usize::from(r)];
                (0..BLOCK).for_each(|k| taken[k] |= row[k]);
            }
            for (word, mut taken) in taken.into_iter().enumerate() {
                if taken != u64::MAX {
                    also.clone().for_each(|r| taken |= busy[usize::from(r)].0[word]);
                }
                if taken == u64::MAX {
                    continue;
                }
                let bit = (!taken).trailing_zeros();
                self.used = self.used.max(block + 1);
                for r in take {
                    let row = &mut busy[usize::from(r)];
                    row.0[word] |= 1 << bit;
                    if row.0[word] == u64::MAX && *row == FULL {
                        let open = &mut self.open[usize::from(r)];
                        *open += u16::from(usize::from(*open) == block);
                    }
                }
                return (ROUNDS * block) as u32 + 64 * word as u32 + bit;
            }
        }
        LATE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(rounds: &mut Rounds, scan: &[u16], also: &[u16], take: &[u16]) -> u32 {
        rounds.place(scan.iter().copied(), also.iter().copied(), take.iter().copied())
    }

    #[test]
    fn the_first_round_with_room_for_all_is_taken() {
        let mut rounds = Rounds::new(3, 600);
        let last = rounds.count() as u32;
        assert_eq!(last, 768);
        let all = |rounds: &mut Rounds, ids: &[u16]| place(rounds, ids, &[], ids);
        assert_eq!(
            [&[0, 1][..], &[0, 2], &[1, 2], &[1], &[2]].map(|ids| all(&mut rounds, ids)),
            [0, 1, 2, 1, 0]
        );
        // Looked at, not taken; taken, not looked at.
        assert_eq!(place(&mut rounds, &[0], &[1, 2], &[]), 3);
        assert_eq!(place(&mut rounds, &[1], &[], &[1, 2]), 3);
        for round in 4..last {
            assert_eq!(all(&mut rounds, &[1, 2]), round);
        }
        assert_eq!([all(&mut rounds, &[1]), all(&mut rounds, &[0])], [LATE, 2]);
        assert_eq!(place(&mut rounds, &[0], &[2], &[]), LATE);
        rounds.clear();
        assert_eq!(all(&mut rounds, &[0, 1, 2]), 0);
    }
}
