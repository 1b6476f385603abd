//! `import "x";`: reads imported files, and the files that they import, into one tree, with the BPF objects among them.
//!
//! A path is relative to the importing script. Each file is imported once, so scripts may import each other. Imported
//! definitions precede those of the importing script, so their `begin` probes run first. Anyone who can write to an
//! imported file controls a privileged run, so rbt rejects world-writable files.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::c_headers::Headers;
use super::clang;
use crate::diag::{Diagnostic, Diagnostics, Source, Span};
use crate::failure::reason;
use crate::input;
use crate::syntax::{self, ast};
use crate::system::bpf_object;

/// Maximum number of imported files.
const MAX_FILES: usize = 1000;
/// The maximum size of all imports together, in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum nesting of imports.
const MAX_IMPORT_DEPTH: usize = 100;
/// `S_IWOTH` of inode(7): writable by all users.
const WORLD_WRITABLE: u32 = 0o002;
/// Others may add files to such a directory, but not remove or rename them.
const STICKY: u32 = 0o1000;

/// The script with everything that it imports, directly or indirectly. `sources` receives the files that were read. `path` is
/// that of the script, if it is a file; otherwise imports are relative to the current directory. `headers` are those of C sources.
///
/// # Errors
/// Files that cannot be read or parsed, at their places. Code: `bad-import`, and those of [`syntax::parse`].
pub fn resolve(
    root: ast::Script,
    sources: &mut Vec<Source>,
    path: Option<&Path>,
    headers: Headers<'_>,
) -> Result<ast::Script, Diagnostics> {
    if root.imports.is_empty() {
        return Ok(root);
    }
    let mut work = Importer {
        sources,
        headers,
        imported: BTreeSet::new(),
        diags: Vec::new(),
        tree: ast::Script::default(),
        depth: 0,
        remaining_bytes: MAX_BYTES,
    };
    if let Some(path) = path {
        work.imported.extend(path.canonicalize());
    }
    work.tree.config.clone_from(&root.config);
    let dir = path.and_then(Path::parent).unwrap_or(Path::new("")).to_path_buf();
    work.append_script(root, &dir);
    if work.diags.is_empty() { Ok(work.tree) } else { Err(Diagnostics(work.diags)) }
}

struct Importer<'a> {
    sources: &'a mut Vec<Source>,
    headers: Headers<'a>,
    /// Canonical paths of the imported files.
    imported: BTreeSet<PathBuf>,
    diags: Vec<Diagnostic>,
    tree: ast::Script,
    depth: usize,
    /// The unused part of [`MAX_BYTES`].
    remaining_bytes: u64,
}

impl Importer<'_> {
    /// Adds a script, after its imports; relative paths start at `dir`.
    fn append_script(&mut self, script: ast::Script, dir: &Path) {
        for (name, span) in script.imports.iter().filter(|(name, _)| !built_in(name)) {
            if let Err(d) = self.import(&dir.join(name), *span) {
                self.diags.push(d);
            }
        }
        let imported = self.depth > 0;
        self.tree.c_part.extend(script.c_part.into_iter().map(|item| if imported { beside(item, dir) } else { item }));
        self.tree.items.extend(script.items);
        for builtin in script.library {
            if !self.tree.library.contains(&builtin) {
                self.tree.library.push(builtin);
            }
        }
    }

    fn import(&mut self, path: &Path, span: Span) -> Result<(), Diagnostic> {
        let fault = |why: String| Diagnostic::error("bad-import", span, format!("cannot import {}: {why}", path.display()));
        let real = path.canonicalize().map_err(|e| {
            let missing = e.kind() == ErrorKind::NotFound;
            let d = fault(if missing { "there is no such file".into() } else { reason(&e) });
            if missing { d.help("paths are relative to the directory of the importing script") } else { d }
        })?;
        if self.imported.contains(&real) {
            return Ok(());
        }
        if real.is_dir() {
            self.imported.insert(real);
            require_safe_permissions(path).map_err(|(why, help)| fault(why).help(help))?;
            let entries = std::fs::read_dir(path).map_err(|e| fault(reason(&e)))?;
            let mut files: Vec<PathBuf> =
                entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| kind(p).is_some() && p.is_file()).collect();
            files.sort();
            return files.iter().try_for_each(|file| self.import(file, span));
        }
        let kind = kind(path).ok_or_else(|| {
            fault("its type is unknown".into())
                .help("names of rbt scripts end in .bt, of C headers in .h, of BPF objects in .bpf.o, and of their sources in .bpf.c; a directory imports all of its files")
        })?;
        for place in [Some(path), real.parent()].into_iter().flatten() {
            require_safe_permissions(place).map_err(|(why, help)| fault(why).help(help))?;
        }
        let header = format!("#include \"{}\"", real.display());
        self.imported.insert(real);
        match kind {
            Kind::Script => self.script(path, span),
            Kind::Header => {
                // passed on to the reader of `#include`, which has the same rules
                self.tree.c_part.push(ast::CItem { text: header, span, define: None });
                Ok(())
            }
            Kind::Object => {
                let bytes = self.read(path, span)?;
                self.object(path, bytes, None, span)
            }
            Kind::CSource => {
                let text = self.read_text(path, span)?;
                let bytes = clang::compile(path, &text, self.headers).map_err(|d| Diagnostic { span, ..d })?;
                self.object(path, bytes, Some(text), span)
            }
        }
    }

    /// The contents of a file.
    fn read(&mut self, path: &Path, span: Span) -> Result<Vec<u8>, Diagnostic> {
        let fault = |why: String| Diagnostic::error("bad-import", span, format!("cannot import {}: {why}", path.display()));
        let bytes = input::read_regular(path, input::TEXT.min(self.remaining_bytes)).map_err(|e| {
            let all = e.kind() == ErrorKind::FileTooLarge && self.remaining_bytes < input::TEXT;
            fault(if all { format!("that would be more than {} megabytes in all", MAX_BYTES >> 20) } else { reason(&e) })
        })?;
        self.remaining_bytes -= bytes.len() as u64;
        Ok(bytes)
    }

    fn read_text(&mut self, path: &Path, span: Span) -> Result<String, Diagnostic> {
        let not_text = |_| Diagnostic::error("bad-import", span, format!("cannot import {}: it is not UTF-8 text", path.display()));
        String::from_utf8(self.read(path, span)?).map_err(not_text)
    }

    /// Adds an object, which may have been compiled from `text`.
    fn object(&mut self, path: &Path, bytes: Vec<u8>, text: Option<String>, span: Span) -> Result<(), Diagnostic> {
        let fault = |why: String| Diagnostic::error("bad-import", span, format!("cannot import {}: {why}", path.display()));
        if self.sources.len() >= MAX_FILES {
            return Err(fault(format!("that would be more than {MAX_FILES} files")));
        }
        let object = bpf_object::read(path.display().to_string(), bytes).map_err(fault)?;
        // what identifies the script, such as its digest, includes the object
        let text = text.unwrap_or_else(|| format!("{:032x}\n", object.digest));
        self.sources.push(Source { name: object.name.clone(), text });
        self.tree.objects.push((Arc::new(object), span));
        Ok(())
    }

    fn script(&mut self, path: &Path, span: Span) -> Result<(), Diagnostic> {
        let fault = |why: String| Diagnostic::error("bad-import", span, format!("cannot import {}: {why}", path.display()));
        let Some(index) = u16::try_from(self.sources.len()).ok().filter(|i| usize::from(*i) < MAX_FILES) else {
            return Err(fault(format!("that would be more than {MAX_FILES} files")));
        };
        if self.depth >= MAX_IMPORT_DEPTH {
            return Err(fault(format!("imports are nested more than {MAX_IMPORT_DEPTH} deep")));
        }
        let text = self.read_text(path, span)?;
        let source = Source { name: path.display().to_string(), text };
        let tree = syntax::parse_as(&source, index);
        self.sources.push(source);
        let tree = match tree {
            Ok(tree) => tree,
            Err(found) => {
                self.diags.extend(found.0);
                return Ok(());
            }
        };
        if let Some(item) = tree.config.first() {
            let d = Diagnostic::error("bad-import", item.name.span, "an imported script cannot have a `config` block");
            self.diags.push(d.related(span, "imported here").help("move the block to the main script"));
        }
        self.depth += 1;
        self.append_script(tree, path.parent().unwrap_or(Path::new("")));
        self.depth -= 1;
        Ok(())
    }
}

/// Is it bpftrace's standard library, or a part of it, by its name there? Its contents are part of rbt. A file of that name in the
/// directory of the script, which another user may have put there, is `./stdlib`.
fn built_in(name: &str) -> bool {
    const LIBRARY: &str = "stdlib";
    const PARTS: &[&str] = &["base", "internal", "kfunc", "map", "meta", "process", "stack", "strings", "system", "task", "usdt"];
    let Ok(part) = Path::new(name).strip_prefix(LIBRARY) else { return false };
    let first = part.iter().next().and_then(|part| Path::new(part).file_stem()?.to_str());
    first.is_none_or(|first| PARTS.contains(&first))
}

/// A line of an imported script's C part. `#include "x.h"` is relative to that script's directory first, but the reader of
/// headers knows only the main script's, so the name becomes the path of the file.
fn beside(item: ast::CItem, dir: &Path) -> ast::CItem {
    let rest = item.text.trim_start().strip_prefix('#').and_then(|t| t.trim_start().strip_prefix("include"));
    let Some((name, _)) = rest.and_then(|t| t.trim_start().strip_prefix('"')?.split_once('"')) else { return item };
    match dir.join(name).canonicalize() {
        Ok(real) => ast::CItem { text: format!("#include \"{}\"", real.display()), ..item },
        Err(_) => item,
    }
}

/// The kinds of files to import.
#[derive(Clone, Copy)]
enum Kind {
    Script,
    Header,
    CSource,
    Object,
}

/// The kind, by the end of the file's name.
fn kind(path: &Path) -> Option<Kind> {
    const EXTENSIONS: [(&str, Kind); 4] =
        [(".bt", Kind::Script), (".h", Kind::Header), (".bpf.c", Kind::CSource), (".bpf.o", Kind::Object)];
    let name = path.file_name()?.to_str()?;
    EXTENSIONS.iter().find(|(end, _)| name.ends_with(end) && name.len() > end.len()).map(|(_, kind)| *kind)
}

/// Rejects a world-writable file: why, and the remedy.
fn require_safe_permissions(path: &Path) -> Result<(), (String, String)> {
    let meta =
        std::fs::metadata(if path.as_os_str().is_empty() { Path::new(".") } else { path }).map_err(|e| (reason(&e), String::new()))?;
    if meta.mode() & WORLD_WRITABLE == 0 {
        return Ok(());
    }
    let (what, remedy) = match (meta.is_dir(), meta.mode() & STICKY != 0) {
        (false, _) => ("file", "chmod o-w"),
        (true, false) => ("directory", "move it to a directory of your own, or chmod o-w"),
        // such as /tmp: it must stay writable
        (true, true) => {
            return Err((format!("anyone can write to the directory {}", path.display()), "move it to a directory of your own".into()));
        }
    };
    Err((format!("anyone can write to the {what} {}", path.display()), format!("{remedy} {}", path.display())))
}
