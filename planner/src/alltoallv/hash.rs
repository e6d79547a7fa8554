//! The plan's 64-bit name: equal on all ranks that made the same plan.
//!
//! Not for secrets: it finds ranks that differ, by accident. Start at [`of`].

use super::plan::{Chunk, Plan};

/// Every lane of every activation, in order.
pub(super) fn of(plan: &Plan) -> u64 {
    let mut state = mix(0x746f_706f_666f_7267, plan.len() as u64);
    for lanes in plan.activations() {
        state = mix(state, lanes.len() as u64);
        for lane in lanes {
            state = step(state, lane);
        }
    }
    state
}

fn step(state: u64, lane: &Chunk) -> u64 {
    let ends =
        u64::from(lane.from) | u64::from(lane.to) << 16 | u64::from(lane.path) << 32 | u64::from(lane.turn) << 48;
    mix(mix(mix(state, ends), lane.offset), lane.bytes)
}

/// One word more: multiplied wide and folded, as in wyhash.
fn mix(state: u64, word: u64) -> u64 {
    let wide = u128::from(state ^ 0x9e37_79b9_7f4a_7c15) * u128::from(word ^ 0xd1b5_4a32_d192_ed03 | 1);
    (wide as u64 ^ (wide >> 64) as u64).wrapping_add(state.rotate_left(23)) ^ word
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_field_of_every_lane_and_every_end_counts() {
        let lane = Chunk {
            from: 1,
            to: 2,
            path: 3,
            turn: 4,
            offset: 32,
            bytes: 16,
        };
        let plan = Plan {
            lanes: vec![lane; 4],
            ends: vec![1, 4],
        };
        let fields: [fn(&mut Chunk); 6] = [
            |lane| lane.from += 1,
            |lane| lane.to += 1,
            |lane| lane.path += 1,
            |lane| lane.turn += 1,
            |lane| lane.offset += 16,
            |lane| lane.bytes += 16,
        ];
        let mut seen = BTreeSet::from([of(&plan)]);
        for (field, change) in fields.into_iter().enumerate() {
            for at in 0..plan.lanes.len() {
                let mut other = plan.clone();
                change(&mut other.lanes[at]);
                assert!(seen.insert(of(&other)), "field {field} of lane {at}");
            }
        }
        for ends in [vec![4], vec![2, 4], vec![3, 4], vec![1, 2, 4]] {
            let other = Plan { ends, ..plan.clone() };
            assert!(seen.insert(of(&other)), "{:?}", other.ends);
        }
    }
}
