//! Folders whose entries the client has read, and the order in which the client uses the entries.

use bytes::Bytes;

use crate::{
    Rope,
    packet::{Attrs, FieldReader, PacketError, kind},
};

/// Request that the near half may send before the client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ForecastKind {
    /// OPEN of a regular file for reading.
    Open,
    Stat,
    Lstat,
}

/// Number of kinds.
pub(super) const KINDS: usize = 3;

/// Order in which a client uses the entries of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Order {
    /// The order of the server's answers.
    #[default]
    Listed,
    /// The order of the names as bytes.
    Named,
}

/// Position of a request within the order of its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Usage {
    /// The path is in no folder that the client has read.
    Unlisted,
    /// The request is the first one of its kind in the folder.
    First {
        /// Whether the entry is the first one for requests of this kind, in one of the two orders.
        is_start: bool,
    },
    /// The request concerns the entry of the last request, or an entry a little before that entry.
    Repeated,
    /// The request concerns an entry that follows the entry of the last request.
    InOrder,
    /// The client uses the entries in no known order.
    OutOfOrder,
}

/// Entry of a folder that a request may concern next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NextEntry {
    pub(super) path: Bytes,
    pub(super) size_bytes: u64,
}

#[derive(Debug)]
struct Entry {
    name: Bytes,
    is_file: bool,
    size_bytes: u64,
}

/// Last request of a kind in a folder.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    /// Position of the entry in the order of the listing.
    listed: usize,
    /// Position of the entry in the order of the names.
    named: usize,
    /// `None` if the client uses the entries in no known order.
    order: Option<Order>,
}

#[derive(Debug)]
struct Listing {
    /// Number of the handle by which the client reads the folder.
    handle: u64,
    /// Path of the folder, with a slash at its end.
    prefix: Vec<u8>,
    entries: Vec<Entry>,
    /// Positions of the entries in the listing, sorted by name. Empty until the client has read the
    /// whole folder.
    by_name: Vec<u32>,
    cursors: [Option<Cursor>; KINDS],
    bytes: usize,
}

/// Folders that the client has read. The newest one is the last one.
#[derive(Debug, Default)]
pub(super) struct Listings {
    folders: Vec<Listing>,
    bytes: usize,
    /// Order of the last requests of each kind.
    orders: [Order; KINDS],
}

impl Listings {
    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Accepts the path of a folder that the client has opened.
    pub(super) fn begin(&mut self, handle: u64, path: &[u8]) {
        let mut prefix = path.to_vec();
        if prefix.last() != Some(&b'/') {
            prefix.push(b'/');
        }
        self.remove(|listing| listing.prefix == prefix);
        while self.folders.len() >= FOLDERS_MAX || self.bytes > LISTINGS_BYTES_MAX / 2 {
            self.remove_oldest();
        }
        let bytes = FOLDER_COST + prefix.len();
        self.bytes += bytes;
        self.folders.push(Listing {
            handle,
            prefix,
            entries: Vec::new(),
            by_name: Vec::new(),
            cursors: [None; KINDS],
            bytes,
        });
    }

    /// Accepts a NAME packet of the folder. Drops the folder if it is too long or malformed.
    pub(super) fn add(&mut self, handle: u64, packet: &Rope) {
        let Some(at) = self.position(handle) else {
            return;
        };
        let listing = &mut self.folders[at];
        let room = LISTINGS_BYTES_MAX.saturating_sub(self.bytes);
        match listing.add(packet.clone(), room) {
            Some(bytes) => self.bytes += bytes,
            None => self.remove(|listing| listing.handle == handle),
        }
    }

    /// Accepts the end of the folder.
    pub(super) fn complete(&mut self, handle: u64) {
        if let Some(at) = self.position(handle) {
            let Listing {
                entries, by_name, ..
            } = &mut self.folders[at];
            by_name.extend(0..entries.len() as u32);
            let name = |at: u32| &entries[at as usize].name;
            by_name.sort_unstable_by(|a, b| name(*a).cmp(name(*b)));
        }
    }

    /// Accepts a request of the client, and returns its position in the order.
    pub(super) fn used(&mut self, kind: ForecastKind, path: &[u8]) -> Usage {
        let usual = self.orders[kind as usize];
        let Some((folder, named)) = self.find(path) else {
            return Usage::Unlisted;
        };
        let listing = &mut self.folders[folder];
        let listed = listing.by_name[named] as usize;
        let mut cursor = Cursor {
            listed,
            named,
            order: None,
        };
        let usage = match listing.cursors[kind as usize] {
            None => {
                let is_start = |order: &Order| listing.is_start(*order, cursor.at(*order), kind);
                cursor.order = [usual, usual.other()].into_iter().find(is_start);
                let is_start = cursor.order.is_some();
                Usage::First { is_start }
            }
            Some(last) if last.listed == listed => {
                cursor.order = last.order;
                Usage::Repeated
            }
            Some(last) => {
                let step = |order| cursor.at(order).wrapping_sub(last.at(order));
                let mut orders = [Order::Listed, Order::Named];
                orders.sort_by_key(|order| (step(*order), last.order != Some(*order)));
                cursor.order = Some(orders[0]).filter(|order| step(*order) <= STEP_MAX);
                let back = |order| last.at(order).wrapping_sub(cursor.at(order));
                if cursor.order.is_some() {
                    Usage::InOrder
                } else if last.order.is_some_and(|order| back(order) <= STEP_MAX) {
                    // Some clients use several entries at a time.
                    cursor = last;
                    Usage::Repeated
                } else {
                    Usage::OutOfOrder
                }
            }
        };
        listing.cursors[kind as usize] = Some(cursor);
        if let Some(order) = cursor.order {
            self.orders[kind as usize] = order;
        }
        usage
    }

    /// Returns, in order, the entries that a client may use after the entry at `path`.
    pub(super) fn after(&self, kind: ForecastKind, path: &[u8], count: usize) -> Vec<NextEntry> {
        let Some((folder, _)) = self.find(path) else {
            return Vec::new();
        };
        let listing = &self.folders[folder];
        let Some(cursor) = listing.cursors[kind as usize] else {
            return Vec::new();
        };
        let order = cursor.order.unwrap_or_default();
        let next = cursor.at(order) + 1..listing.by_name.len();
        let entries = next.map(|at| listing.entry(order, at));
        let next = entries.filter(|entry| entry.suits(kind)).take(count);
        next.map(|entry| NextEntry {
            path: [&listing.prefix[..], &entry.name].concat().into(),
            size_bytes: entry.size_bytes,
        })
        .collect()
    }

    fn position(&self, handle: u64) -> Option<usize> {
        let is_open = |listing: &Listing| listing.handle == handle && listing.by_name.is_empty();
        self.folders.iter().position(is_open)
    }

    /// Returns the position of a path's folder among the folders, and the position of the path in
    /// the order of the names.
    fn find(&self, path: &[u8]) -> Option<(usize, usize)> {
        let slash = path.iter().rposition(|byte| *byte == b'/')?;
        let (prefix, name) = path.split_at(slash + 1);
        let mut folders = self.folders.iter();
        let folder = folders.position(|listing| listing.prefix == prefix)?;
        let Listing {
            entries, by_name, ..
        } = &self.folders[folder];
        let named = by_name.binary_search_by(|at| entries[*at as usize].name[..].cmp(name));
        Some((folder, named.ok()?))
    }

    fn remove_oldest(&mut self) {
        if !self.folders.is_empty() {
            self.bytes -= self.folders.remove(0).bytes;
        }
    }

    fn remove(&mut self, is_removed: impl Fn(&Listing) -> bool) {
        let bytes = &mut self.bytes;
        self.folders.retain(|listing| {
            let is_removed = is_removed(listing);
            *bytes -= if is_removed { listing.bytes } else { 0 };
            !is_removed
        });
    }
}

impl Order {
    fn other(self) -> Self {
        match self {
            Self::Listed => Self::Named,
            Self::Named => Self::Listed,
        }
    }
}

impl Cursor {
    fn at(self, order: Order) -> usize {
        match order {
            Order::Listed => self.listed,
            Order::Named => self.named,
        }
    }
}

impl Listing {
    fn entry(&self, order: Order, at: usize) -> &Entry {
        match order {
            Order::Listed => &self.entries[at],
            Order::Named => &self.entries[self.by_name[at] as usize],
        }
    }

    /// Returns true if no entry before the position `at` suits requests of this kind.
    fn is_start(&self, order: Order, at: usize, kind: ForecastKind) -> bool {
        !(0..at).any(|before| self.entry(order, before).suits(kind))
    }

    /// Appends the entries of a NAME packet. Returns their memory in bytes, or `None` if the packet
    /// is malformed or needs more than `room` bytes.
    fn add(&mut self, mut packet: Rope, room: usize) -> Option<usize> {
        if packet.is_empty() {
            return None;
        }
        packet.advance(1);
        let mut fields = FieldReader::new(kind::NAME, packet);
        let mut bytes = 0;
        for _ in 0..fields.u32().ok()? {
            let entry = Entry::read(&mut fields).ok()?;
            if entry.name.contains(&b'/') || [&b""[..], b".", b".."].contains(&&entry.name[..]) {
                continue;
            }
            bytes += ENTRY_COST + entry.name.len();
            if bytes > room {
                return None;
            }
            self.entries.push(entry);
        }
        self.bytes += bytes;
        Some(bytes)
    }
}

impl Entry {
    fn read(fields: &mut FieldReader) -> Result<Self, PacketError> {
        // Without the copy, the name would keep the whole packet in memory.
        let name = Bytes::copy_from_slice(&fields.string()?);
        fields.string()?;
        let attrs = Attrs::read(fields)?;
        let is_file = attrs
            .permissions
            .is_some_and(|mode| mode & FORMAT == REGULAR);
        Ok(Self {
            name,
            is_file,
            size_bytes: attrs.size.unwrap_or(u64::MAX),
        })
    }

    /// Returns whether requests of a kind may concern the entry. The near half opens only regular
    /// files, because the OPEN of a pipe or a device may block or have an effect.
    fn suits(&self, kind: ForecastKind) -> bool {
        kind != ForecastKind::Open || self.is_file
    }
}

/// Bits of a mode that state the type of a file.
const FORMAT: u32 = 0o170_000;

/// Type of a regular file.
const REGULAR: u32 = 0o100_000;

/// Maximum step between the entries of two requests. After a larger step, the requests do not count
/// as in order. Some clients skip hidden files.
const STEP_MAX: usize = 16;

/// Maximum number of folders in memory. A client that copies a tree returns to the folders above.
const FOLDERS_MAX: usize = 16;

/// Maximum memory of all folders in bytes: more than 10,000 entries.
pub(super) const LISTINGS_BYTES_MAX: usize = 1 << 20;

/// Memory in bytes of an entry without its name.
const ENTRY_COST: usize = 64;

/// Memory in bytes of a folder without its path and its entries.
const FOLDER_COST: usize = 256;
