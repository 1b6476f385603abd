//! Signals. Ctrl-C while no line is being edited is recorded, so that it ends the current operation instead of the prompt.
//! While a line is being edited, it is a key like any other. SIGTERM, and SIGHUP when the terminal closes, leave the prompt
//! like Ctrl-D.
#![allow(unsafe_code)] // sigaction(2)

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static QUIT_REQUESTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
    if signal != libc::SIGINT {
        QUIT_REQUESTED.store(true, Ordering::Relaxed);
        // only this signal wakes the line editor
        // SAFETY: signal-safety(7) allows it
        unsafe { libc::raise(libc::SIGINT) };
    }
}

/// Records SIGINT, SIGTERM and SIGHUP from now on; SIGHUP stays ignored if it was, as by nohup(1). Programs that
/// entries start get default handlers, because handlers do not survive exec.
pub fn catch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to atomics and raises a signal
        unsafe {
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = note as extern "C" fn(libc::c_int) as usize;
            libc::sigemptyset(&mut new.sa_mask);
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut old);
            if signal != libc::SIGHUP || old.sa_sigaction != libc::SIG_IGN {
                libc::sigaction(signal, &new, std::ptr::null_mut());
            }
        }
    }
}

/// Has a signal arrived since the last reset?
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed) || quit_requested()
}

/// Has a signal arrived that ends the prompt? It is not reset.
pub fn quit_requested() -> bool {
    QUIT_REQUESTED.load(Ordering::Relaxed)
}

/// Resets a recorded Ctrl-C.
pub fn reset() {
    INTERRUPTED.store(false, Ordering::Relaxed);
}
