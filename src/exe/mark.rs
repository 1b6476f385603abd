//! The mark in a runner that tells whether it is part of a program of `rbt build --exe`.
//!
//! Such a program finds its bundle at its end. If the end is missing, only the mark distinguishes the program from a runner.

use std::sync::atomic::{AtomicU64, Ordering};

/// The first bytes of a mark, which a runner has only once.
pub(super) const NAME: [u8; 16] = *b"\x7frbt-run bundle:";

/// A mark. `rbt build --exe` writes the size of the bundle into the file.
#[repr(C)]
struct Mark {
    name: [u8; 16],
    bundle_size: AtomicU64,
}

#[used]
static MARK: Mark = Mark { name: NAME, bundle_size: AtomicU64::new(0) };

/// Was this program made to contain a bundle?
pub fn is_set() -> bool {
    MARK.bundle_size.load(Ordering::Relaxed) != 0
}

/// Sets the mark in a runner.
pub(super) fn set(runner: &mut [u8], bundle_size: u64) -> bool {
    let mut places = memchr::memmem::find_iter(runner, &NAME);
    let (Some(at), None) = (places.next(), places.next()) else { return false };
    let place = runner.get_mut(at + NAME.len()..).and_then(|rest| rest.first_chunk_mut());
    place.map(|place| *place = bundle_size.to_le_bytes()).is_some()
}
