//! Lays the pieces of a compiler out as nvcc wants them, and proves that the result compiles.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use topoforge_codegen::env::Env;
use topoforge_codegen::toolkit::{CompileError, Compiler, Job, Toolkit, Wanted, plan_archs};

use crate::failure::{Done, Failure, io};

/// nvcc reads this beside itself. `$(_HERE_)` is its own folder, so the tree may be moved.
const PROFILE: &str = "\
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES += \"-I$(TOP)/include\" $(_SPACE_)
";

/// Without these nothing compiles.
const NEEDED: &[&str] = &["nvcc", "ptxas", "fatbinary", "cudafe++"];

/// Taken along where the package has them, for looking into what was built.
const USEFUL: &[&str] = &["nvlink", "cuobjdump", "nvdisasm", "bin2c", "cu++filt"];

/// Distribution package and header packages become one tree: `bin`, `nvvm`, `include`.
pub fn side_by_side(package: &Path, wheels: &Path, tree: &Path) -> Done {
    // The program in usr/bin/nvcc is a wrapper with fixed paths; the compiler itself lies here.
    let own = package.join("usr/lib/nvidia-cuda-toolkit");
    let places = [own.join("bin"), package.join("usr/bin")];
    for (names, needed) in [(NEEDED, true), (USEFUL, false)] {
        for name in names {
            let found = places.iter().map(|place| place.join(name)).find(|file| file.is_file());
            match found {
                Some(file) => take(&file, &tree.join("bin").join(name))?,
                None if needed => {
                    return Err(Failure::new(format!("the package holds no program {name}")));
                }
                None => {}
            }
        }
    }
    take(&own.join("bin/cicc"), &tree.join("nvvm/bin/cicc"))?;
    let nvidia = wheels.join("nvidia");
    let device_code = [own.join("libdevice"), nvidia.join("cuda_nvcc/nvvm/libdevice")];
    let device_code = device_code.iter().find(|folder| folder.is_dir());
    let device_code = device_code.ok_or_else(|| Failure::new("neither package holds nvvm/libdevice"))?;
    copy_tree(device_code, &tree.join("nvvm/libdevice"))?;
    for part in ["cuda_nvcc", "cuda_runtime", "cuda_cccl"] {
        let include = nvidia.join(part).join("include");
        if include.is_dir() {
            copy_tree(&include, &tree.join("include"))?;
        }
    }
    let profile = tree.join("bin/nvcc.profile");
    fs::write(&profile, PROFILE).map_err(io("writing", &profile))?;
    programs_run(tree)
}

/// Gives programs their right to run, which the wheel format does not carry.
pub fn programs_run(tree: &Path) -> Done {
    for folder in ["bin", "nvvm/bin"] {
        let folder = tree.join(folder);
        for file in fs::read_dir(&folder).map_err(io("reading", &folder))?.flatten() {
            let path = file.path();
            if path.is_file() && path.extension().is_none_or(|end| end != "profile") {
                program_runs(&path)?;
            }
        }
    }
    Ok(())
}

/// The same for one program.
pub fn program_runs(file: &Path) -> Done {
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).map_err(io("changing the mode of", file))
}

/// Keeps the licence texts of the packages beside what came out of them.
pub fn licences(wheels: &Path, tree: &Path) -> Done {
    let infos = fs::read_dir(wheels).map_err(io("reading", wheels))?.flatten();
    for info in infos.map(|entry| entry.path()) {
        let name = info.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(package) = name.strip_suffix(".dist-info") else {
            continue;
        };
        for text in ["License.txt", "licenses/License.txt"] {
            let text = info.join(text);
            if text.is_file() {
                take(&text, &tree.join("licences").join(format!("{package}.txt")))?;
            }
        }
    }
    Ok(())
}

/// Writes down which files the tree was made of.
pub fn note(tree: &Path, fetched: &[(String, String)]) -> Done {
    let mut text = String::from("Fetched and laid out by `cargo xtask`; delete this folder to fetch again.\n");
    for (name, digest) in fetched {
        text.push_str(&format!("{digest}  {name}\n"));
    }
    let path = tree.join("fetched.txt");
    fs::write(&path, text).map_err(io("writing", &path))
}

/// Compiles one small kernel with the tree, before it may be used.
pub fn prove(tree: &Path, temporary: &Path) -> Done {
    let fault = |what: String| Failure::new(format!("the fetched compiler does not work: {what}"));
    let nvcc = tree.join("bin/nvcc");
    let toolkit = Toolkit::probe(&nvcc, "the fetch").map_err(|error| fault(error.to_string()))?;
    let oldest = toolkit.archs.iter().find(|arch| **arch >= 70).copied().unwrap_or(70);
    let toolkits = vec![toolkit];
    let wanted = Wanted::parse(&oldest.to_string()).map_err(|error| fault(error.to_string()))?;
    let plan = plan_archs(&toolkits, &wanted);
    let (cache, out) = (temporary.join("prove"), temporary.join("prove/out"));
    // The cache is a fresh one: a hit would prove nothing.
    let env = Env::from_process();
    let job = Job {
        name: "prove".to_owned(),
        text: "#include <cuda_fp16.h>\nextern \"C\" __global__ void add(__half* x) { x[0] = __hadd(x[0], x[1]); }\n"
            .to_owned(),
        include_dirs: Vec::new(),
        headers: String::new(),
    };
    match Compiler::new(toolkits, plan, &env, cache, out).and_then(|compiler| compiler.compile(&job)) {
        Ok(_) => Ok(()),
        // The toolkit is sound; what is missing is said again, as an error, by the build that needs it.
        Err(error @ CompileError::NoHostCompiler { .. }) => {
            eprintln!("    warning: {error}");
            Ok(())
        }
        Err(error) => Err(fault(error.to_string())),
    }
}

fn copy_tree(from: &Path, to: &Path) -> Done {
    for entry in fs::read_dir(from).map_err(io("reading", from))?.flatten() {
        let (path, name): (PathBuf, _) = (entry.path(), entry.file_name());
        if path.is_dir() {
            copy_tree(&path, &to.join(name))?;
        } else if path.is_file() {
            take(&path, &to.join(name))?;
        }
    }
    Ok(())
}

/// Copies one file (through links), making its folder.
fn take(from: &Path, to: &Path) -> Done {
    let folder = to.parent().unwrap_or(to);
    fs::create_dir_all(folder).map_err(io("making", folder))?;
    fs::copy(from, to).map(|_| ()).map_err(io("copying", from))
}
