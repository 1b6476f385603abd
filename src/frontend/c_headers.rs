//! The headers that rbt supplies to imported C sources: those of libbpf, and `vmlinux.h` with the types of the kernel.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::emit::kernel_header;
use crate::failure::reason;
use crate::system::TargetInfo;
use crate::system::cache::{self, CacheFile, Kind};
use crate::system::kernel_types::KernelTypes;
use crate::system::machine::arch::{Arch, HERE};

/// libbpf's headers for BPF programs, with their texts.
const BPF_HEADERS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/bpf_headers.rs"));
/// The header with the kernel's types.
pub(super) const VMLINUX: &str = "vmlinux.h";
/// A header takes the time of many starts to write. It has up to 4 MB.
const KIND: Kind = Kind { form: "rbt-kernel-header-1", prefix: "vmlinux-", max_bytes: 64 << 20, max_files: 8, max_total: 64 << 20 };
/// Attempts to create a directory of a new name.
const ATTEMPTS: u32 = 100;

/// The headers for C sources.
#[derive(Clone, Copy)]
pub struct Headers<'a> {
    /// The directories that the user named. They precede all others.
    pub folders: &'a [PathBuf],
    /// The architecture, by which `bpf_tracing.h` chooses registers.
    pub arch: &'a Arch,
    /// The kernel's types.
    pub types: TypesOf<'a>,
}

/// A kernel whose types are in `vmlinux.h`.
#[derive(Clone, Copy)]
pub enum TypesOf<'a> {
    /// The running kernel.
    RunningKernel,
    /// A kernel that a snapshot describes.
    Snapshot(&'a KernelTypes),
    /// A kernel that a snapshot describes only in part.
    PartOfKernel,
}

impl<'a> Headers<'a> {
    /// The headers for the running kernel.
    pub fn of_this_machine(folders: &'a [PathBuf]) -> Self {
        Self { folders, arch: HERE, types: TypesOf::RunningKernel }
    }

    /// The headers for a kernel that a snapshot describes, completely or for certain scripts. If these scripts are for this
    /// architecture, they get the types of the running kernel, because libbpf relocates accesses anyway.
    pub fn of_snapshot(folders: &'a [PathBuf], snapshot: &'a dyn TargetInfo, is_complete: bool) -> Self {
        let arch = snapshot.arch();
        let types = match snapshot.kernel_types().filter(|_| is_complete) {
            Some(types) => TypesOf::Snapshot(types),
            None if arch.name == HERE.name => TypesOf::RunningKernel,
            None => TypesOf::PartOfKernel,
        };
        Self { folders, arch, types }
    }

    /// Identifies the kernel's types. Errors: why there are none.
    pub fn identify_types(self) -> Result<String, String> {
        self.with_btf(|btf| Ok(identity(btf)))
    }

    /// The text of `vmlinux.h`, and the identity of the types in it. Errors: why it cannot be written.
    fn vmlinux(self) -> Result<(Vec<u8>, String), String> {
        self.with_btf(|btf| {
            let identity = identity(btf);
            let file = CacheFile::new(KIND, identity.clone());
            if let Some(cached) = file.as_ref().and_then(CacheFile::map) {
                return Ok((cached.to_vec(), identity));
            }
            let text = kernel_header::header(btf)?;
            if let Some(file) = file {
                file.save(&text);
            }
            Ok((text, identity))
        })
    }

    fn with_btf<T>(self, then: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<T, String> {
        match self.types {
            TypesOf::Snapshot(types) => then(types.kernel_btf()),
            TypesOf::RunningKernel => then(KernelTypes::open().map_err(|missing| missing.what)?.kernel_btf()),
            TypesOf::PartOfKernel => Err("the snapshot does not have all types; one by `rbt snapshot` without scripts has them".into()),
        }
    }
}

fn identity(btf: &[u8]) -> String {
    format!("{:016x}", cache::digest(btf))
}

/// A directory with headers, which exists during a compilation.
pub(super) struct Folder {
    path: PathBuf,
    /// Identifies the types in `vmlinux.h`, if it was written.
    pub types: Option<String>,
}

impl Folder {
    /// A directory with libbpf's headers, which only this user can read.
    pub fn new() -> io::Result<Self> {
        let folder = Self { path: new_folder()?, types: None };
        let of_libbpf = folder.path.join("bpf");
        fs::create_dir(&of_libbpf)?;
        for (name, text) in BPF_HEADERS {
            fs::write(of_libbpf.join(name), text)?;
        }
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds `vmlinux.h`.
    pub fn add_vmlinux(&mut self, headers: Headers<'_>) -> Result<(), String> {
        let (text, identity) = headers.vmlinux()?;
        fs::write(self.path.join(VMLINUX), text).map_err(|e| reason(&e))?;
        self.types = Some(identity);
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn new_folder() -> io::Result<PathBuf> {
    for n in 0..ATTEMPTS {
        let path = std::env::temp_dir().join(format!("rbt-headers-{}-{n}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}
