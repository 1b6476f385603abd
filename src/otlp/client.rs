//! The collector of one signal: requests with a Protocol Buffers message, and what their answers mean.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::config::Endpoint;
use super::messages::status_message;
use crate::failure::{Failure, reason};
use crate::http::{self, Request};
use crate::protobuf;

/// Maximum size in bytes of a response's body; a longer one is not read.
const BODY: usize = 64 << 10;

/// A connection to a collector.
pub struct Client {
    endpoint: Endpoint,
    http: http::Client,
    headers: Vec<(String, String)>,
}

/// The result of a request.
#[derive(Debug)]
pub enum Sent {
    /// The collector has it; contains the body of its response.
    Accepted(Vec<u8>),
    /// It may be sent again, after this time if the collector said so.
    Later(Option<Duration>, String),
    /// It must not be sent again.
    Refused(String),
}

impl Client {
    /// Creates a client that is not connected yet.
    ///
    /// # Errors
    /// A certificate cannot be used.
    pub fn new(endpoint: Endpoint) -> Result<Self, Failure> {
        let http = http::Client::new(endpoint.server.clone(), BODY)?;
        let own = [("User-Agent", &*format!("OTel-OTLP-Exporter-rbt/{}", crate::VERSION)), ("Content-Type", "application/x-protobuf")];
        let own = own.map(|(name, value)| (name.to_string(), value.to_string()));
        let headers = own.into_iter().chain(endpoint.headers.clone()).collect();
        Ok(Self { endpoint, http, headers })
    }

    /// `http://host:port/path`
    pub fn url(&self) -> String {
        format!("{}{}", self.http.url(), self.endpoint.path)
    }

    /// Sends a message, which takes this long at most.
    pub fn post(&mut self, message: &[u8], limit: Duration) -> Sent {
        let compressed = self.endpoint.gzip.then(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(message).and_then(|()| encoder.finish()).ok()
        });
        let compressed = compressed.flatten();
        let mut headers = self.headers.clone();
        headers.extend(compressed.is_some().then(|| ("Content-Encoding".into(), "gzip".into())));
        let body = compressed.as_deref().unwrap_or(message);
        let request = Request { method: "POST", path: &self.endpoint.path, headers: &headers, body };
        match self.http.request(&request, limit.min(self.endpoint.timeout)) {
            Ok(answer) => match answer.status {
                status @ 200..300 => match answer.body {
                    Ok(body) if is_response(&body) => Sent::Accepted(body),
                    Err(why) if why.kind() != ErrorKind::Other => Sent::Later(answer.retry_after, reason(&why)),
                    Ok(_) | Err(_) => Sent::Refused(format!("something other than a collector answers with status {status}")),
                },
                status => {
                    let message =
                        answer.body.ok().and_then(|body| status_message(&body)).map_or(String::new(), |message| format!(": {message}"));
                    let why = format!("the collector answers with status {status}{message}");
                    if matches!(status, 429 | 502..=504) { Sent::Later(answer.retry_after, why) } else { Sent::Refused(why) }
                }
            },
            Err(why) => Sent::Later(None, reason(&why)),
        }
    }
}

/// Is this the body of a collector's response, rather than, for example, the page of a proxy? Some collectors answer in JSON.
fn is_response(body: &[u8]) -> bool {
    let is_json = || {
        let value: Option<serde_json::Map<String, serde_json::Value>> = serde_json::from_slice(body).ok();
        value.is_some_and(|fields| fields.keys().all(|field| field == "partialSuccess" || field == "partial_success"))
    };
    protobuf::is_message(body) || is_json()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_proxies_are_no_responses() {
        assert!([&b""[..], &[10, 0], b"{}", b"{\"partialSuccess\":{}}\n"].into_iter().all(is_response));
        assert!(![&b"<html>login</html>"[..], b"ok", b"{\"error\":\"login\"}", b"[]", &[10, 5, 1]].into_iter().any(is_response));
    }

    /// A collector whose answer is cut off may have the message or not.
    #[test]
    fn incomplete_answers_are_asked_for_again() {
        use std::io::Read;
        for (answer, again) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{", true),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{", true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", false),
        ] {
            for waits in [false, true] {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let server = http::Endpoint { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port(), tls: None };
                let serve = move || {
                    let (mut client, _) = listener.accept().unwrap();
                    assert!(client.read(&mut [0; 1024]).unwrap() > 0);
                    client.write_all(answer.as_bytes()).unwrap();
                    // until the client has given up
                    while waits && client.read(&mut [0; 1024]).is_ok_and(|n| n > 0) {}
                };
                let serving = std::thread::spawn(serve);
                let timeout = Duration::from_secs(2);
                let mut client = Client::new(Endpoint { server, path: "/".into(), headers: Vec::new(), timeout, gzip: false }).unwrap();
                let sent = client.post(&[], timeout);
                assert_eq!(matches!(sent, Sent::Later(..)), again, "{answer}: {sent:?}");
                drop(client);
                serving.join().unwrap();
            }
        }
    }
}
