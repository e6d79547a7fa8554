//! The environment's switches: what a value means, and which of them switch peer access off.
//!
//! A variable that is there is not yet switched on: `0`, `false`, `no`, `off` and an empty value mean off. Start at
//! [`is_on`].

/// Whether a value means on.
pub fn is_on(value: &str) -> bool {
    let value = value.trim().to_lowercase();
    !["", "0", "false", "no", "off"].contains(&value.as_str())
}

/// The switches as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// `NCCL_P2P_DISABLE`: the user wants no peer access.
    pub no_peer_access: bool,
    /// `TOPOFORGE` says off: everything goes to the comparator.
    pub off: bool,
}

impl Switches {
    /// Of this process.
    pub fn here() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    /// By a look-up of a variable's value.
    pub fn of(value: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            no_peer_access: value("NCCL_P2P_DISABLE").is_some_and(|v| is_on(&v)),
            off: value("TOPOFORGE").is_some_and(|v| !is_on(&v)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_0_false_or_nothing_means_off() {
        for off in ["", " ", "0", "false", "False", "OFF", "no"] {
            assert!(!is_on(off), "{off:?}");
        }
        assert!(is_on("1") && is_on("true") && is_on("yes"));
        let of = |set: &'static [(&str, &str)]| {
            Switches::of(|name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        assert_eq!(of(&[]), Switches::default());
        assert_eq!(
            of(&[("NCCL_P2P_DISABLE", "0"), ("TOPOFORGE", "1")]),
            Switches::default()
        );
        let both = of(&[("NCCL_P2P_DISABLE", "1"), ("TOPOFORGE", "false")]);
        assert!(both.no_peer_access && both.off);
    }
}
