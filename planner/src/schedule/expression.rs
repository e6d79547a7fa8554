//! The sum that a chunk's result is declared to be, as text and as a tree that can be evaluated.
//!
//! The text form, e.g. `((x0+x1)+(x2+x3))`, is what reports print and what the manifest stores. It never simplifies or
//! reorders: bits depend on the order. Start at [`Expression::of`] and [`Expression::eval`].

use super::ir::{Rank, Schedule, Value, ValueId};
use std::fmt;

/// One step of an expression in postfix order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Pushes a rank's input.
    Input(Rank),
    /// Pops two values and pushes their sum, rounded to the type of partials.
    Sum,
    /// Rounds the top to the element type.
    Round,
}

/// A declared sum in postfix order, so that deep chains (64 ranks) need no recursion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expression {
    steps: Vec<Step>,
}

/// Why a text is not an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    /// Byte offset into the text.
    pub at: usize,
    /// What was expected there.
    pub expected: &'static str,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: expected {}", self.at, self.expected)
    }
}

impl std::error::Error for ExpressionError {}

impl Expression {
    /// The expression of a value of `schedule`. A trailing rounding to the element type is dropped: the output's own
    /// rounding implies it.
    pub fn of(schedule: &Schedule, id: ValueId) -> Self {
        let mut steps = Vec::new();
        let mut work = vec![(id, false)];
        while let Some((id, expanded)) = work.pop() {
            match (schedule.value(id), expanded) {
                (Value::Input(rank), _) => steps.push(Step::Input(rank)),
                (Value::Sum(a, b), false) => work.extend([(id, true), (b, false), (a, false)]),
                (Value::Sum(..), true) => steps.push(Step::Sum),
                (Value::Rounded(a), false) => work.extend([(id, true), (a, false)]),
                (Value::Rounded(_), true) => steps.push(Step::Round),
            }
        }
        while steps.last() == Some(&Step::Round) {
            steps.pop();
        }
        Self { steps }
    }

    /// Postfix steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// How often each rank's input occurs, indexed by rank, `ranks` long; inputs beyond are counted in the last place
    /// plus one, so a result longer than `ranks` never is all ones.
    pub fn contributions(&self, ranks: usize) -> Vec<u32> {
        let mut counts = vec![0; ranks];
        for step in &self.steps {
            if let Step::Input(r) = *step {
                if r >= counts.len() {
                    counts.resize(r + 1, 0);
                }
                counts[r] += 1;
            }
        }
        counts
    }

    /// Evaluates with the caller's arithmetic: `input(rank)`, `sum(a, b)` with its rounding, `round(a)`.
    pub fn eval<T>(
        &self,
        mut input: impl FnMut(Rank) -> T,
        mut sum: impl FnMut(T, T) -> T,
        mut round: impl FnMut(T) -> T,
    ) -> Option<T> {
        let mut stack = Vec::with_capacity(8);
        for step in &self.steps {
            let next = match *step {
                Step::Input(rank) => input(rank),
                Step::Sum => {
                    let b = stack.pop()?;
                    let a = stack.pop()?;
                    sum(a, b)
                }
                Step::Round => round(stack.pop()?),
            };
            stack.push(next);
        }
        let result = stack.pop()?;
        stack.is_empty().then_some(result)
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// Names the byte and what was expected there.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let bytes = text.as_bytes();
        let fail = |at, expected| Err(ExpressionError { at, expected });
        // One frame an open bracket: how many operands it has, and whether it is a rounding.
        let mut frames: Vec<(u32, bool)> = vec![(0, true)];
        let mut steps = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let operand_next = frames.last().is_some_and(|f| f.0 == 0) || at > 0 && bytes[at - 1] == b'+';
            match bytes[at] {
                b'(' if operand_next => frames.push((0, false)),
                b'r' if operand_next && bytes.get(at + 1) == Some(&b'(') => {
                    frames.push((0, true));
                    at += 1;
                }
                b'x' if operand_next => {
                    let digits = bytes[at + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
                    let Ok(rank) = text[at + 1..at + 1 + digits].parse() else {
                        return fail(at + 1, "a rank number");
                    };
                    steps.push(Step::Input(rank));
                    at += digits;
                    if let Some(f) = frames.last_mut() {
                        f.0 += 1;
                    }
                }
                b'+' if frames.last().is_some_and(|f| f.0 == 1 && !f.1) => {}
                b')' if frames.len() > 1 => {
                    match frames.pop() {
                        Some((2, false)) => steps.push(Step::Sum),
                        Some((1, true)) => steps.push(Step::Round),
                        _ => return fail(at, "two operands in a sum, one in r()"),
                    }
                    if let Some(f) = frames.last_mut() {
                        f.0 += 1;
                    }
                }
                _ => return fail(at, "x<rank>, (a+b) or r(a)"),
            }
            at += 1;
        }
        if frames.len() != 1 || frames[0].0 != 1 {
            return fail(at, "one complete expression");
        }
        Ok(Self { steps })
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.eval(|r| format!("x{r}"), |a, b| format!("({a}+{b})"), |a| format!("r({a})"));
        f.write_str(text.as_deref().unwrap_or("<broken expression>"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_reads_back() {
        for text in [
            "x0",
            "(x0+x1)",
            "((x0+x1)+(x2+x3))",
            "(((x0+x1)+x2)+x13)",
            "(r((x0+x1))+x2)",
        ] {
            assert_eq!(Expression::parse(text).map(|e| e.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn broken_text_is_refused_with_its_place() {
        for (text, at) in [
            ("", 0),
            ("(x0+x1", 6),
            ("x", 1),
            ("(x0)", 3),
            ("(x0+x1+x2)", 6),
            ("x0)", 2),
            ("x0x1", 2),
            ("((x0+x1)", 8),
        ] {
            assert_eq!(Expression::parse(text).map_err(|e| e.at), Err(at), "{text}");
        }
    }

    #[test]
    fn contributions_count_each_input() {
        let e = Expression::parse("((x0+x1)+x1)").expect("valid");
        assert_eq!(e.contributions(3), [1, 2, 0]);
        assert_eq!(e.contributions(1), [1, 2]);
    }
}
