"""The SSH configuration of both gateways: listeners of the near gateway, and known hosts of the far gateway."""

import json
import os
import socket

from world import ADDRESS_B, Failure

FIRST_PORT = 2301


def is_agent_up(path):
    """Returns whether an SSH agent listens on the socket at `path`. The agent creates the socket before it listens."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0


def knows_ssh(world):
    """Returns whether the program supports `[[ssh]]`."""
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
    """Returns an `[[ssh]]` section."""
    lines = ["[[ssh]]", f'listen = "127.0.0.1:{port}"']
    if target:
        lines.append(f'target = "{target}"')
    # Strings, numbers and lists have the same syntax in JSON and in TOML.
    lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    return "\n".join([*lines, ""])


def start_pair(world, near, known_hosts, far_lines=(), peers=""):
    """Starts a pair of gateways, and waits for their link.

    The near gateway's configuration contains the sections `near`. The far gateway accepts the host keys in the lines
    `known_hosts`.
    """
    world.stop_pair()
    path = world.path("far.known_hosts")
    with open(path, "w") as file:
        file.writelines(known_hosts)
    world.gateway("b", "\n".join(["[far.ssh]", f'known_hosts = "{path}"', *far_lines, peers, ""]))
    world.gateway("a", near)
    world.connected()
