//! Represents scripts with known output: their tree, types and text.
//!
//! Types follow the rules of the language, independently of sema. In arithmetic, an integer has 64 bits, and is signed if an
//! operand is signed or the operator is `-`. A nonnegative literal has the signedness of the other operand.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub enum Ty {
    Int { bytes: u8, signed: bool },
    Bool,
    Str,
    Tuple(Vec<Ty>),
    Record(Vec<(String, Ty)>),
}

pub const I64: Ty = Ty::Int { bytes: 8, signed: true };
pub const U64: Ty = Ty::Int { bytes: 8, signed: false };

impl Ty {
    pub fn signed(&self) -> bool {
        matches!(self, Ty::Int { signed: true, .. })
    }

    pub fn name(&self) -> String {
        match self {
            Ty::Int { bytes, signed } => format!("{}int{}", if *signed { "" } else { "u" }, u32::from(*bytes) * 8),
            Ty::Bool => "bool".into(),
            Ty::Str => "string".into(),
            Ty::Tuple(parts) => format!("({})", parts.iter().map(Ty::name).collect::<Vec<_>>().join(", ")),
            Ty::Record(_) => "record".into(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Mul,
    Div,
    Mod,
    Add,
    Sub,
    Shl,
    Shr,
    Lt,
    Gt,
    Le,
    Ge,
    Eq,
    Ne,
    BitAnd,
    BitXor,
    BitOr,
    And,
    Or,
}

impl Op {
    /// The operator's symbol and its precedence.
    pub fn sign(self) -> (&'static str, u8) {
        match self {
            Op::Mul => ("*", 10),
            Op::Div => ("/", 10),
            Op::Mod => ("%", 10),
            Op::Add => ("+", 9),
            Op::Sub => ("-", 9),
            Op::Shl => ("<<", 8),
            Op::Shr => (">>", 8),
            Op::Lt => ("<", 7),
            Op::Gt => (">", 7),
            Op::Le => ("<=", 7),
            Op::Ge => (">=", 7),
            Op::Eq => ("==", 6),
            Op::Ne => ("!=", 6),
            Op::BitAnd => ("&", 5),
            Op::BitXor => ("^", 4),
            Op::BitOr => ("|", 3),
            Op::And => ("&&", 2),
            Op::Or => ("||", 1),
        }
    }

    pub fn compares(self) -> bool {
        matches!(self, Op::Lt | Op::Gt | Op::Le | Op::Ge | Op::Eq | Op::Ne)
    }
}

/// An expression.
#[derive(Clone, Debug)]
pub enum E {
    /// A literal: its value and its text.
    Lit(i128, String),
    Bool(bool),
    Str(String),
    Var(String),
    Map(String, Option<Box<E>>),
    Bin(Op, Box<E>, Box<E>),
    Neg(Box<E>),
    BitNot(Box<E>),
    Not(Box<E>),
    Cast(Ty, Box<E>),
    /// A conditional expression. The last field is true for `? :` and false for `if`.
    Cond(Box<E>, Box<E>, Box<E>, bool),
    Elvis(Box<E>, Box<E>),
    Tuple(Vec<E>),
    Record(Vec<(String, E)>),
    Part(Box<E>, usize),
    Member(Box<E>, String),
    Block(Vec<S>, Box<E>),
    /// An increment or decrement: a variable or map element, whether it is an increment, and whether it is a postfix operator.
    Step(Box<E>, bool, bool),
    Strlen(Box<E>),
    Strncmp(Box<E>, Box<E>, usize),
    Contains(Box<E>, Box<E>),
    /// A byte of a string at a constant index.
    Byte(Box<E>, usize),
    HasKey(String, Box<E>),
    Len(String),
    Bswap(Box<E>),
    /// A number that LLVM does not know: a constant, combined with `rand` that is masked by `&`.
    Hidden(u64),
    /// A call of a macro: its name and arguments, and its expanded body and value.
    Macro(String, Vec<E>, Vec<S>, Box<E>),
}

/// A conversion of `printf`.
#[derive(Clone, Debug)]
pub struct Spec {
    pub flags: &'static str,
    pub width: usize,
    pub size: &'static str,
    pub conv: char,
}

/// A statement.
#[derive(Clone, Debug)]
pub enum S {
    /// An assignment: the name, the value, whether it has `let`, and whether it has a type.
    Set(String, E, bool, bool),
    Compound(String, Op, E),
    SetMap(String, Option<E>, E),
    CompoundMap(String, Option<E>, Op, E),
    /// An aggregation: the map, the key, the function and the value.
    Aggregate(String, Option<E>, &'static str, Option<E>),
    Delete(String, E),
    Print(E),
    Printf(Vec<(String, Spec, E)>),
    If(E, Vec<S>, Vec<S>),
    Range(String, E, E, Vec<S>),
    /// A loop over a map: the variable, the map and the body. The body may not depend on the order of entries.
    Each(String, String, Vec<S>),
    While(E, Vec<S>),
    Unroll(u32, Vec<S>),
    Break,
    Continue,
    Return,
    Scope(Vec<S>),
    Effect(E),
}

/// A map.
#[derive(Clone, Debug)]
pub struct Map {
    pub key: Option<Ty>,
    pub value: Ty,
    /// The function that fills the map. It is empty for assignments.
    pub function: &'static str,
}

/// A macro: its parameters as the script spells them, its body and its value.
#[derive(Clone, Debug)]
pub struct Macro {
    pub name: String,
    pub params: Vec<String>,
    pub body: Vec<S>,
    pub value: E,
}

/// A script.
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub vars: BTreeMap<String, Ty>,
    pub maps: BTreeMap<String, Map>,
    pub macros: Vec<Macro>,
    /// The probes, each with the name of its attach point.
    pub probes: Vec<(&'static str, Vec<S>)>,
    /// Write only the necessary parentheses.
    pub bare: bool,
}

impl Script {
    /// The type of an expression.
    pub fn ty(&self, e: &E) -> Ty {
        match e {
            E::Lit(n, _) => match i64::try_from(*n) {
                Ok(_) => I64,
                Err(_) => U64,
            },
            E::Bool(_) | E::Not(_) | E::Contains(..) | E::HasKey(..) => Ty::Bool,
            E::Str(_) => Ty::Str,
            E::Var(name) => self.vars.get(name).cloned().unwrap_or(I64),
            E::Map(name, _) => self.maps.get(name).map_or(I64, |m| m.value.clone()),
            E::Bin(op, a, b) => self.binary(*op, a, b),
            E::Neg(a) | E::BitNot(a) => match self.literal(e) {
                Some(n) if i64::try_from(n).is_ok() => I64,
                Some(_) => U64,
                None if self.ty(a).signed() => I64,
                None => U64,
            },
            E::Cast(ty, _) => ty.clone(),
            E::Cond(_, a, b, _) | E::Elvis(a, b) => self.either(a, b),
            E::Tuple(parts) => Ty::Tuple(parts.iter().map(|p| self.ty(p)).collect()),
            E::Record(fields) => Ty::Record(fields.iter().map(|(n, f)| (n.clone(), self.ty(f))).collect()),
            E::Part(base, i) => match self.ty(base) {
                Ty::Tuple(parts) => parts.get(*i).cloned().unwrap_or(I64),
                _ => I64,
            },
            E::Member(base, name) => match self.ty(base) {
                Ty::Record(fields) => fields.into_iter().find(|(n, _)| n == name).map_or(I64, |(_, t)| t),
                _ => I64,
            },
            E::Block(_, value) | E::Macro(_, _, _, value) => self.ty(value),
            E::Step(target, _, _) => self.ty(target),
            E::Strlen(_) | E::Strncmp(..) | E::Hidden(_) => U64,
            E::Byte(..) => Ty::Int { bytes: 1, signed: true },
            E::Len(_) => I64,
            E::Bswap(a) => match self.ty(a) {
                Ty::Int { bytes, .. } => Ty::Int { bytes, signed: false },
                _ => U64,
            },
        }
    }

    fn binary(&self, op: Op, a: &E, b: &E) -> Ty {
        if op.compares() || matches!(op, Op::And | Op::Or) {
            return Ty::Bool;
        }
        let (x, y) = (self.ty(a), self.ty(b));
        if x == Ty::Bool && y == Ty::Bool {
            return Ty::Bool;
        }
        if x == Ty::Str {
            return Ty::Str;
        }
        if op == Op::Sub || self.meets_signed(a, b) { I64 } else { U64 }
    }

    /// Does an operator treat these two integers as signed?
    pub fn meets_signed(&self, a: &E, b: &E) -> bool {
        match (self.flexible(a), self.flexible(b)) {
            (true, true) => true,
            (true, false) => self.ty(b).signed(),
            (false, true) => self.ty(a).signed(),
            (false, false) => self.ty(a).signed() || self.ty(b).signed(),
        }
    }

    fn either(&self, a: &E, b: &E) -> Ty {
        let (x, y) = (self.ty(a), self.ty(b));
        match (&x, &y) {
            (Ty::Int { .. }, Ty::Int { .. }) => {
                if self.meets_signed(a, b) {
                    I64
                } else {
                    U64
                }
            }
            (Ty::Tuple(p), Ty::Tuple(q)) => Ty::Tuple(p.iter().zip(q).map(|(p, q)| wider(p, q)).collect()),
            (Ty::Record(p), Ty::Record(q)) => {
                let other = |n: &String, t: &Ty| q.iter().find(|(m, _)| m == n).map_or(t.clone(), |(_, u)| wider(t, u));
                Ty::Record(p.iter().map(|(n, t)| (n.clone(), other(n, t))).collect())
            }
            _ => x,
        }
    }

    /// The value of an expression that the language treats as a literal.
    pub fn literal(&self, e: &E) -> Option<i128> {
        match e {
            E::Lit(n, _) => Some(*n),
            E::Neg(a) => self.literal(a).map(|n| -n),
            // The complement of a literal without a minus sign is unsigned.
            E::BitNot(a) => self.literal(a).map(|n| if n < 0 { !n } else { i128::from(u64::MAX) - n }),
            E::Bin(op, a, b) => fold(*op, self.literal(a)?, self.literal(b)?),
            // The value replaces the call of the macro.
            E::Macro(_, _, body, value) if body.is_empty() => self.literal(value),
            _ => None,
        }
    }

    fn flexible(&self, e: &E) -> bool {
        match e {
            E::Cond(_, a, b, _) => self.flexible(a) && self.flexible(b),
            E::Block(_, value) | E::Macro(_, _, _, value) => self.flexible(value),
            _ => self.literal(e).is_some_and(|n| n >= 0 && i64::try_from(n).is_ok()),
        }
    }

    /// Does a division have an unsigned 64-bit operand?
    pub fn divides_unsigned(&self, a: &E, b: &E) -> bool {
        self.ty(a) == U64 || self.ty(b) == U64
    }

    /// Could a compiler know the value before the program runs?
    pub fn constant(&self, e: &E) -> bool {
        match e {
            E::Lit(..) | E::Bool(_) | E::Str(_) => true,
            E::Neg(a) | E::BitNot(a) | E::Not(a) | E::Cast(_, a) | E::Strlen(a) | E::Byte(a, _) | E::Bswap(a) => self.constant(a),
            E::Bin(_, a, b) | E::Elvis(a, b) | E::Contains(a, b) | E::Strncmp(a, b, _) => self.constant(a) && self.constant(b),
            E::Cond(a, b, c, _) => self.constant(a) || self.constant(b) && self.constant(c),
            _ => false,
        }
    }

    /// Renders the script as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for m in &self.macros {
            let _ = writeln!(out, "macro {}({}) {{", m.name, m.params.join(", "));
            self.block(&m.body, 1, &mut out);
            let _ = writeln!(out, "  {}\n}}", self.show(&m.value, 0));
        }
        for (point, body) in &self.probes {
            let _ = writeln!(out, "{point} {{");
            self.block(body, 1, &mut out);
            out.push_str("}\n");
        }
        out
    }

    fn block(&self, stmts: &[S], depth: usize, out: &mut String) {
        for s in stmts {
            self.stmt(s, depth, out);
        }
    }

    fn body(&self, head: &str, stmts: &[S], depth: usize, out: &mut String) {
        let indent = "  ".repeat(depth);
        let _ = writeln!(out, "{indent}{head} {{");
        self.block(stmts, depth + 1, out);
        let _ = writeln!(out, "{indent}}}");
    }

    fn stmt(&self, s: &S, depth: usize, out: &mut String) {
        let line = |text: String, out: &mut String| {
            let _ = writeln!(out, "{}{text};", "  ".repeat(depth));
        };
        let element = |m: &str, k: &Option<E>| self.show(&E::Map(m.into(), k.clone().map(Box::new)), 20);
        match s {
            S::Set(name, e, word, typed) => {
                let word = if *word { "let " } else { "" };
                let ty = if *typed { format!(": {}", self.vars.get(name).map(Ty::name).unwrap_or_default()) } else { String::new() };
                line(format!("{word}{name}{ty} = {}", self.show(e, 0)), out);
            }
            S::Compound(name, op, e) => line(format!("{name} {}= {}", op.sign().0, self.show(e, 0)), out),
            S::SetMap(m, k, e) => line(format!("{} = {}", element(m, k), self.show(e, 0)), out),
            S::CompoundMap(m, k, op, e) => line(format!("{} {}= {}", element(m, k), op.sign().0, self.show(e, 0)), out),
            S::Aggregate(m, k, f, e) => {
                let arg = e.as_ref().map(|e| self.show(e, 0)).unwrap_or_default();
                line(format!("{} = {f}({arg})", element(m, k)), out);
            }
            S::Delete(m, k) => line(format!("delete({m}, {})", self.show(k, 0)), out),
            S::Print(e) => line(format!("print({})", self.show(e, 0)), out),
            S::Printf(parts) => {
                let (mut format, mut args) = (String::new(), String::new());
                for (before, spec, e) in parts {
                    format += before;
                    let width = if spec.width > 0 { spec.width.to_string() } else { String::new() };
                    let _ = write!(format, "%{}{width}{}{}", spec.flags, spec.size, spec.conv);
                    let _ = write!(args, ", {}", self.show(e, 0));
                }
                line(format!("printf(\"{format}\\n\"{args})"), out);
            }
            S::If(c, a, b) => {
                self.body(&format!("if ({})", self.show(c, 0)), a, depth, out);
                if !b.is_empty() {
                    out.pop();
                    out.push_str(" else {\n");
                    self.block(b, depth + 1, out);
                    let _ = writeln!(out, "{}}}", "  ".repeat(depth));
                }
            }
            S::Range(v, a, b, body) => self.body(&format!("for {v} : {}..{}", self.show(a, 20), self.show(b, 20)), body, depth, out),
            S::Each(v, m, body) => self.body(&format!("for ({v} : {m})"), body, depth, out),
            S::While(c, body) => self.body(&format!("while ({})", self.show(c, 0)), body, depth, out),
            S::Unroll(n, body) => self.body(&format!("unroll({n})"), body, depth, out),
            S::Break => line("break".into(), out),
            S::Continue => line("continue".into(), out),
            S::Return => line("return".into(), out),
            S::Scope(body) => self.body("", body, depth, out),
            S::Effect(e) => line(self.show(e, 0), out),
        }
    }

    /// Renders an expression for a place that requires a minimum precedence: 0 for any expression, 11 for prefix operators, 20
    /// for atoms.
    fn show(&self, e: &E, least: u8) -> String {
        let (text, level) = match e {
            E::Lit(n, written) => (written.clone(), if *n < 0 { 11 } else { 20 }),
            E::Bool(b) => (b.to_string(), 20),
            E::Str(s) => (format!("\"{s}\""), 20),
            E::Var(name) => (name.clone(), 20),
            E::Map(name, None) => (name.clone(), 20),
            E::Map(name, Some(key)) => match &**key {
                E::Tuple(parts) if parts.len() > 1 => {
                    let parts: Vec<String> = parts.iter().map(|p| self.show(p, 0)).collect();
                    (format!("{name}[{}]", parts.join(", ")), 20)
                }
                key => (format!("{name}[{}]", self.show(key, 0)), 20),
            },
            E::Bin(op, a, b) => {
                let (sign, level) = op.sign();
                let all = if self.bare { 0 } else { 11 };
                (format!("{} {sign} {}", self.show(a, level.max(all)), self.show(b, (level + 1).max(all))), level)
            }
            // The operand of a prefix operator is an atom, so a second minus sign is in parentheses.
            E::Neg(a) => (format!("-{}", self.show(a, 20)), 11),
            E::BitNot(a) => (format!("~{}", self.show(a, 20)), 11),
            E::Not(a) => (format!("!{}", self.show(a, 20)), 11),
            E::Cast(ty, a) => (format!("({}){}", ty.name(), self.show(a, 20)), 11),
            E::Cond(c, a, b, true) => (format!("({} ? {} : {})", self.show(c, 1), self.show(a, 1), self.show(b, 1)), 20),
            E::Cond(c, a, b, false) => (format!("(if ({}) {{ {} }} else {{ {} }})", self.show(c, 0), self.show(a, 0), self.show(b, 0)), 20),
            E::Elvis(a, b) => (format!("({} ?: {})", self.show(a, 1), self.show(b, 1)), 20),
            E::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(|p| self.show(p, 0)).collect();
                (if parts.len() == 1 { format!("({},)", parts.join("")) } else { format!("({})", parts.join(", ")) }, 20)
            }
            E::Record(fields) => {
                let fields: Vec<String> = fields.iter().map(|(n, f)| format!("{n} = {}", self.show(f, 0))).collect();
                (format!("({})", fields.join(", ")), 20)
            }
            E::Part(base, i) => (format!("{}.{i}", self.show(base, 20)), 20),
            E::Member(base, name) => (format!("{}.{name}", self.show(base, 20)), 20),
            E::Block(stmts, value) => {
                let mut text = String::new();
                self.block(stmts, 0, &mut text);
                (format!("({{ {} {} }})", text.replace('\n', " "), self.show(value, 0)), 20)
            }
            E::Step(target, up, post) => {
                let (sign, target) = (if *up { "++" } else { "--" }, self.show(target, 20));
                (if *post { format!("({target}{sign})") } else { format!("({sign}{target})") }, 20)
            }
            E::Strlen(a) => (format!("strlen({})", self.show(a, 0)), 20),
            E::Strncmp(a, b, n) => (format!("strncmp({}, {}, {n})", self.show(a, 0), self.show(b, 0)), 20),
            E::Contains(a, b) => (format!("strcontains({}, {})", self.show(a, 0), self.show(b, 0)), 20),
            E::Byte(a, i) => (format!("{}[{i}]", self.show(a, 20)), 20),
            E::HasKey(m, k) => (format!("has_key({m}, {})", self.show(k, 0)), 20),
            E::Len(m) => (format!("len({m})"), 20),
            E::Bswap(a) => (format!("bswap({})", self.show(a, 0)), 20),
            E::Hidden(n) => (format!("(rand & 0 | {n})"), 20),
            E::Macro(name, args, _, _) => {
                let args: Vec<String> = args.iter().map(|a| self.show(a, 0)).collect();
                (format!("{name}({})", args.join(", ")), 20)
            }
        };
        if level < least { format!("({text})") } else { text }
    }
}

/// The type that can represent two types of parts.
fn wider(a: &Ty, b: &Ty) -> Ty {
    match (a, b) {
        (Ty::Int { .. }, Ty::Int { .. }) if a != b => {
            if a.signed() || b.signed() {
                I64
            } else {
                U64
            }
        }
        _ => a.clone(),
    }
}

/// Computes an operator of two literals if the result is certain.
pub fn fold(op: Op, a: i128, b: i128) -> Option<i128> {
    let n = match op {
        Op::Mul => a.checked_mul(b)?,
        Op::Div => a.checked_div(b)?,
        Op::Mod => a.checked_rem(b)?,
        Op::Add => a + b,
        Op::Sub => a - b,
        Op::Shl if (0..64).contains(&b) => a << b,
        Op::Shr if (0..64).contains(&b) => a >> b,
        Op::BitAnd => a & b,
        Op::BitXor => a ^ b,
        Op::BitOr => a | b,
        _ => return None,
    };
    let small = |n: i128| i64::try_from(n).is_ok();
    (small(a) && small(b) && small(n)).then_some(n)
}
