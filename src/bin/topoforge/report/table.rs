//! Plain tables: columns as wide as they must be, figures to the right, no borders.
//!
//! It knows nothing about what it shows. Start at [`Table`].

use std::fmt::Write;

/// Rows under a header.
#[derive(Debug, Default)]
pub struct Table {
    /// Name, and whether cells stand to the right.
    columns: Vec<(String, bool)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A column of text.
    pub fn text(mut self, name: impl Into<String>) -> Self {
        self.columns.push((name.into(), false));
        self
    }

    /// A column of figures.
    pub fn figure(mut self, name: impl Into<String>) -> Self {
        self.columns.push((name.into(), true));
        self
    }

    /// One more row, a cell a column.
    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table with `indent` spaces before each line.
    pub fn render(&self, indent: usize) -> String {
        let header: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&header).chain(&self.rows).collect();
        let width = |column: usize| {
            lines
                .iter()
                .filter_map(|l| l.get(column))
                .map(|c| c.chars().count())
                .max()
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(|c| width(c).unwrap_or(0)).collect();
        let mut out = String::new();
        for line in lines {
            let mut text = " ".repeat(indent);
            for ((cell, width), (_, right)) in line.iter().zip(&widths).zip(&self.columns) {
                // Writing to a String cannot fail.
                let _ = if *right {
                    write!(text, "{cell:>width$}  ")
                } else {
                    write!(text, "{cell:<width$}  ")
                };
            }
            out.push_str(text.trim_end());
            out.push('\n');
        }
        out
    }
}

/// A size as people say it: `5 KiB`, `1 MiB`, else bytes.
pub fn size(bytes: u64) -> String {
    match bytes {
        b if b > 0 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b > 0 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

/// A count with separators, e.g. `12,345`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A figure with two digits, or a dash.
pub fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_clean() {
        let mut table = Table::default().text("name").figure("us").text("note");
        table.row(["one-shot", "1.25", ""]);
        table.row(["x", "100.00", "late"]);
        assert_eq!(
            table.render(1),
            " name          us  note\n one-shot    1.25\n x         100.00  late\n"
        );
    }

    #[test]
    fn sizes_and_counts_read_well() {
        assert_eq!([5120, 1 << 20, 1030, 0].map(size), ["5 KiB", "1 MiB", "1030 B", "0 B"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [figure(None), figure(Some(1.005)), figure(Some(f64::NAN))],
            ["-", "1.00", "NaN"]
        );
    }
}
