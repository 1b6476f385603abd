//! Names of allocation flags (`gfp_t`), for `%gr`.

use super::integers::address;

/// In the order of the kernel's own table for trace output (include/trace/events/mmflags.h): the widest combination
/// first. Values are those of include/linux/gfp_types.h, whose bits 0 to 23 are the same in all kernels since 5.14 (bit
/// 9 was `__GFP_ATOMIC` until 6.2 and has no name since); the meaning of bits from 24 on depends on the kernel's
/// configuration, so they are printed as a number.
const NAMES: &[(&str, u64)] = &[
    ("GFP_TRANSHUGE", TRANSHUGE_LIGHT | 0x400),
    ("GFP_TRANSHUGE_LIGHT", TRANSHUGE_LIGHT),
    ("GFP_HIGHUSER_MOVABLE", HIGHUSER | 0x8),
    ("GFP_HIGHUSER", HIGHUSER),
    ("GFP_USER", USER),
    ("GFP_KERNEL_ACCOUNT", KERNEL | 0x40_0000),
    ("GFP_KERNEL", KERNEL),
    ("GFP_NOFS", 0xc40),
    ("GFP_ATOMIC", 0x820),
    ("GFP_NOIO", 0xc00),
    ("GFP_NOWAIT", 0x800),
    ("GFP_DMA", 0x1),
    ("__GFP_HIGHMEM", 0x2),
    ("GFP_DMA32", 0x4),
    ("__GFP_MOVABLE", 0x8),
    ("__GFP_RECLAIMABLE", 0x10),
    ("__GFP_HIGH", 0x20),
    ("__GFP_IO", 0x40),
    ("__GFP_FS", 0x80),
    ("__GFP_ZERO", 0x100),
    ("__GFP_DIRECT_RECLAIM", 0x400),
    ("__GFP_KSWAPD_RECLAIM", 0x800),
    ("__GFP_WRITE", 0x1000),
    ("__GFP_NOWARN", 0x2000),
    ("__GFP_RETRY_MAYFAIL", 0x4000),
    ("__GFP_NOFAIL", 0x8000),
    ("__GFP_NORETRY", 0x1_0000),
    ("__GFP_MEMALLOC", 0x2_0000),
    ("__GFP_COMP", 0x4_0000),
    ("__GFP_NOMEMALLOC", 0x8_0000),
    ("__GFP_HARDWALL", 0x10_0000),
    ("__GFP_THISNODE", 0x20_0000),
    ("__GFP_ACCOUNT", 0x40_0000),
    ("__GFP_ZEROTAGS", 0x80_0000),
];

const KERNEL: u64 = 0xcc0;
const USER: u64 = KERNEL | 0x10_0000;
const HIGHUSER: u64 = USER | 0x2;
/// `(GFP_HIGHUSER_MOVABLE | __GFP_COMP | __GFP_NOMEMALLOC | __GFP_NOWARN) & ~__GFP_RECLAIM`
const TRANSHUGE_LIGHT: u64 = (HIGHUSER | 0x8 | 0x4_0000 | 0x8_0000 | 0x2000) & !0xc00;

/// Appends names joined with `|`, then unnamed bits in hexadecimal, or `0` if there are none.
pub fn flags(mut value: u64, to: &mut Vec<u8>) {
    if value == 0 {
        to.push(b'0');
        return;
    }
    let start = to.len();
    for (name, bits) in NAMES {
        if value & bits == *bits {
            if to.len() > start {
                to.push(b'|');
            }
            to.extend_from_slice(name.as_bytes());
            value &= !bits;
        }
    }
    if value != 0 {
        if to.len() > start {
            to.push(b'|');
        }
        address(to, value);
    }
}
