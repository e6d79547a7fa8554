//! The `alltoallv` part of a descriptor: the tree of sockets, switches, GPUs and NICs below a topology's links.
//!
//! ```text
//! alltoallv: Machine(
//!     nodes: Any,
//!     sockets: [[Switch(gpus: 2, nics: 1), Switch(gpus: 2, nics: 1)], [Switch(gpus: 4)]],
//!     gb_per_s: (same_switch: 56.0, same_socket: 52.0, cross_socket: 40.0, nic: 48.0),
//!     modes: (port: Exclusive, trunk: Exclusive, cross: Slots(2), nic: Fluid),
//!     reach: Node,
//!     nic_in_node: true,
//!     nic_beside_ports: false,
//!     forward: false,
//!     network: Leaves(nodes: 4, up_gb_per_s: 384.0, mode: Fluid),
//!     alpha_ns: 2000,
//!     alpha_handoff_ns: 1000,
//!     profiles: [Profile(name: "moe-decode", demand: [..])],
//! ),
//! ```
//!
//! Everything but `sockets` and `gb_per_s` may be left out; `profiles.rs` reads the profiles. Start reading at [`machine`].

use std::fmt::Write as _;

use super::profiles::{profiles, use_of};
use super::reader::{Fields, Reader};
use super::tree::{Node, Shape};
use crate::alltoallv::spec::{MAX_GROUPS, MAX_NODE_RANKS};
use crate::alltoallv::{Fabric, Leaves, Machine, Mode, Modes, Network, Nics, Rates, Reach, Switch, TreeSpec};

const FIELDS: &[&str] = &[
    "nodes",
    "sockets",
    "gb_per_s",
    "modes",
    "reach",
    "nic_in_node",
    "nic_beside_ports",
    "forward",
    "network",
    "alpha_ns",
    "alpha_handoff_ns",
    "profiles",
];
const MODES: &str = "`Exclusive`, `Slots(N)` or `Fluid`";
/// Most nodes of a machine: 4,096 GPUs, one a node.
const MAX_NODES: i64 = 4096;

/// Reads the machine, noting every fault; `ranks` are the GPUs of one node.
pub(super) fn machine<'a>(reader: &mut Reader<'a>, node: &Node<'a>) -> Option<Machine> {
    if node.name != Some("Machine") {
        reader.wrong(node, "`Machine(sockets: .., gb_per_s: ..)`");
        return None;
    }
    let fields = reader.fields(node, "`Machine`", FIELDS)?;
    // What may be left out is as in the plain tree.
    let plain = TreeSpec::tree(1, 1, 1);
    let nodes = fields
        .optional("nodes")
        .map_or(Some((1, false)), |node| nodes(reader, node));
    let sockets = reader
        .required(&fields, "sockets")
        .and_then(|node| sockets(reader, node));
    let rates = reader
        .required(&fields, "gb_per_s")
        .and_then(|node| rates(reader, node));
    let modes = fields
        .optional("modes")
        .map_or(Some(plain.modes), |node| modes(reader, node));
    let reach = fields
        .optional("reach")
        .map_or(Some(plain.reach), |node| reach(reader, node));
    let nic_in_node = flag(reader, &fields, "nic_in_node", plain.nic_in_node);
    let nic_beside_ports = flag(reader, &fields, "nic_beside_ports", plain.nic_beside_ports);
    let forward = flag(reader, &fields, "forward", plain.forward);
    let network = fields
        .optional("network")
        .map_or(Some(None), |node| network(reader, node).map(Some));
    let mut alpha = |name, default| match fields.optional(name) {
        None => Some(default),
        Some(node) => {
            (reader.whole(node, "nanoseconds as a whole number", 0, 1_000_000)).and_then(|n| u32::try_from(n).ok())
        }
    };
    let (alpha_ns, alpha_h_ns) = (
        alpha("alpha_ns", plain.alpha_ns),
        alpha("alpha_handoff_ns", plain.alpha_h_ns),
    );
    let listed = fields.optional("profiles");
    let profiles = listed.map_or(Some(Vec::new()), |node| profiles(reader, node));
    let (nodes, any_nodes) = nodes?;
    let spec = TreeSpec {
        nodes,
        sockets: sockets?,
        rates: rates?,
        modes: modes?,
        reach: reach?,
        nic_in_node: nic_in_node?,
        nic_beside_ports: nic_beside_ports?,
        forward: forward?,
        network: network?,
        alpha_ns: alpha_ns?,
        alpha_h_ns: alpha_h_ns?,
    };
    // Figures are in range; what is left to go wrong concerns the machine as a whole.
    let smallest = spec.clone().cluster(if any_nodes { 2 } else { nodes });
    if let Err(error) = Fabric::new(&smallest) {
        reader.faults.add(node.offset, error.to_string());
        return None;
    }
    let machine = Machine {
        spec,
        any_nodes,
        profiles: profiles?,
    };
    if let Err(why) = use_of(&machine) {
        reader.faults.add(listed.map_or(node.offset, |node| node.offset), why);
        return None;
    }
    Some(machine)
}

fn nodes(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<(u32, bool)> {
    match (node.name, &node.shape) {
        (Some("Any"), Shape::Word) => Some((1, true)),
        (None, Shape::Whole(n)) if (1..=MAX_NODES).contains(n) => Some((u32::try_from(*n).ok()?, false)),
        _ => {
            reader.wrong(node, &format!("`Any` or a number of nodes from 1 to {MAX_NODES}"));
            None
        }
    }
}

fn sockets<'a>(reader: &mut Reader<'a>, node: &Node<'a>) -> Option<Vec<Vec<Switch>>> {
    let mut sockets = Vec::new();
    let mut whole = true;
    for socket in reader.list(node, "a list of switches for each socket")? {
        let mut switches = Vec::new();
        let listed = reader.list(socket, "a list of `Switch(gpus: .., nics: ..)`");
        whole &= listed.is_some();
        for element in listed.unwrap_or_default() {
            let switch = switch(reader, element);
            whole &= switch.is_some();
            switches.extend(switch);
        }
        if listed.is_some_and(<[Node<'_>]>::is_empty) {
            reader
                .faults
                .add(socket.offset, "a socket without switches: expected at least one");
            whole = false;
        }
        sockets.push(switches);
    }
    if sockets.is_empty() {
        reader.faults.add(node.offset, "no sockets: expected at least one");
    }
    if !whole || sockets.is_empty() {
        return None;
    }
    let groups = sockets.iter().map(Vec::len).sum::<usize>();
    if groups > MAX_GROUPS {
        let message = format!("{groups} switches in a node: expected at most {MAX_GROUPS}");
        reader.faults.add(node.offset, message);
        return None;
    }
    let gpus: usize = sockets.iter().flatten().map(|switch| usize::from(switch.gpus)).sum();
    if let Some(ranks) = reader.ranks.filter(|&ranks| ranks != gpus) {
        let message = format!("{gpus} GPUs below the switches of a node of {ranks} ranks: expected as many");
        reader.faults.add(node.offset, message);
        return None;
    }
    Some(sockets)
}

fn switch<'a>(reader: &mut Reader<'a>, node: &Node<'a>) -> Option<Switch> {
    if node.name != Some("Switch") {
        reader.wrong(node, "`Switch(gpus: .., nics: ..)`");
        return None;
    }
    let fields = reader.fields(node, "`Switch`", &["gpus", "nics"])?;
    let most = MAX_NODE_RANKS as i64;
    let gpus = reader
        .required(&fields, "gpus")
        .and_then(|node| reader.whole(node, "GPUs", 1, most));
    let nics = match fields.optional("nics") {
        None => Some(Nics::None),
        Some(node) => match (node.name, &node.shape) {
            (Some("PerGpu"), Shape::Word) => Some(Nics::PerGpu),
            (None, Shape::Whole(0)) => Some(Nics::None),
            (None, Shape::Whole(n)) if (1..=most).contains(n) => u8::try_from(*n).ok().map(Nics::Shared),
            _ => {
                reader.wrong(node, &format!("NICs from 0 to {most}, or `PerGpu`"));
                None
            }
        },
    };
    Some(Switch {
        gpus: u8::try_from(gpus?).ok()?,
        nics: nics?,
    })
}

fn rates<'a>(reader: &mut Reader<'a>, node: &Node<'a>) -> Option<Rates> {
    const RATES: &[&str] = &["same_switch", "same_socket", "cross_socket", "nic"];
    let fields = reader.fields(node, "`gb_per_s`", RATES)?;
    let mut rate = |name| {
        let node = reader.required(&fields, name)?;
        let gb_per_s = reader.link_gb_per_s(node)?;
        megabytes(reader, node, gb_per_s)
    };
    let [same_switch, same_socket, cross_socket, nic] = [
        rate("same_switch"),
        rate("same_socket"),
        rate("cross_socket"),
        rate("nic"),
    ];
    Some(Rates {
        same_switch: same_switch?,
        same_socket: same_socket?,
        cross_socket: cross_socket?,
        nic: nic?,
    })
}

/// A rate in 10^9 bytes a second, kept to a megabyte a second.
fn megabytes<'a>(reader: &mut Reader<'a>, node: &Node<'a>, gb_per_s: f32) -> Option<u32> {
    let rate = (f64::from(gb_per_s) * 1000.0).round() as u32;
    if rate == 0 {
        reader.wrong(node, "10^9 bytes a second, at least 0.001");
    }
    (rate > 0).then_some(rate)
}

fn network<'a>(reader: &mut Reader<'a>, node: &Node<'a>) -> Option<Network> {
    let rails = match node.name {
        Some("Leaves") => false,
        Some("Rails") => true,
        _ => {
            reader.wrong(node, "`Leaves(nodes: .., up_gb_per_s: ..)` or `Rails(up_gb_per_s: ..)`");
            return None;
        }
    };
    let what = if rails { "`Rails`" } else { "`Leaves`" };
    let fields = reader.fields(node, what, &["nodes", "up_gb_per_s", "mode"])?;
    let nodes = if rails {
        fields.optional("nodes").map(Some)
    } else {
        reader.required(&fields, "nodes").map(Some)
    };
    let nodes = nodes.flatten().map(|node| {
        let nodes = reader.whole(node, "nodes below one leaf switch", 1, MAX_NODES)?;
        u32::try_from(nodes).ok()
    });
    let up = reader.required(&fields, "up_gb_per_s").and_then(|node| {
        let gb_per_s = reader.resource_gb_per_s(node)?;
        megabytes(reader, node, gb_per_s)
    });
    let mode = fields
        .optional("mode")
        .map_or(Some(Mode::Fluid), |node| mode(reader, node, i64::from(u8::MAX)));
    let leaves = match (rails, nodes) {
        (true, None) => Leaves::Rails(None),
        (true, Some(nodes)) => Leaves::Rails(Some(nodes?)),
        (false, nodes) => Leaves::Nodes(nodes??),
    };
    Some(Network {
        leaves,
        up: up?,
        mode: mode?,
    })
}

fn modes<'a>(reader: &mut Reader<'a>, node: &Node<'a>) -> Option<Modes> {
    let fields = reader.fields(node, "`modes`", &["port", "trunk", "cross", "nic"])?;
    let mut mode = |name| {
        fields
            .optional(name)
            .map_or(Some(Mode::Exclusive), |node| mode(reader, node, MAX_NODE_RANKS as i64))
    };
    let [port, trunk, cross, nic] = [mode("port"), mode("trunk"), mode("cross"), mode("nic")];
    Some(Modes {
        port: port?,
        trunk: trunk?,
        cross: cross?,
        nic: nic?,
    })
}

fn mode<'a>(reader: &mut Reader<'a>, node: &Node<'a>, most: i64) -> Option<Mode> {
    match (node.name, &node.shape) {
        (Some("Exclusive"), Shape::Word) => Some(Mode::Exclusive),
        (Some("Fluid"), Shape::Word) => Some(Mode::Fluid),
        (Some("Slots"), Shape::Items(items)) if items.len() == 1 => {
            let slots = reader.whole(&items[0], "slots", 1, most)?;
            u8::try_from(slots).ok().map(Mode::Slots)
        }
        _ => {
            reader.wrong(node, MODES);
            None
        }
    }
}

fn reach<'a>(reader: &mut Reader<'a>, node: &Node<'a>) -> Option<Reach> {
    let known = [
        ("Nowhere", Reach::Nowhere),
        ("Switch", Reach::Switch),
        ("Socket", Reach::Socket),
        ("Node", Reach::Node),
    ];
    let found = known.into_iter().find(|(name, _)| node.name == Some(name));
    if found.is_none() || !matches!(node.shape, Shape::Word) {
        reader.wrong(node, "`Nowhere`, `Switch`, `Socket` or `Node`");
        return None;
    }
    found.map(|(_, reach)| reach)
}

fn flag<'a>(reader: &mut Reader<'a>, fields: &Fields<'_, 'a>, name: &str, default: bool) -> Option<bool> {
    fields.optional(name).map_or(Some(default), |node| reader.flag(node))
}

/// The machine as its descriptor spells it, one field a line.
pub(super) fn print(machine: &Machine) -> String {
    let spec = &machine.spec;
    let mut out = String::from("    alltoallv: Machine(\n");
    let nodes = if machine.any_nodes {
        "Any".to_owned()
    } else {
        spec.nodes.to_string()
    };
    let switch = |switch: &Switch| match switch.nics {
        Nics::None => format!("Switch(gpus: {})", switch.gpus),
        Nics::Shared(n) => format!("Switch(gpus: {}, nics: {n})", switch.gpus),
        Nics::PerGpu => format!("Switch(gpus: {}, nics: PerGpu)", switch.gpus),
    };
    let socket = |socket: &Vec<Switch>| format!("[{}]", socket.iter().map(switch).collect::<Vec<_>>().join(", "));
    let sockets: Vec<String> = spec.sockets.iter().map(socket).collect();
    let rate = |rate: u32| format!("{}.{:03}", rate / 1000, rate % 1000);
    let Rates {
        same_switch,
        same_socket,
        cross_socket,
        nic,
    } = spec.rates;
    let mode = |mode: Mode| match mode {
        Mode::Exclusive => "Exclusive".to_owned(),
        Mode::Slots(n) => format!("Slots({n})"),
        Mode::Fluid => "Fluid".to_owned(),
    };
    let modes = spec.modes;
    let lines = [
        format!("nodes: {nodes}"),
        format!("sockets: [{}]", sockets.join(", ")),
        format!(
            "gb_per_s: (same_switch: {}, same_socket: {}, cross_socket: {}, nic: {})",
            rate(same_switch),
            rate(same_socket),
            rate(cross_socket),
            rate(nic)
        ),
        format!(
            "modes: (port: {}, trunk: {}, cross: {}, nic: {})",
            mode(modes.port),
            mode(modes.trunk),
            mode(modes.cross),
            mode(modes.nic)
        ),
        format!("reach: {:?}", spec.reach),
        format!("nic_in_node: {}", spec.nic_in_node),
        format!("nic_beside_ports: {}", spec.nic_beside_ports),
        format!("forward: {}", spec.forward),
        format!("alpha_ns: {}", spec.alpha_ns),
        format!("alpha_handoff_ns: {}", spec.alpha_h_ns),
    ];
    let network = spec.network.map(|network| {
        let leaves = match network.leaves {
            Leaves::Nodes(nodes) => format!("Leaves(nodes: {nodes}, "),
            Leaves::Rails(Some(nodes)) => format!("Rails(nodes: {nodes}, "),
            Leaves::Rails(None) => "Rails(".to_owned(),
        };
        format!(
            "network: {leaves}up_gb_per_s: {}, mode: {})",
            rate(network.up),
            mode(network.mode)
        )
    });
    for line in lines.into_iter().chain(network) {
        let _ = writeln!(out, "        {line},");
    }
    if !machine.profiles.is_empty() {
        out.push_str("        profiles: [\n");
        for profile in &machine.profiles {
            let _ = writeln!(out, "            {},", profile.to_ron("            "));
        }
        out.push_str("        ],\n");
    }
    out.push_str("    ),\n");
    out
}
