"""Handshakes beside the relay: they delay nobody, and strangers take nothing from those who are known."""

import contextlib
import socket
import subprocess

import pytest

from proxy_peers import PATIENCE, Proxy, connect, egress_config, ingress_config, until


@pytest.fixture
def ingress(start, pqplane, tmp_path, pki, function):
    def make(**more):
        return Proxy(start, pqplane, tmp_path, "ingress", ingress_config(pki, function.address, **more))

    return make


def silent(port, source="127.0.0.1"):
    """A connection that sends nothing: where it is let in, its handshake stays in flight."""
    s = socket.socket()
    s.settimeout(PATIENCE)
    s.bind((source, 0))
    with contextlib.suppress(ConnectionResetError):
        s.connect(("127.0.0.1", port))
    return s


def is_served(port, pki, source):
    """Whether OpenSSL's client, from that address, gets its echo."""
    files = pki.identity("client")
    argv = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-bind", source, "-cert", files["certificate"],
            "-cert_chain", files["certificate"], "-key", files["key"], "-CAfile", files["ca"], "-verify_return_error",
            "-quiet"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        try:
            p.stdin.write(b"hello\n")
            p.stdin.flush()
        except BrokenPipeError:
            return False
        line = p.stdout.readline()
        p.kill()
        return line == b"hello\n"


def stop(proxy):
    for event in ("draining", "stopped"):
        proxy.program.process.terminate()
        proxy.wait_log(event)


def refusals(proxy, reason):
    return sum(line["count"] for line in proxy.log("connection refused") if line["reason"] == reason)


# --- the thread -----------------------------------------------------------------------------------------------------


def client_hello(pki, start, pqplane, tmp_path):
    """The first flight of a real client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        proxy = Proxy(start, pqplane, tmp_path, "recorded",
                      egress_config(pki, f"127.0.0.1:{listener.getsockname()[1]}"))
        connect(proxy.port("nrf"))
        s, _ = listener.accept()
        s.settimeout(PATIENCE)
        head = s.recv(5, socket.MSG_WAITALL)
        return head + s.recv(int.from_bytes(head[3:5], "big"), socket.MSG_WAITALL)


def test_signatures_do_not_stand_before_established_traffic(start, pqplane, tmp_path, pki, ingress):
    """While hundreds of strangers wait for the server's signature, one answer after the other comes through."""
    strangers, echoes = 600, 30
    a = ingress(limits={"handshakes": 2000, "handshakes_per_source": 2000, "strangers": 2000})
    b = Proxy(start, pqplane, tmp_path, "egress", egress_config(pki, f"127.0.0.1:{a.port('sbi')}"))
    established = connect(b.port("nrf"))
    established.sendall(b"first")
    assert established.recv(5, socket.MSG_WAITALL) == b"first"
    hello = client_hello(pki, start, pqplane, tmp_path)
    flood = [connect(a.port("sbi")) for _ in range(strangers)]
    for s in flood:
        s.sendall(hello)
        s.setblocking(False)
    for i in range(echoes):
        established.sendall(b"%04d" % i)
        assert established.recv(4, socket.MSG_WAITALL) == b"%04d" % i
    signed = sum(answered(s) for s in flood)
    # On the relay's own thread, no echo would have come before all that was asked for earlier was signed.
    assert signed < strangers
    until(lambda: all(answered(s) for s in flood), "the signatures")


def answered(s):
    try:
        return len(s.recv(1, socket.MSG_PEEK)) > 0
    except BlockingIOError:
        return False


def test_a_drain_ends_handshakes_too(ingress):
    a = ingress(timeouts={"handshake": "60s", "drain": "200ms"})
    sockets = [silent(a.port("sbi")) for _ in range(3)]
    a.program.process.terminate()
    a.wait_log("stopped")
    assert a.counts() == {"drain": 3}
    assert all(len(read(s)) == 0 for s in sockets)


def read(s):
    try:
        return s.recv(1)
    except ConnectionResetError:
        return b""


# --- who may come ---------------------------------------------------------------------------------------------------


def test_one_source_has_its_rate_and_others_come_in(ingress, pki):
    a = ingress(limits={"handshakes_per_source": 1}, timeouts={"handshake": "60s"})
    held = [silent(a.port("sbi")) for _ in range(20)]
    until(lambda: refusals(a, "source-rate") >= 1, "a refusal")
    assert is_served(a.port("sbi"), pki, "127.0.0.2")
    stop(a)
    # Four seconds' worth at once, and one more each second.
    assert a.counts()["drain"] >= 4 and a.counts()["source-rate"] == refusals(a, "source-rate")
    assert len(held) == 20


def test_strangers_have_a_rate_and_the_known_are_not_bound_by_it(ingress, pki):
    a = ingress(limits={"strangers": 1}, timeouts={"handshake": "60s"})
    assert is_served(a.port("sbi"), pki, "127.0.0.2")
    held = [silent(a.port("sbi"), f"127.0.1.{i}") for i in range(1, 40)]
    until(lambda: refusals(a, "stranger-rate") >= 1, "a refusal")
    assert is_served(a.port("sbi"), pki, "127.0.0.2")
    assert len(held) == 39


def test_strangers_leave_places_for_the_known(ingress, pki):
    a = ingress(limits={"handshakes": 4}, timeouts={"handshake": "60s"})
    assert is_served(a.port("sbi"), pki, "127.0.0.2")
    held = [silent(a.port("sbi")) for _ in range(5)]
    until(lambda: refusals(a, "handshakes") == 2, "two refusals")
    assert is_served(a.port("sbi"), pki, "127.0.0.2")
    held[0].close()
    a.wait_log("handshake failed")
    last = silent(a.port("sbi"))
    last.sendall(b"GET /")
    a.wait_log("handshake failed", 2)
    assert refusals(a, "handshakes") == 2
