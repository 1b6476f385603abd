//! Evaluates a script by the rules of the language, to predict its output.

use super::exact::{E, Op, S, Script, Spec, Ty};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A value. Numbers have 64 bits, and are sign-extended if their type is signed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum V {
    Num(u64),
    Text(String),
    Parts(Vec<V>),
}

/// How a statement ended.
#[derive(PartialEq)]
enum Flow {
    Next,
    Break,
    Continue,
    Return,
}

/// The value of a map element.
#[derive(Clone, Debug)]
enum Held {
    Plain(V),
    /// The aggregated values: count, sum, minimum, maximum, and all samples.
    Taken {
        count: u64,
        sum: u64,
        min: u64,
        max: u64,
        samples: Vec<u64>,
    },
}

/// The script runs for too long, so it is discarded.
#[derive(Debug)]
pub struct TooLong;

struct Run<'a> {
    script: &'a Script,
    vars: BTreeMap<String, V>,
    /// The elements of each map by key. A scalar map uses a number as its key.
    maps: BTreeMap<String, BTreeMap<V, Held>>,
    out: String,
    steps: u64,
    /// The number of divisions by zero. Each causes a warning.
    divided: u64,
}

type Now<T> = Result<T, TooLong>;

/// Returns the output of a script, and the number of reported divisions by zero.
pub fn expected(script: &Script) -> Result<(String, u64), TooLong> {
    let mut run = Run { script, vars: BTreeMap::new(), maps: BTreeMap::new(), out: String::new(), steps: 0, divided: 0 };
    for wanted in ["begin", "end"] {
        for (_, body) in script.probes.iter().filter(|(point, _)| *point == wanted) {
            run.vars.clear();
            run.block(body)?;
        }
    }
    run.out.push_str("\n\n");
    let text = script.text();
    for name in script.maps.keys().filter(|n| mentions(&text, n)) {
        run.show_map(name);
    }
    Ok((run.out, run.divided))
}

/// Does the text mention the map?
pub fn mentions(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(i, _)| !text[i + name.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
}

impl Run<'_> {
    fn block(&mut self, stmts: &[S]) -> Now<Flow> {
        for s in stmts {
            let flow = self.stmt(s)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn stmt(&mut self, s: &S) -> Now<Flow> {
        self.steps += 1;
        if self.steps > 20_000 || self.out.len() > 100_000 {
            return Err(TooLong);
        }
        match s {
            S::Set(name, e, _, _) => {
                let (ty, v) = (self.script.ty(e), self.eval(e)?);
                self.set(name, v, &ty);
            }
            S::Compound(name, op, e) => {
                let whole = E::Bin(*op, Box::new(E::Var(name.clone())), Box::new(e.clone()));
                let (ty, v) = (self.script.ty(&whole), self.eval(&whole)?);
                self.set(name, v, &ty);
            }
            S::SetMap(m, k, e) => {
                let v = self.eval(e)?;
                let v = convert(v, &self.script.ty(e), &self.script.maps[m].value);
                let k = self.key(m, k.as_ref())?;
                self.maps.entry(m.clone()).or_default().insert(k, Held::Plain(v));
            }
            S::CompoundMap(m, k, op, e) => {
                let whole = E::Bin(*op, Box::new(E::Map(m.clone(), k.clone().map(Box::new))), Box::new(e.clone()));
                let v = self.eval(&whole)?;
                let v = convert(v, &self.script.ty(&whole), &self.script.maps[m].value);
                let k = self.key(m, k.as_ref())?;
                self.maps.entry(m.clone()).or_default().insert(k, Held::Plain(v));
            }
            S::Aggregate(m, k, _, e) => {
                let n = match e {
                    Some(e) => self.number(e)?,
                    None => 1,
                };
                let k = self.key(m, k.as_ref())?;
                let signed = self.script.maps[m].value.signed();
                let less = |a: u64, b: u64| if signed { (a as i64) < (b as i64) } else { a < b };
                let held = self.maps.entry(m.clone()).or_default();
                let held = held.entry(k).or_insert(Held::Taken { count: 0, sum: 0, min: n, max: n, samples: Vec::new() });
                if let Held::Taken { count, sum, min, max, samples } = held {
                    *count += 1;
                    *sum = sum.wrapping_add(n);
                    *min = if less(n, *min) { n } else { *min };
                    *max = if less(*max, n) { n } else { *max };
                    samples.push(n);
                }
            }
            S::Delete(m, k) => {
                let k = self.key(m, Some(k))?;
                self.maps.entry(m.clone()).or_default().remove(&k);
            }
            S::Print(e) => {
                let (ty, v) = (self.script.ty(e), self.eval(e)?);
                let text = shown(&v, &ty);
                let _ = writeln!(self.out, "{text}");
            }
            S::Printf(parts) => {
                let mut values = Vec::new();
                for (_, _, e) in parts {
                    values.push((self.script.ty(e), self.eval(e)?));
                }
                for ((before, spec, _), (ty, v)) in parts.iter().zip(values) {
                    self.out.push_str(&before.replace("%%", "%"));
                    self.out.push_str(&formatted(spec, &v, &ty));
                }
                self.out.push('\n');
            }
            S::If(c, a, b) => {
                let c = self.number(c)? != 0;
                return self.block(if c { a } else { b });
            }
            S::Range(v, a, b, body) => {
                let (a, b) = (self.number(a)? as i64, self.number(b)? as i64);
                let mut i = a;
                while i < b {
                    self.set(v, V::Num(i as u64), &super::exact::I64);
                    match self.block(body)? {
                        Flow::Break => break,
                        Flow::Return => return Ok(Flow::Return),
                        Flow::Next | Flow::Continue => {}
                    }
                    i += 1;
                }
            }
            S::Each(v, m, body) => {
                let keys: Vec<V> = self.maps.get(m).map(|m| m.keys().cloned().collect()).unwrap_or_default();
                for k in keys {
                    let value = self.held(m, &k);
                    self.vars.insert(v.clone(), V::Parts(vec![k, value]));
                    self.block(body)?;
                }
            }
            S::While(c, body) => loop {
                self.steps += 1;
                if self.steps > 20_000 {
                    return Err(TooLong);
                }
                if self.number(c)? == 0 {
                    break;
                }
                match self.block(body)? {
                    Flow::Break => break,
                    Flow::Return => return Ok(Flow::Return),
                    Flow::Next | Flow::Continue => {}
                }
            },
            S::Unroll(n, body) => {
                for _ in 0..*n {
                    match self.block(body)? {
                        Flow::Break => break,
                        Flow::Return => return Ok(Flow::Return),
                        Flow::Next | Flow::Continue => {}
                    }
                }
            }
            S::Break => return Ok(Flow::Break),
            S::Continue => return Ok(Flow::Continue),
            S::Return => return Ok(Flow::Return),
            S::Scope(body) => return self.block(body),
            S::Effect(e) => {
                self.eval(e)?;
            }
        }
        Ok(Flow::Next)
    }

    fn set(&mut self, name: &str, v: V, from: &Ty) {
        let to = self.script.vars.get(name).cloned().unwrap_or(super::exact::I64);
        self.vars.insert(name.to_string(), convert(v, from, &to));
    }

    fn key(&mut self, map: &str, key: Option<&E>) -> Now<V> {
        match (key, &self.script.maps[map].key) {
            (Some(key), Some(ty)) => {
                let v = self.eval(key)?;
                Ok(convert(v, &self.script.ty(key), ty))
            }
            _ => Ok(V::Num(0)),
        }
    }

    /// Returns the value of a map at a key.
    fn held(&self, map: &str, key: &V) -> V {
        let m = &self.script.maps[map];
        match self.maps.get(map).and_then(|m| m.get(key)) {
            Some(Held::Plain(v)) => v.clone(),
            Some(Held::Taken { count, sum, min, max, .. }) => V::Num(match m.function {
                "count" => *count,
                "sum" => *sum,
                "min" => *min,
                "max" => *max,
                "avg" => average(*sum, *count, m.value.signed()),
                _ => 0,
            }),
            None => zero(&m.value),
        }
    }

    fn number(&mut self, e: &E) -> Now<u64> {
        match self.eval(e)? {
            V::Num(n) => Ok(n),
            _ => Ok(0),
        }
    }

    fn words(&mut self, e: &E) -> Now<String> {
        match self.eval(e)? {
            V::Text(s) => Ok(s),
            _ => Ok(String::new()),
        }
    }

    fn eval(&mut self, e: &E) -> Now<V> {
        self.steps += 1;
        if self.steps > 200_000 {
            return Err(TooLong);
        }
        Ok(V::Num(match e {
            E::Lit(n, _) => *n as u64,
            E::Bool(b) => u64::from(*b),
            E::Str(s) => return Ok(V::Text(s.replace("\\n", "\n").replace("\\t", "\t"))),
            E::Var(name) => return Ok(self.vars.get(name).cloned().unwrap_or_else(|| zero(&self.script.ty(e)))),
            E::Map(name, key) => {
                let key = self.key(name, key.as_deref())?;
                return Ok(self.held(name, &key));
            }
            E::Bin(op, a, b) => return self.binary(*op, a, b, &self.script.ty(e)),
            E::Neg(a) | E::BitNot(a) => {
                let n = self.number(a)?;
                let n = if matches!(e, E::Neg(_)) { n.wrapping_neg() } else { !n };
                // For an unsigned type, the result has the width of the type.
                return Ok(match self.script.ty(a) {
                    ty @ Ty::Int { signed: false, .. } => convert(V::Num(n), &ty, &ty),
                    _ => V::Num(n),
                });
            }
            E::Not(a) => u64::from(self.number(a)? == 0),
            E::Cast(ty, a) => {
                let from = self.script.ty(a);
                let v = self.eval(a)?;
                return Ok(convert(v, &from, ty));
            }
            E::Cond(c, a, b, _) => {
                let chosen = if self.number(c)? != 0 { a } else { b };
                let v = self.eval(chosen)?;
                return Ok(convert(v, &self.script.ty(chosen), &self.script.ty(e)));
            }
            E::Elvis(a, b) => {
                let v = self.eval(a)?;
                let (v, from) = if v == V::Num(0) { (self.eval(b)?, self.script.ty(b)) } else { (v, self.script.ty(a)) };
                return Ok(convert(v, &from, &self.script.ty(e)));
            }
            E::Tuple(parts) => return parts.iter().map(|p| self.eval(p)).collect::<Now<_>>().map(V::Parts),
            E::Record(fields) => return fields.iter().map(|(_, f)| self.eval(f)).collect::<Now<_>>().map(V::Parts),
            E::Part(base, i) => return Ok(part(self.eval(base)?, *i)),
            E::Member(base, name) => {
                let Ty::Record(fields) = self.script.ty(base) else { return Ok(V::Num(0)) };
                let i = fields.iter().position(|(n, _)| n == name).unwrap_or(0);
                return Ok(part(self.eval(base)?, i));
            }
            E::Block(stmts, value) => {
                self.block(stmts)?;
                return self.eval(value);
            }
            E::Macro(_, _, body, value) => {
                self.block(body)?;
                return self.eval(value);
            }
            E::Step(target, up, post) => {
                let by = if *up { 1 } else { u64::MAX };
                let ty = self.script.ty(target);
                let old = self.number(target)?;
                let V::Num(new) = convert(V::Num(old.wrapping_add(by)), &ty, &ty) else { return Ok(V::Num(0)) };
                match &**target {
                    E::Var(name) => {
                        self.vars.insert(name.clone(), V::Num(new));
                    }
                    E::Map(name, key) => {
                        let key = self.key(name, key.as_deref())?;
                        self.maps.entry(name.clone()).or_default().insert(key, Held::Plain(V::Num(new)));
                    }
                    _ => {}
                }
                if *post { old } else { new }
            }
            E::Strlen(a) => self.words(a)?.len() as u64,
            E::Strncmp(a, b, n) => {
                let (a, b) = (self.words(a)?, self.words(b)?);
                let head = |s: &str| s.bytes().take(*n).collect::<Vec<_>>();
                u64::from(head(&a) != head(&b))
            }
            E::Contains(a, b) => {
                let (a, b) = (self.words(a)?, self.words(b)?);
                u64::from(a.contains(&b))
            }
            E::Byte(a, i) => {
                let a = self.words(a)?;
                a.as_bytes().get(*i).copied().unwrap_or(0) as i8 as u64
            }
            E::HasKey(m, k) => {
                let k = self.key(m, Some(k))?;
                u64::from(self.maps.get(m).is_some_and(|m| m.contains_key(&k)))
            }
            E::Len(m) => self.maps.get(m).map_or(0, |m| m.len() as u64),
            E::Bswap(a) => {
                let n = self.number(a)?;
                match self.script.ty(a) {
                    Ty::Int { bytes: 1, .. } | Ty::Bool => n & 0xff,
                    Ty::Int { bytes: 2, .. } => u64::from((n as u16).swap_bytes()),
                    Ty::Int { bytes: 4, .. } => u64::from((n as u32).swap_bytes()),
                    _ => n.swap_bytes(),
                }
            }
            E::Hidden(n) => *n,
        }))
    }

    fn binary(&mut self, op: Op, a: &E, b: &E, ty: &Ty) -> Now<V> {
        match op {
            Op::And => {
                let yes = self.number(a)? != 0 && self.number(b)? != 0;
                return Ok(V::Num(yes.into()));
            }
            Op::Or => {
                let yes = self.number(a)? != 0 || self.number(b)? != 0;
                return Ok(V::Num(yes.into()));
            }
            _ => {}
        }
        let signed = self.script.meets_signed(a, b);
        let left_signed = match self.script.literal(a) {
            Some(n) => n < 0,
            None => self.script.ty(a).signed(),
        };
        let (p, q) = (self.eval(a)?, self.eval(b)?);
        let (x, y) = match (&p, &q) {
            (V::Num(x), V::Num(y)) => (*x, *y),
            (V::Text(x), V::Text(y)) if op == Op::Add => return Ok(V::Text(format!("{x}{y}"))),
            _ => {
                // The conversion matches the fields of records by name.
                let q = convert(q, &self.script.ty(b), &self.script.ty(a));
                return Ok(V::Num(u64::from((p == q) == (op == Op::Eq))));
            }
        };
        let (i, j) = (x as i64, y as i64);
        let order = if signed { i.cmp(&j) } else { x.cmp(&y) };
        let by_sign = |s: i64, u: u64| if *ty == super::exact::I64 && !self.script.divides_unsigned(a, b) { s as u64 } else { u };
        let n = match op {
            Op::Add => x.wrapping_add(y),
            Op::Sub => x.wrapping_sub(y),
            Op::Mul => x.wrapping_mul(y),
            Op::Div | Op::Mod if y == 0 => {
                self.divided += 1;
                1
            }
            Op::Div => by_sign(i.wrapping_div(j), x.wrapping_div(y)),
            Op::Mod => by_sign(i.wrapping_rem(j), x.wrapping_rem(y)),
            Op::Shl => x.wrapping_shl((y & 63) as u32),
            Op::Shr if left_signed => (i >> (y & 63)) as u64,
            Op::Shr => x >> (y & 63),
            Op::BitAnd => x & y,
            Op::BitXor => x ^ y,
            Op::BitOr => x | y,
            Op::Lt => u64::from(order == Ordering::Less),
            Op::Gt => u64::from(order == Ordering::Greater),
            Op::Le => u64::from(order != Ordering::Greater),
            Op::Ge => u64::from(order != Ordering::Less),
            Op::Eq => u64::from(x == y),
            Op::Ne => u64::from(x != y),
            Op::And | Op::Or => 0,
        };
        Ok(V::Num(if *ty == Ty::Bool { u64::from(n != 0) } else { n }))
    }

    // ---------------------------------------------------------------- final output

    fn show_map(&mut self, name: &str) {
        let m = &self.script.maps[name];
        let Some(key) = &m.key else {
            let _ = match self.show_held(name, &V::Num(0)) {
                text if text.starts_with('\n') => writeln!(self.out, "{name}:{text}"),
                text => writeln!(self.out, "{name}: {text}"),
            };
            return;
        };
        let mut keys: Vec<V> = self.maps.get(name).map(|m| m.keys().cloned().collect()).unwrap_or_default();
        keys.sort_by(|a, b| {
            let values = match (self.weight(name, a), self.weight(name, b)) {
                (Some(x), Some(y)) => x.cmp(&y),
                _ => Ordering::Equal,
            };
            values.then_with(|| ordered(a, b, key))
        });
        for k in keys {
            let mut shown_key = shown(&k, key);
            if let Ty::Tuple(_) = key {
                shown_key = shown_key[1..shown_key.len() - 1].to_string();
            }
            let _ = match self.show_held(name, &k) {
                text if text.starts_with('\n') => writeln!(self.out, "{name}[{shown_key}]:{text}"),
                text => writeln!(self.out, "{name}[{shown_key}]: {text}"),
            };
        }
    }

    fn show_held(&self, name: &str, key: &V) -> String {
        let m = &self.script.maps[name];
        match (m.function, self.maps.get(name).and_then(|m| m.get(key))) {
            ("stats", Some(Held::Taken { count, sum, .. })) => {
                let number = |n: u64| shown(&V::Num(n), &m.value);
                let average = average(*sum, *count, m.value.signed());
                format!("{{ .count = {count}, .average = {}, .total = {} }}", number(average), number(*sum))
            }
            ("hist", Some(Held::Taken { samples, .. })) => hist(samples, m.value.signed()),
            _ => shown(&self.held(name, key), &m.value),
        }
    }

    /// The first sort key of an entry, before the entry's key.
    fn weight(&self, name: &str, key: &V) -> Option<i128> {
        let m = &self.script.maps[name];
        if m.function == "hist" {
            let Some(Held::Taken { count, .. }) = self.maps.get(name).and_then(|m| m.get(key)) else { return None };
            return Some(i128::from(*count));
        }
        let value = match (m.function, self.maps.get(name).and_then(|m| m.get(key))) {
            ("stats", Some(Held::Taken { count, sum, .. })) => average(*sum, *count, m.value.signed()),
            _ => match self.held(name, key) {
                V::Num(n) => n,
                _ => return None,
            },
        };
        match m.value {
            Ty::Int { signed: true, .. } => Some(i128::from(value as i64)),
            Ty::Int { .. } => Some(i128::from(value)),
            _ => None,
        }
    }
}

/// Computes an average, which is rounded toward zero.
fn average(sum: u64, count: u64, signed: bool) -> u64 {
    match (count, signed) {
        (0, _) => 0,
        (_, true) => (sum as i64).wrapping_div(count as i64) as u64,
        (_, false) => sum / count,
    }
}

/// Renders a histogram with power-of-two rows.
fn hist(samples: &[u64], signed: bool) -> String {
    let bucket = |n: u64| -> usize {
        if signed && (n as i64) < 0 {
            0
        } else if n == 0 {
            1
        } else {
            n.ilog2() as usize + 2
        }
    };
    let mut counts = vec![0u64; 70];
    samples.iter().for_each(|n| counts[bucket(*n)] += 1);
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let first = counts.iter().position(|c| *c > 0).unwrap_or(0);
    let last = counts.iter().rposition(|c| *c > 0).unwrap_or(0);
    let size = |power: usize| match power {
        0..10 => (1u64 << power).to_string(),
        10..20 => format!("{}K", 1u64 << (power - 10)),
        20..30 => format!("{}M", 1u64 << (power - 20)),
        30..40 => format!("{}G", 1u64 << (power - 30)),
        40..50 => format!("{}T", 1u64 << (power - 40)),
        50..60 => format!("{}P", 1u64 << (power - 50)),
        _ => format!("{}E", 1u64 << (power - 60)),
    };
    let mut out = String::from("\n");
    for (i, count) in counts.iter().enumerate().take(last + 1).skip(first) {
        let label = match i {
            0 => "(..., 0)".to_string(),
            1 => "[0]".to_string(),
            2 => "[1]".to_string(),
            _ => format!("[{}, {})", size(i - 2), size(i - 1)),
        };
        let bar = "@".repeat((count * 52 / most) as usize);
        let _ = writeln!(out, "{label:<16}{count:>8} |{bar:<52}|");
    }
    out
}

fn part(v: V, i: usize) -> V {
    match v {
        V::Parts(mut parts) if i < parts.len() => parts.swap_remove(i),
        _ => V::Num(0),
    }
}

fn zero(ty: &Ty) -> V {
    match ty {
        Ty::Int { .. } | Ty::Bool => V::Num(0),
        Ty::Str => V::Text(String::new()),
        Ty::Tuple(parts) => V::Parts(parts.iter().map(zero).collect()),
        Ty::Record(fields) => V::Parts(fields.iter().map(|(_, t)| zero(t)).collect()),
    }
}

/// Converts a value to another type.
fn convert(v: V, from: &Ty, to: &Ty) -> V {
    match (v, from, to) {
        (V::Num(n), _, Ty::Bool) => V::Num(u64::from(n != 0)),
        (V::Num(n), _, Ty::Int { bytes, signed }) => {
            let shift = 64 - u32::from(*bytes) * 8;
            V::Num(if *signed { (((n << shift) as i64) >> shift) as u64 } else { n << shift >> shift })
        }
        (V::Parts(parts), Ty::Tuple(from), Ty::Tuple(to)) => {
            V::Parts(parts.into_iter().zip(from.iter().zip(to)).map(|(p, (f, t))| convert(p, f, t)).collect())
        }
        (V::Parts(parts), Ty::Record(from), Ty::Record(to)) => {
            let field = |(name, t): &(String, Ty)| {
                let i = from.iter().position(|(n, _)| n == name).unwrap_or(0);
                convert(parts[i].clone(), &from[i].1, t)
            };
            V::Parts(to.iter().map(field).collect())
        }
        (v, _, _) => v,
    }
}

/// Compares keys: numbers by sign and value, strings by bytes, and tuples and records by their parts from left to right.
fn ordered(a: &V, b: &V, ty: &Ty) -> Ordering {
    match (a, b, ty) {
        (V::Num(x), V::Num(y), t) if t.signed() => (*x as i64).cmp(&(*y as i64)),
        (V::Parts(x), V::Parts(y), Ty::Tuple(types)) => {
            x.iter().zip(y).zip(types).map(|((x, y), t)| ordered(x, y, t)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
        }
        (V::Parts(x), V::Parts(y), Ty::Record(fields)) => {
            x.iter().zip(y).zip(fields).map(|((x, y), (_, t))| ordered(x, y, t)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
        }
        _ => a.cmp(b),
    }
}

/// Renders a value like `print`.
fn shown(v: &V, ty: &Ty) -> String {
    match (v, ty) {
        (V::Num(n), Ty::Bool) => (*n != 0).to_string(),
        (V::Num(n), t) if t.signed() => (*n as i64).to_string(),
        (V::Num(n), _) => n.to_string(),
        (V::Text(s), _) => s.clone(),
        (V::Parts(parts), Ty::Tuple(types)) => {
            let parts: Vec<String> = parts.iter().zip(types).map(|(p, t)| shown(p, t)).collect();
            format!("({})", parts.join(", "))
        }
        (V::Parts(parts), Ty::Record(fields)) => {
            let parts: Vec<String> = parts.iter().zip(fields).map(|(p, (n, t))| format!(".{n} = {}", shown(p, t))).collect();
            format!("{{ {} }}", parts.join(", "))
        }
        (V::Parts(_), _) => String::new(),
    }
}

/// Renders a value like `printf`. The format always has a length, so the result is as in C.
fn formatted(spec: &Spec, v: &V, ty: &Ty) -> String {
    let body = match (spec.conv, v) {
        ('s', v) => shown(v, ty),
        (conv, V::Num(n)) => {
            let bits: u32 = match spec.size {
                "hh" => 8,
                "h" => 16,
                _ => 64,
            };
            let n = n << (64 - bits) >> (64 - bits);
            let signed = ((n << (64 - bits)) as i64) >> (64 - bits);
            let digits = match conv {
                'd' => signed.unsigned_abs().to_string(),
                'u' => n.to_string(),
                'x' => format!("{n:x}"),
                'X' => format!("{n:X}"),
                _ => format!("{n:o}"),
            };
            let sign = match conv {
                'd' if signed < 0 => "-",
                'd' if spec.flags.contains('+') => "+",
                'x' if spec.flags.contains('#') && n != 0 => "0x",
                _ => "",
            };
            if spec.flags.contains('0') && !spec.flags.contains('-') {
                let width = spec.width.saturating_sub(sign.len());
                return format!("{sign}{digits:0>width$}");
            }
            format!("{sign}{digits}")
        }
        _ => String::new(),
    };
    let width = spec.width;
    if spec.flags.contains('-') { format!("{body:<width$}") } else { format!("{body:>width$}") }
}
