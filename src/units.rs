//! Suffixes of integers, in scripts, in their parameters and in settings.

/// Suffixes that make a number a duration, in nanoseconds.
pub const DURATIONS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Suffixes that determine the type of a number in C, in lowercase. They do not change its value.
pub const TYPES_OF_C: [&str; 5] = ["u", "l", "ul", "ll", "ull"];

/// The factor of a suffix of time.
pub fn duration(suffix: &str) -> Option<u64> {
    DURATIONS.iter().find(|(name, _)| *name == suffix).map(|(_, ns)| *ns)
}

/// The factor of a suffix: of time, of C, or empty.
pub fn factor(suffix: &str) -> Option<u64> {
    if suffix.is_empty() || TYPES_OF_C.contains(&suffix) { Some(1) } else { duration(suffix) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors() {
        assert_eq!(["", "ull", "ns", "us", "d", "q"].map(factor), [Some(1), Some(1), Some(1), Some(1000), Some(86_400_000_000_000), None]);
        assert_eq!((duration(""), duration("u"), duration("m")), (None, None, Some(60_000_000_000)));
    }
}
