//! Ctrl-C while no line is being typed: noted, so that it ends what is waited for and not the prompt. While a line is
//! typed it is a key like others.
#![allow(unsafe_code)] // sigaction(2)

use std::sync::atomic::{AtomicBool, Ordering};

static TAKEN: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    TAKEN.store(true, Ordering::Relaxed);
}

/// Notes SIGINT and SIGTERM from now on. Programs that entries start have them as at login: handlers do not outlive exec.
pub fn catch() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler stores to an atomic and does nothing else
        unsafe {
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = note as extern "C" fn(libc::c_int) as usize;
            libc::sigemptyset(&mut new.sa_mask);
            // SIGTERM at a terminal has a meaning of its own: there is nobody to ask
            if signal == libc::SIGINT || libc::isatty(0) == 0 {
                libc::sigaction(signal, &new, std::ptr::null_mut());
            }
        }
    }
}

/// Has one come since it was last forgotten?
pub fn taken() -> bool {
    TAKEN.load(Ordering::Relaxed)
}

/// As if none had come.
pub fn forget() {
    TAKEN.store(false, Ordering::Relaxed);
}
