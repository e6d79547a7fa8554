//! The drawing: the machine in a large panel with its legend, then one small panel a stage.
//!
//! It never measures text; widths are estimates with room to spare. Start at [`svg`].

use super::{style, width};
use crate::schedule::{Rank, Schedule};
use crate::topology::Topology;
use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::fmt::Write as _;

/// Width of the whole picture.
const WIDTH: f64 = 1180.0;
/// Height of the machine's panel.
const MACHINE: f64 = 560.0;
/// Its width: labels of arcs stick out at the sides.
const MACHINE_WIDTH: f64 = 660.0;
/// Side of a stage's panel.
const PANEL: f64 = 290.0;
/// Panels in a row.
const ROW: usize = 4;
/// Stages drawn; a ring has many that look alike.
const MOST_PANELS: usize = 24;
/// Chunk numbers written beside an arrow.
const MOST_CHUNKS: usize = 4;

/// The machine, and `schedule`'s stages over it where there is one.
pub fn svg(topology: &Topology, schedule: Option<&Schedule>) -> String {
    let stages = schedule.map_or(0, |s| s.stages.len());
    let drawn = stages.min(MOST_PANELS);
    let rows = drawn.div_ceil(ROW);
    let height = 40.0 + MACHINE + rows as f64 * (PANEL + 30.0) + 30.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let title = match schedule {
        Some(s) => format!(
            "{}: {}, {} chunks, {} stages",
            topology.name,
            s.name,
            s.chunks,
            s.stages.len()
        ),
        None => topology.name.clone(),
    };
    text(&mut out, 20.0, 28.0, 20.0, "start", "#111", &title);
    let circle = Circle {
        x: 20.0 + MACHINE_WIDTH / 2.0,
        y: 40.0 + MACHINE / 2.0,
        radius: 165.0,
        ranks: topology.ranks,
    };
    machine(&mut out, &circle, topology);
    legend(&mut out, 20.0 + MACHINE_WIDTH + 30.0, 80.0, topology);
    if let Some(schedule) = schedule {
        for at in 0..drawn {
            let (column, row) = ((at % ROW) as f64, (at / ROW) as f64);
            let small = Circle {
                x: 5.0 + column * (PANEL + 2.0) + PANEL / 2.0,
                y: 40.0 + MACHINE + row * (PANEL + 30.0) + 30.0 + PANEL / 2.0,
                radius: 100.0,
                ranks: topology.ranks,
            };
            stage(&mut out, &small, topology, schedule, at);
        }
        if drawn < stages {
            let left = format!("and {} more stages", stages - drawn);
            text(&mut out, WIDTH - 20.0, height - 12.0, 13.0, "end", "#555", &left);
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Where ranks stand: in order round a circle, the first at the top.
struct Circle {
    x: f64,
    y: f64,
    radius: f64,
    ranks: usize,
}

impl Circle {
    fn angle(&self, rank: f64) -> f64 {
        // Half a step to the left, so that the groups of even machines lie left and right.
        TAU * (rank + 0.5) / self.ranks.max(1) as f64 - TAU / 4.0
    }

    fn at(&self, rank: Rank) -> (f64, f64) {
        self.point(rank as f64, self.radius)
    }

    fn point(&self, rank: f64, radius: f64) -> (f64, f64) {
        let angle = self.angle(rank);
        (self.x + radius * angle.cos(), self.y + radius * angle.sin())
    }

    fn dot_radius(&self) -> f64 {
        let room = TAU * self.radius / (3.0 * self.ranks.max(1) as f64);
        room.clamp(4.0, 0.11 * self.radius)
    }
}

fn text(out: &mut String, x: f64, y: f64, size: f64, anchor: &str, colour: &str, content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{content}</text>"
    );
}

fn links(out: &mut String, circle: &Circle, topology: &Topology, opacity: f64) {
    // The best class on top: it is what schedules use most.
    let mut sorted: Vec<_> = topology.links.iter().collect();
    sorted.sort_by(|a, b| b.class.cmp(&a.class).then((a.from, a.to).cmp(&(b.from, b.to))));
    for link in sorted {
        let twin = topology
            .link(link.to, link.from)
            .is_some_and(|back| back.class == link.class);
        if twin && link.from > link.to {
            continue;
        }
        let ((x1, y1), (x2, y2)) = (circle.at(link.from), circle.at(link.to));
        let (colour, _, dashed) = style(link.class);
        let dash = if dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let scale = circle.radius / 165.0;
        let _ = writeln!(
            out,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" \
             stroke-width=\"{:.1}\" opacity=\"{opacity}\"{dash}/>",
            scale * width(link.class)
        );
    }
}

fn ranks(out: &mut String, circle: &Circle, topology: &Topology) {
    let fills = ["#ffffff", "#fff1d6", "#dcecff", "#e4f7df"];
    for rank in 0..circle.ranks {
        let ((x, y), r) = (circle.at(rank), circle.dot_radius());
        let fill = fills[topology.numa.get(rank).copied().unwrap_or(0) % fills.len()];
        let _ = writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r:.1}\" fill=\"{fill}\" stroke=\"#222\" stroke-width=\"1.2\"/>"
        );
        text(out, x, y + 0.35 * r, r, "middle", "#111", &rank.to_string());
    }
}

fn machine(out: &mut String, circle: &Circle, topology: &Topology) {
    // Ranks that share something, with what they share; two directions of one thing are one arc.
    let mut shared: BTreeMap<(usize, Vec<Rank>), Vec<&str>> = BTreeMap::new();
    for resource in &topology.resources {
        let side = |of: &dyn Fn(&(Rank, Rank)) -> Rank| {
            let mut ranks: Vec<Rank> = resource.links.iter().map(of).collect();
            ranks.sort_unstable();
            ranks.dedup();
            ranks
        };
        let (from, to) = (side(&|l| l.0), side(&|l| l.1));
        let group = if to.len() < from.len() { to } else { from };
        shared.entry((group.len(), group)).or_default().push(&resource.name);
    }
    let mut sizes: Vec<usize> = shared.keys().map(|k| k.0).collect();
    sizes.dedup();
    for ((size, group), names) in &shared {
        let level = sizes.iter().position(|s| s == size).unwrap_or(0) as f64;
        let radius = circle.radius + 46.0 + 28.0 * level;
        arc(out, circle, group, radius, names);
    }
    links(out, circle, topology, 0.85);
    ranks(out, circle, topology);
}

/// An arc along neighbouring ranks; ranks that do not stand side by side get one each.
fn arc(out: &mut String, circle: &Circle, group: &[Rank], radius: f64, names: &[&str]) {
    let mut runs: Vec<(Rank, Rank)> = Vec::new();
    for &rank in group {
        match runs.last_mut() {
            Some(run) if run.1 + 1 == rank => run.1 = rank,
            _ => runs.push((rank, rank)),
        }
    }
    for (at, (first, last)) in runs.into_iter().enumerate() {
        let (x1, y1) = circle.point(first as f64 - 0.32, radius);
        let (x2, y2) = circle.point(last as f64 + 0.32, radius);
        let span = (last - first) as f64 + 0.64;
        let large = u8::from(2.0 * span > circle.ranks as f64);
        let _ = writeln!(
            out,
            "<path d=\"M {x1:.1} {y1:.1} A {radius:.1} {radius:.1} 0 {large} 1 {x2:.1} {y2:.1}\" fill=\"none\" \
             stroke=\"#b02a4c\" stroke-width=\"3\" opacity=\"0.7\"/>"
        );
        if at > 0 {
            continue;
        }
        // On its arc, with a rim of white: beside it there may be another arc.
        let (x, y) = circle.point(f64::midpoint(first as f64, last as f64), radius);
        let _ = writeln!(
            out,
            "<g stroke=\"white\" stroke-width=\"5\" paint-order=\"stroke\" stroke-linejoin=\"round\">"
        );
        text(out, x, y + 4.0, 10.5, "middle", "#b02a4c", &common(names));
        out.push_str("</g>\n");
    }
}

/// `uplink-01-out` and `uplink-01-in` are one thing to a reader: what names share, else all of them.
fn common(names: &[&str]) -> String {
    let first = names.first().copied().unwrap_or_default();
    let shared = first
        .char_indices()
        .take_while(|(at, c)| names.iter().all(|n| n[*at.min(&n.len())..].starts_with(*c)))
        .count();
    let shared = first[..shared].trim_end_matches('-');
    if names.len() > 1 && shared.len() > 2 {
        shared.to_owned()
    } else {
        names.join(", ")
    }
}

fn legend(out: &mut String, x: f64, mut y: f64, topology: &Topology) {
    let mut known: Vec<(&str, &str, bool)> = Vec::new();
    let mut classes: Vec<_> = topology.links.iter().map(|l| l.class).collect();
    classes.sort_unstable();
    for class in classes {
        if !known.contains(&style(class)) {
            known.push(style(class));
        }
    }
    for (colour, name, dashed) in known {
        let dash = if dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let _ = writeln!(
            out,
            "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"4\"{dash}/>",
            x + 40.0
        );
        text(out, x + 52.0, y + 5.0, 14.0, "start", "#111", name);
        y += 24.0;
    }
    if !topology.resources.is_empty() {
        y += 10.0;
        text(
            out,
            x,
            y + 5.0,
            14.0,
            "start",
            "#b02a4c",
            "Shared capacities (arcs), 10^9 bytes a second:",
        );
        y += 22.0;
        // Long lists say little; the arcs show where they are.
        for resource in topology.resources.iter().take(16) {
            let line = format!(
                "{}: {} over {} links",
                resource.name,
                resource.gb_per_s,
                resource.links.len()
            );
            text(out, x + 12.0, y + 5.0, 12.0, "start", "#333", &line);
            y += 18.0;
        }
        if topology.resources.len() > 16 {
            let line = format!("and {} more", topology.resources.len() - 16);
            text(out, x + 12.0, y + 5.0, 12.0, "start", "#333", &line);
            y += 18.0;
        }
    }
    if !topology.numa.is_empty() {
        text(
            out,
            x,
            y + 14.0,
            12.0,
            "start",
            "#333",
            "Ranks of one NUMA node have one colour.",
        );
    }
}

fn stage(out: &mut String, circle: &Circle, topology: &Topology, schedule: &Schedule, at: usize) {
    let transfers = &schedule.stages[at].transfers;
    let mut edges: BTreeMap<(Rank, Rank), Vec<u32>> = BTreeMap::new();
    for t in transfers {
        edges.entry((t.from, t.to)).or_default().push(t.chunk);
    }
    let left = circle.x - PANEL / 2.0;
    let top = circle.y - PANEL / 2.0;
    let _ = writeln!(
        out,
        "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{PANEL}\" height=\"{:.1}\" fill=\"none\" stroke=\"#ddd\"/>",
        top - 20.0,
        PANEL + 20.0
    );
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let caption = format!(
        "stage {at}: {} transfer{} over {} edge{}",
        transfers.len(),
        plural(transfers.len()),
        edges.len(),
        plural(edges.len())
    );
    text(out, left + 8.0, top - 4.0, 13.0, "start", "#111", &caption);
    links(out, circle, topology, 0.14);
    let labelled = edges.len() <= 24;
    for ((from, to), chunks) in edges {
        let colour = topology.link(from, to).map_or("#808080", |l| style(l.class).0);
        arrow(
            out,
            circle,
            from,
            to,
            colour,
            if labelled && schedule.chunks > 1 { &chunks } else { &[] },
        );
    }
    ranks(out, circle, topology);
}

/// Bent to its right, so that two directions do not hide each other.
fn arrow(out: &mut String, circle: &Circle, from: Rank, to: Rank, colour: &str, chunks: &[u32]) {
    let ((x1, y1), (x2, y2)) = (circle.at(from), circle.at(to));
    let (dx, dy) = (x2 - x1, y2 - y1);
    let length = dx.hypot(dy).max(1.0);
    let (ux, uy) = (dx / length, dy / length);
    let bend = 0.08 * length;
    let (mx, my) = (f64::midpoint(x1, x2) - uy * bend, f64::midpoint(y1, y2) + ux * bend);
    let r = circle.dot_radius();
    // The tip lies on the rank's rim, where the bent line comes in.
    let (tx, ty) = (x2 - mx, y2 - my);
    let reach = tx.hypot(ty).max(1.0);
    let (tx, ty) = (tx / reach, ty / reach);
    let (ex, ey) = (x2 - tx * (r + 1.0), y2 - ty * (r + 1.0));
    let (bx, by) = (ex - tx * 6.0, ey - ty * 6.0);
    let _ = writeln!(
        out,
        "<path d=\"M {x1:.1} {y1:.1} Q {mx:.1} {my:.1} {bx:.1} {by:.1}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>\
         <path d=\"M {ex:.1} {ey:.1} L {:.1} {:.1} L {:.1} {:.1} Z\" fill=\"{colour}\"/>",
        bx - ty * 3.2,
        by + tx * 3.2,
        bx + ty * 3.2,
        by - tx * 3.2
    );
    if !chunks.is_empty() {
        let mut label: Vec<String> = chunks.iter().take(MOST_CHUNKS).map(u32::to_string).collect();
        if chunks.len() > MOST_CHUNKS {
            label.push(format!("+{}", chunks.len() - MOST_CHUNKS));
        }
        // Nearer to the receiver, where lines lie farther apart than in the middle.
        let (lx, ly) = (0.35 * mx + 0.65 * ex - uy * 5.0, 0.35 * my + 0.65 * ey + ux * 5.0);
        let label = label.join(",");
        let _ = writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"10\" fill=\"white\" opacity=\"0.75\"/>",
            lx - 2.6 * label.len() as f64 - 1.0,
            ly - 6.0,
            5.2 * label.len() as f64 + 2.0
        );
        text(out, lx, ly + 2.5, 8.5, "middle", "#111", &label);
    }
}
