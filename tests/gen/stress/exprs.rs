//! Generates expressions of a given type.

use super::Gen;
use super::world::T;

/// Edge values of integers.
const EDGES: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "7",
    "8",
    "16",
    "31",
    "32",
    "63",
    "64",
    "100",
    "127",
    "128",
    "255",
    "256",
    "1000",
    "4095",
    "4096",
    "32767",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "1000000007",
    "9223372036854775807",
    "-1",
    "-2",
    "-128",
    "-32768",
    "-2147483648",
    "0x7f",
    "0xffff",
    "1e6",
    "5ms",
    "1s",
];

const WORDS: &[&str] = &["", "a", "abc", "bash", "/etc/passwd", "a longer text than the others are, by far", "%", "\\n", "x\\x41y", "sshd"];

/// Numbers that are available everywhere.
const NUMBERS: &[(&str, T)] = &[
    ("pid", T::Int(4, false)),
    ("tid", T::Int(4, false)),
    ("uid", T::Int(8, false)),
    ("gid", T::Int(8, false)),
    ("cpu", T::Int(8, false)),
    ("ncpus", T::Int(8, false)),
    ("numaid", T::Int(8, false)),
    ("rand", T::Int(8, false)),
    ("nsecs", T::Int(8, false)),
    ("nsecs(monotonic)", T::Int(8, false)),
    ("nsecs(boot)", T::Int(8, false)),
    ("nsecs(tai)", T::Int(8, false)),
    ("nsecs(sw_tai)", T::Int(8, false)),
    ("elapsed", T::Int(8, false)),
    ("jiffies", T::Int(8, false)),
    ("cgroup", T::Int(8, false)),
    ("cpid", T::Int(8, false)),
    ("ppid", T::Int(4, true)),
    ("leader_tid", T::Int(4, true)),
    ("usermode", T::Int(8, false)),
    ("pid(init)", T::Int(4, false)),
    ("tid(curr_ns)", T::Int(4, false)),
    ("curtask.pid", T::Int(4, true)),
    ("curtask.tgid", T::Int(4, true)),
    ("curtask.real_parent.pid", T::Int(4, true)),
    ("curtask->parent->parent->tgid", T::Int(4, true)),
    ("curtask.flags", T::Int(4, false)),
    ("curtask.mm.total_vm", T::Int(8, false)),
    ("curtask.se.vruntime", T::Int(8, false)),
    ("curtask.cred.uid.val", T::Int(4, false)),
    ("(uint64)curtask", T::Int(8, false)),
    ("(uint64)ctx", T::Int(8, false)),
    ("*(uint32 *)(uint64)&curtask.pid", T::Int(4, false)),
    ("((uint8 *)curtask)[9]", T::Int(1, false)),
    ("curtask.comm[1]", T::Int(1, true)),
    ("sizeof(struct task_struct)", T::Int(8, false)),
    ("sizeof(struct pair)", T::Int(8, false)),
    ("sizeof(uint16)", T::Int(8, false)),
    ("offsetof(struct pair, name)", T::Int(8, false)),
    ("strlen(comm)", T::Int(8, false)),
    ("len(kstack)", T::Int(8, true)),
    ("len(ustack(3))", T::Int(8, true)),
    ("(uint64)percpu_kaddr(\"runqueues\")", T::Int(8, false)),
    ("kaddr(\"jiffies\")", T::Int(8, false)),
    ("default_str_length", T::Int(8, false)),
    ("strcap(comm)", T::Int(8, true)),
    ("config.max_strlen", T::Int(8, false)),
    ("(uint64)(enum level)HIGH", T::Int(8, false)),
    ("STEP", T::Int(4, true)),
    ("bswap((uint16)pid)", T::Int(2, false)),
    ("bswap(nsecs)", T::Int(8, false)),
    ("memcmp(comm, \"bash\", 4)", T::Int(8, true)),
    ("strncmp(comm, \"ssh\", 3)", T::Int(8, true)),
    ("strncmp(comm, pcomm, 9)", T::Int(8, true)),
    ("(uint64)func", T::Int(8, false)),
];

/// Strings that are available everywhere.
const TEXTS: &[&str] = &[
    "comm",
    "pcomm",
    "leader_comm",
    "probe",
    "probetype",
    "curtask.comm",
    "curtask.parent.comm",
    "strerror(5)",
    "error_name(-2)",
    "signal_name(9)",
    "syscall_name(1)",
    "strerror(pid)",
    "error_name(-tid)",
    "signal_name(cpu)",
    "syscall_name(rand % 300)",
    "str(curtask.comm)",
    "str(uptr(0))",
    "str(kptr(curtask))",
    "str($1)",
    "str($2, 5)",
    "getopt(\"who\", \"nobody\", \"a name\")",
    "str(curtask.parent.comm, 6)",
    "comm(pid)",
    "str_concat(comm, \"!\")",
    "str_concat(comm, pcomm)",
    "curtask.group_leader.comm",
];

/// Values that are resolved to names when they are printed.
pub const LATE: &[&str] = &[
    "kstack",
    "ustack",
    "kstack(3)",
    "ustack(5)",
    "kstack(perf, 6)",
    "ustack(perf, 2)",
    "kstack(raw)",
    "ksym(kaddr(\"vfs_read\"))",
    "usym(nsecs)",
    "ntop(0x0100007f)",
    "ntop(2, cpu)",
    "ntop(pton(\"::1\"))",
    "macaddr((uint8 *)curtask)",
    "username",
    "cgroup_path(cgroup)",
    "strftime(\"%H:%M:%S\", nsecs)",
    "buf(curtask, 16)",
    "func",
    "buf(\"abc\", 3)",
    "flags((enum level)5)",
    "(enum level)1",
    "pton(\"1.2.3.4\")",
    "curtask.comm",
    "kstack(127)",
    "usym(reg(\"ip\"))",
    "ksym(reg(\"ip\"))",
    "(uint8[8])nsecs",
    "args",
    "cgroup_path(cgroup, \"un*\")",
    "buf(uptr(0), pid % 99)",
    "buf(kptr(curtask), 64)",
    "curtask.cred.uid",
    "curtask.se.load",
    "probe",
    "(int32[2])nsecs",
    "skboutput(\"/tmp/x\", 0, 1, 0)",
];

impl Gen<'_> {
    /// An expression of a type with at most `deep` levels.
    pub fn expr(&mut self, t: &T, deep: u32) -> String {
        match t {
            T::Int(bytes, signed) => {
                let (text, is) = self.int(deep);
                if is == *t && !self.rng.once_in(4) { text } else { format!("({}){}", int_name(*bytes, *signed), paren(&text)) }
            }
            T::Bool => self.bool(deep),
            T::Str(_) => self.text(deep),
            T::Tup(parts) => {
                if let Some(v) = self.existing(t) {
                    return v;
                }
                let parts: Vec<String> = parts.iter().map(|p| self.expr(p, deep.saturating_sub(1))).collect();
                format!("({})", parts.join(", "))
            }
            T::Rec(parts) => {
                if let Some(v) = self.existing(t) {
                    return v;
                }
                let parts: Vec<String> = parts.iter().map(|(n, p)| format!("{n} = {}", self.expr(p, deep.saturating_sub(1)))).collect();
                format!("({})", parts.join(", "))
            }
            T::Task => self.existing(t).unwrap_or_else(|| {
                let own = ["curtask", "curtask.real_parent", "curtask.group_leader", "(struct task_struct *)nsecs"];
                self.field(t).unwrap_or_else(|| (*self.rng.pick(&own)).into())
            }),
            T::Pair => self.existing(t).unwrap_or_else(|| {
                let own = ["(struct pair *)curtask", "(struct pair *)nsecs", "(struct pair *)uptr(reg(\"sp\"))", "(struct pair *)0"];
                let one = *self.rng.pick(&own);
                if self.has(one) { one.into() } else { "(struct pair *)curtask".into() }
            }),
            T::Text => self.existing(t).or_else(|| self.field(t)).unwrap_or_else(|| "(uint64)curtask".into()),
            T::List => self.field(t).unwrap_or_else(|| "(uint64)curtask".into()),
            T::Late(text) => (*text).into(),
        }
    }

    /// An integer expression and its type.
    pub fn int(&mut self, deep: u32) -> (String, T) {
        let i8 = T::Int(8, true);
        if deep == 0 || self.rng.once_in(5) {
            return self.leaf();
        }
        let d = deep - 1;
        match self.rng.below(22) {
            0..=5 => {
                let op = *self.rng.pick(&["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"]);
                let a = self.int(d).0;
                let b = self.int(d).0;
                let b = if op.contains('<') || op.contains('>') { format!("({} & 63)", paren(&b)) } else { paren(&b) };
                (format!("({} {op} {b})", paren(&a)), T::Int(0, true))
            }
            6 | 7 => {
                (format!("({} ? {} : {})", self.bool(d), paren(&self.int(d).0.clone()), paren(&self.int(d).0.clone())), T::Int(0, true))
            }
            8 => (format!("({}){}", if self.rng.once_in(2) { "uint64" } else { "int64" }, paren(&self.bool(d))), T::Int(0, true)),
            9 => {
                let op = *self.rng.pick(&["-", "~", "!"]);
                (format!("({op}{})", paren(&self.int(d).0.clone())), T::Int(0, true))
            }
            10 => {
                let t = self.int_type();
                (self.expr_cast(&t, d), t)
            }
            11 => {
                let (a, b) = (self.text(d), self.text(d.min(1)));
                let call = match self.rng.below(5) {
                    0 => format!("strlen({a})"),
                    1 => format!("strstr({a}, {b})"),
                    2 => format!("strncmp({a}, {b}, {})", self.rng.between(1, 40)),
                    3 => format!("(int64)strcontains({a}, {b})"),
                    _ => format!("memcmp({a}, {b}, {})", self.rng.between(1, 8)),
                };
                (call, T::Int(0, true))
            }
            12 => match self.map_with_key() {
                Some((name, key)) => {
                    let key = self.key(&key, d);
                    (format!("(int64)has_key({name}, {key})"), i8)
                }
                None => self.leaf(),
            },
            13 => match self.map_with_key() {
                Some((name, _)) if self.world.loops_over_maps => (format!("len({name})"), T::Int(0, true)),
                _ => self.leaf(),
            },
            14 => match self.assignable_int() {
                Some((name, t)) => {
                    let form = *self.rng.pick(&["{}++", "{}--", "++{}", "--{}"]);
                    (format!("({})", form.replace("{}", &name)), t)
                }
                None => self.leaf(),
            },
            15 => match self.function_giving(&i8) {
                Some((name, params)) => {
                    let args: Vec<String> = params.iter().map(|p| self.expr(p, d)).collect();
                    (format!("{name}({})", args.join(", ")), i8)
                }
                None => self.leaf(),
            },
            16 => match self.macros.is_empty() {
                true => self.leaf(),
                false => {
                    let (name, n) = self.rng.pick(&self.macros).clone();
                    let args: Vec<String> = (0..n).map(|_| self.int(d).0).collect();
                    (format!("{name}({})", args.join(", ")), T::Int(0, true))
                }
            },
            17 if !self.has_c => self.leaf(),
            17 => {
                let p = self.expr(&T::Pair, d);
                let of =
                    *self.rng.pick(&["a", "b", "c", "name[3]", "in.x", "in.deep[1]", "next->a", "next->next->in.x", "many[2].x", "all"]);
                (format!("{}->{of}", paren(&p)), T::Int(0, true))
            }
            18 => {
                let p = self.expr(&T::Task, d);
                let of =
                    *self.rng.pick(&["pid", "tgid", "real_parent.pid", "mm.total_vm", "se.vruntime", "cred.uid.val", "prio", "comm[2]"]);
                (format!("{}.{of}", paren(&p)), T::Int(0, true))
            }
            19 => match self.assignable_int() {
                Some((name, t)) if name.starts_with('$') => (format!("(*&{name})"), t),
                _ => self.leaf(),
            },
            20 => {
                let t = self.int_type();
                let T::Int(bytes, signed) = t else { return self.leaf() };
                let from = self.expr(&T::Text, d);
                let space = *self.rng.pick(&["uptr", "kptr"]);
                let at = self.rng.below(5);
                (format!("(({} *){space}({from}))[{at}]", int_name(bytes, signed)), t)
            }
            _ => {
                let (a, b) = (self.int(d).0, self.int(d).0);
                (format!("({}, {}).{}", a, b, self.rng.below(2)), T::Int(0, true))
            }
        }
    }

    fn expr_cast(&mut self, t: &T, deep: u32) -> String {
        match t {
            T::Int(bytes, signed) => format!("({}){}", int_name(*bytes, *signed), paren(&self.int(deep).0.clone())),
            _ => self.expr(t, deep),
        }
    }

    fn leaf(&mut self) -> (String, T) {
        for _ in 0..4 {
            match self.rng.below(8) {
                0 | 1 => return ((*self.rng.pick(EDGES)).into(), T::Int(0, true)),
                2 => {
                    let (text, t) = self.rng.pick(NUMBERS).clone();
                    if self.has(text) && (self.has_c || !needs_c(text)) {
                        return (text.into(), t);
                    }
                }
                3 | 4 => {
                    if let Some((name, t)) = self.var_where(&|t| matches!(t, T::Int(..))) {
                        return (name, t);
                    }
                }
                5 => {
                    if let Some((name, key, t)) = self.map_where(&|t| matches!(t, T::Int(..))) {
                        let key = self.subscript(&key, 1);
                        return (format!("{name}{key}"), t);
                    }
                }
                6 => {
                    let fields: Vec<(&'static str, T)> =
                        self.fields().iter().filter(|(_, t)| matches!(t, T::Int(..) | T::Text)).cloned().collect();
                    if !fields.is_empty() {
                        let (text, t) = self.rng.pick(&fields).clone();
                        return if t == T::Text { (format!("(uint64){text}"), T::Int(8, false)) } else { (text.into(), t) };
                    }
                }
                _ => {
                    if let Some((name, t)) = self.part_where(&|t| matches!(t, T::Int(..))) {
                        return (name, t);
                    }
                    if let Some(name) = self.countable() {
                        return (format!("(int64){name}"), T::Int(8, true));
                    }
                }
            }
        }
        ("1".into(), T::Int(0, true))
    }

    /// A condition.
    pub fn bool(&mut self, deep: u32) -> String {
        if deep == 0 {
            let (a, b) = (self.leaf().0, self.rng.pick(EDGES).to_string());
            let op = *self.rng.pick(&["==", "!=", "<", ">", "<=", ">="]);
            return format!("{} {op} {b}", paren(&a));
        }
        let d = deep - 1;
        match self.rng.below(14) {
            0..=2 => {
                let op = *self.rng.pick(&["==", "!=", "<", ">", "<=", ">="]);
                format!("{} {op} {}", paren(&self.int(d).0.clone()), paren(&self.int(d).0.clone()))
            }
            3..=5 => {
                let op = *self.rng.pick(&["&&", "||"]);
                format!("({}) {op} ({})", self.bool(d), self.bool(d))
            }
            6 => format!("!({})", self.bool(d)),
            7 => format!("{} {} {}", self.text(d.min(1)), if self.rng.once_in(2) { "==" } else { "!=" }, self.text(d.min(1))),
            8 => format!("strcontains({}, {})", self.text(d), self.text(d.min(1))),
            9 => match self.map_with_key() {
                Some((name, key)) => format!("has_key({name}, {})", self.key(&key, d)),
                None => self.bool(0),
            },
            10 => self.var_where(&|t| *t == T::Bool).map_or_else(|| self.bool(0), |v| v.0),
            11 => match self.map_with_key() {
                Some((name, key)) => format!("delete({name}, {})", self.key(&key, d)),
                None => self.bool(d),
            },
            12 => format!("({} ? {} : {})", self.bool(d), self.bool(d), self.bool(d)),
            _ => {
                let t = T::Tup(vec![T::Int(8, true), T::Str(16)]);
                format!("{} == {}", self.expr(&t, d), self.expr(&t, d))
            }
        }
    }

    /// A string.
    pub fn text(&mut self, deep: u32) -> String {
        for _ in 0..4 {
            match self.rng.below(if deep == 0 { 6 } else { 13 }) {
                0 => {
                    let word = *self.rng.pick(WORDS);
                    if word.len() <= self.longest {
                        return format!("\"{word}\"");
                    }
                }
                1 | 2 => {
                    let text = *self.rng.pick(TEXTS);
                    if self.has(text) {
                        return text.into();
                    }
                }
                3 => {
                    if let Some((name, _)) = self.var_where(&|t| matches!(t, T::Str(_))) {
                        return name;
                    }
                }
                4 => {
                    if let Some((name, key, _)) = self.map_where(&|t| matches!(t, T::Str(_))) {
                        let key = self.subscript(&key, 1);
                        return format!("{name}{key}");
                    }
                }
                5 => {
                    if let Some(name) = self.field(&T::Text) {
                        return match self.rng.below(4) {
                            0 => format!("str({name}, {})", self.rng.pick(&["1", "16", "pid % 64", "200", "nsecs"])),
                            _ => format!("str({name})"),
                        };
                    }
                    if let Some((name, _)) = self.part_where(&|t| matches!(t, T::Str(_))) {
                        return name;
                    }
                }
                6 | 7 => return format!("({} ? {} : {})", self.bool(deep - 1), self.text(deep - 1), self.text(deep - 1)),
                8 if self.longest > 100 => return format!("(\"{}\" + \"{}\")", self.rng.pick(WORDS), self.rng.pick(WORDS)),
                8 => {}
                9 => return format!("str_concat({}, {})", self.text(deep - 1), self.text(deep - 1)),
                10 => {
                    if let Some((name, params)) = self.function_giving(&T::Str(0)) {
                        let args: Vec<String> = params.iter().map(|p| self.expr(p, deep - 1)).collect();
                        return format!("{name}({})", args.join(", "));
                    }
                }
                11 if !self.has_c => {}
                11 => {
                    let p = self.expr(&T::Pair, deep - 1);
                    return match self.rng.below(2) {
                        0 => format!("{}->name", paren(&p)),
                        _ => format!("str({}->text)", paren(&p)),
                    };
                }
                _ => {
                    let f = *self.rng.pick(&["strerror", "error_name", "signal_name", "syscall_name"]);
                    return format!("{f}({})", self.int(deep - 1).0);
                }
            }
        }
        "comm".into()
    }

    /// An expression that can be printed.
    pub fn shown(&mut self, deep: u32) -> String {
        match self.rng.below(8) {
            0 | 1 => self.int(deep).0,
            2 | 3 => self.text(deep),
            4 => self.late(),
            5 => {
                let t = self.type_(2);
                self.expr(&t, deep)
            }
            6 => match self.var_where(&|_| true) {
                Some((name, _)) => name,
                None => self.bool(deep),
            },
            _ => match self.map_where(&|_| true) {
                Some((name, key, _)) => format!("{name}{}", self.subscript(&key, 1)),
                None => self.late(),
            },
        }
    }

    /// A value that is resolved to a name when it is printed.
    pub fn late(&mut self) -> String {
        for _ in 0..5 {
            let text = *self.rng.pick(LATE);
            if self.has(text) && (self.has_c || !needs_c(text)) {
                return text.into();
            }
        }
        "nsecs".into()
    }

    /// A value of the type of a key.
    pub fn key(&mut self, t: &T, deep: u32) -> String {
        self.in_keys += 1;
        let text = self.expr(t, deep);
        self.in_keys -= 1;
        text
    }

    /// A key in brackets, or an empty string for a map without keys.
    pub fn subscript(&mut self, key: &Option<T>, deep: u32) -> String {
        self.in_keys += 1;
        let text = match key {
            None => String::new(),
            Some(T::Tup(parts)) if self.rng.once_in(2) => {
                let parts: Vec<String> = parts.iter().map(|p| self.expr(p, deep)).collect();
                format!("[{}]", parts.join(", "))
            }
            Some(t) => format!("[{}]", self.expr(t, deep)),
        };
        self.in_keys -= 1;
        text
    }
}

/// The name of an integer type in a script.
pub fn int_name(bytes: u8, signed: bool) -> String {
    format!("{}int{}", if signed { "" } else { "u" }, u32::from(bytes.max(1)) * 8)
}

/// Adds parentheses if necessary.
fn paren(text: &str) -> String {
    let simple = text.chars().all(|c| c.is_alphanumeric() || "$@_".contains(c));
    if simple { text.into() } else { format!("({text})") }
}

/// Does the text use names of the C declarations?
fn needs_c(text: &str) -> bool {
    ["pair", "level", "STEP"].iter().any(|w| text.contains(w))
}
