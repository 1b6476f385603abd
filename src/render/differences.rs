//! Where output differs from bpftrace on purpose. For the man page.

/// Topic, and what is done here.
pub const DIFFERENCES: &[(&str, &str)] = &[
    (
        "printf: %d without a length modifier",
        "prints the whole value of up to 64 bits; bpftrace cuts it to 32 bits. hh and h cut, as in C. %x, %o and %u show a \
         negative value of up to 32 bits as its 32-bit two's complement and a wider one in 64 bits.",
    ),
    (
        "printf: precision",
        "is that of C: %.5s prints at most five bytes, %.3d at least three digits, %.4r at most four bytes of a buffer; \
         bpftrace ignores it.",
    ),
    ("printf: flags", "may stand in any order, and the space flag puts a space before a number that has no sign; as in C."),
    ("printf: *", "as a width or precision is an error; bpftrace accepts it without an argument and ignores it."),
    ("JSON: strings", "are UTF-8; each sequence of bytes that is not becomes U+FFFD."),
    (
        "JSON: map keys",
        "lose the spaces between the parts of a key, not those inside its strings, and only a tuple loses its parentheses; \
         bpftrace deletes every space, and parentheses of plain strings too.",
    ),
    ("maps: order", "of min() and max() is that of numbers with their sign, entries of equal value are ordered by key."),
    ("maps: integers of 1, 2 and 4 bytes", "are sorted by value as those of 8 bytes are."),
    (
        "lhist: last bucket",
        "starts where the last whole step ends, which is below max when the steps do not divide the range; values there are \
         counted in it.",
    ),
];
