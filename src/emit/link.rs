//! Links imported BPF objects into the object of a script, with libbpf's linker.
//!
//! The script's object is the first, so its code and data keep their places in sections that others extend. The result is an
//! ordinary object, so everything that follows (limits, the cache, bundles, the loader) needs no knowledge of imports.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use libbpf_rs::PrintLevel;
use rustix::fs::{MemfdFlags, memfd_create};

use super::libbpf_log;
use super::shared::{CALL_MARKS, FOLLOWED, RECENT_CALL_MARKS, RING, SCRATCH};
use super::sites::{CALLS, NAMES};
use crate::failure::reason;
use crate::linked::Object;
use crate::system::bpf_object;

/// Names of maps by which the loader recognizes those of rbt.
const OWN_MAPS: [&str; 5] = [RING, SCRATCH, CALL_MARKS, RECENT_CALL_MARKS, FOLLOWED];
/// The beginnings of such names.
const OWN_MAP_PREFIXES: [&str; 6] = ["map_", NAMES, CALLS, "unwind_", "python_", "stacks_"];

/// Links the objects into `script`, which has this license. Errors: the index of the object at fault, and why.
pub fn link(script: Vec<u8>, license: &str, objects: &[&Object]) -> Result<Vec<u8>, (usize, String)> {
    let fail = |index| move |why: String| (index, why);
    let mut known = bpf_object::names(&script).map_err(fail(0))?;
    let mut parts = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        let bytes = bpf_object::with_license(object, license).map_err(fail(index))?;
        let names = bpf_object::names(&bytes).map_err(fail(index))?;
        let own_map = |name: &&String| OWN_MAPS.contains(&name.as_str()) || OWN_MAP_PREFIXES.iter().any(|own| name.starts_with(own));
        if let Some(name) = names.maps.iter().find(own_map) {
            return Err((index, format!("rbt itself has maps with names such as `{name}`; rename that of the object")));
        }
        if let Some(name) = names.symbols.intersection(&known.symbols).next() {
            return Err((index, format!("its symbol `{name}` exists already, in rbt's own code or in another object")));
        }
        if let Some(name) = names.sections.intersection(&known.sections).next() {
            return Err((index, format!("its section `{name}` exists already, in rbt's own object or in another one")));
        }
        known.symbols.extend(names.symbols);
        known.sections.extend(names.sections);
        parts.push(bpf_object::with_hidden_functions(bytes, &object.functions).map_err(fail(index))?);
    }
    let (linked, messages) = libbpf_log::capture(PrintLevel::Warn, || link_parts(&script, &parts));
    let linked = linked.map_err(|(index, why)| {
        let said = messages.first().map(|message| message.trim().trim_start_matches("libbpf: ").to_owned());
        (index, said.unwrap_or(why))
    })?;
    match bpf_object::undefined(&linked).map_err(fail(0))?.first() {
        None => Ok(linked),
        Some(name) => {
            let needs = |object: &&Object| bpf_object::mentions(object, name);
            Err((objects.iter().position(needs).unwrap_or(0), format!("it needs `{name}`, which no object defines")))
        }
    }
}

/// Links objects; the first is the script's. Errors: as for [`link`].
fn link_parts(script: &[u8], parts: &[Vec<u8>]) -> Result<Vec<u8>, (usize, String)> {
    let first = |why: io::Error| (0, reason(&why));
    let file = File::from(memfd_create("linked", MemfdFlags::CLOEXEC).map_err(|e| first(e.into()))?);
    let linker = Linker::new(&file).map_err(first)?;
    linker.add(script).map_err(first)?;
    for (index, part) in parts.iter().enumerate() {
        linker.add(part).map_err(|why| (index, reason(&why)))?;
    }
    linker.finish().map_err(first)?;
    let mut linked = Vec::new();
    let mut read = &file;
    read.rewind().and_then(|()| read.read_to_end(&mut linked)).map_err(first)?;
    Ok(linked)
}

/// libbpf's linker. (That of libbpf-rs panics if an object is rejected.)
struct Linker<'a> {
    linker: NonNull<libbpf_sys::bpf_linker>,
    /// The output, which stays open as long as the linker.
    _file: &'a File,
}

impl<'a> Linker<'a> {
    fn new(file: &'a File) -> io::Result<Self> {
        // SAFETY: the options may be null, and the descriptor is open
        let linker = unsafe { libbpf_sys::bpf_linker__new_fd(file.as_raw_fd(), std::ptr::null_mut()) };
        NonNull::new(linker).map(|linker| Self { linker, _file: file }).ok_or_else(io::Error::last_os_error)
    }

    fn add(&self, object: &[u8]) -> io::Result<()> {
        let (bytes, size) = (object.as_ptr().cast_mut().cast(), object.len() as u64);
        // SAFETY: the linker copies the bytes and does not change them; the options may be null
        result(unsafe { libbpf_sys::bpf_linker__add_buf(self.linker.as_ptr(), bytes, size, std::ptr::null_mut()) })
    }

    fn finish(&self) -> io::Result<()> {
        // SAFETY: the linker exists
        result(unsafe { libbpf_sys::bpf_linker__finalize(self.linker.as_ptr()) })
    }
}

impl Drop for Linker<'_> {
    fn drop(&mut self) {
        // SAFETY: nothing uses it afterwards
        unsafe { libbpf_sys::bpf_linker__free(self.linker.as_ptr()) }
    }
}

/// libbpf returns negative error numbers.
fn result(code: i32) -> io::Result<()> {
    if code < 0 { Err(io::Error::from_raw_os_error(code.saturating_neg())) } else { Ok(()) }
}
