//! Generates statements and blocks.

use super::exprs::int_name;
use super::world::T;
use super::{Gen, Map, Value};
use std::fmt::Write as _;

/// A kind of statement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Assign,
    Let,
    Compound,
    MapSet,
    MapCompound,
    Show,
    Printf,
    Say,
    If,
    IfElse,
    While,
    Range,
    Each,
    Unroll,
    Scope,
    Leave,
    Remove,
    MapAction,
    Find,
    Join,
    Effect,
    Risky,
    Text,
    Comptime,
    IfValue,
}

/// All kinds of statements. Some are listed several times, because they are chosen more often.
pub const KINDS: &[Kind] = &[
    Kind::Assign,
    Kind::Let,
    Kind::Compound,
    Kind::MapSet,
    Kind::MapSet,
    Kind::MapCompound,
    Kind::Show,
    Kind::Printf,
    Kind::Printf,
    Kind::Say,
    Kind::If,
    Kind::IfElse,
    Kind::While,
    Kind::Range,
    Kind::Range,
    Kind::Each,
    Kind::Each,
    Kind::Unroll,
    Kind::Scope,
    Kind::Leave,
    Kind::Leave,
    Kind::Remove,
    Kind::MapAction,
    Kind::Find,
    Kind::Join,
    Kind::Effect,
    Kind::Risky,
    Kind::Text,
    Kind::Comptime,
    Kind::IfValue,
];

impl Gen<'_> {
    /// Generates indented statements in their own scope.
    pub(super) fn block(&mut self, level: u32) -> String {
        self.scopes.push(Vec::new());
        let mut out = String::new();
        let most = if level == 1 { self.left } else { 1 + self.rng.below(5) as u32 };
        let mut made = 0;
        while made < most && self.left > 0 {
            made += 1;
            self.left -= 1;
            let statement = self.statement(level);
            let last = statement.starts_with("return") || statement.starts_with("break") || statement.starts_with("continue");
            let _ = writeln!(out, "{}{statement}", "  ".repeat(level as usize));
            if last {
                break;
            }
        }
        self.scopes.pop();
        out
    }

    fn body(&mut self, level: u32) -> String {
        let inner = self.block(level + 1);
        format!("{{\n{inner}{}}}", "  ".repeat(level as usize))
    }

    fn looped(&mut self, level: u32) -> String {
        self.loops += 1;
        let body = self.body(level);
        self.loops -= 1;
        body
    }

    fn declare(&mut self, name: &str, t: T) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.push((name.into(), t));
        }
    }

    fn statement(&mut self, level: u32) -> String {
        let mut kind = *self.rng.pick(&self.kinds);
        let nests =
            matches!(kind, Kind::If | Kind::IfElse | Kind::While | Kind::Range | Kind::Each | Kind::Unroll | Kind::Scope | Kind::Comptime);
        if nests && level > self.nest {
            kind = Kind::MapSet;
        }
        if kind == Kind::Leave && level == 1 {
            kind = Kind::Show;
        }
        let d = self.deep;
        match kind {
            Kind::Assign => self.assign(d),
            Kind::Let => self.let_(d),
            Kind::Compound => match self.assignable_int() {
                Some((name, _)) if name.starts_with('$') => self.compound(&name, d),
                _ => self.assign(d),
            },
            Kind::MapSet => match self.some_map() {
                Some(map) => self.set_map(&map, d),
                None => self.assign(d),
            },
            Kind::MapCompound => match self.map_where(&|t| matches!(t, T::Int(..))) {
                Some((name, key, _)) => {
                    let place = format!("{name}{}", self.subscript(&key, 1));
                    self.compound(&place, d)
                }
                None => self.assign(d),
            },
            Kind::Show => self.show(d),
            Kind::Printf => self.printf(d),
            Kind::Say => self.say(d),
            Kind::If => {
                let cond = self.bool(d);
                format!("if ({cond}) {}", self.body(level))
            }
            Kind::IfElse => {
                let cond = self.bool(d);
                let mut out = format!("if {cond} {}", self.body(level));
                if self.rng.once_in(2) {
                    let cond = self.bool(d.min(1));
                    let _ = write!(out, " else if ({cond}) {}", self.body(level));
                }
                let _ = write!(out, " else {}", self.body(level));
                out
            }
            Kind::While => self.while_(level, d),
            Kind::Range => {
                let name = self.new_name().replace("$v", "$i");
                let from = if self.rng.once_in(3) { self.int(1).0 } else { self.rng.between(-2, 3).to_string() };
                let to = if self.rng.once_in(3) { self.int(d.min(2)).0 } else { self.rng.between(0, 40).to_string() };
                self.scopes.push(vec![(name.clone(), T::Int(8, true))]);
                let body = self.looped(level);
                self.scopes.pop();
                let (from, to) = (simple(&from), simple(&to));
                if self.rng.once_in(2) {
                    format!("for ({name} : {from}..{to}) {body}")
                } else {
                    format!("for {name} : {from}..{to} {body}")
                }
            }
            Kind::Each => self.each(level),
            Kind::Unroll => {
                let most = [3, 8, 20][self.rng.below(3)].min(400 / self.copies.max(1));
                if most < 2 {
                    return self.show(d);
                }
                let n = self.rng.between(1, i64::from(most)) as u32;
                self.copies *= n;
                let body = self.looped(level);
                self.copies /= n;
                format!("unroll ({n}) {body}")
            }
            Kind::Scope => self.body(level),
            Kind::Leave => self.leave(d),
            Kind::Remove => match self.map_with_key() {
                Some((name, key)) => {
                    let key = self.key(&key, d);
                    if self.rng.once_in(2) { format!("delete({name}, {key});") } else { format!("delete({name}[{key}]);") }
                }
                None => self.assign(d),
            },
            Kind::MapAction => self.whole_map(),
            Kind::Find => self.find(d),
            Kind::Join => match self.field(&T::List) {
                Some(list) if self.loops == 0 || self.rng.once_in(2) => {
                    if self.rng.once_in(2) {
                        format!("join({list});")
                    } else {
                        format!("join({list}, \", \");")
                    }
                }
                _ => format!("cat(\"/proc/%d/comm\", {});", self.int(1).0),
            },
            Kind::Effect => match self.assignable_int() {
                Some((name, _)) => format!("{name}{};", if self.rng.once_in(2) { "++" } else { "--" }),
                None => format!("_ = {};", self.int(d).0),
            },
            Kind::Risky => self.risky(d),
            Kind::Text => {
                let name = self.new_name();
                let value = self.text(d);
                self.declare(&name, T::Str(0));
                format!("{name} = {value};")
            }
            Kind::Comptime => {
                let cond = *self.rng.pick(&[
                    "is_str(comm)",
                    "is_integer(pid)",
                    "sizeof(uint64) == 8",
                    "kfunc_exist(\"bpf_task_from_pid\")",
                    "config.max_strlen < 100",
                ]);
                format!("if comptime {cond} {} else {}", self.body(level), self.body(level))
            }
            Kind::IfValue => {
                let name = self.new_name();
                let t = self.int_type();
                let (a, b) = (self.expr(&t, d), self.expr(&t, d));
                let cond = self.bool(d.min(2));
                let text = format!("{name} = {cond} ? {a} : {b};");
                self.declare(&name, t);
                text
            }
        }
    }

    fn assign(&mut self, d: u32) -> String {
        let to = self.var_where(&|_| true).filter(|v| v.0.starts_with("$v"));
        match to {
            Some((name, t)) if self.rng.once_in(2) => format!("{name} = {};", self.expr(&t, d)),
            _ => {
                let name = self.new_name();
                let t = self.type_(2);
                let value = self.expr(&t, d);
                self.declare(&name, t);
                format!("{name} = {value};")
            }
        }
    }

    fn let_(&mut self, d: u32) -> String {
        let name = self.new_name();
        let (t, text) = match self.rng.below(4) {
            0 => (T::Str(0), "string".to_string()),
            1 => (T::Bool, "bool".to_string()),
            _ => {
                let t = self.int_type();
                let text = if let T::Int(b, s) = t { int_name(b, s) } else { String::new() };
                (t, text)
            }
        };
        let value = self.expr(&t, d);
        let out = match (self.rng.below(3), &t) {
            (0, T::Int(..)) => format!("let {name} : {text};"),
            (1, T::Int(..) | T::Bool) => format!("let {name} : {text} = {value};"),
            _ => format!("let {name} = {value};"),
        };
        self.declare(&name, t);
        out
    }

    fn compound(&mut self, place: &str, d: u32) -> String {
        let op = *self.rng.pick(&["+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="]);
        let value = if op.len() == 3 { self.rng.between(0, 70).to_string() } else { self.int(d).0 };
        format!("{place} {op} {value};")
    }

    fn some_map(&mut self) -> Option<Map> {
        (!self.maps.is_empty()).then(|| self.rng.pick(&self.maps).clone())
    }

    /// Assigns a value of the map's type to a map.
    pub(super) fn set_map(&mut self, map: &Map, d: u32) -> String {
        let key = self.subscript(&map.key, d);
        match &map.value {
            Value::Of(t) => format!("{}{key} = {};", map.name, self.expr(t, d)),
            Value::Aggregation(f, _) => {
                let value = self.int(d).0;
                format!("{}{key} = {};", map.name, f.replace("{}", &value))
            }
        }
    }

    fn show(&mut self, d: u32) -> String {
        match self.rng.below(6) {
            0 if self.loops == 0 => match self.some_map() {
                Some(map) => match self.rng.below(3) {
                    0 if map.key.is_some() => format!("print({}, 5);", map.name),
                    1 if map.key.is_some() => format!("print({}, 3, 2);", map.name),
                    _ => format!("print({});", map.name),
                },
                None => "print(1);".into(),
            },
            1 => match self.some_map() {
                Some(map) => {
                    let key = self.subscript(&map.key, d.min(2));
                    if key.is_empty() && self.loops > 0 {
                        format!("print({});", self.shown(d))
                    } else {
                        format!("print({}{key});", map.name)
                    }
                }
                None => "print(2);".into(),
            },
            2 => {
                let parts: Vec<String> = (0..2 + self.rng.below(4)).map(|_| self.shown(d.min(2))).collect();
                format!("print(({}));", parts.join(", "))
            }
            _ => format!("print({});", self.shown(d)),
        }
    }

    fn printf(&mut self, d: u32) -> String {
        let n = match self.rng.below(12) {
            0 => 10 + self.rng.below(25),
            _ => self.rng.below(7),
        };
        let (mut format, mut args) = (String::new(), String::new());
        for _ in 0..n {
            let (how, arg) = match self.rng.below(8) {
                0..=3 => {
                    let how =
                        *self.rng.pick(&["%d", "%u", "%x", "%ld", "%5d", "%-8lu", "%c", "%llx", "%p", "%hhd", "%T", "%B", "%.2f", "%#o"]);
                    (how, self.int(d).0)
                }
                4 | 5 => (*self.rng.pick(&["%s", "%-16s", "%5s", "%.3s"]), self.text(d)),
                6 => ("%s", self.late()),
                _ => ("%s", self.shown(d)),
            };
            let _ = write!(format, "{how} ");
            let _ = write!(args, ", {arg}");
        }
        let call = *self.rng.pick(&["printf", "printf", "printf", "printf", "errorf", "warnf"]);
        format!("{call}(\"{format}\\n\"{args});")
    }

    fn say(&mut self, d: u32) -> String {
        match self.rng.below(8) {
            0 => "time(\"%H:%M\");".into(),
            1 if self.longest > 20 => format!("print(strftime(\"%H:%M:%S.%f\", {}));", self.int(d.min(1)).0),
            2 => "debugf(\"here %d %s\", pid, comm);".into(),
            3 => format!("cat(\"/proc/%d/stat%s\", {}, \"\");", self.int(d.min(2)).0),
            4 => format!("print({});", self.late()),
            5 => format!(
                "printf(\"%r %rx\\n\", buf(curtask, {}), buf(curtask, 8));",
                self.rng.pick(&["4", "64", "300", "pid % 77", "nsecs"])
            ),
            6 if self.loops == 0 => format!("assert({}, \"not so\");", self.bool(d)),
            _ => format!("printf(\"%s %d\\n\", {}, {});", self.text(d), self.int(d).0),
        }
    }

    fn while_(&mut self, level: u32, d: u32) -> String {
        let (start, cond) = match self.rng.below(4) {
            0 => (String::new(), self.bool(d)),
            1 => (String::new(), "true".into()),
            _ => {
                let name = self.new_name();
                let start = format!("{name} = (int64)0;\n{}", "  ".repeat(level as usize));
                self.declare(&name, T::Int(8, true));
                let cond = match self.rng.below(3) {
                    0 => format!("{name}++ < {}", self.rng.between(1, 50)),
                    1 => format!("++{name} < {} && ({})", self.rng.between(1, 50), self.bool(d)),
                    _ => format!("{name} < {}", simple(&self.int(d.min(2)).0.clone())),
                };
                (start, cond)
            }
        };
        format!("{start}while ({cond}) {}", self.looped(level))
    }

    fn each(&mut self, level: u32) -> String {
        let maps: Vec<Map> = self.maps.iter().filter(|m| m.key.is_some() && m.value != Value::Aggregation("", false)).cloned().collect();
        let readable = |m: &Map| match m.value {
            Value::Of(_) => true,
            Value::Aggregation(_, readable) => readable && self.world.reads_aggregations,
        };
        let maps: Vec<Map> = maps.into_iter().filter(readable).collect();
        if maps.is_empty() || !self.world.loops_over_maps {
            return self.show(self.deep);
        }
        let map = self.rng.pick(&maps).clone();
        let name = self.new_name().replace("$v", "$e");
        let value = match &map.value {
            Value::Of(t) => t.clone(),
            Value::Aggregation(..) => T::Int(8, true),
        };
        let pair = T::Tup(vec![map.key.clone().unwrap_or(T::Bool), value]);
        self.scopes.push(vec![(name.clone(), pair)]);
        let body = self.looped(level);
        self.scopes.pop();
        format!("for ({name} : {}) {body}", map.name)
    }

    fn leave(&mut self, d: u32) -> String {
        let gives = self.gives.clone();
        match self.rng.below(6) {
            0..=2 if self.loops > 0 => "break;".into(),
            3 if self.loops > 0 => "continue;".into(),
            4 if gives.is_none() && self.loops == 0 => "exit();".into(),
            _ => match gives {
                Some(t) => format!("return {};", self.expr(&t, d.min(2))),
                None => "return;".into(),
            },
        }
    }

    fn whole_map(&mut self) -> String {
        if self.loops > 0 {
            return self.show(1);
        }
        match self.some_map() {
            Some(map) => match self.rng.below(4) {
                0 => format!("clear({});", map.name),
                1 => format!("zero({});", map.name),
                2 => format!("print({0}); clear({0});", map.name),
                _ => format!("print({0}); zero({0});", map.name),
            },
            None => "print(3);".into(),
        }
    }

    fn find(&mut self, d: u32) -> String {
        let maps: Vec<Map> =
            self.maps.iter().filter(|m| m.key.is_some() && matches!(m.value, Value::Of(T::Int(..) | T::Str(_)))).cloned().collect();
        if maps.is_empty() {
            return self.assign(d);
        }
        let map = self.rng.pick(&maps).clone();
        let (Some(key), Value::Of(t)) = (map.key.clone(), map.value.clone()) else { return self.assign(d) };
        let name = self.new_name();
        let first = self.expr(&t, 1);
        let key = self.key(&key, d.min(2));
        self.declare(&name, t);
        format!("let {name} = {first}; if (find({}, {key}, {name})) {{ print({name}); }}", map.name)
    }

    fn risky(&mut self, d: u32) -> String {
        const CALLS: &[&str] = &["signal(\"USR1\")", "signal_thread(10)", "write_user(uptr(0), \"abc\", 3)", "override(1)", "unwatch(1)"];
        let call = *self.rng.pick(CALLS);
        if self.rng.once_in(3) {
            return format!("system(\"echo %s %d\", {}, {});", self.text(d), self.int(d.min(1)).0);
        }
        if self.has(call) { format!("{call};") } else { self.show(d) }
    }
}

/// Renders the end of a range. Parentheses separate it from `..` and `{`.
fn simple(text: &str) -> String {
    if text.chars().all(|c| c.is_alphanumeric() || "$_-".contains(c)) { text.into() } else { format!("({text})") }
}
