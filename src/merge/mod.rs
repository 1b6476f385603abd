//! `rbt merge`: adds up the results of runs of one script on several machines.
//!
//! - `read`: documents ([`State`](crate::state::State)) from files and streams, which may be cut, mixed with other lines, or forged
//! - `add`: their sum
//! - `hosts`: which of the expected hosts they are from
//!
//! An invalid document is reported and omitted. Documents of different scripts cannot be added.

mod add;
mod hosts;
mod read;

pub use add::{MergeError, NotSummable, Sum};
pub use hosts::MissingHosts;
pub use read::{Document, read};
