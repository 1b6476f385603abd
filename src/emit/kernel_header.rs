//! The types of a kernel as a C header, `vmlinux.h`, for imported C sources. libbpf's `btf_dump` writes them.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::marker::PhantomData;
use std::ptr::NonNull;

use libbpf_rs::PrintLevel;
use libbpf_sys::__va_list_tag;
use rustix::fs::{MemfdFlags, memfd_create};

use super::libbpf_log;
use crate::failure::reason;

/// Accesses of the types become relocations, so that an object runs on other kernels.
const HEAD: &str = "\
#ifndef __VMLINUX_H__
#define __VMLINUX_H__
#ifndef BPF_NO_PRESERVE_ACCESS_INDEX
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
#endif
";
const TAIL: &str = "
#ifndef BPF_NO_PRESERVE_ACCESS_INDEX
#pragma clang attribute pop
#endif
#endif
";

unsafe extern "C" {
    // A parameter of the type `va_list` is a pointer on the processors that rbt supports.
    fn vasprintf(to: *mut *mut c_char, format: *const c_char, values: *mut __va_list_tag) -> c_int;
}

/// Limits of the process that writes: seconds of processor time and bytes of memory. A header takes 0.2 s and 50 MB.
const LIMITS: [(c_uint, u64); 3] = [(libc::RLIMIT_CPU, 10), (libc::RLIMIT_AS, 2 << 30), (libc::RLIMIT_CORE, 0)];

/// The header of a kernel with this BTF. Errors: why it cannot be written.
///
/// Another process calls libbpf, because libbpf crashes on some damaged BTF, which a snapshot may have.
pub fn header(btf: &[u8]) -> Result<Vec<u8>, String> {
    let failed = |e| reason(&e);
    let mut file = File::from(memfd_create("header", MemfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?);
    // SAFETY: the new process has only this thread, the C library's allocator works in it, and it ends here
    let child = match unsafe { libc::fork() } {
        -1 => return Err(failed(io::Error::last_os_error())),
        0 => unsafe {
            for (limit, value) in LIMITS {
                libc::setrlimit(limit as _, &libc::rlimit { rlim_cur: value, rlim_max: value });
            }
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            // those of Rust print a message
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
            let (text, status) = match quiet_dump(btf) {
                Ok(text) => (text, 0),
                Err(why) => (why.into_bytes(), 1),
            };
            libc::_exit(if file.write_all(&text).is_ok() { status } else { 2 })
        },
        child => child,
    };
    let mut status = 0;
    // SAFETY: the process is a child that nothing else waits for
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(failed(error));
        }
    }
    let mut text = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut text)).map_err(failed)?;
    match libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)) {
        Some(0) => Ok(text),
        Some(1) => Err(String::from_utf8_lossy(&text).into_owned()),
        _ => Err("libbpf cannot write the types, because the BTF is damaged".into()),
    }
}

fn quiet_dump(btf: &[u8]) -> Result<Vec<u8>, String> {
    let (dumped, messages) = libbpf_log::capture(PrintLevel::Warn, || dump(btf));
    dumped.map_err(|why| messages.first().map_or(why, |message| message.trim().trim_start_matches("libbpf: ").to_owned()))
}

fn dump(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut text = HEAD.as_bytes().to_vec();
    let size = u32::try_from(bytes.len()).map_err(|_| "BTF is over 4 GB".to_owned())?;
    // SAFETY: libbpf copies the bytes
    let types = NonNull::new(unsafe { libbpf_sys::btf__new(bytes.as_ptr().cast(), size) }).ok_or("libbpf cannot read the BTF")?;
    let types = Types(types);
    let dump = Dump::new(&types, &mut text).ok_or("libbpf cannot write the types")?;
    // SAFETY: the types exist
    let end = unsafe { libbpf_sys::btf__type_cnt(types.0.as_ptr()) };
    for id in 1..end {
        // SAFETY: the dump exists, and so do the types and the text to which it refers
        let code = unsafe { libbpf_sys::btf_dump__dump_type(dump.dump.as_ptr(), id) };
        if code < 0 {
            return Err(format!("libbpf cannot write the type {id}: {}", reason(&io::Error::from_raw_os_error(code.saturating_neg()))));
        }
    }
    drop(dump);
    text.extend_from_slice(TAIL.as_bytes());
    Ok(text)
}

struct Types(NonNull<libbpf_sys::btf>);

impl Drop for Types {
    fn drop(&mut self) {
        // SAFETY: nothing uses it afterwards
        unsafe { libbpf_sys::btf__free(self.0.as_ptr()) }
    }
}

/// A dump that appends to a text.
struct Dump<'a> {
    dump: NonNull<libbpf_sys::btf_dump>,
    _types: &'a Types,
    _text: PhantomData<&'a mut Vec<u8>>,
}

impl<'a> Dump<'a> {
    fn new(types: &'a Types, text: &'a mut Vec<u8>) -> Option<Self> {
        let to = std::ptr::from_mut(text).cast();
        // SAFETY: the types and the text outlive the dump, which alone uses the text; the options may be null
        let dump = unsafe { libbpf_sys::btf_dump__new(types.0.as_ptr(), Some(print), to, std::ptr::null()) };
        Some(Self { dump: NonNull::new(dump)?, _types: types, _text: PhantomData })
    }
}

impl Drop for Dump<'_> {
    fn drop(&mut self) {
        // SAFETY: nothing uses it afterwards
        unsafe { libbpf_sys::btf_dump__free(self.dump.as_ptr()) }
    }
}

/// Appends a piece of text.
unsafe extern "C" fn print(text: *mut c_void, format: *const c_char, values: *mut __va_list_tag) {
    let mut piece = std::ptr::null_mut();
    // SAFETY: libbpf passes a format with its values
    let size = unsafe { vasprintf(&raw mut piece, format, values) };
    let Ok(size) = usize::try_from(size) else { return };
    // SAFETY: `text` is the vector of `Dump::new`; `piece` has `size` bytes and is not used afterwards
    unsafe {
        (*text.cast::<Vec<u8>>()).extend_from_slice(std::slice::from_raw_parts(piece.cast(), size));
        libc::free(piece.cast());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::kernel_types::btf::{Kind, Writer};

    #[test]
    fn writes_types_and_rejects_what_is_no_btf() {
        let mut types = Writer::new(None);
        let int = types.add(Kind::Int, false, "int", 0, 4, &[1 << 24 | 32]);
        let name = types.string("number");
        types.add(Kind::Struct, false, "simple", 1, 4, &[name, int, 0]);
        let text = String::from_utf8(header(&types.finish()).unwrap()).unwrap();
        assert!(text.starts_with(HEAD) && text.ends_with(TAIL), "{text}");
        assert!(text.contains("struct simple {\n\tint number;\n};\n"), "{text}");
        for wrong in [&b""[..], b"no BTF", &[0x9f, 0xeb, 1, 0]] {
            assert!(header(wrong).is_err());
        }
    }

    /// A snapshot may be forged, and libbpf writes types by recursion.
    #[test]
    fn survives_damage() {
        let mut types = Writer::new(None);
        let int = types.add(Kind::Int, false, "int", 0, 4, &[1 << 24 | 32]);
        let alias = types.add(Kind::Typedef, false, "alias", 0, int, &[]);
        let pointer = types.add(Kind::Ptr, false, "", 0, alias, &[]);
        let array = types.add(Kind::Array, false, "", 0, 0, &[alias, int, 3]);
        let (first, second, third) = (types.string("first"), types.string("second"), types.string("third"));
        let outer = types.add(Kind::Struct, false, "outer", 3, 24, &[first, pointer, 0, second, array, 64, third, int, 160]);
        types.add(Kind::Typedef, false, "second_alias", 0, outer, &[]);
        let proto = types.add(Kind::FuncProto, false, "", 1, int, &[first, pointer]);
        types.add(Kind::Ptr, false, "", 0, proto, &[]);
        types.add(Kind::Enum, false, "choice", 2, 4, &[first, 1, second, 2]);
        let whole = types.finish();
        assert!(String::from_utf8(header(&whole).unwrap()).unwrap().contains("alias second[3];"));
        let mut written = 0;
        for at in 0..whole.len() {
            for value in [0, 5, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                written += u32::from(header(&damaged).is_ok());
            }
        }
        assert!(written > 100, "{written}");
    }
}
