//! The command line's reports: one JSON document each, with the fields that scripts rely on.

mod cli_support;

use cli_support::{file, run};
use serde_json::Value;
use std::collections::BTreeSet;
use topoforge::registry::{Partials, Registry};

/// Runs with `--json` and expects success.
fn json(line: &[&str]) -> Value {
    let line = [line, &["--json"]].concat();
    let ran = run(&line);
    assert_eq!(ran.code, 0, "{line:?}: {}", ran.stderr);
    ran.document()
}

/// The keys of an object, sorted.
fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .map(|o| o.keys().map(String::as_str).collect())
        .unwrap_or_default()
}

/// Asserts that an object has at least these keys.
fn has(value: &Value, wanted: &[&str]) {
    for key in wanted {
        assert!(value.get(key).is_some(), "no {key} in {value}");
    }
}

#[test]
fn families_lists_what_is_compiled() {
    let found = json(&["families"]);
    let families = found["families"].as_array().expect("a list");
    let registry = Registry::builtin();
    let names: Vec<&str> = families.iter().filter_map(|f| f["name"].as_str()).collect();
    assert_eq!(names, registry.families().iter().map(|f| f.name).collect::<Vec<_>>());
    for line in families {
        has(line, &["name", "ranks", "variants", "archs", "fatbin_bytes", "hash"]);
        let family = registry.family(line["name"].as_str().expect("text")).expect("compiled");
        assert_eq!(line["variants"], family.variants.len());
        let gpu_code = line["fatbin_bytes"].as_u64().expect("a count") > 0;
        let Some(variant) = family.variants.first() else {
            // There for AlltoAllv only.
            assert!(family.alltoallv.is_some() && !gpu_code, "{line}");
            continue;
        };
        assert_eq!(line["ranks"], variant.ranks.len());
        assert_eq!(gpu_code, registry.has_gpu_code());
        for arch in line["archs"].as_array().expect("a list") {
            assert!(arch.as_str().is_some_and(|a| a.starts_with("sm_")), "{arch}");
        }
    }
}

#[test]
fn devices_and_version_say_what_there_is_and_why() {
    let devices = json(&["devices"]);
    assert_eq!(keys(&devices), ["best", "cuda", "format", "host", "reason"]);
    assert_eq!((&devices["best"], &devices["host"]), (&"host".into(), &true.into()));
    assert!(devices["reason"].as_str().is_some_and(|r| !r.is_empty()), "{devices}");
    let version = json(&["version"]);
    has(
        &version,
        &["version", "archs", "ptx", "toolkits", "kernel_set", "left_out"],
    );
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    let text = run(&["--version"]);
    assert!(
        text.stdout.contains("architectures: ") && text.stdout.contains("kernel set: "),
        "{}",
        text.stdout
    );
}

#[test]
fn plan_reports_a_ranked_shortlist() {
    let plan = json(&[
        "plan",
        "nvlink-quad",
        "--payload",
        "5KiB",
        "--budget",
        "64",
        "--shortlist",
        "3",
    ]);
    assert_eq!(
        keys(&plan),
        ["candidates", "format", "shortlist", "topology", "verified"]
    );
    assert_eq!(plan["topology"], "nvlink-quad");
    assert!(plan["candidates"].as_u64() <= Some(64) && plan["verified"].as_u64() <= plan["candidates"].as_u64());
    let shortlist = plan["shortlist"].as_array().expect("a list");
    assert!((2..=3).contains(&shortlist.len()), "{shortlist:?}");
    for line in shortlist {
        has(
            line,
            &["schedule", "expression", "replicated", "stages", "predicted_us"],
        );
        assert!(
            line["stages"].as_u64() >= Some(1) && line["predicted_us"].as_f64() > Some(0.0),
            "{line}"
        );
        assert!(
            (0..4).all(|r| line["expression"]
                .as_str()
                .is_some_and(|e| e.contains(&format!("x{r}")))),
            "{line}"
        );
    }
    let same = json(&[
        "plan",
        "topologies/nvlink-quad.ron",
        "--payload",
        "5KiB",
        "--budget",
        "64",
        "--shortlist",
        "3",
    ]);
    assert_eq!(plan, same, "a family's plan is that of its descriptor");
}

#[test]
fn the_plan_that_is_shown_is_the_plan_that_was_compiled() {
    for family in Registry::builtin().families() {
        for (partials, name) in [(Partials::Element, "f16"), (Partials::F32, "f32")] {
            let plan = json(&["plan", family.name, "--partials", name]);
            let planned: BTreeSet<&str> = plan["shortlist"]
                .as_array()
                .expect("a list")
                .iter()
                .filter_map(|l| l["schedule"].as_str())
                .collect();
            for variant in family.variants {
                if variant.partials == [partials] && !variant.classes.is_empty() {
                    assert!(planned.contains(variant.schedule), "{} {}", family.name, variant.name);
                }
            }
        }
    }
}

#[test]
fn qualify_counts_what_it_proved_and_repeats_itself() {
    let line = ["qualify", "--device", "host", "--family", "nvlink-pair", "--seed", "7"];
    let proof = json(&line);
    has(
        &proof,
        &["device", "checked", "passed", "failed", "words", "finite_share"],
    );
    let variants = Registry::builtin()
        .family("nvlink-pair")
        .expect("compiled")
        .variants
        .len();
    assert_eq!(proof["device"], "host");
    assert_eq!(
        (&proof["checked"], &proof["passed"]),
        (&variants.into(), &variants.into())
    );
    assert_eq!(proof["failed"].as_array().map(Vec::len), Some(0));
    assert!(
        proof["words"].as_u64() > Some(10_000) && proof["finite_share"].as_f64() > Some(0.5),
        "{proof}"
    );
    assert_eq!(json(&line), proof, "the same seed gives the same proof");
}

#[test]
fn controls_report_every_planted_fault() {
    let proof = json(&["qualify", "--device", "host", "--family", "pix-pair", "--controls"]);
    let controls = proof["controls"].as_array().expect("a list");
    for line in controls {
        has(line, &["family", "variant", "fault", "outcome", "detail"]);
    }
    let caught = |fault: &str| {
        let mut of = controls.iter().filter(|c| c["fault"] == fault);
        of.all(|c| c["outcome"] == "caught") && controls.iter().any(|c| c["fault"] == fault)
    };
    assert!(
        caught("dropped contribution") && caught("swapped counter"),
        "{controls:?}"
    );
}

#[test]
fn an_explicit_number_of_virtual_ranks_picks_families() {
    let proof = json(&["qualify", "--device", "host", "--virtual", "2"]);
    let families = proof["families"].as_array().expect("a list");
    assert!(
        !families.is_empty() && families.iter().all(|f| f["ranks"] == 2),
        "{proof}"
    );
    let skipped = proof["skipped"].as_array().expect("a list");
    assert!(
        skipped
            .iter()
            .any(|s| s["family"] == "mixed-8" && s["reason"].is_string()),
        "{proof}"
    );
}

#[test]
fn tune_on_the_host_is_labelled_as_emulation() {
    let line = [
        "tune",
        "--device",
        "host",
        "--family",
        "nvlink-pair",
        "--payloads",
        "1,2KiB",
    ];
    let tuned = json(&line);
    has(&tuned, &["device", "family", "rows"]);
    assert_eq!(
        (&tuned["device"], &tuned["family"]),
        (&"host".into(), &"nvlink-pair".into())
    );
    assert_eq!(tuned["emulation"], true);
    assert_eq!(tuned["routes_file"], serde_json::Value::Null);
    let rows = tuned["rows"].as_array().expect("a list");
    let bytes: Vec<u64> = rows.iter().filter_map(|r| r["bytes"].as_u64()).collect();
    assert_eq!(bytes, [1024, 2048]);
    for row in rows {
        has(
            row,
            &["bytes", "route", "us", "comparator", "comparator_us", "selected"],
        );
        assert!(
            row["route"].is_string() && row["us"].is_number() && row["selected"].is_boolean(),
            "{row}"
        );
        assert!(row["comparator"].as_str().is_some_and(|c| c.contains("pull")), "{row}");
    }
    let text = run(&line);
    let table = text.stdout.find("payload").expect("a table");
    let label = text
        .stdout
        .find("EMULATION: these times mean nothing")
        .expect("a label");
    assert!(label < table, "{}", text.stdout);
}

#[test]
fn payloads_come_from_a_models_shape() {
    let tuned = json(&[
        "tune",
        "--device",
        "host",
        "--hidden",
        "512",
        "--tokens",
        "2,1",
        "--partials",
        "f32",
        "--comparator",
        "none",
    ]);
    let rows = tuned["rows"].as_array().expect("a list");
    let bytes: Vec<u64> = rows.iter().filter_map(|r| r["bytes"].as_u64()).collect();
    assert_eq!(bytes, [1024, 2048]);
    assert!(
        rows.iter().all(|r| r["comparator"].is_null() && r["selected"] == true),
        "{rows:?}"
    );
    assert_eq!(tuned["partials"], "f32");
}

#[test]
fn bench_has_one_column_a_variant() {
    let sweep = json(&["bench", "--device", "host", "--from", "1KiB", "--to", "2KiB"]);
    let columns = sweep["columns"].as_array().expect("a list");
    assert_eq!(
        columns.len(),
        Registry::builtin()
            .family("nvlink-pair")
            .expect("compiled")
            .variants
            .len()
    );
    let rows = sweep["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 2);
    for row in rows {
        let figures = row["figures"].as_array().expect("a list");
        assert_eq!(figures.len(), columns.len());
        assert!(
            figures.iter().all(|f| f["us"].is_number() && f["geometry"].is_string()),
            "{row}"
        );
    }
}

#[test]
fn match_names_the_family_and_why_the_others_are_not_taken() {
    let found = json(&["match", "topologies/pix-quad.ron"]);
    assert_eq!(found["match"], "pix-quad");
    let lines = found["families"].as_array().expect("a list");
    assert_eq!((&lines[0]["kind"], &lines[0]["distance"]), (&"exact".into(), &0.into()));
    assert_eq!(lines[0]["placement"], serde_json::json!([0, 1, 2, 3]));
    assert!(
        lines[1..]
            .iter()
            .all(|l| l["reason"].as_str().is_some_and(|r| !r.is_empty())),
        "{lines:?}"
    );

    let odd = file(
        "three.ron",
        r#"Topology(name: "three", ranks: 3, links: [pair(0, 1, Pcie(Sys)), pair(1, 2, Pcie(Sys))])"#,
    );
    let odd = odd.to_str().expect("text");
    let none = run(&["match", odd, "--json"]);
    assert_eq!((none.code, &none.document()["match"]), (1, &serde_json::Value::Null));
    let some = json(&["match", odd, "--any"]);
    assert_eq!(some["match"], "sys-pair", "two of the three GPUs will do");
}
