//! Generates scripts with known output.

use super::exact::{E, I64, Macro, Map, Op, S, Script, Spec, Ty, U64, fold};
use super::rng::Rng;

/// Generates a script.
pub fn invent(seed: u64) -> Script {
    let mut g = Inventor {
        rng: Rng::new(seed ^ 0xabcd_ef01),
        s: Script::default(),
        scopes: Vec::new(),
        names: 0,
        loops: 0,
        depth: 0,
        room: 0,
        in_macro: false,
    };
    g.script();
    g.s
}

struct Inventor {
    rng: Rng,
    s: Script,
    /// The variables in each scope, and whether they can be assigned.
    scopes: Vec<Vec<(String, bool)>>,
    names: usize,
    /// The number of enclosing loops that `break` can leave.
    loops: usize,
    depth: usize,
    room: i64,
    in_macro: bool,
}

const INTS: &[Op] = &[Op::Add, Op::Sub, Op::Mul, Op::BitAnd, Op::BitOr, Op::BitXor, Op::Shl, Op::Shr, Op::Div, Op::Mod];
const ORDERS: &[Op] = &[Op::Lt, Op::Gt, Op::Le, Op::Ge, Op::Eq, Op::Ne];
const WORDS: &[&str] = &["", "a", "b", "ab", "abc", "hello", "hello, world", "zz", "a longer text that is not short", "x\\ty"];

fn boxed(e: E) -> Box<E> {
    Box::new(e)
}

impl Inventor {
    fn script(&mut self) {
        self.s.bare = self.rng.once_in(2);
        // These values are unknown before the program runs.
        let mut start = Vec::new();
        for i in 0..2 + self.rng.below(3) {
            let name = format!("@h{i}");
            let signed = self.rng.once_in(2);
            self.s.maps.insert(name.clone(), Map { key: None, value: if signed { I64 } else { U64 }, function: "" });
            let n = self.bits();
            let e = if signed { E::Cast(I64, boxed(E::Hidden(n))) } else { E::Hidden(n) };
            start.push(S::SetMap(name, None, e));
        }
        for i in 0..2 + self.rng.below(4) {
            let name = format!("@m{i}");
            let map = self.new_map();
            self.s.maps.insert(name.clone(), map.clone());
            start.push(self.first(&name, &map));
        }
        for i in 0..self.rng.below(3) {
            let m = self.new_macro(i);
            self.s.macros.push(m);
        }
        let probes = 1 + self.rng.below(2);
        for i in 0..probes {
            self.scopes = vec![Vec::new()];
            self.room = 4 + self.rng.below(20) as i64;
            let mut body = if i == 0 { std::mem::take(&mut start) } else { Vec::new() };
            body.extend(self.stmts());
            let point = if i > 0 && self.rng.once_in(2) { "end" } else { "begin" };
            self.s.probes.push((point, body));
        }
    }

    /// A 64-bit number. Small numbers and edge values are more frequent.
    fn bits(&mut self) -> u64 {
        match self.rng.below(6) {
            0 | 1 => self.rng.below(20) as u64,
            2 => (self.rng.below(20) as u64).wrapping_neg(),
            3 => *self.rng.pick(&[127, 128, 255, 256, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff]),
            4 => *self.rng.pick(&[i64::MAX as u64, i64::MIN as u64, u64::MAX, u64::MAX - 1, 1 << 32]),
            _ => {
                let down = self.rng.below(64);
                self.rng.next() >> down
            }
        }
    }

    fn int_ty(&mut self) -> Ty {
        Ty::Int { bytes: *self.rng.pick(&[1, 2, 4, 8]), signed: self.rng.once_in(2) }
    }

    fn sign_ty(&mut self) -> Ty {
        if self.rng.once_in(2) { I64 } else { U64 }
    }

    fn any_ty(&mut self, depth: u32) -> Ty {
        match self.rng.below(if depth == 0 { 7 } else { 9 }) {
            0..4 => self.sign_ty(),
            4 => Ty::Bool,
            5 | 6 => Ty::Str,
            7 => Ty::Tuple((0..1 + self.rng.below(3)).map(|_| self.any_ty(depth - 1)).collect()),
            _ => {
                let n = 1 + self.rng.below(3);
                Ty::Record((0..n).map(|i| (["x", "y", "zed"][i].to_string(), self.any_ty(depth - 1))).collect())
            }
        }
    }

    fn new_map(&mut self) -> Map {
        let key = (!self.rng.once_in(4)).then(|| match self.rng.below(6) {
            0..3 => self.sign_ty(),
            3 => Ty::Str,
            _ => self.any_ty(1),
        });
        if self.rng.once_in(3) {
            let function = *self.rng.pick(&["count", "sum", "min", "max", "avg", "stats", "hist"]);
            let value = if function == "count" { U64 } else { self.sign_ty() };
            return Map { key, value, function };
        }
        Map { key, value: self.any_ty(1), function: "" }
    }

    /// The first assignment to a map, which determines its type.
    fn first(&mut self, name: &str, map: &Map) -> S {
        self.scopes = vec![Vec::new()];
        let key = map.key.as_ref().map(|t| self.exactly(t, 0));
        if !map.function.is_empty() {
            let arg = (map.function != "count").then(|| self.exactly(&map.value, 0));
            return S::Aggregate(name.into(), key, map.function, arg);
        }
        let value = self.exactly(&map.value, 0);
        S::SetMap(name.into(), key, value)
    }

    fn new_macro(&mut self, i: usize) -> Macro {
        let params: Vec<String> =
            (0..self.rng.below(3)).map(|p| if self.rng.once_in(3) { format!("$p{p}") } else { format!("p{p}") }).collect();
        self.scopes = vec![Vec::new()];
        for p in &params {
            self.s.vars.insert(p.clone(), I64);
            if let Some(scope) = self.scopes.last_mut() {
                scope.push((p.clone(), false));
            }
        }
        self.in_macro = true;
        let mut body = Vec::new();
        for p in params.iter().filter(|p| p.starts_with('$')) {
            let e = self.int(2);
            body.push(S::Set(p.clone(), e, false, false));
        }
        if self.rng.once_in(2) {
            // Without a cast, the type would depend on the arguments.
            let e = E::Cast(I64, boxed(self.int(2)));
            let name = format!("$t{i}");
            self.s.vars.insert(name.clone(), I64);
            body.push(S::Set(name.clone(), e, true, false));
            if let Some(scope) = self.scopes.last_mut() {
                scope.push((name, true));
            }
        }
        if self.rng.once_in(2) {
            // A parameter without `$` may be replaced by a map, so a tuple is printed.
            let e = self.int(1);
            body.push(S::Print(E::Tuple(vec![e, E::Bool(false)])));
        }
        let value = self.int(2);
        self.in_macro = false;
        Macro { name: format!("mac{i}"), params, body, value }
    }

    fn fresh(&mut self) -> String {
        self.names += 1;
        format!("$v{}", self.names)
    }

    // ---------------------------------------------------------------- statements

    fn stmts(&mut self) -> Vec<S> {
        self.scopes.push(Vec::new());
        self.depth += 1;
        let mut out = Vec::new();
        for _ in 0..1 + self.rng.below(7) {
            if self.room <= 0 {
                break;
            }
            self.room -= 1;
            let s = self.stmt();
            let ends = matches!(s, S::Break | S::Continue | S::Return);
            out.push(s);
            if ends {
                break;
            }
        }
        self.depth -= 1;
        self.scopes.pop();
        out
    }

    fn stmt(&mut self) -> S {
        loop {
            let nested = self.depth < 4;
            return match self.rng.below(26) {
                0..4 => self.new_var(),
                4 | 5 => match self.set_var() {
                    Some(s) => s,
                    None => continue,
                },
                6..10 => match self.set_map() {
                    Some(s) => s,
                    None => continue,
                },
                10..13 => {
                    let ty = self.any_ty(2);
                    match self.of(&ty, 3) {
                        // Without a tuple, this would print the map.
                        e @ E::Map(_, None) => S::Print(E::Tuple(vec![e, E::Bool(true)])),
                        e => S::Print(e),
                    }
                }
                13..15 => self.printf(),
                15..18 if nested => {
                    let c = self.condition(2);
                    let (a, b) = (self.stmts(), if self.rng.once_in(2) { self.stmts() } else { Vec::new() });
                    S::If(c, a, b)
                }
                18 | 19 if nested => self.range(),
                20 if nested => self.while_(),
                21 if nested => {
                    self.loops += 1;
                    let s = S::Unroll(1 + self.rng.below(3) as u32, self.stmts());
                    self.loops -= 1;
                    s
                }
                22 if nested => match self.each() {
                    Some(s) => s,
                    None => continue,
                },
                23 if nested => S::Scope(self.stmts()),
                24 => match self.rng.below(6) {
                    0 | 1 if self.loops > 0 => S::If(self.condition(1), vec![S::Break], Vec::new()),
                    2 | 3 if self.loops > 0 => S::If(self.condition(1), vec![S::Continue], Vec::new()),
                    4 => S::If(self.condition(1), vec![S::Return], Vec::new()),
                    _ => continue,
                },
                25 => match self.macro_call(1) {
                    Some(e) => S::Effect(e),
                    None => continue,
                },
                _ => continue,
            };
        }
    }

    fn declare(&mut self, ty: Ty, free: bool) -> String {
        let name = self.fresh();
        self.s.vars.insert(name.clone(), ty);
        if let Some(scope) = self.scopes.last_mut() {
            scope.push((name.clone(), free));
        }
        name
    }

    fn new_var(&mut self) -> S {
        if self.rng.once_in(4) {
            let ty = self.int_ty();
            let e = E::Cast(ty.clone(), boxed(self.int(2)));
            let name = self.declare(ty, true);
            return S::Set(name, e, true, true);
        }
        let ty = self.any_ty(2);
        let e = self.exactly(&ty, 3);
        let word = self.rng.once_in(2);
        let name = self.declare(ty, true);
        S::Set(name, e, word, false)
    }

    fn free(&mut self, fits: impl Fn(&Ty) -> bool) -> Option<String> {
        let all: Vec<String> =
            self.scopes.iter().flatten().filter(|(n, free)| *free && fits(&self.s.vars[n])).map(|(n, _)| n.clone()).collect();
        if all.is_empty() { None } else { Some(self.rng.pick(&all).clone()) }
    }

    fn set_var(&mut self) -> Option<S> {
        let name = self.free(|_| true)?;
        let ty = self.s.vars[&name].clone();
        match ty {
            Ty::Int { bytes: 8, signed } if self.rng.once_in(2) => {
                let op = *self.rng.pick(INTS);
                let e = self.operand(op, 2);
                let ty = self.s.ty(&E::Bin(op, boxed(E::Var(name.clone())), boxed(e.clone())));
                // A signed value would change the variable to signed.
                if ty.signed() != signed {
                    return None;
                }
                Some(S::Compound(name, op, e))
            }
            Ty::Int { signed, .. } if self.rng.once_in(2) => {
                Some(S::Effect(E::Step(boxed(E::Var(name)), !signed || self.rng.once_in(2), self.rng.once_in(2))))
            }
            Ty::Int { bytes: 1..8, .. } => Some(S::Set(name, E::Cast(ty, boxed(self.int(2))), false, false)),
            ty => {
                let e = self.of(&ty, 3);
                Some(S::Set(name, e, false, false))
            }
        }
    }

    fn set_map(&mut self) -> Option<S> {
        let all: Vec<(String, Map)> =
            self.s.maps.iter().filter(|(n, _)| !n.starts_with("@h")).map(|(n, m)| (n.clone(), m.clone())).collect();
        let (name, map) = self.rng.pick(&all).clone();
        let key = map.key.as_ref().map(|t| self.of(t, 2));
        if !map.function.is_empty() {
            let arg = (map.function != "count").then(|| self.exactly(&map.value, 2));
            return Some(S::Aggregate(name, key, map.function, arg));
        }
        if let (Some(k), true) = (&key, self.rng.once_in(8)) {
            return Some(S::Delete(name, k.clone()));
        }
        if let Ty::Int { signed, .. } = map.value {
            match self.rng.below(4) {
                0 => {
                    let target = E::Map(name, simple(key)?.map(Box::new));
                    return Some(S::Effect(E::Step(boxed(target), !signed || self.rng.once_in(2), self.rng.once_in(2))));
                }
                1 => {
                    let op = *self.rng.pick(INTS);
                    let e = self.operand(op, 2);
                    let key = simple(key)?;
                    let whole = E::Bin(op, boxed(E::Map(name.clone(), key.clone().map(Box::new))), boxed(e.clone()));
                    if self.s.ty(&whole).signed() != signed {
                        return None;
                    }
                    return Some(S::CompoundMap(name, key, op, e));
                }
                _ => {}
            }
        }
        let e = self.of(&map.value, 3);
        Some(S::SetMap(name, key, e))
    }

    fn printf(&mut self) -> S {
        let mut parts = Vec::new();
        for _ in 0..1 + self.rng.below(4) {
            let before = (*self.rng.pick(&["", " ", "x=", "%% ", ", "])).to_string();
            let flags = *self.rng.pick(&["", "", "", "-", "0"]);
            let width = if self.rng.once_in(2) { 0 } else { self.rng.below(20) };
            let (spec, e) = if self.rng.once_in(3) {
                let ty = self.any_ty(2);
                let flags = if flags == "0" { "" } else { flags };
                (Spec { flags, width, size: "", conv: 's' }, self.of(&ty, 2))
            } else {
                let conv = *self.rng.pick(&['d', 'd', 'u', 'x', 'X', 'o']);
                let flags = match (conv, self.rng.below(5)) {
                    ('d', 0) => "+",
                    ('x', 0) => "#",
                    _ => flags,
                };
                let size = *self.rng.pick(&["l", "ll", "l", "hh", "h"]);
                (Spec { flags, width, size, conv }, self.int(2))
            };
            parts.push((before, spec, e));
        }
        S::Printf(parts)
    }

    fn range(&mut self) -> S {
        let from = self.rng.between(-2, 3);
        let to = from + self.rng.between(0, 5);
        let literal = |n: i64| E::Lit(n.into(), n.to_string());
        let hidden = |n: i64| E::Cast(I64, boxed(E::Hidden(n as u64)));
        let (a, b) = if self.rng.once_in(2) { (hidden(from), literal(to)) } else { (literal(from), hidden(to)) };
        self.scopes.push(Vec::new());
        let v = self.declare(I64, self.rng.clone().once_in(3));
        self.loops += 1;
        let body = self.stmts();
        self.loops -= 1;
        self.scopes.pop();
        S::Range(v, a, b, body)
    }

    /// A `while` loop with its own counter.
    fn while_(&mut self) -> S {
        let name = self.fresh();
        self.s.vars.insert(name.clone(), I64);
        let most = 1 + self.rng.below(4);
        let step = E::Step(boxed(E::Var(name.clone())), true, true);
        let mut c = E::Bin(Op::Lt, boxed(step), boxed(E::Lit(most as i128, most.to_string())));
        if self.rng.once_in(3) {
            c = E::Bin(Op::And, boxed(c), boxed(self.condition(1)));
        }
        self.scopes.push(vec![(name.clone(), false)]);
        self.loops += 1;
        let body = self.stmts();
        self.loops -= 1;
        self.scopes.pop();
        S::Scope(vec![S::Set(name, E::Cast(I64, boxed(E::Lit(0, "0".into()))), false, false), S::While(c, body)])
    }

    /// A loop over a map whose result does not depend on the order of entries.
    fn each(&mut self) -> Option<S> {
        let readable = |m: &Map| m.key.is_some() && !matches!(m.function, "stats" | "hist");
        let all: Vec<(String, Map)> = self.s.maps.iter().filter(|(_, m)| readable(m)).map(|(n, m)| (n.clone(), m.clone())).collect();
        if all.is_empty() {
            return None;
        }
        let (name, map) = self.rng.pick(&all).clone();
        let (total, number) = (self.fresh(), self.fresh());
        self.s.vars.insert(total.clone(), I64);
        self.s.vars.insert(number.clone(), I64);
        let zero = || E::Cast(I64, boxed(E::Lit(0, "0".into())));
        let v = self.fresh();
        let key = map.key.clone()?;
        self.s.vars.insert(v.clone(), Ty::Tuple(vec![key.clone(), map.value.clone()]));
        let mut body = vec![S::Effect(E::Step(boxed(E::Var(number.clone())), true, true))];
        for (i, ty) in [key, map.value].iter().enumerate() {
            let part = E::Part(boxed(E::Var(v.clone())), i);
            let n = match ty {
                Ty::Int { .. } | Ty::Bool => E::Cast(I64, boxed(part)),
                Ty::Str => E::Cast(I64, boxed(E::Strlen(boxed(part)))),
                _ => continue,
            };
            body.push(S::Compound(total.clone(), Op::Add, n));
        }
        let before = vec![S::Set(total.clone(), zero(), false, false), S::Set(number.clone(), zero(), false, false)];
        let after = vec![S::Print(E::Tuple(vec![E::Var(total), E::Var(number)]))];
        Some(S::Scope(before.into_iter().chain([S::Each(v, name, body)]).chain(after).collect()))
    }

    fn macro_call(&mut self, depth: u32) -> Option<E> {
        if self.s.macros.is_empty() {
            return None;
        }
        let m = self.rng.pick(&self.s.macros.clone()).clone();
        // Each use has its own variable names.
        self.names += 1;
        let suffix = format!("_{}", self.names);
        let mut args = Vec::new();
        let (mut body, mut value) = (m.body.clone(), m.value.clone());
        let mut own = Vec::new();
        for s in &m.body {
            if let S::Set(name, _, true, _) = s {
                own.push(name.clone());
            }
        }
        for name in own.iter().filter(|n| !m.params.contains(n)) {
            let renamed = format!("{name}{suffix}");
            self.s.vars.insert(renamed.clone(), I64);
            put(&mut body, &mut value, name, &E::Var(renamed));
        }
        // An argument may contain a parameter of an enclosing macro with the same name.
        for p in &m.params {
            put(&mut body, &mut value, p, &E::Var(format!("{p}{suffix}")));
        }
        for p in &m.params {
            let arg = if p.starts_with('$') { E::Var(self.free(|t| *t == I64)?) } else { self.int(depth) };
            put(&mut body, &mut value, &format!("{p}{suffix}"), &arg);
            args.push(arg);
        }
        Some(E::Macro(m.name, args, body, boxed(value)))
    }

    // ---------------------------------------------------------------- expressions

    /// An expression of exactly this type, so that it determines the type of a variable.
    fn exactly(&mut self, ty: &Ty, depth: u32) -> E {
        match ty {
            Ty::Int { .. } => {
                let e = self.int(depth);
                if self.s.ty(&e) == *ty && self.s.literal(&e).is_none() { e } else { E::Cast(ty.clone(), boxed(e)) }
            }
            Ty::Tuple(parts) => E::Tuple(parts.iter().map(|t| self.exactly(t, depth.min(2))).collect()),
            Ty::Record(fields) => E::Record(fields.iter().map(|(n, t)| (n.clone(), self.exactly(t, depth.min(2)))).collect()),
            ty => self.of(ty, depth),
        }
    }

    /// An expression that can be assigned to this type.
    fn of(&mut self, ty: &Ty, depth: u32) -> E {
        let less = depth.saturating_sub(1);
        if depth > 0 && self.rng.once_in(4) {
            let same: Vec<String> = self.scopes.iter().flatten().filter(|(n, _)| self.s.vars[n] == *ty).map(|(n, _)| n.clone()).collect();
            if !same.is_empty() {
                return E::Var(self.rng.pick(&same).clone());
            }
            let maps: Vec<(String, Map)> = self
                .s
                .maps
                .iter()
                .filter(|(_, m)| m.value == *ty && !matches!(m.function, "stats" | "hist"))
                .map(|(n, m)| (n.clone(), m.clone()))
                .collect();
            if !maps.is_empty() {
                let (name, map) = self.rng.pick(&maps).clone();
                let key = map.key.as_ref().map(|t| boxed(self.of(t, less)));
                let e = E::Map(name, key);
                return if map.function.is_empty() { e } else { E::Cast(ty.clone(), boxed(e)) };
            }
        }
        if depth > 1 && self.rng.once_in(8) {
            let (c, a, b) = (self.unknown(less), self.exactly(ty, less), self.exactly(ty, less));
            return E::Cond(boxed(c), boxed(a), boxed(b), self.rng.once_in(2));
        }
        match ty {
            Ty::Int { bytes: 8, signed: true } => self.int(depth),
            Ty::Int { bytes: 8, signed: false } => {
                let e = self.int(depth);
                match self.s.literal(&e) {
                    Some(n) if n >= 0 => e,
                    _ if self.s.ty(&e).signed() => E::Cast(ty.clone(), boxed(e)),
                    _ => e,
                }
            }
            Ty::Int { .. } => E::Cast(ty.clone(), boxed(self.int(depth))),
            Ty::Bool => self.condition_bool(depth),
            Ty::Str => self.text(depth),
            Ty::Tuple(parts) => E::Tuple(parts.iter().map(|t| self.exactly(t, less)).collect()),
            Ty::Record(fields) => {
                let mut fields: Vec<(String, E)> = fields.iter().map(|(n, t)| (n.clone(), self.exactly(t, less))).collect();
                if self.rng.once_in(3) {
                    fields.reverse();
                }
                E::Record(fields)
            }
        }
    }

    fn literal(&mut self) -> E {
        let n = match self.rng.below(5) {
            0..3 => self.rng.between(0, 20),
            3 => -self.rng.between(1, 300),
            _ => *self.rng.pick(&[127, 128, 255, 256, 65535, 0x7fff_ffff, 0xffff_ffff, i64::MAX]),
        };
        let written = match self.rng.below(6) {
            0 if n >= 0 => format!("0x{n:x}"),
            1 if n > 7 => format!("0{n:o}"),
            2 if n >= 1000 => format!("{}_{:03}", n / 1000, n % 1000),
            3 if n >= 0 => format!("{n}ul"),
            _ => n.to_string(),
        };
        E::Lit(n.into(), written)
    }

    /// An integer of any type.
    fn int(&mut self, depth: u32) -> E {
        if depth == 0 {
            return self.small();
        }
        let less = depth - 1;
        for _ in 0..8 {
            let e = match self.rng.below(22) {
                0..3 => self.small(),
                3..9 => {
                    let op = *self.rng.pick(INTS);
                    let (a, b) = (self.int(less), self.operand(op, less));
                    self.sound(op, a, b)
                }
                9 => {
                    let e = self.int(less);
                    // No type can represent the negative of a literal that exceeds `int64`.
                    let beyond = self.s.literal(&e).is_some_and(|n| n > i64::MAX.into());
                    E::Neg(boxed(if beyond { E::Cast(U64, boxed(e)) } else { e }))
                }
                10 => E::BitNot(boxed(self.int(less))),
                11 | 12 => {
                    let ty = self.int_ty();
                    let e = self.int(less);
                    if self.s.ty(&e) == ty && self.s.literal(&e).is_none() { e } else { E::Cast(ty, boxed(e)) }
                }
                13 => {
                    let (c, a, b) = (self.unknown(less), self.int(less), self.int(less));
                    E::Cond(boxed(c), boxed(a), boxed(b), self.rng.once_in(2))
                }
                14 => {
                    let a = self.hidden();
                    E::Elvis(boxed(a), boxed(self.int(less)))
                }
                15 if !self.in_macro => {
                    let e = self.exactly(&I64, less);
                    self.scopes.push(Vec::new());
                    let name = self.declare(I64, false);
                    let value = self.int(less);
                    self.scopes.pop();
                    E::Block(vec![S::Set(name, e, true, false)], boxed(value))
                }
                16 => E::Cast(I64, boxed(self.condition_bool(less))),
                17 => match self.rng.below(4) {
                    0 => E::Strncmp(boxed(self.text(less)), boxed(self.text(less)), self.rng.below(6)),
                    1 => match self.text_var() {
                        Some(e) => E::Byte(boxed(e), 0),
                        None => continue,
                    },
                    _ => E::Strlen(boxed(self.text(less))),
                },
                18 => match self.part(&|t| matches!(t, Ty::Int { .. })) {
                    Some(e) => e,
                    None => continue,
                },
                19 => match self.macro_call(less) {
                    Some(e) => e,
                    None => continue,
                },
                20 if !self.in_macro => match self.free(|t| t.signed()) {
                    Some(name) => E::Step(boxed(E::Var(name)), self.rng.once_in(2), self.rng.once_in(2)),
                    None => continue,
                },
                15 | 20 => continue,
                _ => match self.rng.below(2) {
                    0 => {
                        let keyed: Vec<String> = self.s.maps.iter().filter(|(_, m)| m.key.is_some()).map(|(n, _)| n.clone()).collect();
                        if keyed.is_empty() {
                            continue;
                        }
                        E::Len(self.rng.pick(&keyed).clone())
                    }
                    _ => {
                        let ty = self.int_ty();
                        let n = self.bits();
                        E::Bswap(boxed(E::Cast(ty, boxed(E::Hidden(n)))))
                    }
                },
            };
            return e;
        }
        self.small()
    }

    /// Combines two expressions. If constant folding would not yield a literal, a value that is unknown to it replaces the left
    /// one.
    fn sound(&mut self, op: Op, a: E, b: E) -> E {
        let (x, y) = (self.s.literal(&a), self.s.literal(&b));
        match (x, y) {
            (Some(x), Some(y)) if fold(op, x, y).is_none() => E::Bin(op, boxed(self.hidden()), boxed(b)),
            (None, None) if self.s.constant(&a) && self.s.constant(&b) => E::Bin(op, boxed(self.hidden()), boxed(b)),
            (None, Some(_)) | (Some(_), None) if self.s.constant(&a) && self.s.constant(&b) => E::Bin(op, boxed(self.hidden()), boxed(b)),
            _ => E::Bin(op, boxed(a), boxed(b)),
        }
    }

    /// The right operand of an operator.
    fn operand(&mut self, op: Op, depth: u32) -> E {
        match op {
            // The divisor is not a constant zero.
            Op::Div | Op::Mod => match self.rng.below(3) {
                0 => E::Lit(7, "7".into()),
                1 => self.hidden(),
                _ => {
                    let n = -self.rng.between(1, 9);
                    E::Lit(n.into(), n.to_string())
                }
            },
            Op::Shl | Op::Shr => match self.rng.below(3) {
                0 => {
                    let n = self.rng.below(64);
                    E::Lit(n as i128, n.to_string())
                }
                1 => self.hidden(),
                _ => E::Cast(U64, boxed(self.int(depth))),
            },
            _ => self.int(depth),
        }
    }

    fn hidden(&mut self) -> E {
        match self.rng.below(3) {
            0 => {
                let n = self.bits();
                E::Hidden(n & i64::MAX as u64)
            }
            _ => {
                let all: Vec<String> = self.s.maps.keys().filter(|n| n.starts_with("@h")).cloned().collect();
                E::Map(self.rng.pick(&all).clone(), None)
            }
        }
    }

    fn small(&mut self) -> E {
        let all: Vec<String> =
            self.scopes.iter().flatten().filter(|(n, _)| matches!(self.s.vars[n], Ty::Int { .. })).map(|(n, _)| n.clone()).collect();
        match self.rng.below(5) {
            0 | 1 if !all.is_empty() => E::Var(self.rng.pick(&all).clone()),
            2 | 3 => self.hidden(),
            _ => self.literal(),
        }
    }

    /// A part of a tuple or record in a variable.
    fn part(&mut self, wanted: &dyn Fn(&Ty) -> bool) -> Option<E> {
        let all: Vec<String> = self
            .scopes
            .iter()
            .flatten()
            .filter(|(n, _)| matches!(self.s.vars[n], Ty::Tuple(_) | Ty::Record(_)))
            .map(|(n, _)| n.clone())
            .collect();
        if all.is_empty() {
            return None;
        }
        let mut e = E::Var(self.rng.pick(&all).clone());
        for _ in 0..3 {
            e = match self.s.ty(&e) {
                Ty::Tuple(parts) => E::Part(boxed(e), self.rng.below(parts.len())),
                Ty::Record(fields) => E::Member(boxed(e), self.rng.pick(&fields).0.clone()),
                ty if wanted(&ty) => return Some(e),
                _ => return None,
            };
        }
        Some(e).filter(|e| wanted(&self.s.ty(e)))
    }

    fn condition(&mut self, depth: u32) -> E {
        if self.rng.once_in(4) {
            // A literal as a condition is an error.
            let e = self.int(depth);
            if self.s.literal(&e).is_some() { self.hidden() } else { e }
        } else {
            self.condition_bool(depth)
        }
    }

    /// A condition that is not known before the program runs.
    fn unknown(&mut self, depth: u32) -> E {
        let (a, b) = (self.hidden(), self.int(depth));
        E::Bin(*self.rng.pick(ORDERS), boxed(a), boxed(b))
    }

    fn condition_bool(&mut self, depth: u32) -> E {
        if depth == 0 {
            return match self.rng.below(3) {
                0 => E::Bool(self.rng.once_in(2)),
                _ => self.unknown(0),
            };
        }
        let less = depth - 1;
        match self.rng.below(10) {
            0..4 => {
                let (a, b) = (self.int(less), self.int(less));
                let op = *self.rng.pick(ORDERS);
                if self.s.constant(&a) && self.s.constant(&b) { self.unknown(less) } else { E::Bin(op, boxed(a), boxed(b)) }
            }
            4 => E::Bin(Op::And, boxed(self.condition(less)), boxed(self.condition(less))),
            5 => E::Bin(Op::Or, boxed(self.condition(less)), boxed(self.condition(less))),
            6 => E::Not(boxed(self.condition(less))),
            7 => {
                let op = *self.rng.pick(&[Op::Eq, Op::Ne]);
                match self.rng.below(3) {
                    0 => {
                        let ty = self.any_ty(1);
                        let (a, b) = (self.exactly(&ty, less), self.exactly(&ty, less));
                        if self.s.constant(&a) && self.s.constant(&b) { self.unknown(0) } else { E::Bin(op, boxed(a), boxed(b)) }
                    }
                    1 => E::Contains(boxed(self.text(less)), boxed(self.text(less))),
                    _ => E::Bin(op, boxed(self.text(less)), boxed(self.text(less))),
                }
            }
            8 => {
                let keyed: Vec<(String, Map)> =
                    self.s.maps.iter().filter(|(_, m)| m.key.is_some()).map(|(n, m)| (n.clone(), m.clone())).collect();
                if keyed.is_empty() {
                    return self.unknown(less);
                }
                let (name, map) = self.rng.pick(&keyed).clone();
                let key = map.key.unwrap_or(I64);
                E::HasKey(name, boxed(self.of(&key, less)))
            }
            _ => {
                let e = self.int(less);
                if self.s.ty(&e) == Ty::Bool { e } else { E::Cast(Ty::Bool, boxed(e)) }
            }
        }
    }

    fn text_var(&mut self) -> Option<E> {
        let all: Vec<String> = self.scopes.iter().flatten().filter(|(n, _)| self.s.vars[n] == Ty::Str).map(|(n, _)| n.clone()).collect();
        if all.is_empty() { None } else { Some(E::Var(self.rng.pick(&all).clone())) }
    }

    fn text(&mut self, depth: u32) -> E {
        match self.rng.below(6) {
            0 | 1 => self.text_var().unwrap_or_else(|| self.word()),
            2 if depth > 0 => match self.part(&|t| *t == Ty::Str) {
                Some(e) => e,
                None => self.word(),
            },
            3 if depth > 0 => {
                let c = self.unknown(0);
                E::Cond(boxed(c), boxed(self.text(depth - 1)), boxed(self.text(depth - 1)), self.rng.once_in(2))
            }
            4 if depth > 0 => {
                let maps: Vec<(String, Map)> =
                    self.s.maps.iter().filter(|(_, m)| m.value == Ty::Str).map(|(n, m)| (n.clone(), m.clone())).collect();
                if maps.is_empty() {
                    return self.word();
                }
                let (name, map) = self.rng.pick(&maps).clone();
                E::Map(name, map.key.as_ref().map(|t| boxed(self.of(t, depth - 1))))
            }
            5 => E::Bin(Op::Add, boxed(self.word()), boxed(self.word())),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> E {
        E::Str((*self.rng.pick(WORDS)).into())
    }
}

/// Returns the key if it has no effects, because a key that the script contains twice is evaluated twice.
fn simple(key: Option<E>) -> Option<Option<E>> {
    match key {
        None => Some(None),
        Some(k @ (E::Lit(..) | E::Var(_) | E::Str(_) | E::Bool(_) | E::Cast(_, _))) if !steps(&k) => Some(Some(k)),
        Some(_) => None,
    }
}

fn steps(e: &E) -> bool {
    match e {
        E::Step(..) | E::Macro(..) | E::Block(..) => true,
        E::Cast(_, a) | E::Neg(a) | E::Not(a) | E::BitNot(a) | E::Strlen(a) | E::Bswap(a) | E::Part(a, _) | E::Member(a, _) => steps(a),
        E::Lit(..) | E::Var(_) | E::Str(_) | E::Bool(_) | E::Hidden(_) => false,
        E::Map(_, k) => k.as_ref().is_some_and(|k| steps(k)),
        _ => true,
    }
}

/// Replaces all uses of a variable by an expression.
fn put(body: &mut [S], value: &mut E, name: &str, with: &E) {
    for s in body {
        match s {
            S::Set(n, e, _, _) => {
                if n == name
                    && let E::Var(other) = with
                {
                    *n = other.clone();
                }
                put_in(e, name, with);
            }
            S::Print(e) => put_in(e, name, with),
            _ => {}
        }
    }
    put_in(value, name, with);
}

fn put_in(e: &mut E, name: &str, with: &E) {
    match e {
        E::Var(n) if n == name => *e = with.clone(),
        E::Lit(..) | E::Bool(_) | E::Str(_) | E::Var(_) | E::Len(_) | E::Hidden(_) | E::Map(_, None) => {}
        E::Map(_, Some(a))
        | E::Neg(a)
        | E::BitNot(a)
        | E::Not(a)
        | E::Cast(_, a)
        | E::Part(a, _)
        | E::Member(a, _)
        | E::Step(a, _, _)
        | E::Strlen(a)
        | E::Byte(a, _)
        | E::HasKey(_, a)
        | E::Bswap(a) => {
            put_in(a, name, with);
        }
        E::Bin(_, a, b) | E::Elvis(a, b) | E::Strncmp(a, b, _) | E::Contains(a, b) => {
            put_in(a, name, with);
            put_in(b, name, with);
        }
        E::Cond(a, b, c, _) => {
            put_in(a, name, with);
            put_in(b, name, with);
            put_in(c, name, with);
        }
        E::Tuple(parts) => parts.iter_mut().for_each(|p| put_in(p, name, with)),
        E::Record(fields) => fields.iter_mut().for_each(|(_, f)| put_in(f, name, with)),
        E::Block(stmts, a) => {
            put(stmts, a, name, with);
        }
        E::Macro(_, args, body, a) => {
            args.iter_mut().for_each(|x| put_in(x, name, with));
            put(body, a, name, with);
        }
    }
}
