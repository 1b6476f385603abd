//! Map keys in the form of flame graphs: labels and frames, outermost first, and the width of each.

use std::hash::Hasher;

use fnv::FnvHasher;

use super::style::Style;
use super::value_text;
use crate::value::{Frame, MapView, Stack, StackMode, Unit, Value};

/// Replaces a key without parts.
pub const NO_STACK: &str = "[no stack]";

/// The separator between a stack and that of the task that woke it, as in chain flame graphs.
pub const WAKER_SEPARATOR: &str = "--";

/// A part of a key.
pub enum KeyPart<'a> {
    /// A frame, and its stack.
    Frame(&'a Frame, &'a Stack),
    /// A value that is not a stack.
    Other(&'a Value),
    /// One task's part of a chain ends here.
    Between,
}

/// The parts of a key: those that are not stacks come first, then the user stack, then the kernel stack, in any order
/// of the key. For keys with two stacks of a kind, see [`chain`].
pub fn parts(key: &Value) -> Vec<KeyPart<'_>> {
    let parts = if let Value::Tuple(parts) = key { parts.as_slice() } else { std::slice::from_ref(key) };
    let stacks = |of_kernel: bool| parts.iter().filter(|part| matches!(part, Value::Stack(s) if s.kernel == of_kernel)).count();
    if stacks(true) > 1 || stacks(false) > 1 {
        return chain(parts);
    }
    let rank = |part: &&Value| if let Value::Stack(s) = part { 1 + u8::from(s.kernel) } else { 0 };
    let mut parts: Vec<&Value> = parts.iter().collect();
    parts.sort_by_key(rank);
    let mut all = Vec::new();
    for part in parts {
        match stack(part) {
            Some(s) => all.extend(s.frames.iter().rev().map(|f| KeyPart::Frame(f, s))),
            None => all.push(KeyPart::Other(part)),
        }
    }
    all
}

fn stack(part: &Value) -> Option<&Stack> {
    if let Value::Stack(s) = part { Some(s) } else { None }
}

/// A key with two stacks of a kind is a chain, such as `(waker, waker's stack, stack, task)`. It is read from its end:
/// the last stacks are those of the task that waited, outermost first. Above them are its waker's stacks, beginning
/// with the innermost function.
fn chain(parts: &[Value]) -> Vec<KeyPart<'_>> {
    let (mut all, mut seen, mut wakers) = (Vec::new(), Vec::new(), false);
    for part in parts.iter().rev() {
        let Some(s) = stack(part) else {
            all.push(KeyPart::Other(part));
            continue;
        };
        if seen.contains(&s.kernel) {
            all.push(KeyPart::Between);
            (wakers, seen) = (true, Vec::new());
        }
        seen.push(s.kernel);
        let frames = s.frames.iter().map(|f| KeyPart::Frame(f, s));
        if wakers { all.extend(frames) } else { all.extend(frames.rev()) }
    }
    all
}

/// The meaning of a box's width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Events.
    Samples,
    /// Bytes.
    Bytes,
    /// Time, in this unit.
    Time(TimeUnit),
    /// Values without a known unit.
    Values,
}

/// Units of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// ns
    Nano,
    /// us
    Micro,
    /// ms
    Milli,
}

impl Width {
    /// The unit of a map: the one given to `print()`, or else by the last word of its name, as in `@us` and
    /// `@read_bytes`. The width of a distribution is the number of its values.
    pub fn of(view: &MapView) -> Self {
        let measured = |value: &Value| value.number().is_some() || matches!(value, Value::Avg(_));
        if view.entries.iter().any(|(_, value)| !measured(value)) {
            return Width::Samples;
        }
        match view.show.unit {
            Some(Unit::Duration) => return Width::Time(TimeUnit::Nano),
            Some(Unit::Size) => return Width::Bytes,
            None => {}
        }
        match view.name.trim_start_matches('@').rsplit('_').next().unwrap_or_default() {
            "ns" | "nsecs" => Width::Time(TimeUnit::Nano),
            "us" | "usecs" => Width::Time(TimeUnit::Micro),
            "ms" | "msecs" => Width::Time(TimeUnit::Milli),
            "bytes" => Width::Bytes,
            _ if view.measures => Width::Values,
            _ => Width::Samples,
        }
    }

    /// The unit, in the plural.
    pub fn unit(self) -> &'static str {
        match self {
            Width::Samples => "samples",
            // of whatever the script measures
            Width::Values => "units",
            Width::Bytes => "bytes",
            Width::Time(TimeUnit::Nano) => "nanoseconds",
            Width::Time(TimeUnit::Micro) => "microseconds",
            Width::Time(TimeUnit::Milli) => "milliseconds",
        }
    }

    /// Is it time?
    pub fn is_time(self) -> bool {
        matches!(self, Width::Time(_))
    }
}

/// Is there a frame in the key?
fn has_stack(key: &Value) -> bool {
    parts(key).iter().any(|part| matches!(part, KeyPart::Frame(..)))
}

/// The part of a frame that many samples share.
pub fn frame(frame: &Frame, stack: &Stack) -> String {
    if let Some((id, offset)) = frame.build_id.as_ref().filter(|_| stack.mode == StackMode::BuildId) {
        return format!("{id}+{offset:#x}");
    }
    if let (Some(symbol), Some((file, _)), true) = (&frame.symbol, &frame.source, frame.interpreted) {
        return format!("{symbol} ({file})");
    }
    match (&frame.symbol, &frame.module) {
        (Some(symbol), _) => symbol.clone(),
        (None, _) if stack.mode == StackMode::Raw => format!("{:#x}", frame.addr),
        (None, Some(module)) => format!("[{}]", module.rsplit('/').next().unwrap_or(module)),
        (None, None) => "[unknown]".into(),
    }
}

/// A part of a key in the form for documents, with control characters escaped.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// The text.
    pub text: String,
    /// The kind of the part.
    pub kind: Kind,
}

/// The kinds of parts of keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A part that is not a stack, or a text in place of a stack.
    Label,
    /// A function of the kernel.
    Kernel,
    /// A function of an interpreted language.
    Interpreted,
    /// A function of this binary, if known.
    User(Option<String>),
}

/// Shades of libraries: red, pink, yellow and violet; the kernel is orange, and interpreters are green.
const LIBRARIES: &[[u8; 3]] = &[
    [228, 88, 78],
    [238, 205, 92],
    [226, 122, 148],
    [190, 132, 205],
    [236, 140, 122],
    [214, 180, 60],
    [205, 84, 112],
    [244, 222, 140],
    [163, 120, 186],
    [240, 168, 168],
    [200, 66, 58],
    [216, 150, 196],
];

/// The same if widths are time: all shades are blue.
const LIBRARIES_OF_TIME: &[[u8; 3]] = &[
    [128, 178, 240],
    [150, 200, 230],
    [112, 150, 226],
    [168, 190, 240],
    [120, 196, 236],
    [140, 165, 210],
    [160, 214, 244],
    [104, 166, 214],
];

impl Kind {
    /// The name for a legend.
    pub fn name(&self) -> String {
        match self {
            Kind::Label => String::new(),
            Kind::Kernel => "kernel".into(),
            Kind::Interpreted => "interpreted".into(),
            Kind::User(Some(file)) => file.rsplit('/').next().unwrap_or_default().into(),
            Kind::User(None) => "unknown file".into(),
        }
    }

    /// Red, green and blue. A library's shade depends on its name only, so that it is the same in all pictures.
    pub fn color(&self, width: Width) -> [u8; 3] {
        let time = width.is_time();
        match self {
            Kind::Label => [200, 200, 208],
            Kind::Kernel if time => [90, 128, 214],
            Kind::Kernel => [240, 148, 56],
            Kind::Interpreted if time => [110, 200, 190],
            Kind::Interpreted => [110, 200, 110],
            Kind::User(module) => {
                let shades = if time { LIBRARIES_OF_TIME } else { LIBRARIES };
                let name = module.as_deref().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
                // a hash that is the same on all machines; its middle bits give similar names different shades
                let mut hash = FnvHasher::default();
                hash.write(name.as_bytes());
                shades.get((hash.finish() >> 24) as usize % shades.len()).copied().unwrap_or_default()
            }
        }
    }
}

/// The parts of a key, outermost first.
pub fn names(key: &Value) -> Vec<Name> {
    let name = |part| match part {
        KeyPart::Frame(f, s) => {
            let kind = match (s.kernel, f.interpreted) {
                (true, _) => Kind::Kernel,
                (false, true) => Kind::Interpreted,
                (false, false) => Kind::User(f.module.as_deref().map(visible)),
            };
            Name { text: visible(&frame(f, s)), kind }
        }
        KeyPart::Other(value) => Name { text: shown(value), kind: Kind::Label },
        KeyPart::Between => Name { text: WAKER_SEPARATOR.into(), kind: Kind::Label },
    };
    let names: Vec<Name> = parts(key).into_iter().map(name).filter(|name| !name.text.is_empty()).collect();
    if names.is_empty() { vec![Name { text: NO_STACK.into(), kind: Kind::Label }] } else { names }
}

const STYLE: Style<'_> = Style { trailer: b"..", compact: false, visible: true };

/// A text without control characters.
pub fn visible(text: &str) -> String {
    let mut shown = Vec::new();
    STYLE.text(text.as_bytes(), &mut shown);
    String::from_utf8_lossy(&shown).into_owned()
}

/// A value as text without control characters.
pub fn shown(value: &Value) -> String {
    let mut shown = Vec::new();
    value_text::value(value, STYLE, &mut shown);
    String::from_utf8_lossy(&shown).into_owned()
}

/// Can the map be shown as stacks? One of them must have a width.
pub fn is_stacked(view: &MapView) -> bool {
    view.keyed && view.entries.iter().any(|(key, value)| has_stack(key) && box_width(value).is_some())
}

/// Why a map with stacks in its keys cannot be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoWidth {
    /// No key has a stack, or no value is a number.
    NoStacks,
    /// All values are zero.
    Zero,
    /// The values are negative, or some are and the others are zero.
    Negative,
}

impl NoWidth {
    /// The reason for a map that is not [`is_stacked`].
    pub fn of(view: &MapView) -> Self {
        let values = view.entries.iter().filter(|(key, _)| view.keyed && has_stack(key)).map(|(_, value)| value);
        let reason = |value: &Value| match weight(value) {
            Some(_) => NoWidth::Zero,
            None if is_negative(value) => NoWidth::Negative,
            None => NoWidth::NoStacks,
        };
        values.map(reason).max().unwrap_or(NoWidth::NoStacks)
    }
}

/// Is it a number below zero, which no box can have as its width?
pub fn is_negative(value: &Value) -> bool {
    let number = if let Value::Avg(stats) = value { stats.average().number() } else { value.number() };
    number.is_some_and(|n| n < 0)
}

/// The width of the line's box, which is above zero.
pub fn box_width(value: &Value) -> Option<u64> {
    weight(value).filter(|n| *n > 0)
}

/// The number of a value that is not negative. For a distribution, the number of its values.
pub fn weight(value: &Value) -> Option<u64> {
    let above_zero = |value: &Value| value.number().and_then(|n| u64::try_from(n).ok());
    if let Value::Hist(h) = value {
        Some(h.counts.iter().fold(0u64, |sum, n| sum.saturating_add(*n)))
    } else if let Value::HeatMap(h) = value {
        Some(h.columns.iter().flat_map(|(_, counts)| counts).fold(0u64, |sum, n| sum.saturating_add(*n)))
    } else if let Value::Stats(s) = value {
        Some(s.count)
    } else if let Value::Percentiles(p) = value {
        Some(p.stats.count)
    } else if let Value::Avg(s) = value {
        above_zero(&s.average())
    } else {
        above_zero(value)
    }
}
