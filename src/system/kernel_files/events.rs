//! The records of tracepoints, as tracefs would describe them on a booted kernel.
//!
//! An image has an array of pointers to `struct trace_event_call`, which has the name, category and fields of an event. Offsets
//! follow from sizes and alignments (`trace_event_define_fields` of kernel/trace/trace_events.c). The image's own types give
//! the layout of these structs. The IDs of events depend on the order of registration and are unknown: a format from here has
//! `ID: 0`, and no `print fmt`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::code::Symbols;
use super::image::{Image, pointers};
use super::tables::Tables;
use crate::system::TypeName;
use crate::system::events::tracefs::RECORDS;
use crate::system::kernel_types::KernelTypes;
use crate::system::snapshot::Event;
use crate::types::{Struct, Type};

/// Offsets of members in the structs of events, in bytes.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    call: Call,
    class_system: u64,
    class_fields: u64,
    /// `struct trace_event_fields`, with the offsets of its members.
    field: FieldLayout,
    tracepoint_name: u64,
    /// Offsets in `struct syscall_metadata`: name, number of arguments, their types and names.
    syscall: Option<[u64; 4]>,
    /// Records of system calls include copies of the strings that arguments point to (since 6.19).
    copies: bool,
    /// Offsets in `struct trace_eval_map`: category, name, value.
    eval: Option<[u64; 3]>,
    /// The common fields at the start of every record.
    entry: Vec<Common>,
    entry_size: u32,
}

/// `struct trace_event_call`.
#[derive(Clone, Debug)]
struct Call {
    class: u64,
    name: u64,
    flags: u64,
    data: u64,
    /// Bits in `flags`: the event has the name of its tracepoint; it has its own name nevertheless (0 if there is no
    /// such flag).
    is_tracepoint: u32,
    is_custom: u32,
}

#[derive(Clone, Debug)]
struct FieldLayout {
    size: u64,
    /// Offsets of type, name, size, align, is_signed.
    members: [u64; 5],
    /// Offset of `len`, the number of elements of an array, since 6.3.
    len: Option<u64>,
}

/// A field of `struct trace_entry`.
#[derive(Clone, Debug)]
struct Common {
    decl: &'static str,
    name: &'static str,
    offset: u32,
    size: u32,
    signed: bool,
}

/// The members of `struct trace_entry` with their C types (`trace_define_common_fields`).
const COMMON: [(&str, &str, &str); 5] = [
    ("unsigned short", "type", "common_type"),
    ("unsigned char", "flags", "common_flags"),
    ("unsigned char", "preempt_count", "common_preempt_count"),
    ("int", "pid", "common_pid"),
    // Realtime kernels, until 5.17.
    ("unsigned char", "preempt_lazy_count", "common_preempt_lazy_count"),
];

/// System calls by the arguments that are copied, as bits. The kernel sets these by number, in code (`check_faultable_syscall`
/// of kernel/trace/trace_syscalls.c).
#[rustfmt::skip]
const COPIED: &[(u32, &[&str])] = &[
    (0b1, &[
        "access", "acct", "chdir", "chmod", "chown", "chroot", "creat", "delete_module", "execve", "fsopen", "lchown", "memfd_create",
        "mkdir", "mknod", "mq_open", "mq_unlink", "open", "readlink", "rmdir", "setdomainname", "sethostname", "shmdt", "statfs",
        "swapoff", "swapon", "truncate", "umount", "unlink", "utime", "utimes",
    ]),
    (0b10, &[
        "execveat", "faccessat", "faccessat2", "fchmodat", "fchmodat2", "fchownat", "fgetxattr", "finit_module", "flistxattr",
        "fremovexattr", "fsetxattr", "fspick", "futimesat", "inotify_add_watch", "mkdirat", "mknodat", "mount_setattr",
        "mq_timedsend", "name_to_handle_at", "newfstatat", "open_tree", "open_tree_attr", "openat", "openat2", "pwrite64",
        "quotactl", "readlinkat", "statx", "syslog", "unlinkat", "utimensat", "write",
    ]),
    (0b11, &[
        "add_key", "getxattr", "lgetxattr", "link", "listxattr", "llistxattr", "lremovexattr", "lsetxattr", "pivot_root",
        "removexattr", "rename", "request_key", "setxattr", "symlink",
    ]),
    (0b100, &["fsconfig", "init_module"]),
    (0b101, &["symlinkat"]),
    (0b111, &["mount"]),
    (0b1010, &["getxattrat", "linkat", "listxattrat", "move_mount", "removexattrat", "renameat", "renameat2", "setxattrat"]),
    (0b1_0000, &["fanotify_mark", "kexec_file_load"]),
];

/// Limits for the fields of one event, and for the events of one image.
const MAX_FIELDS: usize = 256;
const MAX_EVENTS: usize = 1 << 16;

impl Layout {
    /// Reads the layouts from the kernel's types; `None` if they lack these structs.
    pub(super) fn of(types: &KernelTypes) -> Option<Self> {
        let named = |name: &str| match types.named(TypeName::Struct, name) {
            Some(Type::Struct(s)) => Some(s),
            _ => None,
        };
        let member = |of: &Struct, name: &str| types.member(of, name).map(|f| u64::from(f.offset));
        let all = |of: &Struct, names: &[&str]| names.iter().map(|n| member(of, n)).collect::<Option<Vec<_>>>();
        let flag = |name: &str| types.enumerator(name).and_then(|(_, value)| u32::try_from(value).ok());
        let (call, class, field) = (named("trace_event_call")?, named("trace_event_class")?, named("trace_event_fields")?);
        let entry = named("trace_entry")?;
        let common = COMMON.iter().filter_map(|(decl, name, shown)| {
            let member = types.member(&entry, name)?;
            let signed = matches!(member.ty, Type::Int(int) if int.signed);
            Some(Common { decl, name: shown, offset: member.offset, size: member.ty.size(), signed })
        });
        let syscall = named("syscall_metadata").and_then(|s| all(&s, &["name", "nb_args", "types", "args"]));
        let eval = named("trace_eval_map").and_then(|s| all(&s, &["system", "eval_string", "eval_value"]));
        Some(Self {
            call: Call {
                class: member(&call, "class")?,
                name: member(&call, "name")?,
                flags: member(&call, "flags")?,
                data: member(&call, "data")?,
                is_tracepoint: flag("TRACE_EVENT_FL_TRACEPOINT")?,
                is_custom: flag("TRACE_EVENT_FL_CUSTOM").unwrap_or(0),
            },
            class_system: member(&class, "system")?,
            class_fields: member(&class, "fields_array")?,
            field: FieldLayout {
                size: u64::from(field.size).max(8),
                members: all(&field, &["type", "name", "size", "align", "is_signed"])?.try_into().ok()?,
                len: member(&field, "len"),
            },
            tracepoint_name: member(named("tracepoint")?.as_ref(), "name")?,
            syscall: syscall.and_then(|s| s.try_into().ok()),
            copies: named("syscall_metadata").is_some_and(|s| member(&s, "user_mask").is_some()),
            eval: eval.and_then(|e| e.try_into().ok()),
            entry: common.collect(),
            entry_size: entry.size,
        })
    }
}

/// The events of the kernel itself; `None` if they were not found or some of them cannot be read.
pub(super) fn kernel_events(image: &Image<'_>, symbols: &Symbols, layout: &Layout, tables: &Tables<'_>) -> Option<Vec<Event>> {
    let (evals, calls) = (evals(image, layout, tables.eval_maps), tables.calls.and_then(|table| calls(image, symbols, table)));
    Reader { image, layout, evals, calls }.all(tables.events?)
}

/// Is this the address of a `struct trace_event_call`?
pub(super) fn is_event(image: &Image<'_>, layout: &Layout, at: u64) -> bool {
    Reader { image, layout, evals: Evals::new(), calls: None }.event(at).is_some()
}

/// Is this the address of a `struct trace_eval_map`?
pub(super) fn is_eval_map(image: &Image<'_>, layout: &Layout, at: u64) -> bool {
    eval(image, layout, at).is_some_and(|((category, _), _)| is_name(&category))
}

/// Is this the address of a `struct syscall_metadata`?
pub(super) fn is_call_metadata(image: &Image<'_>, layout: &Layout, at: u64) -> bool {
    let name = |[name, ..]: [u64; 4]| image.text(image.u64(at.checked_add(name)?)?);
    layout.syscall.and_then(name).is_some_and(|name| name.starts_with("sys_"))
}

/// The events of a module; `None` as above.
pub(super) fn module_events(image: &Image<'_>, layout: &Layout) -> Option<Vec<Event>> {
    let maps: Vec<u8> = image.section("_ftrace_eval_map").flat_map(|s| s.bytes.iter().copied()).collect();
    let reader = Reader { image, layout, evals: evals(image, layout, &maps), calls: None };
    let all: Option<Vec<_>> = image.section("_ftrace_events").map(|s| reader.all(&s.bytes)).collect();
    Some(all?.into_iter().flatten().collect())
}

/// The values of enumerators in array lengths, by category and name.
type Evals = BTreeMap<(String, String), u64>;

fn evals(image: &Image<'_>, layout: &Layout, table: &[u8]) -> Evals {
    pointers(table).take(MAX_EVENTS).filter_map(|at| eval(image, layout, at)).collect()
}

fn eval(image: &Image<'_>, layout: &Layout, at: u64) -> Option<((String, String), u64)> {
    let [system, name, value] = layout.eval?;
    let text = |member: u64| Some(image.text(image.u64(at.checked_add(member)?)?)?.to_owned());
    Some(((text(system)?, text(name)?), image.u64(at.checked_add(value)?)?))
}

/// System calls in the kernel's table, as `openat`. Others have no events (`init_syscall_trace`). `None` if the table has none.
fn calls(image: &Image<'_>, symbols: &Symbols, table: &[u8]) -> Option<BTreeSet<String>> {
    let places = pointers(table).take(1024).take_while(|a| image.is_code(*a));
    let all: BTreeSet<String> = places.flat_map(|at| calls_at(symbols, at).map(str::to_owned)).collect();
    (!all.is_empty()).then_some(all)
}

/// The system calls that the function at this address implements: `openat` for `__x64_sys_openat`, `__arm64_sys_openat` or
/// `sys_openat`.
fn calls_at(symbols: &Symbols, at: u64) -> impl Iterator<Item = &str> {
    symbols.names_at(at).filter_map(|name| name.strip_prefix("sys_").or_else(|| name.split_once("_sys_").map(|(_, call)| call)))
}

/// Does the function at this address implement a system call of programs of 64 bits?
pub(super) fn implements_call(symbols: &Symbols, at: u64) -> bool {
    calls_at(symbols, at).next().is_some() && !symbols.names_at(at).any(|name| name.contains("_compat_"))
}

struct Reader<'a, 'd> {
    image: &'a Image<'d>,
    layout: &'a Layout,
    evals: Evals,
    calls: Option<BTreeSet<String>>,
}

impl Reader<'_, '_> {
    /// Reads all events. `None` if one of them cannot be read, because a list with gaps would say that an event does not exist.
    fn all(&self, table: &[u8]) -> Option<Vec<Event>> {
        let events = pointers(table).take(MAX_EVENTS).map(|call| self.event(call));
        Some(events.collect::<Option<Vec<_>>>()?.into_iter().flatten().filter(|e| e.category != RECORDS).collect())
    }

    fn pointer(&self, from: u64, member: u64) -> Option<u64> {
        self.image.u64(from.checked_add(member)?)
    }

    fn word(&self, from: u64, member: u64) -> Option<u32> {
        self.image.u32(from.checked_add(member)?)
    }

    fn text(&self, from: u64, member: u64) -> Option<&str> {
        self.image.text(self.pointer(from, member)?)
    }

    /// Reads an event. `None`: it cannot be read; `Some(None)`: the kernel would not register it.
    fn event(&self, call: u64) -> Option<Option<Event>> {
        let Call { class, name, flags, is_tracepoint, is_custom, .. } = self.layout.call;
        let flags = self.word(call, flags)?;
        let name = if flags & is_custom == 0 && flags & is_tracepoint != 0 {
            self.text(self.pointer(call, name)?, self.layout.tracepoint_name)?
        } else {
            self.text(call, name)?
        };
        let class = self.pointer(call, class)?;
        let category = self.text(class, self.layout.class_system)?;
        if category == "syscalls" && !self.has_syscall(call)? {
            return Some(None);
        }
        if !is_name(name) || !is_name(category) {
            return None;
        }
        let mut format = format!("name: {name}\nID: 0\nformat:\n");
        for common in &self.layout.entry {
            line(&mut format, &format!("{} {}", common.decl, common.name), common.offset, common.size, common.signed);
        }
        format.push('\n');
        self.fields(call, category, self.pointer(class, self.layout.class_fields)?, &mut format)?;
        Some(Some(Event { category: category.to_owned(), name: name.to_owned(), format }))
    }

    /// Is the system call in the kernel's table?
    fn has_syscall(&self, call: u64) -> Option<bool> {
        let Some(calls) = &self.calls else { return Some(true) };
        let [name, ..] = self.layout.syscall?;
        let name = self.text(self.pointer(call, self.layout.call.data)?, name)?;
        let name = name.trim_start_matches("sys_");
        Some(calls.contains(name) && name != "ni_syscall")
    }

    fn fields(&self, call: u64, category: &str, array: u64, to: &mut String) -> Option<()> {
        // TRACE_FUNCTION_TYPE: a function of the kernel defines the fields.
        const BY_FUNCTION: u64 = u64::MAX;
        let FieldLayout { size: step, members: [ty, name, size, align, signed], len } = self.layout.field;
        let mut offset = self.layout.entry_size;
        for n in 0..MAX_FIELDS as u64 {
            let at = array.checked_add(n * step)?;
            let spelled = match self.pointer(at, ty)? {
                0 => return Some(()),
                BY_FUNCTION if category == "syscalls" => return self.arguments(call, offset, to),
                BY_FUNCTION => return None,
                at => self.image.text(at)?,
            };
            let name = self.text(at, name)?;
            let (size, align) = (self.word(at, size)?, self.word(at, align)?);
            offset = offset.checked_next_multiple_of(align.max(1))?;
            let elements = len.and_then(|len| self.word(at, len));
            line(to, &self.declaration(category, spelled, name, elements), offset, size, self.word(at, signed)? != 0);
            offset = offset.checked_add(size)?;
        }
        None
    }

    /// Formats a declaration as `f_show` does: the brackets of an array follow the name.
    fn declaration(&self, category: &str, spelled: &str, name: &str, elements: Option<u32>) -> String {
        let brackets = spelled.find('[').filter(|_| !spelled.starts_with("__data_loc"));
        let Some((ty, length)) = brackets.and_then(|at| spelled.split_at_checked(at)) else { return format!("{spelled} {name}") };
        match elements {
            Some(0) => format!("{ty} {name}[]"),
            Some(n) => format!("{ty} {name}[{n}]"),
            None => {
                let inner = length.trim_matches(['[', ']']);
                match self.evals.get(&(category.to_owned(), inner.to_owned())) {
                    Some(value) => format!("{ty} {name}[{value}]"),
                    None => format!("{ty} {name}{length}"),
                }
            }
        }
    }

    /// Writes the fields of a system call after its number: each argument in a slot of eight bytes
    /// (`syscall_enter_define_fields`).
    fn arguments(&self, call: u64, after: u32, to: &mut String) -> Option<()> {
        let [name, count, types, names] = self.layout.syscall?;
        let about = self.pointer(call, self.layout.call.data)?;
        let start = after.checked_next_multiple_of(8)?;
        let count = self.word(about, count)?;
        if count > 6 {
            return None;
        }
        let text = |table: u64, n: u32| self.text(self.pointer(about, table)?, u64::from(n) * 8);
        for n in 0..count {
            line(to, &format!("{} {}", text(types, n)?, text(names, n)?), start.checked_add(n * 8)?, 8, false);
        }
        let call = self.text(about, name)?.trim_start_matches("sys_");
        let copied = COPIED.iter().find(|(_, calls)| self.layout.copies && calls.contains(&call)).map_or(0, |(mask, _)| *mask);
        let mut at = start.checked_add(count * 8)?;
        for n in (0..count).filter(|n| copied >> n & 1 == 1) {
            line(to, &format!("__data_loc char[] __{}_val", text(names, n)?), at, 4, false);
            at = at.checked_add(4)?;
        }
        Some(())
    }
}

fn line(to: &mut String, declaration: &str, offset: u32, size: u32, signed: bool) {
    let _ = writeln!(to, "\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{};", u32::from(signed));
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() < 256 && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':'))
}
