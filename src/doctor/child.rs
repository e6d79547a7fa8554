//! A verdict in a process of its own, which is killed when it does not end: a kernel that hangs cannot be stopped otherwise.
//!
//! It speaks lines: `from to write read lines detail…`. Start at [`run`]; the child's side is [`lines`].

use super::verdict::{PairReport, Verdict};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a child prints: a line a report.
pub fn lines(reports: &[PairReport]) -> String {
    let mut out = String::new();
    for r in reports {
        let detail = r.detail.join("; ").replace(['\n', '\t'], " ");
        out.push_str(&format!(
            "{}\t{}\t{}\t{}\t{}\t{detail}\n",
            r.from,
            r.to,
            r.write.name(),
            r.read.name(),
            r.lines.name()
        ));
    }
    out
}

/// The reports in what a child printed; lines of other origin are skipped.
pub fn parse(text: &str) -> Vec<PairReport> {
    let report = |line: &str| {
        let mut parts = line.splitn(6, '\t');
        let mut next = || parts.next();
        Some(PairReport {
            from: next()?.parse().ok()?,
            to: next()?.parse().ok()?,
            write: Verdict::from_name(next()?)?,
            read: Verdict::from_name(next()?)?,
            lines: Verdict::from_name(next()?)?,
            detail: next()?.split("; ").map(str::to_owned).collect(),
        })
    };
    text.lines().filter_map(report).collect()
}

/// What came of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tested {
    /// Both directions.
    pub reports: Vec<PairReport>,
    /// The kernels spoke, or hung. A child that died says nothing that should be kept.
    pub conclusive: bool,
}

/// Runs `command`, which prints the verdicts on `ends`, for at most `deadline`. A child that hangs is killed and both
/// directions are hangs; one that dies gives refusals with its last words.
pub fn run(mut command: Command, ends: [usize; 2], deadline: Duration) -> Tested {
    let both = |verdict: Verdict, words: String| Tested {
        conclusive: verdict == Verdict::Hang,
        reports: [(ends[0], ends[1]), (ends[1], ends[0])]
            .map(|(from, to)| PairReport {
                from,
                to,
                write: verdict.clone(),
                read: Verdict::NotRun,
                lines: Verdict::NotRun,
                detail: vec![words.clone()],
            })
            .to_vec(),
    };
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(e) => {
            return both(
                Verdict::Refused(e.to_string()),
                format!("the test process did not start: {e}"),
            );
        }
    };
    // Read beside the wait: a full pipe would stop the child.
    let reader = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(pipe) = pipe {
                let _ = pipe.take(1 << 20).read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = reader(child.stdout.take().map(|p| Box::new(p) as Box<dyn Read + Send>));
    let err = reader(child.stderr.take().map(|p| Box::new(p) as Box<dyn Read + Send>));
    let end = Instant::now() + deadline;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            _ => {
                // A process stuck in the driver may not even die; it is not waited for.
                let _ = child.kill();
                break None;
            }
        }
    };
    let Some(status) = status else {
        return both(
            Verdict::Hang,
            format!("the test process did not end within {deadline:?} and was killed"),
        );
    };
    let reports = parse(&out.join().unwrap_or_default());
    let complete = reports.len() == 2 && reports.iter().all(|r| ends.contains(&r.from) && ends.contains(&r.to));
    if complete {
        return Tested {
            reports,
            conclusive: true,
        };
    }
    let words = err.join().unwrap_or_default();
    let words = words.lines().last().unwrap_or("no words").to_owned();
    both(
        Verdict::Refused(words.clone()),
        format!("the test process ended with {status}: {words}"),
    )
}
