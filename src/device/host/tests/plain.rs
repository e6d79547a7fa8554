//! Kernels run plainly, a thread a rank on real shared memory: warps' steps and lines among them.

use super::kit::{Case, one_shot};
use crate::device::Geometry;
use crate::device::Preparation;
use crate::device::abi::Params;
use crate::device::host::collective::Collective;
use crate::device::host::ffi::plain::run_grid;
use crate::registry::Protocol;

const DEADLINE_NS: u64 = 20_000_000_000;
/// Calls that ranks make without meeting in between.
const CALLS: usize = 4;

#[test]
fn every_protocol_sums_between_threads_on_shared_memory() {
    for protocol in Protocol::ALL {
        for ranks in [2, 3] {
            let variant = one_shot(*protocol, ranks, &[]);
            let case = Case {
                bytes: 1030,
                geometry: Geometry::new(2, 8),
                ..Case::default()
            }
            .of(*protocol);
            let preparation = Preparation {
                max_bytes: case.bytes,
                threads: case.geometry.threads,
                fault: None,
            };
            let collective = Collective::new(variant, &preparation, DEADLINE_NS, 0).unwrap();
            let expected = &case.expected(ranks as usize)[0];
            let params: Vec<Params> = collective
                .params(case.bytes, false)
                .iter()
                .map(|p| (**p).clone())
                .collect();
            for round in 0..2 {
                {
                    let arena = &mut collective.machine.borrow_mut().arena;
                    for (rank, input) in case.inputs(ranks as usize).iter().enumerate() {
                        arena.write(collective.map.ranks[rank].map.input, input);
                        arena.fill(collective.map.ranks[rank].output, case.bytes as usize, round);
                    }
                }
                let kernel = collective.kernel;
                std::thread::scope(|scope| {
                    for params in &params {
                        scope.spawn(move || {
                            let mut stacks = Vec::new();
                            for _ in 0..CALLS {
                                assert!(run_grid(kernel, params, case.geometry, &mut stacks));
                            }
                        });
                    }
                });
                let machine = collective.machine.borrow();
                for rank in 0..ranks as usize {
                    let mut got = vec![0; case.bytes as usize];
                    machine.arena.read(collective.map.ranks[rank].output, &mut got);
                    assert_eq!(&got, expected, "{protocol}, {ranks} ranks, round {round}, rank {rank}");
                    assert!(
                        !collective.aborted(rank, &machine),
                        "{protocol}: a wait ran past its deadline"
                    );
                }
            }
        }
    }
}
