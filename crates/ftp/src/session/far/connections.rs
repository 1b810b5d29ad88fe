//! State of the server's data connections. The state shows whether the gateway has written all
//! bytes of an upload to the server.

use std::collections::BTreeMap;

use crate::{
    command::DataDirection,
    session::{TransferId, data::far::FarDataEvent},
};

/// Data connections of one session. Each of them is open, or its transfer has no final reply yet.
#[derive(Debug, Default)]
pub(super) struct DataConnections {
    connections: BTreeMap<TransferId, Connection>,
}

#[derive(Debug, Default)]
struct Connection {
    is_upload: bool,
    /// Whether all bytes of the upload have been written to the server. `None` while the result is
    /// unknown.
    is_whole: Option<bool>,
    is_closed: bool,
    /// Whether the data connection failed to open.
    is_refused: bool,
    worth: SuccessReport,
}

/// State of the report on an upload. The report states whether all bytes were written to the
/// server. The near gateway needs this report only if the server's final reply is a success.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum SuccessReport {
    #[default]
    None,
    /// The server has reported success. The gateway has not yet reported to the near gateway
    /// whether all bytes were written.
    Success,
    /// The near gateway needs no further report.
    Done,
}

impl DataConnections {
    /// Adds a data connection when the gateway starts to open it.
    pub(super) fn opened(&mut self, id: TransferId) {
        // A closed data connection without a command will not be used any more.
        self.connections.retain(|_, c| !c.is_closed || c.is_upload);
        self.connections.insert(id, Connection::default());
    }

    /// Records the direction of the transfer that uses the data connection.
    pub(super) fn commanded(&mut self, id: TransferId, direction: DataDirection) {
        let connection = self.connections.entry(id).or_insert(Connection {
            is_whole: Some(false),
            is_closed: true,
            ..Connection::default()
        });
        connection.is_upload = direction == DataDirection::Upload;
    }

    /// Records the server's final reply to the transfer. For a successful upload, returns whether
    /// all bytes were written. Returns `None` if the result is unknown, or if no report is needed.
    pub(super) fn answered(&mut self, id: TransferId, succeeded: bool) -> Option<bool> {
        let connection = self.connections.get_mut(&id)?;
        if connection.worth == SuccessReport::None {
            connection.worth = match succeeded && connection.is_upload {
                true => SuccessReport::Success,
                false => SuccessReport::Done,
            };
        }
        self.report(id)
    }

    /// Handles an event of the data connection. If the event shows whether all bytes of a
    /// successful upload were written, returns this result.
    pub(super) fn on_event(&mut self, id: TransferId, event: FarDataEvent) -> Option<bool> {
        let connection = self.connections.get_mut(&id)?;
        match event {
            FarDataEvent::Refused => connection.is_refused = true,
            FarDataEvent::Delivered => connection.is_whole = connection.is_whole.or(Some(true)),
            FarDataEvent::Lost => connection.is_whole = Some(false),
            FarDataEvent::Closed => {
                connection.is_closed = true;
                connection.is_whole.get_or_insert(false);
            }
        }
        self.report(id)
    }

    /// Whether the data connection of the transfer is open or is being opened.
    pub(super) fn is_open(&self, id: TransferId) -> bool {
        let connection = self.connections.get(&id);
        connection.is_some_and(|c| !c.is_closed && !c.is_refused)
    }

    /// Whether the transfer is a download whose data connection is not closed.
    pub(super) fn is_open_download(&self, id: TransferId) -> bool {
        let connection = self.connections.get(&id);
        connection.is_some_and(|c| !c.is_upload && !c.is_closed)
    }

    /// Whether at least one data connection of the session is not closed yet.
    pub(super) fn any_open(&self) -> bool {
        self.connections.values().any(|c| !c.is_closed)
    }

    /// Whether the near gateway still needs a report on a successful upload.
    pub(super) fn any_unreported(&self) -> bool {
        let mut connections = self.connections.values();
        connections.any(|c| c.worth == SuccessReport::Success)
    }

    fn report(&mut self, id: TransferId) -> Option<bool> {
        let connection = self.connections.get_mut(&id)?;
        let is_awaited = connection.worth == SuccessReport::Success;
        let news = connection.is_whole.filter(|_| is_awaited);
        if news.is_some() {
            connection.worth = SuccessReport::Done;
        }
        if connection.is_closed && connection.worth == SuccessReport::Done {
            self.connections.remove(&id);
        }
        news
    }
}
