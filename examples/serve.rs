//! All-reduce over GPUs of one process: `cargo run --release --example serve -- 0,1`.
//!
//! With one GPU named twice and a family, ranks share it: `-- 0,0 nvlink-pair`.

use cudarc::driver::CudaContext;
use half::f16;
use std::error::Error;
use topoforge::comm::{Communicator, Options, ReduceOp, group};
use topoforge::probe::probe;
use topoforge::tune::Payloads;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let devices: Vec<usize> = arguments
        .next()
        .unwrap_or("0,1".into())
        .split(',')
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    // Asked first: without a driver this is an error with a reason, where cudarc would panic.
    probe()?;
    let mut streams = Vec::new();
    for device in &devices {
        let context = CudaContext::new(*device)?;
        // SAFETY: each slice below is used on one stream only, so nothing depends on the events that would be recorded;
        // in captured graphs they would be errors.
        unsafe { context.disable_event_tracking() };
        streams.push(context.new_stream()?);
    }
    let options = Options {
        family: arguments.next(),
        payloads: Payloads::from_bytes(&[5 << 10, 80 << 10])?,
        ..Options::default()
    };
    let communicators = Communicator::from_streams(&streams, &options)?;

    for elements in [2560, 1000, 333, 40_000, 1 << 20] {
        let input = |rank: usize| {
            (0..elements)
                .map(|i| f16::from_f32(((i * 7 + rank * 13) % 17) as f32 / 16.0))
                .collect::<Vec<_>>()
        };
        let inputs: Vec<Vec<f16>> = (0..devices.len()).map(input).collect();
        let mut buffers = Vec::new();
        for (rank, stream) in streams.iter().enumerate() {
            buffers.push(stream.clone_htod(&inputs[rank])?);
        }
        group(|| {
            for (communicator, buffer) in communicators.iter().zip(&mut buffers) {
                communicator.all_reduce_in_place(buffer, &ReduceOp::Sum)?;
            }
            Ok(())
        })?;
        for (rank, (stream, buffer)) in streams.iter().zip(&buffers).enumerate() {
            let got = stream.clone_dtoh(buffer)?;
            communicators[rank].check()?;
            for i in 0..elements {
                // Sixteenths below 64 are exact in f16, in any order.
                let want: f32 = inputs.iter().map(|x| x[i].to_f32()).sum();
                if got[i].to_f32() != want {
                    return Err(format!("{elements} elements: rank {rank} has {} at {i}, not {want}", got[i]).into());
                }
            }
        }
        println!("{elements} elements: right on all {} ranks", devices.len());
    }
    println!("\n{}", communicators[0].explain());
    Ok(())
}
