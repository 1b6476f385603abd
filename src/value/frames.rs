//! The frames of a stack, as numbers in a table that stacks share: most of a million stacks consist of the same frames.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Frame;

/// Frames by number. A frame stays in its place.
#[derive(Debug, Default)]
pub struct FrameTable {
    /// The frames with the lowest numbers.
    first: Box<[Frame]>,
    /// Those that were added.
    added: OnceLock<Box<Added>>,
}

/// Frames in blocks, each twice as long as the one before it.
#[derive(Debug, Default)]
struct Added {
    len: AtomicU32,
    blocks: [OnceLock<Box<[OnceLock<Frame>]>>; BLOCKS],
}

/// The number of frames in the first block, as a power of two.
const FIRST_BLOCK: u32 = 6;
/// Enough for all numbers.
const BLOCKS: usize = (u32::BITS - FIRST_BLOCK) as usize;

static UNKNOWN: Frame = Frame {
    addr: 0,
    symbol: None,
    offset: 0,
    module: None,
    within: None,
    source: None,
    inlined: false,
    interpreted: false,
    build_id: None,
};

/// The block of an added frame, and its place in the block.
#[inline]
fn place(number: u32) -> (usize, usize) {
    let at = u64::from(number) + (1 << FIRST_BLOCK);
    let block = at.ilog2();
    ((block - FIRST_BLOCK) as usize, (at - (1 << block)) as usize)
}

impl FrameTable {
    /// The number of frames.
    pub fn len(&self) -> usize {
        self.first.len() + self.added.get().map_or(0, |added| added.len.load(Ordering::Relaxed) as usize)
    }

    /// Is there no frame?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Can other stacks have frames in it?
    pub fn is_shared(&self) -> bool {
        self.added.get().is_some()
    }

    /// Adds a frame, and returns its number.
    fn add(&self, frame: Frame) -> u32 {
        let added = self.added.get_or_init(Box::default);
        let number = added.len.fetch_add(1, Ordering::Relaxed);
        let (index, at) = place(number);
        if let Some(block) = added.blocks.get(index) {
            let block = block.get_or_init(|| (0..1usize << (index as u32 + FIRST_BLOCK)).map(|_| OnceLock::new()).collect());
            // nobody else has this number
            if let Some(to) = block.get(at) {
                to.get_or_init(|| frame);
            }
        }
        number.wrapping_add(self.first.len() as u32)
    }

    /// The frame of a number.
    #[inline]
    pub fn get(&self, number: u32) -> &Frame {
        if let Some(frame) = self.first.get(number as usize) {
            return frame;
        }
        let (block, at) = place(number.wrapping_sub(self.first.len() as u32));
        let found = self.added.get().and_then(|added| added.blocks.get(block)?.get()?.get(at)?.get());
        found.unwrap_or(&UNKNOWN)
    }
}

/// Numbers of frames. The frames of most runs are few, so that each number has as many bytes as the greatest of the stack needs.
/// The size is the first byte, followed by the numbers, with the lowest byte first. No numbers need no bytes.
#[derive(Clone, Default)]
pub struct FrameNumbers(Box<[u8]>);

impl FrameNumbers {
    fn new(numbers: &[u32]) -> Self {
        let Some(max) = numbers.iter().max() else { return Self::default() };
        let size = (u32::BITS - max.leading_zeros()).div_ceil(u8::BITS).max(1) as usize;
        let mut bytes = Vec::with_capacity(1 + size * numbers.len());
        bytes.push(size as u8);
        for number in numbers {
            bytes.extend(number.to_le_bytes().iter().take(size));
        }
        Self(bytes.into_boxed_slice())
    }

    /// The numbers in order.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator {
        let (size, bytes) = self.0.split_first().unwrap_or((&1, &[]));
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << u8::BITS | u32::from(*byte));
        bytes.chunks_exact(usize::from(*size).max(1)).map(number)
    }
}

/// The frames of a stack.
#[derive(Clone)]
pub struct Frames {
    table: Arc<FrameTable>,
    numbers: FrameNumbers,
}

impl Frames {
    /// The frames in order.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Frame> + ExactSizeIterator {
        self.numbers.iter().map(|number| self.table.get(number))
    }

    /// The number of frames.
    pub fn len(&self) -> usize {
        self.numbers.iter().len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first frame.
    pub fn first(&self) -> Option<&Frame> {
        self.iter().next()
    }

    /// The last frame.
    pub fn last(&self) -> Option<&Frame> {
        self.iter().next_back()
    }

    fn into_frames(self) -> Vec<Frame> {
        let Self { table, numbers } = self;
        match Arc::try_unwrap(table) {
            // of this stack alone
            Ok(FrameTable { first, added }) if added.get().is_none() && numbers.iter().len() == first.len() => first.into_vec(),
            Ok(table) => numbers.iter().map(|number| table.get(number).clone()).collect(),
            Err(table) => numbers.iter().map(|number| table.get(number).clone()).collect(),
        }
    }

    /// The table, and the numbers of the frames in it.
    pub fn numbers(&self) -> (&Arc<FrameTable>, &FrameNumbers) {
        (&self.table, &self.numbers)
    }
}

impl PartialEq for Frames {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl std::fmt::Debug for Frames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Frames with a table of their own.
impl FromIterator<Frame> for Frames {
    fn from_iter<T: IntoIterator<Item = Frame>>(frames: T) -> Self {
        let first: Box<[Frame]> = frames.into_iter().collect();
        let numbers: Vec<u32> = (0..first.len() as u32).collect();
        Self { table: Arc::new(FrameTable { first, added: OnceLock::new() }), numbers: FrameNumbers::new(&numbers) }
    }
}

impl Serialize for Frames {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Frames {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::<Frame>::deserialize(from).map(|frames| frames.into_iter().collect())
    }
}

/// A stack to which frames are added.
#[derive(Debug)]
pub struct FramesBuilder {
    table: Arc<FrameTable>,
    numbers: Vec<u32>,
}

impl FramesBuilder {
    /// An empty one, for about this many frames.
    pub fn new(table: Arc<FrameTable>, capacity: usize) -> Self {
        Self { table, numbers: Vec::with_capacity(capacity) }
    }

    /// The table of the frames.
    pub fn table(&self) -> &Arc<FrameTable> {
        &self.table
    }

    /// Appends a frame, and returns its number.
    pub fn push(&mut self, frame: Frame) -> u32 {
        let number = self.table.add(frame);
        self.numbers.push(number);
        number
    }

    /// Appends a frame by its number in the table.
    pub fn push_number(&mut self, number: u32) {
        self.numbers.push(number);
    }

    /// Appends the frames of another stack.
    pub fn extend(&mut self, frames: Cow<'_, Frames>) {
        if Arc::ptr_eq(&self.table, &frames.table) {
            return self.numbers.extend(frames.numbers.iter());
        }
        let copies = match frames {
            Cow::Owned(frames) => frames.into_frames(),
            Cow::Borrowed(frames) => frames.iter().cloned().collect(),
        };
        self.numbers.extend(copies.into_iter().map(|frame| self.table.add(frame)));
    }

    /// Removes the other frames.
    pub fn retain(&mut self, keeps: impl Fn(&Frame) -> bool) {
        self.numbers.retain(|number| keeps(self.table.get(*number)));
    }

    /// The last frame.
    pub fn last(&self) -> Option<&Frame> {
        self.numbers.last().map(|number| self.table.get(*number))
    }

    /// The frames.
    pub fn finish(self) -> Frames {
        Frames { table: self.table, numbers: FrameNumbers::new(&self.numbers) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(addr: u64) -> Frame {
        Frame { addr, ..Frame::default() }
    }

    #[test]
    fn frames_stay_in_their_places() {
        let table = Arc::new(FrameTable::default());
        let mut builder = FramesBuilder::new(Arc::clone(&table), 0);
        let numbers: Vec<u32> = (0..1000).map(|addr| builder.push(at(addr))).collect();
        let first: *const Frame = table.get(0);
        assert!(numbers.iter().zip(0..).all(|(number, addr)| table.get(*number).addr == addr));
        builder.extend(Cow::Owned([at(7), at(8)].into_iter().collect()));
        builder.push_number(numbers[5]);
        let (len, known) = (table.len(), builder.finish());
        assert!(std::ptr::eq(first, table.get(0)));
        assert_eq!((len, known.len(), known.last().map(|f| f.addr)), (1002, 1003, Some(5)));
        assert!(known.iter().map(|f| f.addr).eq((0..1000).chain([7, 8, 5])));
        let mut again = FramesBuilder::new(Arc::clone(&table), 0);
        again.extend(Cow::Borrowed(&known));
        again.retain(|frame| frame.addr >= 900);
        let again = again.finish();
        assert_eq!((again.len(), again.first().map(|f| f.addr), table.len()), (100, Some(900), len));
        // numbers that are not in the table
        assert_eq!((table.get(5000), table.get(u32::MAX)), (&UNKNOWN, &UNKNOWN));
        assert_eq!(UNKNOWN, Frame::default());
    }

    #[test]
    fn numbers_take_the_bytes_that_they_need() {
        let edges = [0, 1, 0xff, 0x100, 0xffff, 0x1_0000, 0xff_ffff, 0x100_0000, u32::MAX];
        for (max, size) in edges.into_iter().zip([1, 1, 1, 2, 2, 3, 3, 4, 4]) {
            let numbers: Vec<u32> = edges.into_iter().filter(|number| *number <= max).chain([0]).collect();
            let kept = FrameNumbers::new(&numbers);
            assert_eq!((kept.0.len(), kept.iter().len()), (1 + size * numbers.len(), numbers.len()));
            assert!(kept.iter().eq(numbers.iter().copied()) && kept.iter().rev().eq(numbers.into_iter().rev()));
        }
        assert_eq!((FrameNumbers::new(&[]).iter().next(), FrameNumbers::new(&[]).0.len()), (None, 0));
    }

    #[test]
    fn frames_are_equal_in_all_tables() {
        let own: Frames = [at(1), at(2)].into_iter().collect();
        let mut shared = FramesBuilder::new(Arc::default(), 2);
        shared.push(at(9));
        shared.push(at(1));
        shared.push(at(2));
        shared.retain(|frame| frame.addr != 9);
        let shared = shared.finish();
        assert_eq!(own, shared);
        let text = serde_json::to_string(&shared).unwrap();
        assert_eq!(serde_json::from_str::<Frames>(&text).unwrap(), own);
        assert_eq!(text, serde_json::to_string(&[at(1), at(2)]).unwrap());
        assert_ne!(own, Frames::from_iter([at(1)]));
    }
}
