//! AlltoAllv: how far plans are from the best there can be, and what they gain over what others would do.
//!
//! All figures are predictions of the planner's simulator; nothing here touches a device. Start at [`gap()`] and [`sweep()`].

#[cfg(feature = "solver")]
mod channels;
#[cfg(feature = "solver")]
mod configuration;
#[cfg(feature = "solver")]
mod gap;
#[cfg(feature = "solver")]
mod solver;
mod sweep;

pub use sweep::sweep;

use crate::failure::Done;

/// Prints gaps to lower bounds and proved optima.
#[cfg(feature = "solver")]
pub fn gap() -> Done {
    gap::run()
}

/// The same: this program was built without the solver, so one with it is built and run.
#[cfg(not(feature = "solver"))]
pub fn gap() -> Done {
    let with_solver = [
        "run",
        "--package",
        "xtask",
        "--features",
        "solver",
        "--quiet",
        "--",
        "a2a-gap",
    ];
    crate::steps::run(&mut crate::steps::cargo(&with_solver))
}
