//! A client of HTTP/1.1, without or with TLS, for OpenTelemetry collectors and the Kubernetes API.
//!
//! `client` makes the requests; `resolve` finds the addresses of hosts.

mod client;
mod resolve;

pub use client::{Answer, Client, Endpoint, Request};
