//! The table of the frames of the stacks that a run prints.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::word_hash::WordHash;
use crate::value::{Frame, FrameTable, FramesBuilder};

/// The number of frames in a table at which it is replaced. Stacks that have frames in it keep it.
const MAX_FRAMES: usize = 1 << 17;

/// A table, and what is in it.
#[derive(Default)]
pub(super) struct StackFrames {
    table: Arc<FrameTable>,
    /// Numbers of frames without names, by address.
    bare: HashMap<u64, u32, WordHash>,
}

impl StackFrames {
    /// A stack of about this many frames.
    pub fn new_stack(&mut self, capacity: usize) -> FramesBuilder {
        if self.table.len() >= MAX_FRAMES {
            *self = Self::default();
        }
        FramesBuilder::new(Arc::clone(&self.table), capacity)
    }

    /// The current table.
    pub fn table(&self) -> &Arc<FrameTable> {
        &self.table
    }

    /// Adds frames of which nothing but the address is known.
    pub fn add_bare(&mut self, addrs: &[u64], to: &mut FramesBuilder) {
        let frame = |addr: &u64| Frame { addr: *addr, ..Frame::default() };
        if !Arc::ptr_eq(to.table(), &self.table) {
            return addrs.iter().for_each(|addr| _ = to.push(frame(addr)));
        }
        for addr in addrs {
            match self.bare.entry(*addr) {
                Entry::Occupied(number) => to.push_number(*number.get()),
                Entry::Vacant(new) => _ = new.insert(to.push(frame(addr))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_frames_are_shared_until_the_table_is_full() {
        let mut frames = StackFrames::default();
        let mut stack = |addrs: &[u64]| {
            let mut stack = frames.new_stack(addrs.len());
            frames.add_bare(addrs, &mut stack);
            (stack.finish(), frames.table().len())
        };
        let (first, _) = stack(&[1, 2]);
        let (second, len) = stack(&[2, 3]);
        assert_eq!((first.numbers().1.iter().next_back(), len), (second.numbers().1.iter().next(), 3));
        let (full, _) = stack(&(0..MAX_FRAMES as u64).collect::<Vec<_>>());
        let (next, len) = stack(&[2]);
        assert_eq!((len, next.iter().map(|f| f.addr).collect::<Vec<_>>()), (1, vec![2]));
        // those in the old table stay
        assert!(first.iter().map(|f| f.addr).eq([1, 2]) && full.iter().map(|f| f.addr).eq(0..MAX_FRAMES as u64));
    }
}
