//! Signals. Ctrl-C while no line is being edited is recorded, so that it ends the current operation instead of the prompt.
//! While a line is being edited, it is a key like any other. SIGTERM, and SIGHUP when the terminal closes, leave the prompt
//! like Ctrl-D.
#![allow(unsafe_code)] // sigaction(2)

use std::sync::atomic::{AtomicBool, Ordering};

static TAKEN: AtomicBool = AtomicBool::new(false);
static LEAVING: AtomicBool = AtomicBool::new(false);

extern "C" fn note(signal: libc::c_int) {
    TAKEN.store(true, Ordering::Relaxed);
    if signal != libc::SIGINT {
        LEAVING.store(true, Ordering::Relaxed);
        // the line editor wakes up for this one alone
        // SAFETY: signal-safety(7) allows it
        unsafe { libc::raise(libc::SIGINT) };
    }
}

/// Notes SIGINT, SIGTERM and SIGHUP from now on, the last unless it is ignored, as nohup(1) has it. Programs that entries start
/// have them as at login: handlers do not outlive exec.
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

/// Has one come since it was last forgotten?
pub fn taken() -> bool {
    TAKEN.load(Ordering::Relaxed) || leaving()
}

/// Has one come that ends the prompt? That is not forgotten.
pub fn leaving() -> bool {
    LEAVING.load(Ordering::Relaxed)
}

/// As if no Ctrl-C had come.
pub fn forget() {
    TAKEN.store(false, Ordering::Relaxed);
}
