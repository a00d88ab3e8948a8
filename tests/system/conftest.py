"""Fixtures for the system tests: the program under test and places for it to run in."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess

import pytest

from proxy_peers import Function, Pki, children, echo

TOP = pathlib.Path(__file__).resolve().parents[2]
PQPLANE = os.environ.get("PQPLANE_BIN", str(TOP / "build/src/cli/pqplane"))


def free_port(host="127.0.0.1"):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
        s.bind((host, 0))
        return s.getsockname()[1]


@pytest.fixture(scope="session")
def pqplane():
    if not os.access(PQPLANE, os.X_OK):
        pytest.fail(f"{PQPLANE} is not there: build it first")
    return PQPLANE


@pytest.fixture(name="free_port")
def free_port_fixture():
    return free_port


class Running:
    """A long-running program with a ready descriptor: ready lines in .ready, its standard error in the file .log."""

    def __init__(self, argv, log, ready=True, **options):
        self.log = log
        self.ready = []
        fds = ()
        if ready:
            read_end, write_end = os.pipe()
            argv = [*argv, "--ready-fd", str(write_end)]
            fds = (write_end,)
        self.process = subprocess.Popen(argv, stderr=open(log, "wb"), stdin=subprocess.DEVNULL, pass_fds=fds, **options)
        if ready:
            os.close(write_end)
            with os.fdopen(read_end) as f:
                self.ready = f.read().splitlines()
            if not self.ready:
                self.process.wait(10)
                raise RuntimeError(f"{argv[0]} {argv[1]} did not get ready: {self.text()}")

    @property
    def pid(self):
        return self.process.pid

    def text(self):
        return pathlib.Path(self.log).read_text(errors="replace")

    def stop(self, how=signal.SIGTERM, timeout=15):
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


@pytest.fixture
def start(tmp_path):
    """start(argv) runs a program and stops it after the test."""
    running = []

    def run(argv, **options):
        r = Running([str(a) for a in argv], tmp_path / f"log.{len(running)}", **options)
        running.append(r)
        return r

    yield run
    for r in reversed(running):
        if r.process.poll() is None:
            workers = children(r.pid)  # they would outlive it, for the sake of their connections
            r.process.kill()
            r.process.wait()
            for pid in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def pki(pqplane, tmp_path_factory):
    """An authority and what it issued to a server and a client; who changes its files makes one of their own."""
    p = Pki(pqplane, tmp_path_factory.mktemp("pki") / "a")
    p.issue("server")
    p.issue("client")
    return p


@pytest.fixture
def function():
    f = Function(echo)
    yield f
    f.close()


@pytest.fixture
def functions():
    """functions(serve) is a function that serves so; what went wrong in any fails the test."""
    made = []

    def make(serve, path=None):
        made.append(Function(serve, path))
        return made[-1]

    yield make
    for f in made:
        f.close()
        assert not f.errors
