//! Latency over payload as an SVG picture: one line a route or comparator, both axes logarithmic.
//!
//! Strings in, strings out: it reads and writes no file. Start at [`chart`].

use super::table::size;
use std::fmt::Write;

/// One line of the picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// Payload in bytes and microseconds a call, payloads ascending; a gap is no point.
    pub points: Vec<(u64, f64)>,
    /// Drawn dashed: something to compare with.
    pub dashed: bool,
}

const WIDTH: f64 = 1100.0;
/// The plot's corner and size; the legend stands to its right.
const LEFT: f64 = 80.0;
const TOP: f64 = 60.0;
const PLOT_WIDTH: f64 = 640.0;
const PLOT_HEIGHT: f64 = 440.0;
const LEGEND_LINE: f64 = 20.0;

/// Told apart by people who see red and green alike, too.
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7a5195",
];
/// For lines behind the eighth.
const DASHES: [&str; 3] = ["", "2 3", "9 3 2 3"];

/// The picture. Points that are no positive number are left out.
pub fn chart(title: &str, series: &[Series]) -> String {
    let drawn: Vec<Series> = series.iter().map(sound).filter(|s| !s.points.is_empty()).collect();
    let all = || drawn.iter().flat_map(|s| s.points.iter().copied());
    let bytes = span(all().map(|p| p.0 as f64), 1024.0);
    let us = span(all().map(|p| p.1), 1.0);
    let plot = Plot { bytes, us };
    let height = (TOP + PLOT_HEIGHT + 70.0).max(TOP + LEGEND_LINE * drawn.len() as f64 + 20.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut out, LEFT, 32.0, 18.0, "start", title);
    plot.axes(&mut out);
    if drawn.is_empty() {
        let (x, y) = (LEFT + PLOT_WIDTH / 2.0, TOP + PLOT_HEIGHT / 2.0);
        text(&mut out, x, y, 14.0, "middle", "nothing could be timed");
    }
    for (at, one) in drawn.iter().enumerate() {
        plot.line(&mut out, at, one);
    }
    out.push_str("</svg>\n");
    out
}

fn sound(series: &Series) -> Series {
    let good = |p: &&(u64, f64)| p.0 > 0 && p.1.is_finite() && p.1 > 0.0;
    Series {
        points: series.points.iter().filter(good).copied().collect(),
        ..series.clone()
    }
}

/// The whole powers of two around all values, as exponents; at least one apart.
fn span(values: impl Iterator<Item = f64>, otherwise: f64) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values {
        low = low.min(value);
        high = high.max(value);
    }
    if low > high {
        (low, high) = (otherwise, otherwise);
    }
    let (low, high) = (low.log2().floor(), high.log2().ceil());
    (low, high.max(low + 1.0))
}

/// Exponents of two at both ends of the axes.
struct Plot {
    bytes: (f64, f64),
    us: (f64, f64),
}

impl Plot {
    fn x(&self, bytes: f64) -> f64 {
        LEFT + PLOT_WIDTH * (bytes.log2() - self.bytes.0) / (self.bytes.1 - self.bytes.0)
    }

    fn y(&self, us: f64) -> f64 {
        TOP + PLOT_HEIGHT - PLOT_HEIGHT * (us.log2() - self.us.0) / (self.us.1 - self.us.0)
    }

    fn axes(&self, out: &mut String) {
        let (right, bottom) = (LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT);
        for exponent in ticks(self.bytes) {
            let (bytes, x) = (2_f64.powi(exponent), self.x(2_f64.powi(exponent)));
            rule(out, (x, TOP), (x, bottom));
            text(out, x, bottom + 18.0, 12.0, "middle", &size(bytes as u64));
        }
        for exponent in ticks(self.us) {
            let (us, y) = (2_f64.powi(exponent), self.y(2_f64.powi(exponent)));
            rule(out, (LEFT, y), (right, y));
            text(out, LEFT - 8.0, y + 4.0, 12.0, "end", &format!("{us}"));
        }
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{PLOT_WIDTH}\" height=\"{PLOT_HEIGHT}\" fill=\"none\" stroke=\"#222\"/>"
        );
        text(
            out,
            LEFT + PLOT_WIDTH / 2.0,
            bottom + 44.0,
            14.0,
            "middle",
            "payload a rank (logarithmic)",
        );
        let (x, y) = (24.0, TOP + PLOT_HEIGHT / 2.0);
        let _ = writeln!(out, "<g transform=\"rotate(-90 {x} {y})\">");
        text(out, x, y, 14.0, "middle", "microseconds a call (logarithmic)");
        out.push_str("</g>\n");
    }

    fn line(&self, out: &mut String, at: usize, series: &Series) {
        let colour = COLOURS[at % COLOURS.len()];
        let dash = match (series.dashed, at / COLOURS.len()) {
            (true, _) => "6 4",
            (false, round) => DASHES[round % DASHES.len()],
        };
        let dash = if dash.is_empty() {
            String::new()
        } else {
            format!(" stroke-dasharray=\"{dash}\"")
        };
        let points: Vec<String> = (series.points.iter())
            .map(|(bytes, us)| format!("{:.1},{:.1}", self.x(*bytes as f64), self.y(*us)))
            .collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>",
            points.join(" ")
        );
        for (bytes, us) in &series.points {
            let (x, y) = (self.x(*bytes as f64), self.y(*us));
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\" fill=\"{colour}\"><title>{}: {} {us:.2} us</title></circle>",
                escaped(&series.name),
                size(*bytes)
            );
        }
        let (x, y) = (LEFT + PLOT_WIDTH + 24.0, TOP + 8.0 + LEGEND_LINE * at as f64);
        let _ = writeln!(
            out,
            "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"3\"{dash}/>",
            x + 30.0
        );
        text(out, x + 38.0, y + 4.0, 12.0, "start", &series.name);
    }
}

/// Whole exponents, at most about ten of them.
fn ticks((low, high): (f64, f64)) -> Vec<i32> {
    let step = ((high - low) / 10.0).ceil().max(1.0) as usize;
    (low as i32..=high as i32).step_by(step).collect()
}

fn rule(out: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#ddd\"/>"
    );
}

fn escaped(content: &str) -> String {
    content.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn text(out: &mut String, x: f64, y: f64, font: f64, anchor: &str, content: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{font}\" text-anchor=\"{anchor}\" fill=\"#111\">{}</text>",
        escaped(content)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, points: &[(u64, f64)]) -> Series {
        Series {
            name: name.to_owned(),
            points: points.to_vec(),
            dashed: false,
        }
    }

    #[test]
    fn equal_factors_are_equal_distances_on_both_axes() {
        let plot = Plot {
            bytes: (10.0, 14.0),
            us: (0.0, 4.0),
        };
        let xs = [1024.0, 2048.0, 4096.0, 8192.0].map(|b| plot.x(b));
        assert!(
            xs.windows(2).all(|w| (w[1] - w[0] - PLOT_WIDTH / 4.0).abs() < 1e-9),
            "{xs:?}"
        );
        assert_eq!((plot.y(1.0), plot.y(16.0)), (TOP + PLOT_HEIGHT, TOP));
        assert_eq!(plot.y(4.0), TOP + PLOT_HEIGHT / 2.0);
    }

    #[test]
    fn every_line_is_drawn_and_named_inside_the_plot() {
        let drawn = chart(
            "a < b",
            &[
                series("ours", &[(1024, 1.5), (5120, 1.7), (1 << 22, 14.0)]),
                series("<&>", &[(1024, 5.7)]),
            ],
        );
        assert_eq!(drawn.matches("<polyline").count(), 2);
        assert_eq!(drawn.matches("<circle").count(), 4);
        assert!(drawn.contains("a &lt; b") && drawn.contains("&lt;&amp;&gt;") && !drawn.contains("<&"));
        assert!(drawn.contains("microseconds a call") && drawn.contains("payload a rank"));
        for point in drawn.split("cx=\"").skip(1) {
            let x: f64 = point.split('"').next().and_then(|x| x.parse().ok()).expect("a number");
            assert!((LEFT - 0.1..=LEFT + PLOT_WIDTH + 0.1).contains(&x), "{x}");
        }
    }

    #[test]
    fn figures_that_are_none_are_left_out_and_an_empty_picture_says_so() {
        let bad = series("bad", &[(1024, f64::NAN), (2048, 0.0), (0, 1.0), (4096, f64::INFINITY)]);
        let drawn = chart("t", &[bad]);
        assert!(!drawn.contains("<polyline") && drawn.contains("nothing could be timed"));
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
    }

    #[test]
    fn many_lines_differ_in_colour_or_dash() {
        let lines: Vec<Series> = (0..20).map(|i| series(&format!("s{i}"), &[(1024, 1.0)])).collect();
        let drawn = chart("t", &lines);
        let styles: std::collections::BTreeSet<&str> = drawn
            .lines()
            .filter(|l| l.starts_with("<polyline"))
            .filter_map(|l| l.split("stroke=").nth(1))
            .collect();
        assert_eq!(styles.len(), 20);
    }
}
