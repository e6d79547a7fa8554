//! One expression for all sizes: what `batch_invariant` chooses among.
//!
//! Sums in another order give other bits. Most variants add in their own order, and those that cut a payload into chunks
//! may add each chunk in another one, so an element's bits would depend on where in which payload it stands. A variant
//! counts here if every rank has one order for all its chunks. Pure functions over the registry; start at [`groups`].

use super::{CommError, Range};
use crate::planner::schedule::Expression;
use crate::registry::{Element, Family, Partials, Protocol, Variant};

/// Variants that compute the same expression, in shortlist order.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// The expression of each rank, or of all where they agree, with the operands of every sum in one order.
    pub expression: String,
    pub variants: Vec<&'static Variant>,
}

/// The groups among variants, those that are on more shortlists first, then in shortlist order.
pub(super) fn groups(
    variants: impl IntoIterator<Item = &'static Variant>,
    element: Element,
    partials: Partials,
) -> Vec<Group> {
    let fits =
        |v: &&'static Variant| v.element == element && v.partials.contains(&partials) && v.protocol != Protocol::Pull;
    let mut groups: Vec<Group> = Vec::new();
    for variant in variants.into_iter().filter(fits) {
        let Some(expression) = expression(variant, element, partials) else {
            continue;
        };
        match groups.iter_mut().find(|g| g.expression == expression) {
            Some(group) => group.variants.push(variant),
            None => groups.push(Group {
                expression,
                variants: vec![variant],
            }),
        }
    }
    // Stable: equals stay in shortlist order.
    groups.sort_by_key(|g| std::cmp::Reverse(g.classes().len()));
    groups
}

impl Group {
    /// Size classes whose shortlist has one of the group.
    pub fn classes(&self) -> Vec<u64> {
        let mut classes: Vec<u64> = self.variants.iter().flat_map(|v| v.classes).copied().collect();
        classes.sort_unstable();
        classes.dedup();
        classes
    }
}

/// What a variant computes for every element of every payload; none where that depends on the element's place.
pub(super) fn expression(variant: &Variant, element: Element, partials: Partials) -> Option<String> {
    let chunks = variant.chunks as usize;
    let mut ranks = Vec::new();
    for of_rank in variant.expression_of.chunks(chunks) {
        let texts = of_rank.iter().map(|i| variant.expressions.get(usize::from(*i)));
        let mut normal = texts.map(|text| text.and_then(|t| normal_form(t, element, partials)));
        let first = normal.next()??;
        if normal.any(|other| other.as_ref() != Some(&first)) {
            return None;
        }
        ranks.push(first);
    }
    let first = ranks.first()?;
    if ranks.iter().all(|r| r == first) {
        return Some(first.clone());
    }
    Some(ranks.join(", "))
}

/// Sums commute bit for bit, so operands go in one order; rounding to the type of partials that are the element changes
/// nothing.
fn normal_form(text: &str, element: Element, partials: Partials) -> Option<String> {
    let rounds = partials.sums(element) != element;
    let sum = |a: String, b: String| {
        let (a, b) = if (a.len(), &a) <= (b.len(), &b) { (a, b) } else { (b, a) };
        format!("({a}+{b})")
    };
    let round = |a: String| if rounds { format!("r({a})") } else { a };
    Expression::parse(text).ok()?.eval(|r| format!("x{r}"), sum, round)
}

/// Refuses a table that does not keep one expression: ranges of the comparator, or of several expressions.
pub(super) fn check(family: &'static Family, ranges: &[Range], partials: Partials) -> Result<(), CommError> {
    let refused = |reason: String| CommError::Refused { reasons: vec![reason] };
    let mut kept: Option<(String, &str)> = None;
    for range in ranges {
        let Some(name) = &range.variant else {
            let reason = format!(
                "batch_invariant: up to {} bytes the comparator would serve, which promises no order of sums: tune again",
                range.up_to
            );
            return Err(refused(reason));
        };
        let variant = family.variants.iter().find(|v| v.name == name);
        let found = variant.and_then(|v| expression(v, range.element, partials));
        let Some(found) = found else {
            return Err(refused(format!(
                "batch_invariant: {name} adds in an order that depends on the element's place"
            )));
        };
        match &kept {
            Some((known, who)) if *known != found => {
                return Err(refused(format!(
                    "batch_invariant: {who} computes {known}, {name} computes {found}: tune again"
                )));
            }
            Some(_) => {}
            None => kept = Some((found, name)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BUILTIN;

    fn family(name: &str) -> &'static Family {
        BUILTIN.families.iter().find(|f| f.name == name).expect("built in")
    }

    #[test]
    fn operands_of_a_sum_go_in_one_order_and_associations_stay_apart() {
        let normal = |text, partials| normal_form(text, Element::F16, partials);
        let f16 = Partials::F16;
        assert_eq!(normal("((x2+x3)+(x1+x0))", f16), normal("((x0+x1)+(x3+x2))", f16));
        assert_ne!(normal("((x0+x1)+(x2+x3))", f16), normal("(((x0+x1)+x2)+x3)", f16));
        assert_eq!(normal("(r((x0+x1))+x2)", f16), normal("((x0+x1)+x2)", f16));
        assert_ne!(
            normal("(r((x0+x1))+x2)", Partials::F32),
            normal("((x0+x1)+x2)", Partials::F32)
        );
        assert_eq!(normal("(x0+", f16), None);
    }

    #[test]
    fn pairs_have_one_expression_and_every_larger_family_has_one_for_all_sizes() {
        for name in ["nvlink-pair", "pix-pair", "no-peer-pair"] {
            let groups = groups(family(name).variants, Element::F16, Partials::F16);
            assert_eq!(groups.len(), 1, "{name}: {groups:?}");
            assert_eq!(groups[0].expression, "(x0+x1)");
        }
        // Families without variants are there for AlltoAllv only.
        for family in BUILTIN.families.iter().filter(|f| !f.variants.is_empty()) {
            for partials in [Partials::F16, Partials::F32] {
                let groups = groups(family.variants, Element::F16, partials);
                assert!(!groups.is_empty(), "{} has no variant of one expression", family.name);
            }
        }
    }

    /// A family of a quad's first variant under two names, the second with sums in another order.
    fn divided() -> &'static Family {
        let quad = family("nvlink-quad");
        let model = &quad.variants[0];
        let variant = |name, expression: &'static str| Variant {
            name,
            expressions: Box::leak(Box::new([expression])),
            expression_of: Box::leak(vec![0; model.ranks.len() * model.chunks as usize].into()),
            partials: &[Partials::Element],
            element: Element::F16,
            ..copy(model)
        };
        let variants = vec![
            variant("tree", "((x0+x1)+(x2+x3))"),
            variant("chain", "(((x0+x1)+x2)+x3)"),
            variant("swapped", "((x3+x2)+(x0+x1))"),
        ];
        Box::leak(Box::new(Family {
            variants: Box::leak(variants.into()),
            ..*quad
        }))
    }

    const fn copy(v: &'static Variant) -> Variant {
        Variant { ..*v }
    }

    #[test]
    fn a_table_of_several_expressions_or_of_the_comparator_is_refused() {
        let (family, partials) = (divided(), Partials::Element);
        let (one, other) = ("tree", "chain");
        let range = |up_to, variant: Option<&str>| Range {
            element: Element::F16,
            up_to,
            variant: variant.map(String::from),
            geometry: None,
            reason: String::new(),
        };
        assert!(check(family, &[range(64, Some(one)), range(128, Some("swapped"))], partials).is_ok());
        let groups = groups(family.variants, Element::F16, partials);
        assert_eq!(groups.iter().map(|g| g.variants.len()).collect::<Vec<_>>(), [2, 1]);
        let refusal = |ranges: &[Range]| check(family, ranges, partials).unwrap_err().to_string();
        assert!(refusal(&[range(64, Some(one)), range(128, None)]).contains("comparator"));
        let mixed = refusal(&[range(64, Some(one)), range(128, Some(other))]);
        assert!(mixed.contains(one) && mixed.contains(other), "{mixed}");
    }
}
