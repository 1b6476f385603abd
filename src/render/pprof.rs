//! `-f pprof`: all maps with stacks in their keys as one profile, which has a sample type for each map; the other parts of a key
//! are labels. The format is that of github.com/google/pprof/proto/profile.proto.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::stack_keys::{KeyPart, WAKER_SEPARATOR, Width, box_width, frame, is_stacked, parts, shown, visible};
use super::{Omitted, RenderOptions, Rendered, Renderer};
use crate::output::Output;
use crate::protobuf::Message;
use crate::value::{Frame, MapView, Stack, Value};

/// Creates the renderer.
pub fn make(options: &RenderOptions) -> Box<dyn Renderer> {
    let mut profile = Pprof { start_ns: options.about.start_ns, comment: visible(&options.about.command), ..Pprof::default() };
    profile.intern("");
    Box::new(profile)
}

#[derive(Default)]
struct Pprof {
    start_ns: u64,
    comment: String,
    /// Maps whose values are estimates.
    estimates: BTreeMap<String, String>,
    /// The name and the unit of each map.
    types: Vec<(String, &'static str)>,
    samples: Vec<Sample>,
    /// Indices of `locations` from 1, leaf first, of all samples.
    stacks: Vec<u32>,
    locations: Interned<Location>,
    functions: Interned<Function>,
    mappings: Interned<Mapping>,
    texts: Interned<String>,
    omitted: Omitted,
}

struct Sample {
    map: usize,
    value: u64,
    /// The range in `stacks`.
    stack: std::ops::Range<usize>,
    labels: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Location {
    mapping: u64,
    address: u64,
    function: u64,
    line: u32,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Function {
    name: u64,
    file: u64,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Mapping {
    file: u64,
    build_id: u64,
}

/// Values by their index.
struct Interned<T> {
    all: Vec<T>,
    known: HashMap<T, u64>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { all: Vec::new(), known: HashMap::new() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Interned<T> {
    fn index(&mut self, value: T) -> u64 {
        if let Some(index) = self.known.get(&value) {
            return *index;
        }
        let index = self.all.len() as u64;
        self.all.push(value.clone());
        self.known.insert(value, index);
        index
    }
}

impl Renderer for Pprof {
    fn render(&mut self, output: &Output, _: &mut Rendered) {
        if let Output::Map(view) = output
            && is_stacked(view)
        {
            self.omitted.shows(view);
            if view.weights.is_some() {
                self.estimates.insert(view.name.clone(), visible(&view.title()));
            }
            self.map(view);
        } else {
            self.omitted.add(output);
        }
    }

    fn omitted_maps(&self) -> usize {
        self.omitted.maps().count()
    }

    fn omitted(&self) -> Option<String> {
        self.omitted.message("")
    }

    fn finish(&mut self, to: &mut dyn Write) -> io::Result<()> {
        let mut to = GzEncoder::new(to, Compression::default());
        let comment = std::mem::take(&mut self.comment);
        let comments = [comment].into_iter().chain(std::mem::take(&mut self.estimates).into_values());
        let comments: Vec<u64> = comments.map(|comment| self.intern(&comment)).collect();
        let types: Vec<(u64, u64)> =
            std::mem::take(&mut self.types).iter().map(|(name, unit)| (self.intern(name), self.intern(unit))).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let mut profile = Message::default();
        for (name, unit) in &types {
            profile.bytes(1, Message::default().uint(1, *name).uint(2, *unit).written());
        }
        for sample in &self.samples {
            let stack = self.stacks.get(sample.stack.clone()).unwrap_or_default();
            let mut message = Message::default();
            message.packed(1, stack.iter().map(|location| u64::from(*location)));
            message.packed(2, (0..types.len()).map(|map| if map == sample.map { sample.value } else { 0 }));
            message.append(&sample.labels);
            profile.bytes(2, message.written());
            to.write_all(std::mem::take(&mut profile).written())?;
        }
        for (id, mapping) in (1..).zip(&self.mappings.all) {
            profile.bytes(3, Message::default().uint(1, id).uint(5, mapping.file).uint(6, mapping.build_id).uint(7, 1).written());
        }
        for (id, location) in (1..).zip(&self.locations.all) {
            let mut line = Message::default();
            line.uint(1, location.function + 1).uint(2, location.line.into());
            let mut message = Message::default();
            message.uint(1, id).uint(2, location.mapping).uint(3, location.address).bytes(4, line.written());
            profile.bytes(4, message.written());
        }
        for (id, function) in (1..).zip(&self.functions.all) {
            profile.bytes(5, Message::default().uint(1, id).uint(2, function.name).uint(3, function.name).uint(4, function.file).written());
        }
        self.texts.all.iter().for_each(|text| {
            profile.bytes(6, text.as_bytes());
        });
        let duration = u64::try_from(now).unwrap_or(u64::MAX).saturating_sub(self.start_ns);
        profile.uint(9, self.start_ns).uint(10, duration).packed(13, comments);
        to.write_all(profile.written())?;
        to.finish()?.flush()
    }
}

impl Pprof {
    fn intern(&mut self, text: &str) -> u64 {
        self.texts.index(text.into())
    }

    fn map(&mut self, view: &MapView) {
        let width = Width::of(view);
        let unit = if width == Width::Samples { "count" } else { width.unit() };
        let name = view.name.trim_start_matches('@');
        let name = visible(if name.is_empty() { "map" } else { name });
        let map = self.types.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            self.types.push((name, unit));
            self.types.len() - 1
        });
        // the last printed state of each map counts
        self.samples.retain(|sample| sample.map != map);
        for (key, value) in &view.entries {
            let Some(n) = box_width(value) else { continue };
            let (mut labels, mut others) = (Message::default(), 0);
            let first = self.stacks.len();
            for part in parts(key) {
                match part {
                    KeyPart::Frame(f, s) => {
                        let location = self.location(f, s) + 1;
                        self.stacks.push(u32::try_from(location).unwrap_or(u32::MAX));
                    }
                    KeyPart::Between => {
                        let function = Function { name: self.intern(WAKER_SEPARATOR), file: 0 };
                        let function = self.functions.index(function);
                        let location = self.locations.index(Location { mapping: 0, address: 0, function, line: 0 }) + 1;
                        self.stacks.push(u32::try_from(location).unwrap_or(u32::MAX));
                    }
                    KeyPart::Other(value) => {
                        others += 1;
                        self.label(others, value, &mut labels);
                    }
                }
            }
            if let Some(stack) = self.stacks.get_mut(first..) {
                stack.reverse();
            }
            self.samples.push(Sample {
                map,
                value: n.min(i64::MAX as u64),
                stack: first..self.stacks.len(),
                labels: labels.written().to_vec(),
            });
        }
    }

    /// `key` is the name of the first label, and `key2` that of the second.
    fn label(&mut self, n: usize, value: &Value, to: &mut Message) {
        let name = if n == 1 { "key".to_string() } else { format!("key{n}") };
        let mut label = Message::default();
        label.uint(1, self.intern(&name));
        match value.number().and_then(|n| i64::try_from(n).ok()) {
            Some(n) if n != 0 => label.int(3, n),
            _ => label.uint(2, self.intern(&shown(value))),
        };
        to.bytes(3, label.written());
    }

    fn location(&mut self, f: &Frame, s: &Stack) -> u64 {
        let file = if s.kernel { "[kernel.kallsyms]" } else { f.module.as_deref().unwrap_or_default() };
        let build_id = f.build_id.as_ref().map(|(id, _)| id.as_str()).unwrap_or_default();
        let mapping = if file.is_empty() && build_id.is_empty() {
            0
        } else {
            let mapping = Mapping { file: self.intern(&visible(file)), build_id: self.intern(build_id) };
            self.mappings.index(mapping) + 1
        };
        let (source, line) = f.source.as_ref().map_or(("", 0), |(file, line)| (file.as_str(), *line));
        let function = Function { name: self.intern(&visible(&frame(f, s))), file: self.intern(&visible(source)) };
        let function = self.functions.index(function);
        self.locations.index(Location { mapping, address: f.addr, function, line })
    }
}
