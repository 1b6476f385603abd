//! Checks and compiles an entry of the prompt, which can use the definitions and maps of earlier entries.

use std::io::Write;

use super::c_headers::Headers;
use super::compiled;
use super::explain::{explain, refused_mechanisms, report_not_compiled};
use super::{Checked, Frontend, configure, from_environment};
use crate::cdecl;
use crate::cli::{Program, Run};
use crate::codegen::{self, Compiled};
use crate::diag::{self, Diagnostics, Source, Span};
use crate::emit::Dumps;
use crate::failure::Failure;
use crate::probes::Env;
use crate::sema::{self, EARLIER, hir};
use crate::settings::Invocation;
use crate::streams::to_stderr;
use crate::syntax::{self, ast};
use crate::system::TargetInfo;

/// The context of an entry.
pub(crate) struct EntryContext<'a> {
    /// Options of the command line.
    pub run: &'a Run,
    /// The machine.
    pub sys: &'a dyn TargetInfo,
    /// Earlier entries' definitions: structs, macros, functions, settings.
    pub definitions: &'a [Source],
    /// Earlier entries' maps.
    pub maps: &'a [hir::Map],
}

/// A text as typed, and the text around it that makes it a script.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    /// The text before it.
    pub before: &'static str,
    /// The typed text.
    pub typed: String,
    /// The text after it.
    pub after: &'static str,
    /// Its name in messages.
    pub name: String,
}

impl Text {
    /// The complete script.
    pub fn source(&self) -> Source {
        Source { name: self.name.clone(), text: format!("{}{}{}", self.before, self.typed, self.after) }
    }

    /// Converts places in the script to places in the typed text.
    fn as_typed(&self, mut diags: Diagnostics) -> Diagnostics {
        let (from, len) = (self.before.len() as u32, self.typed.len() as u32);
        let within = |offset: u32| offset.saturating_sub(from).min(len);
        let shift = |span: Span| if span.source == 0 { Span { start: within(span.start), end: within(span.end), ..span } } else { span };
        for d in &mut diags.0 {
            d.span = shift(d.span);
            let earlier = d.related.iter().position(|(span, _)| *span == EARLIER);
            if let Some((_, text)) = earlier.map(|offset| d.related.remove(offset)) {
                let help = d.help.take().map(|help| format!("; {help}")).unwrap_or_default();
                d.help = Some(format!("in an earlier entry: {text}{help}"));
            }
            d.related.iter_mut().for_each(|(span, _)| *span = shift(*span));
        }
        diags
    }
}

/// A checked entry.
pub(crate) struct Entry {
    /// The text as typed.
    pub text: Text,
    /// Its source, first, and those of the definitions.
    pub sources: Vec<Source>,
    /// Ready to be compiled.
    pub checked: Checked,
}

impl EntryContext<'_> {
    /// Parses a text on its own.
    pub fn parse(&self, text: &Text) -> Result<ast::Script, Diagnostics> {
        syntax::parse(&text.source()).map_err(|d| text.as_typed(d))
    }

    /// Checks a parsed text, including imports.
    pub fn check(&self, text: &Text, tree: ast::Script) -> Result<Entry, Diagnostics> {
        let mut sources = vec![text.source()];
        let mut whole = ast::Script { config: Vec::new(), ..ast::Script::default() };
        for source in self.definitions {
            let Ok(index) = u16::try_from(sources.len()) else { break };
            let earlier = syntax::parse_as(source, index)?;
            sources.push(source.clone());
            append_script(&mut whole, earlier);
        }
        let headers = Headers::of_this_machine(&self.run.settings.include_dirs);
        let tree = super::import::resolve(tree, &mut sources, None, headers).map_err(|d| text.as_typed(d))?;
        append_script(&mut whole, tree);
        let mut settings = self.run.settings.clone();
        let mut warnings = configure(&whole, &mut settings).map_err(|d| text.as_typed(d))?;
        let invocation = Invocation { shares_maps: true, ..self.run.invocation.clone() };
        // they outlive the entry
        settings.print_maps_on_exit = false;
        // its errors were reported when the prompt started
        let _ = from_environment(&mut settings);
        let found = sema::check_with_maps(&whole, &Env { sys: self.sys, settings: &settings, invocation: &invocation }, self.maps);
        let (script, more) = found.map_err(|d| text.as_typed(d))?;
        warnings.0.extend(more.0);
        Ok(Entry { text: text.clone(), sources, checked: Checked { script, settings, invocation, warnings: text.as_typed(warnings) } })
    }

    /// Queries types of the machine, including those that earlier entries defined.
    pub fn with_types<T>(&self, ask: impl FnOnce(&dyn TargetInfo) -> T) -> T {
        let mut script = ast::Script::default();
        self.definitions.iter().filter_map(|source| syntax::parse(source).ok()).for_each(|earlier| append_script(&mut script, earlier));
        if !cdecl::has_c_part(&script, &self.run.settings) {
            return ask(self.sys);
        }
        let (declared, _) = cdecl::read(&script, &self.run.env(self.sys));
        ask(&declared)
    }

    /// The messages about a text with errors or warnings.
    pub fn rendered(&self, text: &Text, diags: &Diagnostics) -> String {
        let mut sources = vec![Source { name: text.name.clone(), text: text.typed.clone() }];
        sources.extend(self.definitions.iter().cloned());
        diag::render(diags, &sources, self.run.color)
    }

    /// Compiles an entry, and reports the errors of LLVM.
    pub fn compile(&self, entry: &Entry, dumps: Dumps) -> Result<Compiled, Failure> {
        let checked = &entry.checked;
        let env = checked.env(self.sys);
        let script = codegen::lower(checked.script.clone(), &env);
        let front = self.front(entry);
        let compiled = compiled::compile(&script, &env, &entry.sources, dumps, true);
        let (compiled, _) = compiled.map_err(|e| report_not_compiled(&e, &front))?;
        compiled::warn_of_reduced(&compiled, &front);
        Ok(compiled)
    }

    /// Reports why an entry does not run, or returns the settings for another attempt.
    pub fn refused(&self, entry: &mut Entry, compiled: &Compiled, why: &anyhow::Error) -> Result<(), Failure> {
        let mechanisms = refused_mechanisms(why, &compiled.artifact, &entry.checked.script, &entry.checked.settings, self.sys);
        if mechanisms.is_empty() {
            return Err(explain(why, 1, compiled, &entry.checked.script, &self.front(entry)));
        }
        entry.checked.settings.no_features.extend(mechanisms);
        Ok(())
    }

    fn front(&self, entry: &Entry) -> Frontend<'_> {
        let mut front = Frontend::new(self.run);
        front.program = Program::Text(entry.text.typed.clone());
        front.sources.clone_from(&entry.sources);
        front
    }
}

/// Adds a script's parts to another's.
fn append_script(script: &mut ast::Script, more: ast::Script) {
    script.c_part.extend(more.c_part);
    script.config.extend(more.config);
    script.items.extend(more.items);
    script.objects.extend(more.objects);
    for builtin in more.library {
        if !script.library.contains(&builtin) {
            script.library.push(builtin);
        }
    }
}

/// To standard error.
pub(crate) fn warn(text: &str) {
    to_stderr(text);
    let _ = std::io::stderr().flush();
}
