//! Renders names from traced processes in every output format. No name may break the syntax of a document or control a terminal.

use rbt::host::Reader;
use rbt::output::{Output, ProblemKind};
use rbt::render::{FORMATS, Format, RenderOptions, Rendered};
use rbt::timeline::{Phase, Span, Thread, Track};
use rbt::value::{Frame, HeatMap, Hist, MapView, MapViewKind, Pos, Scale, ShowOptions, Stack, StackMode, Value};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::change::Dice;

/// Parts of names that have a meaning in an output format.
const PIECES: &[&[u8]] = &[
    b"<",
    b">",
    b"&",
    b"\"",
    b"'",
    b"\n",
    b"\r",
    b"\t",
    b"\0",
    b"\x1b[2J",
    b"\x1b]0;x\x07",
    b"\x7f",
    b"\x9b",
    b"\xff",
    b"\xc3",
    b"\xe2\x80\xae",
    b"\xe2\x80\xa8",
    b"]]>",
    b"-->",
    b"<!--",
    b"</script>",
    b"</title><script>alert(1)</script>",
    b"<img src=x onerror=alert(1)>",
    b"&amp;",
    b"&#x3c;",
    b";",
    b" ",
    b" 7",
    b"# ",
    b",",
    b"=1+1",
    b"\\",
    b"\\n",
    b"\\u003c",
    b"{",
    b"}",
    b"[",
    b"--",
    b"_[k]",
    b"a",
    b"name",
    b"\xc3\xa9",
];

/// Makes `count` documents of each format.
pub fn run(seed: u64, count: u64) -> Result<(), String> {
    for number in 0..count {
        for format in FORMATS {
            let made = catch_unwind(AssertUnwindSafe(|| one(format, seed, number)));
            let made = made.unwrap_or_else(|_| Err("panics".into()));
            made.map_err(|why| format!("name {number} of seed {seed} in {}: {why}", format.name))?;
        }
    }
    Ok(())
}

fn one(format: &Format, seed: u64, number: u64) -> Result<(), String> {
    let mut dice = Dice::new(seed, number);
    let name: Vec<u8> = (0..1 + dice.below(6)).flat_map(|_| PIECES[dice.below(PIECES.len())].iter().copied()).collect();
    let hostile = document(format, &name, false)?;
    match format.name {
        // Output that a program reads contains the original bytes, so only output for a terminal is checked.
        "text" => plain(&document(format, &name, true)?),
        "folded" => {
            let weighed = |line: &[u8]| line.rsplit(|b| *b == b' ').next().is_some_and(|n| n.iter().all(u8::is_ascii_digit));
            let lines = |bytes: &[u8]| bytes.iter().filter(|b| **b == b'\n').count();
            let (these, those) = (lines(&hostile), lines(&document(format, b"name", false)?));
            match hostile.split(|b| *b == b'\n').all(weighed) && these == those {
                true => plain(&document(format, &name, true)?),
                false => Err(format!("the lines differ: {}", String::from_utf8_lossy(&hostile))),
            }
        }
        "json" | "speedscope" => hostile.split(|b| *b == b'\n').filter(|line| !line.is_empty()).try_for_each(|line| {
            // JSON may contain DEL, and bpftrace's JSON does.
            plain(&line.iter().copied().filter(|byte| format.name != "json" || *byte != 0x7f).collect::<Vec<_>>())?;
            serde_json::from_slice::<serde_json::Value>(line).map(drop).map_err(|e| e.to_string())
        }),
        "csv" => {
            plain(&hostile)?;
            let mut rows = csv::Reader::from_reader(&hostile[..]);
            let columns = rows.headers().map_err(|e| e.to_string())?.len();
            rows.records().try_for_each(|row| match row {
                Ok(row) if row.len() == columns => Ok(()),
                other => Err(format!("{other:?}")),
            })
        }
        "html" | "flamegraph" | "icicle" => {
            plain(&hostile)?;
            let (these, those) = (elements(&hostile), elements(&document(format, b"name", false)?));
            if these == those { Ok(()) } else { Err(format!("the elements differ: {these:?}")) }
        }
        "perfetto" => fields(&hostile, 0),
        "pprof" => {
            let mut profile = Vec::new();
            flate2::read::GzDecoder::new(&hostile[..]).read_to_end(&mut profile).map_err(|e| e.to_string())?;
            fields(&profile, 1)
        }
        "state" => Ok(()),
        other => Err(format!("nothing checks {other}")),
    }
}

/// Makes a document in which all names are this name, for a file or for a terminal.
fn document(format: &Format, name: &[u8], terminal: bool) -> Result<Vec<u8>, String> {
    let text = String::from_utf8_lossy(name).into_owned();
    let word = || Value::Str { bytes: name.to_vec(), cut: false };
    let frame = |interpreted| Frame {
        addr: 1,
        symbol: Some(text.clone()),
        module: Some(text.clone()),
        source: Some((text.clone(), 3)),
        interpreted,
        ..Frame::default()
    };
    let stack = Value::Stack(Stack { mode: StackMode::Bpftrace, kernel: false, frames: [frame(false), frame(true)].into_iter().collect() });
    let map = |name: &str, keyed, entries| MapView {
        name: name.into(),
        kind: MapViewKind::Map,
        measures: false,
        keyed,
        set: true,
        entries,
        show: ShowOptions::default(),
        weights: None,
    };
    let span = |phase| Span {
        phase,
        track: Track::Named(name.to_vec()),
        thread: Thread { pid: 1, comm: name.to_vec() },
        name: name.to_vec(),
        start_ns: 1,
        end_ns: 2,
        depth: 0,
        values: vec![(text.clone(), word())],
        begin_values: 1,
    };
    let scale = Scale::Linear { min: 0, max: 2, step: 1 };
    let heat = HeatMap { interval: 1_000_000_000, scale, columns: vec![(0, vec![0, 1, 2, 0]), (1_000_000_000, vec![0, 3, 0, 0])] };
    let hist = Hist { scale, counts: vec![0, 1, 2, 0] };
    let outputs = [
        Output::Text { kind: "printf", data: name.to_vec(), newline: true },
        Output::Value(word()),
        Output::Map(map("@s", true, vec![(Value::Tuple(vec![word(), stack]), Value::Uint(5))])),
        Output::Map(map("@a", true, vec![(word(), word())])),
        Output::Map(map("@n", true, vec![(word(), Value::Uint(5))])),
        Output::Map(MapView { kind: MapViewKind::HeatMap, ..map("@heat", true, vec![(word(), Value::HeatMap(heat.into()))]) }),
        Output::Map(MapView { kind: MapViewKind::Hist, ..map("@hist", true, vec![(word(), Value::Hist(hist.into()))]) }),
        Output::Problem {
            kind: ProblemKind::Errorf,
            msg: text.clone(),
            helper: None,
            pos: Pos::default(),
            line: String::new(),
            counts: Vec::new(),
        },
        Output::Span(span(Phase::Begin)),
        Output::Span(span(Phase::End)),
        Output::Span(Span { track: Track::Thread(7), ..span(Phase::Begin) }),
        Output::Span(Span { track: Track::Thread(7), ..span(Phase::Open) }),
        Output::End,
    ];
    let mut renderer = (format.make)(&RenderOptions {
        maps_only: !terminal,
        escape_output: terminal,
        key_parts: 2,
        escape_messages: true,
        ..RenderOptions::default()
    });
    let mut rendered = Rendered::default();
    // for a terminal, printf() and errorf() have escaped their arguments; messages always go to one here
    let made_by_printf = |output: &&Output| match format.name {
        "html" => false,
        _ => matches!(output, Output::Problem { .. }) || (terminal && matches!(output, Output::Text { .. })),
    };
    outputs.iter().filter(|output| !made_by_printf(output)).for_each(|output| renderer.render(output, &mut rendered));
    let mut shown = Vec::new();
    renderer.text(&word(), Reader::Messages, &mut shown);
    renderer.finish(&mut rendered.out).map_err(|e| e.to_string())?;
    plain(&rendered.err).map_err(|why| format!("messages: {why}"))?;
    Ok(rendered.out)
}

/// Is it UTF-8 without control characters and without marks that change the direction of text?
fn plain(bytes: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    match text.chars().find(|c| rbt::terminal::escape::is_deceptive(*c) && !matches!(c, '\n' | '\r' | '\t')) {
        Some(c) => Err(format!("has {c:?}")),
        None => Ok(()),
    }
}

/// The elements of a document in their order, without attributes.
fn elements(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let name = |part: &str| part.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '!' | '?')).collect::<String>();
    text.split('<').skip(1).map(name).collect()
}

/// Reads all fields of a protocol buffer, and fails if they are malformed.
fn fields(mut message: &[u8], depth: usize) -> Result<(), String> {
    let number = |message: &mut &[u8]| {
        let mut n = 0u64;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = message.split_first().ok_or("it is cut off")?;
            *message = rest;
            n |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(n);
            }
        }
        Err("a number is too long")
    };
    while !message.is_empty() {
        let key = number(&mut message)?;
        match key & 7 {
            0 => drop(number(&mut message)?),
            2 => {
                let length = number(&mut message)? as usize;
                let inner = message.get(..length).ok_or("a field is longer than its message")?;
                message = &message[length..];
                if depth == 0 {
                    fields(inner, 1)?;
                }
            }
            kind => return Err(format!("wire type {kind}")),
        }
    }
    Ok(())
}
