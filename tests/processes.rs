//! Ranks as real processes on the processor: sums, kills at random moments, ranks that are missing, strangers.
//!
//! The processes are `topoforge rank`; the kernels are those of GPUs, compiled for the processor, over shared memory.
#![cfg(all(feature = "host-executor", feature = "cli"))]

use half::f16;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use topoforge::comm::bootstrap::{Gather, LocalSocket};
use topoforge::comm::{CommError, Communicator, JoinError, Options};
use topoforge::device::DeviceError;
use topoforge::registry::{Element, Partials, Registry};

const SOON: Duration = Duration::from_secs(30);
/// For a group that is left in peace: its ranks poll, and a test machine may have fewer processors than ranks.
const WHOLE: Duration = Duration::from_secs(120);
/// Groups that run at a time while ranks are killed.
const WORKERS: usize = 8;

fn id(salt: &str) -> [u8; 128] {
    let mut id = [9; 128];
    let text = format!("{salt} {}", std::process::id());
    id[..text.len()].copy_from_slice(text.as_bytes());
    id
}

/// A rank in a process of its own.
fn rank(run: &str, rank: usize, world: usize, line: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_topoforge"))
        .arg("rank")
        .arg("--host")
        .args(line)
        .env("RANK", rank.to_string())
        .env("LOCAL_RANK", rank.to_string())
        .env("WORLD_SIZE", world.to_string())
        .env("LOCAL_WORLD_SIZE", world.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", "29999")
        .env("TORCHELASTIC_RUN_ID", format!("{run} {}", std::process::id()))
        .env_remove("GROUP_RANK")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts")
}

/// Its end, or a panic with its rank once the time is over: then it is killed.
fn end(mut child: Child, rank: usize, bound: Duration) -> Output {
    let since = Instant::now();
    while child.try_wait().expect("waits").is_none() {
        if since.elapsed() > bound {
            child.kill().expect("killed");
            let said = child.wait_with_output().expect("waits");
            panic!("rank {rank} hangs: {}", String::from_utf8_lossy(&said.stderr));
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().expect("waits")
}

fn whole_group(run: &str, world: usize, line: &[&str]) -> Vec<Output> {
    let ranks: Vec<Child> = (0..world).map(|r| rank(run, r, world, line)).collect();
    ranks.into_iter().enumerate().map(|(r, c)| end(c, r, WHOLE)).collect()
}

fn assert_right(outputs: &[Output]) {
    for (rank, output) in outputs.iter().enumerate() {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "rank {rank}: {said}");
    }
}

/// Small, seeded, good enough for moments.
fn random(state: &mut u64) -> f64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 40) as f64 / (1_u64 << 24) as f64
}

#[test]
fn sums_are_right_between_real_processes() {
    for (family, world) in [("nvlink-pair", 2), ("nvlink-quad", 4), ("no-peer-pair", 2)] {
        assert_right(&whole_group(family, world, &["--family", family, "--calls", "24"]));
    }
}

#[test]
fn types_take_turns_and_one_without_kernels_is_told() {
    let has = |element: &&Element| {
        let registry = Registry::builtin();
        let family = registry.family("nvlink-pair").expect("built in");
        family.variants.iter().any(|v| v.element == **element)
    };
    let (built, others): (Vec<&Element>, Vec<&Element>) = Element::ALL.iter().partition(has);
    let names: Vec<&str> = built.iter().map(|e| e.name()).collect();
    let line = |types: &str| {
        let line = ["--family", "nvlink-pair", "--calls", "12", "--dtype", types];
        whole_group(&format!("types {types}"), 2, &line)
    };
    assert_right(&line(&names.join(",")));
    for other in others {
        for output in line(other.name()) {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.code() == Some(1) && said.contains("a type without routes"),
                "{other}: {said}"
            );
        }
    }
}

#[test]
fn launch_starts_all_ranks_and_fails_when_one_does() {
    let launch = |family: &str| {
        let line = [
            "launch", "-n", "2", "--port", "31001", "--", "--host", "--family", family, "--calls", "6",
        ];
        let mut command = Command::new(env!("CARGO_BIN_EXE_topoforge"));
        command.args(line).output().expect("the command starts")
    };
    let good = launch("nvlink-pair");
    let text = String::from_utf8_lossy(&good.stdout);
    assert!(
        good.status.success() && text.matches("every sum right").count() == 2,
        "{text}"
    );
    let bad = launch("nvlink-quad");
    let text = String::from_utf8_lossy(&bad.stderr);
    assert!(
        bad.status.code() == Some(1) && text.contains("has 4 ranks, but 2 joined"),
        "{text}"
    );
}

#[test]
fn whoever_survives_a_kill_names_the_rank_whenever_it_was() {
    // As many as fit into a minute of a busy machine.
    let done = kill(200, Duration::from_secs(40));
    assert!(done >= 20, "{done} kills");
}

#[test]
#[ignore = "minutes"]
fn a_thousand_kills_are_named() {
    assert_eq!(kill(1000, Duration::from_secs(3600)), 1000);
}

/// Kills a rank of a group at a seeded moment, so often, and checks the survivors. Groups of two and four, some at a time,
/// since they mostly wait.
fn kill(kills: usize, budget: Duration) -> usize {
    let since = Instant::now();
    let quick = ["--family", "nvlink-pair", "--calls", "60"];
    assert_right(&whole_group("how long", 2, &quick));
    let whole = since.elapsed().as_secs_f64();
    let worker = move |worker: usize| {
        let mut state = 77 + worker as u64;
        let mut done = 0;
        for number in (worker..kills).step_by(WORKERS) {
            if since.elapsed() > budget {
                break;
            }
            let (family, world) = [("nvlink-pair", 2), ("nvlink-quad", 4)][usize::from(number % 8 > 5)];
            let run = format!("kill {number}");
            // Most serve when they are hit; every fourth group is made and left again all the time.
            let (calls, cycles) = if number % 4 == 3 {
                ("3", "1000000")
            } else {
                ("100000000", "1")
            };
            let line = [
                "--family",
                family,
                "--calls",
                calls,
                "--cycles",
                cycles,
                "--deadline",
                "5",
                "--patience",
                "5",
            ];
            let mut ranks: Vec<Option<Child>> = (0..world).map(|r| Some(rank(&run, r, world, &line))).collect();
            let victim = (random(&mut state) * world as f64) as usize;
            let moment = random(&mut state) * whole * 2.0;
            thread::sleep(Duration::from_secs_f64(moment));
            let mut killed = ranks[victim].take().expect("there");
            killed.kill().expect("killed");
            killed.wait().expect("waits");
            for (survivor, child) in ranks.into_iter().enumerate() {
                let Some(child) = child else { continue };
                let output = end(child, survivor, SOON);
                let said = String::from_utf8_lossy(&output.stderr);
                // Whoever had left the group before the death, in order, knows only who does not come to the next one.
                let between = cycles != "1" && said.contains("did not come within") && said.contains("(joining");
                let named = between || said.contains(&format!("rank {victim}"));
                assert!(
                    output.status.code() == Some(1) && named && !said.contains("panicked"),
                    "{number}: rank {victim} of {world} killed after {moment:.3} s, rank {survivor} says {said}"
                );
            }
            done += 1;
        }
        done
    };
    let workers: Vec<_> = (0..WORKERS).map(|w| thread::spawn(move || worker(w))).collect();
    let done = workers.into_iter().map(|w| w.join().expect("every survivor did")).sum();
    assert_right(&whole_group(
        "afterwards",
        2,
        &["--family", "nvlink-pair", "--calls", "6"],
    ));
    done
}

#[test]
fn a_rank_that_stops_for_good_is_named_by_the_deadline() {
    let line = [
        "--family",
        "nvlink-pair",
        "--calls",
        "100000000",
        "--deadline",
        "1",
        "--patience",
        "2",
    ];
    let ranks = [0, 1].map(|r| rank("stops", r, 2, &line));
    thread::sleep(Duration::from_millis(1500));
    let stop = |signal: &str| {
        let mut command = Command::new("kill");
        command.arg(signal).arg(ranks[1].id().to_string());
        assert!(command.status().expect("kill is there").success());
    };
    stop("-STOP");
    let [survivor, mut stopped] = {
        let [a, b] = ranks;
        [a, b]
    };
    let output = end(survivor, 0, SOON);
    stopped.kill().expect("killed");
    stopped.wait().expect("waits");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("rank 1"), "{said}");
}

#[test]
fn a_rank_that_never_starts_is_named_by_those_that_did() {
    let line = ["--family", "nvlink-quad", "--patience", "0.5"];
    let came: Vec<(usize, Child)> = [0, 1, 3].map(|r| (r, rank("missing", r, 4, &line))).into();
    for (rank, child) in came {
        let output = end(child, rank, SOON);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(1) && said.contains("rank 2 did not come"),
            "rank {rank}: {said}"
        );
    }
}

#[test]
fn late_ranks_are_waited_for() {
    let line = ["--family", "nvlink-pair", "--calls", "6", "--patience", "15"];
    let first = rank("late", 1, 2, &line);
    thread::sleep(Duration::from_secs(2));
    let second = rank("late", 0, 2, &line);
    assert_right(&[end(second, 0, SOON), end(first, 1, SOON)]);
}

/// Ranks as threads of this process: they know nothing of each other but an id.
fn threads<T: Send + 'static>(
    salt: &str,
    world: usize,
    work: impl Fn(usize, LocalSocket) -> T + Send + Clone + 'static,
) -> Vec<T> {
    let id = id(salt);
    let rank = |rank| {
        let work = work.clone();
        thread::spawn(move || work(rank, LocalSocket::join(&id, rank, world, SOON).expect("joined")))
    };
    let all: Vec<_> = (0..world).map(rank).collect();
    all.into_iter().map(|t| t.join().expect("no panic")).collect()
}

fn brief() -> Options {
    Options {
        deadline: Duration::from_secs(2),
        patience: Duration::from_secs(5),
        ..Options::default()
    }
}

#[test]
fn another_binary_or_other_options_are_refused_with_both_hashes() {
    let errors = threads("binary", 2, |rank, mut socket| {
        let mut options = brief();
        if rank == 1 {
            options.registry = Registry::builtin().with(topoforge::BUILTIN);
        }
        Communicator::on_host_from_bootstrap("nvlink-pair", &mut socket, &options)
            .err()
            .map(|e| e.to_string())
    });
    let kernels = Registry::builtin().kernel_set();
    for error in errors {
        let error = error.expect("refused");
        let both = format!("rank 0 has {kernels}, rank 1 {kernels}+{kernels}");
        assert!(error.contains("another binary") && error.contains(&both), "{error}");
    }
    let errors = threads("options", 2, |rank, mut socket| {
        let mut options = brief();
        if rank == 0 {
            options.partials = Partials::F32;
        }
        Communicator::on_host_from_bootstrap("nvlink-pair", &mut socket, &options)
            .err()
            .map(|e| e.to_string())
    });
    for error in errors {
        let error = error.expect("refused");
        assert!(
            error.contains("other options") && error.contains("partials f32"),
            "{error}"
        );
    }
}

#[test]
fn another_table_of_routes_is_refused_with_both_hashes() {
    let file = |rank: usize| std::env::temp_dir().join(format!("topoforge-{}-{rank}.ron", std::process::id()));
    for rank in [0, 1] {
        let text = format!(
            r#"Routes(format: 2, identity: Identity(kernel_set: "k", driver: "driver {rank}", nccl: None, gpus: ["a", "b"],
            layout: "0000000000000000", element: "f16", partials: "f16", family: "nvlink-pair", placement: [0, 1]), routes: [])"#
        );
        std::fs::write(file(rank), text).expect("written");
    }
    let errors = threads("table", 2, move |rank, mut socket| {
        let options = Options {
            routes: Some(file(rank)),
            ..brief()
        };
        let made = Communicator::on_host_from_bootstrap("nvlink-pair", &mut socket, &options);
        made.err().map(|e| e.to_string())
    });
    for rank in [0, 1] {
        std::fs::remove_file(file(rank)).expect("removed");
    }
    let error = errors[0].clone().expect("refused");
    assert_eq!(errors[1].as_ref(), Some(&error));
    let hashes: Vec<&str> = error
        .split_whitespace()
        .map(|w| w.trim_end_matches(','))
        .filter(|w| w.len() == 16)
        .collect();
    assert!(error.contains("rank 1 has another table of routes"), "{error}");
    assert!(hashes.len() == 2 && hashes[0] != hashes[1], "{error}");
}

#[test]
fn groups_at_once_do_not_meet_and_a_new_one_follows_a_dead_one() {
    let groups: Vec<_> = (0..3)
        .map(|group| {
            thread::spawn(move || {
                for round in 0..3 {
                    let sums = threads(&format!("group {group} {round}"), 2, move |rank, mut socket| {
                        let made = Communicator::on_host_from_bootstrap("nvlink-pair", &mut socket, &brief());
                        let communicator = made.expect("set up");
                        let mut values = vec![f16::from_f32((rank + 2 * group) as f32); 100];
                        communicator.all_reduce_slice(&mut values).expect("summed");
                        values[99].to_f32()
                    });
                    assert_eq!(sums, [(4 * group + 1) as f32; 2], "group {group}");
                }
            })
        })
        .collect();
    groups.into_iter().for_each(|g| g.join().expect("no group fails"));
}

#[test]
fn whoever_left_in_order_is_named_by_the_next_call() {
    let errors = threads("leaves", 2, |rank, mut socket| {
        let made = Communicator::on_host_from_bootstrap("nvlink-pair", &mut socket, &brief());
        let communicator = made.expect("set up");
        let mut values = vec![f16::ONE; 10];
        communicator.all_reduce_slice(&mut values).expect("summed");
        if rank == 1 {
            return None;
        }
        thread::sleep(Duration::from_millis(300));
        communicator.check().expect("what was called has ended well");
        communicator.all_reduce_slice(&mut values).err()
    });
    assert!(
        matches!(
            &errors[0],
            Some(CommError::Device(DeviceError::Lost { rank: Some(1), .. }))
        ),
        "{errors:?}"
    );
}

#[test]
fn seconds_between_ranks_are_no_error() {
    let sums = threads("skew", 2, |rank, mut socket| {
        let options = Options {
            deadline: Duration::from_secs(10),
            ..brief()
        };
        let made = Communicator::on_host_from_bootstrap("nvlink-pair", &mut socket, &options);
        let communicator = made.expect("set up");
        let mut values = vec![f16::ONE; 10];
        for _ in 0..3 {
            if rank == 1 {
                thread::sleep(Duration::from_millis(700));
            }
            communicator.all_reduce_slice(&mut values).expect("summed");
        }
        values[0].to_f32()
    });
    assert_eq!(sums, [8.0; 2]);
}

#[test]
fn the_callers_own_all_gather_joins_ranks() {
    let (to_one, from_zero) = std::sync::mpsc::channel::<Vec<u8>>();
    let (to_zero, from_one) = std::sync::mpsc::channel::<Vec<u8>>();
    let rank = |rank: usize, to: std::sync::mpsc::Sender<Vec<u8>>, from: std::sync::mpsc::Receiver<Vec<u8>>| {
        thread::spawn(move || {
            let mut gather = Gather::new(rank, 2, move |mine: &[u8]| {
                to.send(mine.to_vec()).map_err(|e| e.to_string())?;
                let theirs = from.recv_timeout(SOON).map_err(|e| e.to_string())?;
                let mine = mine.to_vec();
                Ok(if rank == 0 {
                    vec![mine, theirs]
                } else {
                    vec![theirs, mine]
                })
            });
            let made = Communicator::on_host_from_bootstrap("nvlink-pair", &mut gather, &brief());
            let communicator = made.expect("set up");
            let mut values = vec![f16::from_f32(rank as f32); 7];
            communicator.all_reduce_slice(&mut values).expect("summed");
            values[6].to_f32()
        })
    };
    let ranks = [rank(0, to_one, from_one), rank(1, to_zero, from_zero)];
    assert_eq!(ranks.map(|r| r.join().expect("no panic")), [1.0; 2]);
}

#[test]
fn a_world_of_another_size_than_the_family_is_named() {
    let errors = threads("size", 3, |_, mut socket| {
        Communicator::on_host_from_bootstrap("nvlink-pair", &mut socket, &brief())
            .err()
            .map(|e| e.to_string())
    });
    for error in errors {
        let error = error.expect("refused");
        assert!(error.contains("2 ranks, but 3 joined"), "{error}");
    }
    let unknown: Vec<Option<CommError>> = threads("unknown", 2, |_, mut socket| {
        Communicator::on_host_from_bootstrap("nvlink-pear", &mut socket, &brief()).err()
    });
    let told = |e: &Option<CommError>| {
        matches!(
            e,
            Some(CommError::NoFamily { .. } | CommError::Join(JoinError::GaveUp { .. }))
        )
    };
    assert!(unknown.iter().all(told), "{unknown:?}");
}
