//! Compiles a checked script: [`hir`](crate::check::hir) to [`artifact::Artifact`].

pub mod artifact;
