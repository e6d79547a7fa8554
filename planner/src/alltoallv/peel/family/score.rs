//! What each family could be worth at most: the sum of its lanes' best weights, whoever takes them.
//!
//! A lane is known by its slot: the first lane of a type is worth the type's best weight, further ones the second best. Slots
//! stand side by side for all families, lane by lane, so that scoring goes through one table in order. Start at
//! [`Scores::run`].

/// A family has no more lanes: a slot worth nothing.
pub(super) const NO_SLOT: u8 = u8::MAX;
/// Families that are bound.
pub(super) const TOP: usize = 4;

/// The lanes of all families, and what they come to.
#[derive(Clone, Debug)]
pub(super) struct Scores {
    families: usize,
    /// Lane `k` of family `f` at `k * families + f`.
    slots: Vec<u8>,
    scores: Vec<f32>,
}

impl Scores {
    /// Of families by their slots.
    pub fn new(all: &[Vec<u8>]) -> Self {
        let width = all.iter().map(Vec::len).max().unwrap_or(0);
        let lane = |k: usize| all.iter().map(move |slots| slots.get(k).copied().unwrap_or(NO_SLOT));
        Self {
            families: all.len(),
            slots: (0..width).flat_map(lane).collect(),
            scores: vec![0.0; all.len()],
        }
    }

    /// The most lanes that a family has.
    pub fn width(&self) -> usize {
        self.slots.len() / self.families.max(1)
    }

    /// The slots of a family.
    pub fn of(&self, family: usize) -> impl Iterator<Item = u8> + '_ {
        let slots = self.slots.iter().skip(family).step_by(self.families.max(1));
        slots.copied().take_while(|&slot| slot != NO_SLOT)
    }

    /// The families with the greatest scores, greatest first, and their scores; by number among equals.
    pub fn run(&mut self, worth: &[f32; 256]) -> [(f32, u32); TOP] {
        self.scores.fill(0.0);
        for lane in self.slots.chunks_exact(self.families.max(1)) {
            for (score, &slot) in self.scores.iter_mut().zip(lane) {
                *score += worth[usize::from(slot)];
            }
        }
        let mut top = [(0.0, 0); TOP];
        for (family, &score) in self.scores.iter().enumerate() {
            if score <= top[TOP - 1].0 {
                continue;
            }
            let mut at = TOP - 1;
            while at > 0 && top[at - 1].0 < score {
                top[at] = top[at - 1];
                at -= 1;
            }
            top[at] = (score, family as u32);
        }
        top
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_families_come_first_and_equals_by_number() {
        let mut scores = Scores::new(&[vec![0], vec![1, 2], vec![2, 1], vec![0, 1, 2], vec![], vec![2]]);
        assert_eq!((scores.width(), scores.of(3).collect::<Vec<_>>()), (3, vec![0, 1, 2]));
        assert_eq!(scores.of(4).count(), 0);
        let mut worth = [0.0; 256];
        (worth[0], worth[1], worth[2]) = (1.0, 2.0, 4.0);
        assert_eq!(scores.run(&worth), [(7.0, 3), (6.0, 1), (6.0, 2), (4.0, 5)]);
        assert_eq!(scores.run(&[0.0; 256]), [(0.0, 0); TOP]);
    }
}
