//! Renders [`Output`]: one row per format.
//!
//! This module also has what both sides of a record share about text: `printf`'s format strings ([`mod@format`]) and the
//! calendar ([`time`]). It does not decode symbols, addresses and names, which arrive as [`Value::Text`] and [`Value::Stack`].

use crate::host::Reader;
use crate::value::{Hist, MapView, Output, Value};

pub mod differences;
pub mod format;
pub mod time;

mod decimal;
mod digits;
mod folded;
mod gfp;
mod hist;
mod json;
mod order;
mod series;
mod spell;
mod stack;
mod state;
mod style;
mod table;
mod text;
mod trial;

#[cfg(test)]
mod tests;

pub use differences::DIFFERENCES;
pub use series::utc;

/// Bytes for standard output (or `-o`) and for standard error.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The run's result.
    pub out: Vec<u8>,
    /// Messages about the run.
    pub err: Vec<u8>,
}

/// A format.
pub trait Renderer {
    /// Appends what `output` looks like to `to`.
    fn render(&mut self, output: &Output, to: &mut Rendered);
    /// Appends a value as `%s` shows it to `reader`.
    fn text(&self, value: &Value, reader: Reader, to: &mut Vec<u8>);
}

/// Options of a renderer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderOptions {
    /// Ends a string that was cut (`str_trunc_trailer`); empty for nothing.
    pub trunc_trailer: String,
    /// False drops `warnf`, failed helpers and run-time warnings (`--no-warnings`); `errorf` stays.
    pub warnings: bool,
    /// Maps with keys in aligned columns (`map_layout`); text only.
    pub tables: bool,
    /// The output is a terminal, so control characters in values are escaped.
    pub terminal: bool,
    /// The messages go to a terminal: the same for them.
    pub messages_terminal: bool,
    /// Whoever reads the messages may find commands in them: see [`crate::diag::uncommanded_line`].
    pub commands: bool,
}

impl RenderOptions {
    /// Does `reader` sit at a terminal?
    fn at_terminal(&self, reader: Reader) -> bool {
        match reader {
            Reader::Output => self.terminal,
            Reader::Messages => self.messages_terminal || self.commands,
            Reader::Program => false,
        }
    }
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self { trunc_trailer: "..".into(), warnings: true, tables: false, terminal: false, messages_terminal: false, commands: false }
    }
}

/// A row: an argument of `-f`.
pub struct Format {
    /// As the user writes it.
    pub name: &'static str,
    /// One line for `--help` and the man page.
    pub doc: &'static str,
    /// It needs [`Output::State`], which a run makes only if asked.
    pub state: bool,
    /// Makes the renderer of one run.
    pub make: fn(&RenderOptions) -> Box<dyn Renderer>,
}

/// All formats; the first is the default.
pub const FORMATS: &[Format] = &[
    Format { name: "text", doc: "Text; messages about the run go to standard error.", state: false, make: text::make },
    Format { name: "json", doc: "One JSON object per line, including messages about the run.", state: false, make: json::make },
    Format {
        name: "folded",
        doc: "Input for flame graphs: a line per key of each map, with the parts and frames of the key, outermost first, separated by semicolons, and the value. All other output goes to standard error.",
        state: false,
        make: folded::make,
    },
    Format {
        name: "state",
        doc: "One JSON document on one line, with all that the maps have counted when the run is over, for `rbt merge` to add up. All other output goes to standard error, except for maps that the script prints.",
        state: true,
        make: state::make,
    },
];

/// The row of this name.
pub fn find(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|f| f.name == name)
}

/// Shows values as text output has them.
pub struct Speller(Box<dyn Renderer>);

impl Default for Speller {
    fn default() -> Self {
        Self(text::make(&RenderOptions::default()))
    }
}

impl Speller {
    /// A value, as a program reads it.
    pub fn spell(&self, value: &Value) -> String {
        let mut shown = Vec::new();
        self.0.text(value, Reader::Program, &mut shown);
        String::from_utf8_lossy(&shown).into_owned()
    }
}

/// The buckets of a histogram from the first to the last with samples: minimum and maximum, if they exist, and the count.
pub fn buckets(of: &Hist) -> impl Iterator<Item = (Option<i128>, Option<i128>, u64)> {
    hist::rows(of, 1).into_iter().map(|row| (row.min, row.max, row.count))
}

/// Nanoseconds as people say them.
pub fn duration(ns: i128) -> String {
    decimal::duration((ns, 1), None)
}

/// Is there nothing to show of a map? A number that was never set is zero; a histogram without samples has no rows.
fn is_nothing(view: &MapView) -> bool {
    view.entries.is_empty() || !view.set && matches!(view.kind, "hist" | "tseries")
}

/// Is this kind of [`Output::Problem`] one whose text the script made?
fn is_script(kind: &str) -> bool {
    matches!(kind, "errorf" | "warnf")
}

/// Is this kind of [`Output::Problem`] a warning, which `--no-warnings` drops? All but the script's own `errorf`.
fn is_warning(kind: &str) -> bool {
    kind != "errorf"
}
