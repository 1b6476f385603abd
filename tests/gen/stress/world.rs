//! Determines the attach points that the scripts of this generator can use on this machine, their fields, and the builtins that
//! each of them has. sema checks each of these once.

use super::super::machine::{Machine, Outcome};
use rbt::system::Feature;
use std::cell::RefCell;
use std::collections::HashMap;

/// The type of an expression of a generated script.
#[derive(Clone, Debug, PartialEq)]
pub enum T {
    /// An integer: its number of bytes, and whether it is signed.
    Int(u8, bool),
    /// A boolean.
    Bool,
    /// A string with this maximum number of bytes. 0 means the limit of the setting.
    Str(u32),
    /// A tuple.
    Tup(Vec<T>),
    /// A record: the names and types of its fields.
    Rec(Vec<(String, T)>),
    /// `struct task_struct *`.
    Task,
    /// The `struct pair *` that the script declares.
    Pair,
    /// A number that is the address of a string in the process.
    Text,
    /// A number that is the address of an array of such addresses.
    List,
    /// A value that can only be printed or used as a key. The field is its expression.
    Late(&'static str),
}

/// An attach point.
pub struct Point {
    /// The attach point, as a script spells it.
    pub text: String,
    /// The expressions that it supports in addition to builtins.
    pub fields: Vec<(&'static str, T)>,
    /// The expressions among them that loops support, too.
    pub in_loops: Vec<(&'static str, T)>,
}

const I4: T = T::Int(4, true);
const I8: T = T::Int(8, true);
const U4: T = T::Int(4, false);
const U8: T = T::Int(8, false);
const U2: T = T::Int(2, false);

type Fields = &'static [(&'static str, T)];

const NONE: Fields = &[];
const REGISTERS: Fields = &[("arg0", U8), ("arg1", U8), ("arg2", U8), ("arg3", U8), ("arg5", U8), ("reg(\"ip\")", U8), ("reg(\"sp\")", U8)];

/// The attach points. `{bin}` stands for the fixture `args`, and `{markers}` for the fixture `markers`.
const POINTS: &[(&str, Fields)] = &[
    ("begin", NONE),
    ("end", NONE),
    ("interval:s:1", NONE),
    ("interval:ms:50", NONE),
    ("profile:hz:99", &[("reg(\"ip\")", U8)]),
    ("profile:ms:10", NONE),
    ("software:page-faults:100", &[("reg(\"sp\")", U8)]),
    ("software:cpu-clock:1000000", NONE),
    ("self:signal:SIGUSR1", NONE),
    (
        "tracepoint:syscalls:sys_enter_openat",
        &[("args.dfd", U4), ("args.filename", T::Text), ("args.flags", U4), ("args.mode", U2), ("args.__syscall_nr", I4)],
    ),
    ("tracepoint:syscalls:sys_exit_openat", &[("args.ret", I8)]),
    ("tracepoint:syscalls:sys_enter_read", &[("args.fd", U4), ("args.count", U8), ("args.buf", T::Text)]),
    ("tracepoint:syscalls:sys_exit_read", &[("args.ret", I8)]),
    ("tracepoint:syscalls:sys_enter_write", &[("args.fd", U4), ("args.count", U8), ("args.buf", T::Text)]),
    ("tracepoint:syscalls:sys_enter_execve", &[("args.filename", T::Text), ("args.argv", T::List)]),
    ("tracepoint:syscalls:sys_enter_connect", &[("args.fd", I4), ("args.addrlen", I4)]),
    ("tracepoint:syscalls:sys_enter_open*", NONE),
    ("tracepoint:syscalls:sys_exit_open*", &[("args.ret", I8)]),
    ("tracepoint:raw_syscalls:sys_enter", &[("args.id", I8), ("args.args[0]", U8), ("args.args[5]", U8)]),
    (
        "tracepoint:sched:sched_switch",
        &[
            ("args.prev_pid", I4),
            ("args.prev_comm", T::Str(16)),
            ("args.next_comm", T::Str(16)),
            ("args.prev_state", I8),
            ("args.next_prio", I4),
        ],
    ),
    ("tracepoint:sched:sched_process_exec", &[("args.filename", T::Str(0)), ("args.pid", I4), ("args.old_pid", I4)]),
    ("tracepoint:sched:sched_process_fork", &[("args.parent_pid", I4), ("args.child_pid", I4)]),
    ("tracepoint:sched:sched_wakeup", &[("args.comm", T::Str(16)), ("args.prio", I4)]),
    ("tracepoint:kmem:kfree", NONE),
    ("tracepoint:timer:hrtimer_start", NONE),
    ("rawtracepoint:sched_switch", &[("args.prev", T::Task), ("args.next", T::Task), ("arg0", U8), ("arg1", U8)]),
    ("rawtracepoint:sys_enter", &[("arg0", U8), ("arg1", U8)]),
    ("rawtracepoint:sched_process_exit", &[("arg0", U8)]),
    ("iter:task", &[("ctx.task", T::Task)]),
    ("iter:task_file", &[("ctx.task", T::Task), ("ctx.fd", U4)]),
    ("kprobe:vfs_read", REGISTERS),
    ("kprobe:vfs_read", &[("args.count", U8), ("args.buf", T::Text)]),
    ("kprobe:do_nanosleep", REGISTERS),
    ("kprobe:vfs_*", REGISTERS),
    ("kretprobe:vfs_read", &[("retval", U8)]),
    ("kretprobe:vfs_*", &[("retval", U8)]),
    ("fentry:vfs_read", &[("args.count", U8), ("args.buf", T::Text)]),
    ("fentry:vfs_write", &[("args.count", U8)]),
    ("fexit:vfs_read", &[("args.count", U8), ("retval", I8)]),
    ("uprobe:{bin}:six", REGISTERS),
    (
        "uprobe:{bin}:six",
        &[("args.a", I4), ("args.b", I8), ("args.c", T::Int(2, true)), ("args.d", T::Int(1, true)), ("args.e", U4), ("args.f", U8)],
    ),
    ("uprobe:{bin}:text", &[("args.s", T::Text), ("args.list", T::List), ("args.n", I4), ("arg0", T::Text)]),
    (
        "uprobe:{bin}:draw",
        &[
            ("args.s->at.x", I4),
            ("args.s->name", T::Text),
            ("args.addr", U4),
            ("args.s->label", T::Str(8)),
            ("args.s->mac[2]", T::Int(1, false)),
        ],
    ),
    ("uprobe:{bin}:negative", REGISTERS),
    ("uretprobe:{bin}:negative", &[("retval", I8)]),
    ("uretprobe:{bin}:six", &[("retval", I4)]),
    ("uprobe:libc:malloc", &[("arg0", U8), ("reg(\"ax\")", U8)]),
    ("uprobe:libc:getenv", &[("arg0", T::Text)]),
    ("uretprobe:libc:malloc", &[("retval", U8)]),
    ("usdt:{markers}:fixture:registers", &[("arg0", U8), ("arg1", U8), ("arg2", U8), ("arg3", U8)]),
    ("usdt:{markers}:fixture:symbols", &[("arg0", U8), ("arg1", U8)]),
    ("usdt:{markers}:fixture:twice", &[("arg0", U8)]),
];

const RISKY: &[&str] = &["signal", "write_user", "override", "skboutput"];

/// The attach points of a machine, and the results of checking builtins at each of them.
pub struct World<'m> {
    machine: &'m Machine,
    /// Programs can iterate over a map.
    pub loops_over_maps: bool,
    /// Programs can read aggregations.
    pub reads_aggregations: bool,
    /// The kernel provides the TAI clock.
    pub tells_tai: bool,
    /// Keys can have at most 512 bytes.
    pub short_keys: bool,
    points: Vec<Point>,
    has: RefCell<HashMap<(usize, bool, &'static str), bool>>,
}

impl<'m> World<'m> {
    /// Examines this machine. `folder` contains the fixtures if they have been built.
    pub fn new(machine: &'m Machine, folder: &str) -> Self {
        let mut points = Vec::new();
        for (text, fields) in POINTS {
            let text = text.replace("{bin}", &format!("{folder}/args")).replace("{markers}", &format!("{folder}/markers"));
            let known = |e: &str| machine.check(&format!("{text} {{ print({e}); }}")).is_ok();
            // Omits attach points whose programs this kernel does not load.
            if !known("1") || !matches!(machine.try_script(&format!("{text} {{ @ = count(); }}"), false).0, Outcome::Fine(..)) {
                continue;
            }
            let fields: Vec<(&str, T)> = fields.iter().filter(|(e, _)| known(e)).cloned().collect();
            let known = |e: &str| machine.check(&format!("{text} {{ for $i : 0..2 {{ print({e}); }} }}")).is_ok();
            let in_loops = fields.iter().filter(|(e, _)| known(e)).cloned().collect();
            points.push(Point { text, fields, in_loops });
        }
        let kernel = |feature| machine.sys.has(feature);
        Self {
            machine,
            loops_over_maps: kernel(Feature::ForEach),
            reads_aggregations: kernel(Feature::PercpuLookup),
            tells_tai: kernel(Feature::Tai),
            short_keys: kernel(Feature::ShortKeys),
            points,
            has: RefCell::new(HashMap::new()),
        }
    }

    /// All attach points.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Is this expression allowed at that point, within a loop or not?
    pub fn has(&self, point: usize, looped: bool, expression: &'static str) -> bool {
        if let Some(known) = self.has.borrow().get(&(point, looped, expression)) {
            return *known;
        }
        let text = self.points.get(point).map_or("begin", |p| p.text.as_str());
        let (head, tail) = if looped { ("for $i : 0..2 {", "}") } else { ("", "") };
        let statement = if expression.contains(" = ") { String::from(expression) } else { format!("_ = {expression}") };
        let text = format!("{}{text} {{ {head} {expression}; {tail} }}", super::HEAD);
        // A lockdown of the kernel may forbid expressions that change the machine.
        if RISKY.iter().any(|r| expression.starts_with(r)) {
            let ok = matches!(self.machine.try_script(&text, false).0, Outcome::Fine(..));
            self.has.borrow_mut().insert((point, looped, expression), ok);
            return ok;
        }
        let text = self.points.get(point).map_or("begin", |p| p.text.as_str());
        let ok = [format!("print({expression})"), statement, expression.into()]
            .iter()
            .any(|s| self.machine.check(&format!("{}{text} {{ {head} {s}; {tail} }}", super::HEAD)).is_ok());
        self.has.borrow_mut().insert((point, looped, expression), ok);
        ok
    }
}
