//! What `torchrun` puts into the environment, as a bootstrap. One machine only.
//!
//! It speaks to no store of torch's: the ranks meet at a socket whose name comes from the master's address, its port, the
//! run and how often it was restarted, which are the same on all ranks. Start at [`torchrun`].

use super::local::{ID_BYTES, LocalSocket};
use crate::process::JoinError;
use crate::process::wire::hash;
use std::time::Duration;

/// What the variables say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// `RANK`.
    pub rank: usize,
    /// `WORLD_SIZE`.
    pub world: usize,
    /// `LOCAL_RANK`, which GPU to take; the rank where it is not set.
    pub local_rank: usize,
    /// Where ranks meet.
    pub id: [u8; ID_BYTES],
}

impl Environment {
    /// By a look-up of a variable's value. Groups of other names meet elsewhere; a process may be in many, one after the
    /// other or at once.
    ///
    /// # Errors
    /// A variable is missing or no number, or ranks are on several machines.
    pub fn read(group: &str, value: impl Fn(&str) -> Option<String>) -> Result<Self, JoinError> {
        let misuse = |reason: String| Err(JoinError::Misuse { reason });
        let text = |name: &str| value(name).filter(|v| !v.is_empty());
        let number = |name: &str| -> Result<Option<usize>, JoinError> {
            let Some(text) = text(name) else { return Ok(None) };
            match text.trim().parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(JoinError::Misuse {
                    reason: format!("{name} is `{text}`, which is no rank or count"),
                }),
            }
        };
        let (Some(rank), Some(world)) = (number("RANK")?, number("WORLD_SIZE")?) else {
            return misuse(
                "RANK and WORLD_SIZE are not set: start with torchrun or `topoforge launch`, or give an id".to_owned(),
            );
        };
        if world == 0 || rank >= world {
            return misuse(format!("RANK is {rank} and WORLD_SIZE is {world}: ranks go from 0"));
        }
        let local = number("LOCAL_WORLD_SIZE")?.unwrap_or(world);
        let node = number("GROUP_RANK")?.unwrap_or(0);
        if local != world || node != 0 {
            return misuse(format!(
                "WORLD_SIZE is {world}, but {local} ranks are on this machine (node {node}): only one machine is served, \
                 make a group of the ranks of each"
            ));
        }
        let part = |name: &str| text(name).unwrap_or_default();
        let parts = [
            "MASTER_ADDR",
            "MASTER_PORT",
            "TORCHELASTIC_RUN_ID",
            "TORCHELASTIC_RESTART_COUNT",
        ]
        .map(part);
        if parts[1].is_empty() {
            return misuse("MASTER_PORT is not set: ranks would meet those of any other run".to_owned());
        }
        let mut id = [0; ID_BYTES];
        let words = format!("{}\0{world}\0{group}", parts.join("\0"));
        for (index, eight) in id.chunks_exact_mut(8).enumerate() {
            eight.copy_from_slice(&hash(format!("{index}\0{words}").as_bytes()).to_le_bytes());
        }
        Ok(Self {
            rank,
            world,
            local_rank: number("LOCAL_RANK")?.unwrap_or(rank),
            id,
        })
    }
}

/// Joins the ranks of this `torchrun`, waiting for them at most so long. Groups that are made at the same time need
/// different names.
///
/// # Errors
/// The environment is incomplete or of several machines, or ranks are missing: they are named.
pub fn torchrun(group: &str, patience: Duration) -> Result<LocalSocket, JoinError> {
    let here = Environment::read(group, |name| std::env::var(name).ok())?;
    LocalSocket::join(&here.id, here.rank, here.world, patience)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<Environment, String> {
        let value = |name: &str| set.iter().rev().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Environment::read("", value).map_err(|e| e.to_string())
    }

    const SET: &[(&str, &str)] = &[
        ("RANK", "1"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "4"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "29500"),
    ];

    fn with(name: &'static str, value: &'static str) -> Vec<(&'static str, &'static str)> {
        SET.iter().copied().chain([(name, value)]).collect()
    }

    #[test]
    fn ranks_of_one_run_meet_and_those_of_others_do_not() {
        let id = |set: &[(&str, &str)]| read(set).map(|e| e.id).expect("complete");
        assert_eq!(id(SET), id(&with("RANK", "2")));
        for other in [
            with("MASTER_PORT", "29501"),
            with("MASTER_ADDR", "localhost"),
            with("TORCHELASTIC_RUN_ID", "7"),
            with("TORCHELASTIC_RESTART_COUNT", "1"),
        ] {
            assert_ne!(id(SET), id(&other), "{other:?}");
        }
        let named = Environment::read("tp", |n| SET.iter().find(|s| s.0 == n).map(|s| s.1.to_owned()));
        assert!(named.is_ok_and(|e| e.id != id(SET)));
    }

    #[test]
    fn several_machines_are_refused_clearly() {
        for set in [with("LOCAL_WORLD_SIZE", "2"), with("GROUP_RANK", "1")] {
            assert!(read(&set).is_err_and(|e| e.contains("only one machine")));
        }
    }

    #[test]
    fn what_is_missing_or_no_number_is_named() {
        assert!(read(&[]).is_err_and(|e| e.contains("RANK and WORLD_SIZE")));
        assert!(read(&with("RANK", "one")).is_err_and(|e| e.contains("`one`")));
        assert!(read(&with("RANK", "4")).is_err_and(|e| e.contains("from 0")));
        assert!(read(&with("MASTER_PORT", "")).is_err_and(|e| e.contains("MASTER_PORT")));
    }
}
