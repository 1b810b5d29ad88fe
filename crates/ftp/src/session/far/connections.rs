//! State of the server's data connections: whether all bytes from the client have been written to
//! the server.

use std::collections::BTreeMap;

use crate::{
    command::DataDirection,
    session::{TransferId, data::far::FarDataEvent},
};

/// The open data connections of a session, and those without a final reply to their transfer.
#[derive(Debug, Default)]
pub(super) struct DataConnections {
    connections: BTreeMap<TransferId, Connection>,
}

#[derive(Debug, Default)]
struct Connection {
    is_upload: bool,
    /// Whether all bytes have been written. `None` while this is open.
    is_whole: Option<bool>,
    is_closed: bool,
    /// Whether the server refuses the data connection.
    is_refused: bool,
    worth: SuccessReport,
}

/// The server's final reply to the transfer.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum SuccessReport {
    #[default]
    None,
    /// A success, whose validity was not reported to the near half yet.
    Success,
    /// The near half needs no further report.
    Done,
}

impl DataConnections {
    /// Adds a data connection that is being opened.
    pub(super) fn opened(&mut self, id: TransferId) {
        // A closed data connection without a command will not be used any more.
        self.connections.retain(|_, c| !c.is_closed || c.is_upload);
        self.connections.insert(id, Connection::default());
    }

    /// Assigns a transfer to the data connection.
    pub(super) fn commanded(&mut self, id: TransferId, direction: DataDirection) {
        let connection = self.connections.entry(id).or_insert(Connection {
            is_whole: Some(false),
            is_closed: true,
            ..Connection::default()
        });
        connection.is_upload = direction == DataDirection::Upload;
    }

    /// Records the server's final reply to the transfer. Returns whether its success is valid, if
    /// that is known.
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

    /// Handles an event of the data connection. Returns whether the server's success is valid, if
    /// that was unknown before.
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

    /// Whether the data connection of a transfer is open, or may open.
    pub(super) fn is_open(&self, id: TransferId) -> bool {
        let connection = self.connections.get(&id);
        connection.is_some_and(|c| !c.is_closed && !c.is_refused)
    }

    /// Whether the data connection of a download is open, or may open.
    pub(super) fn is_open_download(&self, id: TransferId) -> bool {
        let connection = self.connections.get(&id);
        connection.is_some_and(|c| !c.is_upload && !c.is_closed)
    }

    /// Whether a data connection is open.
    pub(super) fn any_open(&self) -> bool {
        self.connections.values().any(|c| !c.is_closed)
    }

    /// Whether the near half still needs a report on the validity of a success.
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
