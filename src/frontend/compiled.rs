//! Compiles a checked script, unless the cache contains the compiled script.
//!
//! A compiled script depends on the checked script with its settings, on rbt itself, and on the answers that code
//! generation gets from the target. The first two identify a file in the cache. The file contains the queries, with digests of
//! the answers. Code generation makes the same queries as long as it gets the same answers, so equal answers mean the same
//! code. If a script is not in the cache, the code of rbt's own functions is: see `emit/known_code.rs`.

use serde::{Deserialize, Serialize};

use super::Frontend;
use crate::codegen::artifact::Artifact;
use crate::codegen::{self, Compiled, Limit, Unwinding};
use crate::diag::Source;
use crate::emit::{Dumps, EmitError, KnownCode};
use crate::probes::Env;
use crate::sema::hir;
use crate::system::TargetInfo;
use crate::system::cache::{CacheFile, Kind, rbt_itself};
use crate::system::portability::questions::{Record, Recorder, digest};

const KIND: Kind = Kind { form: "rbt-compiled-2", prefix: "compiled-", max_bytes: 8 << 20, max_files: 512, max_total: 128 << 20 };
/// Code of rbt's own functions: one file for each build of rbt.
const FUNCTIONS: Kind = Kind { form: "rbt-functions-1", prefix: "functions-", max_bytes: 8 << 20, max_files: 4, max_total: 32 << 20 };

/// The contents of a file.
#[derive(Serialize, Deserialize)]
struct CacheEntry<T> {
    /// The queries of code generation.
    record: Record,
    compilations: u32,
    stack: u32,
    frames: u32,
    reduced: Option<(Unwinding, Limit)>,
    artifact: T,
}

/// [`codegen::compile`], or its cached result, if `keep` allows that. Returns true as the second value if the result
/// was cached.
pub(crate) fn compile(
    script: &hir::Script,
    env: &Env,
    sources: &[Source],
    dumps: Dumps,
    keep: bool,
) -> Result<(Compiled, bool), EmitError> {
    // a compilation with dumps is not cached
    let plain = keep && dumps == Dumps::default();
    let file = plain.then(|| file(script, env, sources)).flatten();
    let Some(file) = file else { return Ok((codegen::compile(script, env, sources, dumps)?, false)) };
    if let Some(compiled) = load_cached(&file, env.sys) {
        return Ok((compiled, true));
    }
    let recorder = Recorder::new(env.sys);
    let compiled = compile_with_known_code(script, &Env { sys: &recorder, ..*env }, sources)?;
    if let Some(record) = recorder.recorded() {
        let Compiled { compilations, stack, frames, reduced, .. } = compiled;
        let kept = CacheEntry { record, compilations, stack, frames, reduced, artifact: &compiled.artifact };
        if let Ok(bytes) = postcard::to_allocvec(&kept) {
            file.save(&bytes);
        }
    }
    Ok((compiled, false))
}

/// Compiles a script with the cached code of rbt's own functions, and adds new code of such functions to the cache.
fn compile_with_known_code(script: &hir::Script, env: &Env, sources: &[Source]) -> Result<Compiled, EmitError> {
    let file = rbt_itself().and_then(|rbt| CacheFile::new(FUNCTIONS, format!("{:032x}", digest(&rbt))));
    let Some(file) = file else { return codegen::compile(script, env, sources, Dumps::default()) };
    let mut known: KnownCode = file.load().and_then(|(bytes, start)| postcard::from_bytes(bytes.get(start..)?).ok()).unwrap_or_default();
    let compiled = codegen::compile_with(script, env, sources, Dumps::default(), Some(&mut known))?;
    if known.has_grown()
        && let Ok(bytes) = postcard::to_allocvec(&known)
    {
        file.save(&bytes);
    }
    Ok(compiled)
}

/// Warns about user stacks that follow frame pointers. Stacks without their Python frames are counted instead.
pub(crate) fn warn_of_reduced(compiled: &Compiled, front: &Frontend) {
    let Some((how, limit)) = compiled.reduced else { return };
    match how {
        Unwinding::Whole | Unwinding::Tables => return,
        Unwinding::FramePointers => {}
    }
    let why = match limit {
        Limit::Maps => "uses too many maps",
        Limit::Stack => "uses too much of its BPF stack",
        Limit::Frames => "nests loops and functions too deeply",
    };
    front.warn(&format!("user stacks follow frame pointers, because a probe {why} for that"));
}

fn load_cached(file: &CacheFile, sys: &dyn TargetInfo) -> Option<Compiled> {
    let (bytes, start) = file.load()?;
    let kept: CacheEntry<Artifact> = postcard::from_bytes(bytes.get(start..)?).ok()?;
    kept.record.holds_for(sys).then_some(Compiled {
        artifact: kept.artifact,
        ir: None,
        optimized: None,
        assembly: None,
        compilations: kept.compilations,
        stack: kept.stack,
        frames: kept.frames,
        reduced: kept.reduced,
    })
}

/// The cache file of a compiled script; none if nothing is cached.
fn file(script: &hir::Script, env: &Env, sources: &[Source]) -> Option<CacheFile> {
    let texts: Vec<(&str, &str)> = sources.iter().map(|s| (s.name.as_str(), s.text.as_str())).collect();
    // code differs between PID namespaces, and runs in several should not replace each other's files
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok();
    let key = format!("{:032x}", digest(&(rbt_itself()?, script, env.settings, env.invocation, &texts, namespace)));
    CacheFile::new(KIND, key)
}
