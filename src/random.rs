//! Numbers for tests with random input.

/// A generator (xorshift) whose seed the test fixes, so that failures are reproducible.
pub struct Random(u64);

impl Random {
    /// A generator with this seed, which must not be 0.
    pub fn new(seed: u64) -> Self {
        assert_ne!(seed, 0);
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`; 0 if there is none.
    pub fn below<N: TryFrom<u64> + TryInto<u64>>(&mut self, end: N) -> N {
        let end = end.try_into().unwrap_or(0).max(1);
        match N::try_from(self.number() % end) {
            Ok(number) => number,
            Err(_) => unreachable!("it is less than a number of this type"),
        }
    }
}
