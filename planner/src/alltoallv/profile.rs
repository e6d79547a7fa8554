//! Recorded demand profiles: what a workload sends, as a descriptor states it.
//!
//! A profile is a matrix of relative bytes in one node; only ratios count. Whoever builds the catalogue plans it ahead of time
//! (see [`super::base`]). Start at [`Profile`].

use std::fmt;

use super::demand::{Demand, MAX_PAIR};
use super::spec::MAX_NODE_RANKS;

/// Profiles of one descriptor: each is planned several times in every build.
pub const MAX_PROFILES: usize = 8;
/// Longest name, in letters.
pub const MAX_NAME: usize = 64;
/// What the sequence for equal pairs is called; no profile's name.
pub const UNIFORM: &str = "uniform";

/// A demand that comes again and again, up to a factor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    name: String,
    demand: Demand,
}

/// Why something is no profile, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError(String);

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProfileError {}

impl Profile {
    /// A profile from what was recorded.
    ///
    /// Whatever divides all entries is taken out, so that equal profiles have equal figures.
    ///
    /// # Errors
    /// A name that is none, more ranks than a node has, or nobody who sends anything.
    pub fn new(name: &str, demand: &Demand) -> Result<Self, ProfileError> {
        check_name(name)?;
        let fail = |message: String| Err(ProfileError(message));
        if demand.ranks() > MAX_NODE_RANKS {
            return fail(format!(
                "{} ranks: expected one node's, at most {MAX_NODE_RANKS}",
                demand.ranks()
            ));
        }
        let common = demand.bytes().iter().fold(0, |a, &b| divisor(a, b));
        if common == 0 {
            return fail("nobody sends anything: expected bytes of at least one pair".into());
        }
        let bytes = demand.bytes().iter().map(|bytes| bytes / common).collect();
        Ok(Self {
            name: name.to_owned(),
            demand: Demand::from_checked(demand.ranks(), bytes),
        })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Relative bytes of each pair, without a common divisor.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// A demand in its ratios of about so many bytes in all; no pair with bytes is left without.
    pub(super) fn scaled(&self, total: u64) -> Demand {
        let sum = u128::from(self.demand.total().max(1));
        let scale = |&part: &u64| {
            let bytes = (u128::from(part) * u128::from(total) / sum) as u64;
            bytes.max(u64::from(part > 0)).min(MAX_PAIR)
        };
        let bytes = self.demand.bytes().iter().map(scale).collect();
        Demand::from_checked(self.demand.ranks(), bytes)
    }

    /// As a descriptor spells it, each line after the first behind `indent`; a row of the matrix a line.
    pub fn to_ron(&self, indent: &str) -> String {
        let ranks = self.demand.ranks();
        let width = self
            .demand
            .bytes()
            .iter()
            .max()
            .map_or(1, |most| most.to_string().len());
        let mut out = format!("Profile(name: {:?}, demand: [\n", self.name);
        for row in self.demand.bytes().chunks(ranks) {
            let figures: Vec<String> = row.iter().map(|bytes| format!("{bytes:width$}")).collect();
            out.push_str(&format!("{indent}    [{}],\n", figures.join(", ")));
        }
        out.push_str(&format!("{indent}])"));
        out
    }
}

/// Whether a profile may be called so.
///
/// # Errors
/// What was expected.
pub fn check_name(name: &str) -> Result<(), ProfileError> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > MAX_NAME || name.starts_with('-') || !name.chars().all(legal) {
        let shown: String = name.chars().take(MAX_NAME).collect();
        return Err(ProfileError(format!(
            "name {shown:?}: expected a name `[a-z0-9][a-z0-9-]*` of at most {MAX_NAME} letters"
        )));
    }
    if name == UNIFORM {
        return Err(ProfileError(format!(
            "name {UNIFORM:?} is that of the sequence for equal pairs: expected another name"
        )));
    }
    Ok(())
}

/// The greatest common divisor; of 0 and a number the number.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_divides_all_entries_is_no_part_of_a_profile_and_ratios_stay() {
        let demand = Demand::new(2, vec![5, 3 << 20, 9 << 20, 0]).expect("sound");
        let profile = Profile::new("two", &demand).expect("sound");
        assert_eq!(profile.demand().bytes(), &[0, 1, 3, 0]);
        assert_eq!(profile.scaled(4000).bytes(), &[0, 1000, 3000, 0]);
        // The smallest pair keeps a byte.
        let steep = Demand::new(2, vec![0, 1, 1 << 40, 0]).expect("sound");
        let steep = Profile::new("steep", &steep).expect("sound");
        assert_eq!(steep.scaled(1000).bytes(), &[0, 1, 999, 0]);
        assert_eq!(
            profile.to_ron("  "),
            "Profile(name: \"two\", demand: [\n      [0, 1],\n      [3, 0],\n  ])"
        );
    }

    #[test]
    fn what_is_no_profile_says_why() {
        let fault = |name: &str, demand: &Demand| Profile::new(name, demand).expect_err(name).to_string();
        let some = Demand::new(2, vec![0, 1, 1, 0]).expect("sound");
        for name in ["", "Two", "-a", "a b", &"a".repeat(65)] {
            assert!(fault(name, &some).contains("expected a name"), "{name}");
        }
        assert!(fault("uniform", &some).contains("expected another name"));
        assert!(fault("none", &Demand::zero(8)).starts_with("nobody sends anything"));
        assert!(fault("large", &Demand::zero(65)).starts_with("65 ranks"));
    }
}
