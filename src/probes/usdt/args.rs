//! Arguments of a marker: `SIZE@OPERAND` each, in the language of the processor's assembler ([`Arch::operand`]). The size is
//! negative for a signed number, and has an `f` after it for floating point, which BPF programs cannot read.

use super::super::{Attach, Env, ProbeSite};
use crate::emit::{Builder, Operand};
use crate::system::Binary;
use crate::system::machine::arch::Arch;
use crate::system::machine::operands::At;
use crate::types::{Int, Space, Type};

const U64: Int = Int { bytes: 8, signed: false };

/// An argument.
#[derive(Clone, Debug, PartialEq)]
struct Arg {
    /// Its size and sign; none if it is unreadable.
    int: Option<Int>,
    at: At,
}

/// All arguments of a note. One that cannot be parsed has no type.
fn parse(text: &str, arch: &Arch) -> Vec<Arg> {
    split_arguments(text).into_iter().map(|t| argument(t, arch).unwrap_or(Arg { int: None, at: At::Unknown })).collect()
}

/// The texts of arguments. Blanks separate them, but also occur within brackets.
fn split_arguments(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let end = |c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        depth <= 0 && c.is_whitespace()
    };
    text.split(end).filter(|t| !t.is_empty()).collect()
}

fn argument(text: &str, arch: &Arch) -> Option<Arg> {
    let (size, operand) = text.split_once('@').unwrap_or(("8", text));
    // a size may have a letter after it: `f` for floating point
    let size: i32 = size.parse().ok()?;
    let int = match size.unsigned_abs() {
        bytes @ (1 | 2 | 4 | 8) => Int { bytes: bytes as u8, signed: size < 0 },
        _ => return None,
    };
    let at = (arch.operand)(operand)?;
    Some(Arg { int: Some(int), at })
}

/// Do the arguments contain a symbol, whose address must be looked up in the binary?
pub fn names_symbols(text: &str, arch: &Arch) -> bool {
    parse(text, arch).iter().any(|a| matches!(a.at, At::Memory { symbol: Some(_), .. }))
}

/// The types of the arguments; none for an unreadable one.
pub fn types(text: &str, arch: &Arch, binary: Option<&Binary>) -> Vec<Option<Type>> {
    let known = |a: &Arg| match &a.at {
        At::Memory { symbol: Some(name), .. } => binary.is_some_and(|b| address(b, name).is_some()),
        At::Number(_) | At::Register(_) | At::SecondByte(_) | At::Memory { symbol: None, .. } | At::Unknown => true,
    };
    parse(text, arch).into_iter().map(|a| a.int.filter(|_| known(&a)).map(Type::Int)).collect()
}

fn address(binary: &Binary, symbol: &str) -> Option<u64> {
    let object = binary.objects.iter().find(|(n, _, _)| *n == symbol).map(|(_, a, _)| *a);
    object.or_else(|| binary.functions_named(symbol).next().map(|f| f.addr))
}

/// The n-th argument's value.
pub fn load<'c>(e: &mut Builder<'_, 'c>, site: &ProbeSite, env: &Env, n: u32, ty: &Type) -> Operand<'c> {
    let Attach::Usdt { path, addr, args, .. } = &site.attach else { crate::bug!("{} is a marker", site.name) };
    let arch = env.sys.arch_of_binary(path);
    let Some(Arg { int: Some(int), at, .. }) = parse(args, arch).into_iter().nth(n as usize) else {
        crate::bug!("{} has no argument {n}", site.name)
    };
    let value = match at {
        At::Number(n) => e.int(n as u64),
        At::Register(at) => e.load_ctx(at, U64),
        At::SecondByte(at) => {
            let whole = e.load_ctx(at, U64);
            e.shr(whole, e.int(8), false)
        }
        At::Memory { symbol, base, index, offset } => {
            let mut at = e.int(offset as u64);
            if let Some(name) = symbol {
                // the difference between the marker's address and that in the file is the load offset
                let found = env.sys.binary(path).ok().and_then(|b| address(&b, &name));
                let ip = e.load_ctx(arch.ip, U64);
                let moved = e.sub(ip, e.int(*addr));
                // an argument without an address has no type: see `types`
                at = e.add(moved, e.int(found.unwrap_or(0).wrapping_add(offset as u64)));
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
    use crate::system::machine::arch;

    fn at(text: &str) -> (Option<(u8, bool)>, At) {
        of("x86_64", text)
    }

    fn of(machine: &str, text: &str) -> (Option<(u8, bool)>, At) {
        let a = parse(text, arch::named(machine).unwrap()).remove(0);
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
        assert_eq!(at("-1@%ah"), (Some((1, true)), At::SecondByte(80)));
        assert_eq!(at("-4@$-7"), (Some((4, true)), At::Number(-7)));
        assert_eq!(at("8@$0xffffffffffffffff").1, At::Number(-1));
        assert_eq!(at("8@-80(%rbx)").1, At::Memory { symbol: None, base: Some(40), index: None, offset: -80 });
        assert_eq!(at("-4@4+-28(%rsp)").1, At::Memory { symbol: None, base: Some(152), index: None, offset: -24 });
        assert_eq!(at("8@table+8-4(%rip)").1, At::Memory { symbol: Some("table".into()), base: None, index: None, offset: 4 });
        assert_eq!(at("8@(%rax,%rcx,8)").1, At::Memory { symbol: None, base: Some(80), index: Some((88, 8)), offset: 0 });
        assert_eq!(at("8@16(,%rcx,4)").1, At::Memory { symbol: None, base: None, index: Some((88, 4)), offset: 16 });
        let symbol = |name: &str, index, offset| At::Memory { symbol: Some(name.into()), base: None, index, offset };
        assert_eq!(at("-4@counter(%rip)").1, symbol("counter", None, 0));
        assert_eq!(at("8@table+8(%rip)").1, symbol("table", None, 8));
        assert_eq!(at("-4@counter").1, symbol("counter", None, 0));
        assert_eq!(at("-4@table-4(,%rcx,4)").1, symbol("table", Some((88, 4)), -4));
        assert_eq!(at("1@names(%rbx)").1, At::Memory { symbol: Some("names".into()), base: Some(40), index: None, offset: 0 });
        assert_eq!(at("8@4096").1, At::Memory { symbol: None, base: None, index: None, offset: 4096 });
        let x86 = arch::named("x86_64").unwrap();
        assert_eq!(at("%rdi"), (Some((8, false)), At::Register(112)));
        for text in [
            "8f@%xmm0",
            "8@%xmm0",
            "3@%rax",
            "@",
            "8@",
            "8@(",
            "8@)(",
            "8@(%rax,%rbx,3)",
            "-@%rax",
            "8@5(%rip)",
            "8@(%rip)",
            "-4@%fs:tls@tpoff",
            "8@table(%zz)",
            "8@4+table(%rip)",
            "8@4+(%rax)",
        ] {
            assert_eq!(at(text), (None, At::Unknown), "{text}");
        }
        assert_eq!(parse("", x86).len(), 0);
        assert_eq!(parse("8@%rax 4f@%xmm1 -2@%bx", x86).len(), 3);
    }

    #[test]
    fn every_form_of_aarch64() {
        let at = |text: &str| of("aarch64", text);
        let memory = |base: u32, index, offset| At::Memory { symbol: None, base: Some(base), index, offset };
        assert_eq!(at("-4@w1"), (Some((4, true)), At::Register(8)));
        assert_eq!(at("8@x0"), (Some((8, false)), At::Register(0)));
        assert_eq!(at("8@x29"), (Some((8, false)), At::Register(232)));
        assert_eq!(at("4@[x0, 8]"), (Some((4, false)), memory(0, None, 8)));
        assert_eq!(at("-8@[sp, 16]"), (Some((8, true)), memory(248, None, 16)));
        assert_eq!(at("8@[x29, -24]").1, memory(232, None, -24));
        assert_eq!(at("1@[x3]").1, memory(24, None, 0));
        assert_eq!(at("8@[x0, x1]").1, memory(0, Some((8, 1)), 0));
        assert_eq!(at("8@[x0,x1,lsl 3]").1, memory(0, Some((8, 8)), 0));
        assert_eq!(at("-4@7"), (Some((4, true)), At::Number(7)));
        assert_eq!(at("-4@-7"), (Some((4, true)), At::Number(-7)));
        assert_eq!(at("8@#0x10").1, At::Number(16));
        for text in ["8f@d0", "8@d0", "8@%rax", "3@x0", "8@[w0]", "8@[x0, x1, lsl 4]", "8@[x0, 8, 8]", "8@[x0, w1]", "8@[x0", "8@x32", "8@"]
        {
            assert_eq!(at(text), (None, At::Unknown), "{text}");
        }
        assert_eq!(parse("8@[sp, 8] -4@w1 4@[x0, x1, lsl 2] 8f@d0", arch::named("aarch64").unwrap()).len(), 4);
    }
}
