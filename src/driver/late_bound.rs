//! Chooses the arguments that a bundle takes when it runs.
//!
//! An argument is fixed only if the script does not compile without its value: if the value chooses types, sizes, or attach
//! points other than the number of a timer. Compiling is the test, so that no rule about the language is written twice.

use super::build::compile_silently;
use crate::builtins::options::ScriptOption;
use crate::failure::Failure;
use crate::frontend::explain::refused_mechanisms;
use crate::frontend::{self, Frontend};
use crate::runtime;
use crate::sema;
use crate::settings::{Argument, LateBound, MAX_ARGUMENT_TEXT};
use crate::syntax::ast;
use crate::system::TargetInfo;

/// Bytes of a number.
const NUMBER: u32 = 8;
/// Positional parameters beyond this are fixed.
const MAX_PARAMS: u32 = 16;

/// Arguments that are late-bound, or fixed, together, with their sizes.
type Group = Vec<(Argument, u32)>;

/// Chooses the arguments, for a script that runs on `sys`.
pub(super) fn choose(front: &mut Frontend, tree: &ast::Script, sys: &dyn TargetInfo) -> Result<(), Failure> {
    let mut groups = groups(front, tree)?;
    // the script may have no room for names of another length
    let names = checks(front, tree, sys, late_bound(true, &[])) || !checks(front, tree, sys, late_bound(false, &[]));
    groups.retain(|group| checks(front, tree, sys, late_bound(names, std::slice::from_ref(group))));
    if !checks(front, tree, sys, late_bound(names, &groups)) {
        groups.clear();
    }
    // a text may be too much for the verifier
    let numbers: Vec<Group> = groups.iter().filter(|group| group.iter().all(|(_, size)| *size == NUMBER)).cloned().collect();
    let all = late_bound(names, &groups);
    for choice in [all.clone(), late_bound(names, &numbers), late_bound(names, &[]), LateBound::default()] {
        front.late_bound = choice;
        if loads(front, tree, sys) {
            return Ok(());
        }
    }
    // this kernel refuses the script in each form, such as a probe that needs trampolines, so it cannot tell which is too much
    front.late_bound = all;
    Ok(())
}

fn late_bound(names: bool, groups: &[Group]) -> LateBound {
    let all = LateBound::new(true, groups.iter().flatten().cloned());
    if names { all } else { all.with_known_names() }
}

/// Does the script load with mechanisms that the kernel accepts?
fn loads(front: &Frontend, tree: &ast::Script, sys: &dyn TargetInfo) -> bool {
    let mut without = Vec::new();
    loop {
        let Ok((checked, artifact)) = compile_silently(front, tree, &without)(sys) else { return false };
        let Err(e) = runtime::try_load(&artifact, &checked.env(sys)) else { return true };
        let refused = refused_mechanisms(&e, &artifact, &checked.script, &checked.settings, sys);
        if refused.iter().all(|mechanism| without.contains(mechanism)) {
            return false;
        }
        without.extend(refused);
    }
}

/// Those that were not given.
fn groups(front: &Frontend, tree: &ast::Script) -> Result<Vec<Group>, Failure> {
    let (_, invocation, _) = front.settings(tree)?;
    let is_given = |option: &ScriptOption| invocation.options.iter().any(|(name, _)| *name == option.name);
    let size = |option: &ScriptOption| if option.is_text() { MAX_ARGUMENT_TEXT } else { NUMBER };
    let options = sema::options(tree);
    let mut groups: Vec<Group> =
        options.iter().filter(|o| !is_given(o)).map(|o| vec![(Argument::Option(o.name.clone()), size(o))]).collect();
    let params = front.sources.iter().map(|source| last_param(&source.text)).max().unwrap_or_default();
    if invocation.params.is_empty() && params > 0 {
        let each = |n| [(Argument::Number(n), NUMBER), (Argument::Text(n), MAX_ARGUMENT_TEXT)];
        groups.push((1..=params).flat_map(each).chain([(Argument::Count, NUMBER)]).collect());
    }
    Ok(groups)
}

/// The greatest n of `$n` in a text.
fn last_param(text: &str) -> u32 {
    let number = |after: &str| {
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        after.get(..digits)?.parse::<u32>().ok()
    };
    text.split('$').skip(1).filter_map(number).filter(|n| *n <= MAX_PARAMS).max().unwrap_or_default()
}

/// Is the script correct if these are late-bound?
fn checks(front: &mut Frontend, tree: &ast::Script, sys: &dyn TargetInfo, late_bound: LateBound) -> bool {
    front.late_bound = late_bound;
    let given = front.settings(tree);
    given.is_ok_and(|(settings, invocation, warnings)| frontend::check(tree, sys, settings, invocation, warnings).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_last_parameter() {
        assert_eq!(last_param("begin { print($1); print(str($12)); $x = 5; }"), 12);
        assert_eq!(last_param("begin { $x = $99; }"), 0);
    }
}
