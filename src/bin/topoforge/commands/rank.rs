//! `rank`: one rank of a group of processes, set up from torchrun's environment, then calls whose sums are checked.
//!
//! The calls go through the library's public interface only. Start at [`run`].

use crate::args::RankArgs;
use crate::failure::{Failure, Outcome};
use crate::report::Output;
use crate::report::ranks::{Cycle, RankDocument};
use cudarc::driver::{CudaStream, DeviceRepr, ValidAsZeroBits, sys};
use half::{bf16, f16};
use std::sync::Arc;
use std::time::{Duration, Instant};
use topoforge::comm::bootstrap::{LocalSocket, torchrun::Environment};
use topoforge::comm::{Bootstrap, CommError, Communicator, Options, ReduceOp, Scalar};
use topoforge::driver::context::{Context, Device, stream_without_events};
use topoforge::registry::Element;
use topoforge::tune::Payloads;

/// Elements of the calls that are checked, taken in turn: odd ones, one vector, sizes of a decode step.
const ELEMENTS: [usize; 6] = [2560, 1000, 333, 8, 40_000, 1];
/// Replays of the captured graph.
const REPLAYS: usize = 5;

/// `topoforge rank`
pub fn run(args: &RankArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let here = Environment::read(&args.group, |name| std::env::var(name).ok()).map_err(Failure::usage_of)?;
    let options = Options {
        family: args.family.clone(),
        elements: args.dtype.clone(),
        partials: args.partials,
        nccl: args.nccl,
        payloads: args.payloads.clone().unwrap_or_else(|| match args.host {
            true => Payloads::standard(),
            false => Payloads::serving(),
        }),
        comparators: args.comparators(),
        routes: args.routes.clone(),
        deadline: Duration::from_secs_f64(args.deadline),
        patience: Duration::from_secs_f64(args.patience),
        shared_gpus: args.shared_gpus,
        share: args.share,
        ..Options::default()
    };
    let mut rank: Box<dyn Runs> = if args.host {
        host(args)?
    } else {
        let ordinal = gpu(args, &here)?;
        Box::new(OnGpu {
            context: Context::new(ordinal).map_err(Failure::work)?,
            stream: stream_without_events(ordinal).map_err(Failure::work)?,
        })
    };
    let mut document = RankDocument {
        rank: here.rank,
        world: here.world,
        place: rank.place().map_err(Failure::work)?,
        ..RankDocument::default()
    };
    for cycle in 0..args.cycles {
        output.show(&format!("rank {}: group {} of {}", here.rank, cycle + 1, args.cycles));
        let since = Instant::now();
        let mut bootstrap =
            LocalSocket::join(&here.id, here.rank, here.world, options.patience).map_err(Failure::work)?;
        let communicator = rank.join(&mut bootstrap, &options).map_err(Failure::work)?;
        drop(bootstrap);
        let set_up_s = since.elapsed().as_secs_f64();
        // All types in turn, so that each call follows one of another type.
        let (types, calls) = (args.dtype.len().max(1), args.calls);
        for call in 0..calls {
            let element = args.dtype.get(call % types).copied().unwrap_or(Element::F16);
            rank.call(&communicator, element, call).map_err(Failure::work)?;
        }
        document.calls += calls;
        for element in args.dtype.iter().filter(|_| calls > 0) {
            document.calls += rank.replay(&communicator, *element).map_err(Failure::work)?;
        }
        document.explain = communicator.explain();
        drop(communicator);
        document.cycles.push(Cycle {
            set_up_s,
            total_s: since.elapsed().as_secs_f64(),
            free_bytes: rank.free(),
            descriptors: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
        });
    }
    output.emit(&document)?;
    Ok(leak(&document.cycles).map_or(Outcome::Done, Outcome::Failed))
}

/// What the first groups did not need and the last one did not give back.
fn leak(cycles: &[Cycle]) -> Option<String> {
    /// Peers may let go a moment later than this rank.
    const SLACK: u64 = 32 << 20;
    let (early, last) = (cycles.get(2)?, cycles.last()?);
    if last.descriptors > early.descriptors {
        let (from, to, groups) = (early.descriptors, last.descriptors, cycles.len());
        return Some(format!(
            "{from} open files after 3 groups, {to} after {groups}: something leaks"
        ));
    }
    let lost = early.free_bytes?.saturating_sub(last.free_bytes?);
    (lost > SLACK).then(|| format!("{} MiB of the GPU are not given back: something leaks", lost >> 20))
}

/// Where a rank runs.
trait Runs {
    /// In words.
    fn place(&self) -> Result<String, String>;
    /// Becomes one of a group.
    fn join(&self, bootstrap: &mut dyn Bootstrap, options: &Options) -> Result<Communicator, CommError>;
    /// One call, whose every sum is checked.
    fn call(&mut self, communicator: &Communicator, element: Element, call: usize) -> Result<(), String>;
    /// A captured graph, replayed and checked. How many calls there were.
    fn replay(&mut self, communicator: &Communicator, element: Element) -> Result<usize, String>;
    /// Bytes of device memory that are free.
    fn free(&self) -> Option<u64>;
}

struct OnGpu {
    context: Arc<Context>,
    stream: Arc<CudaStream>,
}

impl Runs for OnGpu {
    fn place(&self) -> Result<String, String> {
        self.context.device().pci().map_err(|e| e.to_string())
    }

    fn join(&self, bootstrap: &mut dyn Bootstrap, options: &Options) -> Result<Communicator, CommError> {
        Communicator::from_bootstrap(&self.stream, bootstrap, options)
    }

    fn call(&mut self, communicator: &Communicator, element: Element, call: usize) -> Result<(), String> {
        match element {
            Element::F16 => one_call::<f16>(communicator, &self.stream, call),
            Element::Bf16 => one_call::<bf16>(communicator, &self.stream, call),
            Element::F32 => one_call::<f32>(communicator, &self.stream, call),
        }
    }

    fn replay(&mut self, communicator: &Communicator, element: Element) -> Result<usize, String> {
        match element {
            Element::F16 => replays::<f16>(communicator, &self.stream),
            Element::Bf16 => replays::<bf16>(communicator, &self.stream),
            Element::F32 => replays::<f32>(communicator, &self.stream),
        }
    }

    fn free(&self) -> Option<u64> {
        self.context.memory().ok().map(|(free, _)| free)
    }
}

#[cfg(feature = "host-executor")]
fn host(args: &RankArgs) -> Result<Box<dyn Runs>, Failure> {
    struct OnHost(String);

    fn one<T: Number>(communicator: &Communicator, call: usize) -> Result<(), String> {
        let mut values = input::<T>(communicator.rank(), call, ELEMENTS[call % ELEMENTS.len()]);
        communicator.all_reduce_slice(&mut values).map_err(|e| e.to_string())?;
        check(&values, communicator.world_size(), call)
    }

    impl Runs for OnHost {
        fn place(&self) -> Result<String, String> {
            Ok("the processor".to_owned())
        }

        fn join(&self, bootstrap: &mut dyn Bootstrap, options: &Options) -> Result<Communicator, CommError> {
            Communicator::on_host_from_bootstrap(&self.0, bootstrap, options)
        }

        fn call(&mut self, communicator: &Communicator, element: Element, call: usize) -> Result<(), String> {
            match element {
                Element::F16 => one::<f16>(communicator, call),
                Element::Bf16 => one::<bf16>(communicator, call),
                Element::F32 => one::<f32>(communicator, call),
            }
        }

        fn replay(&mut self, _communicator: &Communicator, _element: Element) -> Result<usize, String> {
            Ok(0)
        }

        fn free(&self) -> Option<u64> {
            None
        }
    }
    let family = args
        .family
        .clone()
        .ok_or_else(|| Failure::usage("--host needs --family"))?;
    Ok(Box::new(OnHost(family)))
}

#[cfg(not(feature = "host-executor"))]
fn host(_args: &RankArgs) -> Result<Box<dyn Runs>, Failure> {
    Err(Failure::usage(
        "--host: this build has no host executor, see its feature host-executor",
    ))
}

fn gpu(args: &RankArgs, here: &Environment) -> Result<usize, Failure> {
    let visible = Device::count().map_err(Failure::work)?;
    let ordinal = match args.gpu {
        Some(ordinal) => ordinal,
        // One GPU a process by mask: each calls its own 0.
        None if visible == 1 => 0,
        None => here.local_rank,
    };
    if ordinal >= visible {
        let text = format!("rank {} wants GPU {ordinal}, but {visible} are visible", here.rank);
        return Err(Failure::work(text));
    }
    Ok(ordinal)
}

/// A type that calls are made with.
trait Number: Scalar + DeviceRepr + ValidAsZeroBits + Default + Copy {
    fn of(value: f32) -> Self;
    fn value(self) -> f32;
}

impl Number for f16 {
    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }

    fn value(self) -> f32 {
        self.to_f32()
    }
}

impl Number for bf16 {
    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }

    fn value(self) -> f32 {
        self.to_f32()
    }
}

impl Number for f32 {
    fn of(value: f32) -> Self {
        value
    }

    fn value(self) -> f32 {
        self
    }
}

fn input<T: Number>(rank: usize, call: usize, elements: usize) -> Vec<T> {
    // Sums of sixteenths of up to 15 ranks stay below 16, where they are exact in every type and order of adding.
    let value = |i: usize| ((i * 7 + rank * 13 + call * 5) % 17) as f32 / 16.0;
    (0..elements).map(|i| T::of(value(i))).collect()
}

fn check<T: Number>(got: &[T], world: usize, call: usize) -> Result<(), String> {
    let inputs: Vec<Vec<T>> = (0..world).map(|r| input(r, call, got.len())).collect();
    for (i, got) in got.iter().enumerate() {
        let want: f32 = inputs.iter().map(|x| x[i].value()).sum();
        if got.value() != want {
            return Err(format!(
                "call {call}: element {i} of {} is {}, not {want}",
                T::DTYPE,
                got.value()
            ));
        }
    }
    Ok(())
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// In place and out of place by turns.
fn one_call<T: Number>(communicator: &Communicator, stream: &Arc<CudaStream>, call: usize) -> Result<(), String> {
    let elements = ELEMENTS[call % ELEMENTS.len()];
    let values = input::<T>(communicator.rank(), call, elements);
    let mut source = stream.clone_htod(&values).map_err(said)?;
    let got = if call.is_multiple_of(2) {
        communicator
            .all_reduce_in_place(&mut source, &ReduceOp::Sum)
            .map_err(said)?;
        stream.clone_dtoh(&source)
    } else {
        let mut sum = stream.alloc_zeros::<T>(elements).map_err(said)?;
        communicator
            .all_reduce(&source, &mut sum, &ReduceOp::Sum)
            .map_err(said)?;
        stream.clone_dtoh(&sum)
    };
    let got = got.map_err(said)?;
    stream.synchronize().map_err(said)?;
    communicator.check().map_err(said)?;
    check(&got, communicator.world_size(), call)
}

fn replays<T: Number>(communicator: &Communicator, stream: &Arc<CudaStream>) -> Result<usize, String> {
    let values = input::<T>(communicator.rank(), 0, ELEMENTS[0]);
    let source = stream.clone_htod(&values).map_err(said)?;
    let mut sum = stream.alloc_zeros::<T>(ELEMENTS[0]).map_err(said)?;
    stream.synchronize().map_err(said)?;
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    stream.begin_capture(mode).map_err(said)?;
    let captured = communicator.all_reduce(&source, &mut sum, &ReduceOp::Sum);
    let graph = stream.end_capture(sys::CUgraphInstantiate_flags(0));
    captured.map_err(said)?;
    let graph = graph.map_err(said)?.ok_or("the capture holds nothing")?;
    for _ in 0..REPLAYS {
        graph.launch().map_err(said)?;
    }
    let got = stream.clone_dtoh(&sum).map_err(said)?;
    stream.synchronize().map_err(said)?;
    communicator.check().map_err(said)?;
    check(&got, communicator.world_size(), 0)?;
    Ok(REPLAYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_of_memory_or_files_is_seen() {
        let cycle = |free: u64, descriptors| Cycle {
            set_up_s: 0.0,
            total_s: 0.0,
            free_bytes: Some(free << 20),
            descriptors,
        };
        let even: Vec<Cycle> = (0..9).map(|i| cycle(1000 - i % 3, 20)).collect();
        assert_eq!(leak(&even), None);
        let memory: Vec<Cycle> = (0..30).map(|i| cycle(1000 - 2 * i, 20)).collect();
        assert!(leak(&memory).is_some_and(|t| t.contains("54 MiB")));
        let files: Vec<Cycle> = (0..30).map(|i| cycle(1000, 20 + i)).collect();
        assert!(leak(&files).is_some_and(|t| t.contains("22 open files after 3 groups, 49 after 30")));
        assert_eq!(leak(&memory[..2]), None);
    }
}
