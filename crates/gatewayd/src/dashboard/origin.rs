//! Check that a request for a change comes from this gateway's own web page or from a program.
//!
//! A browser names the site of the requesting page in `Origin`, and a page cannot change this
//! header. A program sends no `Origin`. The gateway refuses a request that has no `Origin` but has
//! other headers that only browsers send.

use axum::{
    extract::{ConnectInfo, Request},
    http::{HeaderMap, HeaderName, header},
    middleware::Next,
    response::Response,
};

use super::error::DashboardError;
use pages::PageClient;

/// Accepts only requests from this gateway's own web page and from programs. The body must be JSON,
/// because an HTML form of another site cannot send JSON.
pub(super) async fn check(
    ConnectInfo(client): ConnectInfo<PageClient>,
    request: Request,
    next: Next,
) -> Result<Response, DashboardError> {
    let headers = request.headers();
    // A proxy may receive the request over TLS and forward it without TLS.
    let schemes: &[&str] = match client.is_tls {
        true => &["https"],
        false => &["http", "https"],
    };
    if !is_own(headers, schemes) {
        return Err(DashboardError::Origin);
    }
    if !is_json(headers) {
        return Err(DashboardError::NotJson);
    }
    Ok(next.run(request).await)
}

fn is_own(headers: &HeaderMap, schemes: &[&str]) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).into_iter();
    let (Some(origin), None) = (origins.next(), origins.next()) else {
        return !headers.contains_key(header::ORIGIN)
            && !OF_BROWSERS.iter().any(|name| headers.contains_key(name));
    };
    let host = headers.get(header::HOST).and_then(|it| it.to_str().ok());
    let origin = origin.to_str().ok();
    let origin = origin.and_then(|it| it.split_once("://"));
    match (origin, host) {
        (Some((scheme, authority)), Some(host)) => {
            schemes.contains(&scheme) && authority.eq_ignore_ascii_case(host)
        }
        _ => false,
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let (kind, _) = kind.split_once(';').unwrap_or((kind, ""));
    kind.trim().eq_ignore_ascii_case("application/json")
}

const OF_BROWSERS: [HeaderName; 5] = [
    header::COOKIE,
    header::REFERER,
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("sec-fetch-mode"),
    HeaderName::from_static("sec-fetch-dest"),
];

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn is_own(headers: &HeaderMap) -> bool {
        super::is_own(headers, &["http", "https"])
    }

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let lines = lines.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn own_pages_and_programs_may_ask() {
        let host = ("host", "gw.example:9810");
        for origin in ["http://gw.example:9810", "https://GW.example:9810"] {
            assert!(is_own(&headers(&[host, ("origin", origin)])), "{origin}");
        }
        assert!(is_own(&headers(&[host])), "a program");
    }

    #[test]
    fn pages_without_tls_may_not_where_there_is_tls() {
        let of = |origin| headers(&[("host", "gw.example:9443"), ("origin", origin)]);
        assert!(super::is_own(&of("https://gw.example:9443"), &["https"]));
        assert!(!super::is_own(&of("http://gw.example:9443"), &["https"]));
    }

    #[test]
    fn other_pages_may_not() {
        let host = ("host", "gw.example:9810");
        for origin in [
            "http://evil.example",
            "http://gw.example",
            "http://gw.example:9811",
            "http://gw.example:9810.evil.example",
            "http://evil.example@gw.example:9810",
            "file://gw.example:9810",
            "null",
            "",
        ] {
            assert!(!is_own(&headers(&[host, ("origin", origin)])), "{origin}");
        }
        let own = ("origin", "http://gw.example:9810");
        let two = headers(&[host, own, ("origin", "http://evil.example")]);
        assert!(!is_own(&two));
        assert!(!is_own(&headers(&[own])), "no host");
        for sign in ["cookie", "referer", "sec-fetch-site"] {
            assert!(!is_own(&headers(&[host, (sign, "x")])), "{sign}");
        }
    }

    #[test]
    fn forms_are_no_json() {
        let of = |kind| is_json(&headers(&[("content-type", kind)]));
        assert!(of("application/json") && of("Application/JSON; charset=utf-8"));
        assert!(!of("text/plain") && !of("application/x-www-form-urlencoded") && !of(""));
        assert!(!is_json(&HeaderMap::new()));
    }
}
