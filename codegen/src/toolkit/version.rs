//! Reads what nvcc says about itself. Pure text in, values out; it never runs anything.

/// Release and full version from `nvcc --version`: `release 11.8, V11.8.89` gives ((11, 8), "11.8.89").
pub fn parse_version(text: &str) -> Option<((u32, u32), String)> {
    let after = text.split("release ").nth(1)?;
    let release = after.split([',', ' ', '\n']).next()?;
    let (major, minor) = release.split_once('.')?;
    let version = (major.parse().ok()?, minor.trim().parse().ok()?);
    let full = after
        .split('V')
        .nth(1)
        .and_then(|tail| tail.split_whitespace().next())
        .filter(|tail| tail.starts_with(release))
        .unwrap_or(release);
    Some((version, full.to_owned()))
}

/// The plain architectures of `nvcc --list-gpu-code`, ascending and each once.
///
/// `sm_90a` and `sm_100f` are left out: code for them runs on one architecture or one family only, and the plain form
/// is listed beside them.
pub fn parse_gpu_codes(text: &str) -> Vec<u32> {
    let mut archs: Vec<u32> = text
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("sm_")?.parse().ok())
        .collect();
    archs.sort_unstable();
    archs.dedup();
    archs
}

#[cfg(test)]
mod tests {
    use super::*;

    const V118: &str = "nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2022 NVIDIA Corporation\n\
        Built on Wed_Sep_21_10:33:58_PDT_2022\nCuda compilation tools, release 11.8, V11.8.89\n\
        Build cuda_11.8.r11.8/compiler.31833905_0\n";

    #[test]
    fn the_version_is_read_to_the_last_digit() {
        assert_eq!(parse_version(V118), Some(((11, 8), "11.8.89".to_owned())));
        let v13 = "Cuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0/compiler.36424714_0";
        assert_eq!(parse_version(v13), Some(((13, 0), "13.0.88".to_owned())));
    }

    #[test]
    fn a_release_without_the_long_form_is_enough() {
        assert_eq!(parse_version("release 12.4\n"), Some(((12, 4), "12.4".to_owned())));
    }

    #[test]
    fn other_programs_output_is_no_version() {
        for text in ["", "g++ 12.2.0", "release candidate", "release 12"] {
            assert_eq!(parse_version(text), None, "{text:?}");
        }
    }

    #[test]
    fn only_plain_architectures_are_taken_and_sorted() {
        let text = "sm_75\nsm_90\nsm_90a\nsm_100\nsm_100a\nsm_100f\nsm_80\nsm_80\n\nlto_90\ncompute_70\n";
        assert_eq!(parse_gpu_codes(text), [75, 80, 90, 100]);
        assert!(parse_gpu_codes("nothing here").is_empty());
    }
}
