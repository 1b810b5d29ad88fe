//! Packet types: the first byte of each packet.

/// Greeting of the client.
pub const INIT: u8 = 1;
/// Greeting of the server.
pub const VERSION: u8 = 2;
/// Opens a file.
pub const OPEN: u8 = 3;
/// Closes a file or a folder.
pub const CLOSE: u8 = 4;
/// Reads from a file.
pub const READ: u8 = 5;
/// Writes to a file.
pub const WRITE: u8 = 6;
/// Reads the attributes of a path, without following a link.
pub const LSTAT: u8 = 7;
/// Reads the attributes of an open file.
pub const FSTAT: u8 = 8;
/// Sets the attributes of a path.
pub const SETSTAT: u8 = 9;
/// Sets the attributes of an open file.
pub const FSETSTAT: u8 = 10;
/// Opens a folder.
pub const OPENDIR: u8 = 11;
/// Reads entries of a folder.
pub const READDIR: u8 = 12;
/// Removes a file.
pub const REMOVE: u8 = 13;
/// Creates a folder.
pub const MKDIR: u8 = 14;
/// Removes a folder.
pub const RMDIR: u8 = 15;
/// Resolves a path.
pub const REALPATH: u8 = 16;
/// Reads the attributes of a path.
pub const STAT: u8 = 17;
/// Renames a file.
pub const RENAME: u8 = 18;
/// Reads the target of a link.
pub const READLINK: u8 = 19;
/// Creates a link.
pub const SYMLINK: u8 = 20;
/// Answer with a status code.
pub const STATUS: u8 = 101;
/// Answer with a handle.
pub const HANDLE: u8 = 102;
/// Answer with data.
pub const DATA: u8 = 103;
/// Answer with names.
pub const NAME: u8 = 104;
/// Answer with attributes.
pub const ATTRS: u8 = 105;
/// Request of an extension.
pub const EXTENDED: u8 = 200;
/// Answer of an extension.
pub const EXTENDED_REPLY: u8 = 201;
