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
//! - Build your own descriptors: [`families!`], [`registry::Registry::with`], and `topoforge_codegen::Forge` in a
//!   `build.rs`.
//! - Prove or time on your own terms: [`qualify::qualify`] and [`tune::tune`] over a [`device::Executor`].
//! - See what a build holds and what fits: [`registry::Registry::builtin`], [`matching::match_families`],
//!   [`probe::probe`].
//!
//! Without a GPU, the host executor runs the same kernels. It gives exact bits and no meaningful times:
//!
//! ```
//! # #[cfg(feature = "host-executor")]
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
//! # #[cfg(not(feature = "host-executor"))]
//! # fn main() {}
//! ```
//!
//! # Features
//!
//! - `cli` (default): the `topoforge` command. Libraries switch it off.
//! - `host-executor` (default): kernels are compiled for the CPU as well, which takes a C++ compiler at build time;
//!   `device::host`, `Communicator::on_host` and proofs without a GPU.
//! - `f16` (default), `bf16`, `f32`: element types that kernels are compiled for, each about as many kernels again.
//! - `require-cuda`: a build that finds no nvcc is an error instead of a warning and a registry without GPU code.
//!
//! # Limits of this version
//!
//! One process, all-reduce with sum, elements of f16, bf16 and f32, NVIDIA GPUs.

#![deny(unsafe_code)]

// `families!` names this crate from outside and from inside alike.
extern crate self as topoforge;

mod builtin;
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
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
