#!/usr/bin/env python3
"""Outages and deaths in the middle of transfers.

A silent WAN for 20 s, an interface that is down for 20 s, a gateway that is stopped for 20 s: the
transfer goes on and the hash agrees. A gateway that is killed: the client sees an error within 2 s
of the gateway's return, the server never takes the upload for complete, and the transfer can be
resumed.
"""

import os
import signal
import subprocess
import time

from world import DOOR, check, main, make_file, same

PAUSE = 20


def job(world, args):
    size = 300_000_000 if args.quick else 1_000_000_000
    url = f"ftp://127.0.0.1:{DOOR}/files"
    source, back = world.path("source"), world.path("back")
    make_file(source, size)
    make_file(world.server_file("download"), size)

    def curl(*arguments):
        return subprocess.Popen(world.inside("a", "curl", "-sS", "--fail", *arguments),
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def under_way(path, process):
        """Waits until a fifth of the file has arrived at `path`."""
        world.wait(lambda: process.poll() is not None
                   or os.path.exists(path) and os.path.getsize(path) > size // 5,
                   "a fifth of the transfer", 60)
        check(process.poll() is None, "the disturbance hits the transfer")

    def finish(process, what):
        output, _ = process.communicate(timeout=300)
        check(process.returncode == 0, f"{what}: curl succeeds {output.strip()}")

    def upload(name):
        process = curl("-T", source, f"{url}/{name}")
        under_way(world.server_file(name), process)
        return process

    def download():
        if os.path.exists(back):
            os.remove(back)
        process = curl("-o", back, f"{url}/download")
        under_way(back, process)
        return process

    gateways = {"b": world.gateway("b"), "a": world.gateway("a")}
    world.connected()

    def both_ways(what, disturb, mend):
        for way in ("up", "down"):
            print(f"{what}, {way}")
            process = upload("outage") if way == "up" else download()
            disturb()
            time.sleep(PAUSE)
            check(process.poll() is None, "the client waits")
            mend()
            finish(process, f"{what}, {way}")
            if way == "up":
                same(source, world.server_file("outage"), f"{what}, {way}")
                os.remove(world.server_file("outage"))
            else:
                same(world.server_file("download"), back, f"{what}, {way}")

    both_ways(f"{PAUSE} s without packets", lambda: world.wan("set", "--outage", "on"),
              lambda: world.wan("set", "--outage", "off"))
    both_ways(f"{PAUSE} s with the interface down",
              lambda: world.wan("set", "a-to-b", "--interface-down", "on"),
              lambda: world.wan("set", "a-to-b", "--interface-down", "off"))
    for site in ("a", "b"):
        both_ways(f"gateway {site} stopped for {PAUSE} s",
                  lambda: gateways[site].send_signal(signal.SIGSTOP),
                  lambda: gateways[site].send_signal(signal.SIGCONT))

    for site in ("a", "b"):
        for way in ("up", "down"):
            print(f"gateway {site} killed, {way}")
            process = upload("killed") if way == "up" else download()
            gateways[site].kill()
            gateways[site].wait()
            time.sleep(1)
            gateways[site] = world.gateway(site)
            returned = time.monotonic()
            world.wait(lambda: process.poll() is not None, "the client's error", 10)
            took = time.monotonic() - returned
            output, _ = process.communicate()
            check(process.returncode != 0, f"the client sees an error: {output.strip()}")
            check(took <= 2, f"{took:.1f} s after the gateway's return")
            world.connected()
            if way == "up":
                # vsftpd writes its log line when the data connection has ended.
                world.wait(lambda: 'killed"' in log(world), "vsftpd's word on the upload", 30)
                check(not [line for line in log(world).splitlines()
                           if "OK UPLOAD" in line and 'killed"' in line],
                      "vsftpd does not take the upload for complete")
                finish(curl("-C", "-", "-T", source, f"{url}/killed"), "curl -C - up")
                same(source, world.server_file("killed"), "curl -C - up")
                os.remove(world.server_file("killed"))
                open(world.path("vsftpd.log"), "w").close()
            else:
                check(os.path.getsize(back) < size, "the file is not complete")
                cut = os.path.getsize(back)
                finish(curl("-C", "-", "-o", back, f"{url}/download"), "curl -C - down")
                same(world.server_file("download"), back, "curl -C - down")
                os.truncate(back, cut)
                world.run("lftp", "-c", f"open -p {DOOR} 127.0.0.1; "
                          f"get -c files/download -o {back}", check=True)
                same(world.server_file("download"), back, "lftp get -c")


def log(world):
    with open(world.path("vsftpd.log"), errors="replace") as file:
        return file.read()


if __name__ == "__main__":
    main(job, __doc__, "curl", "lftp", "openssl")
