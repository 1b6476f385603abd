//! `uprobe` and `uretprobe`: functions of programs and shared libraries.
//!
//! Registers, their places in the context and the calling convention come from the machine's row of `system/machine/arch`.

mod find;

use std::path::Path;
use std::rc::Rc;

use super::search::{Place, Search};
use super::{ArgRef, Attach, Context, ContextFeatures, ContextField, Env, FieldLocation, Info, ProbeKind, ProbeSite, ProgramType, missing};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Helper, IntValue, Operand, PointerValue};
use crate::syntax::ast::AttachPoint;
use crate::system::binary::{demangle, instructions};
use crate::system::machine::arch::Arch;
use crate::system::{Abi, Argument, Binary, BinaryFile, Feature, Function, Missing, NoLocation, Piece, Source};
use crate::types::{Field, Int, Space, Type};
use find::{UprobeLocation, UprobeTarget};

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
        usage: "uprobe:BINARY:[LANGUAGE:]FUNCTION[+OFFSET] uprobe:BINARY:ADDRESS or uprobe:BINARY@FILE:LINE[:COLUMN]",
        doc: "The entry of a function in a program or shared library, or an instruction at an address or a source line. BINARY is a path, a command, or the name of a library such as `libc`. With -p, an empty BINARY is the program of the process. `args` has the arguments by name if the binary has debug information (DWARF). `arg0`, `arg1` and so on are the argument registers. At the entry of a Go function, rbt probes the instruction after the check of the stack, because a function that fails it starts again. See FUNCTIONS OF PROCESSES in rbt-language(7).",
        example: "uprobe:libc:malloc { @bytes = hist(arg0); }",
    },
    ret: false,
};

/// Return.
pub static URETPROBE: Uprobe = Uprobe {
    info: Info {
        names: &["uretprobe", "ur"],
        usage: "uretprobe:BINARY:[LANGUAGE:]FUNCTION",
        doc: "The return of a function in a program or shared library. `retval` is its result. rbt probes a Go function at each of its return instructions. `retval` is the first word of its results, if that is in a register.",
        example: "uretprobe:libc:malloc /retval == 0/ { @failed = count(); }",
    },
    ret: true,
};

const U64: Int = Int { bytes: 8, signed: false };

impl Uprobe {
    fn place(&self, file: &BinaryFile, binary: &Binary, found: UprobeLocation) -> Place {
        let UprobeLocation { function, function_offset, display } = found;
        let name = format!("{}:{}{display}", self.info.name(), file.named.display());
        let starts_go = !self.ret && function_offset == 0 && function.abi != Abi::SystemV;
        let attach = Attach::Uprobe {
            path: binary.path.clone(),
            offset: function.offset + function_offset,
            function_offset,
            stack_check: if starts_go { instructions::stack_check(&binary.path, function.offset, function.size) } else { 0 },
            function: function.name,
            ret: self.ret && function.abi == Abi::SystemV,
            abi: function.abi,
        };
        Place { name, attach }
    }
}

/// The calling convention of a site's function.
fn abi(site: &ProbeSite) -> Abi {
    if let Attach::Uprobe { abi, .. } = site.attach { abi } else { Abi::SystemV }
}

/// An argument by its number.
fn numbered<'c>(e: &mut Builder<'_, 'c>, n: u32, abi: Abi, arch: &Arch) -> IntValue<'c> {
    let (registers, on_stack): (&[u32], u32) = match abi {
        Abi::SystemV => (arch.args, arch.stack_args),
        Abi::Go => (arch.go_args, arch.go_stack_args),
        Abi::GoStack => (&[], arch.go_stack_args),
    };
    e.once(&format!("arg{n}"), |e| match registers.get(n as usize) {
        Some(offset) => e.load_ctx(*offset, U64),
        None => {
            let sp = e.load_ctx(arch.sp, U64);
            let addr = e.add(sp, e.int(u64::from(on_stack) + 8 * u64::from(n)));
            e.read_int(Space::User, addr, U64)
        }
    })
}

/// An argument by its name.
fn argument<'c>(e: &mut Builder<'_, 'c>, f: &ContextField) -> Operand<'c> {
    let ty = f.field.ty.clone();
    match &f.location {
        FieldLocation::Argument(place) => match (place.pieces.as_slice(), ty.as_int()) {
            ([Piece { from: Source::Memory { register, offset, indirect }, .. }], None) => {
                let at = address(e, *register, *offset, *indirect, 0);
                Operand::at(ty, at, Space::User)
            }
            ([one], Some(int)) => {
                let v = piece(e, one.from, 0, int);
                Operand::reg(ty, v)
            }
            (pieces, int) => {
                let to = e.alloc(ty.size().next_multiple_of(8));
                let mut at = 0;
                for Piece { size, from } in pieces {
                    put_piece(e, to, at, *size, *from);
                    at += size;
                }
                match int {
                    Some(int) => {
                        let v = e.load(to, 0, int);
                        Operand::reg(ty, v)
                    }
                    None => Operand::mem(ty, to),
                }
            }
        },
        FieldLocation::Record
        | FieldLocation::DataLoc
        | FieldLocation::RelLoc
        | FieldLocation::RawArg(_)
        | FieldLocation::Object
        | FieldLocation::Unreadable(_) => {
            crate::bug!("a function's argument is not at {:?}", f.location)
        }
    }
}

/// A register of the context, at full width.
fn register<'c>(e: &mut Builder<'_, 'c>, offset: u32) -> IntValue<'c> {
    e.once(&format!("register {offset}"), |e| e.load_ctx(offset, U64))
}

/// The address of a piece in memory, at offset `skip`.
fn address<'c>(e: &mut Builder<'_, 'c>, register_at: u32, offset: i64, then: Option<i64>, skip: u32) -> IntValue<'c> {
    let base = register(e, register_at);
    let into = |offset: i64| offset.wrapping_add(skip.into()) as u64;
    match then {
        None => e.add(base, e.int(into(offset))),
        Some(then) => {
            let addr = e.add(base, e.int(offset as u64));
            let pointer = e.read_int(Space::User, addr, U64);
            e.add(pointer, e.int(into(then)))
        }
    }
}

/// An integer at offset `skip` in a piece.
fn piece<'c>(e: &mut Builder<'_, 'c>, from: Source, skip: u32, int: Int) -> IntValue<'c> {
    match from {
        Source::Register { register: r, above } => {
            let value = register(e, r);
            let bits = 8 * u64::from(above + skip);
            let shifted = if bits == 0 { value } else { e.shr(value, e.int(bits), false) };
            e.fit(shifted, int)
        }
        Source::Memory { register: r, offset, indirect } => {
            let at = address(e, r, offset, indirect, skip);
            e.read_int(Space::User, at, int)
        }
        Source::Padding => e.int(0),
    }
}

/// Stores a piece in the value under construction, in naturally aligned parts.
fn put_piece<'c>(e: &mut Builder<'_, 'c>, to: PointerValue<'c>, offset: u32, size: u32, from: Source) {
    let mut done = 0;
    while done < size {
        let here = offset + done;
        let bytes = [8u8, 4, 2, 1].into_iter().find(|n| here.is_multiple_of(u32::from(*n)) && u32::from(*n) <= size - done).unwrap_or(1);
        let int = Int { bytes, signed: false };
        let v = piece(e, from, done, int);
        let place = e.offset(to, here);
        e.store_value(place, bytes.into(), &Operand::reg(Type::Int(int), v), &Type::Int(int));
        done += u32::from(bytes);
    }
}

/// Queries a fact about the function of a site.
fn of_function<T>(site: &ProbeSite, env: &Env, query: impl FnOnce(&Path, &Function) -> T) -> Option<T> {
    let Attach::Uprobe { path, offset, function_offset, function, .. } = &site.attach else { return None };
    let binary = env.sys.binary(path).ok()?;
    let entry = offset.checked_sub(*function_offset);
    let function = binary.functions_named(function).find(|f| Some(f.offset) == entry)?;
    Some(query(path, function))
}

impl Search for Uprobe {
    fn names(&self) -> &'static [&'static str] {
        self.info.names
    }

    fn find(&self, point: &AttachPoint, env: &Env) -> Result<Vec<Place>, Diagnostic> {
        let parts: Vec<&str> = point.segments.iter().skip(1).map(|s| s.text.as_str()).collect();
        let of_process = env.settings.pid.is_some();
        // a file name may contain `@`, too
        let by_line = point.segments.get(1).is_some_and(|s| !s.quoted && env.sys.resolve_binary(&s.text, env.settings.pid).is_err());
        let by_line = if by_line { UprobeTarget::line(&parts, of_process) } else { None };
        let Some(wanted) = by_line.or_else(|| UprobeTarget::new(&parts, of_process)) else {
            if let [_, language, _] = *parts.as_slice() {
                let error = Diagnostic::error("bad-probe", point.span, format!("`{language}` is not a supported language"));
                return Err(error
                    .help(format!("one of {}; or quote a name that has a colon", demangle::languages().collect::<Vec<_>>().join(", "))));
            }
            let error = Diagnostic::error("bad-probe", point.span, format!("{} takes a binary and a function", self.info.name()));
            return Err(error.help(format!("write {}", self.info.usage)));
        };
        if wanted.is_empty() {
            return Err(
                Diagnostic::error("bad-probe", point.span, "the function's name is empty").help(format!("write {}", self.info.usage))
            );
        }
        let paths = match (env.sys.resolve_binary(&wanted.binary, env.settings.pid), find::raw(&wanted, env)) {
            (Err(_), Some(path)) => vec![BinaryFile::new(path, &wanted.binary)],
            (found, _) => found.map_err(|m| missing(point.span, m))?,
        };
        let several = paths.len() > 1;
        let (mut places, mut first_error) = (Vec::new(), None);
        for file in &paths {
            let found = find::open(env, &file.path, &wanted, point).and_then(|b| {
                let found = self.in_binary(&b, &wanted.target, point, env)?;
                let mut places = Vec::new();
                let many = found.len() > 1;
                for f in found {
                    if !self.ret || f.function.abi == Abi::SystemV {
                        places.push(self.place(file, &b, f));
                        continue;
                    }
                    match find::returns(&b, f, point) {
                        Ok(returns) => places.extend(returns.into_iter().map(|f| self.place(file, &b, f))),
                        // some of many functions may never return
                        Err(_) if many => {}
                        Err(e) => return Err(e),
                    }
                }
                Ok(places)
            });
            match found {
                Ok(more) => places.extend(more),
                Err(e) if several => first_error = first_error.or(Some(e)),
                Err(e) => return Err(e),
            }
        }
        match first_error {
            Some(e) if places.is_empty() => Err(e),
            _ => Ok(places),
        }
    }
}

impl ProbeKind for Uprobe {
    fn info(&self) -> &Info {
        &self.info
    }

    fn is_listed(&self) -> bool {
        !self.ret
    }

    fn expand(&self, point: &AttachPoint, env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        Ok(ProbeSite::at(super::row(self.name()), self.find(point, env)?, point.span))
    }

    fn offers(&self) -> ContextFeatures {
        let both = ContextFeatures::REGS
            .union(ContextFeatures::FUNC)
            .union(ContextFeatures::CTX)
            .union(ContextFeatures::BINARY)
            .union(ContextFeatures::STACK)
            .union(ContextFeatures::SIGNAL);
        both.union(if self.ret { ContextFeatures::RETVAL } else { ContextFeatures::ARGN.union(ContextFeatures::ARGS) })
    }

    fn context(&self, site: &ProbeSite, env: &Env) -> Result<Context, Diagnostic> {
        let abi = abi(site);
        let args = match abi {
            _ if self.ret => 0,
            Abi::SystemV => env.sys.arch().args.len() as u32,
            Abi::Go | Abi::GoStack => env.sys.arch().go_args.len() as u32,
        };
        // at a return only bpf_get_func_ip knows the function: it supports uprobes since Linux 6.6, which also added
        // uprobe.multi
        let unknown = self.ret && abi == Abi::SystemV && !env.sys.has(Feature::UprobeMulti);
        let features = if unknown { self.offers().difference(ContextFeatures::FUNC) } else { self.offers() };
        // results are then on the stack, after an unknown number of arguments
        let features = if abi == Abi::GoStack { features.difference(ContextFeatures::RETVAL) } else { features };
        Ok(Context { features, args, space: Some(Space::User), ..Context::default() })
    }

    fn fields(&self, site: &ProbeSite, env: &Env) -> Result<Vec<Rc<ContextField>>, Diagnostic> {
        let mut offset = 0u32;
        let fields = declared(site, env)?.into_iter().map(|a| {
            let place = match a.location {
                Ok(place) => FieldLocation::Argument(place),
                Err(why) => {
                    let field = Field { name: a.name, offset, bits: None, ty: Type::Void };
                    return Rc::new(ContextField { field, location: FieldLocation::Unreadable(why) });
                }
            };
            offset = offset.next_multiple_of(a.ty.align());
            let field = Field { name: a.name, offset, bits: None, ty: a.ty };
            offset = offset.saturating_add(field.ty.size());
            Rc::new(ContextField { field, location: place })
        });
        Ok(fields.collect())
    }

    fn retval(&self, site: &ProbeSite, env: &Env) -> Result<Option<Int>, NoLocation> {
        let known = of_function(site, env, |path, function| env.sys.retval(path, function));
        // `retval` is unsigned in bpftrace, whose scripts expect the zeros by which compilers usually extend an int.
        Ok(known.transpose()?.flatten().map(|int| Int { signed: int.signed && int.bytes < 4, ..int }))
    }

    fn result_type(&self, site: &ProbeSite, env: &Env) -> Option<Type> {
        of_function(site, env, |path, function| env.sys.result_type(path, function)).flatten()
    }

    fn declarations(&self, site: &ProbeSite, env: &Env) -> Result<Vec<String>, Diagnostic> {
        Ok(declared(site, env)?.into_iter().map(|a| format!("{} {}", a.spelled, a.name)).collect())
    }

    fn program(&self, _site: &ProbeSite, env: &Env) -> ProgramType {
        super::on_a_binary(env)
    }

    fn load<'c>(&self, e: &mut Builder<'_, 'c>, site: &ProbeSite, env: &Env, which: &ArgRef, ty: &Type) -> Operand<'c> {
        let v = match which {
            ArgRef::Index(n) => numbered(e, *n, abi(site), env.sys.arch()),
            ArgRef::Retval => return Operand::reg(ty.clone(), super::result(e, env, ty)),
            ArgRef::Ctx => e.addr(e.ctx()),
            // at a return the instruction pointer is in the caller
            ArgRef::Func if matches!(site.attach, Attach::Uprobe { ret: true, .. }) => e.once("func", |e| {
                let ctx = e.ctx();
                e.call(Helper::GetFuncIp, &[ctx.into()])
            }),
            ArgRef::Func => {
                let offset =
                    if let Attach::Uprobe { function_offset, stack_check, .. } = site.attach { function_offset + stack_check } else { 0 };
                e.once("func", |e| {
                    let ip = e.load_ctx(env.sys.arch().ip, U64);
                    e.sub(ip, e.int(offset))
                })
            }
            ArgRef::Named(f) => return argument(e, f),
            ArgRef::All(fields) => return super::load_all(e, fields, ty, argument),
        };
        Operand::reg(ty.clone(), v)
    }

    fn list(&self, pattern: &[String], env: &Env, each: &mut dyn FnMut(&str)) -> Result<(), Missing> {
        let of_process = env.settings.pid.is_some();
        let parts: Vec<&str> = pattern.iter().map(String::as_str).collect();
        let parts = match parts.as_slice() {
            // all functions of all binaries would be too many
            [] | ["*"] if !of_process => return Ok(()),
            [] | ["*"] => vec!["*", "*"],
            [binary] if !of_process => vec![*binary, "*"],
            given => given.to_vec(),
        };
        let Some(wanted) = UprobeTarget::new(&parts, of_process) else { return Ok(()) };
        for file in env.sys.resolve_binary(&wanted.binary, env.settings.pid)? {
            let b = env.sys.binary(&file.path)?;
            for name in wanted.target.list(&b, env) {
                each(&format!("{}:{}:{name}", self.name(), file.named.display()));
            }
        }
        Ok(())
    }
}

/// The arguments declared in debug information; none at a return.
fn declared(site: &ProbeSite, env: &Env) -> Result<Vec<Argument>, Diagnostic> {
    let Attach::Uprobe { path, offset, ret: false, .. } = &site.attach else { return Ok(Vec::new()) };
    let binary = env.sys.binary(path).map_err(|m| missing(site.span, m))?;
    let found = binary.functions.iter().find(|f| f.offset == *offset);
    let unknown = || {
        let error = Diagnostic::error("unavailable", site.span, format!("the arguments of {} are not known", site.name));
        error.help("`args` works only at the entry of a function that the binary's debug information describes; use arg0, arg1, … instead")
    };
    let known = env.sys.arguments(path, found.ok_or_else(unknown)?).map_err(|m| missing(site.span, m))?;
    known.ok_or_else(unknown)
}
