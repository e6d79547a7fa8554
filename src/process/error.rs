//! How joining processes can fail, and which rank is at fault.
//!
//! Travels between ranks, so that everybody names the same one. Start at [`JoinError`].

use super::wire::{Reader, Writer};
use std::fmt;
use std::time::Duration;

/// Why ranks could not join, or stopped being joined.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JoinError {
    /// Ranks did not come, or did not answer, until the deadline.
    Missing {
        /// Which ones, ascending.
        ranks: Vec<usize>,
        /// How long was waited.
        after: Duration,
        /// What they were waited for, and whom was turned away meanwhile.
        doing: String,
    },
    /// A rank's process is gone.
    Lost {
        /// Which one.
        rank: usize,
        /// What was going on.
        doing: String,
    },
    /// A rank met an error of its own and said so.
    GaveUp {
        /// Which one.
        rank: usize,
        /// Its words.
        reason: String,
    },
    /// Ranks do not belong together, or somebody was turned away.
    Refused {
        /// Who, and why.
        reason: String,
    },
    /// The caller or the environment says something that cannot be.
    Misuse {
        /// What, and what would do.
        reason: String,
    },
    /// The operating system refused.
    System {
        /// What was being done.
        doing: String,
        /// Its words.
        error: String,
    },
}

impl JoinError {
    /// The rank that is missing, gone or gave up, if it is one.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Self::Missing { ranks, .. } => ranks.first().copied(),
            Self::Lost { rank, .. } | Self::GaveUp { rank, .. } => Some(*rank),
            _ => None,
        }
    }

    pub(crate) fn system(doing: &str, error: &std::io::Error) -> Self {
        Self::System {
            doing: doing.to_owned(),
            error: error.to_string(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        match self {
            Self::Missing { ranks, after, doing } => {
                w.u8(0).u32(ranks.len() as u32);
                for rank in ranks {
                    w.u32(*rank as u32);
                }
                w.u64(after.as_millis() as u64).text(doing);
            }
            Self::Lost { rank, doing } => {
                w.u8(1).u32(*rank as u32).text(doing);
            }
            Self::GaveUp { rank, reason } => {
                w.u8(2).u32(*rank as u32).text(reason);
            }
            Self::Refused { reason } => {
                w.u8(3).text(reason);
            }
            Self::Misuse { reason } => {
                w.u8(4).text(reason);
            }
            Self::System { doing, error } => {
                w.u8(5).text(doing).text(error);
            }
        }
        w.done()
    }

    /// What `rank` sent; its own faults come back as [`JoinError::GaveUp`].
    pub(crate) fn decode(rank: usize, bytes: &[u8]) -> Self {
        let read = || {
            let mut r = Reader::new(bytes);
            Some(match r.u8()? {
                0 => {
                    let count = r.u32()? as usize;
                    let ranks = (0..count).map(|_| r.u32().map(|x| x as usize)).collect::<Option<_>>()?;
                    let after = Duration::from_millis(r.u64()?);
                    let doing = r.text()?;
                    Self::Missing { ranks, after, doing }
                }
                1 => Self::Lost {
                    rank: r.u32()? as usize,
                    doing: r.text()?,
                },
                2 => Self::GaveUp {
                    rank: r.u32()? as usize,
                    reason: r.text()?,
                },
                3 => Self::Refused { reason: r.text()? },
                4 => Self::GaveUp {
                    rank,
                    reason: r.text()?,
                },
                5 => {
                    let (doing, error) = (r.text()?, r.text()?);
                    let reason = Self::System { doing, error }.to_string();
                    Self::GaveUp { rank, reason }
                }
                _ => return None,
            })
        };
        read().unwrap_or_else(|| Self::GaveUp {
            rank,
            reason: "it said something that cannot be read: is it another version?".to_owned(),
        })
    }
}

fn list(ranks: &[usize]) -> String {
    let names: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}", names.join(", "))
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { ranks, after, doing } => {
                write!(
                    f,
                    "{} did not come within {:.1} s ({doing})",
                    list(ranks),
                    after.as_secs_f64()
                )
            }
            Self::Lost { rank, doing } => write!(f, "rank {rank} is gone: its process ended ({doing})"),
            Self::GaveUp { rank, reason } => write!(f, "rank {rank} gave up: {reason}"),
            Self::Refused { reason } | Self::Misuse { reason } => f.write_str(reason),
            Self::System { doing, error } => write!(f, "{doing}: {error}"),
        }
    }
}

impl std::error::Error for JoinError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_the_rank_they_name_on_their_way() {
        let missing = JoinError::Missing {
            ranks: vec![1, 3],
            after: Duration::from_millis(1500),
            doing: "joining".into(),
        };
        assert_eq!(JoinError::decode(2, &missing.encode()), missing);
        assert_eq!(missing.to_string(), "ranks 1, 3 did not come within 1.5 s (joining)");
        let lost = JoinError::Lost {
            rank: 1,
            doing: "serving".into(),
        };
        assert_eq!(JoinError::decode(0, &lost.encode()), lost);
        let own = JoinError::Misuse { reason: "bad".into() };
        let heard = JoinError::decode(4, &own.encode());
        assert_eq!(
            (heard.rank(), heard.to_string()),
            (Some(4), "rank 4 gave up: bad".into())
        );
        for cut in 0..missing.encode().len() {
            assert_eq!(JoinError::decode(5, &missing.encode()[..cut]).rank(), Some(5), "{cut}");
        }
    }
}
