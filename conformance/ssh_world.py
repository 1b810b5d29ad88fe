"""Listeners of the near gateway in front of the SSH servers of site b, and what the far gateway knows of the servers."""

import json
import os

from world import ADDRESS_B, Failure

FIRST_PORT = 2301


def knows_ssh(world):
    """Whether the program has `[[ssh]]`."""
    path = world.path("knows.toml")
    with open(path, "w") as config:
        config.write(f'[identity]\nkey_file = "a.key"\n[[peer]]\nname = "b"\npublic_key = "{world.keys["b"]}"\n'
                     f'[[ssh]]\nlisten = "127.0.0.1:{FIRST_PORT}"\ntarget = "{ADDRESS_B}:22"\n')
    done = world.run(world.longhaul, "gateway", "check", "--config", path, capture_output=True, text=True)
    os.remove(path)
    if 'unknown field "ssh"' in done.stderr:
        return False
    if done.returncode != 0:
        raise Failure(f"a plain [[ssh]] section is refused: {done.stderr.strip()}")
    return True


def listener(port, target=None, **settings):
    """An `[[ssh]]` section."""
    lines = ["[[ssh]]", f'listen = "127.0.0.1:{port}"']
    if target:
        lines.append(f'target = "{target}"')
    # JSON's strings, numbers and lists are TOML's, too.
    lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    return "\n".join([*lines, ""])


def start_pair(world, near, known_hosts, far_lines=(), peers=""):
    """Starts a pair with the sections `near`; the far gateway knows the host keys in the lines `known_hosts`."""
    world.stop_pair()
    path = world.path("far.known_hosts")
    with open(path, "w") as file:
        file.writelines(known_hosts)
    world.gateway("b", "\n".join(["[far.ssh]", f'known_hosts = "{path}"', *far_lines, peers, ""]))
    world.gateway("a", near)
    world.connected()
