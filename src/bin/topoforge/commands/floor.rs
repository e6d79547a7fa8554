//! `floor`: what launches, copies and a word to a peer cost on the machine at hand. Start at [`run`].

use super::setting::Setting;
use crate::args::FloorArgs;
use crate::failure::{Failure, Outcome};
use crate::report::Output;
use crate::report::floor::FloorDocument;
use topoforge::device::floor::LaunchCost;
use topoforge::device::{Executor, Launch, Preparation, Sampling, Timed};
use topoforge::registry::{Protocol, Variant};
use topoforge::tune::Payloads;
use topoforge::tune::geometry::for_threads;

/// Threads of a block whose launch is timed.
const THREADS: u32 = 64;

/// `topoforge floor`
pub fn run(args: &FloorArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let payloads = args.payloads.clone().unwrap_or_else(Payloads::standard);
    let mut setting = Setting::open(&args.place, args.family.as_deref(), output)?;
    if !setting.device().timed {
        let why =
            "no floor: times mean nothing on the host and where ranks share a GPU; give --device cuda with two GPUs";
        return Err(Failure::work(why));
    }
    let launches = Launch::ALL;
    let classes = setting.edge_classes();
    let family = setting.family;
    let exec = setting.executor();
    let floor = exec
        .floor(payloads.bytes(), &launches, &Sampling::default())
        .map_err(Failure::work)?;
    let served = family.variants.iter().find(|v| v.protocol != Protocol::Pull);
    let mut costs = Vec::new();
    for (launch, _) in &floor.nodes {
        let cost = served.map(|variant| launch_cost(exec, variant, *launch, payloads.bytes()[0]));
        match cost {
            Some(Ok(cost)) => costs.push((*launch, cost)),
            Some(Err(error)) => output.note(&format!("no cost of a {} launch: {error}", launch.name())),
            None => {}
        }
    }
    let document = FloorDocument::of(exec.device(), &floor, &costs, &classes);
    output.emit(&document)?;
    Ok(Outcome::Done)
}

/// What a served launch of `variant` costs its thread.
pub(super) fn launch_cost(
    exec: &mut dyn Executor,
    variant: &'static Variant,
    launch: Launch,
    bytes: u64,
) -> Result<LaunchCost, topoforge::device::DeviceError> {
    let preparation = Preparation {
        max_bytes: bytes,
        threads: THREADS,
        fault: None,
    };
    let prepared = exec.prepare(variant, &preparation)?;
    let most = exec.max_blocks(prepared, THREADS).map(|m| launch.most_blocks(m));
    let cost = most.and_then(|most| {
        exec.launch_cost(&Timed {
            collective: prepared,
            geometry: for_threads(variant, bytes, THREADS, most).launched(launch),
            bytes,
            in_place: false,
        })
    });
    exec.release(prepared);
    cost
}
