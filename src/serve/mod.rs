//! `--serve` and `rbt serve`: the maps of runs as metrics, for Prometheus to scrape.
//!
//! - `http`: a server for a few clients that may be slow or hostile
//! - `exposition`: from [`metrics`](crate::metrics) to text
//! - `registry`: several scripts in one process
//!
//! A scrape requests the state of each run ([`Scrapes`]), so the server itself reads no map.

mod exposition;
mod http;
pub mod registry;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use crate::failure::{Failure, reason};
use crate::input;
use crate::metrics::{Family, Metrics};
use crate::runtime::{Reader, Scrapes};
use crate::streams::to_stderr;
use crate::tls::{Acceptor, Identity, Stream};
pub use http::Pages;

/// Maximum size of a token in bytes.
const TOKEN: u64 = 4096;

/// The names of the options, for messages.
#[derive(Debug)]
pub struct FlagNames {
    /// That of the address.
    pub address: &'static str,
    /// That of the token's file.
    pub token: &'static str,
    /// That of the certificate's file.
    pub certificate: &'static str,
}

/// The options of a run.
pub const FLAGS: FlagNames = FlagNames { address: "--serve", token: "--serve-token", certificate: "--serve-tls-cert" };

/// The address, and the access control.
#[derive(Debug)]
pub struct Listen<'a> {
    /// Port 0 stands for any free port.
    pub address: SocketAddr,
    /// A file with the token that clients must send.
    pub token: Option<&'a Path>,
    /// The certificate and the key for TLS. None: without TLS.
    pub identity: Option<&'a Identity>,
    /// The names of these options.
    pub names: &'static FlagNames,
    /// Do not print the address, unless the system chooses the port.
    pub quiet: bool,
}

/// The access control of the server.
#[derive(Clone, Debug)]
pub struct Access(Arc<RwLock<Keys>>);

#[derive(Debug)]
struct Keys {
    /// The token that clients must send, if any.
    token: Option<String>,
    /// None: without TLS.
    acceptor: Option<Acceptor>,
}

impl Keys {
    fn read(listen: &Listen) -> Result<Self, Failure> {
        Ok(Self {
            token: listen.token.map(|path| read_token(path, listen.names)).transpose()?,
            acceptor: listen.identity.map(Acceptor::new).transpose()?,
        })
    }
}

impl Access {
    /// Reads the files of the token, the certificate and the key again. If that fails, all stay the same.
    ///
    /// # Errors
    /// A file cannot be read, or has the wrong contents.
    pub fn reload(&self, listen: &Listen) -> Result<(), Failure> {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Keys::read(listen)?;
        Ok(())
    }

    /// The connection to a client, with TLS if the server has a certificate.
    fn stream(&self, socket: TcpStream) -> std::io::Result<Stream> {
        match &self.0.read().unwrap_or_else(PoisonError::into_inner).acceptor {
            Some(acceptor) => acceptor.accept(socket),
            None => Ok(Stream::Plain(socket)),
        }
    }

    /// May a client that sends this header be served?
    fn accepts(&self, authorization: Option<&[u8]>) -> bool {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.token
            .as_ref()
            .is_none_or(|token| authorization.and_then(bearer).is_some_and(|given| constant_time_eq(given, token.as_bytes())))
    }
}

/// The token in an `Authorization` header. The name of the scheme may be in any case.
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(header.iter().position(|byte| *byte == b' ')?)?;
    scheme.eq_ignore_ascii_case(b"bearer").then_some(token.trim_ascii())
}

/// Compares in constant time, whatever the position of the first difference.
fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// A run that is served.
pub struct Run {
    metrics: Metrics,
    reader: Reader,
    own: OwnFamilies,
}

/// Yields metrics of rbt itself that are not in the state of a run.
pub type OwnFamilies = Box<dyn Fn() -> Vec<Family> + Send>;

impl Run {
    /// Serves the metrics of this run.
    pub fn new(metrics: Metrics, scrapes: &Arc<Scrapes>, own: OwnFamilies) -> Self {
        Self { metrics, reader: scrapes.reader(true), own }
    }

    /// The families of its current state. Whoever asks for them is taken to have received them; rbt cannot distinguish clients.
    fn families(&mut self) -> Option<Vec<Family>> {
        let state = self.reader.request_state()?;
        self.reader.confirm();
        let mut families = self.metrics.families(&state);
        families.extend((self.own)());
        Some(families)
    }
}

impl Pages for Run {
    fn metrics(&mut self, open: bool) -> Option<String> {
        self.families().map(|families| exposition::text(&families, open))
    }

    fn health(&mut self) -> (bool, String) {
        (true, "rbt is running\n".into())
    }
}

/// The address of `--serve`: a port alone means this machine's loopback address.
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

/// Starts to serve, and prints the address.
///
/// # Errors
/// The address is unusable, or requires a token.
pub fn start(listen: &Listen, pages: impl Pages + 'static) -> Result<Access, Failure> {
    let Listen { address, names, .. } = *listen;
    let keys = Keys::read(listen)?;
    if keys.token.is_none() && !address.ip().is_loopback() {
        return Err(Failure::new(format!("{} {address}: other machines can reach this address", names.address))
            .help(format!("require a token from clients with {} FILE, or listen on 127.0.0.1", names.token)));
    }
    let scheme = if keys.acceptor.is_some() { "https" } else { "http" };
    let failed = |e: std::io::Error| Failure::new(format!("{} {address}: {}", names.address, reason(&e))).code("not-served");
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let access = Access(Arc::new(RwLock::new(keys)));
    let server = http::Server::new(listener, access.clone(), Box::new(pages));
    std::thread::Builder::new().name("rbt-serve".into()).spawn(move || server.run()).map_err(failed)?;
    if scheme == "http" && !address.ip().is_loopback() && !listen.quiet {
        let warning = "clients send the token without encryption";
        to_stderr(&format!("warning: {} {address}: {warning}; use {} FILE\n", names.address, names.certificate));
    }
    // nobody else knows a port that the system chose
    if !listen.quiet || address.port() == 0 {
        to_stderr(&format!("Serving {scheme}://{bound}/metrics\n"));
    }
    Ok(access)
}

fn read_token(path: &Path, names: &FlagNames) -> Result<String, Failure> {
    let cannot = |why: String| Failure::new(format!("{} {}: {why}", names.token, path.display())).code("not-readable");
    let text = input::text(path, TOKEN).map_err(|e| cannot(reason(&e)))?;
    let token = text.trim().to_string();
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err(cannot("it does not contain one word".into()));
    }
    Ok(token)
}
