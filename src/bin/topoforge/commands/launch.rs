//! `launch`: one `topoforge rank` a rank on this machine, with the environment that torchrun would give.
//!
//! It waits for all; a rank that outlives a failed one by too much is killed, and only what it started. Start at [`run`].

use crate::args::LaunchArgs;
use crate::failure::{Failure, Outcome};
use crate::report::Output;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Ends whatever still runs.
struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended already refuses.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `topoforge launch`
pub fn run(args: &LaunchArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let program = std::env::current_exe().map_err(|e| Failure::work(format!("cannot find myself: {e}")))?;
    let run = format!("{}-{}", std::process::id(), args.port);
    let mut ranks = Ranks(Vec::new());
    let world = usize::from(args.processes);
    for rank in 0..world {
        let mut command = Command::new(&program);
        command.arg("rank").args(&args.rest);
        for (name, value) in [("RANK", rank), ("LOCAL_RANK", rank), ("GROUP_RANK", 0)] {
            command.env(name, value.to_string());
        }
        for name in ["WORLD_SIZE", "LOCAL_WORLD_SIZE"] {
            command.env(name, world.to_string());
        }
        command.env("MASTER_ADDR", "127.0.0.1");
        command.env("MASTER_PORT", args.port.to_string());
        command.env("TORCHELASTIC_RUN_ID", &run);
        if let Some(gpus) = &args.gpus {
            let gpu = gpus
                .get(rank % gpus.len().max(1))
                .ok_or_else(|| Failure::usage("--gpus names no GPU"))?;
            if args.masked {
                command.env("CUDA_VISIBLE_DEVICES", gpu.to_string());
            } else {
                command.arg("--gpu").arg(gpu.to_string());
            }
        }
        let child = command
            .spawn()
            .map_err(|e| Failure::work(format!("rank {rank} does not start: {e}")))?;
        output.note(&format!("rank {rank} is process {}", child.id()));
        ranks.0.push(child);
    }
    wait(&mut ranks, Duration::from_secs_f64(args.grace))
}

/// Until all have ended; once one has failed, the others have so long to notice.
fn wait(ranks: &mut Ranks, grace: Duration) -> Result<Outcome, Failure> {
    let mut ended: Vec<Option<ExitStatus>> = vec![None; ranks.0.len()];
    let mut failed_at: Option<Instant> = None;
    while ended.iter().any(Option::is_none) {
        for (rank, child) in ranks.0.iter_mut().enumerate() {
            if ended[rank].is_none() {
                let status = child.try_wait();
                ended[rank] = status.map_err(|e| Failure::work(format!("waiting for rank {rank}: {e}")))?;
                if ended[rank].is_some_and(|s| !s.success()) {
                    failed_at.get_or_insert_with(Instant::now);
                }
            }
        }
        if failed_at.is_some_and(|at| at.elapsed() > grace) {
            let hanging = ended.iter().position(Option::is_none).unwrap_or(0);
            let text = format!(
                "rank {hanging} still runs {} s after another rank failed: killed",
                grace.as_secs()
            );
            return Ok(Outcome::Failed(text));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let bad = ended
        .iter()
        .enumerate()
        .filter(|(_, s)| s.is_some_and(|s| !s.success()));
    let names: Vec<String> = bad
        .map(|(rank, s)| format!("rank {rank}: {}", s.unwrap_or_default()))
        .collect();
    Ok(if names.is_empty() {
        Outcome::Done
    } else {
        Outcome::Failed(format!(
            "{} of {} ranks failed ({})",
            names.len(),
            ended.len(),
            names.join("; ")
        ))
    })
}
