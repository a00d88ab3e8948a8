"""Several addresses behind one listener: which is taken, and what happens when one fails."""

import os
import signal
import socket
import subprocess

import pytest

from proxy_peers import Function, Pair, Proxy, connect, echo, egress_config, exchange, ingress_config, refused, until


def silent_address():
    """An address that does not answer: its backlog is full."""
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    filler = [socket.socket() for _ in range(3)]
    for f in filler:
        f.setblocking(False)
        f.connect_ex(full.getsockname())
    return f"127.0.0.1:{full.getsockname()[1]}", (full, filler)


BOTH = pytest.mark.parametrize("carry", ["tunnel", "connection"])


@BOTH
def test_the_next_address_takes_over(start, pqplane, tmp_path, pki, function, free_port, carry):
    dead = f"127.0.0.1:{free_port()}"
    p = Pair(start, pqplane, tmp_path, pki, [dead, f"unix:{tmp_path}/nobody", function.address], egress={"carry": carry})
    for _ in range(3):
        assert exchange(p.egress.port("nrf")) == (b"hello", "end")
    failed = p.ingress.log("address failed")
    # Each once: after that they stand behind the one that works.
    assert len(failed) == 2 and dead in failed[0]["detail"] and "nobody" in failed[1]["detail"]
    p.ingress.wait_log("connection closed", 3)
    assert [line["local"] for line in p.ingress.log("connection closed")] == [function.address] * 3


@BOTH
def test_an_egress_finds_the_peer_that_answers(start, pqplane, tmp_path, pki, function, free_port, carry):
    a = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(pki, function.address))
    b = Proxy(start, pqplane, tmp_path, "egress",
              egress_config(pki, [f"127.0.0.1:{free_port()}", f"127.0.0.1:{a.port('sbi')}"], carry=carry))
    assert exchange(b.port("nrf")) == (b"hello", "end")


@BOTH
def test_an_address_that_does_not_answer_leaves_time_for_the_next(start, pqplane, tmp_path, pki, function, carry):
    silent, kept = silent_address()
    p = Pair(start, pqplane, tmp_path, pki, [silent, function.address], ingress={"timeouts": {"connect": "2s"}},
             egress={"carry": carry})
    assert exchange(p.egress.port("nrf")) == (b"hello", "end")
    assert "timed out" in p.ingress.wait_log("address failed")["detail"]
    assert kept


def test_when_all_fail_the_reason_is_the_last_ones(start, pqplane, tmp_path, pki, free_port):
    dead = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    p = Proxy(start, pqplane, tmp_path, "egress", egress_config(pki, dead, carry="connection"))
    assert refused(p.port("nrf"))
    line = p.wait_log("connection closed")
    assert line["reason"] == "connect-refused" and dead[1] in line["detail"]
    # It recovers as soon as one is there again, whichever.
    with socket.create_server(("127.0.0.1", int(dead[0].rsplit(":", 1)[1]))) as peer:
        peer.settimeout(20)
        s = connect(p.port("nrf"))
        peer.accept()
        assert s


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def with_hosts(pqplane, tmp_path):
    """pqplane with an /etc/hosts of its own, and how to rewrite that."""
    hosts, wrapper = tmp_path / "hosts", tmp_path / "pqplane-with-hosts"

    def write(lines):
        hosts.write_text("".join(f"{line}\n" for line in lines))

    write([])
    wrapper.write_text(f'#!/bin/sh\nexec unshare --mount sh -c \'mount --bind {hosts} /etc/hosts && exec {pqplane} "$@"\' sh "$@"\n')
    wrapper.chmod(0o755)
    tried = subprocess.run([wrapper, "--version"], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"no mount namespace to be had: {tried.stderr.strip()}")
    return wrapper, write


@BOTH
def test_names_are_followed(start, with_hosts, pqplane, tmp_path, pki, carry):
    pqplane_with_hosts, write = with_hosts
    first, second = Function(echo), Function(echo, host="127.0.0.2")
    second_port = int(second.address.rsplit(":", 1)[1])
    write(["127.0.0.9 function.test"])
    a = Proxy(start, pqplane_with_hosts, tmp_path, "ingress",
              ingress_config(pki, [f"function.test:{second_port}", first.address], resolve="1s"))
    b = Proxy(start, pqplane, tmp_path, "egress", egress_config(pki, f"127.0.0.1:{a.port('sbi')}", carry=carry))
    assert exchange(b.port("nrf")) == (b"hello", "end")
    assert len(first.connections) == 1 and not second.connections
    write(["127.0.0.2 function.test"])
    a.wait_log("addresses changed")
    until(lambda: exchange(b.port("nrf")) == (b"hello", "end") and second.connections, "a connection to the new address")
    # What is another host now gets no plaintext.
    write(["198.51.100.1 function.test"])
    line = a.wait_log("addresses refused")
    assert "function.test" in line["detail"] and "is another host" in line["detail"]
    assert exchange(b.port("nrf")) == (b"hello", "end")
    # Nor does a name that nobody knows any more lose what it had.
    write([])
    assert "function.test" in a.wait_log("lookup failed")["name"]
    assert exchange(b.port("nrf")) == (b"hello", "end")
    before = len(second.connections)
    # A worker that starts later knows what the others know.
    os.kill(a.pid, signal.SIGKILL)
    a.wait_log("worker died")
    until(lambda: exchange(b.port("nrf")) == (b"hello", "end"), "a new worker")
    assert len(second.connections) > before
    for f in (first, second):
        f.close()
