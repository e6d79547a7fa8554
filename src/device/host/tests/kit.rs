//! Compiles testdata kernels, describes them as variants, and works out what a chain must give.

use crate::device::abi::WARP;
use crate::device::host::{HostExecutor, ffi};
use crate::device::{Chain, DeviceError, Executor, Fault, Geometry, Mode, Outputs, Preparation, Prepared};
use crate::qualify::mix::{Mixing, mix_f16};
use crate::registry::{Element, Kernel, Memory, Partials, Protocol, PutPort, RankPorts, Variant};
use half::f16;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, OnceLock};

fn leak<T>(items: Vec<T>) -> &'static [T] {
    Box::leak(items.into_boxed_slice())
}

/// One all-reduce in one step: everybody puts to everybody. `defines` are more macros for the kernel's text.
pub fn one_shot(protocol: Protocol, ranks: u32, defines: &[&str]) -> &'static Variant {
    static MADE: OnceLock<Mutex<BTreeMap<String, &'static Variant>>> = OnceLock::new();
    let key = format!("{protocol} {ranks} {defines:?}");
    let mut made = MADE.get_or_init(Mutex::default).lock().unwrap();
    if let Some(variant) = made.get(&key) {
        return variant;
    }
    let others = |rank: u32| (0..ranks).filter(move |&peer| peer != rank);
    // The region at a peer is the index of this rank among the peer's own peers.
    let region = |rank: u32, peer: u32| if rank < peer { rank } else { rank - 1 };
    let ports = |rank: u32| RankPorts {
        program: rank,
        puts: leak(
            others(rank)
                .map(|peer| PutPort {
                    peer,
                    region: region(rank, peer),
                })
                .collect(),
        ),
        gets: leak(others(rank).collect()),
        tables: &[],
    };
    let kernel = Box::leak(Box::new(Kernel {
        hash: "",
        symbol: "",
        protocol,
        puts: ranks - 1,
        gets: ranks - 1,
        inputs: if protocol == Protocol::Pull { ranks } else { 0 },
        tables: 0,
        images: &[],
        host: Some(compile(protocol, ranks, defines)),
    }));
    let variant = Box::leak(Box::new(Variant {
        name: Box::leak(key.clone().into_boxed_str()),
        schedule: "one-shot",
        protocol,
        memory: Memory::Peer,
        element: Element::F16,
        partials: &[Partials::Element],
        kernel,
        chunks: 1,
        stages: 1,
        planes: if protocol == Protocol::Packet { 2 } else { 1 },
        ranks: leak((0..ranks).map(ports).collect()),
        expressions: &[],
        expression_of: &[],
        classes: &[],
    }));
    made.insert(key, variant);
    variant
}

fn compile(protocol: Protocol, ranks: u32, defines: &[&str]) -> crate::registry::HostKernel {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = root.join(format!("src/device/host/testdata/one_shot_{protocol}.cu"));
    let tag = defines.join("_").replace('=', "");
    let name = format!("topoforge-{}-{protocol}-{ranks}-{tag}.so", std::process::id());
    let library = std::env::temp_dir().join(name);
    let status = Command::new("c++")
        .args("-std=c++17 -O1 -fno-exceptions -fno-rtti -ffp-contract=off -fPIC -shared -w".split(' '))
        .args(["-DTF_HOST", "-DTF_POLLS_BETWEEN_CHECKS=16", &format!("-DRANKS={ranks}")])
        .args(defines.iter().map(|d| format!("-D{d}")))
        .arg("-I")
        .arg(root.join("kernels"))
        .args(["-x", "c++"])
        .arg(source)
        .arg("-o")
        .arg(&library)
        .status()
        .unwrap();
    assert!(status.success(), "{protocol} does not compile");
    let kernel = ffi::load_kernel(&library, &format!("tf_test_{protocol}")).unwrap();
    // The mapping stays.
    std::fs::remove_file(library).unwrap();
    kernel
}

/// `threads` as blocks of the protocol take them.
pub fn threads(protocol: Protocol, threads: u32) -> u32 {
    if protocol == Protocol::Packet128 {
        threads.next_multiple_of(WARP)
    } else {
        threads
    }
}

/// A chain with the usual settings.
#[derive(Clone, Copy)]
pub struct Case {
    pub bytes: u64,
    pub calls: u32,
    pub geometry: Geometry,
    pub mode: Mode,
    pub skew: Option<(usize, u64)>,
    pub in_place: bool,
    pub specials: bool,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            bytes: 150,
            calls: 4,
            geometry: Geometry::new(1, 4),
            mode: Mode::Eager,
            skew: None,
            in_place: false,
            specials: false,
        }
    }
}

impl Case {
    /// The same in blocks that the protocol takes.
    pub fn of(&self, protocol: Protocol) -> Self {
        let mut case = *self;
        case.geometry.threads = threads(protocol, case.geometry.threads);
        case
    }

    fn chain<'a>(&self, collective: Prepared, inputs: &'a [Vec<u8>]) -> Chain<'a> {
        let Self {
            bytes,
            calls,
            geometry,
            mode,
            skew,
            in_place,
            specials,
        } = *self;
        Chain {
            collective,
            geometry,
            bytes,
            calls,
            inputs,
            mix_seed: 7,
            specials,
            mode,
            skew,
            in_place,
        }
    }

    pub fn inputs(&self, ranks: usize) -> Vec<Vec<u8>> {
        let one = |rank| (0..self.bytes as u32 / 2).flat_map(move |i| mix_f16(0, i, rank, 99, 5, false).to_le_bytes());
        (0..ranks as u32).map(|rank| one(rank).collect()).collect()
    }

    /// What every rank must get, call after call.
    pub fn expected(&self, ranks: usize) -> Vec<Vec<u8>> {
        let replays = if let Mode::Graph { replays } = self.mode {
            replays
        } else {
            1
        };
        let mut inputs = self.inputs(ranks);
        let mut outputs = Vec::new();
        for _ in 0..replays {
            for call in 0..self.calls {
                let output = (0..self.bytes as usize)
                    .step_by(2)
                    .flat_map(|at| sum(&inputs, at))
                    .collect::<Vec<u8>>();
                for (rank, input) in inputs.iter_mut().enumerate() {
                    let mixing = Mixing {
                        element: Element::F16,
                        seed: 7,
                        specials: self.specials,
                    };
                    mixing.buffer(&output, rank, call, input);
                }
                outputs.push(output);
            }
        }
        outputs
    }

    pub fn prepare(
        &self,
        exec: &mut HostExecutor,
        v: &'static Variant,
        fault: Option<Fault>,
    ) -> Result<Prepared, DeviceError> {
        exec.prepare(
            v,
            &Preparation {
                max_bytes: self.bytes.max(200),
                threads: self.geometry.threads,
                fault,
            },
        )
    }

    /// Runs once on fresh scratch.
    pub fn run(
        &self,
        exec: &mut HostExecutor,
        v: &'static Variant,
        fault: Option<Fault>,
    ) -> Result<Outputs, DeviceError> {
        let collective = self.prepare(exec, v, fault)?;
        let outputs = self.run_on(exec, collective);
        exec.release(collective);
        outputs
    }

    pub fn run_on(&self, exec: &mut HostExecutor, collective: Prepared) -> Result<Outputs, DeviceError> {
        let inputs = self.inputs(exec.ranks());
        exec.run(&self.chain(collective, &inputs))
    }

    /// Whether the outputs are what they must be.
    pub fn right(&self, outputs: &Outputs) -> bool {
        let ranks = outputs.first().map_or(0, Vec::len);
        let expected = self.expected(ranks);
        outputs.len() == expected.len()
            && outputs
                .iter()
                .zip(&expected)
                .all(|(got, want)| got.iter().all(|rank| same(rank, want)))
    }
}

fn element(bytes: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn sum(inputs: &[Vec<u8>], at: usize) -> [u8; 2] {
    let mut values = inputs.iter().map(|input| element(input, at));
    let first = values.next().unwrap();
    values
        .fold(first, |a, b| f16::from_f32(a.to_f32() + b.to_f32()))
        .to_le_bytes()
}

fn same(a: &[u8], b: &[u8]) -> bool {
    let equal = |at| {
        let (x, y) = (element(a, at), element(b, at));
        x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan()
    };
    a.len() == b.len() && (0..a.len()).step_by(2).all(equal)
}
