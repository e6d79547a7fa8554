//! What a build without nvcc does, and what it must not do. The builder prints cargo's directives, so it runs here in a
//! process of its own: this test binary, called again as a build script would be.

use std::process::{Command, Output};
use topoforge_codegen::manifest::Manifest;
use topoforge_codegen::{Forge, ForgeError};

const PAIR: &str = "Topology(name: \"my-pair\", ranks: 2, links: [pair(0, 1, NvLink(lanes: 2))])";

/// Not a test of its own: the build script that the others run.
#[test]
fn build_script() -> Result<(), ForgeError> {
    if std::env::var_os("FORGE_UNDER_TEST").is_none() {
        return Ok(());
    }
    let required = std::env::var_os("FORGE_REQUIRE_CUDA").is_some();
    Forge::new().host_executor(false).require_cuda(required).compile()
}

struct Crate {
    folder: std::path::PathBuf,
}

impl Crate {
    fn new(name: &str, descriptors: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("topoforge-forge-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("topologies")).unwrap();
        std::fs::create_dir_all(folder.join("target/debug/build/p/out")).unwrap();
        for (file, text) in descriptors {
            std::fs::write(folder.join("topologies").join(file), text).unwrap();
        }
        Self { folder }
    }

    fn out(&self) -> std::path::PathBuf {
        self.folder.join("target/debug/build/p/out")
    }

    fn build(&self, more: &[(&str, &str)]) -> Output {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "build_script", "--nocapture"]);
        for name in [
            "NVCC",
            "CUDA_HOME",
            "CUDA_PATH",
            "TOPOFORGE_TOPOLOGIES",
            "TOPOFORGE_CACHE",
            "TOPOFORGE_TOOLKIT_DIR",
        ] {
            command.env_remove(name);
        }
        command
            .env("FORGE_UNDER_TEST", "1")
            .env("OUT_DIR", self.out())
            .env("CARGO_MANIFEST_DIR", &self.folder);
        command
            .env("TOPOFORGE_NVCC", "none")
            .envs(more.iter().copied())
            .output()
            .unwrap()
    }

    fn manifest(&self) -> Manifest {
        Manifest::read(&self.out()).unwrap()
    }
}

impl Drop for Crate {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn without_nvcc_there_is_a_registry_without_gpu_code_and_one_warning() {
    let krate = Crate::new("bare", &[("my-pair.ron", PAIR)]);
    let output = krate.build(&[]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("cargo::warning=").count(), 1, "{said}");
    assert!(
        said.contains("no nvcc found") && said.contains("cargo xtask setup"),
        "{said}"
    );
    let manifest = krate.manifest();
    assert_eq!(manifest.families[0].name, "my-pair");
    assert!(manifest.archs.is_empty() && manifest.kernels.iter().all(|k| k.images.is_empty()));
    assert!(!manifest.kernels.is_empty());
}

#[test]
fn require_cuda_makes_a_missing_nvcc_an_error_with_the_way_out() {
    let krate = Crate::new("required", &[("my-pair.ron", PAIR)]);
    let output = krate.build(&[("FORGE_REQUIRE_CUDA", "1")]);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.contains("require-cuda is on and no nvcc was found") && said.contains("TOPOFORGE_NVCC"),
        "{said}"
    );
}

#[test]
fn faulty_descriptors_do_not_stop_the_build_and_are_all_recorded() {
    let broken = "Topology(\n  name: \"Broken\",\n  ranks: 2,\n  links: [pair(0, 7, NvLink(lanes: 2))],\n)";
    let krate = Crate::new(
        "faulty",
        &[("a.ron", PAIR), ("b.ron", broken), ("c.ron", PAIR), ("d.ron", "")],
    );
    assert!(krate.build(&[]).status.success());
    let faults: Vec<String> = krate.manifest().faults.into_iter().map(|f| f.text).collect();
    let has = |start: &str| faults.iter().any(|f| f.starts_with(start));
    assert!(has("topologies/b.ron:2:") && has("topologies/b.ron:4:"), "{faults:#?}");
    assert!(has("topologies/d.ron:1:1:"), "{faults:#?}");
    // One name twice.
    assert!(has("topologies/c.ron:") || has("topologies/a.ron:"), "{faults:#?}");
}

#[test]
fn equal_builds_write_equal_manifests_without_machine_paths() {
    let krate = Crate::new("equal", &[("my-pair.ron", PAIR)]);
    krate.build(&[]);
    let path = krate.out().join(topoforge_codegen::manifest::FILE);
    let first = std::fs::read_to_string(&path).unwrap();
    krate.build(&[]);
    assert_eq!(first, std::fs::read_to_string(&path).unwrap());
    assert!(
        !first.contains(&*krate.folder.to_string_lossy()),
        "a path of this machine is inside"
    );
}

#[test]
fn a_manifest_of_another_version_or_cut_is_refused() {
    let krate = Crate::new("versions", &[("my-pair.ron", PAIR)]);
    krate.build(&[]);
    let whole = std::fs::read_to_string(krate.out().join(topoforge_codegen::manifest::FILE)).unwrap();
    let newer = whole.replacen("format: 1", "format: 2", 1);
    let refused = |text: &str| Manifest::parse(text).unwrap_err().to_string();
    assert!(refused(&newer).contains("format 2"), "{}", refused(&newer));
    assert!(refused(&whole[..whole.len() / 2]).contains("damaged"));
}

#[test]
fn outside_a_build_script_it_says_so() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "build_script", "--nocapture"])
        .env("FORGE_UNDER_TEST", "1")
        .env_remove("OUT_DIR")
        .output()
        .unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("OUT_DIR is not set"), "{said}");
}
