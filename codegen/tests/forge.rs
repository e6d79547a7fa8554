//! What a build does with descriptors and without nvcc, and what it must not do. The builder prints cargo's directives, so it runs here in a
//! process of its own: this test binary, called again as a build script would be.

mod toolkit_fixture;

use std::process::{Command, Output};
use toolkit_fixture::compiling_nvcc;
use topoforge_codegen::manifest::Manifest;
use topoforge_codegen::{Element, Forge, ForgeError, Set};

const PAIR: &str = "Topology(name: \"my-pair\", ranks: 2, links: [pair(0, 1, NvLink(lanes: 2))])";

/// Not a test of its own: the build script that the others run.
#[test]
fn build_script() -> Result<(), ForgeError> {
    if std::env::var_os("FORGE_UNDER_TEST").is_none() {
        return Ok(());
    }
    let asked = |name: &str| std::env::var_os(name).is_some();
    let named = std::env::var("FORGE_ELEMENTS").unwrap_or_else(|_| "f16".into());
    let elements: Vec<Element> = (Element::ALL.iter().copied())
        .filter(|e| named.split(',').any(|n| n == e.name()))
        .collect();
    let sets: Vec<Set> = match std::env::var("FORGE_SETS") {
        Ok(named) => (Set::ALL.iter().copied())
            .filter(|s| named.split(',').any(|n| n == s.name()))
            .collect(),
        Err(_) => Set::ALL.to_vec(),
    };
    let forge = Forge::new()
        .elements(&elements)
        .sets(&sets)
        .host_executor(false)
        .require_cuda(asked("FORGE_REQUIRE_CUDA"));
    // As topoforge's own build script does, which alone takes descriptors from outside.
    let forge = if asked("FORGE_OWN") { forge.tools() } else { forge };
    forge.compile()
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
            "TOPOFORGE_JOBS",
            "TOPOFORGE_ARCHS",
            "CARGO_MAKEFLAGS",
            "MAKEFLAGS",
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
fn a_build_holds_the_element_types_that_were_asked_for_and_no_other() {
    let krate = Crate::new("elements", &[("my-pair.ron", PAIR)]);
    let built = |named: &str| {
        let output = krate.build(&[("FORGE_ELEMENTS", named)]);
        assert!(output.status.success(), "{}", text(&output.stdout));
        (krate.manifest(), text(&output.stdout))
    };
    let (both, _) = built("f32,bf16");
    assert_eq!(both.elements, [Element::Bf16, Element::F32]);
    let held = |e| both.families[0].variants.iter().any(|v| v.element == e);
    assert!(held(Element::Bf16) && held(Element::F32) && !held(Element::F16));
    let (none, said) = built("");
    assert!(none.kernels.is_empty() && none.families[0].variants.is_empty());
    assert!(said.contains("features f16, bf16, f32"), "{said}");
}

#[test]
fn a_build_takes_the_sets_asked_for_and_whatever_comes_from_outside() {
    let pix = "Topology(name: \"my-pix\", ranks: 2, links: [pair(0, 1, Pcie(Pix))])";
    let own = Crate::new("sets", &[("my-pair.ron", PAIR), ("my-pix.ron", pix)]);
    let outside = Crate::new("sets-outside", &[("far.ron", &pix.replace("my-pix", "far-pix"))]);
    let folder = outside.folder.join("topologies").display().to_string();
    let named = |sets: &str| {
        let more = [
            ("FORGE_SETS", sets),
            ("FORGE_OWN", "1"),
            ("TOPOFORGE_TOPOLOGIES", &folder),
        ];
        let output = own.build(&more);
        assert!(output.status.success(), "{}", text(&output.stdout));
        let manifest = own.manifest();
        (
            manifest.families.into_iter().map(|f| f.name).collect::<Vec<_>>(),
            manifest.sets,
        )
    };
    assert_eq!(
        named("nvlink"),
        (vec!["far-pix".into(), "my-pair".into()], vec!["nvlink".into()])
    );
    assert_eq!(named("pcie").0, ["far-pix", "my-pix"]);
    assert_eq!(named("").0, ["far-pix"]);
    assert_eq!(named("nvlink,pcie,mixed").0.len(), 3);
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
    let newer = whole.replacen("format: 2", "format: 3", 1);
    let refused = |text: &str| Manifest::parse(text).unwrap_err().to_string();
    assert!(refused(&newer).contains("format 3"), "{}", refused(&newer));
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

const QUAD: &str = "Topology(name: \"my-quad\", ranks: 4, links: [all_pairs([0, 1, 2, 3], Pcie(Pix))])";

/// A fake nvcc that writes a line into `runs` for every kernel, and a fatbin's first bytes.
fn counting_nvcc(krate: &Crate) -> String {
    let then =
        "printf '\\120\\355\\125\\272' > \"$out\"; cat kernel.cu >> \"$out\"; echo run >> \"$(dirname \"$0\")/runs\"";
    let nvcc = compiling_nvcc(&krate.folder.join("fake/nvcc"), "11.8", &[70, 80], then);
    nvcc.to_str().unwrap().to_owned()
}

fn runs(krate: &Crate) -> usize {
    std::fs::read_to_string(krate.folder.join("fake/runs")).map_or(0, |text| text.lines().count())
}

fn names(manifest: &Manifest) -> Vec<&str> {
    manifest.families.iter().map(|f| f.name.as_str()).collect()
}

#[test]
fn a_descriptor_from_outside_is_compiled_alone_and_is_gone_when_its_file_is() {
    let krate = Crate::new("outside", &[("my-pair.ron", PAIR)]);
    let nvcc = counting_nvcc(&krate);
    let (first, second) = (krate.folder.join("one"), krate.folder.join("two"));
    for folder in [&first, &second] {
        std::fs::create_dir_all(folder).unwrap();
    }
    // Neither a descriptor: what an editor leaves, and notes.
    std::fs::write(first.join(".#my-quad.ron"), "half a des").unwrap();
    std::fs::write(first.join("notes.txt"), "later").unwrap();
    let list = std::env::join_paths([&first, &second]).unwrap();
    let more = [
        ("FORGE_OWN", "1"),
        ("TOPOFORGE_NVCC", nvcc.as_str()),
        ("TOPOFORGE_TOPOLOGIES", list.to_str().unwrap()),
    ];
    let build = || {
        let output = krate.build(&more);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{said}");
        said
    };
    let said = build();
    assert!(said.contains("two, which holds no descriptor"), "{said}");
    let alone = krate.manifest();
    assert_eq!(names(&alone), ["my-pair"]);
    // One more for the measuring kernels.
    assert_eq!(runs(&krate), alone.kernels.len() + 1);
    let before = runs(&krate);

    std::fs::write(second.join("my-quad.ron"), QUAD).unwrap();
    let said = build();
    for watched in [second.clone(), second.join("my-quad.ron")] {
        let line = format!("cargo::rerun-if-changed={}\n", watched.display());
        assert!(said.contains(&line), "{said}");
    }
    let both = krate.manifest();
    assert_eq!(names(&both), ["my-pair", "my-quad"]);
    assert_eq!(both.families[0], alone.families[0]);
    let new = both
        .kernels
        .iter()
        .filter(|k| alone.kernel(&k.kernel.hash).is_none())
        .count();
    assert!(new > 0);
    assert_eq!(runs(&krate) - before, new, "only what the new family needs is compiled");

    std::fs::remove_file(second.join("my-quad.ron")).unwrap();
    build();
    assert_eq!(krate.manifest(), alone);
    assert_eq!(runs(&krate) - before, new, "nothing is compiled for a family that goes");
}

#[test]
fn faults_from_outside_have_their_places_and_a_name_is_given_once() {
    let krate = Crate::new("outside-faults", &[("my-pair.ron", PAIR)]);
    let outside = krate.folder.join("outside");
    std::fs::create_dir_all(outside.join("folder.ron")).unwrap();
    std::fs::write(outside.join("twin.ron"), format!("// The same name.\n{PAIR}")).unwrap();
    std::fs::write(outside.join("bad.ron"), PAIR.replace("pair(0, 1", "pair(0, 5")).unwrap();
    let shown = outside.display();
    let output = krate.build(&[("FORGE_OWN", "1"), ("TOPOFORGE_TOPOLOGIES", &shown.to_string())]);
    assert!(output.status.success(), "faults are the macro's to tell");
    let faults: Vec<String> = krate.manifest().faults.into_iter().map(|f| f.text).collect();
    let has = |start: String| faults.iter().any(|f| f.starts_with(&start));
    assert!(has(format!("{shown}/bad.ron:1:")), "{faults:#?}");
    assert!(has(format!("{shown}/folder.ron:1:1: cannot be read")), "{faults:#?}");
    let taken = format!("{shown}/twin.ron:2:16: name \"my-pair\" is taken by topologies/my-pair.ron:1:16");
    assert!(has(taken), "{faults:#?}");
}

#[test]
fn a_folder_that_is_not_there_stops_the_build_and_says_who_named_it() {
    let krate = Crate::new("no-folder", &[("my-pair.ron", PAIR)]);
    let nowhere = krate.folder.join("nowhere").display().to_string();
    let output = krate.build(&[("FORGE_OWN", "1"), ("TOPOFORGE_TOPOLOGIES", &nowhere)]);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(!output.status.success());
    let expected = format!("TOPOFORGE_TOPOLOGIES names {nowhere}, which cannot be read");
    assert!(said.contains(&expected) && said.contains("correct or unset"), "{said}");
    std::fs::remove_dir_all(krate.folder.join("topologies")).unwrap();
    let output = krate.build(&[]);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(
        !output.status.success() && said.contains("Forge::topologies names "),
        "{said}"
    );
}

#[test]
fn a_dependent_takes_no_descriptors_from_the_environment() {
    let krate = Crate::new("dependent", &[("my-pair.ron", PAIR)]);
    assert!(
        krate
            .build(&[("TOPOFORGE_TOPOLOGIES", "/nowhere/at/all")])
            .status
            .success()
    );
    assert_eq!(names(&krate.manifest()), ["my-pair"]);
}

#[test]
fn compilers_run_side_by_side_only_as_cargos_jobserver_allows() {
    let krate = Crate::new("jobserver", &[("my-pair.ron", PAIR), ("my-quad.ron", QUAD)]);
    // Counts the runs that are under way when it starts, itself included.
    let then = "d=\"$(dirname \"$0\")\"; touch \"$d/on-$$\"; ls \"$d\" | grep -c on- >> \"$d/side-by-side\"; sleep 0.1; \
                rm \"$d/on-$$\"; printf '\\120\\355\\125\\272' > \"$out\"";
    let nvcc = compiling_nvcc(&krate.folder.join("fake/nvcc"), "11.8", &[70], then);
    let fifo = krate.folder.join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    // Held open for reading and writing, as cargo holds its own.
    let mut server = std::fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    std::io::Write::write_all(&mut server, b"+").unwrap();
    let output = krate.build(&[
        ("TOPOFORGE_NVCC", nvcc.to_str().unwrap()),
        ("NUM_JOBS", "8"),
        (
            "CARGO_MAKEFLAGS",
            &format!("-j --jobserver-auth=fifo:{}", fifo.display()),
        ),
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let seen = std::fs::read_to_string(krate.folder.join("fake/side-by-side")).unwrap();
    let most = seen.lines().filter_map(|l| l.parse::<usize>().ok()).max();
    // The build script's own right, and the one token.
    assert_eq!(most, Some(2), "{seen}");
    let mut token = [0];
    std::io::Read::read_exact(&mut server, &mut token).unwrap();
    assert_eq!(&token, b"+");
}

/// Two groups of two GPUs, for AlltoAllv only.
const CLUSTER: &str = "Topology(name: \"cluster\", ranks: 4, links: [], aliases: [\"twos\"],
    alltoallv: Machine(nodes: 32, sockets: [[Switch(gpus: 2, nics: 1), Switch(gpus: 2, nics: 1)]],
        gb_per_s: (same_switch: 56, same_socket: 52, cross_socket: 40, nic: 48)))";

#[test]
fn a_descriptor_for_alltoallv_only_gets_a_catalogue_and_no_kernels() {
    let case = Crate::new("a2a", &[("cluster.ron", CLUSTER)]);
    let output = case.build(&[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!text.contains("no variants"), "{text}");
    assert!(
        text.contains("cluster: AlltoAllv catalogue of 26 families, 21 shapes, 16 orbits and 0 base steps in"),
        "{text}"
    );
    let manifest = case.manifest();
    assert!(manifest.kernels.is_empty() && manifest.faults.is_empty());
    let family = &manifest.families[0];
    assert_eq!(
        (family.variants.len(), family.aliases.as_slice()),
        (0, &["twos".to_owned()][..])
    );
    let entry = family.alltoallv.as_ref().expect("a catalogue");
    assert_eq!((entry.families, entry.shapes, entry.orbits), (26, 21, 16));
    let bytes = std::fs::read(case.out().join(&entry.file)).expect("written");
    assert_eq!(bytes.len() as u64, entry.bytes);
    topoforge_planner::alltoallv::Catalogue::parse(&bytes).expect("readable");
}

#[test]
fn profiles_of_a_descriptor_are_planned_into_its_catalogue_and_a_bad_one_is_a_fault_at_its_place() {
    let node = |row: &str| {
        format!(
            "Topology(name: \"node\", ranks: 4, links: [],
    alltoallv: Machine(sockets: [[Switch(gpus: 2, nics: 1), Switch(gpus: 2, nics: 1)]],
        gb_per_s: (same_switch: 56, same_socket: 52, cross_socket: 40, nic: 48),
        profiles: [Profile(name: \"moe-decode\", demand: [[0, 9, 1, 1], [9, 0, 1, 0], [1, 1, 0, 7], {row}])]))"
        )
    };
    let case = Crate::new("a2a-profile", &[("node.ron", &node("[2, 1, 7, 0]"))]);
    let output = case.build(&[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("for profile moe-decode in"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let manifest = case.manifest();
    let entry = manifest.families[0].alltoallv.as_ref().expect("a catalogue");
    let bytes = std::fs::read(case.out().join(&entry.file)).expect("written");
    let read = topoforge_planner::alltoallv::Catalogue::parse(&bytes).expect("readable");
    let [recorded] = read.sequences.profiles.as_slice() else {
        panic!("{:?}", read.sequences.profiles);
    };
    assert_eq!(recorded.profile.name(), "moe-decode");
    assert_eq!(recorded.profile.demand().get(3, 0), 2);
    assert!(!recorded.steps.is_empty());
    let case = Crate::new("a2a-profile-bad", &[("node.ron", &node("[2, 1, 7, 1]"))]);
    assert!(case.build(&[]).status.success());
    let faults = case.manifest().faults;
    assert_eq!(faults.len(), 1, "{faults:?}");
    let expected = "topologies/node.ron:4:109: rank 3 has bytes for itself: expected 0";
    assert!(faults[0].text.starts_with(expected), "{}", faults[0].text);
}

#[test]
fn a_machine_too_large_for_a_catalogue_is_a_fault_at_its_place() {
    let socket = "[Switch(gpus: 2, nics: 1), Switch(gpus: 2, nics: 1)]";
    let large = format!(
        "Topology(name: \"large\", ranks: 16, links: [],\n    alltoallv: Machine(sockets: [{socket}, {socket}, {socket}, {socket}],\n\
         gb_per_s: (same_switch: 56, same_socket: 52, cross_socket: 40, nic: 48)))"
    );
    let case = Crate::new("a2a-large", &[("large.ron", &large)]);
    assert!(case.build(&[]).status.success());
    let faults = case.manifest().faults;
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(
        faults[0].text.starts_with("topologies/large.ron:2:16: "),
        "{}",
        faults[0].text
    );
    assert!(
        faults[0].text.contains("a catalogue holds at most"),
        "{}",
        faults[0].text
    );
}
