//! Arguments of a marker: operands of x86-64's assembler, `SIZE@OPERAND` each.
//!
//! | written | means |
//! |---|---|
//! | `8@%rbx`, `-4@%eax`, `1@%dl` | a register, or the part of it with this name |
//! | `4@$-7` | a number |
//! | `8@-16(%rbp)`, `8@(%rax,%rcx,8)` | memory, as the assembler addresses it |
//! | `-4@counter(%rip)`, `8@table+8(%rip)` | memory at a symbol |
//! | `4@table(,%rax,4)`, `4@counter` | the same in a program that is not position independent |
//! | `8f@%xmm0` | floating point, which BPF programs cannot read |

use super::super::{Attach, Env, ProbeSite};
use crate::emit::{Builder, Operand};
use crate::system::Binary;
use crate::system::machine::registers::{IP, REGISTERS};
use crate::types::{Int, Space, Type};

const U64: Int = Int { bytes: 8, signed: false };

/// An argument.
#[derive(Clone, Debug, PartialEq)]
struct Arg {
    /// Its size and sign; none if it is unreadable.
    int: Option<Int>,
    at: At,
}

#[derive(Clone, Debug, PartialEq)]
enum At {
    Number(i64),
    /// Offset in `struct pt_regs`.
    Register(u32),
    /// The sum of what is there; an index is scaled.
    Memory {
        symbol: Option<String>,
        base: Option<u32>,
        index: Option<(u32, u32)>,
        by: i64,
    },
    Unknown,
}

/// All arguments of a note. One that is not understood is there, without a type.
fn parse(text: &str) -> Vec<Arg> {
    text.split_whitespace().map(|t| argument(t).unwrap_or(Arg { int: None, at: At::Unknown })).collect()
}

fn argument(text: &str) -> Option<Arg> {
    let (size, operand) = text.split_once('@').unwrap_or(("8", text));
    // a size may have a letter after it: `f` for floating point
    let size: i32 = size.parse().ok()?;
    let int = match size.unsigned_abs() {
        bytes @ (1 | 2 | 4 | 8) => Int { bytes: bytes as u8, signed: size < 0 },
        _ => return None,
    };
    let at = operand_at(operand)?;
    Some(Arg { int: Some(int), at })
}

fn operand_at(text: &str) -> Option<At> {
    if let Some(number) = text.strip_prefix('$') {
        return number_of(number).map(At::Number);
    }
    if let Some(name) = text.strip_prefix('%') {
        return register(name).map(At::Register);
    }
    let Some((by, inside)) = text.strip_suffix(')').and_then(|t| t.split_once('(')) else {
        let (symbol, by) = displacement(text)?;
        return Some(At::Memory { symbol, base: None, index: None, by });
    };
    let (symbol, by) = if by.is_empty() { (None, 0) } else { displacement(by)? };
    let mut parts = inside.split(',').map(str::trim);
    let base = match parts.next()? {
        "" => None,
        // a symbol is there as many bytes away as the assembler found out
        "%rip" => return symbol.map(|name| At::Memory { symbol: Some(name), base: None, index: None, by }),
        name => Some(register(name.strip_prefix('%')?)?),
    };
    let index = match parts.next() {
        Some(name) => {
            let scale: u32 = parts.next().map_or(Some(1), |s| s.parse().ok()).filter(|s| matches!(s, 1 | 2 | 4 | 8))?;
            Some((register(name.strip_prefix('%')?)?, scale))
        }
        None => None,
    };
    Some(At::Memory { symbol, base, index, by })
}

/// A number, or a symbol and a number of bytes from it.
fn displacement(text: &str) -> Option<(Option<String>, i64)> {
    if let Some(by) = number_of(text) {
        return Some((None, by));
    }
    let cut = text.rfind(['+', '-']).filter(|at| *at > 0).unwrap_or(text.len());
    let (name, by) = text.split_at_checked(cut)?;
    let by = if by.is_empty() { 0 } else { number_of(by.strip_prefix('+').unwrap_or(by))? };
    (name.starts_with(|c: char| c.is_alphabetic() || "_.".contains(c)) && !name.contains(char::is_whitespace))
        .then(|| (Some(name.to_owned()), by))
}

fn number_of(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |t| (true, t));
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    } as i64;
    Some(if negative { value.wrapping_neg() } else { value })
}

/// The full register that contains a named part: `rax` for `eax`, `ax`, `al`; `r8` for `r8d`, `r8w`, `r8b`. `ah` and similar
/// parts are not supported, because arguments do not use them.
fn register(name: &str) -> Option<u32> {
    let whole = |n: &str| REGISTERS.iter().find(|(r, _)| *r == n).map(|(_, at)| *at);
    if let Some(rest) = name.strip_prefix('r').filter(|r| r.starts_with(|c: char| c.is_ascii_digit())) {
        return whole(&format!("r{}", rest.trim_end_matches(['d', 'w', 'b', 'l'])));
    }
    let short = name.strip_prefix(['r', 'e']).unwrap_or(name);
    match short {
        "al" | "bl" | "cl" | "dl" => whole(&format!("{}x", short.trim_end_matches('l'))),
        "sil" | "dil" | "bpl" | "spl" => whole(short.trim_end_matches('l')),
        "ax" | "bx" | "cx" | "dx" | "si" | "di" | "bp" | "sp" | "ip" => whole(short),
        _ => None,
    }
}

/// Do the arguments contain a symbol, whose address must be looked up in the binary?
pub fn names_symbols(text: &str) -> bool {
    parse(text).iter().any(|a| matches!(a.at, At::Memory { symbol: Some(_), .. }))
}

/// The types of the arguments; none for an unreadable one.
pub fn types(text: &str, binary: Option<&Binary>) -> Vec<Option<Type>> {
    let known = |a: &Arg| match &a.at {
        At::Memory { symbol: Some(name), .. } => binary.is_some_and(|b| address(b, name).is_some()),
        At::Number(_) | At::Register(_) | At::Memory { symbol: None, .. } | At::Unknown => true,
    };
    parse(text).into_iter().map(|a| a.int.filter(|_| known(&a)).map(Type::Int)).collect()
}

fn address(binary: &Binary, symbol: &str) -> Option<u64> {
    let object = binary.objects.iter().find(|(n, _, _)| *n == symbol).map(|(_, a, _)| *a);
    object.or_else(|| binary.functions_named(symbol).next().map(|f| f.addr))
}

/// The n-th argument's value.
pub fn load<'c>(e: &mut Builder<'_, 'c>, site: &ProbeSite, env: &Env, n: u32, ty: &Type) -> Operand<'c> {
    let Attach::Usdt { path, addr, args, .. } = &site.attach else { crate::bug!("{} is a marker", site.name) };
    let Some(Arg { int: Some(int), at, .. }) = parse(args).into_iter().nth(n as usize) else {
        crate::bug!("{} has no argument {n}", site.name)
    };
    let value = match at {
        At::Number(n) => e.int(n as u64),
        At::Register(at) => e.load_ctx(at, U64),
        At::Memory { symbol, base, index, by } => {
            let mut at = e.int(by as u64);
            if let Some(name) = symbol {
                // the marker's address now, less the one it has in the file, tells where the file was loaded
                let found = env.sys.binary(path).ok().and_then(|b| address(&b, &name));
                let ip = e.load_ctx(IP, U64);
                let moved = e.sub(ip, e.int(*addr));
                // one that is not there has no type: see `types`
                at = e.add(moved, e.int(found.unwrap_or(0).wrapping_add(by as u64)));
            }
            if let Some(base) = base {
                let base = e.load_ctx(base, U64);
                at = e.add(base, at);
            }
            if let Some((index, scale)) = index {
                let index = e.load_ctx(index, U64);
                let scaled = e.shl(index, e.int(scale.trailing_zeros().into()));
                at = e.add(at, scaled);
            }
            e.read_int(Space::User, at, int)
        }
        At::Unknown => crate::bug!("{} has no argument {n}", site.name),
    };
    Operand::reg(ty.clone(), e.fit(value, int))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> (Option<(u8, bool)>, At) {
        let a = parse(text).remove(0);
        (a.int.map(|i| (i.bytes, i.signed)), a.at)
    }

    #[test]
    fn every_form() {
        assert_eq!(at("8@%rbx"), (Some((8, false)), At::Register(40)));
        assert_eq!(at("-4@%ebp"), (Some((4, true)), At::Register(32)));
        assert_eq!(at("1@%dl"), (Some((1, false)), At::Register(96)));
        assert_eq!(at("-1@%sil").1, At::Register(104));
        assert_eq!(at("2@%r10w").1, At::Register(56));
        assert_eq!(at("4@%r8d").1, At::Register(72));
        assert_eq!(at("-4@$-7"), (Some((4, true)), At::Number(-7)));
        assert_eq!(at("8@$0xffffffffffffffff").1, At::Number(-1));
        assert_eq!(at("8@-80(%rbx)").1, At::Memory { symbol: None, base: Some(40), index: None, by: -80 });
        assert_eq!(at("8@(%rax,%rcx,8)").1, At::Memory { symbol: None, base: Some(80), index: Some((88, 8)), by: 0 });
        assert_eq!(at("8@16(,%rcx,4)").1, At::Memory { symbol: None, base: None, index: Some((88, 4)), by: 16 });
        let symbol = |name: &str, index, by| At::Memory { symbol: Some(name.into()), base: None, index, by };
        assert_eq!(at("-4@counter(%rip)").1, symbol("counter", None, 0));
        assert_eq!(at("8@table+8(%rip)").1, symbol("table", None, 8));
        assert_eq!(at("-4@counter").1, symbol("counter", None, 0));
        assert_eq!(at("-4@table-4(,%rcx,4)").1, symbol("table", Some((88, 4)), -4));
        assert_eq!(at("1@names(%rbx)").1, At::Memory { symbol: Some("names".into()), base: Some(40), index: None, by: 0 });
        assert_eq!(at("8@4096").1, At::Memory { symbol: None, base: None, index: None, by: 4096 });
        assert!(names_symbols("8@%rax -4@table(,%rcx,4)") && !names_symbols("8@%rax -4@8(,%rcx,4)"));
        assert_eq!(at("%rdi"), (Some((8, false)), At::Register(112)));
        for text in [
            "8f@%xmm0",
            "8@%xmm0",
            "3@%rax",
            "@",
            "8@",
            "8@(",
            "8@)(",
            "8@%ah",
            "8@(%rax,%rbx,3)",
            "-@%rax",
            "8@5(%rip)",
            "8@(%rip)",
            "-4@%fs:tls@tpoff",
            "8@table(%zz)",
        ] {
            assert_eq!(at(text), (None, At::Unknown), "{text}");
        }
        assert_eq!(parse("").len(), 0);
        assert_eq!(parse("8@%rax 4f@%xmm1 -2@%bx").len(), 3);
    }
}
