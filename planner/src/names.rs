//! Near names for one that does not exist: what to offer somebody who has mistyped.
//!
//! Text in, text out; it knows no families. Start at [`nearest`].

/// At most three of `known`, nearest first: within a third of the asked name's length, and hardly farther than the nearest.
/// Case and `_` for `-` make no difference.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    let asked: String = name.to_lowercase().replace('_', "-");
    let mut near: Vec<(usize, &str)> = known.iter().map(|k| (distance(&asked, k), *k)).collect();
    near.retain(|(distance, _)| *distance <= asked.chars().count().div_ceil(3));
    near.sort_unstable();
    let most = near.first().map_or(0, |(distance, _)| distance + 1);
    near.retain(|(distance, _)| *distance <= most);
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Insertions, deletions and replacements between two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_come_nearest_first_and_far_ones_not_at_all() {
        let known = ["nvlink-pair", "nvlink-quad", "pix-pair"];
        assert_eq!(nearest("nvlink_pare", &known), ["nvlink-pair"]);
        assert_eq!(nearest("NVLINK-QUAD", &known), ["nvlink-quad"]);
        assert_eq!(nearest("pix-pear", &known)[0], "pix-pair");
        assert!(nearest("cube", &known).is_empty() && nearest("", &known).is_empty());
        assert_eq!(
            (distance("", "abc"), distance("abc", ""), distance("ab", "ba")),
            (3, 3, 2)
        );
    }
}
