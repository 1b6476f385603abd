//! `usdt`: static markers in a program.
//!
//! A marker in an inlined function is in several places, each with its own arguments: each place is a site with the same name.
//! Places with equal arguments share a program.

mod args;

use super::search::{Place, Search};
use super::{ArgRef, Attach, Context, ContextFeatures, Env, Info, ProbeKind, ProbeSite, ProgramType, matches, missing};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Operand};
use crate::syntax::ast::AttachPoint;
use crate::system::{BinaryFile, Marker, Missing};
use crate::types::{Space, Type};

/// The kind.
#[derive(Debug)]
pub struct Usdt;

static INFO: Info = Info {
    names: &["usdt", "U"],
    usage: "usdt:BINARY:[PROVIDER:]NAME, or with -p usdt:NAME",
    doc: "A static marker in a program or library (SystemTap's sys/sdt.h). `argN` are its arguments, with the size and sign that the marker declares. `-lv` shows them. With -p, rbt searches all files that the process has mapped.",
    example: "usdt:/usr/bin/python3:gc__start { printf(\"generation %d\\n\", arg0); }",
};

/// The parts of an attach point.
struct MarkerPattern<'a> {
    binary: &'a str,
    provider: &'a str,
    name: &'a str,
}

impl MarkerPattern<'_> {
    fn has(&self, m: &Marker) -> bool {
        (self.provider.is_empty() || matches(self.provider, &m.provider)) && matches(self.name, &m.name)
    }
}

/// `binary:provider:name`, `binary:name`, and with a process `name` alone, or an empty binary.
fn marker_pattern<'a>(parts: &[&'a str], of_process: bool) -> Option<MarkerPattern<'a>> {
    let wanted = match *parts {
        [name] if of_process => MarkerPattern { binary: "*", provider: "", name },
        [binary, name] => MarkerPattern { binary, provider: "", name },
        [binary, provider, name] => MarkerPattern { binary, provider, name },
        _ => return None,
    };
    let binary = if wanted.binary.is_empty() && of_process { "*" } else { wanted.binary };
    (!wanted.name.is_empty() && !binary.is_empty()).then_some(MarkerPattern { binary, ..wanted })
}

impl Search for Usdt {
    fn names(&self) -> &'static [&'static str] {
        INFO.names
    }

    fn find(&self, point: &AttachPoint, env: &Env) -> Result<Vec<Place>, Diagnostic> {
        let parts: Vec<&str> = point.segments.iter().skip(1).map(|s| s.text.as_str()).collect();
        let Some(wanted) = marker_pattern(&parts, env.settings.pid.is_some()) else {
            let error = Diagnostic::error("bad-probe", point.span, "usdt takes a binary, optionally a provider, and the name of a marker");
            return Err(error.help(format!("write {}", INFO.usage)));
        };
        let several = wanted.binary.contains('*');
        let (mut places, mut known) = (Vec::new(), Vec::new());
        let paths = env.sys.resolve_binary(wanted.binary, env.settings.pid).map_err(|m| missing(point.span, m))?;
        for BinaryFile { path, named } in &paths {
            let markers = match env.sys.markers(path) {
                Ok(markers) => markers,
                Err(_) if several => continue,
                Err(m) => return Err(missing(point.span, m)),
            };
            let found = markers.iter().filter(|m| wanted.has(m)).map(|m| Place {
                name: format!("usdt:{}:{}:{}", named.display(), m.provider, m.name),
                attach: Attach::Usdt {
                    path: path.clone(),
                    offset: m.offset,
                    addr: m.addr,
                    semaphore: m.semaphore,
                    optimized: m.optimized,
                    args: m.args.clone(),
                },
            });
            places.extend(found);
            known.extend(markers.into_iter().map(|m| m.name));
        }
        if !places.is_empty() || wanted.name.contains('*') {
            return Ok(places);
        }
        let place = match paths.as_slice() {
            [one] => one.path.display().to_string(),
            _ => format!("what `{}` means", wanted.binary),
        };
        let error = Diagnostic::error("unknown-symbol", point.span, format!("{place} has no marker `{}`", wanted.name));
        Err(if known.is_empty() {
            error.help("it has no markers; it may have been built without them (--without-dtrace). You can use a uprobe instead")
        } else {
            error.suggest(wanted.name, known.iter().map(String::as_str))
        })
    }
}

impl ProbeKind for Usdt {
    fn info(&self) -> &Info {
        &INFO
    }

    fn expand(&self, point: &AttachPoint, env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        Ok(ProbeSite::at(super::row(self.name()), self.find(point, env)?, point.span))
    }

    fn offers(&self) -> ContextFeatures {
        ContextFeatures::REGS
            .union(ContextFeatures::ARGN)
            .union(ContextFeatures::CTX)
            .union(ContextFeatures::BINARY)
            .union(ContextFeatures::STACK)
            .union(ContextFeatures::SIGNAL)
    }

    fn context(&self, site: &ProbeSite, env: &Env) -> Result<Context, Diagnostic> {
        let Attach::Usdt { path, args, .. } = &site.attach else { crate::bug!("{} is a marker", site.name) };
        let arch = env.sys.arch_of_binary(path);
        let binary = if args::names_symbols(args, arch) { env.sys.binary(path).ok() } else { None };
        let arg_types = args::types(args, arch, binary.as_deref());
        Ok(Context { features: self.offers(), args: arg_types.len() as u32, arg_types, space: Some(Space::User), ..Context::default() })
    }

    fn program(&self, _site: &ProbeSite, env: &Env) -> ProgramType {
        super::on_a_binary(env)
    }

    fn load<'c>(&self, e: &mut Builder<'_, 'c>, site: &ProbeSite, env: &Env, which: &ArgRef, ty: &Type) -> Operand<'c> {
        match which {
            ArgRef::Index(n) => args::load(e, site, env, *n, ty),
            ArgRef::Ctx => Operand::reg(ty.clone(), e.addr(e.ctx())),
            ArgRef::Retval | ArgRef::Func | ArgRef::All(_) | ArgRef::Named(_) => crate::bug!("{} offers no {which:?}", site.name),
        }
    }

    fn list(&self, pattern: &[String], env: &Env, each: &mut dyn FnMut(&str)) -> Result<(), Missing> {
        let parts: Vec<&str> = pattern.iter().map(String::as_str).collect();
        let parts = match parts.as_slice() {
            [] if env.settings.pid.is_some() => vec!["*"],
            // all markers of all binaries would be too many
            [] | ["*"] if env.settings.pid.is_none() => return Ok(()),
            [binary] if env.settings.pid.is_none() => vec![*binary, "*"],
            given => given.to_vec(),
        };
        let Some(wanted) = marker_pattern(&parts, env.settings.pid.is_some()) else { return Ok(()) };
        for BinaryFile { path, named } in env.sys.resolve_binary(wanted.binary, env.settings.pid)? {
            let mut names: Vec<String> = match env.sys.markers(&path) {
                Ok(markers) => markers.iter().filter(|m| wanted.has(m)).map(|m| format!("{}:{}", m.provider, m.name)).collect(),
                Err(_) if wanted.binary.contains('*') => continue,
                Err(m) => return Err(m),
            };
            names.sort();
            names.dedup();
            names.iter().for_each(|name| each(&format!("usdt:{}:{name}", named.display())));
        }
        Ok(())
    }
}
