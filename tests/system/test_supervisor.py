"""The proxy's processes: a supervisor that keeps the listening sockets, workers that come and go."""

import os
import signal
import socket

import pytest

import proxy_peers
from proxy_peers import PATIENCE, Function, Pair, Pki, Proxy, connect, egress_config, hold, ingress_config, read_all, refused, until


@pytest.fixture(scope="session")
def pki(pqplane, tmp_path_factory):
    p = Pki(pqplane, tmp_path_factory.mktemp("pki") / "a")
    p.issue("server")
    p.issue("client")
    return p


@pytest.fixture
def function():
    made = []

    def make(serve):
        made.append(Function(serve))
        return made[-1]

    yield make
    for f in made:
        f.close()
        assert not f.errors


def echo(c):
    try:
        proxy_peers.echo(c)
    except ConnectionResetError:  # its worker was killed
        pass


def works(p):
    s = p.connect()
    s.sendall(b"hello")
    assert s.recv(5, socket.MSG_WAITALL) == b"hello"
    return s


def gone(pid):
    return not os.path.exists(f"/proc/{pid}")


# --- workers --------------------------------------------------------------------------------------------------------


def test_a_killed_worker_is_started_again_and_the_sockets_stay(start, pqplane, tmp_path, pki, function):
    p = Pair(start, pqplane, tmp_path, pki, function(echo).address)
    s = works(p)
    first = p.egress.pid
    os.kill(first, signal.SIGSTOP)  # who comes now waits in the backlog
    waiting = p.connect()
    waiting.sendall(b"later")
    os.kill(first, signal.SIGKILL)
    assert read_all(s) == (b"", "reset")
    assert waiting.recv(5, socket.MSG_WAITALL) == b"later"
    line = p.egress.wait_log("worker died")
    assert line["worker"] == 0 and "killed by signal 9" in line["detail"] and line["restart_in_s"] == 0
    second = p.egress.pid
    assert second != first
    os.kill(second, signal.SIGKILL)
    assert read_all(waiting) == (b"", "reset")
    assert p.egress.wait_log("worker died", 2)["restart_in_s"] == 1
    works(p)
    os.kill(p.egress.pid, signal.SIGKILL)
    assert p.egress.wait_log("worker died", 3)["restart_in_s"] == 2
    assert p.egress.program.stop() == 0, "also while it waits to start one"
    assert p.egress.log("stopped")[0]["accepted"] == 3, "what dead workers counted stays"


def test_several_workers_share_sockets_and_limit(start, pqplane, tmp_path, pki, function):
    f = function(echo)
    more = {"workers": 3, "limits": {"connections": 30}}
    p = Pair(start, pqplane, tmp_path, pki, f.address, egress=more, ingress={"workers": 2})
    assert len(p.egress.workers) == 3 and len(p.ingress.workers) == 2
    open_now = [works(p) for _ in range(30)]
    assert refused(p.egress.port("nrf"))
    assert p.egress.wait_log("connection refused")["open"] == 30
    victim = p.egress.workers[0]
    os.kill(victim, signal.SIGKILL)
    until(lambda: gone(victim) and len(p.egress.workers) == 3, "a new worker")
    alive = []
    for s in open_now:
        try:
            s.sendall(b"again")
            if s.recv(5, socket.MSG_WAITALL) == b"again":
                alive.append(s)
        except (ConnectionResetError, BrokenPipeError):
            pass
    refill = [works(p) for _ in range(30 - len(alive))]  # a dead worker's connections no longer count
    assert refused(p.egress.port("nrf"))
    for s in alive + refill:
        s.close()
    for x in p.both():
        assert x.program.stop() == 0
    assert p.egress.counts()["limit"] == 2


def test_a_worker_does_not_listen_to_signals_meant_for_the_supervisor(start, pqplane, tmp_path, pki, function):
    p = Pair(start, pqplane, tmp_path, pki, function(echo).address)
    s = works(p)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
        os.kill(p.egress.pid, number)
    s.sendall(b"still")
    assert s.recv(5, socket.MSG_WAITALL) == b"still"
    assert not p.egress.log("worker died")


# --- the supervisor -------------------------------------------------------------------------------------------------


def test_workers_finish_when_the_supervisor_is_killed(start, pqplane, tmp_path, pki, function):
    f = function(hold)
    p = Pair(start, pqplane, tmp_path, pki, f.address, egress={"workers": 2})
    near = p.connect()
    near.sendall(b"?")
    far = f.take()
    assert far.recv(1) == b"?"
    workers = p.egress.workers
    p.egress.program.process.kill()
    p.egress.program.process.wait(PATIENCE)
    p.egress.wait_log("supervisor gone", 2)
    until(lambda: sum(map(gone, workers)) == 1, "the end of the worker without connections")
    with pytest.raises(ConnectionRefusedError):
        connect(p.egress.port("nrf"))
    near.sendall(b"still carried")
    near.shutdown(socket.SHUT_WR)
    assert read_all(far) == (b"still carried", "end")
    far.sendall(b"both ways")
    far.close()
    assert read_all(near) == (b"both ways", "end")
    until(lambda: all(map(gone, workers)), "the end of the last worker")


def test_nothing_is_left_behind(start, pqplane, tmp_path, pki, function):
    p = Pair(start, pqplane, tmp_path, pki, function(echo).address, egress={"workers": 2})
    works(p).close()
    all_of_them = [x.supervisor for x in p.both()] + [w for x in p.both() for w in x.workers]
    for x in p.both():
        assert x.program.stop() == 0
    until(lambda: all(map(gone, all_of_them)), "the end of all processes")


def test_ready_means_that_all_workers_serve(start, pqplane, tmp_path, pki):
    p = Proxy(start, pqplane, tmp_path, "many", egress_config(pki, "127.0.0.1:9", workers=8))
    assert len(p.workers) == 8
    assert p.log("started")[0]["workers"] == 8


def test_what_is_wrong_is_said_before_anything_is_served(start, pqplane, tmp_path, pki):
    config = ingress_config(pki, "127.0.0.1:9", tls={"key": pki.file("client.key")}, workers=2)
    with pytest.raises(RuntimeError, match="does not belong to the certificate"):
        Proxy(start, pqplane, tmp_path, "wrong", config)
