//! Captured graphs on real GPUs, case by case: `cargo run --release --example graph_matrix -- 0,1 [SECONDS]`.
//!
//! Each case checks every sum exactly, after a poison of the output. Waits are bounded by the communicators' deadline.
//! Two groups side by side are made of the halves of four devices, or of two ranks on each of two. With SECONDS the cases
//! are then mixed at random for that long, communicators built anew among them. Exits non-zero at the first wrong sum; a short
//! table is printed last.

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaGraph, CudaSlice, CudaStream, DevicePtr};
use half::f16;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use topoforge::comm::{CommError, Communicator, Dtype, Options, ReduceOp};
use topoforge::probe::probe;
use topoforge::tune::{Compare, Payloads};

type Done<T = ()> = Result<T, Box<dyn Error>>;

/// Elements of a call: within one range, in others, and beyond the table.
const SIZES: [usize; 4] = [512, 2560, 40_000, 300_000];
const ROUNDS: usize = 25;

/// One rank with a second and a third stream, and a pair of buffers for each size.
struct Rank {
    comm: Communicator,
    streams: [Arc<CudaStream>; 3],
    inputs: Vec<CudaSlice<f16>>,
    outputs: Vec<CudaSlice<f16>>,
}

struct Group(Vec<Rank>);

fn value(rank: usize, at: usize, salt: usize) -> f16 {
    // Sixteenths below 2: exact in every order.
    f16::from_f32(((at * 7 + rank * 13 + salt * 5) % 32) as f32 / 16.0)
}

impl Group {
    fn new(devices: &[usize]) -> Done<Self> {
        let mut streams = Vec::new();
        for device in devices {
            let context = CudaContext::new(*device)?;
            // SAFETY: every order between streams that matters is made below by events or waits.
            unsafe { context.disable_event_tracking() };
            streams.push([context.new_stream()?, context.new_stream()?, context.new_stream()?]);
        }
        let shared_gpus = devices.iter().enumerate().any(|(i, d)| devices[..i].contains(d));
        let options = Options {
            family: shared_gpus.then(|| "nvlink-pair".to_owned()),
            shared_gpus,
            payloads: Payloads::from_bytes(&[5 << 10, 80 << 10])?,
            // Our routes only: NCCL from one thread would need its groups.
            comparators: vec![Compare::None],
            deadline: Duration::from_secs(5),
            ..Options::default()
        };
        let own: Vec<_> = streams.iter().map(|s| s[0].clone()).collect();
        let mut ranks = Vec::new();
        for (comm, streams) in Communicator::from_streams(&own, &options)?.into_iter().zip(streams) {
            let buffers = || {
                SIZES
                    .iter()
                    .map(|n| streams[0].alloc_zeros::<f16>(*n))
                    .collect::<Result<Vec<_>, _>>()
            };
            let (inputs, outputs) = (buffers()?, buffers()?);
            ranks.push(Rank {
                comm,
                streams: streams.clone(),
                inputs,
                outputs,
            });
        }
        Ok(Self(ranks))
    }

    /// Fresh inputs, poisoned outputs, everything at rest.
    fn refill(&mut self, salt: usize) -> Done {
        for (r, rank) in self.0.iter_mut().enumerate() {
            for (i, n) in SIZES.into_iter().enumerate() {
                let fresh: Vec<f16> = (0..n).map(|at| value(r, at, salt + i)).collect();
                rank.streams[0].memcpy_htod(&fresh, &mut rank.inputs[i])?;
                rank.streams[0].memcpy_htod(&vec![f16::NAN; n], &mut rank.outputs[i])?;
            }
            rank.streams[0].synchronize()?;
        }
        Ok(())
    }

    /// Waits, then compares the outputs of these sizes.
    fn right(&self, salt: usize, which: &[usize]) -> Done {
        let world = self.0.len();
        for rank in &self.0 {
            for stream in &rank.streams {
                stream.synchronize()?;
            }
            rank.comm.check()?;
        }
        for (r, rank) in self.0.iter().enumerate() {
            for &i in which {
                let got = rank.streams[0].clone_dtoh(&rank.outputs[i])?;
                for (at, got) in got.iter().enumerate() {
                    let want: f32 = (0..world).map(|q| value(q, at, salt + i).to_f32()).sum();
                    if got.to_f32() != want {
                        return Err(format!("rank {r}, {} elements: {got} at {at}, not {want}", SIZES[i]).into());
                    }
                }
            }
        }
        Ok(())
    }

    /// Captures on each rank what `body` enqueues.
    fn capture(&self, stream: usize, body: impl Fn(&Rank) -> Done) -> Done<Vec<CudaGraph>> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = |rank: &Rank| {
            rank.streams[stream].begin_capture(mode)?;
            let enqueued = body(rank);
            let graph = rank.streams[stream].end_capture(flags)?;
            enqueued?;
            Ok(graph.ok_or("the capture was empty")?)
        };
        self.0.iter().map(graph).collect()
    }

    fn eager(&self, stream: usize, size: usize) -> Done {
        self.0.iter().try_for_each(|rank| Ok(rank.call(stream, size)?))
    }
}

impl Rank {
    fn call(&self, stream: usize, size: usize) -> Result<(), CommError> {
        let stream = &self.streams[stream];
        let (from, _read) = self.inputs[size].device_ptr(stream);
        let (to, _written) = self.outputs[size].device_ptr(stream);
        let (count, handle) = (SIZES[size], stream.cu_stream().cast());
        // SAFETY: both buffers hold `count` elements on this GPU and live as long as the rank; so do its streams.
        unsafe {
            self.comm
                .all_reduce_raw(from, to, count, Dtype::F16, ReduceOp::Sum, handle)
        }
    }
}

fn replay(graphs: &[CudaGraph]) -> Done {
    graphs.iter().try_for_each(|g| Ok(g.launch()?))
}

/// One size after the other in one graph, captured on the communicator's own stream or another, replayed many times.
fn sizes_in_one_graph(group: &mut Group, stream: usize) -> Done {
    let graphs = group.capture(stream, |rank| {
        (0..SIZES.len()).try_for_each(|i| Ok(rank.call(stream, i)?))
    })?;
    for round in 0..ROUNDS {
        group.refill(round)?;
        replay(&graphs)?;
        group.right(round, &[0, 1, 2, 3])?;
    }
    Ok(())
}

/// Two graphs and eager calls in turns on one stream, without a wait between them.
fn graphs_between_eager_calls(group: &mut Group) -> Done {
    let first = group.capture(0, |rank| Ok(rank.call(0, 0)?))?;
    let second = group.capture(0, |rank| {
        rank.call(0, 1)?;
        Ok(rank.call(0, 2)?)
    })?;
    for round in 0..ROUNDS {
        group.refill(round)?;
        for _ in 0..3 {
            replay(&first)?;
            group.eager(0, 3)?;
            replay(&second)?;
            group.eager(0, 1)?;
        }
        group.right(round, &[0, 1, 2, 3])?;
    }
    Ok(())
}

/// Calls on two branches of one capture.
fn branches_of_one_capture(group: &mut Group) -> Done {
    let graphs = group.capture(1, |rank| {
        rank.call(1, 0)?;
        rank.streams[2].join(&rank.streams[1])?;
        rank.call(2, 1)?;
        rank.call(1, 2)?;
        rank.call(2, 3)?;
        Ok(rank.streams[1].join(&rank.streams[2])?)
    })?;
    for round in 0..ROUNDS {
        group.refill(round)?;
        replay(&graphs)?;
        group.right(round, &[0, 1, 2, 3])?;
    }
    Ok(())
}

/// Eager calls on three streams that nothing else orders.
fn eager_calls_on_three_streams(group: &mut Group) -> Done {
    for round in 0..ROUNDS {
        group.refill(round)?;
        for call in 0..12 {
            group.eager(call % 3, call % SIZES.len())?;
        }
        group.right(round, &[0, 1, 2, 3])?;
    }
    Ok(())
}

/// What cannot be ordered is refused, and what comes after works.
fn a_call_that_cannot_follow_is_refused(group: &mut Group) -> Done {
    group.refill(1)?;
    group.eager(1, 0)?;
    group.capture(1, |rank| match rank.call(2, 1) {
        Err(CommError::Order { .. }) => Ok(rank.call(1, 1)?),
        other => Err(format!("a call beside the capture of the last call's stream gave {other:?}").into()),
    })?;
    group.eager(2, 1)?;
    group.right(1, &[0, 1])
}

/// Two groups, on the same GPUs or on others, replayed side by side.
fn two_groups_at_once(one: &mut Group, other: &mut Group) -> Done {
    let all = |rank: &Rank| (0..SIZES.len()).try_for_each(|i| Ok(rank.call(0, i)?));
    let (a, b) = (one.capture(0, all)?, other.capture(0, all)?);
    for round in 0..ROUNDS {
        one.refill(round)?;
        other.refill(round + 3)?;
        for _ in 0..4 {
            replay(&a)?;
            replay(&b)?;
            one.eager(0, 1)?;
            other.eager(0, 2)?;
        }
        one.right(round, &[0, 1, 2, 3])?;
        other.right(round + 3, &[0, 1, 2, 3])?;
    }
    Ok(())
}

/// The cases in a random order until the time is up, two communicators alive; one of them is built anew now and then.
fn mixed(devices: &[usize], time: Duration, group: &mut Group) -> Done<String> {
    let (since, mut state, mut rounds, mut rebuilt) = (Instant::now(), 0x9e37_79b9_7f4a_7c15_u64, 0, 0);
    let mut second = Group::new(devices)?;
    while since.elapsed() < time {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = |error| format!("round {rounds}: {error}");
        match state % 32 {
            0 => {
                second = Group::new(devices)?;
                rebuilt += 1;
            }
            1..6 => sizes_in_one_graph(group, (state >> 8) as usize % 3).map_err(at)?,
            6..12 => graphs_between_eager_calls(&mut second).map_err(at)?,
            12..18 => branches_of_one_capture(group).map_err(at)?,
            18..24 => eager_calls_on_three_streams(&mut second).map_err(at)?,
            24..26 => a_call_that_cannot_follow_is_refused(group).map_err(at)?,
            _ => two_groups_at_once(group, &mut second).map_err(at)?,
        }
        rounds += 1;
    }
    let seconds = since.elapsed().as_secs();
    Ok(format!(
        "right, {rounds} rounds in {seconds} s, {rebuilt} communicators built anew"
    ))
}

fn run(devices: &[usize], time: Duration) -> Done<bool> {
    // Asked first: without a driver this is an error with a reason, where cudarc would panic.
    probe()?;
    let mut group = Group::new(devices)?;
    let mut table = Vec::new();
    let mut say = |case: &str, done: Done| {
        let said = done.as_ref().map_or_else(ToString::to_string, |()| "right".to_owned());
        table.push((done.is_ok(), format!("{case:<48} {said}")));
    };
    say("four sizes in a graph, own stream", sizes_in_one_graph(&mut group, 0));
    say(
        "four sizes in a graph, another stream",
        sizes_in_one_graph(&mut group, 1),
    );
    say("two graphs between eager calls", graphs_between_eager_calls(&mut group));
    say("two branches of one capture", branches_of_one_capture(&mut group));
    say("eager calls on three streams", eager_calls_on_three_streams(&mut group));
    say(
        "a call that cannot follow",
        a_call_that_cannot_follow_is_refused(&mut group),
    );
    {
        let mut second = Group::new(devices)?;
        say(
            "two communicators on the same GPUs",
            two_groups_at_once(&mut group, &mut second),
        );
    }
    say(
        "the first one, after the second is gone",
        sizes_in_one_graph(&mut group, 0),
    );
    let halves = match *devices {
        [a, b] if a != b => (vec![a, a], vec![b, b]),
        _ if devices.len() >= 4 => {
            let (left, right) = devices.split_at(devices.len() / 2);
            (left.to_vec(), right.to_vec())
        }
        _ => (Vec::new(), Vec::new()),
    };
    if !halves.0.is_empty() {
        let both = Group::new(&halves.0).and_then(|left| Ok((left, Group::new(&halves.1)?)));
        let done = both.and_then(|(mut left, mut right)| two_groups_at_once(&mut left, &mut right));
        say("two groups side by side", done);
    }
    if !time.is_zero() {
        let mixed = mixed(devices, time, &mut group);
        let said = mixed.as_ref().map_or_else(ToString::to_string, Clone::clone);
        table.push((mixed.is_ok(), format!("{:<48} {said}", "all of it mixed")));
    }
    // In any order, one rank after the other.
    group.0.reverse();
    group.0.pop();
    drop(group);
    for (_, line) in &table {
        println!("{line}");
    }
    Ok(table.iter().all(|(right, _)| *right))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let named = words.first().map_or("0,1", String::as_str);
    let devices: Result<Vec<usize>, _> = named.split(',').map(str::parse).collect();
    let seconds = words.get(1).map_or(Ok(0), |s| s.parse());
    let outcome = match (devices, seconds) {
        (Ok(devices), Ok(seconds)) => run(&devices, Duration::from_secs(seconds)),
        (Err(error), _) | (_, Err(error)) => Err(format!("{error}: graph_matrix 0,1 [SECONDS]").into()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
