//! Where to send what, from `--otlp` and the environment:
//! <https://opentelemetry.io/docs/specs/otel/protocol/exporter> and
//! <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables>.

use std::path::PathBuf;
use std::time::Duration;

use crate::failure::Failure;
use crate::http;
use crate::tls::{Identity, Trust};

/// The value of `--otlp` that leaves the address to the environment.
pub const FROM_ENVIRONMENT: &str = "env";
const DEFAULT_URL: &str = "http://localhost:4318";
/// Headers that determine the form of a request, in which a second one would contradict the first.
const OWN_HEADERS: [&str; 6] = ["Host", "Connection", "Content-Length", "Content-Type", "Content-Encoding", "Transfer-Encoding"];
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// How to export.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// None: this signal is not exported.
    pub metrics: Option<Endpoint>,
    /// None: this signal is not exported.
    pub logs: Option<Endpoint>,
    /// None: this signal is not exported.
    pub traces: Option<Endpoint>,
    /// Sums are sent as differences.
    pub delta: bool,
    /// The interval between exports of metrics.
    pub interval: Duration,
    /// The queue of log records.
    pub log_queue: Queue,
    /// The queue of spans.
    pub span_queue: Queue,
    /// Attributes of the resource that the environment sets.
    pub resource: Vec<(String, String)>,
}

/// How records wait for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The longest time that a record waits.
    pub delay: Duration,
    /// Maximum number of pending records.
    pub max_items: usize,
    /// Maximum number of records in a request; at most `max_items`.
    pub batch: usize,
}

/// Where requests go, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The collector.
    pub server: http::Endpoint,
    /// The path with its leading slash.
    pub path: String,
    /// Headers of each request.
    pub headers: Vec<(String, String)>,
    /// The timeout of a request.
    pub timeout: Duration,
    /// Bodies are compressed.
    pub gzip: bool,
}

/// Looks up an environment variable; an empty one counts as unset.
type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Config {
    /// From the value of `--otlp`.
    ///
    /// # Errors
    /// An invalid value.
    pub fn new(url: &str, var: Variables) -> Result<Self, Failure> {
        let delta = match var("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE").map(|word| word.to_ascii_lowercase()).as_deref() {
            None | Some("cumulative") => false,
            Some("delta" | "lowmemory") => true,
            Some(other) => return Err(bad("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", other, "cumulative, delta or lowmemory")),
        };
        let off = var("OTEL_SDK_DISABLED").is_some_and(|word| word.eq_ignore_ascii_case("true"));
        let wanted = |name: &str| !off && var(name).is_none_or(|word| word != "none");
        let resource = var("OTEL_RESOURCE_ATTRIBUTES").map_or(Ok(Vec::new()), |text| pairs("OTEL_RESOURCE_ATTRIBUTES", &text))?;
        let name = var("OTEL_SERVICE_NAME").map(|name| ("service.name".to_string(), name));
        Ok(Self {
            metrics: wanted("OTEL_METRICS_EXPORTER").then(|| endpoint(url, "METRICS", "v1/metrics", var)).transpose()?,
            logs: wanted("OTEL_LOGS_EXPORTER").then(|| endpoint(url, "LOGS", "v1/logs", var)).transpose()?,
            delta,
            interval: milliseconds("OTEL_METRIC_EXPORT_INTERVAL", 60_000, var)?,
            traces: wanted("OTEL_TRACES_EXPORTER").then(|| endpoint(url, "TRACES", "v1/traces", var)).transpose()?,
            log_queue: queue("OTEL_BLRP", var)?,
            span_queue: queue("OTEL_BSP", var)?,
            resource: resource.into_iter().chain(name).collect(),
        })
    }
}

fn endpoint(url: &str, signal: &str, path: &str, var: Variables) -> Result<Endpoint, Failure> {
    // the variable of a signal takes precedence
    let of = |what: &str| {
        let variable = format!("OTEL_EXPORTER_OTLP_{signal}_{what}");
        let both = format!("OTEL_EXPORTER_OTLP_{what}");
        var(&variable).map(|value| (variable, value)).or_else(|| var(&both).map(|value| (both, value)))
    };
    if let Some((name, value)) = of("PROTOCOL")
        && value != "http/protobuf"
    {
        return Err(bad(&name, &value, "http/protobuf, which is all that rbt supports"));
    }
    let below = |name: &str, url: &str| {
        let mut endpoint = parse(name, url)?;
        endpoint.path = format!("{}/{path}", endpoint.path.trim_end_matches('/'));
        Ok(endpoint)
    };
    let variable = format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT");
    let mut endpoint = match (url == FROM_ENVIRONMENT, var(&variable), var("OTEL_EXPORTER_OTLP_ENDPOINT")) {
        (false, ..) => below("--otlp", url),
        (true, Some(url), _) => parse(&variable, &url),
        (true, None, Some(url)) => below("OTEL_EXPORTER_OTLP_ENDPOINT", &url),
        (true, None, None) => below("--otlp", DEFAULT_URL),
    }?;
    if let Some((name, text)) = of("HEADERS") {
        endpoint.headers = pairs(&name, &text)?;
        let harmful = |text: &str| text.is_empty() || text.contains(|c: char| c.is_control());
        let is_bad = |(key, value): &(String, String)| harmful(key) || key.contains([' ', ':']) || value.contains(|c: char| c.is_control());
        if endpoint.headers.iter().any(is_bad) {
            return Err(bad(&name, &text, "headers, such as api-key=secret,other=value"));
        }
        let is_own = |key: &String| OWN_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(key));
        if endpoint.headers.iter().any(|(key, _)| is_own(key)) {
            return Err(bad(&name, &text, &format!("free of {}, which rbt sends itself", OWN_HEADERS.join(", "))));
        }
    }
    if let Some(trust) = &mut endpoint.server.tls {
        trust.authorities = of("CERTIFICATE").map(|(_, path)| path.into());
        trust.identity = match (of("CLIENT_CERTIFICATE"), of("CLIENT_KEY")) {
            (Some((_, certificate)), key) => {
                Some(Identity { certificate: certificate.into(), key: key.map(|(_, path)| PathBuf::from(path)) })
            }
            (None, None) => None,
            (None, Some((name, value))) => return Err(bad(&name, &value, "used without OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE")),
        };
    }
    if let Some((name, value)) = of("COMPRESSION") {
        endpoint.gzip = match value.as_str() {
            "gzip" => true,
            "none" => false,
            _ => return Err(bad(&name, &value, "gzip or none")),
        };
    }
    if let Some((name, value)) = of("TIMEOUT") {
        endpoint.timeout = Duration::from_millis(value.parse().ok().filter(|n| *n > 0).ok_or_else(|| bad(&name, &value, "milliseconds"))?);
    }
    Ok(endpoint)
}

fn parse(name: &str, url: &str) -> Result<Endpoint, Failure> {
    let error = || bad(name, url, "a URL such as http://localhost:4318");
    let (scheme, rest) = url.split_once("://").ok_or_else(error)?;
    let (tls, default_port) = match scheme {
        "http" => (None, HTTP_PORT),
        "https" => (Some(Trust::default()), HTTPS_PORT),
        _ => return Err(error()),
    };
    let (authority, path) = rest.split_once('/').map_or((rest, "/".into()), |(authority, path)| (authority, format!("/{path}")));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok().filter(|port| *port > 0).ok_or_else(error)?),
        _ => (authority, default_port),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
    if bare.is_empty() || !bare.chars().all(plain) || !path.chars().all(|c| c.is_ascii_graphic()) || path.contains(['?', '#']) {
        return Err(error());
    }
    let timeout = Duration::from_secs(10);
    Ok(Endpoint { server: http::Endpoint { host: bare.into(), port, tls }, path, headers: Vec::new(), timeout, gzip: false })
}

fn bad(name: &str, value: &str, wanted: &str) -> Failure {
    Failure::new(format!("{name}: `{value}` is not {wanted}"))
}

/// A queue, from the variables with this prefix. The defaults of the specification (5 s, 2048 and 512) are intended for records of
/// applications.
fn queue(prefix: &str, var: Variables) -> Result<Queue, Failure> {
    let max_items = count(&format!("{prefix}_MAX_QUEUE_SIZE"), 65_536, var)?;
    Ok(Queue {
        delay: milliseconds(&format!("{prefix}_SCHEDULE_DELAY"), 1000, var)?,
        max_items,
        batch: count(&format!("{prefix}_MAX_EXPORT_BATCH_SIZE"), 4096, var)?.min(max_items),
    })
}

fn milliseconds(name: &str, default: u64, var: Variables) -> Result<Duration, Failure> {
    let n = match var(name) {
        Some(value) => value.parse().ok().filter(|n| (1..=86_400_000).contains(n)).ok_or_else(|| bad(name, &value, "milliseconds"))?,
        None => default,
    };
    Ok(Duration::from_millis(n))
}

fn count(name: &str, default: usize, var: Variables) -> Result<usize, Failure> {
    match var(name) {
        Some(value) => {
            value.parse().ok().filter(|n| (1..=10_000_000).contains(n)).ok_or_else(|| bad(name, &value, "a number from 1 to 10000000"))
        }
        None => Ok(default),
    }
}

/// `key=value,key=value`, with percent-encoding.
fn pairs(name: &str, text: &str) -> Result<Vec<(String, String)>, Failure> {
    let pair = |part: &str| {
        let (key, value) = part.split_once('=')?;
        Some((decoded(key.trim())?, decoded(value.trim())?)).filter(|(key, _)| !key.is_empty())
    };
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    parts.map(|part| pair(part).ok_or_else(|| bad(name, text, "a list such as key=value,other=value"))).collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok().filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = rest.get(2..)?;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str, vars: &[(&str, &str)]) -> Result<Config, String> {
        let var = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
        Config::new(url, &var).map_err(|failure| failure.message)
    }

    #[test]
    fn environment_variables_apply() {
        let of =
            |endpoint: Option<Endpoint>| endpoint.map(|e| format!("{}:{}{}", e.server.host, e.server.port, e.path)).unwrap_or_default();
        let plain = config("http://[::1]:1/a/", &[]).unwrap();
        assert_eq!((of(plain.metrics), of(plain.logs)), ("::1:1/a/v1/metrics".into(), "::1:1/a/v1/logs".into()));
        let vars = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://l/x"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b%20c,d=e"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "5"),
            ("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=p,x=%C3%A9"),
            ("OTEL_SERVICE_NAME", "s"),
        ];
        let all = config("env", &vars).unwrap();
        let metrics = all.metrics.clone().unwrap();
        assert_eq!((metrics.timeout, metrics.headers.len()), (Duration::from_millis(5), 2));
        assert_eq!(metrics.headers[0], ("a".into(), "b c".into()));
        assert_eq!((of(all.metrics), of(all.logs)), ("c:4318/v1/metrics".into(), "l:80/x".into()));
        // without a path, the endpoint of one signal is the root
        let root = config("env", &[("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://l:5")]).unwrap();
        assert_eq!(of(root.logs), "l:5/");
        assert_eq!(all.resource[1..], [("x".into(), "é".into()), ("service.name".into(), "s".into())]);
        assert!(config("env", &[("OTEL_LOGS_EXPORTER", "none")]).unwrap().logs.is_none());
        let vars = [
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "ca"),
            ("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "other"),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "cert"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "key"),
        ];
        let secure = config("https://c", &vars).unwrap();
        let identity = Some(Identity { certificate: "cert".into(), key: Some("key".into()) });
        for (endpoint, authorities) in [(secure.metrics, "other"), (secure.logs, "ca")] {
            let endpoint = endpoint.unwrap();
            assert_eq!(
                (endpoint.server.port, endpoint.server.tls),
                (443, Some(Trust { authorities: Some(authorities.into()), identity: identity.clone() }))
            );
        }
        assert_eq!(config("http://c", &vars).unwrap().logs.unwrap().server.tls, None);
    }

    #[test]
    fn reports_unusable_settings() {
        for (url, vars, part) in [
            ("localhost:4318", &[][..], "is not a URL"),
            ("ftp://a", &[], "is not a URL"),
            ("https://a", &[("OTEL_EXPORTER_OTLP_CLIENT_KEY", "k")], "CLIENT_CERTIFICATE"),
            ("http://a b", &[], "is not a URL"),
            ("http://a:99999", &[], "is not a URL"),
            ("http://", &[], "is not a URL"),
            ("http://a", &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], "http/protobuf"),
            ("http://a", &[("OTEL_EXPORTER_OTLP_HEADERS", "a=b%0d%0ac")], "headers"),
            ("http://a", &[("OTEL_EXPORTER_OTLP_HEADERS", "a=b,content-length=3")], "which rbt sends itself"),
            ("http://a", &[("OTEL_RESOURCE_ATTRIBUTES", "a")], "key=value"),
            ("http://a", &[("OTEL_METRIC_EXPORT_INTERVAL", "0")], "milliseconds"),
        ] {
            let message = config(url, vars).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }
}
