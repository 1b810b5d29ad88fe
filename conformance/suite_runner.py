"""A program that runs one third-party suite, and prints the verdict of each test as JSON.

The servers of the suite listen on one fixed port, and its clients connect to another. The module `suites` starts this
program in the site of the gateways.

Arguments: the suite, the folder of its files, the port of its servers, the port for its clients, "login" or "-", and
the names of tests. Without names, all tests run.
"""

import json
import multiprocessing
import os
import socket
import sys
import time
import types
import unittest

CASES = {
    "test_ftplib": ["TestFTPClass", "TestIPv6Environment", "TestTimeouts", "TestFtpcpSecurity",
                    "MiscTestCase"],
    "test_ftplib, TLS": ["TestTLS_FTPClassMixin", "TestTLS_FTPClass"],
}


def cpython(folder, server_port, client_port, login):
    """Returns the module `test.test_ftplib` with its dummy servers on `server_port`."""
    from test import test_ftplib as module
    from test.support import socket_helper

    class Fixed:
        """A dummy server that listens on `server_port` and gives `client_port` to its clients."""

        def __init__(self, address, af=socket.AF_INET, **more):
            super().__init__((address[0], server_port), af=af, **more)
            self.port = client_port

        def create_socket(self, *arguments):
            super().create_socket(*arguments)
            self.set_reuse_addr()

    for name in ("DummyFTPServer", "DummyTLS_FTPServer"):
        if hasattr(module, name):
            setattr(module, name, type(name, (Fixed, getattr(module, name)), {}))
    if login:
        for name in ("TestFTPClass", "TestIPv6Environment"):
            log_in_first(getattr(module, name))

    def bind_port(sock, host=socket_helper.HOST):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, server_port))
        return client_port

    # Only the module uses this `bind_port`. The function `find_unused_port` keeps the original one.
    module.socket_helper = types.SimpleNamespace(**{**vars(socket_helper), "bind_port": bind_port})
    return module


def log_in_first(case):
    before = case.setUp

    def set_up(self, **more):
        before(self, **more)
        self.client.login()

    case.setUp = set_up


def pyftpdlib(folder, server_port, client_port, name):
    """Returns the module `name` of pyftpdlib's tests, from the sources in `folder`."""
    sys.path.insert(0, folder)
    from pyftpdlib import test as support
    for server in ("MProcessTestFTPd", "ThreadedTestFTPd"):
        original = getattr(support, server)

        def start(self, addr=None, original=original):
            original.__init__(self, (addr[0] if addr else support.HOST, server_port))
            self.port = client_port

        setattr(support, server, type(server, (original,), {"__init__": start}))
    return __import__(f"pyftpdlib.test.{name}", fromlist=["test"])


class Result(unittest.TestResult):
    """A test result with the verdict, the reason and the seconds of each test."""

    def __init__(self):
        super().__init__()
        self.tests = {}

    def startTest(self, test):
        super().startTest(test)
        self.begun = time.monotonic()
        self.note(test, "passed", "")
        print(f"{self.name(test)}", file=sys.stderr, flush=True)

    @staticmethod
    def name(test):
        return ".".join([type(test).__name__, test._testMethodName])

    def note(self, test, verdict, why):
        self.tests[self.name(test)] = verdict, why

    def stopTest(self, test):
        super().stopTest(test)
        # A failed test may leave its server process running, on the port that the next test needs.
        for child in multiprocessing.active_children():
            child.kill()
            child.join()
        verdict, why = self.tests[self.name(test)]
        self.tests[self.name(test)] = verdict, why, round(time.monotonic() - self.begun, 2)

    def addError(self, test, error):
        if not hasattr(test, "_testMethodName"):
            raise error[1]
        place = self._exc_info_to_string(error, test)
        print(place, file=sys.stderr, flush=True)
        self.note(test, "failed", f"{error[0].__name__}: {error[1]}")

    addFailure = addError

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addError(test, error)

    def addSkip(self, test, reason):
        if hasattr(test, "_testMethodName"):
            self.note(test, "skipped", reason)

    def addExpectedFailure(self, test, error):
        self.note(test, "skipped", "expected to fail")


def tests_of(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_of(test)
        else:
            yield test


def run(suite, folder, server_port, client_port, login, names):
    # The suites write files into the current folder.
    os.chdir(folder)
    if suite.startswith("test_ftplib"):
        module = cpython(folder, server_port, client_port, login)
        loader = unittest.defaultTestLoader
        tests = [test for case in CASES[suite]
                 for test in loader.loadTestsFromTestCase(getattr(module, case))]
    else:
        module = pyftpdlib(folder, server_port, client_port, suite)
        # Tests that the module imports from other modules do not belong to it.
        tests = [test for test in tests_of(unittest.defaultTestLoader.loadTestsFromModule(module))
                 if type(test).__module__ == module.__name__]
    result = Result()
    for test in tests:
        if not names or Result.name(test) in names:
            # A separate `TestSuite` for each test also runs the set-up of the test's class.
            unittest.TestSuite([test]).run(result)
    return result.tests


if __name__ == "__main__":
    suite, folder, server_port, client_port, login = sys.argv[1:6]
    tests = run(suite, folder, int(server_port), int(client_port), login == "login", sys.argv[6:])
    print(json.dumps(tests), flush=True)
    # Leftovers of the tests must not keep this process running.
    os._exit(0)
