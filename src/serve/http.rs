//! A single-threaded HTTP server for a few clients, which may be slow or hostile. The time and the size of a request are limited,
//! and each connection serves one request.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Access;
use crate::tls::Stream;

/// Connections at a time. A further one closes the oldest, which has not sent a request yet, or does not read its
/// response.
const CLIENTS: usize = 32;
/// Maximum size of a request's head in bytes.
const HEAD: usize = 8 << 10;
/// Maximum number of headers in a request.
const HEADERS: usize = 64;
/// The timeout of a connection.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum age of a text that is reused.
const MAX_AGE: Duration = Duration::from_millis(200);

/// The served pages.
pub trait Pages: Send {
    /// The text of the metrics; if `open`, in the form of OpenMetrics. None: the run does not answer.
    fn metrics(&mut self, open: bool) -> Option<String>;

    /// The health: is everything in order, and a description.
    fn health(&mut self) -> (bool, String);
}

pub struct Server {
    listener: TcpListener,
    access: Access,
    pages: Box<dyn Pages>,
    clients: Vec<Client>,
    /// The latest text of each form.
    cached: [Option<(Instant, String)>; 2],
}

struct Client {
    stream: Stream,
    until: Instant,
    header: Vec<u8>,
    answer: Vec<u8>,
    written: usize,
}

/// A status line, the type of the text, and the text.
type Answer = (&'static str, &'static str, String);

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Server {
    pub fn new(listener: TcpListener, access: Access, pages: Box<dyn Pages>) -> Self {
        Self { listener, access, pages, clients: Vec::new(), cached: [None, None] }
    }

    /// Serves until the process ends.
    pub fn run(mut self) {
        loop {
            self.wait();
            self.accept();
            for mut client in std::mem::take(&mut self.clients) {
                if self.serve(&mut client) {
                    self.clients.push(client);
                }
            }
        }
    }

    fn wait(&self) {
        let now = Instant::now();
        let nearest = self.clients.iter().map(|client| client.until.saturating_duration_since(now)).min();
        let mut fds: Vec<PollFd<'_>> = self
            .clients
            .iter()
            .map(|c| PollFd::new(c.stream.socket(), if c.answer.is_empty() { PollFlags::IN } else { PollFlags::OUT }))
            .collect();
        fds.push(PollFd::new(&self.listener, PollFlags::IN));
        let limit = nearest.map(|limit| Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() });
        if poll(&mut fds, limit.as_ref()).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn accept(&mut self) {
        // a flood of new connections must not delay existing ones
        for _ in 0..CLIENTS {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if stream.set_nonblocking(true).is_ok()
                        && let Ok(stream) = self.access.stream(stream)
                    {
                        if self.clients.len() >= CLIENTS {
                            self.clients.remove(0);
                        }
                        let until = Instant::now() + TIMEOUT;
                        self.clients.push(Client { stream, until, header: Vec::new(), answer: Vec::new(), written: 0 });
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // there is no client, or no descriptor is left
                Err(e) => {
                    if e.kind() != ErrorKind::WouldBlock {
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    return;
                }
            }
        }
    }

    /// Serves a client as far as possible without waiting; false: it is done.
    fn serve(&mut self, client: &mut Client) -> bool {
        if Instant::now() >= client.until {
            return false;
        }
        if client.answer.is_empty() {
            match self.read(client) {
                Some(Some(answer)) => client.answer = answer,
                Some(None) => return true,
                None => return false,
            }
        }
        loop {
            let rest = client.answer.get(client.written..).unwrap_or_default();
            let written = if rest.is_empty() { client.stream.finish().map(|()| 0) } else { client.stream.write(rest) };
            match written {
                Ok(0) => return false,
                Ok(n) => client.written += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    /// The response, if the request is complete; none if the client is gone.
    fn read(&mut self, client: &mut Client) -> Option<Option<Vec<u8>>> {
        let mut buffer = [0; 4096];
        loop {
            match client.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(n) => client.header.extend_from_slice(buffer.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Some(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return None,
            }
            if let Some(answer) = self.answer(&client.header) {
                return Some(Some(answer));
            }
        }
    }

    /// None: the request is not complete.
    fn answer(&mut self, head: &[u8]) -> Option<Vec<u8>> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let parsed = request.parse(head);
        let is_head = request.method == Some("HEAD");
        let (status, kind, text) = match parsed {
            Ok(httparse::Status::Complete(size)) if size <= HEAD => self.reply(&request),
            Ok(httparse::Status::Partial) if head.len() <= HEAD => return None,
            Ok(_) | Err(httparse::Error::TooManyHeaders) => {
                ("431 Request Header Fields Too Large", TEXT, "the request is too long\n".into())
            }
            Err(_) => ("400 Bad Request", TEXT, "this is not a request\n".into()),
        };
        let asks = match status.get(..3) {
            Some("401") => "WWW-Authenticate: Bearer\r\n",
            Some("405") => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        let mut answer =
            format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{asks}Connection: close\r\n\r\n", text.len())
                .into_bytes();
        if !is_head {
            answer.extend_from_slice(text.as_bytes());
        }
        Some(answer)
    }

    fn reply(&mut self, request: &httparse::Request) -> Answer {
        let header = |name: &str| request.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name)).map(|h| h.value);
        let path = path(request.path.unwrap_or(""));
        if !matches!(request.method, Some("GET" | "HEAD")) {
            return ("405 Method Not Allowed", TEXT, "only GET is supported\n".into());
        }
        if !self.access.accepts(header("authorization")) {
            return ("401 Unauthorized", TEXT, "a token is needed\n".into());
        }
        match path {
            "/metrics" => {
                let open = header("accept").is_some_and(|accept| prefers_open_metrics(&String::from_utf8_lossy(accept)));
                match self.text(open) {
                    Some(text) => ("200 OK", if open { OPEN_METRICS } else { TEXT }, text),
                    None => ("503 Service Unavailable", TEXT, "the run does not answer\n".into()),
                }
            }
            "/-/healthy" => ("200 OK", TEXT, self.pages.health().1),
            "/-/ready" => match self.pages.health() {
                (true, text) => ("200 OK", TEXT, text),
                (false, text) => ("503 Service Unavailable", TEXT, text),
            },
            "/" => ("200 OK", TEXT, "metrics are at /metrics\n".into()),
            _ => ("404 Not Found", TEXT, "metrics are at /metrics\n".into()),
        }
    }

    fn text(&mut self, open: bool) -> Option<String> {
        let cached = self.cached.get_mut(usize::from(open))?;
        if let Some((_, text)) = cached.as_ref().filter(|(when, _)| when.elapsed() < MAX_AGE) {
            return Some(text.clone());
        }
        let text = self.pages.metrics(open)?;
        *cached = Some((Instant::now(), text.clone()));
        Some(text)
    }
}

/// The path of a request's target, without the query. The target may be a whole URL, as for a proxy.
fn path(target: &str) -> &str {
    let scheme = |scheme: &str| {
        target.get(..scheme.len()).filter(|start| start.eq_ignore_ascii_case(scheme)).and_then(|_| target.get(scheme.len()..))
    };
    let path = match ["http://", "https://"].into_iter().find_map(scheme) {
        Some(rest) => rest.find(['/', '?']).and_then(|at| rest.get(at..)).unwrap_or("/"),
        None => target,
    };
    match path.split('?').next() {
        Some("") | None => "/",
        Some(path) => path,
    }
}

/// Does a client accept OpenMetrics, and prefer it to the text format? It is preferred where both have the same quality.
fn prefers_open_metrics(accept: &str) -> bool {
    let (mut open, mut text) = (0.0, 0.0);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let quality = parts.find_map(|part| part.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("q")));
        let quality: f32 = quality.map_or(1.0, |(_, value)| value.trim().parse().unwrap_or(0.0));
        match media.as_str() {
            "application/openmetrics-text" => open = quality.max(open),
            "text/plain" => text = quality.max(text),
            _ => {}
        }
    }
    open > 0.0 && open >= text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_may_be_urls() {
        assert_eq!(
            ["/metrics?a=b", "http://h:9435/metrics", "HTTPS://h/metrics?x", "http://h", "http://h?x"].map(path),
            ["/metrics", "/metrics", "/metrics", "/", "/"]
        );
        assert_eq!(path("/http://h/metrics"), "/http://h/metrics");
    }

    #[test]
    fn the_accepted_format_has_the_higher_quality() {
        let open = |accept: &str| prefers_open_metrics(accept);
        assert!(open("application/openmetrics-text; version=1.0.0"));
        assert!(open("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"));
        assert!(!open("application/openmetrics-text;q=0"));
        assert!(!open("application/openmetrics-text; Q=0.000, text/plain"));
        assert!(!open("application/openmetrics-text;q=0.1,text/plain;q=0.9"));
        assert!(!open("*/*") && !open("text/html;x=application/openmetrics-text"));
    }
}
