//! How the command line refuses: the right exit code, a reason that helps, one document at most, never a panic.

mod cli_support;

use cli_support::{command, file, ran, run};
use std::fs::OpenOptions;
use std::path::Path;
use std::process::Stdio;

/// Exit code 2, words on stderr, and with `--json` one document that repeats them.
fn misused(line: &[&str], said: &[&str]) {
    refused(line, 2, said);
}

fn refused(line: &[&str], code: i32, said: &[&str]) {
    let text = run(line);
    assert_eq!(
        (text.code, text.stdout.as_str()),
        (code, ""),
        "{line:?}: {}",
        text.stderr
    );
    let json = run(&[line, &["--json"]].concat());
    assert_eq!(json.code, code, "{line:?}");
    let error = &json.document()["error"];
    assert_eq!(error["exit_code"], code);
    let messages = error["messages"].to_string();
    for part in said {
        assert!(
            text.stderr.contains(part),
            "{line:?} does not say `{part}`: {}",
            text.stderr
        );
        assert!(messages.contains(part), "{line:?} does not say `{part}`: {messages}");
    }
}

#[test]
fn every_fault_of_a_descriptor_is_listed_with_its_place() {
    let path = file(
        "faulty.ron",
        "Topology(\n    name: \"Faulty\",\n    ranks: 2,\n    links: [\n        pair(0, 7, Pcie(Pix)),\n        pair(0, 1, Pcie(Pax)),\n    ],\n)\n",
    );
    let path = path.to_str().expect("text");
    let places = [(2, "name"), (5, "rank 7"), (6, "Pax")].map(|(line, _)| format!("{path}:{line}:"));
    let said: Vec<&str> = places.iter().map(String::as_str).collect();
    misused(&["plan", path], &said);
    misused(&["match", path], &said);
}

#[test]
fn what_cannot_be_read_is_named() {
    misused(&["plan", "nowhere.ron"], &["cannot read nowhere.ron"]);
    misused(&["plan", "topologies/"], &["cannot read topologies/"]);
    misused(&["match", "nowhere.ron"], &["cannot read nowhere.ron"]);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bytes.ron");
    std::fs::write(&path, [0xff, 0xfe, 0x00]).expect("writable");
    misused(&["plan", path.to_str().expect("text")], &["bytes.ron:1:1: not UTF-8"]);
}

#[test]
fn an_unknown_family_brings_near_names() {
    for line in [
        &["plan", "nvlink-pare"][..],
        &["qualify", "--device", "host", "--family", "nvlink_pare"],
        &["tune", "--device", "host", "--family", "NVLINK-PARE"],
        &["bench", "--device", "host", "--family", "nvlink-par"],
    ] {
        misused(line, &["did you mean nvlink-pair"]);
    }
    misused(&["plan", "cube"], &["no family `cube`: there are bridge-pairs-8, "]);
}

#[test]
fn payloads_that_cannot_be_are_refused() {
    for (text, said) in [
        ("0", "not a whole number of 2-byte elements"),
        ("3", "not a whole number of 2-byte elements"),
        ("5 QiB", "no payload size"),
        ("-1KiB", "-1"),
        ("99999999999999999999999KiB", "above 1 GiB"),
        ("", "payload"),
        ("1,,2KiB", "no payload size"),
    ] {
        misused(&["tune", "--device", "host", "--payloads", text], &[said]);
    }
    misused(&["plan", "pix-pair", "--payload", "5 QiB"], &["no payload size"]);
    misused(
        &["bench", "--device", "host", "--from", "2KiB", "--to", "1KiB"],
        &["--from"],
    );
    let model = [
        "tune",
        "--device",
        "host",
        "--hidden",
        "18446744073709551615",
        "--tokens",
        "2",
    ];
    misused(&model, &["above 1 GiB"]);
    misused(&["tune", "--hidden", "2560"], &["--tokens"]);
    misused(
        &["tune", "--payloads", "1KiB", "--hidden", "2", "--tokens", "1"],
        &["cannot be used with"],
    );
}

#[test]
fn slips_on_the_command_line_are_explained() {
    misused(&["qualify", "--device", "gpu"], &["host, cuda or cuda:0,1"]);
    misused(&["qualify", "--device", "cuda:0,0"], &["--virtual"]);
    misused(&["qualify", "--device", "cuda:"], &["no GPU number"]);
    misused(&["tune", "--partials", "bf16"], &["sums of f16 elements", "f16 or f32"]);
    misused(
        &["tune", "--dtype", "f32", "--partials", "f16"],
        &["sums of f32 elements", "write f32"],
    );
    misused(&["bench", "--dtype", "f8"], &["f16, bf16 or f32"]);
    misused(
        &["tune", "--dtype", "f32", "--payloads", "1030"],
        &["1030 bytes", "4-byte f32 elements"],
    );
    misused(
        &["tune", "--device", "host", "--comparator", "none,pull"],
        &["stands alone"],
    );
    misused(&["plan", "pix-pair", "--budget", "0"], &["0"]);
    misused(&["plan", "pix-pair", "--shortlist", "many"], &["many"]);
    misused(
        &["qualify", "--device", "host", "--family", "mixed-8", "--virtual", "2"],
        &["8 ranks"],
    );
    misused(&["frobnicate"], &["frobnicate"]);
}

#[test]
fn launches_and_seeds_that_cannot_be_are_refused() {
    for verb in ["tune", "bench"] {
        misused(
            &[verb, "--device", "host", "--launch", "programmatic"],
            &["compute capability 9.0"],
        );
    }
    for seed in ["4294967296", "99999999999999999999", "-1", "many"] {
        misused(
            &["qualify", "--device", "host", "--seed", seed],
            &["from 0 to 4294967295"],
        );
    }
}

#[test]
fn drawings_need_a_file_each() {
    misused(&["plan", "pix-pair", "--draw", "ring"], &["--svg", "--dot"]);
    misused(&["plan", "pix-pair", "--svg", "-"], &["name a file"]);
    misused(&["plan", "pix-pair", "--svg", "x", "--dot", "./x"], &["both name"]);
}

#[cfg(unix)]
#[test]
fn a_pipe_that_nobody_uses_is_refused_and_not_waited_for() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pipe.ron");
    let _ = std::fs::remove_file(&path);
    let made = std::process::Command::new("mkfifo")
        .arg(&path)
        .status()
        .expect("mkfifo");
    assert!(made.success());
    let pipe = path.to_str().expect("text");
    for line in [
        &["probe", "--from", pipe][..],
        &["explain", "--from", pipe],
        &["plan", pipe],
        &["plan", "pix-pair", "--svg", pipe],
        &["plan", "pix-pair", "--dot", pipe],
        &["probe", "--from", "nowhere", "--save", pipe, "--force"],
    ] {
        misused(line, &["it is no file"]);
    }
}

#[test]
fn probe_writes_over_nothing_but_its_own() {
    let machine = file(
        "wide.ron",
        r#"Topology(name: "wide", ranks: 2, links: [pair(0, 1, Pcie(Pix))])"#,
    );
    let machine = machine.to_str().expect("text");
    let own = file("by-hand.ron", "// my own notes\n");
    let path = own.to_str().expect("text");
    misused(&["probe", "--from", machine, "--save", path], &["--force"]);
    assert_eq!(std::fs::read_to_string(&own).expect("kept"), "// my own notes\n");
    for more in [&["--force"][..], &[]] {
        let line = [&["probe", "--from", machine, "--save", path], more].concat();
        assert_eq!(run(&line).code, 0);
    }
    misused(&["probe", "--from", machine, "--save", "notes.txt"], &[".ron"]);
}

#[test]
fn a_family_that_leaves_a_gpu_idle_is_told_by_all() {
    let nine = file(
        "nine.ron",
        &format!(
            "Topology(name: \"nine\", ranks: 9, links: [{}])",
            (0..9)
                .flat_map(|a| (a + 1..9).map(move |b| format!("pair({a}, {b}, NvLink(lanes: 4, gen: 3)), ")))
                .collect::<String>()
        ),
    );
    let nine = nine.to_str().expect("text");
    let failed = run(&["match", nine]);
    assert_eq!(failed.code, 1);
    assert!(
        failed.stderr.contains("8 of its 9 ranks") && failed.stderr.contains("--any"),
        "{}",
        failed.stderr
    );
    for verb in ["probe", "explain"] {
        let told = run(&[verb, "--from", nine]).stdout;
        assert!(told.contains("on 8 of 9 GPUs, 1 idle"), "{told}");
    }
    assert_eq!(
        run(&["match", "pix-pair"]).code,
        0,
        "a family's name is a topology as well"
    );
}

#[test]
fn what_is_no_plain_text_is_told_in_plain_words() {
    let marked = file("marked.ron", "\u{feff}Topology(name: \"a\", ranks: 1, links: [])");
    misused(
        &["plan", marked.to_str().expect("text")],
        &["marked.ron:1:1: ", "save without a byte order mark"],
    );
    misused(
        &["probe", "--from", marked.to_str().expect("text")],
        &["save without a byte order mark"],
    );
    let deep = file("deep.ron", &"[".repeat(5000));
    misused(
        &["plan", deep.to_str().expect("text")],
        &["nested deeper than a descriptor needs"],
    );
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("binary");
    std::fs::write(&path, b"\x7fELF\x02\0\0 xgmi \xff\n").expect("writable");
    misused(&["probe", "--from", path.to_str().expect("text")], &["not text"]);
}

#[test]
fn cuda_without_a_gpu_is_a_reason_and_not_a_panic() {
    for line in [
        &["qualify", "--device", "cuda"][..],
        &[
            "qualify",
            "--device",
            "cuda:0,1",
            "--virtual",
            "--family",
            "nvlink-pair",
        ],
        &["tune", "--device", "cuda"],
        &["bench", "--device", "cuda", "--virtual", "2", "--family", "pix-pair"],
        &["match"],
    ] {
        let text = run(line);
        assert_eq!((text.code, text.stdout.as_str()), (1, ""), "{line:?}: {}", text.stderr);
        assert!(
            text.stderr.starts_with("error: ") && text.stderr.len() > 30,
            "{}",
            text.stderr
        );
        refused(line, 1, &[]);
    }
}

#[test]
fn no_routes_are_written_from_an_emulation() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated.ron");
    let text = path.to_str().expect("text");
    refused(
        &["tune", "--device", "host", "--out", text],
        1,
        &["emulation", "mean nothing"],
    );
    assert!(!path.exists());
}

#[test]
fn a_machine_that_no_schedule_serves_has_no_plan() {
    let lone = file("lone.ron", r#"Topology(name: "lone", ranks: 1, links: [])"#);
    let ran = run(&["plan", lone.to_str().expect("text"), "--json"]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.document()["shortlist"], serde_json::json!([]));
    let why = "no schedule serves lone: one rank needs no all-reduce";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
    assert!(run(&["plan", lone.to_str().expect("text")]).stdout.contains(why));
}

#[test]
fn a_reader_that_has_gone_away_is_no_fault() {
    for line in [
        &["families"][..],
        &["plan", "mixed-8", "--json"],
        &["--help"],
        &["plan", "nowhere", "--json"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = command(line)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .expect("the command starts");
        let code = if line[1..].contains(&"nowhere") { 2 } else { 0 };
        assert_eq!(ran(line, output).code, code, "{line:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_report_that_cannot_be_written_is_a_failure() {
    for line in [
        &["families", "--json"][..],
        &["help"],
        &["--help"],
        &["plan", "--help"],
        &["--version"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let output = command(line)
            .stdout(full)
            .stderr(Stdio::piped())
            .output()
            .expect("starts");
        let ran = ran(line, output);
        assert_eq!(ran.code, 1, "{line:?}");
        assert!(
            ran.stderr.contains("cannot write to stdout"),
            "{line:?}: {}",
            ran.stderr
        );
    }
}
