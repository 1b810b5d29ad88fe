//! An FTP server whose greeting contains the client's address, and a minimal FTP client.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use fake_ftp::{Behaviour, FakeServer};

/// Starts a server with one file, `x`. Its greeting contains the address of its client.
pub(crate) fn serve(at: &str, content: &[u8]) {
    let listener = TcpListener::bind((at, 21)).expect("nobody else listens there");
    let server = FakeServer::start_at(
        listener,
        Behaviour {
            greets_with_address: true,
            ..Behaviour::default()
        },
    );
    server.put("x", content);
}

fn parse_port(text: &str) -> Option<SocketAddr> {
    if let Some(extended) = text.strip_prefix('|') {
        let mut parts = extended.split('|').skip(1);
        let ip: IpAddr = parts.next()?.parse().ok()?;
        return Some(SocketAddr::new(ip, parts.next()?.parse().ok()?));
    }
    let numbers: Vec<u8> = text.split(',').filter_map(|n| n.parse().ok()).collect();
    let [a, b, c, d, high, low] = numbers.try_into().ok()?;
    Some(([a, b, c, d], u16::from_be_bytes([high, low])).into())
}

/// Command by which a data connection is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataMode {
    Pasv,
    Epsv,
    Port,
    Eprt,
}

/// The control connection of a client.
pub(crate) struct Client {
    lines: BufReader<TcpStream>,
    pub(crate) greeting: String,
}

impl Client {
    /// Connects to a server, waits for its greeting and logs in.
    pub(crate) fn connect(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut client = Self {
            lines: BufReader::new(stream),
            greeting: String::new(),
        };
        client.greeting = client.reply()?;
        for (command, code) in [("USER x", "331"), ("PASS x", "230"), ("TYPE I", "200")] {
            client.ask(command, code)?;
        }
        Ok(client)
    }

    pub(crate) fn ask(&mut self, command: &str, code: &str) -> io::Result<String> {
        write!(self.lines.get_mut(), "{command}\r\n")?;
        let reply = self.reply()?;
        if reply.starts_with(code) {
            Ok(reply)
        } else {
            Err(io::Error::other(format!("{command}: {reply}")))
        }
    }

    fn reply(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Opens a data connection, sends `command`, and calls the given function with the data
    /// connection.
    pub(crate) fn transfer(
        &mut self,
        mode: DataMode,
        command: &str,
        with: impl FnOnce(TcpStream) -> io::Result<()>,
    ) -> io::Result<()> {
        let server = self.lines.get_ref().peer_addr()?;
        let own = self.lines.get_ref().local_addr()?.ip();
        let data = match mode {
            DataMode::Pasv | DataMode::Epsv => {
                let at = if mode == DataMode::Pasv {
                    let reply = self.ask("PASV", "227")?;
                    let start = reply.find('(').map_or(0, |at| at + 1);
                    let at = parse_port(reply[start..].trim_end_matches(['.', ')']));
                    at.ok_or_else(|| io::Error::other(reply.clone()))?
                } else {
                    let reply = self.ask("EPSV", "229")?;
                    let port = reply.split("|||").nth(1).and_then(|r| r.split('|').next());
                    let port = port.and_then(|p| p.parse().ok()).unwrap_or_default();
                    SocketAddr::new(server.ip(), port)
                };
                assert_eq!(at.ip(), server.ip(), "the server's own address is told");
                let data = TcpStream::connect_timeout(&at, TIMEOUT)?;
                self.ask(command, "150")?;
                data
            }
            DataMode::Port | DataMode::Eprt => {
                let listener = TcpListener::bind((own, 0))?;
                let port = listener.local_addr()?.port();
                let family = if own.is_ipv4() { 1 } else { 2 };
                let named = if mode == DataMode::Port {
                    let [high, low] = port.to_be_bytes();
                    format!("PORT {},{high},{low}", own.to_string().replace('.', ","))
                } else {
                    format!("EPRT |{family}|{own}|{port}|")
                };
                self.ask(&named, "200")?;
                self.ask(command, "150")?;
                let (data, from) = listener.accept()?;
                assert_eq!(from, SocketAddr::new(server.ip(), 20), "as servers do");
                data
            }
        };
        with(data)?;
        let reply = self.reply()?;
        if reply.starts_with("226") {
            Ok(())
        } else {
            Err(io::Error::other(reply))
        }
    }
}

const TIMEOUT: Duration = Duration::from_secs(10);
