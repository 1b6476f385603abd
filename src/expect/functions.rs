//! The functions of expectations.
//!
//! Each takes a map (all of its elements) or one element `@m[key]`. An empty map has no minimum, maximum, average or
//! percentile: an expectation that needs one is not met.

use super::range::Range;
use super::value::{CallArgs, Element, Val, monotonicity};
use super::{Constant, Shape, Ty};
use crate::builtins::Monotonicity;
use crate::render;
use crate::value::Value;

/// An argument of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A map or an element.
    Map,
    /// The same with a number from 0 to 100.
    MapAndPercent,
    /// A map that has keys.
    Keyed,
    /// The same with a key.
    KeyedAndKey,
    /// The same with one or more keys.
    KeyedAndKeys,
}

/// A row.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Its form: `count(@m)`.
    pub form: &'static str,
    /// Its arguments.
    pub params: ParamKind,
    /// The result of a function.
    pub(super) returns: Ty,
    /// Does the function apply to such values? If not, the message reports it.
    pub(super) applies_to: fn(Shape) -> bool,
    /// Evaluates it.
    pub(super) eval: fn(&CallArgs) -> Result<Val, String>,
    /// For the manual.
    pub doc: &'static str,
    /// An expectation that uses it.
    pub example: &'static str,
}

/// The description in the manual.
pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "count",
        form: "count(@m)",
        params: ParamKind::Map,
        returns: Ty::Number,
        applies_to: |s| matches!(s, Shape::Plain(Ty::Number) | Shape::Count | Shape::Stats | Shape::Average | Shape::Samples | Shape::Hist),
        eval: |w| number(total(w, |e| e.count(), !matches!(w.shape, Shape::Plain(_)))),
        doc: "Number of events over all keys. For hist(), stats(), avg() and percentiles(), this is the number of values added. For numbers that the script counts itself (@n++), it is their total.",
        example: "count(@syscalls) <= 200",
    },
    Function {
        name: "sum",
        form: "sum(@m)",
        params: ParamKind::Map,
        returns: Ty::Number,
        applies_to: numeric,
        eval: |w| number(total(w, |e| e.sum(), matches!(w.shape, Shape::Count | Shape::Number(Monotonicity::RaisesUnsigned, true)))),
        doc: "Total over all keys. For stats(), avg() and percentiles(), this is the total of the values added.",
        example: "sum(@bytes) < 1048576",
    },
    Function {
        name: "min",
        form: "min(@m)",
        params: ParamKind::Map,
        returns: Ty::Number,
        applies_to: |s| numeric(s) && s != Shape::Stats,
        eval: |w| extreme(w, false),
        doc: "Minimum over all keys. For percentiles(), this is the minimum of the values added.",
        example: "min(@free_pages) > 1000",
    },
    Function {
        name: "max",
        form: "max(@m)",
        params: ParamKind::Map,
        returns: Ty::Number,
        applies_to: |s| numeric(s) && s != Shape::Stats,
        eval: |w| extreme(w, true),
        doc: "Maximum over all keys. For percentiles(), this is the maximum of the values added.",
        example: "max(@rss) < 200 << 20",
    },
    Function {
        name: "avg",
        form: "avg(@m)",
        params: ParamKind::Map,
        returns: Ty::Number,
        applies_to: numeric,
        eval: average,
        doc: "Average over all keys, as an integer. For stats(), avg() and percentiles(), this is the average of all values added.",
        example: "avg(@latency) < 100us",
    },
    Function {
        name: "p50",
        form: "p50(@m)",
        params: ParamKind::Map,
        returns: Ty::Number,
        applies_to: distributed,
        eval: |w| percentile(w, 50),
        doc: "The median, percentile(@m, 50).",
        example: "p50(@latency) < 100us",
    },
    Function {
        name: "p90",
        form: "p90(@m)",
        params: ParamKind::Map,
        returns: Ty::Number,
        applies_to: distributed,
        eval: |w| percentile(w, 90),
        doc: "The 90th percentile, percentile(@m, 90).",
        example: "p90(@latency) < 1ms",
    },
    Function {
        name: "p95",
        form: "p95(@m)",
        params: ParamKind::Map,
        returns: Ty::Number,
        applies_to: distributed,
        eval: |w| percentile(w, 95),
        doc: "The 95th percentile, percentile(@m, 95).",
        example: "p95(@latency) < 2ms",
    },
    Function {
        name: "p99",
        form: "p99(@m)",
        params: ParamKind::Map,
        returns: Ty::Number,
        applies_to: distributed,
        eval: |w| percentile(w, 99),
        doc: "The 99th percentile, percentile(@m, 99).",
        example: "p99(@fsync) < 5ms",
    },
    Function {
        name: "percentile",
        form: "percentile(@m, n)",
        params: ParamKind::MapAndPercent,
        returns: Ty::Number,
        applies_to: distributed,
        eval: |w| match w.rest {
            [Constant::Number(n)] => percentile(w, *n),
            _ => Err("the map has no percentiles".into()),
        },
        doc: "The nth percentile (0 to 100) over all keys. It is accurate to 1/32 for percentiles(), and to the bucket for hist() and lhist(). If a bucket is too wide, the expectation is undecided.",
        example: "percentile(@latency, 75) < 1ms",
    },
    Function {
        name: "len",
        form: "len(@m)",
        params: ParamKind::Keyed,
        returns: Ty::Number,
        applies_to: |_| true,
        eval: |w| {
            let n = w.elements.len() as i128;
            number(Ok(match w.lossy {
                false => Range::exact(n),
                true if w.unbounded => Range::ANY,
                true => Range::at_least(n),
            }))
        },
        doc: "Number of keys.",
        example: "len(@files) <= 50",
    },
    Function {
        name: "has_key",
        form: "has_key(@m, key)",
        params: ParamKind::KeyedAndKey,
        returns: Ty::Truth,
        applies_to: |_| true,
        eval: |w| {
            let found = w.elements.iter().any(|e| w.rest.iter().any(|key| key.is(e.key)));
            Ok(Val::Truth(if found && !w.unbounded || !w.lossy { Some(found) } else { None }))
        },
        doc: "True if the key exists. Write several keys as a tuple: has_key(@m, (\"a\", 1)).",
        example: "!has_key(@opened, \"/etc/shadow\")",
    },
    Function {
        name: "only",
        form: "only(@m, key, …)",
        params: ParamKind::KeyedAndKeys,
        returns: Ty::Truth,
        applies_to: |_| true,
        eval: |w| {
            let strange = w.elements.iter().any(|e| !w.rest.iter().any(|key| key.is(e.key)));
            Ok(Val::Truth(if strange && !w.unbounded || !w.lossy { Some(!strange) } else { None }))
        },
        doc: "True if the map has no other keys than these. Not all of these need exist.",
        example: "only(@listens, 22, 8080)",
    },
];

/// The row of this name.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|f| f.name == name)
}

fn numeric(shape: Shape) -> bool {
    matches!(shape, Shape::Plain(Ty::Number) | Shape::Count | Shape::Number(..) | Shape::Stats | Shape::Average | Shape::Samples)
}

fn distributed(shape: Shape) -> bool {
    matches!(shape, Shape::Samples | Shape::Hist)
}

fn number(found: Result<Range, String>) -> Result<Val, String> {
    found.map(Val::Number)
}

/// The sum of elements; if it `grows`, missed events can only increase it.
fn total(w: &CallArgs, of: impl Fn(&Element) -> i128, grows: bool) -> Result<Range, String> {
    let mut sum = 0i128;
    for e in w.elements {
        sum = sum.checked_add(of(e)).ok_or("the total is too large")?;
    }
    Ok(match w.lossy {
        false => Range::exact(sum),
        true if w.estimated || w.unbounded => Range::ANY,
        true if grows => Range::at_least(sum),
        true => Range::ANY,
    })
}

fn nothing(w: &CallArgs) -> String {
    format!("{} is empty", w.name)
}

fn extreme(w: &CallArgs, greatest: bool) -> Result<Val, String> {
    let each = |e: &Element| {
        if e.stats().is_some_and(|s| s.count == 0) {
            None
        } else if let Value::Percentiles(p) = e.value {
            if greatest { p.points.last() } else { p.points.first() }.and_then(|(_, v)| v.number())
        } else {
            e.shown()
        }
    };
    let all = w.elements.iter().filter_map(each);
    let found = if greatest { all.max() } else { all.min() }.ok_or_else(|| nothing(w))?;
    let more = if w.shape == Shape::Samples && greatest { Monotonicity::Raises } else { monotonicity(w.shape) };
    // a lost element may have had another key
    number(Ok(match (w.lossy, greatest, more) {
        (false, _, _) => Range::exact(found),
        (true, _, _) if w.unbounded || w.estimated && w.shape != Shape::Samples => Range::ANY,
        (true, true, Monotonicity::Raises) => Range::at_least(found),
        (true, false, Monotonicity::Lowers) => Range::at_most(found),
        (true, false, _) if w.shape == Shape::Samples => Range::at_most(found),
        (true, _, _) => Range::ANY,
    }))
}

fn average(w: &CallArgs) -> Result<Val, String> {
    let (mut sum, mut count) = (0i128, 0i128);
    for e in w.elements {
        let (more, of) = match e.stats() {
            Some(s) => (s.sum().number().unwrap_or(0), i128::from(s.count)),
            None => (e.shown().unwrap_or(0), 1),
        };
        (sum, count) = (sum.saturating_add(more), count.saturating_add(of));
    }
    let found = sum.checked_div(count).ok_or_else(|| nothing(w))?;
    number(Ok(if w.lossy { Range::ANY } else { Range::exact(found) }))
}

/// The n-th percentile over all elements.
fn percentile(w: &CallArgs, percent: i128) -> Result<Val, String> {
    let mut samples: Vec<(Range, u64)> = Vec::new();
    for e in w.elements {
        if let Value::Percentiles(p) = e.value {
            samples.extend(p.samples.iter().map(|(v, n)| (Range::exact(*v), *n)));
        } else if let Value::Hist(h) = e.value {
            samples.extend(render::buckets(h).map(|(min, max, n)| (Range { min, max }, n)));
        }
    }
    // ranges without a lower bound come first
    samples.sort_by_key(|(range, _)| range.min);
    let count: i128 = samples.iter().map(|(_, n)| i128::from(*n)).sum();
    if count == 0 {
        return Err(nothing(w));
    }
    let rank = (count.saturating_mul(percent) + 99) / 100;
    let mut below = 0i128;
    let found = samples.iter().find(|(_, n)| {
        below += i128::from(*n);
        *n > 0 && below >= rank
    });
    let range = found.map(|(range, _)| *range).ok_or_else(|| nothing(w))?;
    number(Ok(if w.lossy { Range::ANY } else { range }))
}
