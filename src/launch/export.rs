//! Serving and exporting a run: a part, because it contains HTTP and TLS.

use std::sync::Arc;

use super::Described;
use crate::cli::Run;
use crate::failure::Failure;
use crate::metrics::Metrics;
use crate::otlp::{self, HandedOver};
use crate::part::Part;
use crate::runtime::{Listener, Scrapes};
use crate::serve;
use crate::settings::Settings;
use crate::system::machine::{container, kubernetes};

use super::require::require_cgroup;

/// The connection to a collector.
pub(crate) trait Export {
    /// See [`otlp::Export::listener`].
    fn listener(&self) -> Option<Listener>;
    /// See [`otlp::Export::finish`].
    fn finish(self: Box<Self>);
}

type RunFn<T> = fn(&Described, &Run, &Settings, &Arc<Scrapes>, &HandedOver) -> Result<T, Failure>;

/// The functions of this module.
#[derive(Clone, Copy)]
pub(super) struct Exporters {
    /// Exports the counts and the output of a run, if requested.
    pub export: RunFn<Option<Box<dyn Export>>>,
    /// Serves the counts of a run, if requested.
    pub serve: RunFn<()>,
    /// Begins to ask for the names of Kubernetes.
    pub name_containers: fn(warn: bool),
}

const EXPORTERS: Exporters = Exporters { export, serve, name_containers: kubernetes::start };

pub(super) static PROVIDED: Part<Exporters> = Part::new(EXPORTERS);

/// Provides the exporters.
pub(crate) fn provide() {
    kubernetes::provide();
    PROVIDED.provide(EXPORTERS);
}

/// Does this program have the exporters?
pub(crate) fn is_provided() -> bool {
    PROVIDED.get().is_some()
}

impl Export for otlp::Export {
    fn listener(&self) -> Option<Listener> {
        otlp::Export::listener(self)
    }

    fn finish(self: Box<Self>) {
        otlp::Export::finish(*self);
    }
}

/// The metrics of a script.
pub(crate) fn metrics(script: &Described, settings: &Settings) -> Metrics {
    Metrics::new(script.metrics.clone(), settings.max_series)
}

fn export(
    script: &Described,
    run: &Run,
    settings: &Settings,
    scrapes: &Arc<Scrapes>,
    handed_over: &HandedOver,
) -> Result<Option<Box<dyn Export>>, Failure> {
    let Some(config) = run.otlp.clone() else { return Ok(None) };
    let traced = require_cgroup(run)?.and_then(|cgroup| container::container_of_cgroup(cgroup.id));
    let export = otlp::Export::start(config, metrics(script, settings), scrapes, handed_over, traced.as_ref(), run.warnings)?;
    Ok(Some(Box::new(export)))
}

fn serve(script: &Described, run: &Run, settings: &Settings, scrapes: &Arc<Scrapes>, handed_over: &HandedOver) -> Result<(), Failure> {
    let Some(address) = run.serve else { return Ok(()) };
    let run_of = serve::Run::new(metrics(script, settings), scrapes, served_counts(handed_over));
    let (token, identity) = (run.serve_token.as_deref(), run.serve_identity.as_ref());
    serve::start(&serve::Listen { address, token, identity, names: &serve::FLAGS, quiet: run.quiet }, run_of)?;
    Ok(())
}

/// The counts of the exported records, which are served as well.
pub(crate) fn served_counts(handed_over: &HandedOver) -> serve::OwnFamilies {
    let records = handed_over.records.clone();
    Box::new(move || records.families())
}
