//! The rule table: made from real figures only, read whole or not at all, requalified before it serves.

#[path = "qualify_support/fake.rs"]
mod fake;

use fake::{Fake, Wrong, family, left_fold, variant};
use std::fs;
use std::path::{Path, PathBuf};
use topoforge::device::Geometry;
use topoforge::qualify::QualifyPlan;
use topoforge::registry::{Element, Family, Partials};
use topoforge::routes::{Identity, NcclIdentity, Routes, RoutesError, Served, requalify};
use topoforge::tune::{Compare, Payloads, TuneOptions, tune};

const F16: &[Partials] = &[Partials::F16];
const CLASSES: &[u64] = &[16 << 10, 128 << 10];

fn pair() -> &'static Family {
    let variants = vec![
        variant("one-shot/packet/f16", F16, left_fold(0..2), &[16 << 10]),
        variant("one-shot/flag/f16", F16, left_fold(0..2), &[128 << 10]),
    ];
    family("nvlink-pair", variants)
}

fn identity() -> Identity {
    Identity {
        kernel_set: "0123abcd".to_owned(),
        driver: "570.124.06".to_owned(),
        nccl: Some(NcclIdentity {
            version: "2.28.3".to_owned(),
            path: "/usr/lib/libnccl.so.2".to_owned(),
        }),
        gpus: vec!["Fake GPU".to_owned(), "Fake \"GPU\"".to_owned()],
        layout: 0x00ab_cdef_0123_4567,
        element: Element::F16,
        partials: Partials::F16,
        family: "nvlink-pair".to_owned(),
        placement: vec![1, 0],
    }
}

/// 1 and 10 KiB are ours, 25 KiB is the comparator's, 80 KiB ours again.
fn routes() -> Routes {
    let mut exec = Fake::new(2);
    exec.clock = Box::new(|name, _, bytes| match name {
        "nccl" => 7.0,
        _ if bytes == 25 << 10 => 8.0,
        _ => 1.25,
    });
    let payloads = Payloads::from_bytes(&[1 << 10, 10 << 10, 25 << 10, 80 << 10]).expect("sizes");
    let options = TuneOptions {
        payloads,
        comparators: vec![Compare::Nccl],
        ..TuneOptions::default()
    };
    let report = tune(&mut exec, pair(), &options, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
    Routes::from_report(&report, identity()).unwrap_or_else(|e| panic!("{e}"))
}

fn served(routes: &Routes, bytes: u64) -> Option<&str> {
    routes.lookup(bytes).map(|r| match &r.served {
        Served::Variant { name, .. } => name.as_str(),
        Served::Comparator => "comparator",
    })
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("routes-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_route_serves_its_size_and_what_lies_below_down_to_the_one_before() {
    let routes = routes();
    let (packet, flag) = (Some("one-shot/packet/f16"), Some("one-shot/flag/f16"));
    for (bytes, expected) in [
        (0, None),
        (2, packet),
        (3, None),
        (1 << 10, packet),
        ((1 << 10) + 2, packet),
        (10 << 10, packet),
        ((10 << 10) + 2, Some("comparator")),
        (25 << 10, Some("comparator")),
        ((25 << 10) + 2, flag),
        (80 << 10, flag),
        ((80 << 10) + 2, None),
        (u64::MAX, None),
    ] {
        assert_eq!(served(&routes, bytes), expected, "{bytes}");
    }
    assert_eq!(routes.lookup(1024).map(|r| r.up_to), Some(1024));
}

#[test]
fn what_is_written_reads_back_the_same() {
    let folder = Folder::new("round");
    let path = folder.0.join("routes.ron");
    let routes = routes();
    routes.write(&path).expect("writes");
    assert_eq!(Routes::read(&path), Ok(routes.clone()));
    // Over an existing file too, and nothing is left beside it.
    routes.write(&path).expect("writes");
    assert_eq!(fs::read_dir(&folder.0).expect("lists").count(), 1);
    assert!(routes.write(&folder.0.join("missing/routes.ron")).is_err());
    let mut other = identity();
    other.nccl = None;
    let text = routes.to_text();
    assert!(
        text.contains("layout: \"00abcdef01234567\"") && text.contains("format: 2"),
        "{text}"
    );
}

#[test]
fn a_cut_file_is_never_half_read() {
    let text = routes().to_text();
    let end = text.trim_end().len();
    let mut truncated = 0;
    for cut in (0..end).filter(|c| text.is_char_boundary(*c)) {
        match Routes::parse(&text[..cut], Path::new("routes.ron")) {
            Err(RoutesError::Truncated { .. }) => truncated += 1,
            Err(RoutesError::Foreign { .. }) => {}
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
    assert!(truncated * 10 > end * 8, "{truncated} of {end} cuts are named as such");
}

#[test]
fn what_is_no_table_is_refused_with_its_reason() {
    let text = routes().to_text();
    let read = |text: &str| Routes::parse(text, Path::new("routes.ron")).expect_err("refused");
    let change = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        read(&text.replacen(from, to, 1))
    };
    assert!(matches!(
        change("format: 2", "format: 7, later: true"),
        RoutesError::Format { found: 7, .. }
    ));
    for foreign in [
        "{\"version\": 3}",
        "<html></html>\n",
        "Topology(ranks: 2)",
        "hello\nworld)\n",
    ] {
        let error = read(foreign);
        assert!(matches!(error, RoutesError::Foreign { .. }), "{foreign}: {error}");
    }
    for (from, to, part) in [
        ("up_to: 10240", "up_to: 1024", "sizes must rise"),
        ("up_to: 10240", "up_to: 10241", "whole elements"),
        (
            "layout: \"00abcdef01234567\"",
            "layout: \"0xabcdef\"",
            "16 hexadecimal digits",
        ),
        ("element: \"f16\"", "element: \"f64\"", "unknown element `f64`"),
        ("partials: \"f16\"", "partials: \"bf16\"", "unknown partials"),
        ("us: Some(1.25)", "us: Some(-1.25)", "no positive number"),
        ("us: Some(1.25)", "us: None", "without a figure"),
        ("threads: 32", "threads: 33", "no launch has geometry"),
    ] {
        let error = change(from, to);
        assert!(matches!(error, RoutesError::Invalid { .. }), "{to}: {error:?}");
        assert!(error.to_string().contains(part), "{to}: {error}");
    }
    assert!(matches!(
        change("driver:", "driver_version:"),
        RoutesError::Foreign { .. }
    ));
    assert!(matches!(
        Routes::read(Path::new("/nowhere/routes.ron")),
        Err(RoutesError::Io { action: "read", .. })
    ));
}

#[test]
fn no_routes_are_made_from_an_emulation() {
    let mut exec = Fake::new(2);
    (exec.info.timed, exec.info.kind) = (false, "host");
    let payloads = Payloads::from_bytes(&[1024]).expect("a size");
    let options = TuneOptions {
        payloads,
        comparators: vec![Compare::None],
        ..TuneOptions::default()
    };
    let report = tune(&mut exec, pair(), &options, &mut |_| {}).expect("tunes");
    let error = Routes::from_report(&report, identity()).expect_err("refused");
    assert!(
        matches!(error, RoutesError::Emulation { .. }) && error.to_string().contains("emulation"),
        "{error}"
    );
}

#[test]
fn a_changed_identity_is_said_aloud() {
    let (table, mut here) = (identity(), identity());
    assert!(table.differences(&here).is_empty());
    here.driver = "580.01".to_owned();
    here.nccl = None;
    here.layout = 1;
    here.placement = vec![0, 1];
    let lines = table.differences(&here);
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!(lines[0], "driver: measured with `570.124.06`, here `580.01`");
    assert_eq!(
        lines[1],
        "NCCL: measured with 2.28.3 from /usr/lib/libnccl.so.2, here none"
    );
    assert_eq!(
        lines[2],
        "layout fingerprint: measured with 00abcdef01234567, here 0000000000000001"
    );
}

#[test]
fn a_report_of_another_family_makes_no_routes() {
    let mut exec = Fake::new(2);
    let options = TuneOptions {
        comparators: vec![Compare::None],
        ..TuneOptions::default()
    };
    let report = tune(&mut exec, pair(), &options, &mut |_| {}).expect("tunes");
    let wrong = Identity {
        family: "pix-pair".to_owned(),
        ..identity()
    };
    assert!(matches!(
        Routes::from_report(&report, wrong),
        Err(RoutesError::Invalid { .. })
    ));
    let wrong = Identity {
        placement: vec![0, 0],
        ..identity()
    };
    assert!(matches!(
        Routes::from_report(&report, wrong),
        Err(RoutesError::Invalid { .. })
    ));
}

#[test]
fn requalification_keeps_what_passes_and_drops_what_fails_with_its_reason() {
    let mut kept = routes();
    let mut exec = Fake::new(2);
    let plan = QualifyPlan {
        rounds: 4,
        ..QualifyPlan::quick()
    };
    assert_eq!(requalify(&mut exec, pair(), &mut kept, &plan), []);
    assert_eq!(kept, routes());
    let largest = kept.lookup(80 << 10).and_then(|r| match &r.served {
        Served::Variant { geometry, .. } => Some(*geometry),
        Served::Comparator => None,
    });
    let ran = |exec: &Fake, bytes, geometry: Geometry| exec.ran.contains(&("one-shot/flag/f16", bytes, geometry));
    assert!(largest.is_some_and(|g| ran(&exec, 80 << 10, g)), "proven as it serves");

    exec.wrong.insert("one-shot/packet/f16", Wrong::Stale);
    let dropped = requalify(&mut exec, pair(), &mut kept, &plan);
    assert_eq!(
        (dropped.len(), dropped[0].sizes.as_slice()),
        (1, [1024, 10_240].as_slice())
    );
    assert!(
        dropped[0].to_string().contains("no longer qualifies: wrong bits"),
        "{}",
        dropped[0]
    );
    assert_eq!(served(&kept, 1024), Some("comparator"));
    assert_eq!(served(&kept, 80 << 10), Some("one-shot/flag/f16"));
    assert!(
        kept.lookup(1024)
            .is_some_and(|r| r.reason.contains("no longer qualifies"))
    );
}

#[test]
fn a_variant_that_is_no_longer_compiled_in_is_dropped() {
    let smaller = family(
        "nvlink-pair",
        vec![variant("one-shot/packet/f16", F16, left_fold(0..2), CLASSES)],
    );
    let mut kept = routes();
    let dropped = requalify(&mut Fake::new(2), smaller, &mut kept, &QualifyPlan::quick());
    assert_eq!(dropped.len(), 1);
    assert!(dropped[0].to_string().contains("not compiled in"), "{}", dropped[0]);
    assert_eq!(served(&kept, 80 << 10), Some("comparator"));
}
