//! The parts that a program may lack, all together.
//!
//! `rbt-run-small` is `rbt-run` without them. Scripts that trace the kernel and print no symbols need no part, and a program
//! of `rbt build --exe` then contains the small runner.

use crate::builtins;
use crate::codegen::artifact::Manifest;
use crate::failure::Failure;
use crate::probes::{Attach, search};
use crate::{launch, render, runtime};

/// Provides all parts.
pub fn provide_all() {
    runtime::provide_user_space();
    search::provide();
    launch::export::provide();
    render::provide();
}

/// The error about an option that this program lacks.
pub(crate) fn lacking(what: &str) -> Failure {
    Failure::new(format!("{what}: this program contains the small runner, which does not have it"))
        .help("build it with the other one: rbt build --exe --runner full; or run the bundle with rbt-run")
}

/// Does this program have all parts?
pub(crate) fn are_provided() -> bool {
    launch::export::is_provided()
}

/// Why a script needs the parts; none if it does not.
pub(crate) fn needed_by(manifest: &Manifest) -> Option<String> {
    for program in &manifest.programs {
        let points = program.expansions.iter().flat_map(|expansion| &expansion.points);
        let in_user_space = |kind: &str| search::finds_in_binaries(kind);
        let of_binary = |attach: &Attach| attach.binary().is_some() || matches!(attach, Attach::Kprobe { offset: 1.., .. });
        if points.filter_map(|point| point.kind()).any(in_user_space) || program.sites.iter().any(|site| of_binary(&site.attach)) {
            return Some(format!("the sites of {}", program.name()));
        }
    }
    let names = |what: fn(&_) -> bool| manifest.types().any(|ty| ty.contains_deferred(&what));
    if names(builtins::is_code) {
        return Some("names of functions".into());
    }
    names(builtins::names_container).then(|| "names of containers".into())
}
