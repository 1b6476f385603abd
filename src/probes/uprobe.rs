//! `uprobe` and `uretprobe`: functions of programs and shared libraries.
//!
//! Registers and their places in the context: x86-64's `struct pt_regs` (arch/x86/include/asm/ptrace.h) and its calling
//! convention (System V ABI).

use std::path::Path;
use std::rc::Rc;

use super::{ArgRef, Attach, Caps, Context, ContextField, Env, Info, Place, ProbeKind, ProbeSite, ProgramType, matches, missing};
use crate::diag::Diagnostic;
use crate::emit::{Emit, Helper, Operand};
use crate::syntax::ast::AttachPoint;
use crate::system::registers::{ARGS, AX, IP, SP};
use crate::system::{ArgumentPlace, Binary, Feature, Function, Missing, instructions};
use crate::types::{Field, Int, Space, Type};

/// A function's entry, or its return.
#[derive(Debug)]
pub struct Uprobe {
    info: Info,
    ret: bool,
}

/// Entry.
pub static UPROBE: Uprobe = Uprobe {
    info: Info {
        names: &["uprobe", "u"],
        usage: "uprobe:BINARY:FUNCTION[+OFFSET] or uprobe:BINARY:ADDRESS",
        doc: "The entry of a function in a program or shared library, or an address in it. The binary is a path, a command, or a library's name such as `libc`. Where the binary has debug information (DWARF), `args` has the arguments by name, and its structs and enums are known.",
        example: "uprobe:libc:malloc { @bytes = hist(arg0); }",
    },
    ret: false,
};

/// Return.
pub static URETPROBE: Uprobe = Uprobe {
    info: Info {
        names: &["uretprobe", "ur"],
        usage: "uretprobe:BINARY:FUNCTION",
        doc: "The return of a function in a program or shared library; `retval` is what it returns.",
        example: "uretprobe:libc:malloc /retval == 0/ { @failed = count(); }",
    },
    ret: true,
};

const U64: Int = Int { bytes: 8, signed: false };

impl Uprobe {
    fn site(&self, binary: &Binary, function: &Function, by: u64, point: &AttachPoint) -> ProbeSite {
        let plus = if by == 0 { String::new() } else { format!("+{by}") };
        let name = format!("{}:{}:{}{plus}", self.name(), binary.path.display(), function.name);
        let attach =
            Attach::Uprobe { path: binary.path.clone(), offset: function.offset + by, function: function.name.clone(), ret: self.ret };
        ProbeSite { kind: super::row(self.name()), name, attach, span: point.span }
    }

    fn in_binary(&self, binary: &Binary, what: &str, point: &AttachPoint, env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        let span = point.span;
        let shown = binary.path.display();
        if what.contains('*') {
            return Ok(binary.functions.iter().filter(|f| matches(what, &f.name)).map(|f| self.site(binary, f, 0, point)).collect());
        }
        if let Some(addr) = number(what) {
            let Some(offset) = binary.offset_of_addr(addr) else {
                return Err(Diagnostic::error("unknown-address", span, format!("{shown} has nothing at address {addr:#x}")));
            };
            let near = binary.functions.iter().find(|f| addr >= f.addr && addr - f.addr < f.size.max(1));
            let function = Function { name: what.into(), addr, size: 0, offset };
            let mut site = self.site(binary, &function, 0, point);
            if let (Some(f), Attach::Uprobe { function, .. }) = (near, &mut site.attach) {
                function.clone_from(&f.name);
            }
            return Ok(vec![site]);
        }
        let (name, by) = match what.rsplit_once('+') {
            Some((name, by)) => match number(by) {
                Some(by) => (name, by),
                None => {
                    return Err(
                        Diagnostic::error("bad-probe", span, format!("`{by}` is not an offset")).help(format!("write {}", self.usage()))
                    );
                }
            },
            None => (what, 0),
        };
        if self.ret && by != 0 {
            return Err(Diagnostic::error("bad-probe", span, "a return has no offset").help("drop the offset, or use uprobe"));
        }
        // aliases and local functions of one name: one place each
        let mut found: Vec<&Function> = binary.functions_named(name).collect();
        found.dedup_by_key(|f| f.offset);
        if found.is_empty() {
            let error = Diagnostic::error("unknown-symbol", span, format!("{shown} has no function `{name}`"));
            return Err(match crate::diag::nearest(name, binary.functions.iter().map(|f| f.name.as_str())) {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None if binary.functions.is_empty() => {
                    error.help("the file has no symbols at all: install its debug symbols, or probe by address")
                }
                None => error
                    .help(format!("`rbt -l '{}:{shown}:*'` lists what there is; static functions that were inlined are not", self.name())),
            });
        }
        if let Some(f) = found.iter().find(|f| by != 0 && by >= f.size)
            && !env.settings.allow_unsafe
        {
            let error = Diagnostic::error("bad-offset", span, format!("offset {by} is outside `{name}`, which has {} bytes", f.size));
            return Err(error.help("an offset must lie inside the function, at the start of an instruction; --unsafe lifts this check"));
        }
        if let Some(f) = found.iter().find(|f| by != 0 && instructions::starts_at(&binary.path, f.offset, by) != Some(true))
            && !env.settings.allow_unsafe
        {
            let error = Diagnostic::error("bad-offset", span, format!("no instruction of `{}` is known to start at offset {by}", f.name));
            return Err(error.help(
                "a probe in the midst of an instruction can crash the program: `objdump -d` shows where they start; --unsafe lifts this check",
            ));
        }
        Ok(found.into_iter().map(|f| self.site(binary, f, by, point)).collect())
    }
}

/// An argument by its name. Above the stack pointer are the return address, then what no register holds.
fn argument<'c>(e: &mut Emit<'c>, f: &ContextField) -> Operand<'c> {
    let ty = f.field.ty.clone();
    let register = |e: &mut Emit<'c>, n: u32| {
        let offset = ARGS.get(n as usize).copied().unwrap_or(0);
        e.once(&format!("arg{n}"), |e| e.load_ctx(offset, U64))
    };
    match f.place {
        Place::Argument(ArgumentPlace::Registers { first, count }) => match ty.as_int() {
            Some(int) => {
                let v = register(e, first);
                Operand::reg(ty, e.fit(v, int))
            }
            None => {
                let to = e.alloc(count * 8);
                for n in 0..count {
                    let v = register(e, first + n);
                    let at = e.offset(to, n * 8);
                    e.put(at, 8, &Operand::reg(Type::U64, v), &Type::U64);
                }
                Operand::mem(ty, to)
            }
        },
        Place::Argument(ArgumentPlace::Stack(above)) => {
            let sp = e.load_ctx(SP, U64);
            let at = e.add(sp, e.int(8 + u64::from(above)));
            match ty.as_int() {
                Some(int) => {
                    let v = e.read_int(Space::User, at, int);
                    Operand::reg(ty, v)
                }
                None => Operand::at(ty, at, Space::User),
            }
        }
        Place::Argument(ArgumentPlace::Reference(n)) => {
            let at = register(e, n);
            Operand::at(ty, at, Space::User)
        }
        Place::Record | Place::DataLoc | Place::RelLoc | Place::RawArg(_) | Place::SyscallArg(_) | Place::SyscallNumber => {
            crate::bug!("a function's argument is not at {:?}", f.place)
        }
    }
}

/// Decimal or hexadecimal.
fn number(s: &str) -> Option<u64> {
    match s.strip_prefix("0x").or_else(|| s.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => s.parse().ok(),
    }
}

impl ProbeKind for Uprobe {
    fn info(&self) -> &Info {
        &self.info
    }

    fn expand(&self, point: &AttachPoint, env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        let parts: Vec<&str> = point.segments.iter().skip(1).map(|s| s.text.as_str()).collect();
        let of_process = env.settings.pid.map(|p| format!("/proc/{p}/exe"));
        let (binary, what) = match (parts.as_slice(), &of_process) {
            ([binary, what], _) => (*binary, *what),
            ([what], Some(exe)) => (exe.as_str(), *what),
            _ => {
                let error = Diagnostic::error("bad-probe", point.span, format!("{} takes a binary and a function", self.name()));
                return Err(error.help(format!("write {}", self.usage())));
            }
        };
        if what.is_empty() {
            return Err(Diagnostic::error("bad-probe", point.span, "the function's name is empty").help(format!("write {}", self.usage())));
        }
        let paths = env.sys.resolve_binary(binary, env.settings.pid).map_err(|m| missing(point.span, m))?;
        let several = paths.len() > 1;
        let (mut sites, mut first_error) = (Vec::new(), None);
        for path in &paths {
            let found = open(env, path, point).and_then(|b| self.in_binary(&b, what, point, env));
            match found {
                Ok(more) => sites.extend(more),
                Err(e) if several => first_error = first_error.or(Some(e)),
                Err(e) => return Err(e),
            }
        }
        match first_error {
            Some(e) if sites.is_empty() => Err(e),
            _ => Ok(sites),
        }
    }

    fn offers(&self) -> Caps {
        let both = Caps::REGS.and(Caps::FUNC).and(Caps::CTX).and(Caps::BINARY).and(Caps::STACK).and(Caps::SIGNAL);
        both.and(if self.ret { Caps::RETVAL } else { Caps::ARGN.and(Caps::ARGS) })
    }

    fn context(&self, _site: &ProbeSite, env: &Env) -> Result<Context, Diagnostic> {
        let args = if self.ret { 0 } else { ARGS.len() as u32 };
        // at a return only bpf_get_func_ip knows: it learned of uprobes with the same Linux, 6.6, that has uprobe.multi
        let caps = if self.ret && !env.sys.has(Feature::UprobeMulti) { self.offers().without(Caps::FUNC) } else { self.offers() };
        Ok(Context { caps, args, space: Some(Space::User), ..Context::default() })
    }

    fn fields(&self, site: &ProbeSite, env: &Env) -> Result<Vec<Rc<ContextField>>, Diagnostic> {
        let Attach::Uprobe { path, offset, ret: false, .. } = &site.attach else { return Ok(Vec::new()) };
        let binary = env.sys.binary(path).map_err(|m| missing(site.span, m))?;
        let found = binary.functions.iter().find(|f| f.offset == *offset);
        let unknown = || {
            let error = Diagnostic::error("missing", site.span, format!("the arguments of {} are not known", site.name));
            error.help("`args` needs a function's entry, and the function in the binary's debug information; arg0, arg1, … need neither")
        };
        let known = env.sys.arguments(path, found.ok_or_else(unknown)?).map_err(|m| missing(site.span, m))?;
        let mut offset = 0u32;
        let fields = known.ok_or_else(unknown)?.into_iter().filter_map(|a| {
            let decl = format!("{} {}", a.ty, a.name);
            offset = offset.next_multiple_of(a.ty.align());
            let field = Field { name: a.name, offset, bits: None, ty: a.ty };
            offset = offset.saturating_add(field.ty.size());
            // what cannot be read (floating point) is not offered
            Some(Rc::new(ContextField { field, place: Place::Argument(a.place?), decl }))
        });
        Ok(fields.collect())
    }

    fn program(&self, _site: &ProbeSite, env: &Env) -> ProgramType {
        super::on_a_binary(env)
    }

    fn load<'c>(&self, e: &mut Emit<'c>, site: &ProbeSite, env: &Env, which: &ArgRef, ty: &Type) -> Operand<'c> {
        let v = match which {
            ArgRef::Index(n) => {
                let offset = ARGS.get(*n as usize).copied().unwrap_or(0);
                e.once(&format!("arg{n}"), |e| e.load_ctx(offset, U64))
            }
            ArgRef::Retval => e.once("retval", |e| e.load_ctx(AX, U64)),
            ArgRef::Ctx => e.addr(e.ctx()),
            // at a return the instruction pointer is back in the caller
            ArgRef::Func if self.ret => e.once("func", |e| {
                let ctx = e.ctx();
                e.call(Helper::GetFuncIp, &[ctx.into()])
            }),
            ArgRef::Func => {
                let by = site.name.rsplit_once('+').and_then(|(_, by)| number(by)).unwrap_or(0);
                e.once("func", |e| {
                    let ip = e.load_ctx(IP, U64);
                    e.sub(ip, e.int(by))
                })
            }
            ArgRef::Named(f) => return argument(e, f),
            ArgRef::All => {
                let fields = self.fields(site, env).unwrap_or_default();
                return super::load_fields(e, &fields, ty, |e, f| argument(e, f));
            }
        };
        Operand::reg(ty.clone(), v)
    }

    fn list(&self, pattern: &[String], env: &Env, each: &mut dyn FnMut(&str)) -> Result<(), Missing> {
        let of_process = env.settings.pid.map(|p| format!("/proc/{p}/exe"));
        let (binary, function) = match (pattern, &of_process) {
            ([binary, function, ..], _) => (binary.as_str(), function.as_str()),
            ([function], Some(exe)) => (exe.as_str(), function.as_str()),
            ([], Some(exe)) => (exe.as_str(), "*"),
            ([binary], None) if binary != "*" => (binary.as_str(), "*"),
            // all functions of all binaries is nobody's question
            _ => return Ok(()),
        };
        for path in env.sys.resolve_binary(binary, env.settings.pid)? {
            let b = env.sys.binary(&path)?;
            for f in b.functions.iter().filter(|f| matches(function, &f.name)) {
                each(&format!("{}:{}:{}", self.name(), b.path.display(), f.name));
            }
        }
        Ok(())
    }
}

fn open(env: &Env, path: &Path, point: &AttachPoint) -> Result<std::sync::Arc<Binary>, Diagnostic> {
    env.sys.binary(path).map_err(|m| missing(point.span, m))
}
