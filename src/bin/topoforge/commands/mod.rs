//! One module a verb: asks the library, fills in a report, says how it ended.
//!
//! Nothing here writes to stdout or decides what is correct or fast. Start at the verb.

pub mod alltoallv;
pub mod bench;
pub mod cuda;
pub mod doctor;
pub mod floor;
pub mod groups;
pub mod inventory;
pub mod launch;
pub mod machine;
pub mod matching;
mod output_dir;
pub mod plan;
pub mod qualify;
pub mod rank;
mod setting;
pub mod simulate;
pub mod soak;
pub mod start;
pub mod tune;
