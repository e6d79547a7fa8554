//! `cargo xtask calibration`: fits the cost model on the published figures, each machine left out in turn, and prints
//! the errors on it. docs/cost-model.md keeps the output.
//!
//! It changes no file: whoever changes a constant does so by hand, and a test compares it with the fit. Start at
//! [`run`].

use topoforge_planner::schedule::calibration::{fit_all, leave_one_out};

/// Prints each machine left out, then the fit over all of them.
pub fn run() {
    println!("Fitted on the other machines, held against the one left out (microseconds):\n");
    for machine in leave_one_out() {
        println!("{machine}");
    }
    let (all, machines) = fit_all();
    println!("Fitted on all machines: {all:#?}\n");
    for machine in machines {
        println!(
            "{}: median error {:.1} % planned, {:.1} % comparison",
            machine.name,
            100.0 * machine.planned_error(),
            100.0 * machine.other_error()
        );
    }
}
