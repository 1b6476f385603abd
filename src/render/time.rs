//! Formats points in time.
#![allow(unsafe_code)] // the C library's strftime: only it knows every conversion, locale and time zone

use std::ffi::CString;
use std::mem::MaybeUninit;

/// Local time by C's `strftime`, with three conversions of our own: `%f` microseconds (6 digits), `%l` milliseconds
/// (3), `%k` nanoseconds (9), each for the fraction of a second.
///
/// `unix_ns` counts nanoseconds since 1970-01-01 00:00 UTC. None if the format contains a NUL, the year does not fit,
/// or the text would exceed 64 KiB.
pub fn strftime(format: &str, unix_ns: i128) -> Option<String> {
    let seconds = libc::time_t::try_from(unix_ns.div_euclid(1_000_000_000)).ok()?;
    let below = unix_ns.rem_euclid(1_000_000_000) as u32;
    // One more character distinguishes an empty result from one that did not fit: both are 0.
    let format = CString::new(with_fractions(format, below) + ".").ok()?;

    let mut tm = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are to live memory of their type; a zeroed `tm` is a valid one.
    let tm = unsafe {
        if libc::localtime_r(&seconds, tm.as_mut_ptr()).is_null() {
            return None;
        }
        tm.assume_init()
    };
    let mut size = 64 + 4 * format.as_bytes().len();
    while size <= 1 << 16 {
        let mut text = vec![0u8; size];
        // SAFETY: `text` has room for `size` bytes, `format` ends with a NUL, `tm` was filled by localtime_r.
        let written = unsafe { libc::strftime(text.as_mut_ptr().cast(), size, format.as_ptr(), &tm) };
        if written > 0 {
            text.truncate(written - 1);
            return Some(String::from_utf8_lossy(&text).into_owned());
        }
        size *= 4;
    }
    None
}

/// The format with our own conversions replaced by their digits.
fn with_fractions(format: &str, below: u32) -> String {
    let mut to = String::with_capacity(format.len() + 16);
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            to.push(c);
            continue;
        }
        match rest.next() {
            Some('f') => to += &format!("{:06}", below / 1000),
            Some('k') => to += &format!("{below:09}"),
            Some('l') => to += &format!("{:03}", below / 1_000_000),
            Some(other) => to.extend(['%', other]),
            // A percent sign at the end is literal, and must not combine with the character that follows in our format.
            None => to += "%%",
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions() {
        let ns = 1_700_000_000_012_345_678;
        assert_eq!(strftime("%f|%k|%l|%%f|%", ns).as_deref(), Some("012345|012345678|012|%f|%"));
        assert_eq!(strftime("", ns).as_deref(), Some(""));
        assert_eq!(strftime("a\0b", ns), None);
    }

    #[test]
    fn as_date_does() {
        let ns = 1_700_000_000_000_000_000;
        let format = "%Y-%m-%d %H:%M:%S %j %s %e %Z";
        let date = std::process::Command::new("date").arg("-d@1700000000").arg(format!("+{format}")).output().unwrap();
        assert_eq!(strftime(format, ns).unwrap(), String::from_utf8(date.stdout).unwrap().trim_end());
    }

    #[test]
    fn far_years() {
        assert_eq!(strftime("%Y", i128::MAX), None);
        assert!(strftime("%Y", -1).is_some());
    }
}
