//! The kernel's events as tracefs lists and describes them, even if tracefs is not mounted.
//!
//! All files are opened relative to one directory: an existing mount, or a mount private to this process (`fsopen`, `fsmount`;
//! needs CAP_SYS_ADMIN).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::path::Arg;

use crate::failure::reason;
use crate::system::kernel_types::c_int;
use crate::system::{DataLoc, Missing, Tracepoint, TracepointField, TypeName, machine::rights};
use crate::types::{Field, Int, Space, Type};

/// Finds a type by name, as [`TargetInfo::type_named`](crate::system::TargetInfo::type_named) does. Called only if it is
/// needed.
pub type Lookup<'a> = &'a dyn Fn(TypeName, &str) -> Option<Type>;

/// A category of tracefs that has no events: it describes the records of the kernel's other tracers, and the kernel refuses
/// programs on them (`perf_event_is_tracing` and `perf_event_set_bpf_prog` of kernel/events/core.c).
pub const RECORDS: &str = "ftrace";

/// An open tracefs.
pub struct Tracefs {
    root: OwnedFd,
}

impl Tracefs {
    /// Opens an existing mount, else makes a private one.
    pub fn open() -> Result<Self, Missing> {
        for path in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            let Ok(root) = open_at(CWD, path, OFlags::PATH | OFlags::DIRECTORY) else { continue };
            match open_at(&root, "events", OFlags::RDONLY | OFlags::DIRECTORY) {
                Ok(_) => return Ok(Self { root }),
                // If this user may not read a mount, a private one would be refused too.
                Err(e) if e.raw_os_error() == Some(libc::EACCES) => return Err(denied("tracefs", &e)),
                Err(_) => {} // nothing is mounted there
            }
        }
        let root = own_mount("tracefs").map_err(|e| match e.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Missing {
                what: format!("tracefs is not mounted, and this user cannot mount it: {}", reason(&e)),
                help: Some(format!("{}; or run as root: mount -t tracefs tracefs /sys/kernel/tracing", rights::lacking("CAP_SYS_ADMIN"))),
            },
            _ => Missing {
                what: format!("this kernel has no tracefs: {}", reason(&e)),
                help: Some("tracepoints need a kernel built with CONFIG_TRACING=y".into()),
            },
        })?;
        match open_at(&root, "events", OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(_) => Ok(Self { root }),
            Err(e) => Err(denied("tracefs", &e)),
        }
    }

    /// Opens a file by its path in tracefs, with the flags of open(2). The runtime uses this for `trace_pipe`.
    pub fn open_file(&self, path: &str, flags: OFlags) -> io::Result<File> {
        Ok(File::from(open_at(&self.root, path, flags)?))
    }

    /// Reads a file by its path in tracefs.
    pub fn read(&self, path: &str) -> io::Result<String> {
        let mut text = String::new();
        self.open_file(path, OFlags::RDONLY)?.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Returns all events as (category, name), sorted, without those of [`RECORDS`].
    pub fn events(&self) -> Result<Vec<(String, String)>, Missing> {
        let mut all = Vec::new();
        let read = |path: &str| self.folders(path).map_err(|e| denied(&format!("tracefs's {path}"), &e));
        for category in read("events")?.into_iter().filter(|c| c != RECORDS) {
            all.extend(read(&format!("events/{category}"))?.into_iter().map(|name| (category.clone(), name)));
        }
        all.sort_unstable();
        Ok(all)
    }

    /// Returns the events that were created at run time: category and name. Kernels without this file (before 5.0) have none.
    pub fn dynamic_events(&self) -> io::Result<Vec<(String, String)>> {
        match self.read("dynamic_events") {
            Ok(text) => Ok(dynamic_events(&text)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    /// Does this event exist?
    pub fn has(&self, category: &str, name: &str) -> bool {
        category != RECORDS
            && event_path(category, name, "").is_some_and(|path| self.open_file(&path, OFlags::PATH | OFlags::DIRECTORY).is_ok())
    }

    /// The ID of an event for `perf_event_attr.config`; `None` if it does not exist.
    pub fn event_id(&self, category: &str, name: &str) -> Result<Option<u64>, Missing> {
        Ok(self.event_file(category, name, "id")?.and_then(|text| text.trim().parse().ok()))
    }

    /// The record of an event; `None` if it does not exist. `types` defines types that the file only names; sizes and signs
    /// come from the file.
    pub fn event(&self, category: &str, name: &str, types: Lookup<'_>) -> Result<Option<Tracepoint>, Missing> {
        Ok(self.event_file(category, name, "format")?.and_then(|text| parse_format(&text, category, types)))
    }

    fn event_file(&self, category: &str, name: &str, file: &str) -> Result<Option<String>, Missing> {
        let Some(path) = event_path(category, name, file) else { return Ok(None) };
        match self.read(&path) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(denied(&format!("tracefs's {path}"), &e)),
        }
    }

    fn folders(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let mut entries = Dir::new(open_at(&self.root, path, OFlags::RDONLY | OFlags::DIRECTORY)?)?;
        while let Some(entry) = entries.read() {
            let Ok(entry) = entry else { break };
            if entry.file_type() == FileType::Directory && !entry.file_name().to_bytes().starts_with(b".") {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(names)
    }
}

/// Reads a file of debugfs, mounted or not, by its path in it.
pub fn read_debugfs(path: &str) -> io::Result<String> {
    if let Ok(text) = std::fs::read_to_string(std::path::Path::new("/sys/kernel/debug").join(path)) {
        return Ok(text);
    }
    let root = own_mount("debugfs")?;
    let mut text = String::new();
    File::from(open_at(&root, path, OFlags::RDONLY)?).read_to_string(&mut text)?;
    Ok(text)
}

/// Parses the `format` file of an event; `None` if it is invalid.
///
/// Arguments of system calls are in slots of eight bytes whatever their type, with the upper bytes of the register unchanged.
/// So the declared type determines how many bytes count and their sign (`SYSCALL_DEFINEn` casts them in the same way). For
/// other fields, the size and sign of the file win. Pointers in `syscalls` events are to the memory of the process.
pub fn parse_format(text: &str, category: &str, types: Lookup<'_>) -> Option<Tracepoint> {
    let id = text.lines().find_map(|l| l.strip_prefix("ID:"))?.trim().parse().ok()?;
    let fields = text.lines().filter_map(|l| parse_field(l.trim().strip_prefix("field:")?, category == "syscalls", types));
    Some(Tracepoint { id, fields: fields.filter(|f| !f.field.name.starts_with("common_")).collect() })
}

/// Parses `unsigned short common_type; offset:0; size:2; signed:0;`, with tabs after the semicolons.
fn parse_field(line: &str, syscall: bool, types: Lookup<'_>) -> Option<TracepointField> {
    let mut parts = line.split(';').map(str::trim);
    let decl = parts.next()?.to_owned();
    let mut number = |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix(':')?.parse::<u32>().ok();
    let (offset, size) = (number("offset")?, number("size")?);
    let signed = number("signed") == Some(1);

    let (loc, rest) = match decl.split_once(' ') {
        Some(("__data_loc", rest)) => (Some(DataLoc::Absolute), rest),
        Some(("__rel_loc", rest)) => (Some(DataLoc::Relative), rest),
        _ => (None, decl.as_str()),
    };
    // The brackets come before the name in `__data_loc char[] name`, else after it.
    let end = rest.find('[').filter(|_| loc.is_none()).unwrap_or(rest.len());
    let (shape, brackets) = rest.split_at(end);
    let split = shape.trim_end().rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    let (spelled, name) = shape.split_at(split);
    let space = if syscall { Space::User } else { Space::Kernel };
    let of = |spelled: &str| base_type(spelled, space, types);
    let is_char = |spelled: &str| spelled.split_whitespace().filter(|w| *w != "const").eq(["char"]);

    let ty = if loc.is_some() {
        let elem = spelled.split('[').next().unwrap_or_default();
        if is_char(elem) { Type::Str(0) } else { Type::Array(Box::new(of(elem).unwrap_or(Type::uint(1))), 0) }
    } else if !brackets.is_empty() {
        if is_char(spelled) && size > 0 {
            Type::Str(size)
        } else {
            // Kernels that write the length as a name (`[TASK_COMM_LEN]`) still give the size.
            let count = brackets.trim_matches(['[', ']']).parse::<u32>().ok();
            let elem = match of(spelled).filter(|t| t.size() > 0) {
                Some(Type::Int(int)) => Type::Int(Int { signed: signed || (int.signed && size == 0), ..int }),
                Some(known) => known,
                None => sized(count.filter(|n| *n > 0).map_or(1, |n| size / n), signed),
            };
            let n = size / elem.size().max(1);
            Type::Array(Box::new(elem), n)
        }
    } else {
        match of(spelled) {
            Some(Type::Int(int)) if syscall && u32::from(int.bytes) <= size => Type::Int(int),
            Some(Type::Ptr(to, space)) => Type::Ptr(to, space),
            Some(Type::Bool) if size == 1 => Type::Bool,
            Some(Type::Enum(e)) if u32::from(e.int.bytes) == size || syscall => Type::Enum(e),
            Some(known @ (Type::Struct(_) | Type::Array(..) | Type::Str(_))) if known.size() == size => known,
            _ => sized(size, signed),
        }
    };
    Some(TracepointField { field: Field { name: name.trim().to_owned(), offset, bits: None, ty }, decl, loc })
}

fn sized(size: u32, signed: bool) -> Type {
    match size {
        1 | 2 | 4 | 8 => Type::Int(Int { bytes: size as u8, signed }),
        _ => Type::Array(Box::new(Type::uint(1)), size),
    }
}

/// Parses a C type without a declared name: `const struct file *`, `unsigned long`, `enum x`.
fn base_type(spelled: &str, space: Space, types: Lookup<'_>) -> Option<Type> {
    let stars = spelled.bytes().filter(|b| *b == b'*').count();
    let plain = spelled.replace('*', " ");
    // `__user`, `__rcu`, `__seg_gs` are qualifiers; `__u32` and similar names are types.
    let qualifier =
        |w: &str| matches!(w, "const" | "volatile" | "restrict" | "__user" | "__rcu" | "__percpu" | "__iomem" | "__seg_gs" | "__seg_fs");
    let words: Vec<&str> = plain.split_whitespace().filter(|w| !qualifier(w)).collect();
    let base = match words.as_slice() {
        ["struct", tag] => types(TypeName::Struct, tag),
        ["union", tag] => types(TypeName::Union, tag),
        ["enum", tag] => types(TypeName::Enum, tag),
        ["void"] => Some(Type::Void),
        words => {
            let name = words.join(" ");
            let known = || INTEGERS.iter().find(|(n, _)| *n == name).map(|(_, int)| Type::Int(*int));
            c_int(&name).or_else(known).or_else(|| types(TypeName::Plain, &name))
        }
    };
    if stars == 0 {
        return base;
    }
    Some((0..stars).fold(base.unwrap_or(Type::Void), |to, _| to.ptr(space)))
}

/// Typedefs that are frequent in events, so that these need no BTF. They are the same on every 64-bit machine
/// (`include/linux/types.h`, `include/uapi/asm-generic/posix_types.h`).
const INTEGERS: &[(&str, Int)] = &[
    ("aio_context_t", Int { bytes: 8, signed: false }),
    ("clockid_t", Int { bytes: 4, signed: true }),
    ("dev_t", Int { bytes: 4, signed: false }),
    ("gfp_t", Int { bytes: 4, signed: false }),
    ("gid_t", Int { bytes: 4, signed: false }),
    ("ino_t", Int { bytes: 8, signed: false }),
    ("key_t", Int { bytes: 4, signed: true }),
    ("loff_t", Int { bytes: 8, signed: true }),
    ("off_t", Int { bytes: 8, signed: true }),
    ("pid_t", Int { bytes: 4, signed: true }),
    ("sector_t", Int { bytes: 8, signed: false }),
    ("size_t", Int { bytes: 8, signed: false }),
    ("ssize_t", Int { bytes: 8, signed: true }),
    ("timer_t", Int { bytes: 4, signed: true }),
    ("uid_t", Int { bytes: 4, signed: false }),
    ("uint", Int { bytes: 4, signed: false }),
    ("umode_t", Int { bytes: 2, signed: false }),
];

/// Parses lines such as `p:kprobes/name symbol`, `r8:GROUP/name …`, `s:synthetic/name …`. Older kernels omit `synthetic/`
/// (Documentation/trace/kprobetrace.rst, histogram.rst).
fn dynamic_events(text: &str) -> Vec<(String, String)> {
    let named = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let name = rest.split_whitespace().next()?;
        let (category, name) = name.split_once('/').unwrap_or(("synthetic", name));
        Some((category.to_owned(), name.to_owned()))
    };
    text.lines().filter_map(named).collect()
}

/// The path of an event's file; `None` if a part is not a valid name, so that no path leads out of `events`.
fn event_path(category: &str, name: &str, file: &str) -> Option<String> {
    let is_valid = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains(['/', '\0']);
    (is_valid(category) && is_valid(name)).then(|| format!("events/{category}/{name}/{file}"))
}

fn denied(what: &str, e: &io::Error) -> Missing {
    let help = match e.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "{}; or allow a group to read it, as root: mount -o remount,mode=750,gid=GROUP /sys/kernel/tracing",
            rights::lacking("CAP_DAC_READ_SEARCH")
        ),
        _ => "tracefs may be incomplete; as root: mount -t tracefs tracefs /sys/kernel/tracing".into(),
    };
    Missing { what: format!("{what} cannot be read: {}", reason(e)), help: Some(help) }
}

fn open_at(folder: impl AsFd, path: impl Arg, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(openat(folder, path, flags | OFlags::CLOEXEC, Mode::empty())?)
}

/// A mount of a file system that only this process sees.
pub(in crate::system) fn own_mount(kind: &str) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(line: &str, category: &str) -> TracepointField {
        let text =
            format!("name: x\nID: 7\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:{line}\n\nprint fmt: \"\"");
        let event = parse_format(&text, category, &|_, _| None).unwrap();
        assert_eq!((event.id, event.fields.len()), (7, 1), "{line}");
        event.fields[0].clone()
    }

    #[test]
    fn events_made_at_run_time() {
        let text =
            "p:kprobes/mine vfs_read\nr8:group/sched_switch do_sys_open ret=$retval\ns:synthetic/wait u64 lat\ns:old u64 lat\n\nodd\n";
        let expected = [("kprobes", "mine"), ("group", "sched_switch"), ("synthetic", "wait"), ("synthetic", "old")];
        assert_eq!(super::dynamic_events(text), expected.map(|(c, n)| (c.to_owned(), n.to_owned())));
    }

    #[test]
    fn declarations() {
        let text = || Type::int(1).ptr(Space::Kernel);
        for (line, name, ty) in [
            ("char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;", "prev_comm", Type::Str(16)),
            ("char comm[TASK_COMM_LEN];\toffset:8;\tsize:16;\tsigned:1;", "comm", Type::Str(16)),
            ("pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;", "prev_pid", Type::int(4)),
            ("dev_t dev;\toffset:8;\tsize:4;\tsigned:0;", "dev", Type::uint(4)),
            ("unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;", "args", Type::Array(Box::new(Type::uint(8)), 6)),
            ("__u8 saddr[4];\toffset:30;\tsize:4;\tsigned:0;", "saddr", Type::Array(Box::new(Type::uint(1)), 4)),
            ("strange_t odd[3];\toffset:8;\tsize:12;\tsigned:0;", "odd", Type::Array(Box::new(Type::uint(4)), 3)),
            ("const char * name;\toffset:8;\tsize:8;\tsigned:0;", "name", text()),
            ("const char *const * argv;\toffset:8;\tsize:8;\tsigned:0;", "argv", text().ptr(Space::Kernel)),
            ("const void* p;\toffset:8;\tsize:8;\tsigned:0;", "p", Type::Void.ptr(Space::Kernel)),
            ("void __seg_gs * p;\toffset:8;\tsize:8;\tsigned:0;", "p", Type::Void.ptr(Space::Kernel)),
            ("struct file * f;\toffset:8;\tsize:8;\tsigned:0;", "f", Type::Void.ptr(Space::Kernel)),
            ("enum zone_type z;\toffset:8;\tsize:4;\tsigned:0;", "z", Type::uint(4)),
            ("struct in6_addr a;\toffset:8;\tsize:16;\tsigned:0;", "a", Type::Array(Box::new(Type::uint(1)), 16)),
            ("bool preempt;\toffset:8;\tsize:1;\tsigned:0;", "preempt", Type::Bool),
            ("int i;\toffset:8;\tsize:8;\tsigned:0;", "i", Type::uint(8)),
            ("char buf[];\toffset:16;\tsize:0;\tsigned:0;", "buf", Type::Array(Box::new(Type::int(1)), 0)),
        ] {
            let got = field(line, "sched");
            assert_eq!((got.field.name.as_str(), &got.field.ty, got.loc), (name, &ty, None), "{line}");
            assert_eq!(got.decl, line.split(';').next().unwrap());
        }
    }

    #[test]
    fn references() {
        let got = field("__data_loc char[] name;\toffset:8;\tsize:4;\tsigned:0;", "sched");
        assert_eq!((got.field.name.as_str(), got.field.ty, got.loc), ("name", Type::Str(0), Some(DataLoc::Absolute)));
        let got = field("__rel_loc u8[] data;\toffset:12;\tsize:4;\tsigned:0;", "sched");
        assert_eq!((got.field.ty, got.loc), (Type::Array(Box::new(Type::uint(1)), 0), Some(DataLoc::Relative)));
        let got = field("__data_loc unsigned int[] ids;\toffset:12;\tsize:4;\tsigned:0;", "sched");
        assert_eq!((got.field.name.as_str(), got.field.ty), ("ids", Type::Array(Box::new(Type::uint(4)), 0)));
    }

    #[test]
    fn system_calls_slots() {
        let got = field("const char * filename;\toffset:24;\tsize:8;\tsigned:0;", "syscalls");
        assert_eq!(got.field.ty, Type::int(1).ptr(Space::User));
        let got = field("int dfd;\toffset:16;\tsize:8;\tsigned:0;", "syscalls");
        assert_eq!(got.field.ty, Type::int(4));
        let got = field("size_t count;\toffset:16;\tsize:8;\tsigned:0;", "syscalls");
        assert_eq!(got.field.ty, Type::uint(8));
    }

    #[test]
    fn paths_stay_below_events() {
        assert_eq!(event_path("sched", "sched_switch", "id").as_deref(), Some("events/sched/sched_switch/id"));
        for (category, name) in [("..", "x"), ("sched", ""), ("a/b", "c"), ("sched", "../../etc")] {
            assert_eq!(event_path(category, name, "id"), None);
        }
        assert_eq!(parse_format("", "sched", &|_, _| None), None);
        assert_eq!(
            parse_format("ID: 1\n\tfield:int x;\toffset:a;\n\tfield:;\n", "sched", &|_, _| None),
            Some(Tracepoint { id: 1, fields: vec![] })
        );
    }
}
