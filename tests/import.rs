//! Importers: every shape of text that people paste is read whole or refused with its line and the reason.
//!
//! `the_folder_of_real_texts` reads a folder of real texts named by `TOPOFORGE_CORPUS`, with hand-written answers in
//! `TOPOFORGE_CORPUS_ANSWERS`; neither is part of the repository.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use topoforge::probe::import::{ImportError, Imported, Input, import, import_bytes};

fn links(read: &Imported) -> BTreeMap<(usize, usize), String> {
    let word = |l: &topoforge::probe::import::ImportedLink| l.class.clone().or(l.read.clone()).or(l.write.clone());
    read.links
        .iter()
        .map(|l| ((l.a, l.b), word(l).unwrap_or_default()))
        .collect()
}

/// `4 SYS 0,1=NV12`: so many GPUs, a label for all pairs, then groups of which every pair has another.
fn spelled_out(spec: &str) -> BTreeMap<(usize, usize), String> {
    let mut words = spec.split_whitespace();
    let n: usize = words.next().and_then(|w| w.parse().ok()).expect("a number of GPUs");
    let all = words.next().expect("a label");
    let mut out = BTreeMap::new();
    for a in 0..n {
        for b in a + 1..n {
            out.insert((a, b), all.to_owned());
        }
    }
    for word in words {
        let (group, label) = word.split_once('=').expect("group=label");
        let group: Vec<usize> = group.split(',').map(|w| w.parse().expect("a number")).collect();
        for (i, &a) in group.iter().enumerate() {
            for &b in &group[i + 1..] {
                out.insert((a.min(b), a.max(b)), label.to_owned());
            }
        }
    }
    out
}

fn files(root: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(root)
        .expect("a folder")
        .flatten()
        .map(|e| e.path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|e| e == "txt" || e == "xml") {
            out.push(path);
        }
    }
}

#[test]
#[ignore = "needs TOPOFORGE_CORPUS"]
fn the_folder_of_real_texts() {
    let Ok(root) = std::env::var("TOPOFORGE_CORPUS").map(PathBuf::from) else {
        eprintln!("not run: TOPOFORGE_CORPUS names no folder");
        return;
    };
    let answers = std::env::var("TOPOFORGE_CORPUS_ANSWERS")
        .ok()
        .and_then(|p| std::fs::read_to_string(p).ok());
    let answers: BTreeMap<String, String> = answers
        .unwrap_or_default()
        .lines()
        .filter_map(|l| l.split_once('\t'))
        .map(|(file, spec)| (file.to_owned(), spec.to_owned()))
        .collect();
    let mut paths = Vec::new();
    files(&root, &mut paths);
    let (mut right, mut refused, mut unchecked, mut wrong) = (0, 0, 0, Vec::new());
    for path in &paths {
        let name = path.strip_prefix(&root).unwrap_or(path).display().to_string();
        let bytes = std::fs::read(path).expect("readable");
        let read = import_bytes(&bytes, None);
        let shown = match &read {
            Ok(r) => {
                let mut labels: BTreeMap<String, usize> = BTreeMap::new();
                links(r).into_values().for_each(|l| *labels.entry(l).or_default() += 1);
                format!(
                    "{} GPUs {} NICs numa {:?} {labels:?} {:?}",
                    r.gpus.len(),
                    r.nics.len(),
                    r.topology.numa,
                    r.warnings
                )
            }
            Err(e) => format!("REFUSED {e}"),
        };
        let verdict = match (answers.get(&name), &read) {
            (None, _) => {
                unchecked += 1;
                "unchecked"
            }
            (Some(spec), Ok(r)) if !spec.starts_with("refuse") && links(r) == spelled_out(spec) => {
                right += 1;
                "right"
            }
            (Some(spec), Err(e)) if refusal_fits(spec, e) => {
                refused += 1;
                "refused"
            }
            (Some(spec), _) => {
                wrong.push(format!("{name}: expected {spec}"));
                "WRONG"
            }
        };
        println!("{verdict:9} {name}: {shown}");
    }
    println!(
        "{right} right, {refused} refused as expected, {unchecked} without an answer, {} wrong",
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `refuse cut 7`: the line where the answer gives one.
fn refusal_fits(spec: &str, error: &ImportError) -> bool {
    let mut words = spec.split_whitespace().skip(1);
    let why = match words.next().unwrap_or_default() {
        "cut" => ["cut", "lost"].iter().any(|w| error.reason.contains(w)),
        "header" => error.reason.contains("header"),
        "amd" | "foreign" => error.reason.contains("AMD"),
        "no-gpu" => error.reason.contains("no GPU"),
        "nvlink" => error.reason.to_lowercase().contains("nvlink"),
        _ => false,
    };
    let line = words.next().and_then(|w| w.parse::<usize>().ok());
    why && line.is_none_or(|line| line == error.line)
}

#[test]
fn a_guess_of_the_kind_is_never_needed_to_refuse() {
    for input in [
        None,
        Some(Input::Smi),
        Some(Input::P2p),
        Some(Input::NcclXml),
        Some(Input::Ron),
    ] {
        for text in [
            "",
            " ",
            "\n\n",
            "GPU0",
            "<",
            "<system",
            "Topology(",
            "GPU0 X",
            "\u{1b}[",
        ] {
            let error = import(text, input).expect_err(text);
            assert!(error.line >= 1 && !error.reason.is_empty());
        }
    }
}

/// The fixtures of `tests/data/import`, each with what must come of it in `expected.json`.
#[test]
fn every_fixture_is_read_or_refused_as_written_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/import");
    let expected = std::fs::read_to_string(root.join("expected.json")).expect("expected.json");
    let expected: serde_json::Value = serde_json::from_str(&expected).expect("JSON");
    let cases = expected.as_object().expect("a map");
    let mut paths = Vec::new();
    files(&root, &mut paths);
    assert_eq!(paths.len(), cases.len(), "every fixture has an answer");
    let mut wrong = Vec::new();
    for (name, case) in cases {
        let bytes = std::fs::read(root.join(name)).expect("readable");
        if let Err(why) = judge(import_bytes(&bytes, None), case) {
            wrong.push(format!("{name}: {why}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn judge(read: Result<Imported, ImportError>, case: &serde_json::Value) -> Result<(), String> {
    let same = |what: &str, found: serde_json::Value| match case.get(what) {
        Some(wanted) if *wanted != found => Err(format!("{what} is {found}, not {wanted}")),
        _ => Ok(()),
    };
    let read = match (read, case.get("refused")) {
        (Ok(read), None) => read,
        (Ok(read), Some(_)) => return Err(format!("was read: {:?}", links(&read))),
        (Err(e), None) => return Err(format!("was refused: {e}")),
        (Err(e), Some(wanted)) => {
            let has = wanted[1].as_str().unwrap_or("?");
            let fits = wanted[0] == e.line && e.reason.contains(has);
            return if fits {
                Ok(())
            } else {
                Err(format!("refused with {e}, not {wanted}"))
            };
        }
    };
    if let Some(spec) = case.get("right").and_then(|s| s.as_str()) {
        let (found, wanted) = (links(&read), spelled_out(spec));
        if found != wanted {
            return Err(format!("links are {found:?}, not {wanted:?}"));
        }
        let gpus: Vec<usize> = read.gpus.iter().map(|g| g.index).collect();
        let n = spec.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        if gpus != (0..n).collect::<Vec<usize>>() {
            return Err(format!("GPUs are {gpus:?}"));
        }
    }
    let at: Vec<_> = links(&read)
        .into_iter()
        .map(|((a, b), l)| serde_json::json!([a, b, l]))
        .collect();
    same("right_at", at.into())?;
    same("warnings", read.warnings.len().into()).map_err(|e| format!("{e}: {:?}", read.warnings))?;
    same("numa", read.topology.numa.clone().into())?;
    same(
        "nics",
        read.nics.iter().map(|n| n.device.clone()).collect::<Vec<_>>().into(),
    )?;
    same(
        "uuids",
        read.gpus.iter().map(|g| g.uuid.clone()).collect::<Vec<_>>().into(),
    )?;
    same(
        "resources",
        read.topology
            .resources
            .iter()
            .map(|r| r.name.clone())
            .collect::<Vec<_>>()
            .into(),
    )?;
    same("read", read.links.first().and_then(|l| l.read.clone()).into())?;
    same("write", read.links.first().and_then(|l| l.write.clone()).into())?;
    let host = read.topology.links.iter().all(|l| !l.class.is_peer());
    same("host", host.into())?;
    // What was read is a descriptor as it is.
    let text = topoforge::planner::topology::to_ron(&read.topology);
    let back = topoforge::planner::topology::parse_descriptor(&text, "saved.ron");
    match back {
        Ok(back) if back == read.topology => Ok(()),
        Ok(_) => Err(format!("saves as another topology:\n{text}")),
        Err(faults) => Err(format!("saves as a faulty descriptor: {}", faults[0])),
    }
}

/// A small, seeded cousin of the fuzz targets, for every build.
#[test]
fn mutated_fixtures_are_read_whole_or_refused_with_a_line_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/import");
    let mut paths = Vec::new();
    files(&root, &mut paths);
    let mut state = 1_u64;
    let mut below = |n: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n.max(1)
    };
    for path in paths {
        let original = std::fs::read(&path).expect("readable");
        for _ in 0..60 {
            let mut bytes = original.clone();
            for _ in 0..1 + below(4) {
                let (at, len) = (below(bytes.len()), below(20));
                match below(4) {
                    0 => bytes.truncate(at),
                    1 => drop(bytes.splice(at..(at + len).min(bytes.len()), [])),
                    2 => drop(bytes.splice(at..at, *b"\nGPU1 SYS NV")),
                    _ => bytes
                        .get_mut(at)
                        .into_iter()
                        .for_each(|b| *b = b" \t\n<>X\"09N"[len % 10]),
                }
            }
            let lines = bytes.iter().filter(|b| **b == b'\n').count() + 1;
            match import_bytes(&bytes, None) {
                Err(e) => assert!(
                    (1..=lines).contains(&e.line) && !e.reason.contains('\n'),
                    "{path:?}: {e}"
                ),
                Ok(read) => {
                    let n = read.gpus.len();
                    assert_eq!(read.links.len(), n * (n - 1) / 2, "{path:?}");
                    assert_eq!(read.topology.links.len(), n * (n - 1), "{path:?}");
                }
            }
        }
    }
}

#[test]
fn endless_lines_and_files_cost_little_and_are_refused() {
    let row = format!("\tGPU0\tGPU1\nGPU0\t X {}\n", "SYS".repeat(1 << 20));
    let started = std::time::Instant::now();
    let error = import(&row, None).expect_err("too long");
    assert!(error.line == 2 && error.reason.contains("bytes"), "{error}");
    let many = "GPU0 GPU1\n".repeat(200_000);
    assert!(import(&many, None).is_err());
    let nested = format!("<system version=\"1\"><cpu>{}", "<pci>".repeat(500_000));
    assert!(import(&nested, None).is_err());
    assert!(import(&"x".repeat(topoforge::probe::import::MAX_BYTES + 1), None).is_err());
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}
