//! Which nvcc wins: every source with a fake compiler of another version behind it.

mod toolkit_fixture;

use std::ffi::OsString;
use std::path::Path;

use toolkit_fixture::{Folder, fake_nvcc};
use topoforge_codegen::env::{self, Env};
use topoforge_codegen::toolkit::{Discover, ToolkitError};

fn releases(discover: &Discover) -> Vec<String> {
    let toolkits = discover.find().expect("all fakes answer");
    toolkits.iter().map(|toolkit| toolkit.release()).collect()
}

fn join(paths: &[&Path]) -> OsString {
    std::env::join_paths(paths).expect("no separator in the names")
}

#[test]
fn sources_win_in_the_documented_order() {
    let folder = Folder::new("order");
    let listed = fake_nvcc(&folder.path.join("listed/bin/nvcc"), "11.0", &[70]);
    let single = fake_nvcc(&folder.path.join("single/nvcc"), "11.1", &[70]);
    fake_nvcc(&folder.path.join("home/bin/nvcc"), "11.2", &[70]);
    fake_nvcc(&folder.path.join("path-var/bin/nvcc"), "11.3", &[70]);
    fake_nvcc(&folder.path.join("search/nvcc"), "11.4", &[70]);
    fake_nvcc(&folder.path.join("fallback/cuda/bin/nvcc"), "11.5", &[70]);

    let sources = [
        (env::TOPOFORGE_NVCC, listed.into_os_string(), "11.0"),
        (env::NVCC, single.into_os_string(), "11.1"),
        (env::CUDA_HOME, folder.path.join("home").into(), "11.2"),
        (env::CUDA_PATH, folder.path.join("path-var").into(), "11.3"),
        (env::PATH, folder.path.join("search").into(), "11.4"),
    ];
    // With the first k sources gone, number k + 1 wins.
    for skipped in 0..=sources.len() {
        let mut snapshot = Env::default();
        for (var, value, _) in &sources[skipped..] {
            snapshot.set(*var, value.clone());
        }
        let found = releases(&Discover::new(snapshot).with_fallback(folder.path.join("fallback")));
        let expected = sources.get(skipped).map_or("11.5", |(_, _, release)| release);
        assert_eq!(found, [expected], "with {skipped} sources gone");
    }
}

#[test]
fn a_list_is_taken_whole_in_its_order_and_each_compiler_once() {
    let folder = Folder::new("list");
    let new = fake_nvcc(&folder.path.join("new/bin/nvcc"), "13.0", &[75, 90, 100]);
    fake_nvcc(&folder.path.join("old/bin/nvcc"), "11.8", &[70, 90]);
    let old = folder.path.join("old");
    let snapshot = Env::default().with(env::TOPOFORGE_NVCC, join(&[&new, &old, &new]));
    assert_eq!(releases(&Discover::new(snapshot)), ["13.0", "11.8"]);
}

#[test]
fn a_bare_name_is_looked_up_in_the_search_path() {
    let folder = Folder::new("bare");
    fake_nvcc(&folder.path.join("nvcc-12"), "12.4", &[70]);
    let snapshot = Env::default().with(env::NVCC, "nvcc-12").with(env::PATH, &folder.path);
    assert_eq!(releases(&Discover::new(snapshot)), ["12.4"]);
}

#[test]
fn a_named_compiler_that_is_missing_is_an_error_that_names_the_variable() {
    let folder = Folder::new("missing");
    for var in [env::TOPOFORGE_NVCC, env::NVCC] {
        let snapshot = Env::default().with(var, folder.path.join("nowhere"));
        match Discover::new(snapshot).find() {
            Err(ToolkitError::Missing { named_by, .. }) => assert_eq!(named_by, var.name),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_compiler_that_does_not_answer_is_an_error_with_its_own_words() {
    let folder = Folder::new("broken");
    let nvcc = folder.script("bin/nvcc", "echo 'libfoo is missing' >&2; exit 3");
    let snapshot = Env::default().with(env::TOPOFORGE_NVCC, nvcc);
    let message = Discover::new(snapshot).find().unwrap_err().to_string();
    assert!(message.contains("libfoo is missing"), "{message}");
    assert!(message.contains("TOPOFORGE_NVCC=none"), "{message}");
}

#[test]
fn none_forbids_even_what_is_installed() {
    let folder = Folder::new("none");
    fake_nvcc(&folder.path.join("nvcc"), "12.4", &[70]);
    let snapshot = Env::default()
        .with(env::TOPOFORGE_NVCC, "none")
        .with(env::PATH, &folder.path);
    assert!(releases(&Discover::new(snapshot).with_fallback(&folder.path)).is_empty());
}

#[test]
fn nothing_found_is_an_empty_list_and_fetches_under_way_are_not_seen() {
    let folder = Folder::new("fallback");
    let discover = || Discover::new(Env::default()).with_fallback(folder.path.join("tools"));
    assert!(releases(&discover()).is_empty());
    fake_nvcc(&folder.path.join("tools/.fetch-1/bin/nvcc"), "11.8", &[70]);
    assert!(releases(&discover()).is_empty());
    fake_nvcc(&folder.path.join("tools/cuda-13.0/bin/nvcc"), "13.0", &[75]);
    fake_nvcc(&folder.path.join("tools/cuda-11.8/bin/nvcc"), "11.8", &[70]);
    assert_eq!(releases(&discover()), ["11.8", "13.0"]);
}

#[test]
fn the_toolkit_folder_variable_replaces_the_callers_folder() {
    let folder = Folder::new("instead");
    fake_nvcc(&folder.path.join("ours/a/bin/nvcc"), "11.8", &[70]);
    fake_nvcc(&folder.path.join("theirs/a/bin/nvcc"), "13.0", &[75]);
    let snapshot = Env::default().with(env::TOPOFORGE_TOOLKIT_DIR, folder.path.join("theirs"));
    let found = releases(&Discover::new(snapshot).with_fallback(folder.path.join("ours")));
    assert_eq!(found, ["13.0"]);
}

#[test]
fn identity_is_what_the_compiler_is_not_where_it_lies() {
    let folder = Folder::new("identity");
    let id = |name: &str, release: &str, archs: &[u32]| {
        let nvcc = fake_nvcc(&folder.path.join(name), release, archs);
        let snapshot = Env::default().with(env::TOPOFORGE_NVCC, nvcc);
        Discover::new(snapshot).find().expect("answers")[0].id.clone()
    };
    let first = id("a/nvcc", "11.8", &[70, 90]);
    assert_eq!(first, id("b/nvcc", "11.8", &[70, 90]));
    assert_ne!(first, id("c/nvcc", "11.7", &[70, 90]));
}
