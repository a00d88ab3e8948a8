"""Tunnels between two proxies: when they open, wait, are lost, renewed and kept, and peers that speak none."""

import json
import os
import signal
import socket
import time

import pytest

from proxy_peers import PATIENCE, Pair, Pki, Proxy, connect, echo, egress_config, hold, ingress_config, read_all, until


def round_trip(port, text=b"hello"):
    s = connect(port)
    s.sendall(text)
    s.shutdown(socket.SHUT_WR)
    return read_all(s)


def opened(proxy):
    return len(proxy.log("tunnel opened"))


def test_tunnels_open_ahead_of_need(start, pqplane, tmp_path, pki, functions):
    p = Pair(start, pqplane, tmp_path, pki, functions(echo).address, egress={"tunnel": {"connections": 3}})
    for x in p.both():
        until(lambda x=x: opened(x) == 3, "three tunnels")
    for _ in range(6):
        assert round_trip(p.egress.port("nrf")) == (b"hello", "end")
    assert opened(p.egress) == 3
    assert {line["tunnel"] for line in p.egress.log("connection closed")} <= {1, 2, 3}


def test_the_server_speaks_first(start, pqplane, tmp_path, pki, functions):
    f = functions(hold)
    p = Pair(start, pqplane, tmp_path, pki, f.address)
    near = connect(p.egress.port("nrf"))
    far = f.take()
    far.sendall(b"220 ready")
    assert near.recv(100) == b"220 ready"


def test_a_lost_tunnel_says_who_died_with_it(start, pqplane, tmp_path, pki, functions):
    f = functions(hold)
    p = Pair(start, pqplane, tmp_path, pki, f.address, egress={"tunnel": {"connections": 1}})
    near = [connect(p.egress.port("nrf")) for _ in range(3)]
    far = []
    for s in near:
        s.sendall(b"?")
        far.append(f.take())
        assert far[-1].recv(1) == b"?"
    addresses = {"%s:%d" % s.getsockname() for s in near}
    os.kill(p.ingress.pid, signal.SIGKILL)
    for s in near + far:
        assert read_all(s) == (b"", "reset")
    line = p.egress.wait_log("tunnel closed")
    assert line["level"] == "warn" and "3 local connections died with it" in line["detail"]
    assert all(a in line["detail"] for a in addresses)
    until(lambda: len(p.egress.log("connection closed")) == 3, "three lines")
    assert {x["reason"] for x in p.egress.log("connection closed")} == {"tunnel-lost"}


def test_who_finds_no_tunnel_waits_for_one(start, pqplane, tmp_path, pki, functions, free_port):
    port = free_port()
    egress = Proxy(start, pqplane, tmp_path, "egress", egress_config(pki, f"127.0.0.1:{port}"))
    s = connect(egress.port("nrf"))
    s.sendall(b"hello")
    egress.wait_log("tunnel failed")
    config = ingress_config(pki, functions(echo).address)
    config["ingress"][0]["listen"] = f"127.0.0.1:{port}"
    Proxy(start, pqplane, tmp_path, "ingress", config)
    assert s.recv(5) == b"hello"


def test_who_waits_in_vain_is_reset_and_counted(start, pqplane, tmp_path, pki, free_port):
    egress = Proxy(start, pqplane, tmp_path, "egress",
                   egress_config(pki, f"127.0.0.1:{free_port()}", timeouts={"connect": "300ms"}))
    assert read_all(connect(egress.port("nrf"))) == (b"", "reset")
    line = egress.wait_log("connection closed")
    assert line["reason"] == "no-tunnel" and "connection refused" in line["detail"]
    assert egress.program.stop() == 0
    assert egress.counts() == {"no-tunnel": 1}


@pytest.mark.parametrize("alpn", [[], ["-alpn", "h2"]], ids=["no ALPN", "another ALPN"])
def test_a_peer_that_speaks_no_tunnel(start, pqplane, tmp_path, pki, free_port, alpn):
    port = free_port()
    files = pki.identity("server")
    start(["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-cert", files["certificate"], "-cert_chain",
           files["certificate"], "-key", files["key"], "-CAfile", files["ca"], "-Verify", "3", "-verify_return_error",
           "-quiet", "-rev", *alpn], ready=False)
    egress = Proxy(start, pqplane, tmp_path, "egress", egress_config(pki, f"127.0.0.1:{port}"))
    s = connect(egress.port("nrf"))
    s.sendall(b"hello\n")
    assert s.recv(6) == b"olleh\n"
    egress.wait_log("peer speaks no tunnel")
    s.close()
    line = egress.wait_log("connection closed")
    assert "tunnel" not in line and line["handshake_ms"] > 0


def test_tunnels_are_renewed_and_streams_stay(start, pqplane, tmp_path, pki, functions):
    f = functions(hold)
    p = Pair(start, pqplane, tmp_path, pki, f.address, egress={"tunnel": {"connections": 1, "max_age": "1s"}})
    near = connect(p.egress.port("nrf"))
    near.sendall(b"?")
    far = f.take()
    assert far.recv(1) == b"?"
    until(lambda: opened(p.egress) >= 3, "two renewals")
    far.sendall(b"still here")
    assert near.recv(100) == b"still here"
    near.shutdown(socket.SHUT_WR)
    assert read_all(far) == (b"", "end")
    far.close()
    assert read_all(near) == (b"", "end")
    until(lambda: any(line["tunnel"] == 1 for line in p.egress.log("tunnel closed")), "the end of the first tunnel")
    assert {line["reason"] for line in p.egress.log("tunnel closed")} == {"end"}


def reload(proxy, change):
    config = json.loads(proxy.path.read_text())
    change(config)
    return proxy.reload(config)


def test_a_reload_keeps_tunnels_and_their_streams(start, pqplane, tmp_path, pki, functions):
    f = functions(hold)
    p = Pair(start, pqplane, tmp_path, pki, f.address, egress={"watch": False}, ingress={"watch": False})
    near = connect(p.egress.port("nrf"))
    near.sendall(b"?")
    far = f.take()
    assert far.recv(1) == b"?"
    for x in p.both():
        before = opened(p.egress)
        reload(x, lambda c: c.update(timeouts={"idle": "77s"}))
        if x is p.egress:
            until(lambda b=before: opened(p.egress) >= b + 2, "tunnels of the new generation")
        far.sendall(b"same")
        assert near.recv(4) == b"same"
    other = connect(p.egress.port("nrf"))
    other.sendall(b"!")
    another = f.take()
    assert another.recv(1) == b"!"
    assert not [line for line in p.egress.log("connection closed") + p.ingress.log("connection closed")]


def test_a_reload_ends_tunnels_whose_peer_is_revoked(start, pqplane, tmp_path, tmp_path_factory, functions):
    mine = Pki(pqplane, tmp_path_factory.mktemp("pki") / "b")
    for name in ("server", "client"):
        mine.issue(name)
    f = functions(hold)
    p = Pair(start, pqplane, tmp_path, mine, f.address, ingress={"timeouts": {"grace": "200ms"}, "watch": False})
    near = connect(p.egress.port("nrf"))
    near.sendall(b"?")
    far = f.take()
    assert far.recv(1) == b"?"
    mine.run("crl", "--revoke", "client")
    reload(p.ingress, lambda c: c["tls"].update(crl=mine.file("crl.pem")))
    assert read_all(near) == (b"", "reset")
    assert read_all(far) == (b"", "reset")
    line = p.ingress.wait_log("connection closed")
    assert line["reason"] == "no-longer-allowed" and "revoked" in line["detail"]


def test_one_stuck_stream_stops_no_other(start, pqplane, tmp_path, pki, functions):
    f = functions(hold)
    p = Pair(start, pqplane, tmp_path, pki, f.address, egress={"tunnel": {"connections": 1}})
    stuck, free = connect(p.egress.port("nrf")), connect(p.egress.port("nrf"))
    stuck.sendall(b"1")
    first = f.take()
    free.sendall(b"2")
    second = f.take()
    if first.recv(1) == b"2":
        first, second = second, first
    else:
        assert second.recv(1) == b"2"
    stuck.setblocking(False)
    end = time.monotonic() + PATIENCE
    filled = 0
    while filled < 3 and time.monotonic() < end:  # until nothing more is taken for a while
        try:
            stuck.send(b"x" * 65536)
            filled = 0
        except BlockingIOError:
            filled += 1
            time.sleep(0.1)
    for _ in range(50):
        free.sendall(b"ping")
        assert second.recv(4) == b"ping"
        second.sendall(b"pong")
        assert free.recv(4) == b"pong"


def test_a_worker_that_dies_is_an_error_at_both_ends(start, pqplane, tmp_path, pki, functions):
    f = functions(hold)
    p = Pair(start, pqplane, tmp_path, pki, f.address)
    near = connect(p.egress.port("nrf"))
    near.sendall(b"?")
    far = f.take()
    assert far.recv(1) == b"?"
    os.kill(p.egress.pid, signal.SIGKILL)
    assert read_all(near) == (b"", "reset")
    assert read_all(far) == (b"", "reset")
