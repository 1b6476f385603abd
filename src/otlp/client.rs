//! An HTTP/1.1 client for one address: one request at a time, on a persistent connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::config::Endpoint;
use super::resolve;
use crate::failure::{Failure, reason};
use crate::tls::{Connector, Stream};

/// Maximum size in bytes of the head of a response.
const HEAD: usize = 16 << 10;
const HEADERS: usize = 64;
/// Maximum size in bytes of a response's body; a longer one is not read.
const BODY: usize = 64 << 10;
/// The longest wait that a collector may request, in seconds.
const MAX_WAIT: u64 = 300;

/// A connection to a collector.
pub struct Client {
    endpoint: Endpoint,
    /// None: without TLS.
    connector: Option<Connector>,
    stream: Option<Stream>,
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

/// The parts of a response.
struct Answer {
    status: u16,
    retry_after: Option<Duration>,
    body: Vec<u8>,
    keep_alive: bool,
}

impl Client {
    /// Creates a client that is not connected yet.
    ///
    /// # Errors
    /// A certificate cannot be used.
    pub fn new(to: Endpoint) -> Result<Self, Failure> {
        let connector = to.tls.as_ref().map(Connector::new).transpose()?;
        Ok(Self { endpoint: to, connector, stream: None })
    }

    /// `http://host:port/path`
    pub fn url(&self) -> String {
        let scheme = if self.connector.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.endpoint.path)
    }

    fn authority(&self) -> String {
        let Endpoint { host, port, .. } = &self.endpoint;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Sends a Protocol Buffers request, which takes this long at most.
    pub fn post(&mut self, message: &[u8], limit: Duration) -> Sent {
        let until = Instant::now() + limit.min(self.endpoint.timeout);
        let request = self.request(message);
        let kept = self.stream.is_some();
        let mut result = self.exchange(&request, until);
        // the collector may have closed the persistent connection
        if kept && result.as_ref().is_err_and(|why| why.kind() != ErrorKind::TimedOut) {
            result = self.exchange(&request, until);
        }
        match result {
            Ok(answer) => {
                if !answer.keep_alive {
                    self.stream = None;
                }
                match answer.status {
                    200..300 => Sent::Accepted(answer.body),
                    429 | 502..=504 => Sent::Later(answer.retry_after, format!("the collector answers with status {}", answer.status)),
                    status => Sent::Refused(format!("the collector answers with status {status}")),
                }
            }
            Err(why) => {
                self.stream = None;
                Sent::Later(None, reason(&why))
            }
        }
    }

    fn request(&self, message: &[u8]) -> Vec<u8> {
        let compressed = self.endpoint.gzip.then(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(message).and_then(|()| encoder.finish()).ok()
        });
        let compressed = compressed.flatten();
        let body = compressed.as_deref().unwrap_or(message);
        let encoding = if compressed.is_some() { "Content-Encoding: gzip\r\n" } else { "" };
        let headers: String = self.endpoint.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let mut request = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: OTel-OTLP-Exporter-rbt/{}\r\nContent-Type: application/x-protobuf\r\n\
             Content-Length: {}\r\n{encoding}{headers}\r\n",
            self.endpoint.path,
            self.authority(),
            crate::VERSION,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        request
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
        let answer = read(&mut stream, until)?;
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

fn read(stream: &mut Stream, until: Instant) -> io::Result<Answer> {
    let nonsense = || io::Error::other("the answer is not one of HTTP");
    let mut bytes = Vec::new();
    loop {
        if some_bytes(stream, until, &mut bytes)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let start = match response.parse(&bytes) {
            Ok(httparse::Status::Complete(start)) => start,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD => continue,
            Ok(httparse::Status::Partial) | Err(_) => return Err(nonsense()),
        };
        let status = response.code.ok_or_else(nonsense)?;
        // after an interim response, the next one counts
        if status < 200 {
            bytes.drain(..start);
            if bytes.is_empty() {
                continue;
            }
            return Err(nonsense());
        }
        let header = |name: &str| {
            let found = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            found.map(|header| String::from_utf8_lossy(header.value).trim().to_string())
        };
        let length = header("content-length").and_then(|text| text.parse::<usize>().ok());
        let closes = header("connection").is_some_and(|text| text.eq_ignore_ascii_case("close"));
        let retry_after = header("retry-after").and_then(|text| wait(&text, SystemTime::now()));
        let length = length.or((status == 204).then_some(0));
        let mut body = bytes.split_off(start);
        let Some(length) = length.filter(|length| *length <= BODY) else {
            return Ok(Answer { status, retry_after, body: Vec::new(), keep_alive: false });
        };
        while body.len() < length {
            if some_bytes(stream, until, &mut body)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let keep = !closes && body.len() == length;
        return Ok(Answer { status, retry_after, body, keep_alive: keep });
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
    use super::*;

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
