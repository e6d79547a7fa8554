//! The `profiles` of a descriptor's machine: what a workload sends in one node, as it was recorded.
//!
//! ```text
//! profiles: [
//!     Profile(name: "moe-decode", demand: [
//!         [0, 12, 7, 1],
//!         [9, 0, 7, 1],
//!         [9, 12, 0, 1],
//!         [9, 12, 7, 0],
//!     ]),
//! ],
//! ```
//!
//! A row is what one rank sends; only ratios count. `topoforge alltoallv profile FILE --name NAME` writes one from bytes that
//! were counted. Start reading at [`profiles`].

use super::reader::Reader;
use super::tree::Node;
use crate::alltoallv::demand::MAX_PAIR;
use crate::alltoallv::profile::{MAX_PROFILES, check_name};
use crate::alltoallv::{Demand, Machine, Profile};

/// Reads the list, noting every fault.
pub(super) fn profiles<'a>(reader: &mut Reader<'a>, node: &Node<'a>) -> Option<Vec<Profile>> {
    let items = reader.list(node, "a list of `Profile(name: .., demand: ..)`")?;
    if items.len() > MAX_PROFILES {
        let message = format!("{} profiles: expected at most {MAX_PROFILES}", items.len());
        reader.faults.add(node.offset, message);
        return None;
    }
    let mut found: Vec<Profile> = Vec::new();
    for item in items {
        let Some(profile) = profile(reader, item) else { continue };
        if found.iter().any(|other| other.name() == profile.name()) {
            let message = format!("profile {:?} is given twice: expected another name", profile.name());
            reader.faults.add(item.offset, message);
        } else {
            found.push(profile);
        }
    }
    (found.len() == items.len()).then_some(found)
}

fn profile<'a>(reader: &mut Reader<'a>, node: &Node<'a>) -> Option<Profile> {
    if node.name != Some("Profile") {
        reader.wrong(node, "`Profile(name: .., demand: ..)`");
        return None;
    }
    let fields = reader.fields(node, "`Profile`", &["name", "demand"])?;
    let name = reader.required(&fields, "name").and_then(|node| {
        let name = reader.name(node)?;
        let checked = check_name(&name).map_err(|e| reader.faults.add(node.offset, e.to_string()));
        checked.ok().map(|()| name)
    });
    let demand = reader.required(&fields, "demand")?;
    let read = matrix(reader, demand);
    // What is left to go wrong concerns the matrix as a whole.
    let profile = Profile::new(&name?, &read?);
    profile
        .map_err(|e| reader.faults.add(demand.offset, e.to_string()))
        .ok()
}

/// A row for each rank, and bytes for each rank in it.
fn matrix<'a>(reader: &mut Reader<'a>, node: &Node<'a>) -> Option<Demand> {
    let rows = reader.list(node, "a row for each rank such as `[[0, 3], [1, 0]]`")?;
    // Without a readable number of ranks the rows say how many there are.
    let ranks = reader.ranks.unwrap_or(rows.len());
    if rows.len() != ranks {
        let message = format!(
            "{} rows for {ranks} ranks: expected one for each rank of a node",
            rows.len()
        );
        reader.faults.add(node.offset, message);
        return None;
    }
    let mut bytes = Vec::with_capacity(ranks * ranks);
    let mut whole = true;
    for (from, row) in rows.iter().enumerate() {
        let Some(entries) = reader.list(row, "a list of bytes for each rank") else {
            whole = false;
            continue;
        };
        if entries.len() != ranks {
            let message = format!(
                "{} entries in the row of rank {from}: expected {ranks}, one for each rank of a node",
                entries.len()
            );
            reader.faults.add(row.offset, message);
            whole = false;
            continue;
        }
        for (to, entry) in entries.iter().enumerate() {
            let found = reader.whole(entry, "bytes as a whole number", 0, MAX_PAIR as i64);
            if from == to && found.is_some_and(|bytes| bytes > 0) {
                let message = format!("rank {from} has bytes for itself: expected 0, since they cross no link");
                reader.faults.add(entry.offset, message);
                whole = false;
            }
            bytes.extend(found.and_then(|bytes| u64::try_from(bytes).ok()));
        }
    }
    if !whole || bytes.len() != ranks * ranks {
        return None;
    }
    let demand = Demand::new(ranks, bytes);
    demand.map_err(|e| reader.faults.add(node.offset, e.to_string())).ok()
}

/// Whether a machine has a use for its profiles; if not, why.
pub(super) fn use_of(machine: &Machine) -> Result<(), String> {
    if machine.profiles.is_empty() {
        return Ok(());
    }
    if !machine.any_nodes && machine.spec.nodes > 1 {
        return Err(format!(
            "profiles are of a single node, and this machine always has {}: expected none, or `nodes: Any`",
            machine.spec.nodes
        ));
    }
    if machine.fabric(Some(1)).is_ok_and(|node| node.is_fluid()) {
        return Err(
            "profiles of a machine whose links all share without loss: expected none, everything is sent at once"
                .into(),
        );
    }
    Ok(())
}
