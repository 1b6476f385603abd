//! Addresses of hosts: numbers, /etc/hosts, and DNS. The C library's own look-up does not work in a static program, because it
//! loads shared libraries.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::input;

/// Maximum size in bytes of a system file.
const FILE: u64 = 1 << 20;
/// The timeout for one server's answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of servers that are queried.
const SERVERS: usize = 3;
/// Types of records (RFC 1035, RFC 3596).
const A: u16 = 1;
const AAAA: u16 = 28;

/// The addresses of a host.
///
/// # Errors
/// The host has no address, or no server answers in time.
pub fn addresses(host: &str, port: u16, until: Instant) -> io::Result<Vec<SocketAddr>> {
    let with_port = |ip: IpAddr| SocketAddr::new(ip, port);
    if let Ok(ip) = host.parse() {
        return Ok(vec![with_port(ip)]);
    }
    let read = |path: &str| input::text(Path::new(path), FILE).unwrap_or_default();
    let known = addresses_in_hosts(&read("/etc/hosts"), host);
    if !known.is_empty() {
        return Ok(known.into_iter().map(with_port).collect());
    }
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(vec![with_port(Ipv4Addr::LOCALHOST.into()), with_port(Ipv6Addr::LOCALHOST.into())]);
    }
    let resolver = Resolver::of(&read("/etc/resolv.conf"));
    let mut last = io::Error::new(ErrorKind::NotFound, format!("no address of `{host}` is known"));
    for name in resolver.names(host) {
        for server in resolver.servers.iter().take(SERVERS) {
            match look_up(*server, &name, until) {
                Ok(found) if found.is_empty() => break,
                Ok(found) => return Ok(found.into_iter().map(with_port).collect()),
                Err(why) => last = io::Error::new(why.kind(), format!("`{host}` cannot be looked up: {}", crate::failure::reason(&why))),
            }
            if Instant::now() >= until {
                return Err(last);
            }
        }
    }
    Err(last)
}

fn addresses_in_hosts(text: &str, host: &str) -> Vec<IpAddr> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or(""));
    let of = |line: &str| {
        let mut words = line.split_whitespace();
        let ip = words.next()?.parse().ok()?;
        words.any(|name| name.eq_ignore_ascii_case(host)).then_some(ip)
    };
    lines.filter_map(of).collect()
}

/// The contents of resolv.conf(5).
struct Resolver {
    servers: Vec<SocketAddr>,
    search: Vec<String>,
    /// A name with at least this many dots is first tried unchanged.
    dots: usize,
}

impl Resolver {
    fn of(text: &str) -> Self {
        let mut all = Self { servers: Vec::new(), search: Vec::new(), dots: 1 };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    all.servers.extend(words.next().and_then(|ip| ip.parse().ok()).map(|ip| SocketAddr::new(ip, 53)));
                }
                Some("search" | "domain") => all.search = words.map(String::from).collect(),
                Some("options") => {
                    all.dots = words.filter_map(|word| word.strip_prefix("ndots:")?.parse().ok()).next().unwrap_or(all.dots);
                }
                Some(_) | None => {}
            }
        }
        if all.servers.is_empty() {
            all.servers.push(SocketAddr::from(([127, 0, 0, 1], 53)));
        }
        all
    }

    fn names(&self, host: &str) -> Vec<String> {
        if let Some(absolute) = host.strip_suffix('.') {
            return vec![absolute.into()];
        }
        let searched = self.search.iter().map(|domain| format!("{host}.{}", domain.trim_end_matches('.')));
        let mut names: Vec<String> = searched.collect();
        let first = host.matches('.').count() >= self.dots;
        names.insert(if first { 0 } else { names.len() }, host.into());
        names
    }
}

fn look_up(server: SocketAddr, name: &str, until: Instant) -> io::Result<Vec<IpAddr>> {
    let from: SocketAddr = if server.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(from)?;
    socket.connect(server)?;
    let mut found = Vec::new();
    for (i, kind) in [A, AAAA].into_iter().enumerate() {
        let random = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
        let id = (random ^ std::process::id() ^ i as u32) as u16;
        socket.send(&query(id, name, kind)?)?;
        let until = until.min(Instant::now() + TIMEOUT);
        let mut buffer = [0; 4096];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            socket.set_read_timeout(Some(left))?;
            match socket.recv(&mut buffer) {
                Ok(n) => {
                    if let Some(answers) = answers(buffer.get(..n).unwrap_or_default(), id) {
                        found.extend(answers);
                        break;
                    }
                }
                Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(why) => return Err(why),
            }
        }
    }
    Ok(found)
}

/// A query by RFC 1035, section 4.1.
fn query(id: u16, name: &str, kind: u16) -> io::Result<Vec<u8>> {
    let mut to = id.to_be_bytes().to_vec();
    // recursion is desired; one question
    to.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|n| (1..64).contains(n)).ok_or(ErrorKind::InvalidInput)?;
        to.push(length);
        to.extend_from_slice(label.as_bytes());
    }
    to.push(0);
    to.extend_from_slice(&kind.to_be_bytes());
    to.extend_from_slice(&[0, 1]);
    Ok(to)
}

/// None: this is not an answer to the query.
fn answers(bytes: &[u8], id: u16) -> Option<Vec<IpAddr>> {
    let word = |offset: usize| Some(u16::from_be_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?));
    if word(0)? != id || word(2)? & 0x8000 == 0 {
        return None;
    }
    let mut offset = 12;
    for _ in 0..word(4)? {
        offset = after_name(bytes, offset)? + 4;
    }
    let mut found = Vec::new();
    for _ in 0..word(6)? {
        offset = after_name(bytes, offset)?;
        let (kind, length) = (word(offset)?, usize::from(word(offset + 8)?));
        let data = bytes.get(offset + 10..offset + 10 + length)?;
        match kind {
            A => found.extend(<[u8; 4]>::try_from(data).map(IpAddr::from)),
            AAAA => found.extend(<[u8; 16]>::try_from(data).map(IpAddr::from)),
            _ => {}
        }
        offset += 10 + length;
    }
    Some(found)
}

/// A name ends with an empty label, or with a pointer to the rest.
fn after_name(bytes: &[u8], mut offset: usize) -> Option<usize> {
    loop {
        match *bytes.get(offset)? {
            0 => return Some(offset + 1),
            n if n >= 0xc0 => return Some(offset + 2),
            n => offset += usize::from(n) + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_names_like_the_system() {
        let conf = Resolver::of("nameserver 10.0.0.10\nsearch a.svc.cluster.local svc.cluster.local\noptions ndots:5\n");
        assert_eq!(conf.names("c"), ["c.a.svc.cluster.local", "c.svc.cluster.local", "c"]);
        assert_eq!(conf.names("c.d."), ["c.d"]);
        assert_eq!(Resolver::of("").names("c.d"), ["c.d"]);
        assert_eq!(addresses_in_hosts("127.0.0.1 localhost # c\n::1\tC d\n", "c"), ["::1".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn parses_only_valid_answers() {
        let question = query(7, "a.b", A).unwrap();
        let mut answer = question.clone();
        answer[2] = 0x81;
        answer[7] = 1;
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 10, 1, 2, 3]);
        assert_eq!(answers(&answer, 7), Some(vec![[10, 1, 2, 3].into()]));
        assert_eq!(answers(&answer, 8), None);
        assert_eq!(answers(&question, 7), None);
        (0..answer.len()).for_each(|n| assert_eq!(answers(&answer[..n], 7), None));
        assert!(query(1, "a..b", A).is_err());
    }
}
