//! Renders [`Output`]: one row per format.
//!
//! This module also has the text handling that both sides of a record share: `printf`'s format strings ([`mod@format`])
//! and the calendar ([`time`]). It does not decode symbols, addresses and names, which arrive as [`Value::Text`] and
//! [`Value::Stack`].

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use crate::diag::plural;
use crate::host::Reader;
use crate::output::Output;
use crate::part::Part;
use crate::terminal::Canvas;
use crate::value::{Hist, MapView, Value};

pub mod differences;
pub mod format;
pub mod time;

mod csv;
mod decimal;
mod escape;
mod flamegraph;
mod folded;
mod frame_tree;
mod gfp;
mod heatmap;
mod heatmap_svg;
mod hist;
mod html;
mod integers;
mod json;
mod labels;
mod order;
mod perfetto;
mod pprof;
mod series;
mod span;
mod sparklines;
mod speedscope;
mod stack;
mod stack_keys;
mod state;
mod style;
mod table;
mod test;
mod text;
mod value_text;

#[cfg(test)]
mod tests;

use stack_keys::{NoWidth, is_negative};

pub use differences::DIFFERENCES;
pub use labels::{LabelFormatter, Labels, key_parts};
pub use series::utc;

/// Bytes for standard output (or `-o`) and for standard error.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The results of the run.
    pub out: Vec<u8>,
    /// Messages about the run.
    pub err: Vec<u8>,
}

/// The size of a part of a long map's text.
const PART: usize = 256 << 10;

/// Takes the text so far, and returns false if the rest is not needed.
pub type WritePart<'a> = dyn FnMut(&mut Vec<u8>) -> bool + 'a;

/// A format.
pub trait Renderer {
    /// Appends the text of `output` to `to`.
    fn render(&mut self, output: &Output, to: &mut Rendered);
    /// The same for a long output: passes the text so far to `write` from time to time, which takes it, and returns false if the
    /// rest is not needed.
    fn render_in_parts(&mut self, output: &Output, to: &mut Rendered, _write: &mut WritePart<'_>) {
        self.render(output, to);
    }
    /// Sets the time of the following output, in nanoseconds since 1970; only if [`Format::timed`] is set.
    fn at(&mut self, _unix_ns: i128) {}
    /// Appends a value as `%s` prints it for `reader`.
    fn text(&self, value: &Value, reader: Reader, to: &mut Vec<u8>) {
        text::make(&RenderOptions::default()).text(value, reader, to);
    }
    /// Writes the rest of a document ([`Format::document`]) when the run is over.
    ///
    /// # Errors
    /// Those of `to`.
    fn finish(&mut self, _to: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
    /// The maps that the format cannot show, after everything is written: once, by name.
    fn omitted(&self) -> Option<String> {
        None
    }
    /// The number of maps that the format cannot show.
    fn omitted_maps(&self) -> usize {
        0
    }
    /// The maps that could not be compared with [`RenderOptions::base`], after everything is written.
    fn uncompared(&self) -> Option<String> {
        None
    }
    /// The name of another document, which the next [`Self::finish`] writes.
    fn another(&mut self) -> Option<String> {
        None
    }
}

/// Information about a run apart from its output, for documents that contain it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunInfo {
    /// The command line in shell syntax.
    pub command: String,
    /// The script's name.
    pub name: String,
    /// The script's text.
    pub script: String,
    /// The host's name.
    pub host: String,
    /// The kernel's release and the machine.
    pub kernel: String,
    /// Start of the run, nanoseconds since 1970.
    pub start_ns: u64,
}

/// Options of a renderer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderOptions {
    /// Appended to a string that was cut (`str_trunc_trailer`); may be empty.
    pub trunc_trailer: String,
    /// False drops `warnf`, failed helpers and run-time warnings (`--no-warnings`); `errorf` stays.
    pub warnings: bool,
    /// Maps with keys in aligned columns (`map_layout`); text only.
    pub tables: bool,
    /// Control characters in values are escaped, because the output is a terminal or the log of a CI step.
    pub escape_output: bool,
    /// The same for messages.
    pub escape_messages: bool,
    /// A program that reads the messages may find commands in them: see [`crate::diag::uncommanded_line`].
    pub commands: bool,
    /// The canvas for pictures of maps.
    pub canvas: Canvas,
    /// Another renderer prints the same output and all messages; this one adds only what the other cannot show.
    pub maps_only: bool,
    /// Maximum number of parts of a map's key.
    pub key_parts: usize,
    /// The base for comparing flame graphs.
    pub base: Option<Arc<Base>>,
    /// Information about the run.
    pub about: Arc<RunInfo>,
    /// The name of the script, if several scripts share the output.
    pub script: Option<String>,
}

/// The base for comparing flame graphs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// Another map of the run.
    Map(String),
    /// The maps of the same names of another run.
    Run {
        /// The stacks of each map with their counts.
        maps: BTreeMap<String, BTreeMap<String, u64>>,
        /// The source of the run.
        label: String,
    },
}

impl Base {
    /// The results of another run.
    pub fn from_run(views: &[MapView], place: String) -> Self {
        Base::Run { maps: flamegraph::folded(views), label: place }
    }

    fn map(&self) -> Option<&str> {
        match self {
            Base::Map(name) => Some(name),
            Base::Run { .. } => None,
        }
    }

    /// What pictures are compared with, as messages name it.
    fn label(&self) -> &str {
        match self {
            Base::Map(name) => name,
            Base::Run { label: place, .. } => place,
        }
    }
}

impl RenderOptions {
    /// Does `reader` use a terminal?
    fn at_terminal(&self, reader: Reader) -> bool {
        match reader {
            Reader::Output => self.escape_output,
            Reader::Messages => self.escape_messages || self.commands,
            Reader::Program => false,
        }
    }
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self {
            trunc_trailer: "..".into(),
            warnings: true,
            tables: false,
            escape_output: false,
            escape_messages: false,
            commands: false,
            canvas: Canvas::default(),
            maps_only: false,
            key_parts: 1,
            base: None,
            about: Arc::default(),
            script: None,
        }
    }
}

/// A row: an argument of `-f`, and the endings of files that `-o` writes in this format.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The name in `-f`.
    pub name: &'static str,
    /// Endings of file names.
    pub endings: &'static [&'static str],
    /// One line for `--help` and the man page.
    pub doc: &'static str,
    /// It needs [`Output::State`], which a run produces only on request.
    pub state: bool,
    /// It needs the time of each record ([`Renderer::at`]).
    pub timed: bool,
    /// It is useless unless it is complete: [`Renderer::finish`] completes it. Text output continues beside it.
    pub document: bool,
    /// Its records are lines.
    pub lines: bool,
    /// What it shows besides maps.
    pub shows: &'static [Content],
    /// It compares with [`RenderOptions::base`].
    pub compares: bool,
    /// Every program has it.
    pub everywhere: bool,
    /// How several runs share one output.
    pub shared: RunLabel,
    /// Creates the renderer of one run.
    pub make: fn(&RenderOptions) -> Box<dyn Renderer>,
}

/// Results of a script besides maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// Spans of a timeline.
    Spans,
    /// Text and values.
    Lines,
}

impl Content {
    /// The content of an output.
    pub fn of(output: &Output) -> Option<Self> {
        match output {
            Output::Text { data, .. } => (!data.is_empty()).then_some(Content::Lines),
            Output::Value(_) => Some(Content::Lines),
            Output::Span(_) => Some(Content::Spans),
            Output::Map(_)
            | Output::Problem { .. }
            | Output::Attached { .. }
            | Output::Lost { .. }
            | Output::Limited(_)
            | Output::Counts(_)
            | Output::Test(_)
            | Output::End
            | Output::State(_) => None,
        }
    }

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Content::Spans => "spans",
            Content::Lines => "printed lines",
        }
    }
}

/// How the lines of several runs are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLabel {
    /// They are not.
    No,
    /// The name of the script precedes each line.
    Prefix,
    /// Each line has it as a field ([`RenderOptions::script`]).
    Field,
}

/// A document.
const DOCUMENT: Format = Format {
    name: "",
    endings: &[],
    doc: "",
    state: false,
    timed: false,
    document: true,
    lines: false,
    shows: &[],
    compares: false,
    everywhere: false,
    shared: RunLabel::No,
    make: text::make,
};

impl Format {
    /// Its file appears when it is complete, and keeps its old contents until then: the state of a run is written at the
    /// end, too.
    pub fn appears_at_end(&self) -> bool {
        self.document || self.state
    }
}

/// A stream: everything written so far is readable.
const STREAM: Format = Format { document: false, lines: true, ..DOCUMENT };
const EVERYTHING: &[Content] = &[Content::Spans, Content::Lines];

/// The default, for people.
pub const TEXT: &str = "text";

/// All formats; the first is the default.
pub const FORMATS: &[Format] = &[
    Format {
        name: TEXT,
        endings: &[".txt"],
        doc: "Text. Messages about the run go to standard error.",
        shared: RunLabel::Prefix,
        everywhere: true,
        shows: EVERYTHING,
        make: text::make,
        ..STREAM
    },
    Format {
        name: "json",
        endings: &[".ndjson", ".json", ".jsonl"],
        doc: "One JSON object per line, including messages about the run.",
        shared: RunLabel::Field,
        everywhere: true,
        shows: EVERYTHING,
        make: json::make,
        ..STREAM
    },
    Format {
        name: "folded",
        endings: &[".folded"],
        doc: "Input for flame graphs, with a line for each key of each map. A line contains the parts of the key and the frames of its stacks, the outermost frame first, separated by semicolons. The value follows. Lines do not contain the name of the map, so programs that read them add up all maps. All other output goes to standard error.",
        make: folded::make,
        ..STREAM
    },
    Format {
        name: "state",
        doc: "The final contents of the maps as one line of JSON, which `rbt merge` adds up. All other output goes to standard error, except for maps that the script prints.",
        state: true,
        everywhere: true,
        make: state::make,
        ..STREAM
    },
    Format {
        name: "csv",
        endings: &[".csv"],
        doc: "One table for databases and spreadsheets. It has a row for each number (an entry of a map, a field of statistics, a bucket, a point of a series) and for each text. All rows have the same columns: type, name, the parts of the key, time, field, the bounds from and to, value, and text. Control characters are escaped. If the text of a key, a span or a line begins with =, +, -, @ or ' and is not a number, rbt puts ' before it, so that spreadsheets do not run it as a formula.",
        everywhere: true,
        shows: EVERYTHING,
        make: csv::make,
        ..STREAM
    },
    Format {
        name: "html",
        endings: &[".html", ".htm"],
        doc: "One page with all results. It shows maps as tables, histograms, heat maps, flame graphs and charts of tseries. It also contains the lines of printf, the script, and lost events. The page needs no network. To search it for a word, add `#q=WORD` to its address. The page shows at most 100,000 rows of a map, and at most 200,000 boxes of a flame graph. `--diff` compares flame graphs.",
        compares: true,
        shows: EVERYTHING,
        make: html::make,
        ..DOCUMENT
    },
    Format {
        name: "flamegraph",
        endings: &[".svg"],
        doc: "A flame graph in SVG for each map with stacks in its keys, and a picture of each heat map. rbt writes the first map by name to FILE.svg, and each other map to FILE.NAME.svg. You can zoom and search in a flame graph. Kernel functions are orange, interpreted functions are green, and other parts of the key are gray. The functions of a library have a shade of red, yellow or violet, which depends on its name. If the widths are times, all boxes are blue. rbt takes the unit of the widths from `print()`, or from the name of the map if it ends in ns, us or ms. Otherwise, the unit of `sum`, `avg`, `min` and `max` is `units`. The box of a caller spans those of its callees. The width for a histogram is its number of values. rbt does not draw stacks whose value is zero or negative. If a key has two stacks of the same kind, such as (waker, its stack, stack, task), rbt draws the stack of the waker above the frame `--`, with the innermost function first. `--diff` compares two runs.",
        compares: true,
        make: flamegraph::flamegraph,
        ..DOCUMENT
    },
    Format {
        name: "icicle",
        doc: "A flame graph with the outermost function at the top. Only -f selects it.",
        compares: true,
        make: flamegraph::icicle,
        ..DOCUMENT
    },
    Format {
        name: "pprof",
        endings: &[".pb.gz", ".pprof"],
        doc: "The maps with stacks in their keys as one compressed profile for pprof. The profile has a sample type for each map, and the other parts of the key are labels.",
        make: pprof::make,
        ..DOCUMENT
    },
    Format {
        name: "speedscope",
        endings: &[".speedscope.json"],
        doc: "A profile for speedscope for each map with stacks in its keys.",
        make: speedscope::make,
        ..DOCUMENT
    },
    Format {
        name: "perfetto",
        endings: &[".pftrace", ".perfetto-trace"],
        doc: "A timeline for Perfetto. It shows spans, printed text as instants, and numbers and time series as counters. Messages go to standard error.",
        timed: true,
        lines: false,
        shows: EVERYTHING,
        make: perfetto::make,
        ..STREAM
    },
];

/// The formats of this program.
static PROVIDED: Part<&[Format]> = Part::new(FORMATS);

/// Provides all formats. Without it, a program has those with [`Format::everywhere`].
pub fn provide() {
    PROVIDED.provide(FORMATS);
}

/// The formats that this program has; the first is the default.
pub fn formats() -> &'static [Format] {
    PROVIDED.get().unwrap_or(&EVERYWHERE)
}

const EVERYWHERE_COUNT: usize = {
    let (mut count, mut at) = (0, 0);
    while at < FORMATS.len() {
        count += FORMATS[at].everywhere as usize;
        at += 1;
    }
    count
};

/// The rows that every program has, copied at compile time: a program that refers to no others does not contain their code.
static EVERYWHERE: [Format; EVERYWHERE_COUNT] = {
    let mut all = [FORMATS[0]; EVERYWHERE_COUNT];
    let (mut to, mut at) = (0, 0);
    while at < FORMATS.len() {
        if FORMATS[at].everywhere {
            all[to] = FORMATS[at];
            to += 1;
        }
        at += 1;
    }
    all
};

/// The names of all formats, and the endings of their files.
static NAMES: [(&str, &[&str]); FORMATS.len()] = {
    let mut all: [(&str, &[&str]); FORMATS.len()] = [("", &[]); FORMATS.len()];
    let mut at = 0;
    while at < FORMATS.len() {
        all[at] = (FORMATS[at].name, FORMATS[at].endings);
        at += 1;
    }
    all
};

/// Is it the name of a format that other programs have?
pub fn is_lacking(name: &str) -> bool {
    find(name).is_none() && NAMES.iter().any(|(known, _)| *known == name)
}

/// The name of the format that the ending of this file promises, if only other programs have it.
pub fn lacking_format_of_file(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    let fits = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    let found = NAMES.iter().find(|(_, endings)| fits(endings)).map(|(name, _)| *name)?;
    format_of_file(path).is_none().then_some(found)
}

/// The row of this name.
pub fn find(name: &str) -> Option<&'static Format> {
    formats().iter().find(|f| f.name == name)
}

/// The row with the ending of this file; the longest one decides.
pub fn format_of_file(path: &Path) -> Option<&'static Format> {
    let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    let fits = |format: &'static Format| {
        let lengths = format.endings.iter().filter(|ending| name.ends_with(**ending)).map(|ending| ending.len());
        lengths.max().map(|length| (length, format))
    };
    formats().iter().filter_map(fits).max_by_key(|(length, _)| *length).map(|(_, format)| format)
}

/// Endings of files for which people expect a format that rbt does not write, and the ending of the nearest format.
const NEAREST_FORMATS: &[(&[&str], &str)] = &[
    (&["png", "jpg", "jpeg", "gif", "webp", "bmp", "pdf"], ".svg"),
    (&["xlsx", "xls", "ods", "tsv", "parquet", "arrow", "db", "sqlite"], ".csv"),
    (&["xml", "yaml", "yml"], ".json"),
    (&["xhtml"], ".html"),
    (&["pb", "gz"], ".pb.gz"),
];

/// The ending of the format that is nearest to the one that the file's name promises, if rbt does not write that.
pub fn nearest(path: &Path) -> Option<&'static str> {
    let ending = path.extension()?.to_string_lossy().to_ascii_lowercase();
    let row = NEAREST_FORMATS.iter().find(|(endings, _)| endings.contains(&ending.as_str()));
    row.filter(|_| format_of_file(path).is_none()).map(|(_, nearest)| *nearest)
}

/// The maps that a format of stacks cannot show.
#[derive(Default)]
struct Omitted {
    /// Maps, and the reasons.
    maps: BTreeMap<String, NoWidth>,
    /// Maps that are shown, and the number of their negative values, which are not.
    shown: BTreeMap<String, usize>,
}

impl Omitted {
    fn add(&mut self, output: &Output) {
        if let Output::Map(view) = output
            && !view.entries.is_empty()
        {
            self.maps.insert(view.name.clone(), NoWidth::of(view));
        }
    }

    /// The map is shown.
    fn shows(&mut self, view: &MapView) {
        let negative = view.entries.iter().filter(|(_, value)| is_negative(value)).count();
        self.shown.insert(view.name.clone(), negative);
    }

    /// The maps that are not shown, and why.
    fn maps(&self) -> impl Iterator<Item = (&str, NoWidth)> {
        // an earlier state of the map may be shown
        self.maps.iter().filter(|(name, _)| !self.shown.contains_key(*name)).map(|(name, why)| (name.as_str(), *why))
    }

    /// For [`Renderer::omitted`]. `no_other`: what else the format could show of a map without stacks.
    fn message(&self, no_other: &str) -> Option<String> {
        let because = |reason: NoWidth, why: &str| {
            let maps = self.maps().filter(|(_, of)| *of == reason).map(|(name, _)| name).collect::<Vec<_>>().join(", ");
            (!maps.is_empty()).then(|| format!("{maps}: {why}"))
        };
        let negative = self.shown.iter().filter(|(_, n)| **n > 0);
        let negative = negative.map(|(name, n)| format!("{} of {name}", plural(*n, "negative value", "negative values")));
        let parts = [
            because(NoWidth::NoStacks, &format!("no stacks with numbers{no_other}")),
            because(NoWidth::Zero, "all values are zero"),
            because(NoWidth::Negative, "no value is above zero, and widths cannot be negative"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().chain(negative).collect();
        (!parts.is_empty()).then(|| format!("does not show {}", parts.join("; ")))
    }
}

/// Lines of a heat map in text besides its rows: the name, those below the picture, and an empty one.
pub const HEAT_MAP_LINES: usize = 2 + heatmap::LINES_BELOW;

/// Creates the renderer of text, for any format.
pub fn text(options: &RenderOptions) -> Box<dyn Renderer> {
    text::make(options)
}

/// Like [`text`] for a map, but with a line per time series, as a screen needs that is drawn again and again.
pub fn on_screen(view: &MapView, options: &RenderOptions) -> Vec<u8> {
    let mut to = Vec::new();
    match view.entries.first() {
        Some((_, Value::Series(_))) => {
            let style = style::Style { trailer: options.trunc_trailer.as_bytes(), compact: false, visible: options.escape_output };
            sparklines::text(view, style, options.canvas, &mut to);
        }
        _ => text::map(view, options, &mut to),
    }
    to
}

/// Formats values as in text output.
pub struct TextFormatter(Box<dyn Renderer>);

impl Default for TextFormatter {
    fn default() -> Self {
        Self(text::make(&RenderOptions::default()))
    }
}

impl TextFormatter {
    /// A value for reading by a program.
    pub fn format(&self, value: &Value) -> String {
        let mut shown = Vec::new();
        self.0.text(value, Reader::Program, &mut shown);
        String::from_utf8_lossy(&shown).into_owned()
    }
}

/// The buckets of a histogram from the first to the last with samples: minimum and maximum, if they exist, and the count.
pub fn buckets(hist: &Hist) -> impl Iterator<Item = (Option<i128>, Option<i128>, u64)> {
    hist::rows(hist, 1).into_iter().map(|row| (row.min, row.max, row.count))
}

/// Nanoseconds in readable form.
pub fn duration(ns: i128) -> String {
    decimal::duration((ns, 1), None)
}

/// Does a map have no rows? A number that was never set is zero; a histogram without samples has no rows.
fn is_nothing(view: &MapView) -> bool {
    view.entries.is_empty() || !view.set && view.kind.is_picture()
}
