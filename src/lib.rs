//! topoforge turns GPU topology descriptors into specialised, proven CUDA collectives ahead of time.
//!
//! A descriptor such as `topologies/pix-pair.ron` says how GPUs are wired. From it a build makes schedules that a verifier
//! has accepted, CUDA kernels for them, and a typed registry inside your binary. At run time the nearest family is placed
//! on the live GPUs, proven bit for bit, timed against NCCL, and serves where it is faster. Nothing is compiled on the
//! serving machine; the driver, NVML and NCCL are opened at run time if they are there, and nothing runs before `main`.
//!
//! ```text
//! while building                                      at run time
//!
//! topologies/*.ron                                    probe     what this machine is
//!   | planner: schedules, verified and ranked           |
//!   | codegen: CUDA text, nvcc, host objects          matching  which family, which placement
//!   | families!: static data                            |
//!   v                                                 device    prepared on GPUs (cuda) or the CPU (host)
//! registry ------------------------------------------>  |
//!                                                     qualify   proven, or left out with the reason
//!                                                       |
//!                                                     tune      timed against comparators
//!                                                       |
//!                                                     routes    the table: write, read, prove again
//!                                                       |
//!                                                     comm      Communicator::all_reduce
//! ```
//!
//! # Where to start
//!
//! - Serve all-reduces: [`comm::Communicator::from_streams`], one CUDA stream a rank; `examples/serve.rs` is a whole
//!   program.
//! - Serve with a process a rank: [`comm::Communicator::from_rank`] by an id, [`comm::Communicator::from_bootstrap`] by
//!   torchrun's environment or the caller's own all-gather ([`comm::bootstrap`]).
//! - Change a program over from `cudarc::nccl`: [`nccl`], one `use` line.
//! - Build your own descriptors: [`families!`], [`registry::Registry::with`], and `topoforge_codegen::Forge` in a
//!   `build.rs`.
//! - Prove or time on your own terms: [`qualify::qualify`] and [`tune::tune`] over a [`device::Executor`].
//! - See what a build holds and what fits: [`registry::Registry::builtin`], [`matching::match_families`],
//!   [`probe::probe`].
//!
//! Without a GPU, the host executor runs the same kernels. It gives exact bits and no meaningful times:
//!
//! ```
//! # #[cfg(all(feature = "host-executor", feature = "f16", feature = "nvlink"))]
//! # fn main() -> Result<(), topoforge::comm::CommError> {
//! use half::f16;
//! use topoforge::comm::{Communicator, Options};
//!
//! let ranks = Communicator::on_host("nvlink-pair", &Options::default())?;
//! std::thread::scope(|scope| {
//!     for communicator in ranks {
//!         scope.spawn(move || {
//!             let mut values = vec![f16::from_f32(1.5); 512];
//!             communicator.all_reduce_slice(&mut values).expect("every rank calls");
//!             assert_eq!(values, vec![f16::from_f32(3.0); 512]);
//!         });
//!     }
//! });
//! # Ok(())
//! # }
//! # #[cfg(not(all(feature = "host-executor", feature = "f16", feature = "nvlink")))]
//! # fn main() {}
//! ```
//!
//! # Features
//!
//! Additive: each puts something in, none takes anything out. The README's table has crates, build time and bytes.
//!
//! | feature | default | puts in |
//! |---|---|---|
//! | `cli` | yes | the `topoforge` command; libraries switch it off |
//! | `host-executor` | yes | kernels for the CPU (takes a C++ compiler): `device::host`, `Communicator::on_host`, proofs without a GPU |
//! | `standard` | yes | `nvml`, `nccl`, `f16`, `all-families`, `all-archs`: what a program that serves f16 wants |
//! | `nvml`, `nccl` | standard | these libraries are opened at run time where they are to be found |
//! | `cudarc-nccl` | no | [`nccl::Comm`] takes cudarc's own `Id` and `ReduceOp` too |
//! | `f16` | standard | kernels for f16 elements |
//! | `bf16`, `f32` | no | kernels for these, about as many again each |
//! | `nvlink`, `nvswitch`, `pcie`, `mixed`, `host-staged`; `all-families` | standard | the families of this crate whose GPUs are joined so |
//! | `sm-70` to `sm-121`; `all-archs` | standard | machine code for these architectures, and PTX for the newest |
//! | `candle`, `candle-cuda` | no | all-reduce as an operation on candle tensors, on the CPU and on GPUs |
//! | `require-cuda` | no | a build without nvcc or without an architecture is an error instead of a warning |
//!
//! With no feature at all the crate builds and holds no family, no kernel and no command: bring descriptors of your own
//! with [`families!`].
//!
//! # Limits of this version
//!
//! One machine, all-reduce with sum, elements of f16, bf16 and f32, NVIDIA GPUs.

#![deny(unsafe_code)]

// `families!` names this crate from outside and from inside alike.
extern crate self as topoforge;

mod builtin;
#[cfg(feature = "candle")]
pub mod candle;
pub mod comm;
pub mod device;
pub mod doctor;
#[allow(unsafe_code, reason = "owner types over the driver's C functions")]
pub mod driver;
pub mod matching;
pub mod nccl;
pub mod probe;
pub mod process;
pub mod qualify;
pub mod registry;
pub mod routes;
pub mod tune;

pub use builtin::BUILTIN;
pub use topoforge_macros::{families, family};
pub use topoforge_planner as planner;

/// The README's programs, compiled as tests.
#[cfg(all(doctest, feature = "f16", feature = "all-families"))]
#[doc = include_str!("../README.md")]
pub struct Readme;
