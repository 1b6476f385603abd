//! The kernel's limits on an object: the stack of a chain of calls, and the numbers of maps and functions that a program uses.

use std::collections::{BTreeMap, BTreeSet};

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind, SymbolKind};

/// `MAX_BPF_STACK` of include/linux/filter.h, for a program together with all functions that it is calling.
pub const MAX_STACK: u32 = 512;
/// `MAX_CALL_FRAMES` of include/linux/bpf_verifier.h: a program with the functions that it is calling.
pub const MAX_FRAMES: u32 = 8;
/// `MAX_USED_MAPS` of include/linux/bpf.h.
pub const MAX_MAPS: usize = 64;
/// `BPF_MAX_SUBPROGS` of include/linux/bpf_verifier.h, the program included.
pub const MAX_FUNCTIONS: usize = 256;

/// From this size, a function has a private stack if the kernel supports them (`BPF_PRIV_STACK_MIN_SIZE`).
const PRIVATE_FROM: u32 = 64;
/// Size of an instruction in bytes; a 64-bit load takes two (opcode `BPF_LD | BPF_IMM | BPF_DW`).
const INSTRUCTION: usize = 8;
const WIDE_LOAD: u8 = 0x18;
/// `BPF_JMP | BPF_CALL`. The source register shows the kind of call; 1 is a function of the object.
const CALL: u8 = 0x85;
/// `BPF_FUNC_tail_call`.
const TAIL_CALL: i32 = 12;
/// `BPF_ALU64 | BPF_ADD | BPF_K` and `BPF_ALU64 | BPF_MOV | BPF_X`.
const ADD: u8 = 0x07;
const MOVE: u8 = 0xbf;
/// The frame pointer.
const R10: u8 = 10;

/// How a kernel counts the stack of a chain of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackRule {
    /// It rounds the stack of each function up to a multiple of this (`round_up_stack_depth` of kernel/bpf/verifier.c).
    pub step: u32,
    /// The JIT gives large functions private stacks, which do not add up, unless there is a tail call.
    pub private: bool,
}

impl StackRule {
    /// Up to Linux 6.8.
    pub const BEFORE_6_9: Self = Self { step: 32, private: false };
    /// From Linux 6.9 on.
    pub const SUMS: Self = Self { step: 16, private: false };
    /// From Linux 6.13 on, for processors whose JIT has private stacks.
    pub const PRIVATE: Self = Self { step: 16, private: true };
}

/// A program of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitedProgram {
    /// Name of its function.
    pub name: String,
    /// Stack in bytes that counts towards [`MAX_STACK`]: that of the deepest chain of calls, or the largest of one function.
    pub stack: u32,
    /// Functions in the longest chain of calls, the program included.
    pub frames: u32,
    /// Number of functions that it consists of, itself included.
    pub functions: usize,
    /// Symbols of the data and the maps that it and its functions use.
    pub maps: BTreeSet<String>,
}

/// A function.
#[derive(Default)]
struct Function {
    stack: u32,
    calls: BTreeSet<String>,
    maps: BTreeSet<String>,
    tail_call: bool,
    /// It is a program.
    program: bool,
}

/// Analyzes each program of an object that rbt compiled. `private` says whether a program, given by name, has a type
/// that may have a private stack. Error: it is not such an object.
pub fn limited(elf: &[u8], rule: StackRule, private: &dyn Fn(&str) -> bool) -> Result<Vec<LimitedProgram>, String> {
    let file = object::File::parse(elf).map_err(|e| e.to_string())?;
    let mut functions: BTreeMap<String, Function> = BTreeMap::new();
    for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
        let Ok(code) = section.data() else { continue };
        // libbpf puts functions that are not programs into this section.
        let programs = section.name().is_ok_and(|n| n != ".text");
        let symbols: Vec<_> = file
            .symbols()
            .filter(|s| s.section_index() == Some(section.index()) && s.kind() == SymbolKind::Text && s.size() > 0)
            .filter_map(|s| Some((s.address(), s.size(), s.name().ok()?.to_owned(), s.is_global())))
            .collect();
        let at = |address: u64| symbols.iter().find(|(from, ..)| *from == address).map(|s| s.2.clone());
        let within = |address: u64| symbols.iter().find(|(from, size, ..)| (*from..from + size).contains(&address)).map(|s| s.2.clone());
        for (from, size, name, global) in &symbols {
            let Some(body) = code.get(*from as usize..(*from + *size) as usize) else { continue };
            let function = functions.entry(name.clone()).or_default();
            function.stack = stack(body);
            function.program = programs && *global;
            function.tail_call = has_tail_call(body);
            // Calls within a section need no relocation.
            function.calls.extend(calls(body, *from).into_iter().filter_map(at));
        }
        for (address, relocation) in section.relocations() {
            let Some(function) = within(address).and_then(|name| functions.get_mut(&name)) else { continue };
            let RelocationTarget::Symbol(index) = relocation.target() else { continue };
            let Ok(symbol) = file.symbol_by_index(index) else { continue };
            let text = symbol.section_index().and_then(|i| file.section_by_index(i).ok());
            match text {
                // A function of the object. If the symbol is that of a section, the instruction has the offset.
                Some(s) if s.kind() == SectionKind::Text => {
                    let imm =
                        code.get(address as usize + 4..address as usize + 8).and_then(|b| b.try_into().ok()).map_or(0, i32::from_le_bytes);
                    let call = code.get(address as usize) == Some(&CALL);
                    let offset = match (symbol.kind(), call) {
                        (SymbolKind::Section, true) => (i64::from(imm) + 1) * INSTRUCTION as i64,
                        (SymbolKind::Section, false) => i64::from(imm),
                        _ => symbol.address() as i64,
                    };
                    let callee = file
                        .symbols()
                        .find(|f| f.section_index() == Some(s.index()) && f.kind() == SymbolKind::Text && f.address() as i64 == offset)
                        .and_then(|f| f.name().ok().map(str::to_owned));
                    function.calls.extend(callee);
                }
                // Each data section is a map, and so is each symbol of `.maps`.
                Some(s) => {
                    let section = s.name().unwrap_or_default();
                    let name = if section == ".maps" { symbol.name().unwrap_or_default() } else { section };
                    function.maps.insert(name.to_owned());
                }
                None => {}
            }
        }
    }
    let programs = functions.iter().filter(|(_, f)| f.program).map(|(name, _)| name.clone());
    Ok(programs
        .map(|name| {
            let rule = StackRule { private: rule.private && private(&name), ..rule };
            combine_callees(&functions, name, rule)
        })
        .collect())
}

/// Combines a program with all functions that it calls.
fn combine_callees(functions: &BTreeMap<String, Function>, name: String, rule: StackRule) -> LimitedProgram {
    let mut all = BTreeSet::new();
    let mut found = LimitedProgram { name, ..LimitedProgram::default() };
    let (mut ahead, mut tail_call, mut largest) = (vec![&found.name], false, 0);
    while let Some(next) = ahead.pop() {
        if let (true, Some(f)) = (all.insert(next), functions.get(next)) {
            ahead.extend(&f.calls);
            found.maps.extend(f.maps.iter().cloned());
            tail_call |= f.tail_call;
            largest = largest.max(f.stack);
        }
    }
    let private = rule.private && !tail_call;
    let (stack, frames) = deepest(functions, &found.name, StackRule { private, ..rule }, &mut Depths::default());
    (found.stack, found.frames) = (stack.max(largest), frames);
    found.functions = all.len();
    found
}

/// The stack in bytes of the chain of calls that needs the most, and the number of functions in the longest. A chain that
/// returns to a function has no end: like any chain that is far too long, it is only longer than the kernel allows.
fn deepest<'a>(functions: &'a BTreeMap<String, Function>, name: &'a str, rule: StackRule, known: &mut Depths<'a>) -> (u32, u32) {
    const MAX_CHAIN: usize = 2 * MAX_FRAMES as usize;
    let Some(f) = functions.get(name) else { return (0, 0) };
    if let Some(depth) = known.found.get(name) {
        return *depth;
    }
    if known.chain.len() > MAX_CHAIN || known.chain.contains(&name) {
        return (0, MAX_FRAMES + 1);
    }
    known.chain.push(name);
    let calls = f.calls.iter().map(|c| deepest(functions, c, rule, known));
    let (stack, frames) = calls.fold((0, 0), |(stack, frames), call| (call.0.max(stack), call.1.max(frames)));
    let own_stack = f.stack.next_multiple_of(rule.step);
    let own_stack = match rule {
        StackRule { private: true, .. } if own_stack >= PRIVATE_FROM => 0,
        // a function without stack counts, too
        StackRule::BEFORE_6_9 => own_stack.max(rule.step),
        _ => own_stack,
    };
    let depth = (own_stack.saturating_add(stack), frames + 1);
    known.chain.pop();
    known.found.insert(name, depth);
    depth
}

/// What [`deepest`] knows.
#[derive(Default)]
struct Depths<'a> {
    /// The functions that it is looking at, each called by the one before.
    chain: Vec<&'a str>,
    /// Results by function.
    found: BTreeMap<&'a str, (u32, u32)>,
}

/// The instructions of a function with their offsets.
fn instructions(code: &[u8]) -> impl Iterator<Item = (usize, &[u8; INSTRUCTION])> {
    let mut pos = 0;
    std::iter::from_fn(move || {
        let insn: &[u8; INSTRUCTION] = code.get(pos..pos + INSTRUCTION)?.try_into().ok()?;
        let here = pos;
        pos += if insn.first() == Some(&WIDE_LOAD) { 2 * INSTRUCTION } else { INSTRUCTION };
        Some((here, insn))
    })
}

/// The lowest offset from the frame pointer that a function uses: by loads and stores, and by addresses computed from it.
fn stack(code: &[u8]) -> u32 {
    const CLASS: u8 = 0x07;
    let (mut lowest, mut copy) = (0i32, None);
    for (_, [opcode, registers, low, high, imm @ ..]) in instructions(code) {
        let (to, from) = (registers & 0xf, registers >> 4);
        let offset = i32::from(i16::from_le_bytes([*low, *high]));
        match opcode & CLASS {
            // BPF_LDX uses its source register as the address, BPF_ST and BPF_STX their destination register.
            1 if from == R10 => lowest = lowest.min(offset),
            2 | 3 if to == R10 => lowest = lowest.min(offset),
            _ => {}
        }
        let added = i32::from_le_bytes(*imm);
        match *opcode {
            MOVE if from == R10 => {
                copy = Some(to);
                continue;
            }
            ADD if copy == Some(to) && added < 0 => lowest = lowest.min(added),
            _ => {}
        }
        copy = None;
    }
    lowest.unsigned_abs()
}

fn has_tail_call(code: &[u8]) -> bool {
    instructions(code)
        .any(|(_, [opcode, registers, _, _, imm @ ..])| *opcode == CALL && registers >> 4 == 0 && i32::from_le_bytes(*imm) == TAIL_CALL)
}

/// The addresses of functions that code calls or refers to without a relocation. `from` is the address of the code.
fn calls(code: &[u8], from: u64) -> Vec<u64> {
    let is_local = |insn: &[u8; INSTRUCTION]| insn[0] == CALL && insn[1] >> 4 == 1;
    let target = |at: usize, insn: &[u8; INSTRUCTION]| {
        let imm = i32::from_le_bytes([insn[4], insn[5], insn[6], insn[7]]);
        (from as i64 + at as i64 + (i64::from(imm) + 1) * INSTRUCTION as i64) as u64
    };
    // The call of a kernel function has a relocation, and its target is the call itself until then.
    let successor = |(at, insn): (usize, &[u8; INSTRUCTION])| Some(target(at, insn)).filter(|to| *to != from + at as u64);
    instructions(code).filter(|(_, insn)| is_local(insn)).filter_map(successor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_byte_counts() {
        let code = [
            [0x7b, 0x1a, 0xf8, 0xff, 0, 0, 0, 0],       // *(u64 *)(r10 - 8) = r1
            [0xbf, 0xa2, 0, 0, 0, 0, 0, 0],             // r2 = r10
            [0x07, 0x02, 0, 0, 0xc0, 0xff, 0xff, 0xff], // r2 += -64
            [0x07, 0x02, 0, 0, 0x00, 0xfe, 0xff, 0xff], // no longer of the frame pointer
            [0x79, 0xa1, 0xe0, 0xff, 0, 0, 0, 0],       // r1 = *(u64 *)(r10 - 32)
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(stack(&code.concat()), 64);
        assert_eq!(stack(&[0x95, 0, 0, 0, 0, 0, 0, 0]), 0);
    }

    #[test]
    fn the_deepest_chain_counts() {
        let function = |stack, calls: &[&str], maps: &[&str]| Function {
            stack,
            calls: calls.iter().map(|c| (*c).into()).collect(),
            maps: maps.iter().map(|m| (*m).into()).collect(),
            ..Function::default()
        };
        let mut functions: BTreeMap<String, Function> = [
            ("p".to_string(), Function { program: true, ..function(33, &["a", "b"], &["m"]) }),
            ("a".to_string(), function(200, &[], &["n"])),
            ("b".to_string(), function(0, &["c"], &[])),
            ("c".to_string(), function(256, &[], &["m", "o"])),
        ]
        .into();
        let found = combine_callees(&functions, "p".into(), StackRule::BEFORE_6_9);
        assert_eq!((found.stack, found.frames, found.maps.len()), (64 + 32 + 256, 3, 3));
        assert_eq!(combine_callees(&functions, "p".into(), StackRule::SUMS).stack, 48 + 256);
        assert_eq!(combine_callees(&functions, "p".into(), StackRule::PRIVATE).stack, 256);
        if let Some(p) = functions.get_mut("p") {
            p.tail_call = true;
        }
        assert_eq!(combine_callees(&functions, "p".into(), StackRule::PRIVATE).stack, 48 + 256);
    }

    #[test]
    fn recursion_has_no_end() {
        // each of them calls all of them, so the number of chains is astronomical
        let names: Vec<String> = (0..40).map(|i| format!("f{i}")).collect();
        let calls: BTreeSet<String> = names.iter().cloned().collect();
        let functions = names.into_iter().map(|name| (name, Function { calls: calls.clone(), ..Function::default() })).collect();
        assert!(combine_callees(&functions, "f0".into(), StackRule::SUMS).frames > MAX_FRAMES);
    }

    #[test]
    fn tail_calls_are_calls_of_a_helper() {
        let call = |registers, imm: u8| has_tail_call(&[CALL, registers, 0, 0, imm, 0, 0, 0]);
        assert!(call(0, 12) && !call(0, 1) && !call(0x10, 12));
    }
}
