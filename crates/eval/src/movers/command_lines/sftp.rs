//! Command lines of movers that fetch from an SFTP server, or from the SSH listener of a gateway.
//!
//! Each program logs in with a private key, and checks the host key of the server or gateway.

use std::path::Path;

use super::{FetchOrder, LFTP_SETTINGS, texts};
use crate::side::Side;

/// Account at the server, and files for the log-in.
#[derive(Debug, Clone, Copy)]
pub(in crate::movers) struct SftpAccess<'a> {
    /// Name of the account.
    pub(in crate::movers) user: &'a str,
    /// File with the private key of the user.
    pub(in crate::movers) key: &'a Path,
    /// File with the host keys of the server and of the gateway.
    pub(in crate::movers) known_hosts: &'a Path,
}

impl FetchOrder<'_> {
    /// Returns the arguments for the program of `side`. `route_arguments` are the arguments with
    /// which `longhaul copy` reaches the server.
    pub(in crate::movers) fn sftp_arguments(
        &self,
        side: Side,
        access: &SftpAccess<'_>,
        route_arguments: &[String],
    ) -> Vec<String> {
        match side {
            Side::Sftp | Side::SftpGateway => self.openssh(access),
            Side::Rsync | Side::RsyncGateway => self.rsync(access),
            Side::Lftp | Side::LftpGateway => self.lftp_over_ssh(access),
            Side::Rclone | Side::RcloneGateway => self.rclone_over_ssh(access),
            _ => self.longhaul_over_ssh(access, route_arguments),
        }
    }

    fn longhaul_over_ssh(
        &self,
        access: &SftpAccess<'_>,
        route_arguments: &[String],
    ) -> Vec<String> {
        let mut arguments = texts(["copy", "--transfers"]);
        arguments.push(self.threads.to_string());
        arguments.extend_from_slice(route_arguments);
        arguments.push("--identity".to_owned());
        arguments.push(access.key.display().to_string());
        // With a peer, the far gateway checks the host key of the server.
        if !route_arguments.contains(&"--peer".to_owned()) {
            arguments.push("--known-hosts".to_owned());
            arguments.push(access.known_hosts.display().to_string());
        }
        // The content of a directory is copied into the destination, like a single file.
        let end = match self.single() {
            Some(_) => "",
            None => "/",
        };
        let (user, server, path) = (access.user, self.server, self.path());
        // Without the second slash, the path would begin at the home directory of the user.
        arguments.push(format!("sftp://{user}@{server}/{path}{end}"));
        arguments.push(format!("{}/", self.into.display()));
        arguments
    }

    fn openssh(&self, access: &SftpAccess<'_>) -> Vec<String> {
        let mut arguments = access.ssh_options();
        arguments.extend(texts(["-q", "-P", &self.server.port().to_string()]));
        // The program copies the content of the folder into the destination, and not the folder
        // itself.
        let place = match self.single() {
            Some(_) => self.path(),
            None => {
                arguments.push("-r".to_owned());
                format!("{}/.", self.folder)
            }
        };
        arguments.push(self.remote(access, &place));
        arguments.push(format!("{}/", self.into.display()));
        arguments
    }

    fn rsync(&self, access: &SftpAccess<'_>) -> Vec<String> {
        let mut arguments = texts(["--archive", "--rsh"]);
        let port = self.server.port().to_string();
        let ssh = [vec!["ssh".to_owned()], access.ssh_options()].concat();
        arguments.push(joined([ssh, texts(["-p", &port])].concat()));
        let place = match self.single() {
            Some(_) => self.path(),
            None => format!("{}/", self.folder),
        };
        arguments.push(self.remote(access, &place));
        arguments.push(format!("{}/", self.into.display()));
        arguments
    }

    fn lftp_over_ssh(&self, access: &SftpAccess<'_>) -> Vec<String> {
        // The program adds the port, the user and the host.
        let ssh = [texts(["ssh", "-a", "-x"]), access.ssh_options()].concat();
        let connect = joined([joined(ssh)].to_vec());
        // With an empty password, the program does not ask for one.
        let script = format!(
            "{LFTP_SETTINGS}; set sftp:connect-program {connect}; open -u {}, sftp://{}; {}",
            access.user,
            self.server,
            self.lftp_work()
        );
        let mut arguments = texts(["--norc", "-c"]);
        arguments.push(script);
        arguments
    }

    fn rclone_over_ssh(&self, access: &SftpAccess<'_>) -> Vec<String> {
        let (host, port, path) = (self.server.ip(), self.server.port(), self.path());
        let threads = self.threads.to_string();
        let mut arguments = texts(["copy", "--config=", "--log-level=ERROR"]);
        arguments.extend(texts(["--local-no-preallocate", "--transfers", &threads]));
        // Without `--multi-thread-cutoff`, rclone opens no further connection for less than 250
        // MiB.
        arguments.extend(texts(["--multi-thread-streams", &threads]));
        arguments.extend(texts(["--multi-thread-cutoff", "1M"]));
        let (user, key) = (access.user, access.key.display());
        let known_hosts = access.known_hosts.display();
        arguments.push(format!(
            ":sftp,host={host},port={port},user={user},key_file={key},\
             known_hosts_file={known_hosts}:{path}"
        ));
        arguments.push(self.into.display().to_string());
        arguments
    }

    /// Returns the name of a path at the server in the form of scp and rsync.
    fn remote(&self, access: &SftpAccess<'_>, place: &str) -> String {
        format!("{}@{}:{place}", access.user, self.server.ip())
    }
}

impl SftpAccess<'_> {
    /// Returns options with which OpenSSH ignores the settings of this machine and asks no
    /// questions.
    fn ssh_options(&self) -> Vec<String> {
        let mut options = texts(["-F", "none"]);
        for option in [
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            "StrictHostKeyChecking=yes",
            "GlobalKnownHostsFile=/dev/null",
        ] {
            options.extend(texts(["-o", option]));
        }
        options.push("-o".to_owned());
        options.push(format!("UserKnownHostsFile={}", self.known_hosts.display()));
        options.push("-i".to_owned());
        options.push(self.key.display().to_string());
        options
    }
}

/// Joins words to one text, which a shell splits into the same words.
fn joined(words: Vec<String>) -> String {
    let words = words.iter().map(String::as_str);
    shlex::try_join(words).expect("no NUL is in a path of a temporary folder")
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::movers::command_lines::program;

    const MOVERS: [Side; 5] = [
        Side::MoverDirect,
        Side::Sftp,
        Side::Rsync,
        Side::Lftp,
        Side::Rclone,
    ];
    const SSH_OPTIONS: &str = "-F none -o BatchMode=yes -o IdentitiesOnly=yes -o IdentityAgent=none \
        -o StrictHostKeyChecking=yes -o GlobalKnownHostsFile=/dev/null -o UserKnownHostsFile=/keys/known_hosts \
        -i /keys/eval";

    /// Returns the command line of a mover that fetches `files` files with eight threads.
    fn line(side: Side, files: u32, route_arguments: &[&str]) -> String {
        let names: Vec<String> = (0..files).map(|number| format!("{number}.bin")).collect();
        let order = FetchOrder {
            server: SocketAddr::from(([10, 0, 0, 2], 22)),
            folder: "/srv/film",
            names: &names,
            into: Path::new("/tmp/into"),
            threads: 8,
        };
        let access = SftpAccess {
            user: "eval",
            key: Path::new("/keys/eval"),
            known_hosts: Path::new("/keys/known_hosts"),
        };
        let route_arguments: Vec<String> = route_arguments
            .iter()
            .map(|&flag| flag.to_owned())
            .collect();
        let arguments = order.sftp_arguments(side, &access, &route_arguments);
        format!(
            "{} {}",
            program(side).unwrap_or("longhaul"),
            arguments.join(" ")
        )
    }

    #[test]
    fn a_single_file_comes_by_several_connections_if_the_program_has_them() {
        let lines = MOVERS.map(|side| line(side, 1, &[]));
        let words = SSH_OPTIONS.split(' ').map(str::to_owned);
        let quoted = joined(words.collect());
        assert!(quoted.contains("-o 'BatchMode=yes'"), "{quoted}");
        assert_eq!(
            lines,
            [
                "longhaul copy --transfers 8 --identity /keys/eval --known-hosts /keys/known_hosts \
                 sftp://eval@10.0.0.2:22//srv/film/0.bin /tmp/into/"
                    .to_owned(),
                format!("sftp {SSH_OPTIONS} -q -P 22 eval@10.0.0.2:/srv/film/0.bin /tmp/into/"),
                format!("rsync --archive --rsh ssh {quoted} -p 22 eval@10.0.0.2:/srv/film/0.bin /tmp/into/"),
                format!(
                    "lftp --norc -c set pget:save-status never; set file:use-fallocate no; \
                     set sftp:connect-program \"ssh -a -x {quoted}\"; open -u eval, sftp://10.0.0.2:22; \
                     pget -n 8 /srv/film/0.bin -o /tmp/into/0.bin"
                ),
                "rclone copy --config= --log-level=ERROR --local-no-preallocate --transfers 8 \
                 --multi-thread-streams 8 --multi-thread-cutoff 1M \
                 :sftp,host=10.0.0.2,port=22,user=eval,key_file=/keys/eval,\
                 known_hosts_file=/keys/known_hosts:/srv/film/0.bin /tmp/into"
                    .to_owned(),
            ]
        );
    }

    #[test]
    fn the_content_of_a_folder_comes_without_the_folder() {
        let lines = MOVERS.map(|side| line(side, 2, &[]));
        for (line, end) in lines.iter().zip([
            "sftp://eval@10.0.0.2:22//srv/film/ /tmp/into/",
            "-P 22 -r eval@10.0.0.2:/srv/film/. /tmp/into/",
            "-p 22 eval@10.0.0.2:/srv/film/ /tmp/into/",
            "mirror --parallel=8 /srv/film /tmp/into",
            "known_hosts:/srv/film /tmp/into",
        ]) {
            assert!(line.ends_with(end), "{line}");
        }
    }

    #[test]
    fn a_mover_behind_gateways_has_the_same_options() {
        for (direct, gateway) in [
            (Side::Sftp, Side::SftpGateway),
            (Side::Rsync, Side::RsyncGateway),
            (Side::Lftp, Side::LftpGateway),
            (Side::Rclone, Side::RcloneGateway),
        ] {
            assert_eq!(line(direct, 2, &[]), line(gateway, 2, &[]));
        }
    }

    #[test]
    fn our_mover_gets_the_route() {
        let route_arguments = ["--gateway", "10.0.0.1:22"];
        assert_eq!(
            line(Side::MoverGateway, 1, &route_arguments),
            "longhaul copy --transfers 8 --gateway 10.0.0.1:22 --identity /keys/eval \
             --known-hosts /keys/known_hosts sftp://eval@10.0.0.2:22//srv/film/0.bin /tmp/into/"
        );
    }

    #[test]
    fn our_mover_in_a_pair_leaves_the_host_key_to_the_far_gateway() {
        let route_arguments = ["--peer", "site-b@10.0.0.2:4810", "--key", "/keys/mover.key"];
        assert_eq!(
            line(Side::MoverPeer, 1, &route_arguments),
            "longhaul copy --transfers 8 --peer site-b@10.0.0.2:4810 --key /keys/mover.key \
             --identity /keys/eval sftp://eval@10.0.0.2:22//srv/film/0.bin /tmp/into/"
        );
    }

    #[test]
    fn a_folder_with_a_space_stays_one_word() {
        let words = ["ssh", "-i", "/my keys/eval"].map(str::to_owned);
        assert_eq!(joined(words.to_vec()), "ssh -i '/my keys/eval'");
    }
}
