//! `floor`: what launches, copies and a word to a peer cost on the machine at hand. Start at [`run`].

use super::setting::Setting;
use crate::args::FloorArgs;
use crate::failure::{Failure, Outcome};
use crate::report::Output;
use crate::report::floor::FloorDocument;
use topoforge::device::{Launch, Sampling};
use topoforge::tune::Payloads;

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
    let exec = setting.executor();
    let floor = exec
        .floor(payloads.bytes(), &launches, &Sampling::default())
        .map_err(Failure::work)?;
    let document = FloorDocument::of(exec.device(), &floor);
    output.emit(&document)?;
    Ok(Outcome::Done)
}
