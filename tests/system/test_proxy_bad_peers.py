"""Peers that break off, stall, lie or flood: what each is called in the log and in the counters, on the side that it met.

Each peer meets a proxy that has seen the others; a good one is served at the end."""

import collections
import contextlib
import os
import random
import socket
import ssl
import subprocess

import pytest

from proxy_peers import PATIENCE, Function, Proxy, Splitter, connect, echo, egress_config, hold, ingress_config, read_all, reset, until
from tls_peers import (Talk, answered, finished, half_a_flight, half_a_hello, half_a_record, hello_only, server_finished,
                       server_half_a_flight, server_half_a_hello, server_half_a_record, server_never_judges, tls_context)

MORE = {"limits": {"handshakes_per_source": 100000, "strangers": 100000}}
PATIENT = {**MORE, "timeouts": {"handshake": "60s"}}
OPEN = {"mode": "hybrid", "level": 3, "sigalgs": "mldsa65:ecdsa_secp256r1_sha256"}  # any key of a peer will do


@pytest.fixture
def function():
    f = Function(hold)
    yield f
    f.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Certificates that no authority of ours would issue."""
    return tmp_path_factory.mktemp("odd")


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, timeout=PATIENCE)


def self_signed(folder, name):
    openssl("req", "-x509", "-newkey", "mldsa65", "-nodes", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt",
            "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}.example")
    return {"certificate": str(folder / f"{name}.crt"), "key": str(folder / f"{name}.key")}


def chain_of(folder, count):
    """A leaf and so many authorities, each issued by the next, down from a root that goes into the CA file."""
    for name in ("deep.crt", "deep.key", "deep-root.crt"):
        if (folder / name).exists():
            return
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", folder / "0.key", "-out",
            folder / "0.crt", "-subj", "/CN=deep-root", "-addext", "basicConstraints=critical,CA:TRUE")
    for i in range(1, count + 1):
        last = i == count
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", folder / f"{i}.key",
                "-out", folder / f"{i}.crt", "-subj", f"/CN={'client' if last else i}", "-CA", folder / f"{i - 1}.crt", "-CAkey",
                folder / f"{i - 1}.key", "-addext", f"basicConstraints=critical,CA:{'FALSE' if last else 'TRUE'}")
    chain = "".join((folder / f"{i}.crt").read_text() for i in range(count, 0, -1))
    (folder / "deep.crt").write_text(chain)
    os.rename(folder / f"{count}.key", folder / "deep.key")
    os.rename(folder / "0.crt", folder / "deep-root.crt")


# --- clients: how far they go -----------------------------------------------------------------------------------------


def nothing(context, s):
    return None


BEFORE = [nothing, half_a_hello, hello_only, half_a_flight]
AFTER = [finished, half_a_record]


def bare_end(s):
    """FIN, and TLS has not said that it ends."""
    s.shutdown(socket.SHUT_WR)
    with contextlib.suppress(OSError):
        read_all(s)
    s.close()


def ends(proxy, count):
    """The lines of so many connections that ended, in order."""
    lines = until(lambda: (found := [x for x in proxy.log() if x["event"] in ("handshake failed", "connection closed")])
                  and len(found) >= count and found, f"{count} ends")
    assert len(lines) == count
    return lines


def stopped(proxy, expected):
    assert proxy.program.stop() == 0
    assert proxy.counts() == expected


def say_goodbye(t):
    """close_notify."""
    with contextlib.suppress(ssl.SSLWantReadError):
        t.tls.unwrap()
    t.flush()


def good_client(context, proxy, function):
    """Is served, to an orderly end."""
    count = len(proxy.log("connection closed"))
    t = finished(context, connect(proxy.port("sbi")))
    local = function.take()
    say_goodbye(t)
    assert read_all(local) == (b"", "end")
    local.close()
    assert proxy.wait_log("connection closed", count + 1)["reason"] == "end"


def test_clients_that_stall_at_any_flight(start, pqplane, tmp_path, pki, function):
    a = Proxy(start, pqplane, tmp_path, "ingress",
              ingress_config(pki, function.address, timeouts={"handshake": "1500ms"}, **MORE))
    context = tls_context(pki, "client")
    kept = [(s := connect(a.port("sbi")), stall(context, s)) for stall in BEFORE]
    lines = ends(a, len(BEFORE))
    for line in lines:
        assert (line["event"], line["reason"]) == ("handshake failed", "timeout")
        assert "did not finish the handshake within 1.500 s" in line["detail"]
    for s, _ in kept:
        read_all(s)
    assert not function.connections
    good_client(context, a, function)
    stopped(a, {"timeout": len(BEFORE), "end": 1})


@pytest.mark.parametrize("how", [bare_end, reset], ids=["FIN", "RST"])
def test_clients_that_break_off_at_any_flight(start, pqplane, tmp_path, pki, function, how):
    a = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(pki, function.address, **PATIENT))
    context = tls_context(pki, "client")
    for count, state in enumerate(BEFORE, 1):
        s = connect(a.port("sbi"))
        t = state(context, s)
        how(s)
        line = ends(a, count)[-1]
        assert (line["event"], line["reason"], line["bytes_down"]) == ("handshake failed", "reset", 0), state.__name__
        assert ("closed" if how is bare_end else "reset") in line["detail"] or state is nothing, line
    assert not function.connections
    for count, state in enumerate(AFTER, len(BEFORE) + 1):
        s = connect(a.port("sbi"))
        t = state(context, s)
        local = function.take()
        how(s)
        assert read_all(local)[1] == "reset", "the function must not take it for an end"
        line = ends(a, count)[-1]
        assert (line["event"], line["reason"]) == ("connection closed", "reset-by-peer"), state.__name__
    good_client(context, a, function)
    stopped(a, {"reset": len(BEFORE), "reset-by-peer": len(AFTER), "end": 1})


# --- clients: what they send --------------------------------------------------------------------------------------------


def send(data):
    def do(context, s):
        s.sendall(data)

    return do


def garbage(seed, size):
    return random.Random(seed).randbytes(size)


def second_flight_of_garbage(context, s):
    t = Talk(context, s)
    t.handshake()
    t.out.read()
    s.sendall(b"\x17\x03\x03\x01\x00" + garbage(4, 256))


def spoilt(part):
    """One byte of our last flight, or of a record of data, is another."""

    def do(context, s):
        t = Talk(context, s) if part == "flight" else finished(context, s)
        if part == "flight":
            t.handshake()
        else:
            t.tls.write(b"x" * 100)
        data = bytearray(t.out.read())
        data[-5] ^= 1
        s.sendall(data)

    return do


def oversized_record_of_data(context, s):
    finished(context, s)
    s.sendall(b"\x17\x03\x03\x41\x01" + garbage(5, 0x4101))


def with_files(**files):
    def do(context, s):
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        c.load_cert_chain(files["certificate"], files["key"])
        c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
        t = Talk(c, s)
        t.handshake()
        with contextlib.suppress(OSError):
            t.flush()

    return do


def limited_to(version):
    def do(context, s):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = context.minimum_version = version
        t = Talk(context, s)
        t.step()
        t.flush()

    return do


def classical(context, s):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ecdh_curve("prime256v1")
    t = Talk(context, s)
    t.step()
    t.flush()


HANDSHAKE = [
    ("plain text", send(b"GET / HTTP/1.1\r\n\r\n"), "not-tls"),
    ("garbage", send(garbage(1, 4096)), "not-tls"),
    ("garbage behind a record's header", send(b"\x16\x03\x01\x02\x00" + garbage(2, 512)), "protocol-error"),
    ("a first record of more than TLS allows", send(b"\x16\x03\x01\x44\x01" + garbage(3, 0x4401)), "protocol-error"),
    ("a first message of 16 MB", send(b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\x00"), "protocol-error"),
    ("an alert first", send(b"\x15\x03\x03\x00\x02\x02\x28"), "protocol-error"),
    ("data first", send(b"\x17\x03\x03\x00\x10" + garbage(6, 16)), "protocol-error"),
    ("a second flight of garbage", second_flight_of_garbage, "protocol-error"),
    ("a spoilt second flight", spoilt("flight"), "protocol-error"),
    ("TLS 1.2", limited_to(ssl.TLSVersion.TLSv1_2), "protocol-version"),
    ("classical groups only", classical, "no-shared-group"),
]
DATA = [
    ("a spoilt record", spoilt("data"), "protocol-error"),
    ("a record of more than TLS allows", oversized_record_of_data, "protocol-error"),
]


def test_clients_that_send_what_they_must_not(start, pqplane, tmp_path, pki, function):
    a = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(pki, function.address, **PATIENT))
    context, expected = tls_context(pki, "client"), collections.Counter()
    for what, do, reason in HANDSHAKE:
        s = connect(a.port("sbi"))
        do(context, s)
        expected[reason] += 1
        line = ends(a, expected.total())[-1]
        assert (line["event"], line["reason"], line["bytes_down"]) == ("handshake failed", reason, 0), (what, line)
        with contextlib.suppress(OSError):
            assert b"HTTP" not in read_all(s)[0]
    assert not function.connections
    for what, do, reason in DATA:
        s = connect(a.port("sbi"))
        do(context, s)
        expected[reason] += 1
        assert read_all(function.take()) == (b"", "reset"), what
        line = ends(a, expected.total())[-1]
        assert (line["event"], line["reason"]) == ("connection closed", reason), (what, line)
    good_client(context, a, function)
    stopped(a, {**expected, "end": 1})


def test_clients_whose_certificates_are_odd(start, pqplane, tmp_path, pki, function, folder):
    chain_of(folder, 100)
    leaf = open(pki.file("client.crt")).read()
    both = tmp_path / "both.crt"
    both.write_text(open(pki.file("root.crt")).read() + (folder / "deep-root.crt").read_text())
    names = folder / "long.cnf"
    names.write_text("[req]\ndistinguished_name=d\n[d]\n[x]\nnsComment=" + "x" * 1_000_000 + "\n")
    openssl("req", "-x509", "-newkey", "mldsa65", "-nodes", "-keyout", folder / "long.key", "-out", folder / "long.crt", "-subj",
            "/CN=client", "-config", names, "-extensions", "x")
    (folder / "other.crt").write_text(leaf)
    repeated = folder / "repeated.crt"
    repeated.write_text(leaf + leaf[leaf.index("-----BEGIN", 1):] * 99)
    rows = [
        ("self-signed", self_signed(folder, "client"), "untrusted"),
        ("100 authorities deep", {"certificate": folder / "deep.crt", "key": folder / "deep.key"}, "certificates-too-long"),
        ("100 times the same", {"certificate": repeated, "key": pki.file("client.key")}, "certificates-too-long"),
        ("1 MB", {"certificate": folder / "long.crt", "key": folder / "long.key"}, "certificates-too-long"),
    ]
    a = Proxy(start, pqplane, tmp_path, "ingress",
              ingress_config(pki, function.address, policy=OPEN, tls={"ca": str(both)}, **PATIENT))
    expected = collections.Counter()
    for what, files, reason in rows:
        with_files(**files)(None, connect(a.port("sbi")))
        expected[reason] += 1
        line = ends(a, expected.total())[-1]
        assert (line["event"], line["reason"]) == ("handshake failed", reason), (what, line)
    assert not function.connections
    good_client(tls_context(pki, "client"), a, function)
    stopped(a, {**expected, "end": 1})


def test_a_client_that_floods_with_key_updates(start, pqplane, tmp_path, pki, function):
    a = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(pki, function.address, **PATIENT))
    files = pki.identity("client")
    argv = ["openssl", "s_client", "-adv", "-connect", f"127.0.0.1:{a.port('sbi')}", "-cert", files["certificate"], "-cert_chain",
            files["certificate"], "-key", files["key"], "-CAfile", files["ca"]]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as p:
        until(lambda: function.connections, "the handshake")
        with contextlib.suppress(BrokenPipeError):
            p.stdin.write(b"{keyup:noreq}" * 500 + b"\n")
            p.stdin.flush()
        p.wait(PATIENCE)
    line = ends(a, 1)[-1]
    assert (line["event"], line["reason"]) == ("connection closed", "key-updates"), line
    assert read_all(function.take()) == (b"", "reset")
    good_client(tls_context(pki, "client"), a, function)
    stopped(a, {"key-updates": 1, "end": 1})


# --- servers --------------------------------------------------------------------------------------------------------


class Server:
    """Plays one part after the other, a connection each; what it kept open is closed at the end."""

    def __init__(self, *parts):
        self.parts, self.kept = list(parts), []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"

    def play(self, context):
        s, _ = self.listener.accept()
        s.settimeout(PATIENCE)
        self.kept.append((s, self.parts.pop(0)(context, s)))
        return s


def server_nothing(context, s):
    s.recv(1, socket.MSG_PEEK)


SERVER_BEFORE = [server_nothing, server_half_a_hello, server_half_a_flight]
SERVER_AFTER = [server_never_judges, server_finished, server_half_a_record]


def through(proxy, server, context):
    """A local connection, and what the server's part came to."""
    local = connect(proxy.port("nrf"))
    return local, server.play(context)


def egress(start, pqplane, tmp_path, pki, address, **more):
    return Proxy(start, pqplane, tmp_path, "egress", egress_config(pki, address, carry="connection", **more))


def good_server(context, proxy, server):
    count = len(proxy.log("connection closed"))
    server.parts.append(server_finished)
    local, s = through(proxy, server, context)
    t = server.kept[-1][1]
    t.tls.write(b"hello")
    say_goodbye(t)
    assert read_all(local) == (b"hello", "end")
    local.close()
    assert proxy.wait_log("connection closed", count + 1)["reason"] == "end"


def test_servers_that_stall_at_any_flight(start, pqplane, tmp_path, pki):
    context, server = tls_context(pki, "server", server=True), Server(*SERVER_BEFORE)
    b = egress(start, pqplane, tmp_path, pki, server.address, timeouts={"handshake": "1500ms"}, **MORE)
    near = [through(b, server, context)[0] for _ in SERVER_BEFORE]
    for line in ends(b, len(SERVER_BEFORE)):
        assert (line["event"], line["reason"], line["bytes_up"]) == ("handshake failed", "timeout", 0)
    for local in near:
        assert read_all(local) == (b"", "reset")
    good_server(context, b, server)
    stopped(b, {"timeout": len(SERVER_BEFORE), "end": 1})


@pytest.mark.parametrize("how", [bare_end, reset], ids=["FIN", "RST"])
def test_servers_that_break_off_at_any_flight(start, pqplane, tmp_path, pki, how):
    context, server = tls_context(pki, "server", server=True), Server(*SERVER_BEFORE, *SERVER_AFTER)
    b = egress(start, pqplane, tmp_path, pki, server.address, **PATIENT)
    wanted = {**dict.fromkeys(SERVER_BEFORE, ("handshake failed", "reset")),
              **dict.fromkeys(SERVER_AFTER, ("connection closed", "reset-by-peer"))}
    for count, state in enumerate(wanted, 1):
        local, s = through(b, server, context)
        how(s)
        assert read_all(local) == (b"", "reset"), "the function must not take it for an end"
        line = ends(b, count)[-1]
        assert (line["event"], line["reason"]) == wanted[state], (state.__name__, line)
    good_server(context, b, server)
    stopped(b, {"reset": len(SERVER_BEFORE), "reset-by-peer": len(SERVER_AFTER), "end": 1})


def answer(data):
    def do(context, s):
        s.recv(65536)
        s.sendall(data)

    return do


def spoilt_flight(context, s):
    t = answered(context, s)
    data = bytearray(t.out.read())
    data[-5] ^= 1
    s.sendall(data)


def limited_server(version):
    def do(context, s):
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        c.maximum_version = c.minimum_version = version
        t = Talk(c, s, server=True)
        t.feed()
        with contextlib.suppress(ssl.SSLError):
            t.step()
        t.flush()

    return do


def server_with(**files):
    def do(context, s):
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        c.load_cert_chain(files["certificate"], files["key"])
        t = Talk(c, s, server=True)
        t.serve()
        with contextlib.suppress(OSError):
            t.flush()

    return do


def server_spoils_a_record(context, s):
    t = server_finished(context, s)
    t.tls.write(b"x" * 100)
    data = bytearray(t.out.read())
    data[-5] ^= 1
    s.sendall(data)


def test_servers_that_send_what_they_must_not(start, pqplane, tmp_path, pki, folder):
    rows = [
        ("plain text", answer(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "not-tls"),
        ("garbage", answer(garbage(11, 4096)), "not-tls"),
        ("garbage behind a record's header", answer(b"\x16\x03\x03\x02\x00" + garbage(12, 512)), "protocol-error"),
        ("a first record of more than TLS allows", answer(b"\x16\x03\x03\x44\x01" + garbage(13, 0x4401)), "protocol-error"),
        ("a first message of 16 MB", answer(b"\x16\x03\x03\x00\x05\x02\xff\xff\xff\x00"), "protocol-error"),
        ("the client's own first flight", lambda context, s: s.sendall(s.recv(65536)), "protocol-error"),
        ("a spoilt flight", spoilt_flight, "protocol-error"),
        ("TLS 1.2", limited_server(ssl.TLSVersion.TLSv1_2), "protocol-version"),
        ("self-signed", server_with(**self_signed(folder, "server")), "untrusted"),
        ("a spoilt record", server_spoils_a_record, "protocol-error"),
    ]
    context, server = tls_context(pki, "server", server=True), Server(*(do for _, do, _ in rows))
    b = egress(start, pqplane, tmp_path, pki, server.address, **PATIENT)
    expected = collections.Counter()
    for what, _, reason in rows:
        local, s = through(b, server, context)
        expected[reason] += 1
        assert read_all(local) == (b"", "reset"), what
        line = ends(b, expected.total())[-1]
        assert (line["reason"], line["bytes_up"]) == (reason, 0), (what, line)
    good_server(context, b, server)
    stopped(b, {**expected, "end": 1})


# --- and what only looks bad --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7])
def test_a_client_in_tiny_segments_is_served(start, pqplane, tmp_path, pki, size):
    f = Function(echo)
    a = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(pki, f.address, **PATIENT))
    split = Splitter(a.port("sbi"), size=size)
    s = connect(int(split.address.rsplit(":", 1)[1]))
    t = finished(tls_context(pki, "client"), s)
    t.tls.write(b"hello")
    t.flush()
    while True:
        with contextlib.suppress(ssl.SSLWantReadError):
            assert t.tls.read(5) == b"hello"
            break
        t.feed()
    f.close()
