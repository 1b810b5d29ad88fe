//! Command lines of movers that fetch from an FTP server.

use super::{FetchOrder, LFTP_SETTINGS, texts};
use crate::side::Side;

impl FetchOrder<'_> {
    /// Returns the arguments for the program of `side`. `route_arguments` are the arguments with
    /// which `longhaul copy` reaches the server.
    pub(in crate::movers) fn ftp_arguments(
        &self,
        side: Side,
        route_arguments: &[String],
    ) -> Vec<String> {
        match side {
            Side::Lftp => self.lftp(),
            Side::Rclone => self.rclone(),
            Side::Aria2 => self.aria2(),
            Side::Wget => self.wget(),
            Side::Curl => self.curl(),
            _ => self.longhaul(route_arguments),
        }
    }

    fn longhaul(&self, route_arguments: &[String]) -> Vec<String> {
        let mut arguments = texts(["copy", "--transfers"]);
        arguments.push(self.threads.to_string());
        arguments.extend_from_slice(route_arguments);
        // The content of a directory is copied into the destination, like a single file.
        arguments.push(match self.single() {
            Some(name) => self.url(name),
            None => format!("ftp://{}/{}/", self.server, self.folder),
        });
        arguments.push(format!("{}/", self.into.display()));
        arguments
    }

    fn lftp(&self) -> Vec<String> {
        let script = format!(
            "{LFTP_SETTINGS}; open ftp://{}; {}",
            self.server,
            self.lftp_work()
        );
        let mut arguments = texts(["--norc", "-c"]);
        arguments.push(script);
        arguments
    }

    fn rclone(&self) -> Vec<String> {
        let (host, port, path) = (self.server.ip(), self.server.port(), self.path());
        let threads = self.threads.to_string();
        let mut arguments = texts(["copy", "--config=", "--log-level=ERROR"]);
        arguments.extend(texts(["--local-no-preallocate", "--transfers", &threads]));
        // With several connections rclone 1.60 loses parts of a file. If a part ends before the end
        // of the file, vsftpd replies 426. The next attempt then treats the file with its holes as
        // complete.
        arguments.push("--multi-thread-streams=0".to_owned());
        arguments.push(format!(
            ":ftp,host={host},port={port},user=anonymous,pass={RCLONE_NO_PASSWORD}:{path}"
        ));
        arguments.push(self.into.display().to_string());
        arguments
    }

    fn aria2(&self) -> Vec<String> {
        let threads = self.threads.to_string();
        let mut arguments = texts([
            "--no-conf",
            "--console-log-level=error",
            "--summary-interval=0",
            "--show-console-readout=false",
            "--file-allocation=none",
            "--auto-file-renaming=false",
        ]);
        arguments.push(format!("--dir={}", self.into.display()));
        match self.single() {
            // Without `-k`, aria2 opens no further connection for less than 20 MB.
            Some(_) => arguments.extend(texts(["-k", "1M", "-x", &threads, "-s", &threads])),
            // Without the last flag, all URLs are sources of one file.
            None => arguments.extend(texts(["-x", "1", "-s", "1", "-j", &threads, "-Z"])),
        }
        arguments.extend(self.urls());
        arguments
    }

    fn wget(&self) -> Vec<String> {
        let mut arguments = texts(["--no-config", "--no-proxy", "--no-verbose"]);
        arguments.push(format!("--directory-prefix={}", self.into.display()));
        arguments.push(self.url(self.single().unwrap_or("*")));
        arguments
    }

    fn curl(&self) -> Vec<String> {
        let mut arguments = texts(["--disable", "--fail", "--silent", "--show-error"]);
        arguments.extend(texts(["--noproxy", "*", "--remote-name-all"]));
        arguments.push("--output-dir".to_owned());
        arguments.push(self.into.display().to_string());
        if self.single().is_none() && self.threads > 1 {
            let threads = self.threads.to_string();
            arguments.extend(texts(["--parallel", "--parallel-max", &threads]));
        }
        arguments.extend(self.urls());
        arguments
    }

    fn urls(&self) -> impl Iterator<Item = String> {
        self.names.iter().map(|name| self.url(name))
    }

    fn url(&self, name: &str) -> String {
        format!("ftp://{}/{}/{name}", self.server, self.folder)
    }
}

/// The empty password in the obscured form that rclone expects. It consists of an initialisation
/// vector of 16 bytes, without ciphertext.
const RCLONE_NO_PASSWORD: &str = "AAAAAAAAAAAAAAAAAAAAAA";

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, path::Path};

    use super::*;
    use crate::movers::command_lines::program;

    const MOVERS: [Side; 6] = [
        Side::MoverDirect,
        Side::Lftp,
        Side::Rclone,
        Side::Aria2,
        Side::Wget,
        Side::Curl,
    ];

    /// Returns the command line of a mover that fetches `files` files with eight threads.
    fn line(side: Side, files: u32, route_arguments: &[&str]) -> String {
        let names: Vec<String> = (0..files).map(|number| format!("{number}.bin")).collect();
        let order = FetchOrder {
            server: SocketAddr::from(([10, 0, 0, 2], 21)),
            folder: "film",
            names: &names,
            into: Path::new("/tmp/into"),
            threads: 8,
        };
        let route_arguments: Vec<String> = route_arguments
            .iter()
            .map(|&flag| flag.to_owned())
            .collect();
        let arguments = order.ftp_arguments(side, &route_arguments).join(" ");
        format!("{} {arguments}", program(side).unwrap_or("longhaul"))
    }

    #[test]
    fn a_single_file_comes_by_several_connections() {
        let lines = MOVERS.map(|side| line(side, 1, &[]));
        assert_eq!(
            lines,
            [
                "longhaul copy --transfers 8 ftp://10.0.0.2:21/film/0.bin /tmp/into/",
                "lftp --norc -c set pget:save-status never; set file:use-fallocate no; open ftp://10.0.0.2:21; \
                 pget -n 8 film/0.bin -o /tmp/into/0.bin",
                "rclone copy --config= --log-level=ERROR --local-no-preallocate --transfers 8 --multi-thread-streams=0 \
                 :ftp,host=10.0.0.2,port=21,user=anonymous,pass=AAAAAAAAAAAAAAAAAAAAAA:film/0.bin /tmp/into",
                "aria2c --no-conf --console-log-level=error --summary-interval=0 --show-console-readout=false \
                 --file-allocation=none --auto-file-renaming=false --dir=/tmp/into \
                 -k 1M -x 8 -s 8 ftp://10.0.0.2:21/film/0.bin",
                "wget --no-config --no-proxy --no-verbose --directory-prefix=/tmp/into \
                 ftp://10.0.0.2:21/film/0.bin",
                "curl --disable --fail --silent --show-error --noproxy * --remote-name-all \
                 --output-dir /tmp/into ftp://10.0.0.2:21/film/0.bin",
            ]
        );
    }

    #[test]
    fn several_files_come_at_a_time() {
        let lines = MOVERS.map(|side| line(side, 2, &[]));
        let [copy, lftp, rclone, aria2, wget, curl] = &lines;
        let both = "ftp://10.0.0.2:21/film/0.bin ftp://10.0.0.2:21/film/1.bin";
        for (line, end) in [
            (copy, "--transfers 8 ftp://10.0.0.2:21/film/ /tmp/into/"),
            (lftp, "mirror --parallel=8 film /tmp/into"),
            (rclone, "AAAA:film /tmp/into"),
            (aria2, &*format!("-x 1 -s 1 -j 8 -Z {both}")),
            (wget, "ftp://10.0.0.2:21/film/*"),
            (curl, &*format!("--parallel --parallel-max 8 {both}")),
        ] {
            assert!(line.ends_with(end), "{line}");
        }
        assert!(rclone.contains("--transfers 8"), "{rclone}");
    }

    #[test]
    fn our_mover_gets_the_route() {
        let route_arguments = ["--gateway", "10.0.0.1:2121"];
        assert_eq!(
            line(Side::MoverGateway, 1, &route_arguments),
            "longhaul copy --transfers 8 --gateway 10.0.0.1:2121 ftp://10.0.0.2:21/film/0.bin /tmp/into/"
        );
    }
}
