//! Finds the names that are visible at the generator's current place.

use super::world::T;
use super::{Gen, Value};

impl Gen<'_> {
    /// Is this expression allowed here?
    pub(super) fn has(&self, expression: &'static str) -> bool {
        if expression == "nsecs(tai)" && !self.world.tells_tai {
            return false;
        }
        match self.point {
            Some(point) => self.world.has(point, self.loops > 0, expression),
            // A function can use only expressions that every probe has.
            None => ![
                "args",
                "ctx",
                "reg(",
                "func",
                "usym",
                "ustack",
                "kstack",
                "ppid",
                "probe",
                "kaddr",
                "comm(",
                "pcomm",
                "leader",
                "usermode",
                "cgroup_path",
                "signal",
                "write_user",
                "override",
            ]
            .iter()
            .any(|w| expression.contains(w)),
        }
    }

    /// The fields of the probe that are available here.
    pub(super) fn fields(&self) -> &[(&'static str, T)] {
        if self.loops > 0 { &self.in_loops } else { &self.fields }
    }

    /// A new name.
    pub(super) fn new_name(&mut self) -> String {
        self.names += 1;
        format!("$v{}", self.names)
    }

    /// A visible variable whose type fits.
    pub(super) fn var_where(&mut self, fits: &dyn Fn(&T) -> bool) -> Option<(String, T)> {
        let all: Vec<(String, T)> = self.scopes.iter().flatten().filter(|(_, t)| fits(t)).cloned().collect();
        (!all.is_empty()).then(|| self.rng.pick(&all).clone())
    }

    /// A part of a visible tuple or record whose type fits.
    pub(super) fn part_where(&mut self, fits: &dyn Fn(&T) -> bool) -> Option<(String, T)> {
        let mut all = Vec::new();
        for (name, t) in self.scopes.iter().flatten() {
            parts(name, t, &mut all);
        }
        all.retain(|(_, t)| fits(t));
        (!all.is_empty()).then(|| self.rng.pick(&all).clone())
    }

    /// A map whose value type fits.
    pub(super) fn map_where(&mut self, fits: &dyn Fn(&T) -> bool) -> Option<(String, Option<T>, T)> {
        if self.in_keys > 1 {
            return None;
        }
        let all: Vec<(String, Option<T>, T)> = self
            .maps
            .iter()
            .filter_map(|m| match &m.value {
                Value::Of(t) if fits(t) => Some((m.name.clone(), m.key.clone(), t.clone())),
                _ => None,
            })
            .collect();
        (!all.is_empty()).then(|| self.rng.pick(&all).clone())
    }

    /// An existing value of exactly this type.
    pub(super) fn existing(&mut self, t: &T) -> Option<String> {
        match self.rng.below(4) {
            0 => self.var_where(&|is| is == t).map(|v| v.0),
            1 => self.part_where(&|is| is == t).map(|v| v.0),
            2 => {
                let (name, key, _) = self.map_where(&|is| is == t)?;
                Some(format!("{name}{}", self.subscript(&key, 0)))
            }
            _ => None,
        }
    }

    /// A field of the probe with this type.
    pub(super) fn field(&mut self, t: &T) -> Option<String> {
        let all: Vec<&'static str> = self.fields().iter().filter(|(_, is)| is == t).map(|f| f.0).collect();
        (!all.is_empty()).then(|| (*self.rng.pick(&all)).to_string())
    }

    /// A map with keys.
    pub(super) fn map_with_key(&mut self) -> Option<(String, T)> {
        if self.in_keys > 1 {
            return None;
        }
        let all: Vec<(String, T)> = self.maps.iter().filter_map(|m| Some((m.name.clone(), m.key.clone()?))).collect();
        (!all.is_empty()).then(|| self.rng.pick(&all).clone())
    }

    /// A variable or map element that contains a number.
    pub(super) fn assignable_int(&mut self) -> Option<(String, T)> {
        if self.rng.once_in(2) {
            return self.var_where(&|t| matches!(t, T::Int(..))).filter(|v| v.0.starts_with("$v"));
        }
        let (name, key, t) = self.map_where(&|t| matches!(t, T::Int(..)))?;
        Some((format!("{name}{}", self.subscript(&key, 0)), t))
    }

    /// A function of the script that returns this type.
    pub(super) fn function_giving(&mut self, t: &T) -> Option<(String, Vec<T>)> {
        let all: Vec<(String, Vec<T>)> =
            self.functions.iter().filter(|f| f.gives == *t).map(|f| (f.name.clone(), f.params.clone())).collect();
        (!all.is_empty()).then(|| self.rng.pick(&all).clone())
    }

    /// An aggregation that can be read as a number.
    pub(super) fn countable(&mut self) -> Option<String> {
        if self.in_keys > 1 || !self.world.reads_aggregations {
            return None;
        }
        let all: Vec<(String, Option<T>)> =
            self.maps.iter().filter(|m| matches!(m.value, Value::Aggregation(_, true))).map(|m| (m.name.clone(), m.key.clone())).collect();
        if all.is_empty() {
            return None;
        }
        let (name, key) = self.rng.pick(&all).clone();
        Some(format!("{name}{}", self.subscript(&key, 0)))
    }
}

fn parts(name: &str, t: &T, all: &mut Vec<(String, T)>) {
    match t {
        T::Tup(of) => {
            for (i, t) in of.iter().enumerate() {
                let name = format!("{name}.{i}");
                all.push((name.clone(), t.clone()));
                parts(&name, t, all);
            }
        }
        T::Rec(of) => {
            for (part, t) in of {
                let name = format!("{name}.{part}");
                all.push((name.clone(), t.clone()));
                parts(&name, t, all);
            }
        }
        _ => {}
    }
}
