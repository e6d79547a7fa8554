//! The content that fetched files must have, by file name. Pure data and one check.
//!
//! Files that are not listed are those of other distributions: apt checks them against the distribution's signed index.

use std::path::Path;

use topoforge_codegen::toolkit::sha256;

use crate::failure::{Done, Failure, io};

const SHA256: &[(&str, &str)] = &[
    (
        "ziglang-0.15.2-py3-none-manylinux_2_12_x86_64.manylinux2010_x86_64.musllinux_1_1_x86_64.whl",
        "806316453d1ede7174ed3fefb8e5348154629089c3bb5fe812dfd0e172fac130",
    ),
    (
        "ziglang-0.15.2-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl",
        "edc0aa60ec964a4cf462d40f68d7de242ddf37fd9a80f2afaee6397059463230",
    ),
    (
        "cargo_zigbuild-0.22.3-py3-none-manylinux_2_5_x86_64.manylinux1_x86_64.whl",
        "1684d9405a3c505f97a652dddcccf4cddf6e99e1520c93b694f22c4b061d3f73",
    ),
    (
        "cargo_zigbuild-0.22.3-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.whl",
        "3ec32ef02a87bf4b836a043ebc70839ec63654c53f43ea16ef0d8eacef4f7f82",
    ),
    (
        "nvidia-cuda-toolkit_11.8.89~11.8.0-5~deb12u1_amd64.deb",
        "d1156026e704fe0368b6295db06224ed00a727966fb13454f34e3f3102db0457",
    ),
    (
        "nvidia_cuda_nvcc_cu11-11.8.89-py3-none-manylinux2014_x86_64.whl",
        "f8e1e995166c884f2f5bf94975d7abb89175363b8712f7f81cd38d0df1b2cd85",
    ),
    (
        "nvidia_cuda_nvcc_cu11-11.8.89-py3-none-manylinux2014_aarch64.whl",
        "8a33d735e6c374009dd8f965a26658956d4e98a4916e63fca4ac8df7a455c136",
    ),
    (
        "nvidia_cuda_runtime_cu11-11.8.89-py3-none-manylinux2014_x86_64.whl",
        "92d04069a987e1fbc9213f8376d265df0f7bb42617d44f5eda1f496acea7f2d1",
    ),
    (
        "nvidia_cuda_runtime_cu11-11.8.89-py3-none-manylinux2014_aarch64.whl",
        "e53bf160b6b660819cb6e4a9da2cc89e6aa2329858299780a2459780a2b8d012",
    ),
    (
        "nvidia-cuda-toolkit_12.4.131~12.4.1-2_amd64.deb",
        "cd5fe85aee38d108b315f408a688641478f2402622a10c677478eb7a6c4e5319",
    ),
    (
        "nvidia_cuda_nvcc_cu12-12.4.131-py3-none-manylinux2014_x86_64.whl",
        "e4c9a35435c3b0e36c6397c5696334c9ea6650e524736cbd1c5d345ea099bb04",
    ),
    (
        "nvidia_cuda_runtime_cu12-12.4.127-py3-none-manylinux2014_x86_64.whl",
        "64403288fa2136ee8e467cdc9c9427e0434110899d07c779f25b5c068934faa5",
    ),
    (
        "nvidia_cuda_cccl_cu12-12.4.127.post1-py3-none-manylinux2014_x86_64.whl",
        "2027fa5fc75fbee703bf24e8275a40a605cf94a3e8fef8a7187897d49b34facb",
    ),
    (
        "nvidia_cuda_nvcc-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        "56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03",
    ),
    (
        "nvidia_cuda_nvcc-13.0.88-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64.whl",
        "c7ff28f86a24effdc6c034fa15230c549a273e4771b10a7fec14996f8cf3307f",
    ),
    (
        "nvidia_cuda_crt-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        "2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4",
    ),
    (
        "nvidia_cuda_crt-13.0.88-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64.whl",
        "ee2ea2a97073e02ee62bb27841f437332be2c248e3eac013df07997ada39c003",
    ),
    (
        "nvidia_nvvm-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl",
        "c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0",
    ),
    (
        "nvidia_nvvm-13.0.88-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64.whl",
        "c4376a291d72d22a315d9d2f69bdae8f8cd83a627f75bad395cee49a0fe65dc1",
    ),
    (
        "nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
    ),
    (
        "nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64.whl",
        "ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55",
    ),
    (
        "nvidia_cuda_cccl-13.0.85-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        "e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649",
    ),
    (
        "nvidia_cuda_cccl-13.0.85-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64.whl",
        "6f0203e29fed809ee2b7fe9b1344df66ecab990c37d6a2e0e189b26d6c97ed7c",
    ),
];

/// Checks one fetched file and returns its digest. A listed file with other content is refused.
pub fn check(file: &Path) -> Done<String> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    // apt writes `:` of a version as `%3a`; none of ours has one.
    let digest = sha256::hex_file(file).map_err(io("reading", file))?;
    match SHA256.iter().find(|(known, _)| *known == name) {
        Some((_, expected)) if *expected != digest => Err(Failure::new(format!(
            "{name} is not the file this version of topoforge was tried with: its sha256 is {digest}, expected {expected}"
        ))
        .todo("fetch again; if it stays so, do not use the file")),
        _ => Ok(digest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_digests_and_each_name_stands_once() {
        for (index, (name, digest)) in SHA256.iter().enumerate() {
            assert_eq!(digest.len(), 64, "{name}");
            assert!(digest.chars().all(|c| c.is_ascii_hexdigit()), "{name}");
            assert!(SHA256[index + 1..].iter().all(|(other, _)| other != name), "{name}");
        }
    }

    #[test]
    fn a_listed_file_with_other_content_is_refused() {
        let folder = std::env::temp_dir().join(format!("topoforge-pins-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let listed = folder.join(SHA256[0].0);
        std::fs::write(&listed, b"something else").unwrap();
        let message = check(&listed).unwrap_err().to_string();
        let other = folder.join("unlisted.deb");
        std::fs::write(&other, b"something else").unwrap();
        let digest = check(&other).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(message.contains(SHA256[0].1), "{message}");
        assert_eq!(digest, sha256::hex(b"something else"));
    }
}
