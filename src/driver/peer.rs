//! Peer access between two contexts.
//!
//! An edge that cannot be had is an answer, not a failure: the caller takes a variant that does without it. Start at
//! [`enable`].

use super::context::Context;
use super::{DriverError, call};

/// Whether kernels of one device can now address memory of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// They can.
    Usable,
    /// The hardware or the system does not allow it.
    NoAccess,
    /// The device has as many peers enabled as it can.
    TooManyPeers,
}

impl Edge {
    /// What to tell the caller; empty for a usable edge.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Usable => "",
            Self::NoAccess => "no peer access (check the link, ACS and IOMMU settings): use a host-staged variant",
            Self::TooManyPeers => "too many peers enabled on that device: use a schedule with fewer peers a rank",
        }
    }
}

const UNSUPPORTED: i32 = 217;
const ALREADY_ENABLED: i32 = 704;
const TOO_MANY_PEERS: i32 = 711;

/// Lets kernels of `from` address memory of `to`. Repeating it is harmless; the other direction is another edge.
///
/// # Errors
/// The driver refuses for a reason that says nothing about the edge.
pub fn enable(from: &Context, to: &Context) -> Result<Edge, DriverError> {
    if from.device().ordinal() == to.device().ordinal() {
        return Ok(Edge::Usable);
    }
    if !from.device().can_access(to.device())? {
        return Ok(Edge::NoAccess);
    }
    from.bind()?;
    let driver = from.driver;
    verdict(call!(driver.enable_peer(to.handle(), 0)))
}

fn verdict(enabled: Result<(), DriverError>) -> Result<Edge, DriverError> {
    match enabled {
        Ok(())
        | Err(DriverError {
            code: ALREADY_ENABLED, ..
        }) => Ok(Edge::Usable),
        Err(DriverError {
            code: TOO_MANY_PEERS, ..
        }) => Ok(Edge::TooManyPeers),
        Err(DriverError { code: UNSUPPORTED, .. }) => Ok(Edge::NoAccess),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codes_about_the_edge_become_edges() {
        let of = |code| {
            verdict(Err(DriverError {
                call: "cuCtxEnablePeerAccess",
                code,
            }))
        };
        assert_eq!(verdict(Ok(())), Ok(Edge::Usable));
        assert_eq!(of(704), Ok(Edge::Usable));
        assert_eq!(of(711), Ok(Edge::TooManyPeers));
        assert_eq!(of(217), Ok(Edge::NoAccess));
        assert_eq!(of(700).map_err(|e| e.code), Err(700));
    }
}
