//! The files of the dashboard's web page. The program contains these files.

use axum::{
    extract::Path,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

/// Content security policy of the dashboard. The page may load files only from this gateway. The
/// browser does not execute inline scripts and styles, because an attacker could hide a script in a
/// file name.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Name, media type and content of each file.
const ASSETS: [(&str, &str, &str); 18] = [
    ("page.css", STYLE, include_str!("assets/page.css")),
    ("uPlot.min.css", STYLE, include_str!("assets/uPlot.min.css")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
    ("uPlot.esm.js", SCRIPT, include_str!("assets/uPlot.esm.js")),
    (
        "uPlot-LICENSE.txt",
        "text/plain; charset=utf-8",
        include_str!("assets/uPlot-LICENSE.txt"),
    ),
    ("main.js", SCRIPT, include_str!("assets/main.js")),
    ("login.js", SCRIPT, include_str!("assets/login.js")),
    ("ask.js", SCRIPT, include_str!("assets/ask.js")),
    ("feed.js", SCRIPT, include_str!("assets/feed.js")),
    ("format.js", SCRIPT, include_str!("assets/format.js")),
    ("overview.js", SCRIPT, include_str!("assets/overview.js")),
    ("peers.js", SCRIPT, include_str!("assets/peers.js")),
    ("plots.js", SCRIPT, include_str!("assets/plots.js")),
    ("running.js", SCRIPT, include_str!("assets/running.js")),
    ("controls.js", SCRIPT, include_str!("assets/controls.js")),
    ("recent.js", SCRIPT, include_str!("assets/recent.js")),
    ("stores.js", SCRIPT, include_str!("assets/stores.js")),
    ("table.js", SCRIPT, include_str!("assets/table.js")),
];

pub(super) async fn page() -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, HTML)],
        include_str!("assets/page.html"),
    )
}

/// Returns the page for clients that have not logged in.
pub(super) fn login_page() -> Response {
    (
        StatusCode::UNAUTHORIZED,
        [(header::CONTENT_TYPE, HTML)],
        include_str!("assets/login.html"),
    )
        .into_response()
}

pub(super) async fn asset(Path(name): Path<String>) -> Response {
    match ASSETS.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, text)) => ([(header::CONTENT_TYPE, *kind)], *text).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the URLs in the `href` and `src` attributes of a page.
    fn addresses(page: &str) -> Vec<&str> {
        let attributes = ["href=\"", "src=\""];
        let found = attributes.iter().flat_map(|it| page.split(it).skip(1));
        found.filter_map(|it| it.split('"').next()).collect()
    }

    #[test]
    fn a_page_below_a_path_of_a_proxy_finds_its_parts() {
        let pages = [
            include_str!("assets/page.html"),
            include_str!("assets/login.html"),
        ];
        for page in pages {
            let addresses = addresses(page);
            assert!(addresses.len() > 2, "{addresses:?}");
            for address in addresses {
                let part = address.strip_prefix("dashboard/");
                let is_known = |name| ASSETS.iter().any(|(known, ..)| *known == name);
                let is_own = part.is_some_and(is_known) || address == "status.json";
                assert!(is_own || address.starts_with('#'), "{address}");
            }
        }
        let is_own = |name: &str, kind| kind == SCRIPT && !name.starts_with("uPlot");
        let own = ASSETS.iter().filter(|(name, kind, _)| is_own(name, *kind));
        for (name, _, text) in own {
            for absolute in ["\"/", "'/", "`/"] {
                assert!(!text.contains(absolute), "{name} has an absolute address");
            }
        }
    }
}
