//! Where the time of a tuning goes: a stop-watch with names.
//!
//! Start at [`Phases::time`].

use std::time::{Duration, Instant};

/// A part of the work.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// What was done.
    pub name: &'static str,
    /// How long, all occasions together.
    pub took: Duration,
}

/// Parts in the order in which they first occurred.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phases {
    list: Vec<Phase>,
}

impl Phases {
    /// Runs `work` and books its time.
    pub fn time<T>(&mut self, name: &'static str, work: impl FnOnce() -> T) -> T {
        let since = Instant::now();
        let done = work();
        self.add(name, since.elapsed());
        done
    }

    /// Books a time.
    pub fn add(&mut self, name: &'static str, took: Duration) {
        match self.list.iter_mut().find(|p| p.name == name) {
            Some(known) => known.took += took,
            None => self.list.push(Phase { name, took }),
        }
    }

    /// All parts.
    pub fn list(&self) -> &[Phase] {
        &self.list
    }

    /// All of it.
    pub fn total(&self) -> Duration {
        self.list.iter().map(|p| p.took).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occasions_of_one_part_add_up_in_the_order_of_the_first() {
        let mut phases = Phases::default();
        let ms = Duration::from_millis;
        phases.add("a", ms(3));
        phases.add("b", ms(1));
        phases.add("a", ms(4));
        assert_eq!(phases.time("c", || 7), 7);
        let names: Vec<_> = phases.list().iter().map(|p| p.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(phases.list()[0].took, ms(7));
        assert!(phases.total() >= ms(8));
    }
}
