//! `--serve`: the maps of a run as metrics, for Prometheus to scrape.
//!
//! - `http`: a server for a few clients that may be slow or hostile
//! - `exposition`: from [`metrics`](crate::metrics) to text
//!
//! A scrape asks the run for its state ([`Scrapes`]), so the server itself reads no map.

mod exposition;
mod http;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use crate::failure::{Failure, reason};
use crate::input;
use crate::metrics::Metrics;
use crate::runtime::Scrapes;

/// Bytes of a token.
const TOKEN: u64 = 4096;

/// The address that `--serve` means: a port alone is one of this machine's own address.
///
/// # Errors
/// It is neither.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| format!("`{text}` is not an address and a port, such as 127.0.0.1:9435 or [::1]:9435"))
}

/// Starts to serve the states of a run.
///
/// # Errors
/// The address cannot be used, or not without a token.
pub fn start(address: SocketAddr, token: Option<&Path>, mut metrics: Metrics, scrapes: Arc<Scrapes>) -> Result<SocketAddr, Failure> {
    let token = token.map(read_token).transpose()?;
    if token.is_none() && !address.ip().is_loopback() {
        return Err(Failure::new(format!("--serve {address}: other machines can reach this address"))
            .help("--serve-token FILE asks clients for a secret; or listen on 127.0.0.1"));
    }
    let failed = |e: std::io::Error| Failure::new(format!("--serve {address}: {}", reason(&e))).code("not-served");
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let metrics = move |open: bool| scrapes.ask().map(|state| exposition::text(&metrics.families(&state), open));
    let server = http::Server::new(listener, token, Box::new(metrics));
    std::thread::Builder::new().name("rbt-serve".into()).spawn(move || server.run()).map_err(failed)?;
    Ok(address)
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let cannot = |why: String| Failure::new(format!("--serve-token {}: {why}", path.display())).code("not-readable");
    let text = input::text(path, TOKEN).map_err(|e| cannot(reason(&e)))?;
    let token = text.trim().to_string();
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err(cannot("it does not contain one word".into()));
    }
    Ok(token)
}
