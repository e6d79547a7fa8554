//! The caller's own all-gather as a bootstrap: whatever already joins the ranks, e.g. MPI or a store.
//!
//! It cannot carry descriptors and need not: those go over sockets whose names it carries. Start at [`Gather::new`].

use super::Bootstrap;
use crate::process::JoinError;
use std::time::Instant;

/// A closure that takes this rank's bytes and returns everybody's.
pub struct Gather<F> {
    rank: usize,
    world: usize,
    gather: F,
}

impl<F> Gather<F>
where
    F: FnMut(&[u8]) -> Result<Vec<Vec<u8>>, String> + Send,
{
    /// `gather` must give all ranks' bytes in the order of ranks, on every rank alike. It keeps its own deadline.
    pub const fn new(rank: usize, world: usize, gather: F) -> Self {
        Self { rank, world, gather }
    }
}

impl<F> Bootstrap for Gather<F>
where
    F: FnMut(&[u8]) -> Result<Vec<Vec<u8>>, String> + Send,
{
    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn all_gather(&mut self, mine: &[u8], _deadline: Instant) -> Result<Vec<Vec<u8>>, JoinError> {
        let all = (self.gather)(mine).map_err(|e| JoinError::Misuse {
            reason: format!("the caller's all-gather failed: {e}"),
        })?;
        let (got, world, rank) = (all.len(), self.world, self.rank);
        if got != world || all.get(rank).is_none_or(|own| own != mine) {
            let reason = format!(
                "the caller's all-gather gave {got} parts for {world} ranks, or not rank {rank}'s own in its place"
            );
            return Err(JoinError::Misuse { reason });
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gather_in_the_wrong_order_is_refused() {
        let now = Instant::now();
        let mut right = Gather::new(1, 2, |mine: &[u8]| Ok(vec![b"other".to_vec(), mine.to_vec()]));
        assert_eq!(right.all_gather(b"me", now).map(|a| a.len()), Ok(2));
        let mut wrong = Gather::new(0, 2, |mine: &[u8]| Ok(vec![b"other".to_vec(), mine.to_vec()]));
        let e = wrong.all_gather(b"me", now).map_err(|e| e.to_string());
        assert!(e.is_err_and(|e| e.contains("rank 0's own")));
        let mut broken = Gather::new(0, 2, |_: &[u8]| Err("no store".to_owned()));
        let e = broken.all_gather(b"me", now).map_err(|e| e.to_string());
        assert!(e.is_err_and(|e| e.contains("no store")));
    }
}
