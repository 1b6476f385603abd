//! Writes packets to a capture file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use super::{Accepts, Arg, Builtin, CallInfo, CallSite, Codegen, Event, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Cmp, Helper, Operand, Repr};
use crate::failure::reason;
use crate::output::{Output, ProblemKind};
use crate::probes::ContextFeatures;
use crate::system::TypeName;
use crate::types::{Int, Space, Type};
use crate::value::Value;

const U32: Int = Int { bytes: 4, signed: false };
const U64: Int = Int { bytes: 8, signed: false };
/// Maximum number of bytes of a packet that are kept.
const MAX_PACKET_BYTES: u32 = 16 << 10;
/// The file's first words: pcap with nanoseconds, version 2.4, and raw IP packets (LINKTYPE_RAW); see pcap-savefile(5).
const HEAD: [u32; 6] = [0xa1b2_3c4d, 2 | 4 << 16, 0, 0, MAX_PACKET_BYTES, 101];

pub(super) const ROWS: &[Builtin] = &[Builtin {
    name: "skboutput",
    params: &[
        Param::new("path", Accepts::LitStr),
        Param::new("skb", Accepts::Addr),
        Param::new("length", Accepts::Int),
        Param::new("offset", Accepts::LitInt),
    ],
    returns: Returns::By(members),
    needs: ContextFeatures::NONE,
    risky: false,
    codegen: Codegen::Event(&Event {
        ends_probe: false,
        capture: Some(capture),
        prepare: |spec| {
            let path = String::from_utf8_lossy(spec.text(0).unwrap_or_default()).into_owned();
            let (pos, line) = (spec.pos.clone(), spec.line.clone());
            let mut file = None;
            Ok(Box::new(move |args, host| {
                let [Arg::Value(Value::Bytes(bytes)), Arg::Value(time), Arg::Value(length)] = args else { return Ok(()) };
                let time = number(time).saturating_add(host.boot_to_unix_ns());
                if let Err(e) = append(&mut file, &path, bytes, time, number(length)) {
                    let msg = format!("cannot write {path}: {}", reason(&e));
                    host.say(Output::problem(ProblemKind::Runtime, msg, &pos, &line));
                }
                Ok(())
            }))
        },
    }),
    doc: "Appends a packet (struct sk_buff *) to a capture file of raw IP packets, from an offset and up to a length. It omits data that the kernel stores in separate pages.",
    example: "rawtracepoint:net_dev_queue { skboutput(\"/tmp/rbt.pcap\", args.skb, 1500, 14); }",
}];

/// Keeps the offsets of `data`, `len` and `data_len`, and the maximum length.
fn members(f: &CallInfo) -> Result<Type, Diagnostic> {
    let Some(Type::Struct(skb)) = f.sys.type_named(TypeName::Struct, "sk_buff") else {
        return Err(Diagnostic::error("no-btf", f.span, format!("`{}` needs the kernel's own types (BTF)", f.name)));
    };
    let mut kept = Vec::new();
    for name in ["data", "len", "data_len"] {
        let member = f.sys.member(&skb, name);
        kept.push(member.ok_or_else(|| Diagnostic::error("no-btf", f.span, format!("{} has no `{name}`", Type::Struct(skb.clone()))))?);
    }
    let mut kept: Vec<i64> = kept.iter().map(|m| m.offset.into()).collect();
    for i in [2, 3] {
        if f.int(i).is_some_and(|n| n < 0) {
            return Err(Diagnostic::error("out-of-range", f.span(i), "a length or an offset cannot be negative"));
        }
    }
    kept.push(f.int(2).unwrap_or(MAX_PACKET_BYTES.into()).clamp(1, MAX_PACKET_BYTES.into()));
    f.bind_consts(&kept);
    Ok(Type::I64)
}

/// The bytes, the time of the capture, and the length of the packet.
fn capture<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, args: &[Operand<'c>]) -> Vec<Operand<'c>> {
    let (Some(skb), Some(requested)) = (args.get(1), args.get(2)) else { return Vec::new() };
    let max_bytes = u.const_at(3).max(1) as u32;
    let (skb, requested) = (e.scalar(skb), e.scalar(requested));
    let at = |e: &Builder<'_, 'c>, i| e.add(skb, e.int(u.const_at(i) as u64));
    let (data, len, paged) = (at(e, 0), at(e, 1), at(e, 2));
    let data = e.read_int(Space::Kernel, data, U64);
    let len = e.read_int(Space::Kernel, len, U32);
    let paged = e.read_int(Space::Kernel, paged, U32);
    let skip = e.int(u.int(3).unwrap_or(0).max(0) as u64);
    // the bytes after the offset, of the whole packet and of its linear part
    let behind = |e: &Builder<'_, 'c>, n| {
        let more = e.cmp(Cmp::Sgt, n, skip);
        e.select(more, e.sub(n, skip), e.int(0))
    };
    let (total, linear) = (behind(e, len), behind(e, e.sub(len, paged)));
    let less = e.cmp(Cmp::Ult, requested, linear);
    let n = e.select(less, requested, linear);
    let n = e.at_most(n, max_bytes.into());
    let to = e.alloc(4 + max_bytes);
    e.store(to, 0, 4, n);
    let bytes = e.offset(to, 4);
    let from = e.add(data, skip);
    e.read_bounded(Space::Kernel, bytes, n, from);
    let sent_size = e.add(n, e.int(4));
    let now = e.call(Helper::KtimeGetBootNs, &[]);
    vec![Operand { ty: Type::Buf(max_bytes), repr: Repr::Mem(to, Some(sent_size)) }, Operand::u64(now), Operand::u64(total)]
}

fn number(value: &Value) -> u64 {
    value.number().map_or(0, |n| n as u64)
}

/// Writes a packet, after the file header if the file is new. `time` is in nanoseconds since 1970.
fn append(file: &mut Option<File>, path: &str, bytes: &[u8], time: u64, length: u64) -> io::Result<()> {
    let to = match file {
        Some(f) => f,
        None => file.insert(OpenOptions::new().append(true).create(true).open(path)?),
    };
    let mut out = Vec::with_capacity(40 + bytes.len());
    let mut words = |all: &[u32]| out.extend(all.iter().flat_map(|w| w.to_ne_bytes()));
    if to.metadata()?.len() == 0 {
        words(&HEAD);
    }
    const SECOND: u64 = 1_000_000_000;
    words(&[(time / SECOND) as u32, (time % SECOND) as u32, bytes.len() as u32, length as u32]);
    out.extend(bytes);
    to.write_all(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_one_header() {
        let path = std::env::temp_dir().join(format!("rbt-pcap-{}", std::process::id()));
        let name = path.to_string_lossy().into_owned();
        for _ in 0..2 {
            let mut file = None;
            append(&mut file, &name, b"abc", 5_000_000_007, 9).unwrap();
            append(&mut file, &name, b"", 0, 0).unwrap();
        }
        let words: Vec<u8> = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(words.len(), 24 + 2 * (16 + 3 + 16));
        assert_eq!(
            words[24..43],
            [&5u32.to_ne_bytes()[..], &7u32.to_ne_bytes(), &3u32.to_ne_bytes(), &9u32.to_ne_bytes(), b"abc"].concat()
        );
    }
}
