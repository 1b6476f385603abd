//! Generates well-typed scripts over the entire grammar. They must pass sema, compile and pass the verifier. Their output is not
//! known.
//!
//! Calls are generated from the table of builtins, and arguments from the kinds of the parameters. sema determines the type of a
//! call. A new row is thus tested without changes to this file.

use super::machine::Machine;
use super::rng::Rng;
use super::tree::{self, Node};
use rbt::builtins::{self, Accepts, Builtin, Codegen};
use rbt::probes::{Context, ContextFeatures, Env};
use rbt::sema::hir;
use rbt::types::{Int, Type};

/// The attach points. A new generator omits those that this machine lacks.
const POINTS: &[&str] = &[
    "begin",
    "begin",
    "begin",
    "end",
    "interval:ms:100",
    "interval:s:1",
    "profile:hz:99",
    "software:cpu-clock:1000000",
    "tracepoint:sched:sched_switch",
    "tracepoint:sched:sched_process_exec",
    "tracepoint:syscalls:sys_enter_openat",
    "tracepoint:syscalls:sys_exit_read",
    "tracepoint:syscalls:sys_enter_execve",
    "rawtracepoint:sched_switch",
    "rawtracepoint:sys_enter",
    "uprobe:FIXTURE:six",
    "uprobe:FIXTURE:text",
    "uprobe:FIXTURE:draw",
    "uretprobe:FIXTURE:negative",
    "kprobe:vfs_read",
    "kretprobe:vfs_read",
    "fentry:vfs_read",
    "fexit:vfs_read",
];

/// Builtins that walk stacks and therefore call several nested functions. They must not be within many loops.
const WALKS: &[&str] = &["ustack", "dw_ustack", "pystack"];

/// The literals that some parameters require, by row and parameter.
const WORDS: &[(&str, &str, &[&str])] = &[
    ("cgroupid", "path", &["/sys/fs/cgroup"]),
    ("strftime", "format", &["%H:%M:%S", "%F %T.%f"]),
    ("time", "format", &["%H:%M:%S\\n"]),
    ("pton", "address", &["127.0.0.1", "::1"]),
    ("kaddr", "symbol", &["vfs_read", "jiffies_64"]),
    ("uaddr", "symbol", &["counter", "six"]),
    ("reg", "name", &["ip", "sp", "di", "ax", "r8"]),
    ("signal", "signal", &["SIGCONT", "WINCH"]),
    ("signal_thread", "signal", &["SIGCONT"]),
    // Each use has a new name, in which a number replaces `#`.
    ("getopt", "name", &["option#"]),
    ("cgroup_path", "hierarchies", &["unified", "*"]),
];

/// An attach point and its context.
struct Point {
    text: String,
    context: Context,
}

/// A map of the script.
#[derive(Clone, Debug)]
struct Map {
    name: String,
    key: Option<Type>,
    value: Held,
}

#[derive(Clone, Debug)]
enum Held {
    Plain(Type),
    /// The assigned aggregation, such as `sum($)`, in which `$` stands for the integer.
    Agg(String, bool),
}

#[derive(Clone, Debug)]
struct Var {
    name: String,
    ty: Type,
    /// The variable has a declared type, and assigned values are cast to it.
    fixed: bool,
    /// The variable can be assigned.
    free: bool,
    /// A statement that creates it.
    made: String,
}

#[derive(Clone, Debug)]
enum Param {
    Value,
    Var,
    Map(usize),
}

/// A function of the script, with the types of its parameters.
#[derive(Clone, Debug)]
struct Function {
    name: String,
    params: Vec<Type>,
    returns: Type,
    /// The text of the function.
    whole: String,
}

#[derive(Clone, Debug)]
struct Macro {
    name: String,
    params: Vec<Param>,
}

/// The generator.
pub struct Wild<'a> {
    machine: &'a Machine,
    points: Vec<Point>,
    rows: Vec<&'static Builtin>,
}

impl<'a> Wild<'a> {
    /// Creates a generator with the attach points of this machine.
    pub fn new(machine: &'a Machine, fixture: &str) -> Self {
        let mut points = Vec::new();
        for text in POINTS {
            let text = text.replace("FIXTURE", fixture);
            let Ok(script) = machine.check(&format!("{text} {{ }}")) else { continue };
            let Some(site) = script.probes.first().and_then(|p| p.sites.first()) else { continue };
            let Ok(context) = site.kind.context(site, &Env::new(&*machine.sys, &machine.settings)) else { continue };
            // Omits attach points whose programs cannot be loaded on this machine.
            if machine.try_script(&format!("{text} {{ @ = 1; }}"), false).0.class() == "fine" {
                points.push(Point { text, context });
            }
        }
        // The policy of a machine may forbid these builtins.
        let forbidden = |row: &&'static Builtin| row.risky && machine.try_script(row.example, false).0.class() != "fine";
        Self { machine, points, rows: builtins::all().filter(|row| !forbidden(row)).collect() }
    }

    /// The available attach points.
    pub fn points(&self) -> Vec<&str> {
        self.points.iter().map(|p| p.text.as_str()).collect()
    }

    /// Generates a script.
    pub fn script(&self, seed: u64) -> Vec<Node> {
        let mut g = Gen {
            home: self,
            rng: Rng::new(seed),
            point: &self.points[0],
            maps: Vec::new(),
            macros: Vec::new(),
            functions: Vec::new(),
            scopes: Vec::new(),
            names: 0,
            fors: 0,
            loops: 0,
            in_macro: false,
            room: 0,
        };
        g.script()
    }
}

struct Gen<'a> {
    home: &'a Wild<'a>,
    rng: Rng,
    point: &'a Point,
    maps: Vec<Map>,
    macros: Vec<Macro>,
    functions: Vec<Function>,
    scopes: Vec<Vec<Var>>,
    names: usize,
    fors: usize,
    loops: usize,
    in_macro: bool,
    /// The number of statements that this probe can still have.
    room: i64,
}

const SIMPLE: &[&str] = &["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"];

impl Gen<'_> {
    fn script(&mut self) -> Vec<Node> {
        let mut out = Vec::new();
        if self.rng.once_in(6) {
            let n = *self.rng.pick(&[32, 64, 200]);
            out.push(Node::line(format!("config = {{ max_strlen = {n} }}")));
        }
        for _ in 0..1 + self.rng.below(5) {
            let map = self.new_map();
            if map.key.is_some() && self.rng.once_in(4) {
                let kind = match map.value {
                    Held::Plain(_) => *self.rng.pick(&["hash", "lruhash"]),
                    Held::Agg(..) => *self.rng.pick(&["percpuhash", "percpulruhash"]),
                };
                out.push(Node::line(format!("let {} = {kind}({});", map.name, 1 + self.rng.below(100))));
            }
            self.maps.push(map);
        }
        for _ in 0..self.rng.below(3) {
            let node = self.new_macro();
            out.push(node);
        }
        for _ in 0..self.rng.below(3) {
            let node = self.new_function();
            out.push(node);
        }
        let probes = 1 + self.rng.below(3);
        for i in 0..probes {
            self.point = &self.home.points[self.rng.below(self.home.points.len())];
            self.scopes = vec![Vec::new()];
            self.room = 3 + self.rng.below(22) as i64;
            let mut head = self.point.text.clone();
            if self.rng.once_in(4) {
                head += &format!(" /{}/", self.condition(2));
            }
            let mut body = Vec::new();
            if i == 0 {
                // Every map must be assigned.
                for map in self.maps.clone() {
                    body.push(Node::line(made(&map)));
                }
            }
            let depth = if self.rng.once_in(8) { 6 } else { 3 };
            body.extend(self.stmts(depth));
            out.push(Node::with(head, body));
        }
        out
    }

    fn new_map(&mut self) -> Map {
        let name = format!("@{}", ["a", "b", "c", "d", "e", "f", ""][self.maps.len() % 7]);
        let key = (!self.rng.once_in(3)).then(|| self.key_type());
        let value = if self.rng.once_in(3) {
            let text = *self.rng.pick(&[
                "count()",
                "sum($)",
                "min($)",
                "max($)",
                "avg($)",
                "stats($)",
                "hist($)",
                "hist($, 2)",
                "lhist($, 0, 100, 10)",
            ]);
            Held::Agg(text.into(), !text.contains("hist") && !text.contains("stats"))
        } else {
            Held::Plain(self.random_type(2))
        };
        Map { name, key, value }
    }

    fn key_type(&mut self) -> Type {
        match self.rng.below(8) {
            0..3 => Type::I64,
            3 => Type::Str(16),
            4 => Type::Tuple(vec![Type::I64, Type::Str(16)]),
            5 => Type::Tuple(vec![self.int_type(), self.int_type(), Type::Bool]),
            6 => self.int_type(),
            _ => self.random_type(1),
        }
    }

    fn int_type(&mut self) -> Type {
        Type::Int(Int { bytes: *self.rng.pick(&[1, 2, 4, 8]), signed: self.rng.once_in(2) })
    }

    fn random_type(&mut self, depth: u32) -> Type {
        match self.rng.below(if depth == 0 { 8 } else { 12 }) {
            0..4 => Type::I64,
            4 => self.int_type(),
            5 => Type::Bool,
            6 | 7 => Type::Str(*self.rng.pick(&[8, 16, 64])),
            8 => Type::Tuple((0..2 + self.rng.below(2)).map(|_| self.random_type(depth - 1)).collect()),
            9 => self.record_type(depth),
            10 => Type::Array(Box::new(Type::Int(Int { bytes: *self.rng.pick(&[1, 2, 4]), signed: self.rng.once_in(2) })), 0),
            _ => self.pointer_type(),
        }
    }

    fn record_type(&mut self, depth: u32) -> Type {
        let n = 1 + self.rng.below(3);
        let fields: Vec<_> = (0..n).map(|i| (["x", "y", "zed"][i], self.random_type(depth - 1))).collect();
        let fields = fields.into_iter().map(|(name, ty)| rbt::types::Field { name: name.into(), offset: 0, bits: None, ty }).collect();
        Type::Record(std::sync::Arc::new(rbt::types::Record { name: String::new(), size: 0, fields, variants: None }))
    }

    fn pointer_type(&mut self) -> Type {
        self.ask("curtask").unwrap_or(Type::I64)
    }

    fn new_macro(&mut self) -> Node {
        let n = self.macros.len();
        let params: Vec<Param> = (0..self.rng.below(4))
            .map(|_| match self.rng.below(4) {
                0 => Param::Var,
                1 => Param::Map(self.rng.below(self.maps.len())),
                _ => Param::Value,
            })
            .collect();
        self.scopes = vec![Vec::new()];
        let mut names = Vec::new();
        let maps = self.maps.clone();
        for (i, p) in params.iter().enumerate() {
            match p {
                Param::Value => {
                    names.push(format!("p{i}"));
                    self.add_var(Var { name: format!("p{i}"), ty: Type::I64, fixed: false, free: false, made: String::new() });
                }
                Param::Var => {
                    names.push(format!("$p{i}"));
                    self.add_var(Var {
                        name: format!("$p{i}"),
                        ty: Type::I64,
                        fixed: true,
                        free: true,
                        made: format!("let $p{i}: int64 = 1;"),
                    });
                }
                Param::Map(at) => {
                    // The parameter is another name of the map.
                    let name = format!("@p{i}");
                    names.push(name.clone());
                    self.maps.push(Map { name, ..maps[*at].clone() });
                }
            }
        }
        // A macro can use only the maps among its parameters.
        self.maps.retain(|m| m.name.starts_with("@p"));
        self.in_macro = true;
        self.point = &self.home.points[0];
        self.room = self.rng.below(5) as i64;
        let mut body = self.stmts(1);
        let value = self.int(2);
        body.push(Node::line(value));
        self.in_macro = false;
        self.maps = maps;
        let name = format!("mac{n}");
        self.macros.push(Macro { name: name.clone(), params });
        Node::with(format!("macro {name}({})", names.join(", ")), body)
    }

    fn new_function(&mut self) -> Node {
        let name = format!("fun{}", self.functions.len());
        let returns = match self.rng.below(5) {
            0 => Type::Bool,
            1 => self.int_type(),
            2 => Type::Str(32),
            _ => Type::I64,
        };
        self.scopes = vec![Vec::new()];
        let (mut params, mut written) = (Vec::new(), Vec::new());
        for i in 0..self.rng.below(4) {
            let ty = match self.rng.below(4) {
                0 => Type::Str(32),
                1 => self.int_type(),
                _ => Type::I64,
            };
            let var = format!("$a{i}");
            written.push(format!("{var}: {ty}"));
            self.add_var(Var {
                name: var.clone(),
                made: format!("{var} = {};", plain(&ty)),
                free: !matches!(ty, Type::Str(_)),
                ty: ty.clone(),
                fixed: true,
            });
            params.push(ty);
        }
        // The body of a function must be valid in any probe.
        self.in_macro = true;
        self.point = &self.home.points[0];
        self.room = 1 + self.rng.below(6) as i64;
        let macros = std::mem::take(&mut self.macros);
        let mut body = self.stmts(2);
        let value = match &returns {
            Type::Str(_) => "\"a text\"".to_string(),
            ty => format!("({ty})({})", self.int(2)),
        };
        body.push(Node::line(format!("return {value};")));
        self.macros = macros;
        self.in_macro = false;
        let node = Node::with(format!("fn {name}({}): {returns}", written.join(", ")), body);
        let whole = tree::text(std::slice::from_ref(&node));
        self.functions.push(Function { name, params, returns, whole });
        node
    }

    /// Generates a call of a function of the script.
    fn function_call(&mut self, depth: u32) -> Option<(String, Type)> {
        // Loops and functions can be nested six levels deep in total.
        if self.functions.is_empty() || self.in_macro || self.fors > 1 || self.loops > 2 {
            return None;
        }
        let f = self.rng.pick(&self.functions.clone()).clone();
        let mut args = Vec::new();
        for ty in &f.params {
            args.push(match ty {
                Type::Str(_) => (*self.rng.pick(&["comm", "\"abc\""])).to_string(),
                ty => format!("({ty})({})", self.int(depth)),
            });
        }
        Some((format!("{}({})", f.name, args.join(", ")), f.returns.clone()))
    }

    fn add_var(&mut self, var: Var) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(var);
        }
    }

    fn fresh(&mut self) -> String {
        self.names += 1;
        format!("$v{}", self.names)
    }

    // ---------------------------------------------------------------- checks by sema

    /// The type of an expression at this place.
    fn ask(&mut self, e: &str) -> Option<Type> {
        let script = self.accepted(&format!("$asked = {e};"))?;
        let probe = script.probes.last()?;
        probe.vars.iter().find(|v| v.name.trim_start_matches('$') == "asked").map(|v| v.ty.clone())
    }

    /// Checks whether sema accepts these statements at this place.
    fn accepted(&self, stmts: &str) -> Option<hir::Script> {
        let mut begin = String::new();
        for map in &self.maps {
            if stmts.contains(&map.name) {
                begin += &made(map);
            }
        }
        let mut body = String::new();
        for var in self.scopes.iter().flatten().filter(|v| stmts.contains(&v.name)) {
            body += &var.made;
        }
        let own: String =
            self.functions.iter().filter(|f| body.contains(&f.name) || stmts.contains(&f.name)).map(|f| f.whole.clone()).collect();
        if own.contains('@') {
            for map in &self.maps {
                if !begin.contains(&made(map)) {
                    begin += &made(map);
                }
            }
        }
        // A macro can be called in a loop.
        let body =
            if self.fors > 0 || self.in_macro { format!("for $turn : 0..1 {{ {body} {stmts} }}") } else { format!("{body} {stmts}") };
        self.home.machine.check(&format!("{own} begin {{ {begin} }} {} {{ {body} }}", self.point.text)).ok()
    }

    // ---------------------------------------------------------------- statements

    fn stmts(&mut self, depth: u32) -> Vec<Node> {
        self.scopes.push(Vec::new());
        let mut out = Vec::new();
        for _ in 0..1 + self.rng.below(7) {
            if self.room <= 0 {
                break;
            }
            self.room -= 1;
            let node = self.stmt(depth);
            out.push(node);
        }
        self.scopes.pop();
        out
    }

    fn block(&mut self, depth: u32) -> Vec<Node> {
        self.stmts(depth - 1)
    }

    fn stmt(&mut self, depth: u32) -> Node {
        let nested = depth > 0;
        loop {
            return match self.rng.below(34) {
                0..5 => self.new_var(),
                5..8 => match self.set_var() {
                    Some(node) => node,
                    None => continue,
                },
                8..13 => {
                    if self.maps.is_empty() {
                        continue;
                    }
                    let map = self.rng.pick(&self.maps.clone()).clone();
                    Node::line(self.assign_map(&map, 2))
                }
                13..16 => self.printf(),
                16 | 17 => Node::line(format!("print({});", self.value(2).0)),
                18 | 19 => match self.map_statement() {
                    Some(node) => node,
                    None => continue,
                },
                20..22 => match self.row_statement() {
                    Some(node) => node,
                    None => continue,
                },
                22..25 if nested => self.if_statement(depth),
                25 | 26 if nested => self.for_range(depth),
                27 if nested => match self.for_map(depth) {
                    Some(node) => node,
                    None => continue,
                },
                28 if nested && !self.in_macro => self.while_statement(depth),
                29 if nested => {
                    self.loops += 1;
                    let node = Node::with(format!("unroll({})", 1 + self.rng.below(4)), self.block(depth));
                    self.loops -= 1;
                    node
                }
                30 if nested => Node::with("", self.block(depth)),
                31 => match self.leave() {
                    Some(node) => node,
                    None => continue,
                },
                32 => {
                    let Some(call) = self.macro_call(2) else { continue };
                    Node::line(format!("{call};"))
                }
                33 => Node::line(format!("_ = {};", self.int(3))),
                _ => continue,
            };
        }
    }

    fn new_var(&mut self) -> Node {
        let name = self.fresh();
        if self.rng.once_in(3) {
            // The declaration has a type.
            let written = *self.rng.pick(SIMPLE);
            let ty = int_named(written);
            let made = format!("let {name}: {written};");
            let text = if self.rng.once_in(3) {
                made.clone()
            } else {
                format!("let {name}: {written} = {};", self.of(&ty, 3).unwrap_or_default())
            };
            self.add_var(Var { name, ty, fixed: true, free: true, made });
            return Node::line(text);
        }
        let (e, ty) = self.value(3);
        // An integer expression may be a variable of type bool, which keeps its type.
        let ty = self.scopes.iter().flatten().find(|v| v.name == e).map_or(ty, |v| v.ty.clone());
        let word = if self.rng.once_in(2) { "let " } else { "" };
        let text = format!("{word}{name} = {e};");
        // A statement that creates a variable with the same name and type, but without the parts of the value.
        let made = match &ty {
            // A literal alone would not determine the type.
            Type::Int(_) => format!("{name} = ({ty})1;"),
            Type::Bool | Type::Str(_) => format!("{name} = {};", plain(&ty)),
            _ => self.made(&text),
        };
        self.add_var(Var { name, ty, fixed: false, free: !matches!(self.scopes.len(), 0), made });
        Node::line(text)
    }

    /// A statement, preceded by the statements that it needs.
    fn made(&self, text: &str) -> String {
        let mut all = String::new();
        for var in self.scopes.iter().flatten() {
            if text.contains(&var.name) && !all.contains(&var.made) {
                all += &var.made;
            }
        }
        all + text
    }

    fn set_var(&mut self) -> Option<Node> {
        let vars: Vec<Var> = self.scopes.iter().flatten().filter(|v| v.free).cloned().collect();
        if vars.is_empty() {
            return None;
        }
        let var = self.rng.pick(&vars).clone();
        if let Type::Int(_) = var.ty {
            match self.rng.below(4) {
                0 => {
                    let step = *self.rng.pick(&["++", "--"]);
                    return Some(Node::line(if self.rng.once_in(2) {
                        format!("{}{step};", var.name)
                    } else {
                        format!("{step}{};", var.name)
                    }));
                }
                1 if !var.fixed => return Some(Node::line(format!("{} {} {};", var.name, self.assign_op(), self.nonzero(2)))),
                _ => {}
            }
        }
        let e = self.of(&var.ty, 3)?;
        Some(Node::line(format!("{} = {e};", var.name)))
    }

    fn assign_op(&mut self) -> &'static str {
        self.rng.pick::<&str>(&["+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="])
    }

    fn assign_map(&mut self, map: &Map, depth: u32) -> String {
        let target = self.element(map, depth);
        match &map.value {
            Held::Agg(text, _) => format!("{target} = {};", text.replace('$', &self.int(depth))),
            Held::Plain(Type::Int(Int { bytes: 8, .. })) if self.rng.once_in(3) => match self.rng.below(3) {
                0 => format!("{target}++;"),
                1 => format!("--{target};"),
                _ => format!("{target} {} {};", self.assign_op(), self.nonzero(depth)),
            },
            Held::Plain(ty) => {
                let e = self.of(ty, depth).unwrap_or_else(|| plain(ty));
                format!("{target} = {e};")
            }
        }
    }

    fn element(&mut self, map: &Map, depth: u32) -> String {
        match &map.key {
            None => map.name.clone(),
            Some(Type::Tuple(parts)) if self.rng.once_in(2) => {
                let parts: Vec<String> = parts.iter().map(|t| self.of(t, depth.min(1)).unwrap_or_else(|| plain(t))).collect();
                format!("{}[{}]", map.name, parts.join(", "))
            }
            Some(ty) => format!("{}[{}]", map.name, self.of(ty, depth).unwrap_or_else(|| plain(ty))),
        }
    }

    fn printf(&mut self) -> Node {
        let (format, args) = self.format();
        let name = *self.rng.pick(&["printf", "printf", "printf", "printf", "errorf", "warnf"]);
        Node::line(format!("{name}(\"{format}\"{args});"))
    }

    /// A format string, and its arguments, each preceded by a comma.
    fn format(&mut self) -> (String, String) {
        let (mut format, mut args) = (String::new(), String::new());
        let most = if self.rng.once_in(12) { 20 } else { 5 };
        for _ in 0..self.rng.below(most) {
            let (e, ty) = self.value(2);
            let flags = *self.rng.pick(&["", "", "", "-", "0", "#", "+", "5", "-8", "08"]);
            let size = *self.rng.pick::<&str>(&["", "", "h", "hh", "l", "ll", "j", "z"]);
            let spec = match &ty {
                t if t.is_scalar() => match self.rng.below(9) {
                    0..2 => format!("%{flags}{size}d"),
                    2 => format!("%{flags}{size}u"),
                    3 => format!("%{flags}{size}x"),
                    4 => format!("%{flags}{size}X"),
                    5 => format!("%{flags}{size}o"),
                    6 => "%c".into(),
                    7 => "%p".into(),
                    _ => "%s".into(),
                },
                Type::Buf(_) => (*self.rng.pick(&["%r", "%rx", "%rh", "%s"])).into(),
                _ => (*self.rng.pick(&["%s", "%20s", "%-12s", "%.4s"])).into(),
            };
            format += &spec;
            let between = *self.rng.pick::<&str>(&[" ", ", ", "%%", "\\t", "x"]);
            format += between;
            args += &format!(", {e}");
        }
        (format + "\\n", args)
    }

    fn map_statement(&mut self) -> Option<Node> {
        let maps = self.maps.clone();
        let map = if maps.is_empty() { return None } else { self.rng.pick(&maps) };
        let whole = matches!(map.value, Held::Plain(_) | Held::Agg(..));
        Some(Node::line(match self.rng.below(8) {
            0 if whole => format!("print({});", map.name),
            1 => format!("print({}, {}, {});", map.name, 1 + self.rng.below(5), 1 + self.rng.below(1000)),
            2 => format!("clear({});", map.name),
            3 => format!("zero({});", map.name),
            4 => format!("print({});", self.element(map, 2)),
            5 => match &map.key {
                Some(key) => format!("delete({}, {});", map.name, self.of(key, 2)?),
                None => format!("delete({});", map.name),
            },
            6 => format!("delete({});", self.element(map, 2)),
            _ => match &map.key {
                Some(key) => Node::line(format!("if (has_key({}, {})) {{ print(1); }}", map.name, self.of(key, 1)?)).head,
                None => return None,
            },
        }))
    }

    /// A call without a value, or a call whose value is discarded.
    fn row_statement(&mut self) -> Option<Node> {
        let row = self.row()?;
        let args = self.arguments(row, 2)?;
        let call = format!("{}({args})", row.name);
        let text = match self.rng.below(2) {
            0 => format!("{call};"),
            _ => format!("_ = {call};"),
        };
        // A call that ends the probe is in a separate `for` body.
        let script = self.accepted(&text)?;
        let stops = matches!(row.codegen, Codegen::Event(e) if e.ends_probe);
        let _ = script;
        match stops {
            true => Some(Node::with(format!("if ({})", self.condition(1)), vec![Node::line(text)])),
            false => Some(Node::line(text)),
        }
    }

    fn if_statement(&mut self, depth: u32) -> Node {
        let cond = self.condition(2);
        let head = if self.rng.once_in(2) { format!("if ({cond})") } else { format!("if {cond}") };
        let mut node = Node::with(head, self.block(depth));
        while self.rng.once_in(3) && node.bodies.len() < 4 {
            let last = node.bodies.len() - 1;
            node.bodies[last].1 = format!("else if ({})", self.condition(1));
            let body = self.block(depth);
            node.bodies.push((body, String::new()));
        }
        if self.rng.once_in(2) {
            let last = node.bodies.len() - 1;
            node.bodies[last].1 = "else".into();
            let body = self.block(depth);
            node.bodies.push((body, String::new()));
        }
        node
    }

    fn for_range(&mut self, depth: u32) -> Node {
        let name = self.fresh();
        let from = if self.rng.once_in(3) { format!("({})", self.int(1)) } else { self.rng.below(3).to_string() };
        let to = if self.rng.once_in(3) { format!("({})", self.int(1)) } else { self.rng.below(40).to_string() };
        let head = if self.rng.once_in(2) { format!("for ({name} : {from}..{to})") } else { format!("for {name} : {from}..{to}") };
        self.scopes.push(vec![Var { made: format!("let {name}: int64 = 1;"), name, ty: Type::I64, fixed: false, free: false }]);
        self.fors += 1;
        self.loops += 1;
        let body = self.block(depth);
        self.fors -= 1;
        self.loops -= 1;
        self.scopes.pop();
        Node::with(head, body)
    }

    fn for_map(&mut self, depth: u32) -> Option<Node> {
        let readable = |m: &&Map| m.key.is_some() && matches!(&m.value, Held::Plain(_) | Held::Agg(_, true));
        let maps: Vec<Map> = self.maps.iter().filter(readable).cloned().collect();
        if maps.is_empty() {
            return None;
        }
        let map = self.rng.pick(&maps).clone();
        let name = self.fresh();
        let (Some(key), value) = (
            map.key.clone(),
            match &map.value {
                Held::Plain(ty) => ty.clone(),
                Held::Agg(..) => Type::I64,
            },
        ) else {
            return None;
        };
        let ty = Type::Tuple(vec![key, value]);
        let made = format!("{name} = {};", plain(&ty));
        self.scopes.push(vec![Var { name: name.clone(), ty, fixed: false, free: false, made }]);
        self.fors += 1;
        self.loops += 1;
        let body = self.block(depth);
        self.fors -= 1;
        self.loops -= 1;
        self.scopes.pop();
        Some(Node::with(format!("for ({name} : {})", map.name), body))
    }

    fn while_statement(&mut self, depth: u32) -> Node {
        let name = self.fresh();
        let (from, to) = (self.rng.below(3), 1 + self.rng.below(6));
        self.scopes.push(vec![Var { made: format!("{name} = 1;"), name: name.clone(), ty: Type::I64, fixed: false, free: false }]);
        self.loops += 1;
        let body = self.block(depth.min(2));
        self.loops -= 1;
        self.scopes.pop();
        Node::with("", vec![Node::line(format!("{name} = {from};")), Node::with(format!("while ({name}++ < {to})"), body)])
    }

    fn leave(&mut self) -> Option<Node> {
        let word = match self.rng.below(3) {
            0 if self.loops > 0 => "break;".to_string(),
            1 if self.loops > 0 => "continue;".to_string(),
            _ if self.in_macro => return None,
            _ if self.rng.once_in(2) => "return;".to_string(),
            _ => format!("return {};", self.int(1)),
        };
        Some(Node::with(format!("if ({})", self.condition(1)), vec![Node::line(word)]))
    }

    fn macro_call(&mut self, depth: u32) -> Option<String> {
        if self.macros.is_empty() || self.in_macro {
            return None;
        }
        let m = self.rng.pick(&self.macros.clone()).clone();
        let mut args = Vec::new();
        // The macro may use the argument in one of its loops.
        self.fors += 1;
        let ints: Vec<String> = m.params.iter().map(|_| self.int(depth.saturating_sub(1))).collect();
        self.fors -= 1;
        for (p, int) in m.params.iter().zip(ints) {
            args.push(match p {
                Param::Value => int,
                Param::Var => {
                    let fit = |v: &&Var| v.free && v.ty == Type::I64;
                    let vars: Vec<Var> = self.scopes.iter().flatten().filter(fit).cloned().collect();
                    if vars.is_empty() {
                        return None;
                    }
                    self.rng.pick(&vars).name.clone()
                }
                Param::Map(i) => self.maps.get(*i)?.name.clone(),
            });
        }
        let call = format!("{}({})", m.name, args.join(", "));
        Some(call)
    }

    // ---------------------------------------------------------------- expressions

    /// Any value that can be stored and printed, and its type.
    fn value(&mut self, depth: u32) -> (String, Type) {
        for _ in 0..6 {
            let found = match self.rng.below(12) {
                0..4 => return (self.int(depth), Type::I64),
                4 => return (self.condition(depth), Type::Bool),
                5 => return (self.text(depth), Type::Str(16)),
                6 | 7 => {
                    let ty = self.random_type(2);
                    self.of(&ty, depth).map(|e| (e, ty))
                }
                8 => self.any_var(),
                9 if self.rng.once_in(3) => self.function_call(depth.min(1)),
                9 => self.field_walk(),
                _ => self.call(depth),
            };
            if let Some((e, ty)) = found
                && !matches!(ty, Type::Void | Type::Args | Type::Agg(_) | Type::Struct(_))
            {
                return (e, ty);
            }
        }
        (self.int(depth), Type::I64)
    }

    fn any_var(&mut self) -> Option<(String, Type)> {
        let vars: Vec<Var> = self.scopes.iter().flatten().cloned().collect();
        if vars.is_empty() {
            return None;
        }
        let var = self.rng.pick(&vars);
        Some((var.name.clone(), var.ty.clone()))
    }

    /// A value that can be assigned to this type.
    fn of(&mut self, ty: &Type, depth: u32) -> Option<String> {
        if depth > 0 && self.rng.once_in(4) {
            let same: Vec<String> = self.scopes.iter().flatten().filter(|v| v.ty == *ty).map(|v| v.name.clone()).collect();
            if !same.is_empty() {
                return Some(self.rng.pick(&same).clone());
            }
        }
        let less = depth.saturating_sub(1);
        if depth > 1 && self.rng.once_in(10) {
            let (a, b) = (self.of(ty, less)?, self.of(ty, less)?);
            return Some(self.choice(a, b));
        }
        Some(match ty {
            Type::Int(Int { bytes: 8, signed: true }) => self.int(depth),
            Type::Int(_) => format!("({ty})({})", self.int(depth)),
            Type::Bool => self.condition(depth),
            Type::Str(_) => self.text(depth),
            Type::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(|t| self.of(t, less)).collect::<Option<_>>()?;
                format!("({})", parts.join(", "))
            }
            Type::Record(r) if r.name.is_empty() && !r.fields.is_empty() => {
                let mut fields: Vec<String> = Vec::new();
                for f in &r.fields {
                    fields.push(format!("{} = {}", f.name, self.of(&f.ty, less)?));
                }
                if self.rng.once_in(3) {
                    fields.reverse();
                }
                format!("({})", fields.join(", "))
            }
            Type::Array(elem, n) if matches!(**elem, Type::Int(_)) && (*n == 0 || elem.size() * n == 8) => {
                format!("({elem}[{}])(uint64)({})", 8 / elem.size().max(1), self.int(less))
            }
            Type::Ptr(to, _) if matches!(&**to, Type::Struct(s) if s.name == "task_struct") => match self.rng.below(3) {
                0 => "curtask".into(),
                1 => "curtask.real_parent".into(),
                _ => format!("(struct task_struct *)({})", self.int(less)),
            },
            _ => return None,
        })
    }

    fn choice(&mut self, a: String, b: String) -> String {
        let c = self.condition(1);
        match self.rng.below(3) {
            0 => format!("({c} ? {a} : {b})"),
            1 => format!("(if ({c}) {{ {a} }} else {{ {b} }})"),
            _ => {
                let name = self.fresh();
                format!("(if {c} {{ {name} = 1; {a} }} else {{ {b} }})")
            }
        }
    }

    fn literal(&mut self) -> String {
        match self.rng.below(8) {
            0..4 => self.rng.below(10).to_string(),
            4 => (*self.rng.pick(&["-1", "127", "128", "255", "256", "65535", "0x7fffffff", "0xffffffff", "4294967296"])).into(),
            5 => (*self.rng.pick(&["9223372036854775807", "18446744073709551615", "1e6", "5ms", "1_000", "010", "12ul", "3s"])).into(),
            6 => format!("0x{:x}", self.rng.next() >> self.rng.below(64)),
            _ => format!("-{}", self.rng.below(1000)),
        }
    }

    /// A divisor, which is not a constant zero.
    fn nonzero(&mut self, depth: u32) -> String {
        match self.rng.below(3) {
            0 => (1 + self.rng.below(20)).to_string(),
            1 => format!("(pid + ({}))", self.int(depth.saturating_sub(1))),
            _ => format!("(nsecs | ({}))", self.int(depth.saturating_sub(1))),
        }
    }

    /// An integer with a type. If no type can represent the result of two literals, sema reports an error. A macro's parameter
    /// may be a literal.
    fn typed(&mut self, depth: u32) -> String {
        let e = self.int(depth);
        if e.contains(['$', '@']) { e } else { format!("((uint64)({e}))") }
    }

    /// An integer of any width.
    fn int(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.small_int();
        }
        let less = depth - 1;
        for _ in 0..8 {
            let found: Option<String> = match self.rng.below(30) {
                0..4 => Some(self.small_int()),
                4..9 => {
                    let op = *self.rng.pick(&["+", "-", "*", "&", "|", "^", "<<", ">>"]);
                    let (left, right) = (self.typed(less), self.int(less));
                    // A conditional expression may have a literal on one side and a variable on the other. The later type of
                    // the variable determines whether the literal can be shifted this far.
                    Some(if op == "<<" { format!("((int64)({left}) {op} {right})") } else { format!("({left} {op} {right})") })
                }
                9 => {
                    let op = *self.rng.pick(&["/", "%"]);
                    Some(format!("({} {op} {})", self.typed(less), self.nonzero(less)))
                }
                10 => {
                    let op = *self.rng.pick(&["-", "~"]);
                    Some(format!("{op}({})", self.typed(less)))
                }
                11 | 12 => {
                    let ty = *self.rng.pick(SIMPLE);
                    Some(format!("({ty})({})", self.int(less)))
                }
                13 => {
                    let (a, b) = (self.int(less), self.int(less));
                    Some(self.choice(a, b))
                }
                14 => Some(format!("(pid ?: {})", self.int(less))),
                15 => {
                    let name = self.fresh();
                    Some(format!("{{ let {name} = {}; {name} + {} }}", self.int(less), self.int(less)))
                }
                16 | 17 => self.map_int(less),
                18 => self.step(),
                19 => self.part(),
                20 => Some(format!("strlen({})", self.text(less))),
                21 => self.index(less),
                22 => Some(
                    (*self.rng.pick(&[
                        "sizeof(uint32)",
                        "sizeof(struct task_struct)",
                        "offsetof(struct task_struct, pid)",
                        "sizeof(comm)",
                    ]))
                    .into(),
                ),
                23 => self.macro_call(less),
                24 => self.field_walk().filter(|(_, t)| matches!(t, Type::Int(_))).map(|(e, _)| e),
                25..27 => self.call(less).filter(|(_, t)| matches!(t, Type::Int(_))).map(|(e, _)| e),
                27 => self.context_int(),
                28 => match self.rng.below(3) {
                    0 => Some(format!("(int64)({})", self.condition(less))),
                    1 => self.function_call(less).filter(|(_, t)| matches!(t, Type::Int(_))).map(|(e, _)| e),
                    _ => self.through_address(),
                },
                _ => self.through_pointer(),
            };
            if let Some(e) = found {
                return e;
            }
        }
        self.small_int()
    }

    fn small_int(&mut self) -> String {
        let vars: Vec<String> = self.scopes.iter().flatten().filter(|v| matches!(v.ty, Type::Int(_))).map(|v| v.name.clone()).collect();
        match self.rng.below(5) {
            // The parser reads `(word) & x` as a cast.
            0 | 1 if !vars.is_empty() => match self.rng.pick(&vars) {
                name if name.starts_with('$') => name.clone(),
                name => format!("(0 + {name})"),
            },
            2 => (*self.rng.pick(&["pid", "tid", "uid", "cpu", "nsecs", "rand", "elapsed", "ncpus"])).into(),
            _ => self.literal(),
        }
    }

    fn map_int(&mut self, depth: u32) -> Option<String> {
        let fits = |m: &&Map| matches!(&m.value, Held::Plain(Type::Int(_)) | Held::Agg(_, true));
        let maps: Vec<Map> = self.maps.iter().filter(fits).cloned().collect();
        if maps.is_empty() {
            return None;
        }
        let map = self.rng.pick(&maps).clone();
        if map.key.is_some() && self.rng.once_in(5) {
            return Some(format!("len({})", map.name));
        }
        let e = self.element(&map, depth);
        // The cast reads the aggregation of all CPUs.
        Some(match &map.value {
            Held::Plain(Type::Int(_)) if self.rng.once_in(4) => format!("{e}++"),
            Held::Plain(_) => e,
            Held::Agg(..) => format!("(int64){e}"),
        })
    }

    fn step(&mut self) -> Option<String> {
        let vars: Vec<Var> = self.scopes.iter().flatten().filter(|v| v.free && matches!(v.ty, Type::Int(_))).cloned().collect();
        if vars.is_empty() {
            return None;
        }
        let name = &self.rng.pick(&vars).name;
        Some(format!("({})", [format!("{name}++"), format!("++{name}"), format!("{name}--")][self.rng.below(3)]))
    }

    /// A number from a tuple, record, array or string in a variable.
    fn part(&mut self) -> Option<String> {
        let vars: Vec<Var> = self.scopes.iter().flatten().cloned().collect();
        if vars.is_empty() {
            return None;
        }
        let var = self.rng.pick(&vars);
        let (mut e, mut ty) = (var.name.clone(), var.ty.clone());
        for _ in 0..4 {
            match ty.clone() {
                Type::Int(_) | Type::Bool => return Some(e),
                Type::Tuple(parts) => {
                    let i = self.rng.below(parts.len());
                    e = if self.rng.once_in(3) { format!("{e}[{i}]") } else { format!("{e}.{i}") };
                    ty = parts.get(i)?.clone();
                }
                Type::Record(r) if !r.fields.is_empty() => {
                    let f = self.rng.pick(&r.fields);
                    e = format!("{e}.{}", f.name);
                    ty = f.ty.clone();
                }
                Type::Array(elem, n) => {
                    // Arrays without a length have eight bytes.
                    e = format!("{e}[{}]", self.rng.below(if n == 1 { 1 } else { 2 }));
                    ty = *elem;
                }
                Type::Str(_) => return Some(format!("{e}[0]")),
                _ => return None,
            }
        }
        None
    }

    fn index(&mut self, depth: u32) -> Option<String> {
        let i = if self.rng.once_in(2) { self.rng.below(8).to_string() } else { format!("({})", self.int(depth)) };
        Some(match self.rng.below(3) {
            0 if !i.starts_with('(') => format!("((uint8[8])(uint64)({}))[{i}]", self.int(depth)),
            1 => format!("((uint8[8])(uint64)({}))[(uint64)({i}) % 8]", self.int(depth)),
            _ if i.starts_with('(') => format!("comm[(uint64){i} % 16]"),
            _ => format!("comm[{i}]"),
        })
    }

    fn context_int(&mut self) -> Option<String> {
        if self.fors > 0 || self.in_macro {
            return None;
        }
        let c = &self.point.context;
        let mut all: Vec<String> = (0..c.args).map(|i| format!("arg{i}")).collect();
        if c.features.contains(ContextFeatures::RETVAL) {
            all.push("retval".into());
        }
        all.extend(c.fields.iter().filter(|f| matches!(f.field.ty, Type::Int(_))).map(|f| format!("args.{}", f.field.name)));
        if all.is_empty() { None } else { Some(self.rng.pick(&all).clone()) }
    }

    fn through_pointer(&mut self) -> Option<String> {
        let ty = *self.rng.pick(SIMPLE);
        let space = *self.rng.pick(&["", "kptr", "uptr"]);
        Some(format!("*({ty} *){space}({})", self.int(1)))
    }

    /// A value that is read through the address of a variable or of a map element.
    fn through_address(&mut self) -> Option<String> {
        let vars: Vec<String> = self
            .scopes
            .iter()
            .flatten()
            .filter(|v| v.name.starts_with('$') && matches!(v.ty, Type::Int(_)))
            .map(|v| v.name.clone())
            .collect();
        let address = if !vars.is_empty() && self.rng.once_in(2) {
            format!("&{}", self.rng.pick(&vars))
        } else {
            let maps: Vec<Map> = self.maps.iter().filter(|m| matches!(&m.value, Held::Plain(Type::Int(_)))).cloned().collect();
            if maps.is_empty() {
                return None;
            }
            let map = self.rng.pick(&maps).clone();
            format!("&{}", self.element(&map, 1))
        };
        Some(match self.rng.below(4) {
            0 => format!("(uint64)({address})"),
            1 => format!("*({address} + ({}))", self.int(1)),
            2 => format!("(int64)({address} == 0)"),
            _ => format!("*({address})"),
        })
    }

    /// A value that is read from a kernel struct or from the probe's fields, through members and pointers.
    fn field_walk(&mut self) -> Option<(String, Type)> {
        let fields = &self.point.context.fields;
        let (mut e, mut ty) = if !fields.is_empty() && self.fors == 0 && !self.in_macro && self.rng.once_in(2) {
            let f = self.rng.pick(fields);
            (format!("args.{}", f.field.name), f.field.ty.clone())
        } else {
            ("curtask".to_string(), self.ask("curtask")?)
        };
        for _ in 0..1 + self.rng.below(4) {
            let mut at = ty.clone();
            while let Type::Ptr(to, _) = at {
                at = *to;
            }
            let Type::Struct(s) = &at else { break };
            let record = self.home.machine.sys.expand(s)?;
            if record.fields.is_empty() {
                break;
            }
            let f = self.rng.pick(&record.fields);
            if f.name.is_empty() {
                break;
            }
            e = format!("{e}.{}", f.name);
            ty = f.ty.clone();
        }
        let ty = self.ask(&e)?;
        // Excludes arrays without a length, because only generated variables can have them.
        let sane = ty.size() <= 256 && !matches!(ty, Type::Array(_, 0));
        sane.then_some((e, ty))
    }

    /// A condition.
    fn condition(&mut self, depth: u32) -> String {
        if depth == 0 {
            return (*self.rng.pick(&["true", "false", "pid > 10", "cpu == 0", "rand % 3 == 0", "pid"])).into();
        }
        let less = depth - 1;
        match self.rng.below(10) {
            0..4 => {
                let op = *self.rng.pick(&["<", ">", "<=", ">=", "==", "!="]);
                format!("({} {op} {})", self.typed(less), self.int(less))
            }
            4 => format!("({} && {})", self.condition(less), self.condition(less)),
            5 => format!("({} || {})", self.condition(less), self.condition(less)),
            6 => format!("!({})", self.condition(less)),
            7 => {
                let op = *self.rng.pick(&["==", "!="]);
                format!("({} {op} {})", self.text(less), self.text(less))
            }
            8 => {
                let ty = self.random_type(1);
                let op = *self.rng.pick(&["==", "!="]);
                match (self.of(&ty, less), self.of(&ty, less)) {
                    (Some(a), Some(b)) => format!("({a} {op} {b})"),
                    _ => "true".into(),
                }
            }
            _ => format!("(bool)({})", self.int(less)),
        }
    }

    /// A string.
    fn text(&mut self, depth: u32) -> String {
        let vars: Vec<String> = self.scopes.iter().flatten().filter(|v| matches!(v.ty, Type::Str(_))).map(|v| v.name.clone()).collect();
        match self.rng.below(9) {
            0 | 1 => (*self.rng.pick(&["\"\"", "\"a\"", "\"hello\"", "\"a longer text, of 28 bytes\\n\"", "\"\\x41\\101\""])).into(),
            2 => "comm".into(),
            3 | 4 if !vars.is_empty() => self.rng.pick(&vars).clone(),
            5 if depth > 0 => {
                let n = *self.rng.pick(&["", ", 8", ", 64", ", 100", ", (pid % 20)"]);
                format!("str({}{n})", self.int(depth - 1))
            }
            6 if depth > 0 => {
                let (a, b) = (self.text(depth - 1), self.text(depth - 1));
                self.choice(a, b)
            }
            7 if depth > 0 => {
                let maps: Vec<Map> = self.maps.iter().filter(|m| matches!(&m.value, Held::Plain(Type::Str(_)))).cloned().collect();
                if maps.is_empty() {
                    return "probe".into();
                }
                let map = self.rng.pick(&maps).clone();
                self.element(&map, depth - 1)
            }
            8 if depth > 0 => match self.call(depth - 1) {
                Some((e, Type::Str(_))) => e,
                _ => "comm".into(),
            },
            _ => "comm".into(),
        }
    }

    // ---------------------------------------------------------------- calls

    fn row(&mut self) -> Option<&'static Builtin> {
        let row = *self.rng.pick(&self.home.rows);
        let from_context = matches!(row.codegen, Codegen::Context(_));
        let stops = matches!(row.codegen, Codegen::Event(e) if e.ends_probe);
        let here = self.point.context.features.contains(row.needs) && !((self.fors > 0 || self.in_macro) && (from_context || stops));
        // A macro can be called in any probe.
        let anywhere = !self.in_macro || row.needs == ContextFeatures::NONE;
        // A stack walk itself nests up to four functions.
        let fits = !(WALKS.contains(&row.name) && (self.in_macro || self.fors + self.loops > 1));
        (here && anywhere && fits && !matches!(row.codegen, Codegen::Aggregate(_))).then_some(row)
    }

    /// A call with a value, and its type according to sema.
    fn call(&mut self, depth: u32) -> Option<(String, Type)> {
        for _ in 0..4 {
            let Some(row) = self.row() else { continue };
            if matches!(row.codegen, Codegen::Event(_)) {
                continue;
            }
            let Some(args) = self.arguments(row, depth) else { continue };
            let call = if args.is_empty() && row.params.is_empty() && self.rng.once_in(2) {
                row.name.to_string()
            } else {
                format!("{}({args})", row.name)
            };
            if let Some(ty) = self.ask(&call)
                && ty != Type::Void
            {
                return Some((call, ty));
            }
        }
        None
    }

    fn arguments(&mut self, row: &'static Builtin, depth: u32) -> Option<String> {
        let mut args: Vec<String> = Vec::new();
        let mut map: Option<Map> = None;
        for p in row.params {
            if p.optional && self.rng.once_in(2) {
                break;
            }
            if p.accepts == Accepts::Format {
                let (format, rest) = self.format();
                let format = if row.name == "system" { "true".into() } else { format };
                args.push(format!("\"{format}\"{}", if format == "true" { String::new() } else { rest }));
                break;
            }
            let special = WORDS.iter().find(|(r, n, _)| *r == row.name && *n == p.name);
            let arg = match (special, p.accepts) {
                (Some((_, _, words)), _) => {
                    let word = (*self.rng.pick(words)).replace('#', &self.rng.below(1 << 30).to_string());
                    format!("\"{word}\"")
                }
                (None, Accepts::Int) => self.int(depth),
                (None, Accepts::LitInt) => (1 + self.rng.below(32)).to_string(),
                (None, Accepts::Str) => self.text(depth),
                (None, Accepts::LitStr) => "\"abc\"".into(),
                (None, Accepts::Addr) => self.address(depth),
                (None, Accepts::StrOrAddr) => {
                    if self.rng.once_in(2) {
                        self.text(depth)
                    } else {
                        self.address(depth)
                    }
                }
                (None, Accepts::Any | Accepts::Printable) => self.value(depth).0,
                (None, Accepts::Map) => self.some_map(false, &mut map)?.name,
                (None, Accepts::KeyedMap) => self.some_map(true, &mut map)?.name,
                (None, Accepts::Element) => {
                    let m = self.some_map(false, &mut map)?;
                    self.element(&m, depth)
                }
                (None, Accepts::MapOrValue) => match self.rng.below(2) {
                    0 => self.some_map(false, &mut map)?.name,
                    _ => self.value(depth).0,
                },
                (None, Accepts::Key) => {
                    let key = map.as_ref()?.key.clone()?;
                    self.of(&key, depth)?
                }
                (None, Accepts::Word(words) | Accepts::WordOrInt(words)) => (*self.rng.pick(words)).into(),
                (None, Accepts::Format) => return None,
                #[allow(unreachable_patterns)]
                (None, _) => self.int(depth),
            };
            args.push(arg);
        }
        Some(args.join(", "))
    }

    fn address(&mut self, depth: u32) -> String {
        match self.rng.below(4) {
            0 => "curtask".into(),
            1 => self.context_int().unwrap_or_else(|| "curtask.comm".into()),
            2 => self.field_walk().map_or_else(|| "curtask".into(), |(e, _)| e),
            _ => self.int(depth),
        }
    }

    fn some_map(&mut self, keyed: bool, chosen: &mut Option<Map>) -> Option<Map> {
        let maps: Vec<Map> = self.maps.iter().filter(|m| !keyed || m.key.is_some()).cloned().collect();
        if maps.is_empty() {
            return None;
        }
        let map = self.rng.pick(&maps).clone();
        *chosen = Some(map.clone());
        Some(map)
    }
}

fn int_named(name: &str) -> Type {
    let bytes = match name.trim_start_matches(|c: char| c.is_ascii_alphabetic()) {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        _ => 8,
    };
    Type::Int(Int { bytes, signed: !name.starts_with('u') })
}

/// The statement that creates a map.
fn made(map: &Map) -> String {
    let key = map.key.as_ref().map(|k| format!("[{}]", plain(k))).unwrap_or_default();
    let value = match &map.value {
        Held::Plain(ty) => plain(ty),
        Held::Agg(text, _) => text.replace('$', "1"),
    };
    format!("{}{key} = {value};", map.name)
}

/// The simplest value of a type.
fn plain(ty: &Type) -> String {
    match ty {
        Type::Int(Int { bytes: 8, signed: true }) => "1".into(),
        Type::Int(_) => format!("({ty})1"),
        Type::Bool => "true".into(),
        Type::Str(_) => "\"\"".into(),
        Type::Tuple(parts) => format!("({})", parts.iter().map(plain).collect::<Vec<_>>().join(", ")),
        Type::Record(r) => {
            format!("({})", r.fields.iter().map(|f| format!("{} = {}", f.name, plain(&f.ty))).collect::<Vec<_>>().join(", "))
        }
        Type::Array(elem, _) => format!("({elem}[{}])(uint64)1", 8 / elem.size().max(1)),
        Type::Ptr(..) => "curtask".into(),
        _ => "1".into(),
    }
}

/// Renders nodes as text.
pub fn text(nodes: &[Node]) -> String {
    tree::text(nodes)
}
