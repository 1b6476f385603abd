//! `rbt merge`: adds up what runs of one script have counted on several machines.
//!
//! - `read`: documents ([`State`](crate::state::State)) from files and streams, which may be cut, mixed with other lines, or forged
//! - `add`: their sum
//!
//! What is wrong with one document leaves it out and is told; different scripts have no sum at all.

mod add;
mod read;

pub use add::{NoSum, Refused, Sum};
pub use read::{Found, read};
