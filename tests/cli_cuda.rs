//! `plan --show-cuda` and `plan --check`: the printed text is what was compiled, and a binary that holds something else says so.

#[allow(dead_code, reason = "each test file uses its own part")]
mod cli_support;

use cli_support::{file, run};
use std::collections::BTreeSet;
use topoforge::registry::{Family, Registry};
use topoforge_codegen::toolkit::sha256;

fn family(name: &str) -> &'static Family {
    Registry::builtin().family(name).expect("built in")
}

#[test]
fn the_text_shown_is_the_text_that_was_compiled() {
    let document = run(&["plan", "pix-quad", "--show-cuda", "--json"]).document();
    let kernels = document["kernels"].as_array().expect("a list");
    let shown: BTreeSet<&str> = kernels.iter().filter_map(|k| k["hash"].as_str()).collect();
    let compiled: BTreeSet<&str> = family("pix-quad").variants.iter().map(|v| v.kernel.hash).collect();
    assert_eq!(shown, compiled);
    for kernel in kernels {
        let (text, symbol) = (
            kernel["text"].as_str().expect("text"),
            kernel["symbol"].as_str().expect("text"),
        );
        assert!(text.contains(symbol) && text.contains("#include \""), "{text}");
    }
}

#[test]
fn one_variant_or_one_kernel_is_shown_alone_and_as_plain_text() {
    let variant = &family("nvlink-pair").variants[0];
    let by_name = run(&["plan", "nvlink-pair", "--show-cuda", variant.name]);
    assert_eq!(by_name.code, 0, "{}", by_name.stderr);
    let head = format!("// {} of nvlink-pair: ", variant.kernel.symbol);
    assert!(by_name.stdout.starts_with(&head), "{}", by_name.stdout);
    assert_eq!(by_name.stdout.matches(" of nvlink-pair: ").count(), 1);
    let by_hash = run(&["plan", "nvlink-pair", "--show-cuda", variant.kernel.hash]);
    assert_eq!(by_hash.stdout, by_name.stdout);
    let slip = format!("{}x", variant.name);
    let refused = run(&["plan", "nvlink-pair", "--show-cuda", &slip]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains(variant.name), "{}", refused.stderr);
}

#[test]
fn this_binary_holds_what_every_family_is_lowered_to_now() {
    let ran = run(&["plan", "all", "--check", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let document = ran.document();
    let families = document["families"].as_array().expect("a list");
    assert_eq!(families.len(), Registry::builtin().families().len());
    assert!(families.iter().all(|f| f["equal"] == true), "{document}");
}

#[test]
fn a_descriptor_that_has_changed_since_the_build_is_told_name_by_name() {
    let descriptor = family("pix-quad").descriptor;
    let same = file("check-same.ron", descriptor);
    let ran = run(&["plan", same.to_str().expect("text"), "--check"]);
    assert_eq!(
        (ran.code, ran.stdout.contains("as compiled in")),
        (0, true),
        "{}",
        ran.stdout
    );

    // The same name on another machine.
    let other = "Topology(name: \"pix-quad\", ranks: 4, links: [pair(0, 1, Pcie(Pix)), pair(1, 2, Pcie(Pix)), \
                 pair(2, 3, Pcie(Pix)), pair(3, 0, Pcie(Pix))])";
    let other = file("check-other.ron", other);
    let ran = run(&["plan", other.to_str().expect("text"), "--check"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.contains("pix-quad would be now: build again"),
        "{}",
        ran.stderr
    );
    let gone = ran.stdout.lines().filter(|l| l.starts_with("  - ")).count();
    let new = ran.stdout.lines().filter(|l| l.starts_with("  + ")).count();
    assert!(gone > 1 && new > 1, "{}", ran.stdout);
    assert!(ran.stdout.contains("- descriptor ") && ran.stdout.contains("NOT as compiled in"));

    // A comment alone changes no kernel, and is told all the same: the descriptor is part of what was compiled.
    let noted = file("check-noted.ron", &format!("// A note.\n{descriptor}"));
    let ran = run(&["plan", noted.to_str().expect("text"), "--check"]);
    assert_eq!((ran.code, ran.stdout.matches("  - ").count()), (1, 1), "{}", ran.stdout);
    assert!(ran.stdout.contains(&sha256::hex(descriptor.as_bytes())[..16]));
}

#[test]
fn what_is_not_compiled_in_cannot_be_compared() {
    let lone = file(
        "check-lone.ron",
        "Topology(name: \"nvlink-pear\", ranks: 2, links: [pair(0, 1, Pcie(Pix))])",
    );
    let ran = run(&["plan", lone.to_str().expect("text"), "--check"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("no family `nvlink-pear`: did you mean nvlink-pair"),
        "{}",
        ran.stderr
    );
    for line in [
        &["plan", "pix-quad", "--check", "--payload", "1KiB"][..],
        &["plan", "pix-quad", "--check", "--show-cuda"],
        &["plan", "pix-quad", "--show-cuda", "all", "--budget", "9"],
        &["plan", "all"],
        &["plan", "all", "--show-cuda"],
    ] {
        assert_eq!(run(line).code, 2, "{line:?}");
    }
}
