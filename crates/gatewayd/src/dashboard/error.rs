//! Errors with which the dashboard refuses a request.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;

use pages::PageClient;

#[derive(Debug, thiserror::Error)]
pub(super) enum DashboardError {
    #[error(
        "the dashboard is off: [admin] listen is no loopback address, or a proxy passes this request on, and [admin] \
         token_file is not set"
    )]
    Off,
    #[error("a valid client certificate is required, signed by [admin.https] client_ca")]
    NoCertificate,
    #[error("log in with the token of [admin] token_file")]
    NoToken,
    #[error(
        "names of users, files and clients are hidden: log in with the token of [admin] token_file"
    )]
    HidesNames,
    #[error("this is not the token")]
    WrongToken,
    #[error(
        "changes and invites over TCP need a token: set [admin] token_file, or use the commands, such as \
         \"longhaul peer invite\""
    )]
    NeedsTokenFile,
    #[error("the request is from another page: its origin is not this address")]
    Origin,
    #[error("expected application/json")]
    NotJson,
    #[error("malformed request: {0}")]
    Malformed(String),
    #[error("{0}")]
    Value(String),
    #[error("there is no such {0}")]
    Nothing(&'static str),
    #[error("{0} pages are open, close one")]
    TooMany(usize),
    #[error("another process has replaced this one: try again")]
    Over,
    #[error("{0}")]
    Failed(String),
}

impl DashboardError {
    /// Returns the error for a request that needs a token while no token is configured.
    pub(super) fn without_token(client: &PageClient) -> Self {
        match client.is_tls {
            true => Self::NoCertificate,
            false => Self::Off,
        }
    }

    fn code(&self) -> StatusCode {
        match self {
            Self::Off | Self::NoCertificate | Self::NeedsTokenFile | Self::Origin => {
                StatusCode::FORBIDDEN
            }
            Self::NoToken | Self::HidesNames | Self::WrongToken => StatusCode::UNAUTHORIZED,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Value(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Nothing(_) => StatusCode::NOT_FOUND,
            Self::TooMany(_) | Self::Over => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for DashboardError {
    fn into_response(self) -> Response {
        let body = Json(json!({ "error": self.to_string() }));
        (self.code(), body).into_response()
    }
}
