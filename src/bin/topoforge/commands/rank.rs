//! `rank`: one rank of a group of processes, set up from torchrun's environment, then calls whose sums are checked.
//!
//! The calls go through the library's public interface only. Start at [`run`].

use crate::args::RankArgs;
use crate::failure::{Failure, Outcome};
use crate::report::Output;
use crate::report::ranks::{Cycle, RankDocument};
use cudarc::driver::{CudaStream, sys};
use half::f16;
use std::sync::Arc;
use std::time::{Duration, Instant};
use topoforge::comm::bootstrap::{LocalSocket, torchrun::Environment};
use topoforge::comm::{Bootstrap, CommError, Communicator, Options, ReduceOp};
use topoforge::driver::context::{Context, Device, stream_without_events};
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
        partials: args.partials,
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
        document.calls += rank.serve(&communicator, args.calls).map_err(Failure::work)?;
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
    /// Calls, and checks every sum. How many calls there were.
    fn serve(&mut self, communicator: &Communicator, calls: usize) -> Result<usize, String>;
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

    fn serve(&mut self, communicator: &Communicator, calls: usize) -> Result<usize, String> {
        serve(communicator, &self.stream, calls)
    }

    fn free(&self) -> Option<u64> {
        self.context.memory().ok().map(|(free, _)| free)
    }
}

#[cfg(feature = "host-executor")]
fn host(args: &RankArgs) -> Result<Box<dyn Runs>, Failure> {
    struct OnHost(String);
    impl Runs for OnHost {
        fn place(&self) -> Result<String, String> {
            Ok("the processor".to_owned())
        }

        fn join(&self, bootstrap: &mut dyn Bootstrap, options: &Options) -> Result<Communicator, CommError> {
            Communicator::on_host_from_bootstrap(&self.0, bootstrap, options)
        }

        fn serve(&mut self, communicator: &Communicator, calls: usize) -> Result<usize, String> {
            for call in 0..calls {
                let mut values = input(communicator.rank(), call, ELEMENTS[call % ELEMENTS.len()]);
                communicator.all_reduce_slice(&mut values).map_err(|e| e.to_string())?;
                check(&values, communicator.world_size(), call)?;
            }
            Ok(calls)
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

fn input(rank: usize, call: usize, elements: usize) -> Vec<f16> {
    // Sixteenths below 64 are exact in f16, in any order of adding.
    let value = |i: usize| ((i * 7 + rank * 13 + call * 5) % 17) as f32 / 16.0;
    (0..elements).map(|i| f16::from_f32(value(i))).collect()
}

fn check(got: &[f16], world: usize, call: usize) -> Result<(), String> {
    let inputs: Vec<Vec<f16>> = (0..world).map(|r| input(r, call, got.len())).collect();
    for (i, got) in got.iter().enumerate() {
        let want: f32 = inputs.iter().map(|x| x[i].to_f32()).sum();
        if got.to_f32() != want {
            return Err(format!("call {call}: element {i} is {got}, not {want}"));
        }
    }
    Ok(())
}

/// Calls in place and out of place, then a captured graph, replayed. How many calls there were.
fn serve(communicator: &Communicator, stream: &Arc<CudaStream>, calls: usize) -> Result<usize, String> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let failed = |e: &dyn std::fmt::Display| e.to_string();
    for call in 0..calls {
        let elements = ELEMENTS[call % ELEMENTS.len()];
        let mut source = stream
            .clone_htod(&input(rank, call, elements))
            .map_err(|e| failed(&e))?;
        let got = if call % 2 == 0 {
            communicator
                .all_reduce_in_place(&mut source, &ReduceOp::Sum)
                .map_err(|e| failed(&e))?;
            stream.clone_dtoh(&source)
        } else {
            let mut sum = stream.alloc_zeros::<f16>(elements).map_err(|e| failed(&e))?;
            communicator
                .all_reduce(&source, &mut sum, &ReduceOp::Sum)
                .map_err(|e| failed(&e))?;
            stream.clone_dtoh(&sum)
        };
        let got = got.map_err(|e| failed(&e))?;
        stream.synchronize().map_err(|e| failed(&e))?;
        communicator.check().map_err(|e| failed(&e))?;
        check(&got, world, call)?;
    }
    if calls == 0 {
        return Ok(0);
    }
    let source = stream
        .clone_htod(&input(rank, 0, ELEMENTS[0]))
        .map_err(|e| failed(&e))?;
    let mut sum = stream.alloc_zeros::<f16>(ELEMENTS[0]).map_err(|e| failed(&e))?;
    stream.synchronize().map_err(|e| failed(&e))?;
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    stream.begin_capture(mode).map_err(|e| failed(&e))?;
    let captured = communicator.all_reduce(&source, &mut sum, &ReduceOp::Sum);
    let graph = stream.end_capture(sys::CUgraphInstantiate_flags(0));
    captured.map_err(|e| failed(&e))?;
    let graph = graph.map_err(|e| failed(&e))?.ok_or("the capture holds nothing")?;
    for _ in 0..REPLAYS {
        graph.launch().map_err(|e| failed(&e))?;
    }
    let got = stream.clone_dtoh(&sum).map_err(|e| failed(&e))?;
    stream.synchronize().map_err(|e| failed(&e))?;
    communicator.check().map_err(|e| failed(&e))?;
    check(&got, world, 0)?;
    Ok(calls + REPLAYS)
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
