//! Handlers and decoders with a host that records their calls, and tests of the whole table.

use std::sync::Arc;

use super::*;
use crate::host::Reader;
use crate::output::{Output, ProblemKind};
use crate::settings::Settings;
use crate::value::{Frame, FramesBuilder, MapView, MapViewKind};

#[derive(Default)]
struct Notes {
    settings: Settings,
    spans: crate::timeline::Spans,
    ending: u32,
    said: Vec<Output>,
    done: Vec<String>,
}

impl Host for Notes {
    fn say(&mut self, output: Output) {
        self.said.push(output);
    }
    fn text(&self, value: &Value, _: Reader, to: &mut Vec<u8>) {
        if let Value::Str { bytes, .. } = value {
            to.extend_from_slice(bytes);
        } else {
            to.extend_from_slice(format!("{value:?}").as_bytes());
        }
    }
    fn spans(&mut self) -> &mut crate::timeline::Spans {
        &mut self.spans
    }
    fn ending(&self) -> u32 {
        self.ending
    }
    fn in_end(&self) -> bool {
        false
    }
    fn settings(&self) -> &Settings {
        &self.settings
    }
    fn map(&mut self, map: usize) -> anyhow::Result<MapView> {
        Ok(MapView {
            name: format!("@{map}"),
            kind: MapViewKind::Map,
            measures: false,
            keyed: true,
            set: true,
            entries: Vec::new(),
            show: Default::default(),
            weights: None,
        })
    }
    fn take_map(&mut self, map: usize, keys: bool) -> anyhow::Result<MapView> {
        self.done.push(format!("take {map} {keys}"));
        self.map(map)
    }
    fn map_element(&mut self, map: usize, key: &[u8]) -> anyhow::Result<Value> {
        Ok(Value::Text(format!("{map}{key:?}")))
    }
    fn clear_map(&mut self, map: usize) -> anyhow::Result<()> {
        self.done.push(format!("clear {map}"));
        Ok(())
    }
    fn zero_map(&mut self, map: usize) -> anyhow::Result<()> {
        self.done.push(format!("zero {map}"));
        Ok(())
    }
    fn exit(&mut self, status: u8) {
        self.done.push(format!("exit {status}"));
    }
    fn kernel_symbol(&mut self, addr: u64) -> Option<Frame> {
        (addr != 0).then(|| Frame { addr, symbol: Some("vfs_read".into()), offset: 3, ..Frame::default() })
    }
    fn user_symbol(&mut self, pid: u32, addr: u64) -> Option<Frame> {
        Some(Frame { addr, symbol: Some(format!("of{pid}")), ..Frame::default() })
    }
    fn new_frames(&mut self, capacity: usize) -> FramesBuilder {
        FramesBuilder::new(Arc::default(), capacity)
    }
    fn kernel_frames(&mut self, addrs: &[u64], _: bool, to: &mut FramesBuilder) {
        addrs.iter().for_each(|a| _ = to.push(Frame { addr: *a, ..Frame::default() }));
    }
    fn user_frames(&mut self, _: u32, addrs: &[u64], resolve: bool, to: &mut FramesBuilder) {
        self.kernel_frames(addrs, resolve, to);
    }
    fn python_frame(&mut self, id: u64, offset: u32) -> Option<Frame> {
        let source = Some(("/a.py".into(), offset));
        (id == 1 << 63).then(|| Frame { symbol: Some("f".into()), source, interpreted: true, ..Frame::default() })
    }
    fn stack(&mut self, limit: u32, id: u64) -> Option<Vec<u64>> {
        self.done.push(format!("stack {limit}"));
        match id {
            7 => Some(vec![0x1000, 0x2000, 0x3000]),
            // a function, the mark of a call of the interpreter's loop, an unknown address, and the end
            8 => Some(vec![1 << 63 | 1, 1 << 32 | 5, 1 << 62, 1 << 32, 2, 1 << 32]),
            _ => None,
        }
    }
    fn boot_to_unix_ns(&self) -> u64 {
        1_000_000_000
    }
}

fn call(name: &str, literals: Vec<Option<Lit>>, args: &[Arg]) -> Notes {
    let Codegen::Event(row) = &find(name).unwrap().codegen else { panic!("{name} is an event") };
    let spec = EventSpec { literals, types: vec![Type::Void; args.len()], pos: Pos::default(), line: String::new(), labels: Vec::new() };
    let mut host = Notes::default();
    (row.prepare)(&spec).unwrap()(args, &mut host).unwrap();
    host
}

fn text(s: &str) -> Option<Lit> {
    Some(Lit::Str(s.into()))
}

fn show(tag: &str, params: [u32; 2], note: &str, bytes: &[u8]) -> Value {
    let tagged = Deferred { tag: tag.into(), size: bytes.len() as u32, params, text: note.into() };
    (find_tag(tag).unwrap().decode)(&tagged, bytes, &mut Notes::default())
}

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = all().map(|b| b.name).collect();
    let n = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), n);
    for row in all() {
        assert!(row.doc.ends_with(['.', '?']) && row.doc.len() < 340, "{}'s doc", row.name);
        assert!(row.example.contains(row.name), "{}'s example", row.name);
        let first_optional = row.params.iter().position(|p| p.optional).unwrap_or(row.params.len());
        assert!(row.params.iter().skip(first_optional).all(|p| p.optional), "{}'s optional parameters come last", row.name);
    }
}

#[test]
fn formats_make_text() {
    let host = call(
        "printf",
        vec![text("%d %s\n"), None, None],
        &[
            Arg::Value(Value::Str { bytes: b"%d %s\n".to_vec(), cut: false }),
            Arg::Value(Value::Int(-5)),
            Arg::Value(Value::Str { bytes: b"x".to_vec(), cut: false }),
        ],
    );
    assert_eq!(host.said, [Output::Text { kind: "printf", data: b"-5 x\n".to_vec(), newline: false }]);
}

#[test]
fn maps_are_printed_cleared_zeroed() {
    let host = call("print", vec![None, Some(Lit::Int(2))], &[Arg::Map(4), Arg::Value(Value::Int(2))]);
    assert!(matches!(&host.said[..], [Output::Map(view)] if view.name == "@4" && view.show.top == Some(2)));
    let host = call("print", vec![None], &[Arg::TakenMap { map: 4, keys: true }]);
    assert!(matches!(&host.said[..], [Output::Map(view)] if view.name == "@4") && host.done == ["take 4 true"]);
    let host = call("print", vec![None], &[Arg::Element(1, vec![9])]);
    assert_eq!(host.said, [Output::Value(Value::Text("1[9]".into()))]);
    assert_eq!(call("clear", vec![None], &[Arg::Map(3)]).done, ["clear 3"]);
    assert_eq!(call("zero", vec![None], &[Arg::Map(3)]).done, ["zero 3"]);
}

#[test]
fn runs_end_with_a_status() {
    assert_eq!(call("exit", vec![], &[]).done, ["exit 0"]);
    assert_eq!(call("exit", vec![None], &[Arg::Value(Value::Int(258))]).done, ["exit 2"]);
}

#[test]
fn files_and_strings_are_shown() {
    let host = call("cat", vec![text("/proc/sys/kernel/ostype")], &[]);
    assert_eq!(host.said, [Output::Text { kind: "cat", data: b"Linux\n".to_vec(), newline: false }]);
    let host = call("cat", vec![text("/nonexistent")], &[]);
    assert!(matches!(&host.said[..], [Output::Problem { kind: ProblemKind::Command, .. }]));
    let host = call("join", vec![None, text(",")], &[Arg::Value(Value::Bytes(b"a\0b\0".to_vec()))]);
    assert_eq!(host.said, [Output::Text { kind: "join", data: b"a,b".to_vec(), newline: true }]);
}

#[test]
fn tags_decode() {
    let mut inet = [0u8; 20];
    inet[0] = 2;
    inet[4..8].copy_from_slice(&[127, 0, 0, 1]);
    assert_eq!(show("inet", [0, 0], "", &inet), Value::Text("127.0.0.1".into()));
    inet[0] = 10;
    inet[4..].copy_from_slice(&std::net::Ipv6Addr::LOCALHOST.octets());
    assert_eq!(show("inet", [0, 0], "", &inet), Value::Text("::1".into()));
    assert_eq!(show("macaddr_t", [0, 0], "", &[0xaa, 0xb, 0, 1, 2, 3]), Value::Text("AA:0B:00:01:02:03".into()));
    assert_eq!(show("ksym_t", [0, 0], "", &0x1234u64.to_le_bytes()), Value::Text("vfs_read".into()));
    assert_eq!(show("ksym_t", [0, 0], "", &[0; 8]), Value::Text("0".into()));
    let user = [0x10u64, 42].map(u64::to_le_bytes).concat();
    assert_eq!(show("usym_t", [0, 0], "", &user), Value::Text("of42".into()));
    assert_eq!(show("username_t", [0, 0], "", &[0; 8]), Value::Text("root".into()));
    assert_eq!(show("timestamp", [0, 0], "%s.%f", &500_000_000u64.to_le_bytes()), Value::Text("1.500000".into()));
    // since boot
    assert_eq!(show("timestamp", [0, 0], "%s", &[0; 8]), Value::Text("1".into()));
}

#[test]
fn stacks_decode() {
    let Value::Stack(stack) = show("kstack", [2, 2], "", &7u64.to_le_bytes()) else { panic!() };
    // no more than the limit
    assert_eq!(stack.frames.iter().map(|f| f.addr).collect::<Vec<_>>(), [0x1000, 0x2000]);
    assert_eq!((stack.mode, stack.kernel), (crate::value::StackMode::Raw, true));
    let user = [7u64, 42].map(u64::to_le_bytes).concat();
    let Value::Stack(stack) = show("ustack", [0, 2], "", &user) else { panic!() };
    assert_eq!(stack.frames.len(), 2);
    let Value::Stack(stack) = show("kstack", [0, 2], "", &[0; 8]) else { panic!() };
    assert!(stack.frames.is_empty());
}

#[test]
fn python_stacks_decode() {
    let frames = |id: u64| {
        let Value::Stack(stack) = show("pystack", [0, 127], "", &id.to_le_bytes()) else { panic!() };
        stack.frames.iter().map(|f| (f.symbol.clone().unwrap_or_default(), f.source.as_ref().map(|(_, line)| *line))).collect::<Vec<_>>()
    };
    let said = |text: &str| (text.to_owned(), None);
    assert_eq!(frames(8), [("f".to_owned(), Some(5)), said("[unknown function]"), said("[127 frames]")]);
    assert_eq!(frames(9), [said("[not kept]")]);
    assert_eq!(frames(0), []);
}
