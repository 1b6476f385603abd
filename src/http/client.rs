//! Requests to one server: one at a time, on a persistent connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime};

use super::resolve;
use crate::failure::Failure;
use crate::tls::{Connector, Stream, Trust};

/// Maximum size in bytes of the head of a response, and of the trailer of a chunked one.
const HEAD: usize = 16 << 10;
const HEADERS: usize = 64;
/// The longest wait that a server may request, in seconds.
const MAX_WAIT: u64 = 300;

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name, or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// None: without TLS (`http`).
    pub tls: Option<Trust>,
}

/// A connection to a server.
pub struct Client {
    endpoint: Endpoint,
    /// None: without TLS.
    connector: Option<Connector>,
    stream: Option<Stream>,
    max_body: usize,
}

/// A request.
pub struct Request<'a> {
    /// `GET`, `POST`
    pub method: &'a str,
    /// The path with its leading slash, and the query.
    pub path: &'a str,
    /// Headers, except for `Host` and `Content-Length`.
    pub headers: &'a [(String, String)],
    /// The body; none is sent with `GET`.
    pub body: &'a [u8],
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// How long the server wants the client to wait.
    pub retry_after: Option<Duration>,
    /// The body; an error of the kind [`ErrorKind::Other`] if it is longer than the client accepts or is not as HTTP requires, and
    /// another one if it did not arrive whole and in time.
    pub body: io::Result<Vec<u8>>,
    keep_alive: bool,
}

impl Client {
    /// Creates a client that is not connected yet, and does not read bodies longer than this.
    ///
    /// # Errors
    /// A certificate cannot be used.
    pub fn new(to: Endpoint, max_body: usize) -> Result<Self, Failure> {
        let connector = to.tls.as_ref().map(Connector::new).transpose()?;
        Ok(Self { endpoint: to, connector, stream: None, max_body })
    }

    /// `http://host:port`
    pub fn url(&self) -> String {
        let scheme = if self.connector.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    fn authority(&self) -> String {
        let Endpoint { host, port, .. } = &self.endpoint;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Makes a request, which takes this long at most.
    ///
    /// # Errors
    /// Those of the connection; the server does not answer in time or as HTTP requires.
    pub fn request(&mut self, request: &Request, limit: Duration) -> io::Result<Answer> {
        let until = Instant::now() + limit;
        let bytes = self.bytes_of(request);
        let kept = self.stream.is_some();
        let mut result = self.exchange(&bytes, until);
        // the server may have closed the persistent connection
        if kept && result.as_ref().is_err_and(|why| why.kind() != ErrorKind::TimedOut) {
            self.stream = None;
            result = self.exchange(&bytes, until);
        }
        if !result.as_ref().is_ok_and(|answer| answer.keep_alive) {
            self.stream = None;
        }
        result
    }

    fn bytes_of(&self, request: &Request) -> Vec<u8> {
        let mut headers: String = request.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        if request.method != "GET" {
            headers += &format!("Content-Length: {}\r\n", request.body.len());
        }
        let head = format!("{} {} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", request.method, request.path, self.authority());
        [head.as_bytes(), request.body].concat()
    }

    fn exchange(&mut self, request: &[u8], until: Instant) -> io::Result<Answer> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect(until)?,
        };
        let mut rest = request;
        while !rest.is_empty() {
            stream.socket().set_write_timeout(Some(remaining(until)?))?;
            // For the handshake, TLS also reads.
            stream.socket().set_read_timeout(Some(remaining(until)?))?;
            match stream.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => rest = rest.get(n..).unwrap_or_default(),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(timed_out(why)),
            }
        }
        stream.flush().map_err(timed_out)?;
        let answer = read(&mut stream, until, self.max_body)?;
        self.stream = Some(stream);
        Ok(answer)
    }

    fn connect(&self, until: Instant) -> io::Result<Stream> {
        let mut last = None;
        for address in resolve::addresses(&self.endpoint.host, self.endpoint.port, until)? {
            match TcpStream::connect_timeout(&address, remaining(until)?) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return match &self.connector {
                        Some(connector) => connector.connect(&self.endpoint.host, stream),
                        None => Ok(Stream::Plain(stream)),
                    };
                }
                Err(why) => last = Some(why),
            }
        }
        Err(last.unwrap_or_else(|| ErrorKind::NotFound.into()))
    }
}

fn remaining(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A socket's timeout appears as a call that would block.
fn timed_out(why: io::Error) -> io::Error {
    if why.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { why }
}

fn some_bytes(stream: &mut Stream, until: Instant, to: &mut Vec<u8>) -> io::Result<usize> {
    let mut buffer = [0; 4096];
    loop {
        stream.socket().set_read_timeout(Some(remaining(until)?))?;
        match stream.read(&mut buffer) {
            Ok(n) => {
                to.extend_from_slice(buffer.get(..n).unwrap_or_default());
                return Ok(n);
            }
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            Err(why) => return Err(timed_out(why)),
        }
    }
}

/// Where the body of a response ends.
#[derive(Clone, Copy)]
enum Framing {
    Length(usize),
    Chunked,
    /// At the end of the connection.
    Close,
}

fn nonsense() -> io::Error {
    io::Error::other("the answer is not one of HTTP")
}

fn read(stream: &mut Stream, until: Instant, max_body: usize) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let start = match response.parse(&bytes) {
            Ok(httparse::Status::Complete(start)) => start,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD => {
                if some_bytes(stream, until, &mut bytes)? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                continue;
            }
            Ok(httparse::Status::Partial) | Err(_) => return Err(nonsense()),
        };
        let status = response.code.ok_or_else(nonsense)?;
        // after an interim response, another one follows (RFC 9110, section 15.2)
        if status < 200 {
            bytes.drain(..start);
            continue;
        }
        let header = |name: &str| {
            let found = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            found.map(|header| String::from_utf8_lossy(header.value).trim().to_string())
        };
        let framing = match (header("transfer-encoding"), header("content-length")) {
            _ if status == 204 || status == 304 => Framing::Length(0),
            (Some(encoding), _) if encoding.eq_ignore_ascii_case("chunked") => Framing::Chunked,
            (Some(_), _) => return Err(nonsense()),
            (None, Some(length)) => Framing::Length(length.parse().map_err(|_| nonsense())?),
            (None, None) => Framing::Close,
        };
        let closes = header("connection").is_some_and(|text| text.eq_ignore_ascii_case("close")) || response.version == Some(0);
        let retry_after = header("retry-after").and_then(|text| wait(&text, SystemTime::now()));
        let rest = bytes.split_off(start);
        // The status says whether the request succeeded, even if the rest of the response is missing.
        let (body, ended) = match body(stream, until, rest, framing, max_body) {
            Ok((body, ended)) => (Ok(body), ended),
            Err(why) => (Err(why), false),
        };
        return Ok(Answer { status, retry_after, body, keep_alive: !closes && ended });
    }
}

fn too_long() -> io::Error {
    io::Error::other("the answer is too long")
}

/// The body, which starts with these bytes, and whether the connection can be used again.
fn body(stream: &mut Stream, until: Instant, mut bytes: Vec<u8>, framing: Framing, max_body: usize) -> io::Result<(Vec<u8>, bool)> {
    let mut whole = Vec::new();
    let mut more = |bytes: &mut Vec<u8>| some_bytes(stream, until, bytes);
    match framing {
        Framing::Length(length) if length > max_body => Err(too_long()),
        Framing::Length(length) => {
            while bytes.len() < length {
                if more(&mut bytes)? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
            let ended = bytes.len() == length;
            bytes.truncate(length);
            Ok((bytes, ended))
        }
        Framing::Close => {
            while more(&mut bytes)? > 0 {
                if bytes.len() > max_body {
                    return Err(too_long());
                }
            }
            if bytes.len() <= max_body { Ok((bytes, false)) } else { Err(too_long()) }
        }
        Framing::Chunked => loop {
            match chunk(&bytes)? {
                Some((0, start)) => return Ok((whole, bytes.get(start..) == Some(b"\r\n"))),
                Some((length, start)) => {
                    if length > max_body.saturating_sub(whole.len()) {
                        return Err(too_long());
                    }
                    let end = start + length;
                    while bytes.len() < end + 2 {
                        if more(&mut bytes)? == 0 {
                            return Err(ErrorKind::UnexpectedEof.into());
                        }
                    }
                    if bytes.get(end..end + 2) != Some(b"\r\n") {
                        return Err(nonsense());
                    }
                    whole.extend_from_slice(bytes.get(start..end).unwrap_or_default());
                    bytes.drain(..end + 2);
                }
                None if bytes.len() > HEAD => return Err(nonsense()),
                None => {
                    if more(&mut bytes)? == 0 {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        },
    }
}

/// The length of a chunk, and where it starts; none if more bytes are needed. The last one has length 0; without the end of its
/// trailer, it is incomplete.
fn chunk(bytes: &[u8]) -> io::Result<Option<(usize, usize)>> {
    match httparse::parse_chunk_size(bytes) {
        Ok(httparse::Status::Complete((start, 0))) => {
            let trailer = bytes.get(start..).unwrap_or_default();
            let ended = trailer.starts_with(b"\r\n") || trailer.windows(4).any(|four| four == b"\r\n\r\n");
            Ok(ended.then_some((0, start)))
        }
        Ok(httparse::Status::Complete((start, length))) => Ok(Some((usize::try_from(length).unwrap_or(usize::MAX), start))),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(_) => Err(nonsense()),
    }
}

/// `Retry-After`: seconds, or a date in the form that RFC 9110 prefers.
fn wait(text: &str, now: SystemTime) -> Option<Duration> {
    let seconds = match text.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
            date(text)?.saturating_sub(now)
        }
    };
    Some(Duration::from_secs(seconds.min(MAX_WAIT)))
}

/// Seconds since 1970 of `Sun, 06 Nov 1994 08:49:37 GMT`.
fn date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split([' ', ':']);
    let mut number = || words.next()?.parse::<u64>().ok();
    let day = number()?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as u64 + 1;
    let mut number = || words.next()?.parse::<u64>().ok().filter(|n| *n < 10_000);
    let (year, hour, minute, second) = (number()?, number()?, number()?, number()?);
    // days of the civil calendar, whose years begin in March
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day.checked_sub(1)?;
    Some((days.checked_sub(719_468)? * 24 + hour) * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn interim_responses_may_share_a_packet_with_the_final_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            for answer in
                ["HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", "HTTP/1.1 204 No\r\n\r\n"]
            {
                assert!(client.read(&mut [0; 1024]).unwrap() > 0);
                client.write_all(answer.as_bytes()).unwrap();
            }
        });
        let mut client = Client::new(Endpoint { host: "127.0.0.1".into(), port, tls: None }, 100).unwrap();
        let request = Request { method: "GET", path: "/", headers: &[], body: &[] };
        let mut ask = || client.request(&request, Duration::from_secs(20)).map(|answer| (answer.status, answer.body.ok())).unwrap();
        assert_eq!(ask(), (200, Some(b"ab".to_vec())));
        // the connection is still usable
        assert_eq!(ask(), (204, Some(Vec::new())));
        server.join().unwrap();
    }

    #[test]
    fn waits_are_read() {
        // the example of RFC 9110
        assert_eq!(date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(date("Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800));
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:37 GMT", now), Some(Duration::from_secs(7)));
        assert_eq!(wait("2", now), Some(Duration::from_secs(2)));
        assert_eq!(wait("soon", now), None);
    }
}
