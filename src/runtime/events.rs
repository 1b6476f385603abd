//! Dispatches records: finds the call site of each and runs the user-space part of its builtin.

use std::mem::offset_of;

use anyhow::Context;

use crate::builtins::{self, Arg, EventSpec, Handler};
use crate::codegen::artifact::{Event, EventArg, Manifest, Origin};
use crate::decode::decode;
use crate::host::Host;
use crate::output::{Output, ProblemKind, Source};
use crate::types::Type;
use crate::value::{Pos, Value};

/// Number of failures of a call that are reported; further ones are only counted.
const MAX_REPORTS: u64 = 10;

/// The offset of the [`Origin`] in a record that has one.
const ORIGIN: usize = 8;

/// The call sites of a script, ready to take records.
pub(super) struct Events {
    rows: Vec<Row>,
}

struct Row {
    handler: Handler,
    args: Vec<EventArg>,
    /// Arguments by position. Literals stay, and the others are overwritten for each record.
    values: Vec<Arg>,
    pos: Pos,
    line: String,
    /// Names of the sites that send it; none if the record has no origin.
    sites: Vec<String>,
    /// It uses maps.
    uses_maps: bool,
    /// The map that it prints and clears at once.
    taken_map: Option<usize>,
    /// Calls that failed.
    failures: u64,
}

impl Events {
    /// Prepares each call site. Errors: a manifest that this program did not write, or a call that its row rejects.
    pub fn prepare(manifest: &Manifest) -> anyhow::Result<Self> {
        Ok(Self { rows: manifest.events.iter().map(row).collect::<anyhow::Result<_>>()? })
    }

    /// Runs the handler of a record.
    pub fn handle(&mut self, record: &[u8], host: &mut dyn Host) {
        let index = u32_at(record, 0);
        let Some(row) = usize::try_from(index).ok().and_then(|i| self.rows.get_mut(i)) else {
            let msg = format!("skipped a record of unknown kind {index}");
            host.say(Output::problem(ProblemKind::Runtime, msg, &Pos::default(), ""));
            return;
        };
        for (value, arg) in row.values.iter_mut().zip(&row.args) {
            read(value, arg, record, host);
        }
        if let Err(why) = (row.handler)(&row.values, host) {
            row.failures += 1;
            if row.failures <= MAX_REPORTS {
                host.say(problem(format!("{why:#}"), &row.pos, &row.line));
            }
        }
    }

    /// The map that this record prints and clears at once.
    pub fn taken_map(&self, record: &[u8]) -> Option<usize> {
        self.row(record)?.taken_map
    }

    /// The maps that these records print and clear at once, up to a record that uses a map in another way.
    pub fn taken_maps<'a>(&self, records: impl Iterator<Item = &'a [u8]>) -> Vec<usize> {
        let mut maps = Vec::new();
        for row in records.filter_map(|record| self.row(record)) {
            match row.taken_map {
                Some(map) if !maps.contains(&map) => maps.push(map),
                None if !row.uses_maps => {}
                Some(_) | None => break,
            }
        }
        maps
    }

    /// The call site of a record.
    fn row(&self, record: &[u8]) -> Option<&Row> {
        usize::try_from(u32_at(record, 0)).ok().and_then(|index| self.rows.get(index))
    }

    /// Where a record comes from, if it says so. The boot of the machine was at `boot_ns`.
    pub fn source(&self, record: &[u8], boot_ns: u64) -> Option<Source> {
        let row = self.row(record)?;
        let first = row.sites.first()?;
        let at = |offset: usize| bytes(record, (ORIGIN + offset) as u32, 8).try_into().map_or(0, u64::from_ne_bytes);
        let task = at(offset_of!(Origin, pid_tgid));
        let comm = bytes(record, (ORIGIN + offset_of!(Origin, comm)) as u32, 16).split(|b| *b == 0).next().unwrap_or_default();
        let site = usize::try_from(at(offset_of!(Origin, site))).ok().and_then(|i| row.sites.get(i)).unwrap_or(first);
        Some(Source {
            time_ns: boot_ns.wrapping_add(at(offset_of!(Origin, boot_ns))),
            pid: (task >> 32) as u32,
            tid: task as u32,
            comm: String::from_utf8_lossy(comm).into_owned(),
            probe: site.clone(),
            cgroup: at(offset_of!(Origin, cgroup)),
        })
    }

    /// Reports how often failures recurred.
    pub fn finish(&mut self, host: &mut dyn Host) {
        for row in self.rows.iter_mut().filter(|row| row.failures > MAX_REPORTS) {
            let msg = format!("the call failed {} times in total; only the first {MAX_REPORTS} are shown", row.failures);
            host.say(problem(msg, &row.pos, &row.line));
            row.failures = 0;
        }
    }
}

fn problem(msg: String, pos: &Pos, line: &str) -> Output {
    Output::problem(ProblemKind::Runtime, msg, pos, line)
}

fn row(event: &Event) -> anyhow::Result<Row> {
    let name = &event.builtin;
    let builtin = builtins::user_side(name).with_context(|| format!("unknown builtin {name} in the manifest"))?;
    let row = builtin.event.with_context(|| format!("{name} in the manifest writes no records"))?;
    let types = event.args.iter().map(type_of).collect();
    let spec = EventSpec {
        literals: event.literals.clone(),
        types,
        pos: event.pos.clone(),
        line: event.line.clone(),
        labels: event.labels.clone(),
    };
    let handler = (row.prepare)(&spec).with_context(|| format!("{}:{}: {name}", event.pos.file, event.pos.line))?;
    let values: Vec<Arg> = event.args.iter().map(constant).collect();
    let uses_maps = values.iter().any(|value| matches!(value, Arg::Map(_) | Arg::TakenMap { .. } | Arg::Element(..)));
    let taken_map = values.iter().find_map(|value| if let Arg::TakenMap { map, .. } = value { Some(*map) } else { None });
    Ok(Row {
        uses_maps,
        taken_map,
        handler,
        args: event.args.clone(),
        values,
        pos: event.pos.clone(),
        line: event.line.clone(),
        sites: event.sites.clone(),
        failures: 0,
    })
}

fn type_of(arg: &EventArg) -> Type {
    match arg {
        EventArg::Int(n) => Type::int(if i32::try_from(*n).is_ok() { 4 } else { 8 }),
        EventArg::Field { ty, .. } | EventArg::Var { ty, .. } => ty.clone(),
        EventArg::Text(text) => Type::Str(text.len() as u32 + 1),
        EventArg::Word(_) | EventArg::Map(_) | EventArg::TakenMap { .. } | EventArg::Element { .. } => Type::Void,
    }
}

/// The value of an argument that no record changes, or a placeholder that each record overwrites.
fn constant(arg: &EventArg) -> Arg {
    match arg {
        EventArg::Int(n) => Arg::Value(Value::Int(*n)),
        EventArg::Text(text) => Arg::Value(Value::Str { bytes: text.clone(), cut: false }),
        EventArg::Word(word) => Arg::Value(Value::Text(word.clone())),
        EventArg::Map(map) => Arg::Map(*map),
        EventArg::TakenMap { map, keys } => Arg::TakenMap { map: *map, keys: *keys },
        EventArg::Element { map, .. } => Arg::Element(*map, Vec::new()),
        EventArg::Field { .. } | EventArg::Var { .. } => Arg::Value(Value::None),
    }
}

fn read(value: &mut Arg, arg: &EventArg, record: &[u8], host: &mut dyn Host) {
    match arg {
        EventArg::Int(_) | EventArg::Text(_) | EventArg::Word(_) | EventArg::Map(_) | EventArg::TakenMap { .. } => {}
        EventArg::Field { ty, offset } => *value = Arg::Value(decoded(ty, bytes(record, *offset, ty.size()), host)),
        EventArg::Var { ty, offset } => {
            let (start, len) = (u32_at(record, *offset), u32_at(record, offset.saturating_add(4)));
            *value = Arg::Value(decoded(ty, bytes(record, start, len), host));
        }
        EventArg::Element { offset, .. } => {
            // The map knows the key's size, and takes as many bytes as it needs.
            if let Arg::Element(_, key) = value {
                key.clear();
                key.extend_from_slice(bytes(record, *offset, u32::MAX));
            }
        }
    }
}

/// A decoded value; deferred values are decoded by their rows.
pub(super) fn decoded(ty: &Type, bytes: &[u8], host: &mut dyn Host) -> Value {
    decode(ty, bytes, &mut |tagged, bytes| match builtins::find_tag(&tagged.tag) {
        Some(tag) => (tag.decode)(tagged, bytes, host),
        None => Value::Bytes(bytes.to_vec()),
    })
}

/// As many of these bytes as the record contains.
fn bytes(record: &[u8], offset: u32, len: u32) -> &[u8] {
    let start = (offset as usize).min(record.len());
    let end = start.saturating_add(len as usize).min(record.len());
    record.get(start..end).unwrap_or(&[])
}

fn u32_at(record: &[u8], offset: u32) -> u32 {
    bytes(record, offset, 4).try_into().map_or(u32::MAX, u32::from_ne_bytes)
}
