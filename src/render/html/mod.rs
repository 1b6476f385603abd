//! `-f html`: one self-contained page: each map in the form of its type, `printf` lines, the script, the command, the kernel and
//! what was lost.
//!
//! The page's script (`script.js`) builds everything from one JSON text, and inserts values as text only.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

use super::escape::escaped;
use super::flamegraph::{self, folded_line};
use super::frame_tree::{self, Merged};
use super::heatmap::Grid;
use super::order::{divide, sort_entries};
use super::stack_keys::{Kind, Name, TimeUnit, Width, box_width, is_stacked, names, shown, visible};
use super::{Base, RenderOptions, Rendered, Renderer, hist, span, text, utc};
use crate::output::Output;
use crate::timeline::{Phase, Span, Track};
use crate::value::{MapView, Value};

/// Maximum number of lines of text in a page.
const MAX_LINES: usize = 100_000;
/// Maximum number of messages in a page.
const MAX_MESSAGES: usize = 1000;
/// Maximum number of spans in a page.
const MAX_SPANS: usize = 200_000;
/// Maximum number of rows of a map in a page, and of boxes in its flame graph.
const MAX_ROWS: usize = 100_000;
const MAX_BOXES: usize = 200_000;
/// Maximum number of columns and rows of a heat map in a page.
const MAX_COLUMNS: usize = 450;
const MAX_BUCKETS: usize = 200;
/// The limit of exact integers in JavaScript.
const EXACT: i128 = 1 << 53;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Creates the renderer.
pub fn make(options: &RenderOptions) -> Box<dyn Renderer> {
    let messages = text::make(&RenderOptions { maps_only: false, ..options.clone() });
    Box::new(Page {
        options: options.clone(),
        messages,
        data: Data::default(),
        known: HashMap::new(),
        kinds: HashMap::new(),
        tracks: BTreeMap::new(),
        names: HashMap::new(),
        maps: BTreeMap::new(),
        without_base: Vec::new(),
        lost: 0,
    })
}

struct Page {
    options: RenderOptions,
    /// Formats messages.
    messages: Box<dyn Renderer>,
    data: Data,
    /// Indices of frames.
    known: HashMap<Name, u32>,
    /// Indices of kinds, and of tracks and names of spans.
    kinds: HashMap<Kind, u32>,
    tracks: BTreeMap<Track, u32>,
    names: HashMap<String, u32>,
    /// Indices of maps: the last printed state of each counts.
    maps: BTreeMap<String, usize>,
    /// Maps that could not be compared.
    without_base: Vec<String>,
    /// Lost events. They are reported repeatedly during the run; the counts at its end include them.
    lost: u64,
}

#[derive(Default, Serialize)]
struct Data {
    maps: Vec<Map>,
    /// The name, and the index of its file or of another kind.
    frames: Vec<(String, u32)>,
    /// The name, the color, and the color if widths are time.
    kinds: Vec<(String, String, String)>,
    spans: Spans,
    lines: Vec<String>,
    more_lines: usize,
    /// Messages about the run.
    losses: Vec<String>,
    more_losses: usize,
}

/// The spans of the page.
#[derive(Default, Serialize)]
struct Spans {
    /// Names of tracks.
    tracks: Vec<String>,
    /// Indices of tracks in the order in which they are drawn.
    order: Vec<u32>,
    names: Vec<String>,
    /// The base of starts, since 1970, because JavaScript's numbers are not exact in nanoseconds.
    base_ms: i64,
    /// The track, depth, index of the name, start and duration in nanoseconds, 1 if the end was not seen, and values.
    rows: Vec<(u32, usize, u32, i64, i64, u8, String)>,
    omitted: usize,
}

#[derive(Serialize)]
struct Map {
    name: String,
    kind: &'static str,
    columns: Vec<String>,
    /// The parts of the key, and the kind's form of the value.
    rows: Vec<(Vec<Json>, Json)>,
    more_rows: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    graph: Option<Graph>,
}

/// A flame graph.
#[derive(Serialize)]
struct Graph {
    unit: &'static str,
    /// Indices of frames, outermost first, the weight, and the weight in what the map is compared with.
    #[serde(serialize_with = "triples")]
    stacks: Vec<Merged>,
    /// All boxes of at least this weight are there; 0: all.
    least: u64,
    /// What the map is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<String>,
}

fn triples<S: Serializer>(stacks: &[Merged], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(stacks.iter().map(|stack| (&stack.frames, stack.weight, stack.before)))
}

impl Renderer for Page {
    fn render(&mut self, output: &Output, _: &mut Rendered) {
        match output {
            Output::Text { kind: _, data, newline: _ } => {
                let text = String::from_utf8_lossy(data);
                text.strip_suffix('\n').unwrap_or(&text).split('\n').for_each(|line| self.line(visible(line)));
            }
            Output::Value(value) => self.line(shown(value)),
            Output::Map(view) if view.entries.is_empty() => {}
            Output::Map(view) => self.map(view),
            Output::Lost { events } => self.lost += events,
            Output::Counts(_) => {
                self.lost = 0;
                self.message(output);
            }
            Output::Problem { .. } | Output::Limited(_) => self.message(output),
            Output::Span(span) => self.span(span),
            Output::Attached { .. } | Output::End | Output::State(_) | Output::Test(_) => {}
        }
    }

    fn uncompared(&self) -> Option<String> {
        flamegraph::uncompared(self.options.base.as_deref()?, &self.without_base)
    }

    fn finish(&mut self, to: &mut dyn Write) -> io::Result<()> {
        if self.lost > 0 {
            self.message(&Output::Lost { events: self.lost });
        }
        self.compare();
        self.data.spans.order = self.track_order();
        for graph in self.data.maps.iter_mut().filter_map(|map| map.graph.as_mut()) {
            (graph.stacks, graph.least) = frame_tree::bounded(std::mem::take(&mut graph.stacks), MAX_BOXES);
        }
        let about = &self.options.about;
        let facts = [
            ("command", visible(&about.command)),
            ("host", visible(&about.host)),
            ("kernel", visible(&about.kernel)),
            ("start", format!("{} UTC", utc(about.start_ns.into()).split('.').next().unwrap_or_default())),
        ];
        let title = escaped(&visible(&about.name));
        write!(
            to,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<div class=\"dim\">"
        )?;
        for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
            write!(to, "<div>{name}: <code>{}</code></div>", escaped(value))?;
        }
        let script: Vec<String> = about.script.lines().map(|line| line.split('\t').map(visible).collect::<Vec<_>>().join("\t")).collect();
        write!(
            to,
            "</div>\n<details><summary>script</summary><pre>{}</pre></details>\n<main id=\"main\"></main>\n<script type=\"application/json\" id=\"data\">",
            escaped(&script.join("\n"))
        )?;
        serde_json::to_writer(ScriptEscaper(&mut *to), &self.data)?;
        write!(to, "</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n")
    }
}

impl Page {
    fn message(&mut self, output: &Output) {
        let mut rendered = Rendered::default();
        self.messages.render(output, &mut rendered);
        let rendered = String::from_utf8_lossy(&rendered.err).into_owned();
        for line in rendered.lines().filter(|line| !line.trim().is_empty()) {
            if self.data.losses.len() < MAX_MESSAGES { self.data.losses.push(visible(line)) } else { self.data.more_losses += 1 }
        }
    }

    fn line(&mut self, line: String) {
        if self.data.lines.len() < MAX_LINES { self.data.lines.push(line) } else { self.data.more_lines += 1 }
    }

    fn span(&mut self, span: &Span) {
        if span.phase == Phase::Begin {
            return;
        }
        let spans = &mut self.data.spans;
        if spans.rows.len() >= MAX_SPANS {
            spans.omitted += 1;
            return;
        }
        if spans.rows.is_empty() {
            // spans are printed when they end: an earlier one may have begun before this
            spans.base_ms = (span.start_ns / 1_000_000) as i64;
        }
        let track = *self.tracks.entry(span.track.clone()).or_insert_with(|| {
            spans.tracks.push(String::new());
            u32::try_from(spans.tracks.len() - 1).unwrap_or(u32::MAX)
        });
        // after execve(2) a thread has another name, and the last name counts
        if let Some(shown) = spans.tracks.get_mut(track as usize) {
            *shown = span::track(span);
        }
        let name = indexed(&mut self.names, &mut spans.names, span::name(span));
        let start = (span.start_ns - i128::from(spans.base_ms) * 1_000_000) as i64;
        let open = u8::from(span.phase.is_open());
        spans.rows.push((track, span.depth, name, start, (span.end_ns - span.start_ns) as i64, open, span::values(span)));
    }

    /// Groups stand where their first track appeared.
    fn track_order(&self) -> Vec<u32> {
        let mut first: HashMap<Track, u32> = HashMap::new();
        for (track, at) in &self.tracks {
            first.entry(track.group()).and_modify(|first| *first = (*first).min(*at)).or_insert(*at);
        }
        let mut order: Vec<(&Track, u32)> = self.tracks.iter().map(|(track, at)| (track, *at)).collect();
        order.sort_by_key(|(track, _)| (first.get(&track.group()), *track));
        order.into_iter().map(|(_, at)| at).collect()
    }

    fn map(&mut self, view: &MapView) {
        let stacks = is_stacked(view).then(|| self.stacks(view));
        let div = view.show.div;
        let entries = sort_entries(view);
        let key_parts = entries.iter().map(|(key, _)| parts(key).len()).max().filter(|_| view.keyed).unwrap_or(0);
        let mut columns: Vec<String> = match key_parts {
            1 => vec!["key".into()],
            n => (1..=n).map(|n| format!("key {n}")).collect(),
        };
        match entries.first().and_then(|(_, value)| value.fields()) {
            Some(fields) => columns.extend(fields.iter().map(|(name, _)| name.to_string())),
            None => columns.push("value".into()),
        }
        // the greatest come first
        let rows = entries.iter().rev().take(MAX_ROWS).map(|(key, value)| {
            let key = if view.keyed { parts(key).iter().map(cell).collect() } else { Vec::new() };
            (key, content(value, div))
        });
        let map = Map {
            name: visible(&view.title()),
            kind: view.kind.name(),
            columns,
            rows: rows.collect(),
            more_rows: entries.len().saturating_sub(MAX_ROWS),
            graph: stacks.map(|stacks| Graph { unit: Width::of(view).unit(), stacks, least: 0, base: None }),
        };
        let next = self.data.maps.len();
        let at = *self.maps.entry(view.name.clone()).or_insert(next);
        match self.data.maps.get_mut(at) {
            Some(old) => *old = map,
            None => self.data.maps.push(map),
        }
    }

    /// Adds to each flame graph the weights of what it is compared with.
    fn compare(&mut self) {
        let Some(base) = self.options.base.clone() else { return };
        let frames = &self.data.frames;
        let line = |stack: &Merged| {
            let name = |frame: &u32| frames.get(*frame as usize).map_or("", |(name, _)| name);
            folded_line(stack.frames.iter().map(name))
        };
        let base_graph = base.map().and_then(|name| self.data.maps.get(*self.maps.get(name)?)?.graph.as_ref());
        let base_graph = base_graph.iter().flat_map(|graph| &graph.stacks).fold(BTreeMap::<String, u64>::new(), |mut sums, stack| {
            let sum = sums.entry(line(stack)).or_default();
            *sum = sum.saturating_add(stack.weight);
            sums
        });
        for (name, at) in &self.maps {
            let Some(graph) = self.data.maps.get_mut(*at).and_then(|map| map.graph.as_mut()) else { continue };
            let before = match &*base {
                Base::Map(other) if other == name => continue,
                Base::Map(_) => Some(&base_graph).filter(|base_graph| !base_graph.is_empty()),
                Base::Run { maps, .. } => maps.get(name),
            };
            let Some(before) = before else {
                self.without_base.push(name.clone());
                continue;
            };
            // of several stacks with the same names, the first has the weight of all
            let mut seen = HashSet::new();
            for stack in &mut graph.stacks {
                let line = line(stack);
                stack.before = before.get(&line).copied().filter(|_| !seen.contains(&line)).unwrap_or(0);
                seen.insert(line);
            }
            graph.base = Some(visible(base.label()));
        }
    }

    fn stacks(&mut self, view: &MapView) -> Vec<Merged> {
        let mut stacks = Vec::new();
        for (key, value) in &view.entries {
            let Some(n) = box_width(value) else { continue };
            let frames = names(key).into_iter().map(|name| self.frame(name)).collect();
            stacks.push(Merged { frames, weight: n, before: 0 });
        }
        stacks
    }

    fn frame(&mut self, name: Name) -> u32 {
        let Data { frames, kinds, .. } = &mut self.data;
        let known = &mut self.kinds;
        *self.known.entry(name).or_insert_with_key(|name| {
            let kind = *known.entry(name.kind.clone()).or_insert_with(|| {
                let color = |width| {
                    let [r, g, b] = name.kind.color(width);
                    format!("#{r:02x}{g:02x}{b:02x}")
                };
                kinds.push((name.kind.name(), color(Width::Samples), color(Width::Time(TimeUnit::Nano))));
                u32::try_from(kinds.len() - 1).unwrap_or(u32::MAX)
            });
            frames.push((name.text.clone(), kind));
            u32::try_from(frames.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

fn parts(key: &Value) -> &[Value] {
    if let Value::Tuple(parts) = key { parts } else { std::slice::from_ref(key) }
}

/// The index of a name, which is added if it is new.
fn indexed(known: &mut HashMap<String, u32>, all: &mut Vec<String>, name: String) -> u32 {
    *known.entry(name).or_insert_with_key(|name| {
        all.push(name.clone());
        u32::try_from(all.len() - 1).unwrap_or(u32::MAX)
    })
}

/// A number, or a text.
fn cell(value: &Value) -> Json {
    match value.number() {
        Some(n) if n.abs() < EXACT && !matches!(value, Value::Ptr(_) | Value::Enum { name: Some(_), .. }) => json!(n as i64),
        // the lines of a stack
        _ => Json::String(shown(value).trim().lines().map(str::trim).collect::<Vec<_>>().join("\n")),
    }
}

/// The page's form of a value: cells of a table, buckets, points, columns of a heat map.
fn content(value: &Value, div: Option<u64>) -> Json {
    let ms = |ns: i128| (ns / 1_000_000) as i64;
    if let Value::Hist(h) = value {
        hist::rows(h, div.unwrap_or(1)).iter().map(|row| json!([row.label, row.count])).collect()
    } else if let Value::Series(s) = divide(value, div).as_ref() {
        s.buckets.iter().map(|(at, value)| json!([ms(*at), cell(value)])).collect()
    } else if let Value::HeatMap(h) = value {
        let Some(Grid { labels, cells, first, step, .. }) = Grid::of(h, MAX_COLUMNS, MAX_BUCKETS) else { return json!([cell(value)]) };
        let columns = (0..cells.first().map_or(0, Vec::len)).map(|x| {
            let counts: Vec<u64> = cells.iter().map(|row| row.get(x).copied().unwrap_or(0)).collect();
            json!([ms(first + step * x as i128), counts])
        });
        json!({ "labels": labels, "columns": columns.collect::<Vec<_>>(), "step": super::duration(step) })
    } else if value.fields().is_some() {
        let divided = divide(value, div);
        match (divided.fields(), divided.as_ref()) {
            (Some(fields), _) => fields.iter().map(|(_, value)| cell(value)).collect(),
            (None, Value::Record(fields)) => fields.iter().map(|(_, value)| cell(value)).collect(),
            (None, other) => json!([cell(other)]),
        }
    } else {
        json!([cell(divide(value, div).as_ref())])
    }
}

/// Writes JSON in an HTML element such that it cannot end the element.
struct ScriptEscaper<'a>(&'a mut dyn Write);

impl Write for ScriptEscaper<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for (i, part) in bytes.split(|b| *b == b'<').enumerate() {
            if i > 0 {
                // in JSON, `<` can only be in a string
                self.0.write_all(b"\\u003c")?;
            }
            self.0.write_all(part)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
