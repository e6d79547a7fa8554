//! One schedule of every idea of the planner, on the machines that have a use for it, whether or not a built-in family
//! compiles it: lowered, compiled in one go, and proven in every delivery.

use super::kit::threads;
use crate::device::Geometry;
use crate::device::host::{Delivery, HostExecutor, HostOptions, ffi};
use crate::planner::schedule::verify::verify_on;
use crate::planner::schedule::{EdgePolicy, Edges, Schedule, Verified, generate};
use crate::planner::topology::{LinkClass, PcieClass, Topology};
use crate::qualify::{QualifyPlan, qualify};
use crate::registry::{Element, Kernel, Memory, Partials, Protocol, PutPort, RankPorts, Variant};
use std::path::Path;
use std::process::Command;
use topoforge_codegen::lower::{self, Lowered, lower};

const PIX: LinkClass = LinkClass::Pcie(PcieClass::Pix);
const SYS: LinkClass = LinkClass::Pcie(PcieClass::Sys);

/// What is proven.
struct Made {
    name: String,
    lowered: Lowered,
    chunks: u32,
    stages: u32,
    protocol: Protocol,
    memory: Memory,
    element: Element,
    partials: Partials,
}

fn leak<T>(items: Vec<T>) -> &'static [T] {
    Box::leak(items.into_boxed_slice())
}

fn text(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// Two fully linked quads, and each rank linked to its twin.
fn cube_mesh() -> Topology {
    let mut mesh = Topology::new("mesh", 8)
        .with_all_pairs(&[0, 1, 2, 3], PIX)
        .with_all_pairs(&[4, 5, 6, 7], PIX);
    for rank in 0..4 {
        mesh = mesh.with_pair(rank, rank + 4, PIX);
    }
    mesh
}

fn islands(first: usize, second: usize) -> Topology {
    let all: Vec<usize> = (0..first + second).collect();
    Topology::new("islands", first + second)
        .with_all_pairs(&all, SYS)
        .with_all_pairs(&all[..first], PIX)
        .with_all_pairs(&all[first..], PIX)
}

/// Machines, and the shapes that are taken from each.
fn cases() -> Vec<(Topology, &'static [&'static str])> {
    let path = Topology::new("path", 4)
        .with_pair(0, 1, PIX)
        .with_pair(1, 2, PIX)
        .with_pair(2, 3, PIX);
    let mut circle = Topology::new("circle", 3);
    for rank in 0..3 {
        circle = circle.with_link(crate::planner::topology::Link::new(rank, (rank + 1) % 3, PIX));
    }
    vec![
        (path, &["tree-2", "one-shot-relay", "two-shot-relay"]),
        (circle, &["tree-one-way", "ring"]),
        (cube_mesh(), &["trees-disjoint-2", "two-shot-relay", "ring-both-ways"]),
        (
            islands(2, 1),
            &["islands-scatter-2-1", "islands-exchange-2-1", "islands-leader-2-1"],
        ),
        (
            islands(4, 3),
            &[
                "islands-scatter-4-3",
                "fold-in-6-exchange-3s2r",
                "fold-in-4-halving-2x2",
                "ring",
            ],
        ),
        (islands(2, 6), &["islands-scatter-2-6", "islands-leader-2-6"]),
    ]
}

const PUSHED: [(lower::Protocol, Protocol); 4] = [
    (lower::Protocol::Packet, Protocol::Packet),
    (lower::Protocol::Sentinel, Protocol::Sentinel),
    (lower::Protocol::Packet128, Protocol::Packet128),
    (lower::Protocol::Flag, Protocol::Flag),
];
const PULLED: [(lower::Protocol, Protocol); 1] = [(lower::Protocol::Pull, Protocol::Pull)];

/// An element type with a policy for its sums, as codegen and as the registry name them.
type Numbers = ((lower::Element, lower::Partials), (Element, Partials));
const F16: Numbers = (
    (lower::Element::F16, lower::Partials::Element),
    (Element::F16, Partials::Element),
);
const F16_WIDE: Numbers = (
    (lower::Element::F16, lower::Partials::F32),
    (Element::F16, Partials::F32),
);
const BF16: Numbers = (
    (lower::Element::Bf16, lower::Partials::Element),
    (Element::Bf16, Partials::Element),
);
const BF16_WIDE: Numbers = (
    (lower::Element::Bf16, lower::Partials::F32),
    (Element::Bf16, Partials::F32),
);
const F32: Numbers = (
    (lower::Element::F32, lower::Partials::Element),
    (Element::F32, Partials::Element),
);

fn make(verified: &Verified<Schedule>, protocol: (lower::Protocol, Protocol), numbers: Numbers, machine: &str) -> Made {
    let ((element, policy), (of, partials)) = numbers;
    let lowered = lower(verified, protocol.0, element, policy, "").unwrap_or_else(|e| panic!("{e}"));
    Made {
        name: format!("{machine}: {}/{}/{of} in {partials}", verified.name, protocol.1),
        lowered,
        chunks: verified.chunks,
        stages: verified.stages.len() as u32,
        protocol: protocol.1,
        memory: Memory::Peer,
        element: of,
        partials,
    }
}

/// All texts as one, each in a namespace of its own, so that headers are read once.
fn compile(texts: &[String], what: &str) -> std::path::PathBuf {
    let mut source = String::from(
        "#include \"packet.cuh\"\n#include \"sentinel.cuh\"\n#include \"packet128.cuh\"\n#include \"flag.cuh\"\n#include \"pull.cuh\"\n",
    );
    for (at, text) in texts.iter().enumerate() {
        let body: Vec<&str> = text.lines().filter(|l| !l.starts_with("#include")).collect();
        source.push_str(&format!("namespace n{at} {{\n{}\n}}\n", body.join("\n")));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let at = std::env::temp_dir().join(format!("topoforge-{}-{what}", std::process::id()));
    let (file, library) = (at.with_extension("cpp"), at.with_extension("so"));
    std::fs::write(&file, source).unwrap();
    let status = Command::new("c++")
        .args("-std=c++17 -O1 -fno-exceptions -fno-rtti -ffp-contract=off -fPIC -shared -w".split(' '))
        .args(["-DTF_HOST", "-DTF_POLLS_BETWEEN_CHECKS=16"])
        .arg("-I")
        .arg(root.join("kernels"))
        .arg(&file)
        .arg("-o")
        .arg(&library)
        .status()
        .unwrap();
    assert!(status.success(), "generated texts do not compile");
    std::fs::remove_file(file).unwrap();
    library
}

fn variant(made: &Made, library: &Path) -> &'static Variant {
    let ports = |rank: &lower::RankPorts| RankPorts {
        program: rank.program,
        puts: leak(
            rank.puts
                .iter()
                .map(|p| PutPort {
                    peer: p.peer,
                    region: p.region,
                })
                .collect(),
        ),
        gets: leak(rank.gets.clone()),
        tables: leak(rank.tables.clone()),
    };
    let lowered = &made.lowered;
    let k = &lowered.kernel;
    let kernel = Box::leak(Box::new(Kernel {
        hash: text(k.hash.clone()),
        symbol: text(k.symbol.clone()),
        protocol: made.protocol,
        puts: k.puts,
        gets: k.gets,
        inputs: k.inputs,
        tables: k.tables,
        images: &[],
        host: Some(ffi::load_kernel(library, &k.symbol).unwrap()),
    }));
    Box::leak(Box::new(Variant {
        name: text(made.name.clone()),
        schedule: "any",
        protocol: made.protocol,
        memory: made.memory,
        element: made.element,
        partials: leak(vec![made.partials]),
        kernel,
        chunks: made.chunks,
        stages: made.stages,
        planes: lowered.planes,
        ranks: leak(lowered.ranks.iter().map(ports).collect()),
        expressions: leak(lowered.expressions.iter().map(|e| text(e.clone())).collect()),
        expression_of: leak(lowered.expression_of.clone()),
        classes: &[],
    }))
}

/// Compiles all of them at once and proves each in every delivery, over so many patterns of inputs.
fn prove(made: &[Made], what: &str, rounds: u32) {
    let mut texts: Vec<String> = made.iter().map(|m| m.lowered.kernel.text.clone()).collect();
    texts.sort();
    texts.dedup();
    let library = compile(&texts, what);
    let mut wrong = Vec::new();
    for (index, made) in made.iter().enumerate() {
        let variant = variant(made, &library);
        let plan = QualifyPlan {
            rounds,
            calls: 3,
            replays: 2,
            // Both 16-bit and 32-bit elements see cut vectors.
            payloads: vec![532, 130, 36],
            geometries: [2, 1]
                .map(|blocks| Geometry::new(blocks, threads(variant.protocol, 16)))
                .into(),
            seeds: vec![1],
            skews: vec![50_000],
            memory: 64 << 20,
            served: Vec::new(),
        };
        for delivery in Delivery::ALL {
            let options = HostOptions {
                seed: index as u64,
                delivery,
                ..HostOptions::default()
            };
            if let Err(refusal) = qualify(&mut HostExecutor::new(variant.ranks.len(), options), variant, &plan) {
                wrong.push(format!("{delivery:?}: {refusal}"));
            }
        }
    }
    std::fs::remove_file(library).unwrap();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        3 * made.len(),
        wrong.join("\n")
    );
}

/// The schedule over links that the protocol needs.
fn lined(
    schedule: &Verified<Schedule>,
    protocol: (lower::Protocol, Protocol),
    machine: &Topology,
) -> Verified<Schedule> {
    if protocol.1 == Protocol::Packet128 {
        over_nvlink(schedule, machine)
    } else {
        schedule.clone()
    }
}

/// The same schedule as if every link kept lines.
fn over_nvlink(schedule: &Verified<Schedule>, machine: &Topology) -> Verified<Schedule> {
    let mut machine = machine.clone();
    for link in &mut machine.links {
        link.class = LinkClass::NvLink { lanes: 2, r#gen: 2 };
    }
    verify_on(
        schedule.clone().into_inner(),
        &Edges::new(&machine, EdgePolicy::Peer),
        2,
    )
    .expect("the same edges")
}

fn verified(machine: &Topology, policy: EdgePolicy, shape: &str) -> Verified<Schedule> {
    let edges = Edges::new(machine, policy);
    let candidates = generate(&edges, 2048);
    let found = candidates.iter().find(|c| c.shape == shape);
    let schedule = found
        .unwrap_or_else(|| panic!("no {shape} on {}", machine.name))
        .schedule
        .clone();
    verify_on(schedule, &edges, 2).expect("generated")
}

#[test]
fn every_idea_is_correct_in_every_protocol_and_delivery() {
    let mut made: Vec<Made> = Vec::new();
    for (machine, shapes) in cases() {
        for shape in shapes {
            let verified = verified(&machine, EdgePolicy::Peer, shape);
            for (at, protocol) in PUSHED.into_iter().enumerate() {
                // f32 partials in turn, so that each protocol sees both.
                let wide = (made.len() / PUSHED.len() + at) % 2 == 1;
                let numbers = if wide { F16_WIDE } else { F16 };
                made.push(make(
                    &lined(&verified, protocol, &machine),
                    protocol,
                    numbers,
                    &machine.name,
                ));
            }
        }
    }
    prove(&made, "ideas", 3);
    assert_eq!(made.len(), 68);
}

/// Builds hold bf16 and f32 only where their features are on, so their kernels are proven here: every protocol and
/// policy, on schedules of one stage and of several, scattered and not, ranks that share a program and ranks that do not.
#[test]
fn bf16_and_f32_are_correct_in_every_protocol_and_delivery() {
    let pair = Topology::new("pair", 2).with_pair(0, 1, PIX);
    let quad = Topology::new("quad", 4).with_all_pairs(&[0, 1, 2, 3], PIX);
    let mut made = Vec::new();
    for (machine, policy, shape) in [
        (&pair, EdgePolicy::Peer, "one-shot"),
        (&pair, EdgePolicy::Peer, "two-shot"),
        (&pair, EdgePolicy::Host, "one-shot"),
        (&pair, EdgePolicy::Peer, "one-shot-pull"),
        (&quad, EdgePolicy::Peer, "exchange-2s2r"),
    ] {
        let verified = verified(machine, policy, shape);
        let protocols = if shape.ends_with("pull") {
            &PULLED[..]
        } else {
            &PUSHED[..]
        };
        for protocol in protocols {
            if policy == EdgePolicy::Host && protocol.1 == Protocol::Packet128 {
                // Not for host memory, and the verifier would say so.
                continue;
            }
            for numbers in [BF16, BF16_WIDE, F32] {
                let mut one = make(&lined(&verified, *protocol, machine), *protocol, numbers, &machine.name);
                if policy == EdgePolicy::Host {
                    one.memory = Memory::Host;
                }
                made.push(one);
            }
        }
    }
    // Nine rounds see every pattern of inputs, reserved NaNs and overflow among them.
    prove(&made, "elements", 9);
    assert_eq!(made.len(), 48);
    let islands = islands(2, 6);
    let verified = verified(&islands, EdgePolicy::Peer, "islands-scatter-2-6");
    let of = |(protocol, numbers)| make(&lined(&verified, protocol, &islands), protocol, numbers, &islands.name);
    let eight: Vec<Made> = PUSHED
        .into_iter()
        .zip([BF16, F32, BF16_WIDE, BF16_WIDE])
        .map(of)
        .collect();
    prove(&eight, "islands", 3);
}
