"""Tests of outside suites that pass directly and not through a pair: what is of any pair's nature, with the
reason, and what a pair should do and does not.
"""

# Why a test that passes directly does not pass through a pair: what any pair like this does.
OWN_PORTS = "data connections end at the gateway: its address and its ports are in the replies"
OWN_WORDS = "the gateway refuses by itself, with the same code and its own words"
OWN_TLS = "TLS with the client is the gateway's, and so is what it says about it"
SERVER_TLS = "the gateway speaks TLS with this server whatever the client does, so the server has no objection"
PASSIVE_SERVER = "towards servers the gateway is passive, whatever the client is"
CONNECTS_LATE = "the gateway connects to the client with the transfer, as most servers do, and not at PORT"
CONNECTS_EARLY = "the gateway has connected to the server at once, so the server does not wait in vain"
ONE_AT_A_TIME = "the transfer comes to its end before the server gets the next command, and the test does not " \
    "read on meanwhile"
CROSSING = "a command that crosses the server's end is answered 421, where directly the connection just ends"
KNOWN = {
    "test_makepasv_issue43285_security_disabled": OWN_PORTS,
    "test_masquerade_address": OWN_PORTS,
    "test_masquerade_address_map": OWN_PORTS,
    "test_passive_ports": OWN_PORTS,
    "test_eprt": OWN_WORDS,
    "test_eprt_v6": OWN_WORDS,
    "TestIPv4Environment.test_eprt_v4": OWN_WORDS,
    "TestIPv4EnvironmentTLSMixin.test_eprt_v4": OWN_WORDS,
    "test_port_v4": OWN_WORDS,
    "test_arg_cmds": OWN_WORDS,
    "test_no_arg_cmds": OWN_WORDS,
    "test_auth_cmds": "a data port that cannot be read is refused by the gateway, whether logged in or not",
    "test_max_auth": CROSSING,
    "test_max_login_attempts": CROSSING,
    "test_permit_privileged_ports": "data connections to ports below 1024 are refused",
    "test_permit_foreign_address_false": PASSIVE_SERVER,
    "test_makeport": PASSIVE_SERVER,
    "TestIPv6MixedEnvironment.test_eprt_v4": CONNECTS_LATE,
    "test_active_conn_error": CONNECTS_LATE,
    "test_port_race_condition": CONNECTS_LATE,
    "test_pasv_timeout": CONNECTS_EARLY,
    "test_makepasv": "in fast mode the server is asked for PWD ahead, so another command is its last",
    "test_max_connections": "in fast mode PASV is answered before the far gateway has connected to the server's data "
        "port, so the server may count one connection fewer for a moment",
    "test_rein_during_transfer": ONE_AT_A_TIME,
    "test_user_during_transfer": ONE_AT_A_TIME,
    "test_auth": OWN_TLS,
    "test_pbsz": OWN_TLS,
    "test_prot": OWN_TLS,
    "test_data_connection": f"{OWN_TLS}: PROT before AUTH is refused (RFC 4217 section 9)",
    "test_ccc": f"{OWN_TLS}: it does not end before the connection does",
    "test_tls_control_required": SERVER_TLS,
    "test_tls_data_required": SERVER_TLS,
}

# What a pair should do and does not.
FAULTS = {
    "test_stou": "a data port that is asked for behind its transfer command is not used for it",
    "test_idle_data_timeout2": "a server that is sent ABOR right behind PASV does not say that it has timed out",
}


def known(name):
    """Why CLASS.METHOD deviates with any pair, or None."""
    return KNOWN.get(name, KNOWN.get(name.split(".")[1]))


def fault(name):
    """What a pair should do, or None."""
    return FAULTS.get(name.split(".")[1])
