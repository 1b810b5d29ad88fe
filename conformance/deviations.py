"""Tests of third-party suites that pass directly, but not through a pair of gateways.

`KNOWN` contains the tests that fail through any pair of this kind, with the reasons. `FAULTS` contains the tests that
fail because of a fault in the pair.
"""

# Reasons why a test passes directly, but fails through any pair of this kind.
OWN_PORTS = "data connections end at the gateway: its address and its ports are in the replies"
OWN_WORDS = "the gateway itself refuses the command, with the same code and another text"
OWN_TLS = "the gateway itself ends the TLS of the client, and writes the replies about TLS"
SERVER_TLS = "the gateway always uses TLS with this server, so the server does not refuse a client without TLS"
PASSIVE_SERVER = "the gateway uses passive data connections with the server, even if the client uses active ones"
CONNECTS_LATE = "the gateway connects to the client at the transfer command, as most servers do, and not at PORT"
CONNECTS_EARLY = "the gateway connects to the data port of the server at once, so the server's timeout does not expire"
ONE_AT_A_TIME = "the server gets the next command only after the end of the transfer, and the test reads no data " \
    "meanwhile"
CROSSING = "a command that arrives while the server closes the connection gets 421; directly, it gets no reply"
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
    "test_auth_cmds": "the gateway refuses a malformed data port even before the log-in",
    "test_max_auth": CROSSING,
    "test_max_login_attempts": CROSSING,
    "test_permit_privileged_ports": "the gateway refuses data connections to ports below 1024",
    "test_permit_foreign_address_false": PASSIVE_SERVER,
    "test_makeport": PASSIVE_SERVER,
    "TestIPv6MixedEnvironment.test_eprt_v4": CONNECTS_LATE,
    "test_active_conn_error": CONNECTS_LATE,
    "test_port_race_condition": CONNECTS_LATE,
    "test_pasv_timeout": CONNECTS_EARLY,
    "test_makepasv": "in fast mode the gateway sends PWD in advance, so the last command at the server is not PASV",
    "test_max_connections": "in fast mode the near gateway answers PASV before the far gateway has connected to the "
        "server's data port, so the server may count one connection fewer for a moment",
    "test_rein_during_transfer": ONE_AT_A_TIME,
    "test_user_during_transfer": ONE_AT_A_TIME,
    "test_auth": OWN_TLS,
    "test_pbsz": OWN_TLS,
    "test_prot": OWN_TLS,
    "test_data_connection": f"{OWN_TLS}: the gateway refuses PROT before AUTH (RFC 4217 section 9)",
    "test_ccc": f"{OWN_TLS}: TLS lasts until the connection ends",
    "test_tls_control_required": SERVER_TLS,
    "test_tls_data_required": SERVER_TLS,
}

# Tests that fail because of a fault in the pair, with the fault.
FAULTS = {
    "test_stou": "if PORT follows its transfer command, the gateway does not use this data port for the transfer",
    "test_idle_data_timeout2": "if ABOR directly follows PASV, the server does not report its timeout",
}


def known(name):
    """Returns the reason why the test CLASS.METHOD fails through any pair of this kind, or None."""
    return KNOWN.get(name, KNOWN.get(name.split(".")[1]))


def fault(name):
    """Returns the fault of the pair that makes the test CLASS.METHOD fail, or None."""
    return FAULTS.get(name.split(".")[1])
