#!/usr/bin/env python3
"""TLS between client and server that the gateways do not read: explicit and implicit, up and down, to a
vsftpd that demands the reuse of sessions on data connections. The client checks the server's own
certificate.
"""

import os
import subprocess

import servers
from world import ADDRESS_B, check, digest, main, make_file

SIZE = 20_000_000
# A door, the server's control port and its ports for data, by kind of TLS.
KINDS = {"explicit": (2140, 2211, (50000, 50019)), "implicit": (2141, 990, (50020, 50039))}


def server(world, kind, certificate):
    _, port, (low, high) = KINDS[kind]
    config = world.path(f"vsftpd-{kind}.conf")
    with open(world.path("vsftpd.conf")) as plain, open(config, "w") as file:
        file.write(plain.read() + "\n".join([
            f"listen_port={port}", "ssl_enable=YES", "allow_anon_ssl=YES",
            "force_anon_logins_ssl=YES", "force_anon_data_ssl=YES", "require_ssl_reuse=YES",
            f"pasv_min_port={low}", f"pasv_max_port={high}", f"rsa_cert_file={certificate}",
            f"implicit_ssl={'YES' if kind == 'implicit' else 'NO'}", ""]))
    world.start(f"vsftpd-{kind}", "b", "/usr/sbin/vsftpd", config)


def doors():
    text = ""
    for door, port, (low, high) in KINDS.values():
        text += (f'[[ftp]]\nlisten = "127.0.0.1:{door}"\ntarget = "{ADDRESS_B}:{port}"\n'
                 f'tls = {{ mode = "pass-through" }}\npassive_ports = "{low}-{high}"\n')
    return text


def job(world, args):
    certificate = servers.certificate(world)
    for kind, (_, port, (low, high)) in KINDS.items():
        server(world, kind, certificate)
        world.far_allow += f', "{ADDRESS_B}:{port}", "{ADDRESS_B}:{low}-{high}"'
    world.gateway("b")
    world.gateway("a", doors())
    world.connected()
    local, back = world.path("local"), world.path("back")
    make_file(local, SIZE)
    for kind, (door, _, _) in KINDS.items():
        scheme = "ftps" if kind == "implicit" else "ftp"
        # The name is the one in the certificate, so nobody in between can have answered.
        curl = ["curl", "-sS", "--max-time", "120", "--ssl-reqd", "--cacert", f"{certificate}.crt",
                "--resolve", f"server:{door}:127.0.0.1", "--user", "anonymous:x"]
        url = f"{scheme}://server:{door}/files"
        world.run(*curl, "-T", local, f"{url}/up-{kind}", check=True)
        check(digest(world.server_file(f"up-{kind}")) == digest(local), f"{kind}: curl, upload")
        world.run(*curl, "-o", back, f"{url}/up-{kind}", check=True)
        check(digest(back) == digest(local), f"{kind}: curl, download")
        os.remove(back)
        lftp = ("set ftp:ssl-force yes; set ftp:ssl-protect-data yes; set ftp:prefer-epsv yes; "
                "set ssl:check-hostname no; set cmd:fail-exit yes; "
                f"set ssl:ca-file {certificate}.crt; open -u anonymous,x "
                f"{scheme}://127.0.0.1:{door}; cd files; cls; "
                f"pget -n 1 up-{kind} -o {back}; rm up-{kind}")
        world.run("lftp", "-c", lftp, check=True, stdout=subprocess.DEVNULL)
        check(digest(back) == digest(local), f"{kind}: lftp, listing, download and delete")
        os.remove(back)
    transfers = world.status("a")["transfers"]
    check(not transfers, "nothing is left open")


if __name__ == "__main__":
    main(job, __doc__, "curl", "lftp", "openssl")
