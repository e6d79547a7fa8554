//! What `plan --svg`, `plan --dot` and `simulate` show.

#![cfg(all(feature = "cli", feature = "host-executor"))]

#[allow(dead_code, reason = "shared with tests that use more of it")]
mod cli_support;

use cli_support::run;

fn json(line: &[&str]) -> serde_json::Value {
    let ran = run(&[line, &["--json"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.document()
}

#[track_caller]
fn misused(line: &[&str], said: &[&str]) {
    let ran = run(line);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(said.iter().all(|s| ran.stderr.contains(s)), "{}", ran.stderr);
}

fn scratch(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()))
}

#[test]
fn plan_draws_the_machine_and_the_best_or_the_asked_schedule() {
    let (svg, dot) = (scratch("plan.svg"), scratch("plan.dot"));
    let (svg_path, dot_path) = (svg.to_str().expect("text"), dot.to_str().expect("text"));
    let plan = json(&[
        "plan",
        "cube-mesh-8",
        "--payload",
        "384KiB",
        "--svg",
        svg_path,
        "--dot",
        dot_path,
    ]);
    let best = plan["shortlist"][0]["schedule"].as_str().expect("a name");
    let drawn = std::fs::read_to_string(&svg).expect("written");
    assert!(drawn.starts_with("<svg") && drawn.contains(&format!("cube-mesh-8: {best}, ")));
    assert!(
        std::fs::read_to_string(&dot)
            .expect("written")
            .starts_with("digraph \"cube-mesh-8\"")
    );
    json(&["plan", "cube-mesh-8", "--svg", svg_path, "--draw", "ring"]);
    let drawn = std::fs::read_to_string(&svg).expect("written");
    assert!(drawn.contains("cube-mesh-8: ring, 8 chunks, 14 stages") && drawn.contains(">stage 13: "));
    for file in [svg, dot] {
        std::fs::remove_file(file).expect("there");
    }
}

#[test]
fn simulate_adds_up_and_names_the_most_loaded_link() {
    let found = json(&["simulate", "pcie-8", "--payload", "384KiB"]);
    let number = |at: &str| found[at].as_f64().expect("a number");
    let stages = found["stages"].as_array().expect("a list");
    let last = stages.last().expect("stages")["ends_us"].as_f64().expect("a number");
    let parts = last + number("barriers_us") + number("sums_us");
    assert!((number("predicted_us") - parts).abs() < 1e-6, "{found}");
    assert!(found["most_loaded"]["place"].as_str().is_some_and(|p| !p.is_empty()));
    let text = run(&["simulate", "pcie-8", "--payload", "5KiB", "--schedule", "ring"]);
    assert_eq!(text.code, 0);
    assert!(
        text.stdout.contains("stage 13: 8 transfers") && text.stdout.contains("most loaded: "),
        "{}",
        text.stdout
    );
}

#[test]
fn schedules_that_are_not_made_are_refused() {
    misused(
        &["simulate", "pix-pair", "--payload", "5KiB", "--schedule", "ring"],
        &["no schedule `ring`"],
    );
    misused(&["simulate", "pix-pair"], &["--payload"]);
    misused(
        &["plan", "pix-pair", "--svg", "x.svg", "--draw", "nonsense"],
        &["no schedule `nonsense`"],
    );
}

#[test]
fn a_machine_whose_peer_links_do_not_join_all_ranks_is_staged_and_says_so() {
    let halves = scratch("halves.ron");
    let text = r#"Topology(name: "halves", ranks: 4, links: [pair(0, 1, Pcie(Pix)), pair(2, 3, Pcie(Pix))])"#;
    std::fs::write(&halves, text).expect("written");
    let ran = run(&["plan", halves.to_str().expect("text")]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("4 ranks over host memory"), "{}", ran.stdout);
    assert!(ran.stderr.contains("staged through host memory"), "{}", ran.stderr);
    std::fs::remove_file(halves).expect("there");
}
