//! Which other kernels a compiled script runs on: the queries that its compilation made are recorded, and the answers of the other
//! kernel must be the same, except for facts without effect on the code and numbers that have relocations.

pub mod answers;
pub(crate) mod forward;
pub mod kept_answers;
pub mod questions;
pub mod relocations;
pub mod requirements;
pub mod varied;
