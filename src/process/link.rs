//! Going step by step: every rank runs the same program, and each step's outcome is the same on all of them.
//!
//! A step carries a rank's result to everybody. If any rank failed, all ranks get the same error, so they go on alike: a
//! variant that cannot be prepared on one rank is left out on all. Ranks whose steps differ are told so. Start at
//! [`Steps::agree`].

use super::mesh::Mesh;
use super::wire::{Reader, Writer};
use super::{JoinError, Seen};
use crate::device::DeviceError;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// What a step brought: everybody's bytes and descriptors.
pub type Shown = Vec<(Vec<u8>, Vec<OwnedFd>)>;

/// The steps of one group of ranks.
pub struct Steps {
    /// None for a rank that is alone.
    mesh: Option<Mesh>,
    /// The last step's outcome was an error, which all ranks have.
    agreed: bool,
}

impl Steps {
    /// Over a mesh.
    pub const fn new(mesh: Mesh) -> Self {
        Self {
            mesh: Some(mesh),
            agreed: false,
        }
    }

    /// Of a single rank.
    pub const fn alone() -> Self {
        Self {
            mesh: None,
            agreed: false,
        }
    }

    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.mesh.as_ref().map_or(0, Mesh::rank)
    }

    /// How many ranks there are.
    pub fn world(&self) -> usize {
        self.mesh.as_ref().map_or(1, Mesh::world)
    }

    /// The mesh, where there is one.
    pub fn mesh(&self) -> Option<&Mesh> {
        self.mesh.as_ref()
    }

    /// The mesh, to renumber it.
    pub fn mesh_mut(&mut self) -> Option<&mut Mesh> {
        self.mesh.as_mut()
    }

    /// What was seen of the peers' processes.
    pub fn seen(&self) -> Arc<Seen> {
        self.mesh.as_ref().map(Mesh::seen).unwrap_or_default()
    }

    /// A whole operation: `work` may take steps of its own. Its error becomes everybody's.
    ///
    /// # Errors
    /// Any rank's, on all ranks.
    pub fn finish<T>(&mut self, what: &str, outcome: Result<T, DeviceError>) -> Result<T, DeviceError> {
        match outcome {
            Ok(value) => self.agree(what, Ok(Vec::new())).map(|_| value),
            // All ranks have it already and stopped there.
            Err(error) if std::mem::take(&mut self.agreed) => Err(error),
            Err(error) => match self.agree(what, Err(error)) {
                Err(error) => {
                    self.agreed = false;
                    Err(error)
                }
                Ok(_) => Err(DeviceError::Poisoned),
            },
        }
    }

    /// Everybody's bytes, in the order of ranks.
    ///
    /// # Errors
    /// Any rank's, on all ranks.
    pub fn agree(&mut self, what: &str, mine: Result<Vec<u8>, DeviceError>) -> Result<Vec<Vec<u8>>, DeviceError> {
        let shown = self.exchange(what, mine, &[])?;
        Ok(shown.into_iter().map(|(bytes, _)| bytes).collect())
    }

    /// Everybody's bytes and descriptors; none of its own.
    ///
    /// # Errors
    /// Any rank's, on all ranks.
    pub fn exchange(
        &mut self,
        what: &str,
        mine: Result<Vec<u8>, DeviceError>,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Shown, DeviceError> {
        self.agreed = false;
        let Some(mesh) = &mut self.mesh else {
            return mine.map(|bytes| vec![(bytes, Vec::new())]);
        };
        let message = match &mine {
            Ok(bytes) => Writer::default().text(what).u8(0).bytes(bytes).done(),
            Err(error) => Writer::default().text(what).u8(1).bytes(&encode(error)).done(),
        };
        let outcome = mesh
            .exchange(&message, fds)
            .map_err(|e| lost(&e))
            .and_then(|all| judge(all.bytes, all.fds, |rank| mesh.name(rank)));
        self.agreed = outcome.is_err();
        outcome
    }
}

/// The same on every rank: it sees the same messages.
fn judge(all: Vec<Vec<u8>>, fds: Vec<Vec<OwnedFd>>, name: impl Fn(usize) -> usize) -> Result<Shown, DeviceError> {
    let mut parts = Vec::new();
    for (rank, message) in all.iter().enumerate() {
        let mut r = Reader::new(message);
        let read = (|| Some((r.text()?, r.u8()?, r.bytes()?.to_vec())))();
        let part = read.ok_or_else(|| DeviceError::Unavailable {
            reason: format!("rank {} says what cannot be read: is it another version?", name(rank)),
        })?;
        parts.push(part);
    }
    let errors = || parts.iter().enumerate().filter(|(_, p)| p.1 != 0);
    let decoded = errors().map(|(rank, (_, _, bytes))| decode(name(rank), bytes));
    // A timeout says more than what came of it elsewhere.
    let error = decoded.min_by_key(|e| match e {
        DeviceError::Lost { .. } => 0,
        DeviceError::Timeout { .. } => 1,
        DeviceError::Poisoned => 3,
        _ => 2,
    });
    if let Some(error) = error {
        return Err(error);
    }
    if let Some((rank, (other, ..))) = parts.iter().enumerate().find(|(_, p)| p.0 != parts[0].0) {
        let (first, rank) = (name(0), name(rank));
        let reason = format!(
            "rank {first} is at `{}`, rank {rank} at `{other}`: all ranks must run the same program with the same options",
            parts[0].0
        );
        return Err(DeviceError::Misuse { reason });
    }
    Ok(parts.into_iter().map(|(_, _, bytes)| bytes).zip(fds).collect())
}

/// What a broken mesh means to whoever works on a device.
pub fn lost(error: &JoinError) -> DeviceError {
    DeviceError::Lost {
        rank: error.rank(),
        reason: error.to_string(),
    }
}

fn encode(error: &DeviceError) -> Vec<u8> {
    let number = |n: Option<usize>| n.map_or(u32::MAX, |n| n as u32);
    let mut w = Writer::default();
    match error {
        DeviceError::Timeout {
            rank,
            peer,
            stage,
            column,
        } => w.u8(0).u32(*rank as u32).u32(number(*peer)).u32(*stage).u32(*column),
        DeviceError::Poisoned => w.u8(1),
        DeviceError::Lost { rank, reason } => w.u8(2).u32(number(*rank)).text(reason),
        DeviceError::Unavailable { reason } => w.u8(3).text(reason),
        DeviceError::KernelFault { reason } => w.u8(4).text(reason),
        DeviceError::Misuse { reason } => w.u8(5).text(reason),
        DeviceError::Driver { .. } => w.u8(6).text(&error.to_string()),
    };
    w.done()
}

fn decode(rank: usize, bytes: &[u8]) -> DeviceError {
    let number = |n: u32| (n != u32::MAX).then_some(n as usize);
    let read = || {
        let mut r = Reader::new(bytes);
        let said = |text: String| format!("rank {rank}: {text}");
        Some(match r.u8()? {
            0 => DeviceError::Timeout {
                rank: r.u32()? as usize,
                peer: number(r.u32()?),
                stage: r.u32()?,
                column: r.u32()?,
            },
            1 => DeviceError::Poisoned,
            2 => DeviceError::Lost {
                rank: number(r.u32()?),
                reason: r.text()?,
            },
            4 => DeviceError::KernelFault {
                reason: said(r.text()?),
            },
            5 => DeviceError::Misuse {
                reason: said(r.text()?),
            },
            _ => DeviceError::Unavailable {
                reason: said(r.text()?),
            },
        })
    };
    read().unwrap_or_else(|| DeviceError::Unavailable {
        reason: format!("rank {rank} failed in a way that cannot be read: is it another version?"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(what: &str, outcome: Result<&[u8], DeviceError>) -> Vec<u8> {
        match outcome {
            Ok(bytes) => Writer::default().text(what).u8(0).bytes(bytes).done(),
            Err(e) => Writer::default().text(what).u8(1).bytes(&encode(&e)).done(),
        }
    }

    fn judged(parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, DeviceError> {
        let fds = parts.iter().map(|_| Vec::new()).collect();
        judge(parts, fds, |r| r + 10).map(|s| s.into_iter().map(|(b, _)| b).collect())
    }

    #[test]
    fn one_ranks_error_is_everybodys_and_says_whose() {
        let bad = DeviceError::Unavailable {
            reason: "no memory".into(),
        };
        let e = judged(vec![part("a", Ok(b"")), part("b", Err(bad))]);
        assert_eq!(
            e,
            Err(DeviceError::Unavailable {
                reason: "rank 11: no memory".into()
            })
        );
        let timeout = DeviceError::Timeout {
            rank: 0,
            peer: Some(2),
            stage: 1,
            column: 7,
        };
        let e = judged(vec![
            part("a", Err(DeviceError::Poisoned)),
            part("a", Err(timeout.clone())),
        ]);
        assert_eq!(e, Err(timeout));
    }

    #[test]
    fn ranks_at_different_steps_are_told_so() {
        let e = judged(vec![part("timing x", Ok(b"")), part("proving y", Ok(b""))]);
        let text = e.map_err(|e| e.to_string()).err().unwrap_or_default();
        assert!(
            text.contains("rank 10 is at `timing x`, rank 11 at `proving y`"),
            "{text}"
        );
        assert_eq!(
            judged(vec![part("x", Ok(b"1")), part("x", Ok(b"2"))]),
            Ok(vec![vec![1 + 48], vec![2 + 48]])
        );
    }

    #[test]
    fn an_error_inside_an_operation_is_agreed_once() {
        let mut steps = Steps::alone();
        let inner = steps.agree("inner", Err(DeviceError::Poisoned));
        assert_eq!(inner, Err(DeviceError::Poisoned));
        steps.agreed = true;
        let outer: Result<(), _> = steps.finish("outer", Err(DeviceError::Poisoned));
        assert_eq!((outer, steps.agreed), (Err(DeviceError::Poisoned), false));
        assert_eq!(steps.finish("outer", Ok(5)), Ok(5));
    }
}
