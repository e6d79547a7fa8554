//! Steps that a warp takes together: votes, words handed over, and 128-byte lines that are stored and loaded whole.
//!
//! Says what a step does with what 32 threads bring; who waits and what peers see is the caller's. Mirrors the steps of
//! kernels/warp.cuh: change both together. Start at [`Step::of`].

use crate::device::abi::WARP;

/// Threads of a warp.
pub(super) const THREADS: usize = WARP as usize;
/// Threads that store or load a line.
pub(super) const OCTET: usize = 8;
/// Bytes that a thread has of a line.
pub(super) const CELL: usize = 16;

/// What a warp does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The OR of everybody's first word.
    Any,
    /// What the thread eight below brought.
    FromBelow,
    /// What the thread eight above brought.
    FromAbove,
    /// Each eight threads store a line.
    StoreLine,
    /// Each eight threads load a line.
    LoadLine,
}

impl Step {
    /// The step of a number in kernels/warp.cuh.
    pub(super) fn of(code: u32) -> Option<Self> {
        let all = [
            Self::Any,
            Self::FromBelow,
            Self::FromAbove,
            Self::StoreLine,
            Self::LoadLine,
        ];
        all.get(code as usize).copied()
    }

    pub(super) fn is_line(self) -> bool {
        matches!(self, Self::StoreLine | Self::LoadLine)
    }
}

/// What threads have after a step that touches no memory.
pub(super) fn exchange(step: Step, values: &mut [[u8; CELL]; THREADS]) {
    let old = *values;
    match step {
        Step::Any => {
            let vote = old.iter().any(|v| v[..4] != [0; 4]);
            for value in values {
                *value = [0; CELL];
                value[0] = u8::from(vote);
            }
        }
        Step::FromBelow => values[OCTET..].copy_from_slice(&old[..THREADS - OCTET]),
        Step::FromAbove => values[..THREADS - OCTET].copy_from_slice(&old[OCTET..]),
        Step::StoreLine | Step::LoadLine => {}
    }
}

/// Whether eight addresses are the cells of one aligned line, in order. `at` counts from a multiple of a line.
pub(super) fn is_line(at: &[usize]) -> bool {
    let line = OCTET * CELL;
    at.first().is_some_and(|first| first % line == 0) && at.windows(2).all(|w| w[1] == w[0] + CELL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_move_what_the_device_moves() {
        let numbered = || std::array::from_fn(|i| [i as u8; CELL]);
        let mut values = numbered();
        exchange(Step::FromBelow, &mut values);
        assert_eq!((values[7][0], values[15][0], values[31][0]), (7, 7, 23));
        let mut values = numbered();
        exchange(Step::FromAbove, &mut values);
        assert_eq!((values[7][0], values[15][0], values[31][0]), (15, 23, 31));
        let mut values = [[0; CELL]; THREADS];
        exchange(Step::Any, &mut values);
        assert_eq!(values[3][0], 0);
        values[9][0] = 1;
        exchange(Step::Any, &mut values);
        assert!(values.iter().all(|v| v[0] == 1));
    }

    #[test]
    fn a_line_is_eight_cells_in_order_from_a_multiple_of_128() {
        let cells = |first: usize| -> Vec<usize> { (0..OCTET).map(|i| first + CELL * i).collect() };
        assert!(is_line(&cells(256)));
        assert!(!is_line(&cells(272)), "not aligned");
        let mut swapped = cells(0);
        swapped.swap(2, 3);
        assert!(!is_line(&swapped));
    }
}
