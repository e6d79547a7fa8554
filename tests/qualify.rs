//! Chains against the exact reference: right variants pass, each mistake is refused with its reason.

#[path = "qualify_support/fake.rs"]
mod fake;

use fake::{Fake, Wrong, leak, left_fold, variant};
use topoforge::device::{Comparator, DeviceError, Fault, Geometry, NcclSetting};
use topoforge::qualify::reference::BadExpression;
use topoforge::qualify::{Outcome, QualifyPlan, Reason, controls, qualify, qualify_comparator};
use topoforge::registry::{Element, Partials, Variant};

const F16: &[Partials] = &[Partials::F16];
const F32: &[Partials] = &[Partials::F32];
const BOTH: &[Partials] = &[Partials::F16, Partials::F32];

fn pair() -> &'static Variant {
    leak(variant("pair/packet/f16", BOTH, left_fold(0..2), &[]))
}

fn quad() -> &'static Variant {
    leak(variant("quad/packet/f16", F16, left_fold(0..4), &[]))
}

fn refused(variant: &'static Variant, wrong: Wrong) -> Reason {
    let mut exec = Fake::new(variant.ranks.len());
    exec.wrong.insert(variant.name, wrong);
    let refusal = qualify(&mut exec, variant, &QualifyPlan::quick()).expect_err("a mistake");
    assert!(exec.live.is_empty(), "everything is released");
    refusal.reason
}

#[test]
fn right_variants_pass_and_the_proof_counts() {
    let tree = "((x0+x1)+(x2+x3))".to_owned();
    let rounded = "(r((x0+x1))+r((x2+x3)))".to_owned();
    for v in [
        leak(variant("pair/packet/f16", BOTH, left_fold(0..2), &[])),
        leak(variant("one-shot/flag/f16", F16, left_fold(0..8), &[])),
        leak(variant("tree/pull/f32", F32, tree, &[])),
        leak(variant("rounded/packet/f32", F32, rounded, &[])),
    ] {
        let mut exec = Fake::new(v.ranks.len());
        let proof = qualify(&mut exec, v, &QualifyPlan::quick()).unwrap_or_else(|r| panic!("{r}"));
        assert_eq!(proof.chains as usize, exec.ran.len());
        assert!(
            proof.chains >= 18 && proof.calls > 50 && proof.words > 10_000,
            "{proof:?}"
        );
        assert!(proof.finite_share > 0.7 && proof.finite_share < 1.0, "{proof:?}");
        assert!(exec.live.is_empty());
    }
}

#[test]
fn expressions_that_differ_by_rank_and_chunk_are_followed() {
    let mut v = variant("split/packet/f16", F16, left_fold(0..3), &[]);
    v.chunks = 3;
    v.expressions = &["((x0+x1)+x2)", "((x1+x2)+x0)", "((x2+x0)+x1)"];
    v.expression_of = &[0, 1, 2, 1, 2, 0, 2, 0, 1];
    assert!(!v.replicated());
    let v = leak(v);
    let mut exec = Fake::new(3);
    assert!(qualify(&mut exec, v, &QualifyPlan::quick()).is_ok());
    exec.wrong.insert(v.name, Wrong::Order);
    assert!(qualify(&mut exec, v, &QualifyPlan::quick()).is_err());
}

#[test]
fn a_chunk_boundary_in_the_wrong_place_is_refused() {
    // Declared with two chunks, computed with four: the same expressions in other places.
    let mut v = variant("split/packet/f16", F16, left_fold(0..3), &[]);
    (v.chunks, v.expressions) = (2, &["((x0+x1)+x2)", "(x0+(x1+x2))"]);
    v.expression_of = &[0, 1, 0, 1, 0, 1];
    let declared = leak(v);
    let mut v = variant("split/packet/f16", F16, left_fold(0..3), &[]);
    (v.chunks, v.expressions) = (4, declared.expressions);
    v.expression_of = &[0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1];
    let mut exec = Swapped {
        inner: Fake::new(3),
        runs: leak(v),
    };
    assert!(matches!(
        qualify(&mut exec, declared, &QualifyPlan::quick()).map_err(|r| r.reason),
        Err(Reason::WrongBits { .. })
    ));
}

#[test]
fn every_mistake_is_refused() {
    for wrong in [
        Wrong::Dropped { from: 3, to: 2 },
        Wrong::Stale,
        Wrong::Bit {
            call: 2,
            rank: 1,
            element: 0,
        },
        Wrong::Order,
        Wrong::Flush,
        Wrong::PlusZero,
        Wrong::Tail,
        Wrong::Shrunk,
        Wrong::Replay,
        Wrong::InPlace,
    ] {
        let reason = refused(quad(), wrong);
        assert!(matches!(reason, Reason::WrongBits { .. }), "{wrong:?}: {reason}");
    }
    let wide = leak(variant("quad/packet/f32", F32, left_fold(0..4), &[]));
    assert!(matches!(refused(wide, Wrong::Narrow), Reason::WrongBits { .. }));
    assert!(matches!(refused(quad(), Wrong::Short), Reason::Shape { .. }));
    assert!(matches!(
        refused(quad(), Wrong::Hangs),
        Reason::Timeout {
            error: DeviceError::Timeout { rank: 0, .. },
            ..
        }
    ));
}

#[test]
fn a_single_wrong_bit_is_named_with_its_place() {
    let Reason::WrongBits {
        chain,
        call,
        rank,
        element,
        expected,
        got,
        count,
    } = refused(
        pair(),
        Wrong::Bit {
            call: 1,
            rank: 1,
            element: 77,
        },
    )
    else {
        panic!("another reason")
    };
    assert_eq!((chain.index, call, rank, element, count), (0, 1, 1, 77, 1));
    assert_eq!(expected.bits ^ got.bits, 1);
}

#[test]
fn a_refusal_reads_like_a_sentence() {
    let mut exec = Fake::new(2);
    exec.wrong.insert(
        "pair/packet/f16",
        Wrong::Bit {
            call: 1,
            rank: 1,
            element: 77,
        },
    );
    let text = qualify(&mut exec, pair(), &QualifyPlan::quick())
        .expect_err("a mistake")
        .to_string();
    for part in [
        "pair/packet/f16: wrong bits on rank 1: element 77 of call 1 is 0x",
        "chain 0 (1030 bytes of f16, 2x32",
    ] {
        assert!(text.contains(part), "{text}");
    }
    exec.wrong.insert("pair/packet/f16", Wrong::Hangs);
    let text = qualify(&mut exec, pair(), &QualifyPlan::quick())
        .expect_err("a mistake")
        .to_string();
    assert!(text.contains("rank 0 waited past the deadline for rank 1"), "{text}");
}

#[test]
fn what_proves_nothing_is_no_proof() {
    let plan = QualifyPlan {
        payloads: Vec::new(),
        ..QualifyPlan::quick()
    };
    let result = qualify(&mut Fake::new(2), pair(), &plan).map_err(|r| r.reason);
    assert_eq!(result.map(|_| ()), Err(Reason::EmptyPlan));

    let mut v = variant("twice/packet/f16", F16, left_fold(0..2), &[]);
    v.expressions = &["(x0+x0)"];
    let result = qualify(&mut Fake::new(2), leak(v), &QualifyPlan::quick()).map_err(|r| r.reason);
    assert!(matches!(
        result,
        Err(Reason::BadExpression(BadExpression::Contributions { .. }))
    ));

    let mut v = variant("none/packet/f16", F16, left_fold(0..2), &[]);
    v.partials = &[];
    let result = qualify(&mut Fake::new(2), leak(v), &QualifyPlan::quick()).map_err(|r| r.reason);
    assert!(
        matches!(result, Err(Reason::BadExpression(BadExpression::NoPartials))),
        "{result:?}"
    );

    let result = qualify(&mut Fake::new(3), pair(), &QualifyPlan::quick()).map_err(|r| r.reason);
    assert!(matches!(result, Err(Reason::Device(DeviceError::Misuse { .. }))));
}

#[test]
fn one_prepared_collective_sees_payloads_shrink_and_grow() {
    let mut exec = Fake::new(2);
    qualify(&mut exec, pair(), &QualifyPlan::quick()).expect("right");
    let sizes: Vec<u64> = exec.ran.iter().filter(|r| r.2.threads == 32).map(|r| r.1).collect();
    assert!(sizes.windows(2).any(|w| w[0] < w[1]) && sizes.windows(2).any(|w| w[0] > w[1]));
    for tail in [2, 14, 16, 18, 1030] {
        assert!(sizes.contains(&tail), "{tail}");
    }
}

#[test]
fn grids_never_exceed_what_the_device_holds() {
    let mut exec = Fake::new(2);
    exec.max_blocks = 1;
    qualify(
        &mut exec,
        pair(),
        &QualifyPlan::quick().covering(&[(4096, Geometry::new(64, 64))]),
    )
    .expect("right");
    assert!(exec.ran.iter().all(|r| r.2.blocks == 1) && exec.ran.iter().any(|r| r.1 == 4096));
}

#[test]
fn controls_tell_caught_from_missed() {
    let mut exec = Fake::new(2);
    let outcomes = controls(&mut exec, pair(), &QualifyPlan::quick());
    let of = |fault| outcomes.iter().find(|c| c.fault == fault).map(|c| &c.outcome);
    assert_eq!(outcomes.len(), 4);
    assert!(matches!(
        of(Fault::DroppedContribution),
        Some(Outcome::Caught {
            how: Reason::WrongBits { .. },
            ..
        })
    ));
    assert!(of(Fault::StaleHalf).is_some_and(Outcome::caught));
    assert!(matches!(
        of(Fault::FrozenCounter),
        Some(Outcome::Caught {
            how: Reason::Timeout { .. },
            after: 0
        })
    ));
    assert!(matches!(of(Fault::NoFence), Some(Outcome::Missed { chains }) if *chains >= 18));
    assert!(exec.live.is_empty());
}

#[test]
fn a_comparator_in_another_order_passes_and_a_broken_one_does_not() {
    for partials in [Partials::F16, Partials::F32] {
        let mut exec = Fake::new(8);
        let proof = qualify_comparator(
            &mut exec,
            Comparator::Nccl(NcclSetting::AsFound, Element::F16, partials),
            &QualifyPlan::quick(),
        );
        assert!(proof.is_ok_and(|p| p.words > 10_000));
        for wrong in [
            Wrong::Dropped { from: 3, to: 0 },
            Wrong::Dropped { from: 0, to: 7 },
            Wrong::Stale,
            Wrong::Tail,
        ] {
            exec.nccl = Some(wrong);
            let refusal = qualify_comparator(
                &mut exec,
                Comparator::Nccl(NcclSetting::AsFound, Element::F16, partials),
                &QualifyPlan::quick(),
            );
            let reason = refusal.map_err(|r| r.reason);
            assert!(
                matches!(reason, Err(Reason::OutOfBound { .. } | Reason::ReplicasDiffer { .. })),
                "{wrong:?} {reason:?}"
            );
        }
        // Within the bound of f16 sums, but not the same everywhere.
        if partials == Partials::F32 {
            continue;
        }
        exec.nccl = Some(Wrong::Bit {
            call: 1,
            rank: 2,
            element: 5,
        });
        let refusal = qualify_comparator(
            &mut exec,
            Comparator::Nccl(NcclSetting::AsFound, Element::F16, partials),
            &QualifyPlan::quick(),
        );
        let reason = refusal.map_err(|r| r.reason);
        assert!(
            matches!(
                reason,
                Err(Reason::ReplicasDiffer {
                    rank: 2,
                    element: 5,
                    call: 1,
                    ..
                })
            ),
            "{reason:?}"
        );
        assert!(exec.live.is_empty());
    }
    let mut exec = Fake::new(2);
    exec.has_nccl = false;
    let refusal = qualify_comparator(
        &mut exec,
        Comparator::Nccl(NcclSetting::AsFound, Element::F16, Partials::F16),
        &QualifyPlan::quick(),
    );
    assert!(matches!(
        refusal.map_err(|r| r.reason),
        Err(Reason::Device(DeviceError::Unavailable { .. }))
    ));
}

/// Runs another variant than the one it is asked for.
struct Swapped {
    inner: Fake,
    runs: &'static Variant,
}

use topoforge::device::{Chain, DeviceInfo, Executor, Outputs, Preparation, Prepared, Sampling, Timed};

impl Executor for Swapped {
    fn device(&self) -> &DeviceInfo {
        self.inner.device()
    }
    fn ranks(&self) -> usize {
        self.inner.ranks()
    }
    fn prepare(&mut self, _: &'static Variant, preparation: &Preparation) -> Result<Prepared, DeviceError> {
        self.inner.prepare(self.runs, preparation)
    }
    fn prepare_comparator(&mut self, comparator: Comparator, max_bytes: u64) -> Result<Prepared, DeviceError> {
        self.inner.prepare_comparator(comparator, max_bytes)
    }
    fn release(&mut self, collective: Prepared) {
        self.inner.release(collective);
    }
    fn max_blocks(&self, collective: Prepared, threads: u32) -> Result<u32, DeviceError> {
        self.inner.max_blocks(collective, threads)
    }
    fn run(&mut self, chain: &Chain<'_>) -> Result<Outputs, DeviceError> {
        self.inner.run(chain)
    }
    fn time(&mut self, candidates: &[Timed], sampling: &Sampling) -> Result<Vec<Vec<f64>>, DeviceError> {
        self.inner.time(candidates, sampling)
    }
    fn plants(&self, fault: Fault) -> bool {
        self.inner.plants(fault)
    }
}
