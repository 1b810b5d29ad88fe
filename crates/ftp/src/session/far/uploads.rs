//! What became of the server's data connections: whether everything from the client has been
//! written to the server.

use std::collections::BTreeMap;

use crate::{
    command::Direction,
    session::{TransferId, data::far::Event},
};

/// The data connections of a session that are open, and those whose upload has not been reported.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    connections: BTreeMap<TransferId, Connection>,
}

#[derive(Debug, Default)]
struct Connection {
    is_upload: bool,
    /// Whether everything has been written; `None` while that is open.
    is_whole: Option<bool>,
    is_closed: bool,
    has_told: bool,
}

impl Uploads {
    /// A data connection is being opened.
    pub(super) fn opened(&mut self, id: TransferId) {
        // Those that no command has used are used by none any more.
        self.connections.retain(|_, c| !c.is_closed || c.is_upload);
        self.connections.insert(id, Connection::default());
    }

    /// A transfer uses it. Returns how the upload has ended, if it has.
    pub(super) fn commanded(&mut self, id: TransferId, direction: Direction) -> Option<bool> {
        let connection = self.connections.entry(id).or_insert(Connection {
            is_whole: Some(false),
            is_closed: true,
            ..Connection::default()
        });
        connection.is_upload = direction == Direction::Upload;
        self.report(id)
    }

    /// Something happened to it. Returns how its upload has ended, if that is news.
    pub(super) fn on_event(&mut self, id: TransferId, event: Event) -> Option<bool> {
        let connection = self.connections.get_mut(&id)?;
        match event {
            Event::Refused => {}
            Event::Delivered => connection.is_whole = connection.is_whole.or(Some(true)),
            Event::Lost => connection.is_whole = Some(false),
            Event::Closed => {
                connection.is_closed = true;
                connection.is_whole.get_or_insert(false);
            }
        }
        self.report(id)
    }

    /// Whether a data connection is open.
    pub(super) fn any_open(&self) -> bool {
        self.connections.values().any(|c| !c.is_closed)
    }

    /// Whether the end of an upload has not been reported.
    pub(super) fn any_unreported(&self) -> bool {
        let mut connections = self.connections.values();
        connections.any(|c| c.is_upload && !c.has_told)
    }

    fn report(&mut self, id: TransferId) -> Option<bool> {
        let connection = self.connections.get_mut(&id)?;
        let news = connection
            .is_whole
            .filter(|_| connection.is_upload && !connection.has_told);
        connection.has_told |= news.is_some();
        if connection.is_closed && connection.has_told {
            self.connections.remove(&id);
        }
        news
    }
}
