//! Keys of maps as flame graphs have them: labels and frames, outermost first, and how wide each is.

use super::spell;
use super::style::Style;
use crate::value::{Frame, MapView, Stack, StackMode, Value};

/// In place of a key without parts.
pub const NO_STACK: &str = "[no stack]";

/// A part of a key.
pub enum Part<'a> {
    /// A frame, and the stack that it is of.
    Frame(&'a Frame, &'a Stack),
    /// What is not a stack.
    Other(&'a Value),
}

/// The parts of a key: those that are not stacks come first, then the user stack, then the kernel stack, whatever the order of
/// the key.
pub fn parts(key: &Value) -> impl Iterator<Item = Part<'_>> {
    let parts = if let Value::Tuple(parts) = key { parts.as_slice() } else { std::slice::from_ref(key) };
    let rank = |part: &&Value| if let Value::Stack(s) = part { 1 + u8::from(s.kernel) } else { 0 };
    let mut parts: Vec<&Value> = parts.iter().collect();
    parts.sort_by_key(rank);
    parts.into_iter().flat_map(|part| {
        let (frames, other) = if let Value::Stack(s) = part { (Some(s), None) } else { (None, Some(Part::Other(part))) };
        other.into_iter().chain(frames.into_iter().flat_map(|s| s.frames.iter().rev().map(move |f| Part::Frame(f, s))))
    })
}

/// Is there a frame in the key?
fn has_stack(key: &Value) -> bool {
    parts(key).any(|part| matches!(part, Part::Frame(..)))
}

/// Of a frame what many samples have in common.
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

/// A part of a key as documents name it, with control characters escaped.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// What is shown.
    pub text: String,
    /// What it is.
    pub kind: Kind,
}

/// What a part of a key is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A part that is not a stack, or a word in place of a stack.
    Label,
    /// A function of the kernel.
    Kernel,
    /// A function of an interpreted language.
    Interpreted,
    /// A function of this binary, as far as it is known.
    User(Option<String>),
}

/// The parts of a key, outermost first.
pub fn names(key: &Value) -> Vec<Name> {
    let name = |part| match part {
        Part::Frame(f, s) => {
            let kind = match (s.kernel, f.interpreted) {
                (true, _) => Kind::Kernel,
                (false, true) => Kind::Interpreted,
                (false, false) => Kind::User(f.module.as_deref().map(visible)),
            };
            Name { text: visible(&frame(f, s)), kind }
        }
        Part::Other(value) => Name { text: shown(value), kind: Kind::Label },
    };
    let names: Vec<Name> = parts(key).map(name).filter(|name| !name.text.is_empty()).collect();
    if names.is_empty() { vec![Name { text: NO_STACK.into(), kind: Kind::Label }] } else { names }
}

const STYLE: Style<'_> = Style { trailer: b"..", tight: false, visible: true };

/// A text without control characters.
pub fn visible(text: &str) -> String {
    let mut shown = Vec::new();
    STYLE.text(text.as_bytes(), &mut shown);
    String::from_utf8_lossy(&shown).into_owned()
}

/// A value as text without control characters.
pub fn shown(value: &Value) -> String {
    let mut shown = Vec::new();
    spell::value(value, STYLE, &mut shown);
    String::from_utf8_lossy(&shown).into_owned()
}

/// Can the map be shown as stacks?
pub fn is_stacked(view: &MapView) -> bool {
    view.keyed && view.entries.iter().any(|(key, value)| has_stack(key) && weight(value).is_some())
}

/// How wide the line's box is. Of a distribution, how many values it has.
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
