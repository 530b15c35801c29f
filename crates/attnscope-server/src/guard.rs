//! Who may ask: a request must name a loopback host, and come from the page itself or from a program that says so. What the
//! framework refuses by itself gets the same form of answer as everything else.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::{JSON, refusal};

/// A header that a page of another site cannot send without asking first.
const OWN: HeaderName = HeaderName::from_static("x-attnscope");

/// What a browser may do with the page: run its script, use its style, ask this server. Nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data: blob:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) async fn guard(request: Request, next: Next) -> Response {
    let refused = refused(request.method(), request.uri().host(), request.headers());
    let mut response = match refused {
        Some(refused) => refused,
        None => in_json(next.run(request).await),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// An error of the framework, which is plain text or empty, in the form of all other errors.
fn in_json(response: Response) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let kind = response.headers().get(header::CONTENT_TYPE);
    if !is_error || kind.is_some_and(|kind| kind == JSON) {
        return response;
    }
    let (error, help) = match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            ("this address is not asked in this way", "docs/serve.md lists the API")
        }
        _ => ("the request cannot be read", "docs/serve.md describes what is expected"),
    };
    refusal(status, error, help)
}

fn refused(method: &Method, in_target: Option<&str>, headers: &HeaderMap) -> Option<Response> {
    let hosts = headers.get_all(header::HOST).iter();
    let hosts: Vec<Option<&str>> = hosts.map(|value| value.to_str().ok()).collect();
    let host = match (&hosts[..], in_target) {
        ([Some(host)], None) => is_loopback(host),
        ([Some(host)], Some(target)) => is_loopback(host) && is_loopback(target),
        _ => false,
    };
    if !host {
        let help = "open the address that was printed, or forward its port and open localhost";
        return Some(refusal(
            StatusCode::MISDIRECTED_REQUEST,
            "this server answers to loopback names only",
            help,
        ));
    }
    let origin = headers.get(header::ORIGIN);
    let is_own = match (&hosts[..], origin.map(HeaderValue::to_str)) {
        ([Some(host)], Some(Ok(origin))) => is_origin_of(origin, host),
        _ => false,
    };
    if origin.is_some() && !is_own {
        let help = "only the server's own page may ask it";
        return Some(refusal(StatusCode::FORBIDDEN, "the request comes from another site", help));
    }
    let changes = *method != Method::GET && *method != Method::HEAD;
    if changes && !is_own && !headers.contains_key(OWN) {
        let help = "a program adds the header `X-Attnscope: 1`";
        return Some(refusal(StatusCode::FORBIDDEN, "the request does not say where it comes from", help));
    }
    None
}

/// `localhost:8080`, `127.0.0.1`, `[::1]:3000`: a loopback name or address, on any port.
fn is_loopback(authority: &str) -> bool {
    let (name, port) = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) => (name, port),
            None => return false,
        },
        None => match authority.rfind(':') {
            Some(colon) => authority.split_at(colon),
            None => (authority, ""),
        },
    };
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let is_address = name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    is_port && (is_address || name.eq_ignore_ascii_case("localhost"))
}

/// Whether a page of this origin was served under this host, port included: other programs on this machine have pages, too. A
/// forwarded port is the same in both.
fn is_origin_of(origin: &str, host: &str) -> bool {
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_names_are_answered_on_any_port() {
        for host in ["localhost", "LocalHost:80", "127.0.0.1:8080", "127.1.2.3", "[::1]", "[::1]:3000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "example.com",
            "localhost.example.com",
            "localhost:",
            "localhost:99999",
            "127.0.0.1.nip.io",
            "10.0.0.1:80",
            "[::1",
            "[::2]:80",
            "user@localhost",
            "0.0.0.0",
            "127.0.0.1:80:80",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn other_sites_are_refused() {
        let status = |method: Method, pairs: &[(&str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap());
            }
            refused(&method, None, &headers).map(|response| response.status().as_u16())
        };
        let host = ("host", "localhost:1");
        assert_eq!(status(Method::GET, &[host]), None);
        assert_eq!(status(Method::GET, &[]), Some(421));
        assert_eq!(status(Method::GET, &[host, ("host", "localhost:2")]), Some(421));
        assert_eq!(status(Method::GET, &[("host", "evil.example")]), Some(421));
        assert_eq!(status(Method::GET, &[host, ("origin", "http://evil.example")]), Some(403));
        assert_eq!(status(Method::POST, &[host, ("origin", "null"), ("x-attnscope", "1")]), Some(403));
        assert_eq!(status(Method::POST, &[host]), Some(403));
        assert_eq!(status(Method::POST, &[host, ("x-attnscope", "1")]), None);
        // A forwarded port is another one than the server's, and the page's own.
        assert_eq!(status(Method::POST, &[host, ("origin", "http://localhost:1")]), None);
        for other in ["http://localhost:2", "http://127.0.0.1:1", "http://localhost", "localhost:1"] {
            assert_eq!(status(Method::GET, &[host, ("origin", other)]), Some(403), "{other}");
            assert_eq!(status(Method::POST, &[host, ("origin", other)]), Some(403), "{other}");
        }
    }
}
