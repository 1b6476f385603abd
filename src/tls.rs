//! TLS, for the server of metrics and for the client of a collector. This module wraps rustls, whose cryptography is that of ring.
//!
//! Certificates and keys are PEM files (RFC 7468). The program does not use the C library or a library of the machine.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::failure::{Failure, reason};
use crate::input;

/// Maximum size in bytes of a file of certificates. That of all public authorities has 220 kB.
const FILE: u64 = 4 << 20;

/// The protocol that a connection uses inside TLS (RFC 7301).
const HTTP: &[u8] = b"http/1.1";

/// A certificate with those that signed it, and its private key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The file of the certificates.
    pub certificate: PathBuf,
    /// The file of the key. None: that of the certificates contains the key as well.
    pub key: Option<PathBuf>,
}

impl Identity {
    fn key(&self) -> &Path {
        self.key.as_deref().unwrap_or(&self.certificate)
    }
}

/// Who a client trusts, and who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// The file of the trusted authorities. None: those of the machine.
    pub authorities: Option<PathBuf>,
    /// None: the client does not identify itself.
    pub identity: Option<Identity>,
}

/// Accepts connections of TLS.
#[derive(Clone, Debug)]
pub struct Acceptor(Arc<ServerConfig>);

/// Opens connections of TLS.
#[derive(Clone, Debug)]
pub struct Connector(Arc<ClientConfig>);

/// A connection without or with TLS.
#[derive(Debug)]
pub enum Stream {
    /// Without TLS.
    Plain(TcpStream),
    /// The end of a client.
    Client(Box<StreamOwned<ClientConnection, TcpStream>>),
    /// The end of a server.
    Server(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Acceptor {
    /// # Errors
    /// A file is not readable or not what it should be, or the key is not that of the certificate.
    pub fn new(identity: &Identity) -> Result<Self, Failure> {
        let (certificates, key) = read(identity)?;
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(unusable)?;
        let config = config.with_no_client_auth().with_single_cert(certificates, key);
        let mut config = config.map_err(|e| mismatch(identity, &e))?;
        config.alpn_protocols = vec![HTTP.to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// The handshake takes place when the connection is read.
    ///
    /// # Errors
    /// rustls cannot create a connection.
    pub fn accept(&self, stream: TcpStream) -> io::Result<Stream> {
        let connection = ServerConnection::new(self.0.clone()).map_err(io::Error::other)?;
        Ok(Stream::Server(Box::new(StreamOwned::new(connection, stream))))
    }
}

impl Connector {
    /// # Errors
    /// A file is not readable or not what it should be, or the machine has no file of authorities.
    pub fn new(trust: &Trust) -> Result<Self, Failure> {
        let mut roots = RootCertStore::empty();
        match &trust.authorities {
            Some(path) => {
                for authority in certificates(path)? {
                    roots.add(authority).map_err(|e| Failure::new(format!("{}: {}", path.display(), why(&e))).code("not-readable"))?;
                }
            }
            // A machine may have certificates that rustls does not support.
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            return Err(Failure::new("this machine has no certificates of authorities").code("not-readable").help(
                "install the package ca-certificates, or set OTEL_EXPORTER_OTLP_CERTIFICATE to a file of certificates in PEM format",
            ));
        }
        let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(unusable)?;
        let config = config.with_root_certificates(roots);
        let mut config = match &trust.identity {
            Some(identity) => {
                let (certificates, key) = read(identity)?;
                config.with_client_auth_cert(certificates, key).map_err(|e| mismatch(identity, &e))?
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![HTTP.to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// The handshake takes place when the connection is written or read. It requires a certificate for this host.
    ///
    /// # Errors
    /// The host is not a name that a certificate can contain.
    pub fn connect(&self, host: &str, stream: TcpStream) -> io::Result<Stream> {
        let name = ServerName::try_from(host.to_string()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(self.0.clone(), name).map_err(io::Error::other)?;
        Ok(Stream::Client(Box::new(StreamOwned::new(connection, stream))))
    }
}

impl Stream {
    /// The socket, for its timeouts and for poll(2).
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Client(stream) => &stream.sock,
            Self::Server(stream) => &stream.sock,
        }
    }

    /// Writes what TLS has buffered, after a message that no further data follows.
    ///
    /// # Errors
    /// Those of the socket. After [`io::ErrorKind::WouldBlock`], the caller repeats the call.
    pub fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => {}
            // rustls sends the message once.
            Self::Client(stream) => stream.conn.send_close_notify(),
            Self::Server(stream) => stream.conn.send_close_notify(),
        }
        self.flush()
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Client(stream) => stream.read(buffer),
            Self::Server(stream) => stream.read(buffer),
        };
        result.map_err(explained)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Client(stream) => stream.write(bytes),
            Self::Server(stream) => stream.write(bytes),
        };
        result.map_err(explained)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = match self {
            Self::Plain(socket) => socket.flush(),
            Self::Client(stream) => stream.flush(),
            Self::Server(stream) => stream.flush(),
        };
        result.map_err(explained)
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn unusable(e: rustls::Error) -> Failure {
    Failure::new(format!("TLS: {e}"))
}

fn read(identity: &Identity) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Failure> {
    let key = PrivateKeyDer::from_pem_slice(&bytes(identity.key())?)
        .map_err(|_| Failure::new(format!("{}: there is no private key in PEM format", identity.key().display())).code("not-readable"))?;
    Ok((certificates(&identity.certificate)?, key))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes(path)?).collect();
    let all = all.unwrap_or_default();
    if all.is_empty() {
        return Err(Failure::new(format!("{}: there is no certificate in PEM format", path.display())).code("not-readable"));
    }
    Ok(all)
}

fn bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    input::read_regular(path, FILE).map_err(|e| Failure::new(format!("{}: {}", path.display(), reason(&e))).code("not-readable"))
}

fn mismatch(identity: &Identity, e: &rustls::Error) -> Failure {
    Failure::new(format!("{} and {}: {}", identity.certificate.display(), identity.key().display(), why(e))).code("not-readable")
}

/// The error of a connection in the words of [`why`].
fn explained(e: io::Error) -> io::Error {
    match e.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).map(why) {
        Some(text) => io::Error::new(e.kind(), text),
        None => e,
    }
}

/// Recognizes an error.
type Recognizes = fn(&CertificateError) -> bool;

/// Why a certificate is rejected, for the common reasons.
const REASONS: &[(Recognizes, &str)] = &[
    (|e| matches!(e, CertificateError::UnknownIssuer), "no trusted authority signed the certificate"),
    (|e| matches!(e, CertificateError::Expired | CertificateError::ExpiredContext { .. }), "the certificate has expired"),
    (|e| matches!(e, CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }), "the certificate is not valid yet"),
    (
        |e| matches!(e, CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
        "the certificate is for another host",
    ),
    (
        |e| matches!(e, CertificateError::Other(other) if is_authority(other)),
        "the certificate is that of an authority; use one for servers that the authority has signed (`basicConstraints=CA:FALSE`)",
    ),
];

/// rustls names this error of its verifier only by its text.
fn is_authority(e: &rustls::OtherError) -> bool {
    e.0.to_string() == "CaUsedAsEndEntity"
}

/// The reason of an error of TLS, in the form that follows a colon.
fn why(e: &rustls::Error) -> String {
    if let rustls::Error::InvalidCertificate(e) = e {
        let known = REASONS.iter().find(|(recognizes, _)| recognizes(e));
        return known.map_or_else(|| format!("the certificate is not valid: {e}"), |(_, text)| (*text).into());
    }
    if matches!(e, rustls::Error::InvalidMessage(_)) {
        return "the peer does not use TLS".into();
    }
    if matches!(e, rustls::Error::InconsistentKeys(_)) {
        return "the key does not belong to the certificate".into();
    }
    e.to_string()
}
