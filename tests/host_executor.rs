//! Every kernel that was generated for the built-in families, on the host executor: correct in every delivery, and not
//! correct with a fault planted.

#![cfg(feature = "host-executor")]

use std::collections::BTreeSet;
use topoforge::device::host::{Delivery, HostExecutor, HostOptions};
use topoforge::device::{Fault, Geometry};
use topoforge::qualify::controls::{FAULTS, Outcome, control};
use topoforge::qualify::{QualifyPlan, qualify};
use topoforge::registry::{Protocol, Registry, Variant};

/// One variant a kernel: families share them.
fn variants() -> Vec<&'static Variant> {
    let mut seen = BTreeSet::new();
    let all = Registry::builtin().families().into_iter().flat_map(|f| f.variants);
    all.filter(|v| v.kernel.host.is_some() && seen.insert((v.kernel.hash, v.ranks.len())))
        .collect()
}

fn plan(variant: &Variant) -> QualifyPlan {
    let ranks = variant.ranks.len();
    // Lines are stored by whole warps.
    let threads = if variant.protocol == Protocol::Packet128 {
        32
    } else {
        16
    };
    QualifyPlan {
        rounds: 3,
        calls: 3,
        replays: 2,
        payloads: if ranks > 4 {
            vec![270, 130, 34]
        } else {
            vec![1030, 272, 18]
        },
        geometries: vec![Geometry::new(2, threads), Geometry::new(1, threads)],
        seeds: vec![1],
        skews: vec![50_000],
        memory: 64 << 20,
        served: Vec::new(),
    }
}

#[test]
fn every_built_in_kernel_is_correct_in_every_delivery() {
    let variants = variants();
    assert!(!variants.is_empty(), "no kernel has a host form");
    let mut wrong = Vec::new();
    for (index, variant) in variants.iter().enumerate() {
        let ranks = variant.ranks.len();
        for delivery in Delivery::ALL {
            let options = HostOptions {
                seed: index as u64,
                delivery,
                ..HostOptions::default()
            };
            if let Err(refusal) = qualify(&mut HostExecutor::new(ranks, options), variant, &plan(variant)) {
                wrong.push(format!("{delivery:?}: {refusal}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        3 * variants.len(),
        wrong.join("\n")
    );
}

#[test]
fn faults_in_built_in_kernels_are_caught() {
    let (mut caught, mut missed) = (0, Vec::new());
    for variant in variants() {
        // A single buffer only hurts in rare schedules: the executor's own tests show it.
        for fault in FAULTS.into_iter().filter(|f| *f != Fault::SingleBuffer) {
            if fault == Fault::FrozenCounter && variant.protocol == Protocol::Sentinel {
                // Sentinels carry no counter: a frozen one means a single buffer.
                continue;
            }
            let options = HostOptions {
                delivery: Delivery::Lazy,
                ..HostOptions::default()
            };
            let ranks = variant.ranks.len();
            let found = control(&mut HostExecutor::new(ranks, options), variant, &plan(variant), fault);
            match found.outcome {
                Outcome::Caught { .. } => caught += 1,
                Outcome::Missed { .. } => missed.push(found.to_string()),
                // What says by itself that it is there needs no fences, and only lines can be torn; nothing else may be
                // left out.
                Outcome::NotRun { .. } => {
                    let fences = matches!(variant.protocol, Protocol::Flag | Protocol::Pull);
                    let lines = variant.protocol == Protocol::Packet128;
                    match fault {
                        Fault::NoFence | Fault::NoBarrier => assert!(!fences, "{found}"),
                        Fault::TornLine => assert!(!lines, "{found}"),
                        _ => panic!("{found}"),
                    }
                }
            }
        }
    }
    assert!(
        missed.is_empty(),
        "{caught} caught, {} missed:\n{}",
        missed.len(),
        missed.join("\n")
    );
}
