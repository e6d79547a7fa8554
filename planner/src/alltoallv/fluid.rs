//! The plan of a machine whose links all share without loss: everything at once.
//!
//! Rounds would only add overhead there. Where a pair has several paths its bytes follow the path plan. Start at [`all`].

use super::net::Net;
use super::plan::{ALIGN, Chunk, Plan};

/// Appends one activation with every lane.
pub(super) fn all(net: &Net, bytes: &[u64], share: &[f32], plan: &mut Plan) {
    for (pair, &amount) in bytes.iter().enumerate().filter(|(_, amount)| **amount > 0) {
        let lanes = net.lanes(pair);
        let mut offset = 0;
        for lane in lanes.clone() {
            // The last path takes what rounding leaves.
            let left = amount - offset;
            let part = if lane + 1 == lanes.end {
                left
            } else {
                (share[lane] as u64).next_multiple_of(ALIGN).min(left)
            };
            if part > 0 {
                plan.lanes.push(Chunk {
                    from: (pair / net.ranks) as u16,
                    to: (pair % net.ranks) as u16,
                    path: (lane - lanes.start) as u16,
                    turn: 0,
                    offset,
                    bytes: part,
                });
                offset += part;
            }
        }
    }
    plan.end();
}
