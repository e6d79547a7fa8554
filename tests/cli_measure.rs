//! Measuring commands without a GPU: what they report on the host executor, and what they refuse.

#![cfg(all(feature = "cli", feature = "host-executor"))]

mod cli_support;

use cli_support::run;
use serde_json::Value;

const SMALL: &[&str] = &["--device", "host", "--payloads", "64,270B"];

/// Runs with `--json` and expects success.
fn json(line: &[&str]) -> Value {
    let line = [line, &["--json"]].concat();
    let ran = run(&line);
    assert_eq!(ran.code, 0, "{line:?}: {}", ran.stderr);
    ran.document()
}

#[test]
fn a_soak_compares_every_word_and_its_planted_fault_is_seen() {
    for family in ["nvlink-pair", "nvlink-quad"] {
        let soak = [
            "soak",
            "--family",
            family,
            "--calls",
            "12",
            "--threads",
            "32",
            "--control",
        ];
        let report = json(&[&soak, SMALL].concat());
        let line = &report["lines"][0];
        let ranks = report["ranks"].as_u64().expect("a count");
        // Twelve calls in chains of four: 64, 270 and 64 bytes.
        assert_eq!(line["calls"], 12, "{report}");
        assert_eq!(line["words"], ranks * 4 * (32 + 135 + 32), "{report}");
        assert_eq!((&line["wrong_words"], &line["first_wrong"]), (&0.into(), &Value::Null));
        assert_eq!(line["planted_fault_seen"], true, "{report}");
        assert_eq!(report["failed"].as_array().map(Vec::len), Some(0), "{report}");
    }
}

#[test]
fn a_soak_knows_every_element_type_of_the_build() {
    let soak = |dtype, partials| {
        let line = [
            "soak",
            "--device",
            "host",
            "--family",
            "nvlink-pair",
            "--dtype",
            dtype,
            "--partials",
            partials,
        ];
        let rest = [
            "--variant",
            "all",
            "--calls",
            "8",
            "--threads",
            "32",
            "--payloads",
            "64,272B",
            "--control",
        ];
        [&line[..], &rest[..]].concat()
    };
    let known = [
        ("f16", cfg!(feature = "f16")),
        ("bf16", cfg!(feature = "bf16")),
        ("f32", cfg!(feature = "f32")),
    ];
    for (dtype, built) in known {
        if !built {
            let ran = run(&soak(dtype, "f32"));
            assert_eq!(ran.code, 2, "{dtype}: {}", ran.stderr);
            continue;
        }
        for partials in [dtype, "f32"] {
            let report = json(&soak(dtype, partials));
            let lines = report["lines"].as_array().expect("lines");
            assert!(lines.len() > 3, "{report}");
            let words = |bytes: u64| bytes / if dtype == "f32" { 4 } else { 2 };
            for line in lines {
                // Chains of four, of one size each, on two ranks.
                assert_eq!(line["words"], 2 * 4 * (words(64) + words(272)), "{line}");
                assert_eq!(
                    (&line["wrong_words"], &line["planted_fault_seen"]),
                    (&0.into(), &true.into()),
                    "{line}"
                );
            }
            if dtype != "f16" {
                let named = |l: &Value| l["variant"].as_str().is_some_and(|v| v.contains(&format!("/{dtype}-")));
                assert!(lines.iter().all(named), "{report}");
            }
        }
        let odd = run(&[&soak(dtype, dtype)[..], &["--payloads", "63B"]].concat());
        assert_eq!(odd.code, 2, "{}", odd.stderr);
    }
}

#[test]
fn a_soak_of_all_variants_has_a_line_each_and_unknown_ones_are_refused() {
    let soak = [
        "soak",
        "--family",
        "nvlink-pair",
        "--variant",
        "all",
        "--calls",
        "2",
        "--threads",
        "32",
    ];
    let report = json(&[&soak, SMALL].concat());
    assert!(report["lines"].as_array().map_or(0, Vec::len) > 3, "{report}");
    let ran = run(&["soak", "--device", "host", "--variant", "fastest"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("no variant `fastest`") && ran.stderr.contains("one-shot"),
        "{}",
        ran.stderr
    );
    for calls in ["0", "ten", "1.5M"] {
        let ran = run(&["soak", "--device", "host", "--calls", calls]);
        assert_eq!(ran.code, 2, "{calls}: {}", ran.stderr);
    }
}

#[test]
fn tuning_says_how_many_candidates_it_timed_and_where_its_time_went() {
    let report = json(&[&["tune", "--comparator", "none"], SMALL].concat());
    for row in report["rows"].as_array().expect("rows") {
        let candidates = row["candidates"].as_u64().expect("a count");
        // On the host four variants with geometries, peer reads in two, and no second look.
        assert!((1..=4 + 2).contains(&candidates), "{row}");
        assert_eq!(row["loaded"], Value::Null);
    }
    let took = &report["took"];
    let seconds = |key: &str| took[key].as_f64().expect("seconds");
    assert!(
        seconds("total_s") > 0.0 && seconds("own_s") <= seconds("total_s"),
        "{took}"
    );
    let phases: f64 = took["phases"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|p| p["s"].as_f64())
        .sum();
    assert!(phases <= seconds("total_s") + 0.001, "{took}");
}

#[test]
fn a_start_needs_gpus_and_a_table() {
    let ran = run(&["start", "--device", "host", "--routes", "no-such-routes.ron"]);
    assert!(
        ran.code == 2 && ran.stderr.contains("no-such-routes.ron"),
        "{}",
        ran.stderr
    );
    let ran = run(&["start", "--device", "host", "--routes", "Cargo.toml"]);
    assert!(ran.code == 2 && ran.stderr.contains("timed on GPUs"), "{}", ran.stderr);
}

#[test]
fn the_style_of_nccl_tests_has_its_columns_and_real_checks() {
    let bench = [
        "bench",
        "--device",
        "host",
        "--from",
        "64B",
        "--to",
        "64B",
        "--style",
        "nccl-tests",
    ];
    let report = json(&bench);
    assert_eq!(
        (&report["type"], &report["redop"], &report["wrong_words"]),
        (&"half".into(), &"sum".into(), &0.into())
    );
    let row = &report["rows"][0];
    assert_eq!((&row["bytes"], &row["count"]), (&64.into(), &32.into()));
    for place in ["out_of_place", "in_place"] {
        let cell = &row[place];
        let (us, algbw) = (
            cell["us"].as_f64().expect("a time"),
            cell["algbw"].as_f64().expect("a rate"),
        );
        assert!(
            (algbw - 64.0 / us / 1e3).abs() < 1e-9 && cell["busbw"] == cell["algbw"],
            "{cell}"
        );
    }
    let ran = run(&bench);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for part in [
        "out-of-place",
        "in-place",
        "algbw",
        "busbw",
        "#wrong",
        "redop",
        "EMULATION",
        "# Avg bus bandwidth",
        ": 0 OK",
    ] {
        assert!(ran.stdout.contains(part), "no {part} in\n{}", ran.stdout);
    }
    // Everything but rows is a comment, so that scripts for nccl-tests find the rows.
    let rows: Vec<&str> = ran.stdout.lines().filter(|l| !l.starts_with('#')).collect();
    assert_eq!(rows.len(), 1, "{}", ran.stdout);
    assert_eq!(rows[0].split_whitespace().count(), 13, "{}", rows[0]);
}

#[test]
fn an_output_folder_must_be_new_and_holds_a_file_a_rank() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-output");
    let _ = std::fs::remove_dir_all(&folder);
    let path = folder.display().to_string();
    let picture = folder.with_file_name("bench-output.svg").display().to_string();
    let bench = [
        "bench", "--device", "host", "--from", "64B", "--to", "64B", "--output", &path, "--svg", &picture,
    ];
    json(&bench);
    for rank in 0..2 {
        let text = std::fs::read_to_string(folder.join(format!("rank-{rank}.json"))).expect("a file a rank");
        let file: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            (&file["format"], &file["rank"], &file["emulation"]),
            (&1.into(), &rank.into(), &true.into())
        );
        let place = &file["rows"][0]["out_of_place"];
        assert!(place["samples_us"].as_array().is_some_and(|s| !s.is_empty()), "{file}");
        assert_eq!(
            (&place["wrong_words"], &place["words"]),
            (&0.into(), &(2 * 2 * 2 * 32).into())
        );
        let cold = &file["cold_selection"];
        assert!(
            cold["seconds"].as_f64() > Some(0.0) && cold["parts"].as_array().is_some_and(|p| !p.is_empty()),
            "{cold}"
        );
        // An emulation writes no routes, so there is nothing to start from.
        assert_eq!(file["cached_requalification"], Value::Null);
    }
    let drawn = std::fs::read_to_string(&picture).expect("a picture");
    assert!(drawn.starts_with("<svg") && drawn.contains("<polyline") && drawn.contains("microseconds a call"));
    let before = std::fs::read_dir(&folder).expect("there").count();
    let ran = run(&bench);
    assert!(ran.code == 2 && ran.stderr.contains("not empty"), "{}", ran.stderr);
    assert_eq!(std::fs::read_dir(&folder).expect("there").count(), before);
}

#[test]
fn groups_are_of_gpus() {
    let ran = run(&["bench", "--device", "host", "--groups", "pairs,full"]);
    assert!(
        ran.code == 2 && ran.stderr.contains("groups are of GPUs"),
        "{}",
        ran.stderr
    );
    let ran = run(&["bench", "--groups", "pairs", "--family", "nvlink-pair"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
}

#[test]
fn calls_and_traces_give_payloads_and_slips_have_their_place() {
    let tune = ["tune", "--device", "host", "--comparator", "none"];
    let report = json(&[&tune[..], &["--calls", "64B:128,270B:3", "--step-ms", "8..20"]].concat());
    let sizes: Vec<u64> = report["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|r| r["bytes"].as_u64())
        .collect();
    assert_eq!(sizes, [64, 270]);
    assert_eq!(report["projection"], Value::Null, "an emulation projects nothing");
    let trace = cli_support::file(
        "calls-of-a-program.ron",
        "Calls(format: 1, calls: [\n  (bytes: 130, element: \"f16\", graph: true, count: 64),\n])",
    );
    let report = json(&[&tune[..], &["--from-trace", &trace.display().to_string()]].concat());
    assert_eq!(report["rows"][0]["bytes"], 130);
    for (line, said) in [
        (&["--calls", "5KiB:128,7QiB:1", "--step-ms", "8"][..], "column 10"),
        (&["--calls", "5KiB", "--step-ms", "8"], "size and a count"),
        (&["--calls", "5KiB:1", "--step-ms", "20..8"], "smaller one first"),
        (&["--calls", "5KiB:1"], "--step-ms"),
        (&["--step-ms", "8"], "--calls"),
        (&["--from-trace", "Cargo.toml"], "Cargo.toml:"),
        (&["--from-trace", "no-such-file.ron"], "no-such-file.ron"),
    ] {
        let ran = run(&[&tune[..], line].concat());
        assert!(ran.code == 2 && ran.stderr.contains(said), "{line:?}: {}", ran.stderr);
    }
}

#[test]
fn a_bench_of_named_variants_has_their_columns_and_unknown_ones_are_refused() {
    let lines = "one-shot/packet128/any,one-shot/sentinel/any";
    let bench = [
        "bench",
        "--device",
        "host",
        "--from",
        "64B",
        "--to",
        "64B",
        "--comparator",
        "none",
    ];
    let report = json(&[&bench[..], &["--variant", lines]].concat());
    let columns: Vec<&str> = report["columns"]
        .as_array()
        .map_or(Vec::new(), |all| all.iter().filter_map(Value::as_str).collect());
    assert!(lines.split(',').all(|name| columns.contains(&name)), "{report}");
    assert!(
        !columns.iter().any(|c| c.contains("flag") || c.contains("/packet/")),
        "{report}"
    );
    let ran = run(&[&bench[..], &["--variant", "one-shot/packet64/any"]].concat());
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("one-shot/packet128/any"), "{}", ran.stderr);
}
