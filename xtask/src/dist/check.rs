//! What a distributed program may ask of a machine: the C library at or above a floor, its loader, and nothing else.
//!
//! Pure: needs in, faults out. Start at [`faults`].

use super::elf::Needs;
use super::targets::Target;

/// Libraries that belong to glibc and are on every machine with it.
const LIBRARIES: &[&str] = &["libc.so.6", "libpthread.so.0", "libdl.so.2", "libm.so.6"];

/// Everything in `needs` that would keep the program from starting on a machine of the target's floor, in words.
pub fn faults(needs: &Needs, target: &Target) -> Vec<String> {
    let mut faults = Vec::new();
    if needs.machine != target.machine {
        faults.push(format!(
            "it is for processor {}, not for {}",
            needs.machine, target.arch
        ));
    }
    if needs.interpreter != target.loader {
        faults.push(format!("its loader is `{}`, not {}", needs.interpreter, target.loader));
    }
    let loader = target.loader.rsplit('/').next().unwrap_or_default();
    for library in &needs.libraries {
        if library != loader && !LIBRARIES.contains(&library.as_str()) {
            faults.push(format!("it needs {library}, which not every machine has"));
        }
    }
    for (library, version) in &needs.versions {
        match glibc(version) {
            Some(version) if version <= target.glibc => {}
            Some((major, minor)) => faults.push(format!(
                "it needs glibc {major}.{minor} (in {library}); the floor is {}.{}",
                target.glibc.0, target.glibc.1
            )),
            None => faults.push(format!(
                "it needs {version} of {library}, which is none of glibc's versions"
            )),
        }
    }
    for path in &needs.search_paths {
        faults.push(format!("it looks for libraries in {path}"));
    }
    if needs.has_symbol_table {
        faults.push("it is not stripped".to_owned());
    }
    faults
}

/// The highest glibc that a symbol asks for.
pub fn highest(needs: &Needs) -> Option<(u32, u32)> {
    needs.versions.iter().filter_map(|(_, version)| glibc(version)).max()
}

/// (2, 17) of `GLIBC_2.17`, and of `GLIBC_2.2.5`, which is 2.2.
fn glibc(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.strip_prefix("GLIBC_")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::targets::TARGETS;
    use super::*;

    fn good() -> Needs {
        Needs {
            machine: TARGETS[0].machine,
            interpreter: TARGETS[0].loader.to_owned(),
            libraries: ["libc.so.6", "libdl.so.2", "ld-linux-x86-64.so.2"]
                .map(str::to_owned)
                .to_vec(),
            versions: vec![
                ("libc.so.6".to_owned(), "GLIBC_2.2.5".to_owned()),
                ("libc.so.6".to_owned(), "GLIBC_2.17".to_owned()),
            ],
            search_paths: Vec::new(),
            has_symbol_table: false,
        }
    }

    #[test]
    fn a_program_at_the_floor_passes() {
        assert_eq!(faults(&good(), &TARGETS[0]), Vec::<String>::new());
        assert_eq!(highest(&good()), Some((2, 17)));
    }

    #[test]
    fn whatever_another_machine_may_lack_is_named() {
        type Damage = fn(&mut Needs);
        let change: [(Damage, &str); 7] = [
            (|n| n.machine = super::super::elf::AARCH64, "processor 183"),
            (|n| n.interpreter = "/nix/ld.so".into(), "/nix/ld.so"),
            (|n| n.libraries.push("libgcc_s.so.1".into()), "libgcc_s.so.1"),
            (|n| n.versions[1].1 = "GLIBC_2.18".into(), "glibc 2.18"),
            (|n| n.versions[1].1 = "GCC_3.0".into(), "GCC_3.0"),
            (|n| n.search_paths.push("/opt/cuda".into()), "/opt/cuda"),
            (|n| n.has_symbol_table = true, "not stripped"),
        ];
        for (damage, word) in change {
            let mut needs = good();
            damage(&mut needs);
            let found = faults(&needs, &TARGETS[0]);
            assert!(found.len() == 1 && found[0].contains(word), "{word}: {found:?}");
        }
    }
}
