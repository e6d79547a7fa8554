//! What a distributed program must hold, and whether what it says of itself names all of it.
//!
//! Pure: texts of `version` and `families` in, faults out. Start at [`Contents::faults`].

/// What somebody who carries the file counts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Compute capabilities with machine code, as 90 for sm_90.
    pub archs: Vec<u32>,
    /// Types of elements, as the features are called.
    pub elements: Vec<String>,
    /// Families by name.
    pub families: Vec<String>,
}

/// What the command reports although a distribution has it: the start of a line of `version`, and how it goes on.
const PARTS: &[(&str, &str)] = &[("NVML: ", "yes"), ("NCCL: ", "yes"), ("host executor: ", "yes")];

impl Contents {
    /// Everything that is missing, in words. `version` is what the command of this name prints, `families` what
    /// `families --json` does.
    pub fn faults(&self, version: &str, families: &str) -> Vec<String> {
        let mut faults = Vec::new();
        let archs = words(version, "architectures: ");
        for arch in &self.archs {
            if !archs.contains(&format!("sm_{arch}").as_str()) {
                faults.push(format!("it has no machine code for sm_{arch}"));
            }
        }
        let elements = words(version, "elements: ");
        for element in &self.elements {
            if !elements.contains(&element.as_str()) {
                faults.push(format!("it has no kernels for {element}"));
            }
        }
        for (start, wanted) in PARTS {
            if !words(version, start).contains(wanted) {
                faults.push(format!("`{}` is not `{wanted}`", start.trim_end_matches([':', ' '])));
            }
        }
        for family in &self.families {
            if !families.contains(&format!("\"name\": \"{family}\"")) {
                faults.push(format!("it has no family {family}"));
            }
        }
        faults
    }
}

/// The words of the line that begins so, up to a semicolon.
fn words<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(start)).unwrap_or("");
    let line = line.split(';').next().unwrap_or("");
    line.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: &str = "topoforge 0.1.0\nelements: f16 bf16; features off: f32\nfamilies: 2 (nvlink)\n\
        architectures: sm_70 sm_90 and compute_90 as PTX\nNVML: yes\nNCCL: yes\nhost executor: yes\n";
    const FAMILIES: &str = r#"{"families": [{"name": "nvlink-pair"}, {"name": "pix-pair"}]}"#;

    fn wanted() -> Contents {
        Contents {
            archs: vec![70, 90],
            elements: vec!["f16".into(), "bf16".into()],
            families: vec!["nvlink-pair".into(), "pix-pair".into()],
        }
    }

    #[test]
    fn a_whole_program_passes() {
        assert_eq!(wanted().faults(VERSION, FAMILIES), Vec::<String>::new());
    }

    #[test]
    fn whatever_is_not_inside_is_named() {
        let mut more = wanted();
        more.archs.push(9);
        more.elements.push("f32".into());
        more.families.push("pix".into());
        let version = VERSION.replace("NCCL: yes", "NCCL: no (feature off)");
        assert_eq!(
            more.faults(&version, FAMILIES),
            [
                "it has no machine code for sm_9",
                "it has no kernels for f32",
                "`NCCL` is not `yes`",
                "it has no family pix"
            ]
        );
        assert_eq!(more.faults("", "").len(), 3 + 3 + 3 + 3);
    }
}
