//! Hashes of numbers. A profile looks up each frame of each of its stacks, and most of the time for that was in the standard hash.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes hashers with a number that differs between maps, so that a traced process cannot choose addresses with the same hash.
#[derive(Clone, Debug)]
pub(super) struct WordHash(u64);

impl Default for WordHash {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0))
    }
}

impl BuildHasher for WordHash {
    type Hasher = WordHasher;

    fn build_hasher(&self) -> WordHasher {
        WordHasher(self.0)
    }
}

/// Combines words by multiplication with twice their width.
pub(super) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn write_u64(&mut self, n: u64) {
        let product = u128::from(self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn places_of_addresses_are_spread() {
        let hash = WordHash::default();
        for (step, start) in [(1, 0), (16, 0x5555_5555_0000), (4096, 0xffff_8000_0000_0000_u64)] {
            let hashes = (0..4096).map(|i| hash.hash_one((3usize, start + i * step, true)));
            let (low, high): (BTreeSet<u64>, BTreeSet<u64>) = hashes.map(|h| (h & 0xffff, h >> 48)).unzip();
            // 3,971 of random ones
            assert!(low.len() > 3800 && high.len() > 3800, "{step}: {} {}", low.len(), high.len());
        }
        assert_ne!(WordHash::default().hash_one(7), hash.hash_one(7));
    }
}
