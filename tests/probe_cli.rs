//! `probe`, `explain` and `doctor` from a terminal: the JSON's fields, exit codes, and descriptors that compile as they are.

#![cfg(feature = "cli")]

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

fn topoforge(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_topoforge"));
    command
        .env_remove("NCCL_P2P_DISABLE")
        .env_remove("TOPOFORGE")
        .env("CUDA_VISIBLE_DEVICES", "");
    command.args(arguments).output().expect("runs")
}

fn fixture(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/data/import").join(name).display().to_string()
}

fn json(arguments: &[&str]) -> (Option<i32>, Value) {
    let out = topoforge(arguments);
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    (
        out.status.code(),
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}")),
    )
}

#[test]
fn probe_prints_the_documented_fields() {
    let (code, document) = json(&["probe", "--json", "--from", &fixture("with-p2p.txt")]);
    assert_eq!(code, Some(0));
    for field in [
        "format",
        "source",
        "level",
        "gpus",
        "nics",
        "links",
        "warnings",
        "fingerprint",
        "match",
    ] {
        assert!(document.get(field).is_some(), "{field}");
    }
    assert_eq!((&document["format"], &document["source"]), (&1.into(), &"smi".into()));
    assert_eq!(
        document["gpus"][1],
        serde_json::json!({"index": 1, "name": null, "uuid": null, "pci": null})
    );
    let link = serde_json::json!({"a": 0, "b": 1, "class": "PHB", "read": "OK", "write": "CNS"});
    assert_eq!(document["links"], serde_json::json!([link]));
    for field in ["family", "placement", "distance", "kind", "optimal"] {
        assert!(document["match"].get(field).is_some(), "match.{field}");
    }
    // Nobody may write, so only staging through host memory fits.
    assert_eq!(document["match"]["family"], "no-peer-pair");
}

#[test]
fn a_text_that_cannot_be_read_safely_is_exit_2_with_its_line() {
    for (name, place) in [
        ("cut-rows.txt", ":4: "),
        ("error-line.txt", ":2: "),
        ("xgmi.xml", ":4: "),
    ] {
        let (code, document) = json(&["probe", "--json", "--from", &fixture(name)]);
        assert_eq!(code, Some(2), "{name}");
        let message = document["error"]["messages"][0].as_str().unwrap_or_default();
        assert!(message.contains(place), "{message}");
        assert!(document.get("links").is_none(), "never a partial topology");
    }
    assert_eq!(
        topoforge(&["probe", "--from", "/nowhere/at/all"]).status.code(),
        Some(2)
    );
    // The wrong kind, named on purpose, is refused as well.
    let (code, _) = json(&[
        "probe",
        "--json",
        "--input",
        "nccl-xml",
        "--from",
        &fixture("plain-tabs.txt"),
    ]);
    assert_eq!(code, Some(2));
}

#[test]
fn what_probe_saves_is_a_descriptor_of_the_same_machine() {
    let path = std::env::temp_dir().join(format!("My Box {}.ron", std::process::id()));
    let saved = path.display().to_string();
    let (_, first) = json(&[
        "probe",
        "--json",
        "--from",
        &fixture("crossed-pairs-list.txt"),
        "--save",
        &saved,
    ]);
    let (code, again) = json(&["probe", "--json", "--from", &saved]);
    assert_eq!((code, &again["source"]), (Some(0), &"ron".into()));
    assert_eq!(first["fingerprint"], again["fingerprint"]);
    assert_eq!(topoforge(&["match", &saved]).status.code(), Some(0));
    let _ = std::fs::remove_file(path);
}

#[test]
fn explain_names_the_family_and_says_of_every_other_why_not() {
    let (code, document) = json(&["explain", "--json", "--from", &fixture("crossed-pairs-list.txt")]);
    assert_eq!(code, Some(0));
    assert!(document["match"].is_string());
    let families = document["families"].as_array().expect("a list");
    assert!(families.len() > 3);
    for family in families {
        let words = family["words"].as_array().expect("a list");
        assert!(
            words[0]
                .as_str()
                .is_some_and(|w| w.starts_with("taken") || w.starts_with("not taken")),
            "{family}"
        );
        let exact = family["kind"] == "exact";
        assert!(
            exact || !family["changes"].as_array().expect("a list").is_empty(),
            "{family}"
        );
    }
}

#[test]
fn doctor_gives_findings_with_and_without_a_gpu() {
    let (code, document) = json(&["doctor", "--json", "--deadline", "120"]);
    let findings = document["findings"].as_array().expect("a list");
    let topic = |name: &str| {
        findings
            .iter()
            .any(|f| f["topic"] == name && f["text"].as_str().is_some_and(|t| !t.is_empty()))
    };
    assert!(topic("driver") && topic("libcuda") && topic("nvml") && topic("nccl"));
    assert!(document["pairs"].is_array());
    let bad = findings.iter().any(|f| f["state"] == "bad");
    if bad {
        assert_eq!(code, Some(1), "what is bad fails the command");
    }
    // The hidden test process refuses what is no pair.
    assert_eq!(topoforge(&["doctor", "--pair", "1,1"]).status.code(), Some(2));
}
