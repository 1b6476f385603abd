//! Controls a run from another thread. The prompt uses it for its entries.
#![allow(unsafe_code)] // descriptors that a session holds

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::Session;
use super::poll;
use super::shared::Flags;
use crate::codegen::artifact::stacks_name;

/// A request to a run.
#[derive(Debug)]
pub struct Remote {
    wake: OwnedFd,
    end: AtomicBool,
    /// One of the three below.
    pause: AtomicU8,
    /// Number of SIGUSR1 signals that the run has not handled.
    signals: AtomicU32,
    /// The flags of the program that is running on behalf of the run.
    flags: Mutex<Option<Flags>>,
}

const AS_BEFORE: u8 = 0;
const STOP: u8 = 1;
const START: u8 = 2;

impl Remote {
    /// Makes no request yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            wake: poll::eventfd()?,
            end: AtomicBool::new(false),
            pause: AtomicU8::new(AS_BEFORE),
            signals: AtomicU32::new(0),
            flags: Mutex::new(None),
        })
    }

    /// Ends the run as SIGINT would.
    pub fn end(&self) {
        self.end.store(true, Ordering::SeqCst);
        if let Some(flags) = *self.flags.lock().unwrap_or_else(PoisonError::into_inner) {
            flags.interrupt(true);
        }
        self.signal_wakeup();
    }

    /// Pauses its programs, or resumes them.
    pub fn pause(&self, paused: bool) {
        self.pause.store(if paused { STOP } else { START }, Ordering::SeqCst);
        self.signal_wakeup();
    }

    /// Runs its SIGUSR1 probes, this many times.
    pub fn signal(&self, times: u32) {
        self.signals.fetch_add(times, Ordering::SeqCst);
        self.signal_wakeup();
    }

    /// See [`super::signals::Signals::interruptible`].
    pub(super) fn interruptible(&self, flags: Option<Flags>) {
        *self.flags.lock().unwrap_or_else(PoisonError::into_inner) = flags;
    }

    /// Lets it look at what other runs have done.
    pub(super) fn look(&self) {
        self.signal_wakeup();
    }

    fn signal_wakeup(&self) {
        poll::wake(&self.wake);
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.wake
    }

    /// Has the end been requested?
    pub fn ended(&self) -> bool {
        self.end.load(Ordering::SeqCst)
    }

    /// The number of SIGUSR1 signals since the last call.
    pub(super) fn signals(&self) -> u32 {
        self.signals.swap(0, Ordering::SeqCst)
    }

    /// Requests since the last call.
    pub(super) fn paused(&self) -> Option<bool> {
        match self.pause.swap(AS_BEFORE, Ordering::SeqCst) {
            STOP => Some(true),
            START => Some(false),
            _ => None,
        }
    }
}

/// The parts of a run that others may hold.
#[derive(Debug, Default)]
pub struct Parts {
    /// The script's maps by name. They live as long as a descriptor is open.
    pub maps: Vec<(String, OwnedFd)>,
    /// The maps that store stacks, by their names in the object: the script's maps hold keys of them.
    pub stacks: Vec<(String, OwnedFd)>,
    /// Programs, by the name of their first site, for [`super::cost`].
    pub programs: Vec<(String, OwnedFd)>,
    /// Number of probes attached or to be attached: a name in a binary counts as one.
    pub sites: usize,
}

impl Session<'_> {
    /// Copies of its descriptors.
    pub fn parts(&self) -> io::Result<Parts> {
        // SAFETY: the session holds them open
        let copy = |fd: RawFd| unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
        let maps = self.cx.manifest.maps.iter().zip(&self.cx.loaded.maps);
        let programs = self.cx.manifest.programs.iter().zip(&self.cx.loaded.programs);
        let named = programs.filter(|(p, _)| !p.sites.is_empty()).filter_map(|(p, fd)| Some((p.name(), (*fd)?)));
        let stacks = self.cx.loaded.stacks.iter();
        Ok(Parts {
            stacks: stacks.map(|(n, at)| Ok((stacks_name(*n), copy(at.fd)?))).collect::<io::Result<_>>()?,
            maps: maps.map(|(m, at)| Ok((m.name.clone(), copy(at.fd)?))).collect::<io::Result<_>>()?,
            programs: named.map(|(name, fd)| Ok((name, copy(fd)?))).collect::<io::Result<_>>()?,
            sites: self.cx.manifest.programs.iter().map(|p| p.sites.len()).sum(),
        })
    }
}
