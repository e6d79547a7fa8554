//! `topoforge alltoallv plan` and `simulate`: figures that scripts rely on, and words for what cannot be.

mod cli_support;

use cli_support::{file, run};

/// Four ranks: small enough to simulate everything at once.
const SMALL: &str = "Topology(name: \"small\", ranks: 4, links: [],
    alltoallv: Machine(nodes: Any, sockets: [[Switch(gpus: 2, nics: 1), Switch(gpus: 2, nics: 1)]],
        gb_per_s: (same_switch: 56, same_socket: 52, cross_socket: 40, nic: 48)))";

/// A file of this test's own, by its name on the command line.
fn path(name: &str, text: &str) -> String {
    file(&format!("alltoallv-plans-{name}"), text).display().to_string()
}

#[test]
fn a_plan_says_what_scripts_need_and_every_run_has_its_hash() {
    let line = |demand: &'static str| {
        [
            "alltoallv",
            "plan",
            "pcie-8",
            "--demand",
            demand,
            "--bytes",
            "64MiB",
            "--seed",
            "3",
            "--json",
        ]
    };
    let mut hashes = Vec::new();
    for demand in ["zipf:0.6", "uniform", "hot", "sparse:0.4", "random"] {
        let ran = run(&line(demand));
        assert_eq!(ran.code, 0, "{demand}: {}", ran.stderr);
        let found = ran.document();
        let number = |key: &str| {
            found[key]
                .as_f64()
                .unwrap_or_else(|| panic!("{demand}: {key} in {found}"))
        };
        assert!(number("activations") >= number("fewest_activations"), "{demand}");
        assert!(number("predicted_us") >= number("lower_bound_us"), "{demand}");
        assert!(number("predicted_us") <= number("barrier_us"), "{demand}");
        let gap = number("predicted_us") / number("lower_bound_us") - 1.0;
        assert!((number("gap") - gap).abs() < 1e-9 && gap < 0.2, "{demand}: {gap}");
        assert!(number("planning_us") > 0.0, "{demand}");
        // What was promised comes first and in that order; the rest may grow.
        let promised = [
            "activations",
            "predicted_us",
            "lower_bound_us",
            "gap",
            "planning_us",
            "plan_hash",
        ];
        let places: Vec<_> = promised
            .map(|key| ran.stdout.find(&format!("\"{key}\"")).expect(key))
            .to_vec();
        assert!(
            places.is_sorted() && ran.stdout.find("\"topology\"") > places.last().copied(),
            "{}",
            ran.stdout
        );
        let hash = found["plan_hash"].as_str().expect("a hash").to_owned();
        assert!(
            hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()),
            "{hash}"
        );
        assert_eq!(run(&line(demand)).document()["plan_hash"], hash.as_str(), "{demand}");
        assert!(!hashes.contains(&hash), "{demand}");
        hashes.push(hash);
    }
}

#[test]
fn a_demand_from_a_file_is_planned_and_a_bad_one_is_refused_at_its_place() {
    let machine = path("small.ron", SMALL);
    let good = path("good.txt", "0 5 6 7\n8 0 9 1000000\n1 2 0 3 # a comment\n0 0 0 0\n");
    let ran = run(&["alltoallv", "plan", &machine, "--demand", &good]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.contains("1,000,041 bytes in all") && ran.stdout.contains("from>to/path"),
        "{}",
        ran.stdout
    );
    for (name, text, said) in [
        (
            "words.txt",
            "0 1 2 3\n0 0 x 0\n0 0 0 0\n0 0 0 0\n",
            "line 2, entry 3: `x`: expected a whole number of bytes",
        ),
        ("short.txt", "0 1\n1 0\n", "the demand is for 2 ranks, small has 4"),
        ("square.txt", "0 1\n", "1 lines of 2 entries"),
    ] {
        let bad = path(name, text);
        let ran = run(&["alltoallv", "plan", &machine, "--demand", &bad]);
        assert_eq!(ran.code, 2, "{name}: {}", ran.stdout);
        assert!(ran.stderr.contains(said), "{name}: {}", ran.stderr);
    }
    let ran = run(&["alltoallv", "plan", &machine, "--demand", "zipf:x"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("expected a number from 0 to 4"), "{}", ran.stderr);
    let ran = run(&["alltoallv", "plan", &machine, "--nodes", "5000"]);
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    let ran = run(&["alltoallv", "plan", "nvlink-pair"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("states no machine for AlltoAllv"), "{}", ran.stderr);
}

#[test]
fn sizes_that_are_none_are_refused_and_those_of_nothing_and_of_a_byte_are_planned() {
    let machine = path("sizes.ron", SMALL);
    let plan = |bytes: &str| run(&["alltoallv", "plan", &machine, &format!("--bytes={bytes}"), "--json"]);
    for (bytes, total) in [
        ("0", 0),
        ("1", 0),
        ("3", 12),
        ("5B", 24),
        ("1 KiB", 4092),
        ("2TiB", 4 << 41),
    ] {
        let ran = plan(bytes);
        assert_eq!(ran.code, 0, "{bytes}: {}", ran.stderr);
        let found = ran.document()["bytes"].as_u64().expect("bytes");
        assert!(found.abs_diff(total) <= 12, "{bytes}: {found}");
        let empty = ran.document()["activations"] == 0;
        assert_eq!(empty, found == 0, "{bytes}");
    }
    for (bytes, said) in [
        ("16EiB", "is no size"),
        ("-5", "is no size"),
        ("", "is no size"),
        ("1.5GiB", "is no size"),
        ("18446744073709551616", "more than can be counted"),
        ("16777216TiB", "more than can be counted"),
        ("2048TiB", "expected at most 281474976710656"),
        ("18446744073709551615", "expected at most 281474976710656"),
    ] {
        let ran = plan(bytes);
        assert_eq!(ran.code, 2, "{bytes}: {}", ran.stdout);
        assert!(ran.stderr.contains(said), "{bytes}: {}", ran.stderr);
        assert_eq!(ran.document()["error"]["exit_code"], 2, "{bytes}");
    }
}

#[test]
fn demands_that_are_none_are_refused_at_their_places() {
    let machine = path("refused.ron", SMALL);
    let mut words = vec![
        (
            "zipf:abc".to_owned(),
            "`abc` in `zipf:abc`: expected a number from 0 to 4",
        ),
        ("zipf:".to_owned(), "expected a number from 0 to 4"),
        ("hot:nan".to_owned(), "expected a number from 0 to 4"),
        ("sparse:2".to_owned(), "expected a number from 0 to 1"),
        ("uniform:3".to_owned(), "uniform takes no number"),
        ("".to_owned(), "is no demand"),
        ("/dev/zero".to_owned(), "it is no file"),
    ];
    for (name, text, said) in [
        ("nan.txt", "NaN 0\n0 0\n", "line 1, entry 1: `NaN`"),
        ("negative.txt", "0 -5\n1 0\n", "line 1, entry 2: `-5`"),
        ("ragged.txt", "0 1 2\n1 0\n", "line 2: 2 entries: expected 3"),
        ("tall.txt", "0 1\n1 0\n1 0\n", "more than 2 lines of 2 entries"),
        ("over.txt", "0 99999999999999999999999\n1 0\n", "line 1, entry 2"),
        (
            "largest.txt",
            "0 18446744073709551615\n0 0\n",
            "expected at most 281474976710656",
        ),
        ("empty.txt", "", "0 lines of 0 entries"),
        ("comments.txt", "# nothing\n\n", "0 lines of 0 entries"),
    ] {
        words.push((path(name, text), said));
    }
    for (demand, said) in words {
        let ran = run(&["alltoallv", "plan", &machine, "--demand", &demand]);
        assert_eq!(ran.code, 2, "{demand}: {}", ran.stdout);
        assert!(ran.stderr.contains(said), "{demand}: {}", ran.stderr);
    }
    // What ranks have for themselves is a local copy and no part of a demand.
    let own = path("own.txt", "9 0 0 0\n0 9 0 0\n0 0 9 0\n0 0 0 9\n");
    let ran = run(&["alltoallv", "plan", &machine, "--demand", &own, "--json"]);
    assert_eq!(
        (ran.code, &ran.document()["activations"]),
        (0, &0.into()),
        "{}",
        ran.stderr
    );
}

#[test]
fn even_demands_take_the_recorded_sequence_and_several_nodes_have_none() {
    let strategy = |nodes: &str, demand: &str, way: &[&str]| {
        let line = [
            &[
                "alltoallv",
                "plan",
                "pcie-8",
                "--nodes",
                nodes,
                "--demand",
                demand,
                "--json",
            ],
            way,
        ]
        .concat();
        let ran = run(&line);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.document()["strategy"].as_str().expect("a way").to_owned()
    };
    assert_eq!(strategy("1", "uniform", &[]), "base");
    assert_eq!(strategy("1", "zipf:0.6", &["--strategy", "base"]), "base");
    assert_eq!(strategy("1", "zipf:0.6", &[]), "peel");
    assert_eq!(strategy("2", "uniform", &["--strategy", "base"]), "rotation");
}

#[test]
fn a_profile_written_from_a_file_serves_that_file() {
    // Bytes as they were counted, one pair without any, and a rank with bytes for itself.
    let counted = "4096 73728 8192 8192\n73728 0 8192 0\n8192 8192 0 57344\n16384 8192 57344 0\n";
    let counts = path("counted.txt", counted);
    let written = run(&["alltoallv", "profile", &counts, "--name", "moe-decode"]);
    assert_eq!(written.code, 0, "{}", written.stderr);
    let expected = "Profile(name: \"moe-decode\", demand: [\n    [0, 9, 1, 1],\n    [9, 0, 1, 0],\n    [1, 1, 0, 7],\n    \
                    [2, 1, 7, 0],\n]),\n";
    assert_eq!(written.stdout, expected);
    let found = run(&["alltoallv", "profile", &counts, "--name", "moe-decode", "--json"]).document();
    assert_eq!(
        (&found["name"], &found["ranks"], &found["demand"][3][0]),
        (&"moe-decode".into(), &4.into(), &2.into())
    );
    let text = SMALL.replace("gb_per_s", &format!("profiles: [{}], gb_per_s", written.stdout));
    let machine = path("with-profile.ron", &text);
    let plan = |line: &[&str]| run(&[&["alltoallv", "plan", &machine], line].concat());
    let large = path(
        "counted-large.txt",
        &counted.replace(' ', "000 ").replace('\n', "000\n"),
    );
    let found = plan(&["--demand", &large, "--json"]).document();
    assert_eq!(
        (&found["strategy"], &found["sequence"]),
        (&"base".into(), &"moe-decode".into())
    );
    // Of so few bytes the shortest of all orders is the best.
    assert_eq!(
        plan(&["--demand", &counts, "--json"]).document()["strategy"],
        "rotation"
    );
    let shown = plan(&["--demand", &large]).stdout;
    assert!(shown.contains("\nbase, profile moe-decode: "), "{shown}");
    assert!(plan(&[]).stdout.contains("\nbase, uniform: "));
    let other = plan(&["--demand", "zipf:2", "--bytes", "64MiB", "--json"]).document();
    assert_eq!(
        (&other["strategy"], &other["sequence"]),
        (&"peel".into(), &serde_json::Value::Null)
    );
    for (file, name, says) in [
        (&counts, "Moe", "expected a name `[a-z0-9][a-z0-9-]*`"),
        (&counts, "uniform", "expected another name"),
        (&path("silent.txt", "1 0\n0 1\n"), "silent", "nobody sends anything"),
        (&path("ragged-profile.txt", "0 1\n1\n"), "ragged", "line 2: 1 entries"),
    ] {
        let ran = run(&["alltoallv", "profile", file, "--name", name]);
        assert!(ran.code == 2 && ran.stderr.contains(says), "{name}: {}", ran.stderr);
    }
}

#[test]
fn a_plan_takes_the_selector_that_is_asked_for_or_says_why_it_cannot() {
    let machine = path("selected.ron", SMALL);
    let line = ["alltoallv", "plan", &machine, "--demand", "zipf:0.8", "--json"];
    let plan = |more: &[&str]| run(&[&line[..], more].concat());
    for selector in ["critical", "greedy", "family"] {
        let ran = plan(&["--selector", selector]);
        assert_eq!(
            (ran.code, &ran.document()["strategy"]),
            (0, &"peel".into()),
            "{selector}: {}",
            ran.stderr
        );
    }
    for (more, said) in [
        (
            &["--selector", "family", "--nodes", "2"][..],
            "serves machines of one node, this one has 2",
        ),
        (
            &["--selector", "greedy", "--strategy", "pack"][..],
            "leave --strategy out",
        ),
        (&["--selector", "best"][..], "possible values: critical, greedy, family"),
    ] {
        let ran = plan(more);
        assert_eq!(ran.code, 2, "{more:?}: {}", ran.stdout);
        assert!(ran.stderr.contains(said), "{more:?}: {}", ran.stderr);
    }
}

#[test]
fn simulate_compares_all_strategies_under_three_laws_and_draws_the_load() {
    let machine = path("simulated.ron", SMALL);
    let picture = path("load.svg", "");
    let line = [
        "alltoallv",
        "simulate",
        &machine,
        "--nodes",
        "2",
        "--demand",
        "zipf:0.6",
        "--bytes",
        "16MiB",
        "--svg",
        &picture,
    ];
    let ran = run(&line);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for name in [
        "topoforge (peel)",
        "topoforge, rotation",
        "fixed peers, fastest path",
        "fixed peers, adaptive path",
        "all at once",
        "rail and forward, staged",
        "balance and redistribute, overlapped",
    ] {
        assert!(ran.stdout.contains(name), "{name}: {}", ran.stdout);
    }
    let drawn = std::fs::read_to_string(&picture).expect("the picture is there");
    assert!(
        drawn.starts_with("<svg") && drawn.contains("node 1 NIC 0 out"),
        "{}",
        &drawn[..200]
    );
    let json: Vec<&str> = line[..9].iter().copied().chain(["--json"]).collect();
    let found = run(&json).document();
    let strategies = found["strategies"].as_array().expect("a list");
    assert!(strategies.len() >= 10, "{found}");
    for strategy in strategies {
        let (fluid, lossy) = (strategy["fluid_us"].as_f64(), strategy["lossy_us"].as_f64());
        assert!(
            fluid.is_some_and(|f| f > 0.0) && lossy >= fluid.map(|f| f * 0.999),
            "{strategy}"
        );
    }
    let ran = run(&["alltoallv", "simulate", &machine, "--eta", "2"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("a number from 0.01 to 1"), "{}", ran.stderr);
}
