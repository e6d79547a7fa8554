//! Link load over time as a picture: a row for each resource, time to the right, darker where it is busier.
//!
//! It simulates nothing. Start at [`svg`].

use super::Usage;
use crate::alltoallv::fabric::Fabric;
use std::fmt::Write as _;

/// Rows drawn: the busiest resources.
const ROWS: usize = 48;
const ROW: f64 = 14.0;
const LEFT: f64 = 250.0;
const WIDTH: f64 = 900.0;
const TOP: f64 = 60.0;

/// The usage of each exchange, one panel below the other, on one scale of time.
pub fn svg(fabric: &Fabric, title: &str, panels: &[(String, &Usage)]) -> String {
    let longest = panels.iter().map(|(_, usage)| total(usage)).fold(0.0, f64::max);
    let rows = fabric.resources().min(ROWS);
    let panel = TOP + rows as f64 * ROW + 30.0;
    let height = 50.0 + panel * panels.len() as f64;
    let width = LEFT + WIDTH + 90.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut out, 20.0, 30.0, 18.0, "start", title);
    for (at, (name, usage)) in panels.iter().enumerate() {
        draw(&mut out, fabric, name, usage, longest, 40.0 + panel * at as f64, rows);
    }
    out.push_str("</svg>\n");
    out
}

fn total(usage: &Usage) -> f64 {
    usage.step_ns * usage.busy.first().map_or(0, Vec::len) as f64
}

fn draw(out: &mut String, fabric: &Fabric, name: &str, usage: &Usage, longest: f64, top: f64, rows: usize) {
    let sum = |busy: &[f32]| busy.iter().map(|b| f64::from(*b)).sum::<f64>();
    let mut order: Vec<usize> = (0..usage.busy.len()).collect();
    order.sort_by(|&a, &b| sum(&usage.busy[b]).total_cmp(&sum(&usage.busy[a])).then(a.cmp(&b)));
    order.truncate(rows);
    order.sort_unstable();
    let whole = total(usage);
    text(
        out,
        20.0,
        top + 30.0,
        14.0,
        "start",
        &format!("{name}: {:.1} us", whole / 1e3),
    );
    let left_out = usage.busy.len() - order.len();
    if left_out > 0 {
        let note = format!("{left_out} less busy resources are not shown");
        text(out, LEFT + WIDTH, top + 30.0, 12.0, "end", &note);
    }
    let scale = if longest > 0.0 { WIDTH / longest } else { 0.0 };
    for (row, &r) in order.iter().enumerate() {
        let y = top + TOP - 20.0 + row as f64 * ROW;
        text(out, LEFT - 8.0, y + 10.5, 11.0, "end", &fabric.resource_name(r as u32));
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#f2f2f2\"/>",
            whole * scale,
            ROW - 2.0
        );
        bars(out, &usage.busy[r], usage.step_ns * scale, y);
        let busy = 100.0 * sum(&usage.busy[r]) / usage.busy[r].len().max(1) as f64;
        text(
            out,
            LEFT + whole * scale + 6.0,
            y + 10.5,
            11.0,
            "start",
            &format!("{busy:.0} %"),
        );
    }
}

/// One row; neighbours of one shade are one rectangle.
fn bars(out: &mut String, busy: &[f32], step: f64, y: f64) {
    let shade = |b: f32| (b.clamp(0.0, 1.0) * 8.0 + 0.5) as u32;
    let mut at = 0;
    while at < busy.len() {
        let level = shade(busy[at]);
        let run = busy[at..].iter().take_while(|b| shade(**b) == level).count();
        if level > 0 {
            let light = 255 - level * 22;
            let _ = writeln!(
                out,
                "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"rgb({light},{},200)\"/>",
                LEFT + at as f64 * step,
                run as f64 * step,
                ROW - 2.0,
                255 - level * 16
            );
        }
        at += run;
    }
}

fn text(out: &mut String, x: f64, y: f64, size: f64, anchor: &str, content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"#111\">{content}</text>"
    );
}
