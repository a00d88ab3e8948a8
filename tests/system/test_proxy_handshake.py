"""pqplane proxy at the handshake: who is let in, who is refused and how the log says why, on the side that refused."""

import contextlib
import pathlib
import socket
import subprocess
import threading
import time

import pytest

import proxy_peers
from proxy_peers import PATIENCE, POLICY, Pair, Pki, Proxy, Splitter, connect, exchange, ingress_config, read_all, refused, until


def egress_config(*args, **more):
    """Each local connection with a TLS connection of its own, whose handshake is what this file looks at."""
    return proxy_peers.egress_config(*args, **{"carry": "connection", **more})


@pytest.fixture(scope="session")
def world(pqplane, tmp_path_factory):
    """One authority with good and bad leaves, another that nobody trusts, and a classical one."""
    folder = tmp_path_factory.mktemp("pki")
    main = Pki(pqplane, folder / "main")
    for name in ("server", "client", "revoked"):
        main.issue(name)
    main.issue("revoked-server", dns="server.example")
    main.issue("expired", "--not-before", "-2d", "--valid", "1d", dns="server.example")
    main.issue("early", "--not-before", "1d", "--valid", "1d", dns="server.example")
    main.run("crl", "--revoke", "revoked", "--revoke", "revoked-server")
    other = Pki(pqplane, folder / "other")
    other.issue("client")
    other.issue("server")
    classical = Pki(pqplane, folder / "classical", root="p384", intermediate=None, leaf="p384")
    classical.issue("client")
    classical.issue("server")
    return {"main": main, "other": other, "classical": classical}


def failed(proxy):
    line = proxy.wait_log("handshake failed")
    assert line["level"] == "warn" and line["detail"]
    return line


# --- who refuses, and why -------------------------------------------------------------------------------------------


BAD_CLIENTS = [
    ("expired", {"identity": "expired"}, {}, "expired"),
    ("not yet valid", {"identity": "early"}, {}, "not-yet-valid"),
    ("wrong name", {}, {"peers": ["amf.example", "smf.example"]}, "wrong-name"),
    ("untrusted", {"pki": "other"}, {}, "untrusted"),
    ("revoked", {"identity": "revoked"}, {"crl": True}, "revoked"),
]


@pytest.mark.parametrize("egress, ingress, reason", [c[1:] for c in BAD_CLIENTS], ids=[c[0] for c in BAD_CLIENTS])
def test_ingress_refuses(start, pqplane, tmp_path, world, function, egress, ingress, reason):
    main = world["main"]
    tls = {"crl": main.file("crl.pem")} if ingress.get("crl") else {}
    a = Proxy(start, pqplane, tmp_path, "ingress",
              ingress_config(main, function.address, peers=ingress.get("peers"), tls=tls))
    pki = world[egress.get("pki", "main")]
    b = Proxy(start, pqplane, tmp_path, "egress",
              egress_config(pki, f"127.0.0.1:{a.port('sbi')}", identity=egress.get("identity", "client"),
                            tls={"ca": main.file("root.crt")}))
    assert exchange(b.port("nrf")) == (b"", "reset")
    line = failed(a)
    assert (line["reason"], line["direction"], line["bytes_down"]) == (reason, "ingress", 0)
    assert failed(b)["reason"] == "peer-alert"
    assert not function.connections, "the function is not connected to before the peer is known"
    assert a.program.stop() == 0
    assert a.counts() == {reason: 1}


BAD_SERVERS = [
    ("expired", {"identity": "expired"}, {}, "expired"),
    ("not yet valid", {"identity": "early"}, {}, "not-yet-valid"),
    ("wrong name", {}, {"peers": ["udm.example"]}, "wrong-name"),
    ("untrusted", {"pki": "other"}, {}, "untrusted"),
    ("revoked", {"identity": "revoked-server"}, {"crl": True}, "revoked"),
]


@pytest.mark.parametrize("ingress, egress, reason", [c[1:] for c in BAD_SERVERS], ids=[c[0] for c in BAD_SERVERS])
def test_egress_refuses(start, pqplane, tmp_path, world, function, ingress, egress, reason):
    main = world["main"]
    pki = world[ingress.get("pki", "main")]
    a = Proxy(start, pqplane, tmp_path, "ingress",
              ingress_config(pki, function.address, identity=ingress.get("identity", "server"),
                             tls={"ca": main.file("root.crt")}))
    tls = {"crl": main.file("crl.pem")} if egress.get("crl") else {}
    b = Proxy(start, pqplane, tmp_path, "egress",
              egress_config(main, f"127.0.0.1:{a.port('sbi')}", peers=egress.get("peers", ["server.example"]), tls=tls))
    assert exchange(b.port("nrf")) == (b"", "reset")
    line = failed(b)
    assert (line["reason"], line["direction"], line["bytes_up"]) == (reason, "egress", 0)
    assert failed(a)["reason"] == "peer-alert"
    assert not function.connections


@pytest.fixture(scope="session")
def lists(pqplane, tmp_path_factory):
    """An authority whose lists are out of date; and of the intermediate, who issues the leaves, there is none."""
    folder = tmp_path_factory.mktemp("lists")
    pki = Pki(pqplane, folder / "main")
    pki.issue("server")
    pki.issue("client")
    both = pathlib.Path(pki.file("crl.pem")).read_text()
    (folder / "missing.pem").write_text(both[: both.index("-----BEGIN", 1)])
    pki.run("crl", "--valid", "1s")
    end = time.monotonic() + 2
    until(lambda: time.monotonic() > end, "the end of that second")
    return {"pki": pki, "crl-stale": pki.file("crl.pem"), "crl-missing": str(folder / "missing.pem")}


@pytest.mark.parametrize("fault", ["crl-stale", "crl-missing"])
@pytest.mark.parametrize("mode", [None, "refuse", "warn"])
def test_a_list_that_is_stale_or_missing(start, pqplane, tmp_path, lists, function, fault, mode):
    tls = {"crl": lists[fault], **({"crl_stale": mode} if mode else {})}
    a = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(lists["pki"], function.address, tls=tls))
    b = Proxy(start, pqplane, tmp_path, "egress", egress_config(lists["pki"], f"127.0.0.1:{a.port('sbi')}"))
    if fault == "crl-stale":
        assert a.wait_log("revocation list out of date")["file"] == lists[fault]
    if mode == "warn":
        assert exchange(b.port("nrf")) == (b"hello", "end")
        assert exchange(b.port("nrf")) == (b"hello", "end")
        state = "out of date" if fault == "crl-stale" else "missing"
        issuers = [line["issuer"] for line in a.log(f"revocation list {state}, certificate accepted")]
        assert issuers and len(issuers) == len(set(issuers)), "one line an issuer"
        return
    assert exchange(b.port("nrf")) == (b"", "reset")
    line = failed(a)
    assert line["reason"] == fault and "the revocation list of CN=" in line["detail"]
    assert not function.connections
    assert a.program.stop() == 0
    assert a.counts() == {fault: line_count(a, fault)}


def line_count(proxy, reason):
    """An egress may have tried again."""
    return len([line for line in proxy.log("handshake failed") if line["reason"] == reason])


# --- openssl's own client and server ----------------------------------------------------------------------------------


def s_client(port, pki, *args, identity="client"):
    files = pki.identity(identity)
    argv = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-cert", files["certificate"], "-cert_chain",
            files["certificate"], "-key", files["key"], "-CAfile", files["ca"], "-verify_return_error", "-quiet",
            "-no_ign_eof", *args]
    return subprocess.run(argv, input=b"hello\n", capture_output=True, timeout=PATIENCE)


@pytest.fixture
def ingress(start, pqplane, tmp_path, world, function):
    def make(policy=None, **more):
        return Proxy(start, pqplane, tmp_path, "ingress", ingress_config(world["main"], function.address, policy=policy, **more))

    return make


def echoing_s_client(port, pki, *args):
    """s_client that waits for the echo before it ends."""
    files = pki.identity("client")
    argv = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-cert", files["certificate"], "-cert_chain",
            files["certificate"], "-key", files["key"], "-CAfile", files["ca"], "-verify_return_error", "-quiet", *args]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        p.stdin.write(b"hello\n")
        p.stdin.flush()
        line = p.stdout.readline()
        p.kill()
        return line


def test_s_client_is_served(ingress, world):
    a = ingress()
    assert echoing_s_client(a.port("sbi"), world["main"]) == b"hello\n"


def test_who_can_gets_the_post_quantum_certificate(start, pqplane, tmp_path, world, function):
    main = world["main"]
    classical = main.issue("server-p384", dns="server.example", algorithm="p384")
    identities = [{k: i[k] for k in ("certificate", "key")} for i in (classical, main.identity("server"))]
    config = {"tls": {"identities": identities, "ca": main.file("root.crt"), "policy": {"mode": "hybrid", "level": 3}},
              "ingress": [{"name": "sbi", "listen": "127.0.0.1:0", "forward": function.address}]}
    a = Proxy(start, pqplane, tmp_path, "ingress", config)
    for offered, shown in (("ECDSA+SHA384:mldsa65", "mldsa65"), ("ECDSA+SHA384", "ecdsa_secp384r1_sha384")):
        assert echoing_s_client(a.port("sbi"), main, "-sigalgs", offered, "-client_sigalgs", "mldsa65") == b"hello\n"
        until(lambda: [l for l in a.log() if l.get("own_signature") == shown], f"a log line with {shown}")


def test_a_classical_key_exchange_is_refused_by_policy(ingress, world, function):
    a = ingress({**POLICY, "groups": "X25519MLKEM768:X25519"})
    s_client(a.port("sbi"), world["main"], "-groups", "X25519")
    assert failed(a)["reason"] == "policy-pq-kex"
    assert not function.connections
    assert echoing_s_client(a.port("sbi"), world["main"], "-groups", "X25519MLKEM768") == b"hello\n"


def test_a_classical_key_exchange_finds_no_group(ingress, world):
    a = ingress()
    s_client(a.port("sbi"), world["main"], "-groups", "X25519")
    assert failed(a)["reason"] == "no-shared-group"


def test_a_classical_certificate_is_refused_by_policy(start, pqplane, tmp_path, world, function):
    main, classical = world["main"], world["classical"]
    both = tmp_path / "both.crt"
    with open(both, "w") as out:
        for p in (main, classical):
            out.write(open(p.file("root.crt")).read())
    policy = {**POLICY, "sigalgs": "mldsa65:ecdsa_secp384r1_sha384"}
    a = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(main, function.address, policy=policy, tls={"ca": str(both)}))
    s_client(a.port("sbi"), classical, "-CAfile", main.file("root.crt"))
    assert failed(a)["reason"] == "policy-pq-auth"
    assert not function.connections


@pytest.mark.parametrize("require", [[], ["pq-kex", "pq-auth"]])
def test_tls_1_2_is_always_refused(ingress, world, function, require):
    a = ingress({**POLICY, "require": require})
    r = s_client(a.port("sbi"), world["classical"], "-tls1_2")
    assert r.returncode != 0
    assert failed(a)["reason"] == "protocol-version"
    assert not function.connections


def test_a_client_without_certificate_is_refused(ingress, world, function):
    a = ingress()
    subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{a.port('sbi')}", "-CAfile", world["main"].file("root.crt"),
                    "-quiet", "-no_ign_eof"], input=b"hello\n", capture_output=True, timeout=PATIENCE)
    assert failed(a)["reason"] == "no-certificate"
    assert not function.connections


def s_server(start, pki, port, *args):
    files = pki.identity("server")
    start(["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-cert", files["certificate"], "-cert_chain",
           files["certificate"], "-key", files["key"], "-CAfile", files["ca"], "-Verify", "3", "-verify_return_error",
           "-quiet", "-rev", *args], ready=False)

    def up():
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    until(up, "s_server")


@pytest.mark.parametrize("args, reason", [
    ([], None),
    (["-groups", "X25519"], "peer-alert"),
    (["-tls1_2"], "protocol-version"),
], ids=["good", "classical group", "TLS 1.2"])
def test_egress_to_s_server(start, pqplane, tmp_path, world, free_port, args, reason):
    port = free_port()
    s_server(start, world["main"], port, *args)
    b = Proxy(start, pqplane, tmp_path, "egress", egress_config(world["main"], f"127.0.0.1:{port}"))
    s = connect(b.port("nrf"))
    if reason is None:
        s.sendall(b"hello\n")
        assert s.recv(6, socket.MSG_WAITALL) == b"olleh\n"
    else:
        assert read_all(s) == (b"", "reset")
        assert failed(b)["reason"] == reason


# --- what is no handshake -------------------------------------------------------------------------------------------


def test_plaintext_is_closed_and_named(ingress, function):
    a = ingress()
    s = connect(a.port("sbi"))
    s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    data, _ = read_all(s)
    assert b"HTTP" not in data
    assert failed(a)["reason"] == "not-tls"
    assert not function.connections


@pytest.mark.parametrize("first", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "a byte", "a beginning"])
def test_who_does_not_go_on_is_closed_within_the_timeout(ingress, function, first):
    a = ingress(timeouts={"handshake": "400ms"})
    started = time.monotonic()
    s = connect(a.port("sbi"))
    s.sendall(first)
    read_all(s)
    took = time.monotonic() - started
    assert 0.38 < took < 5
    line = failed(a)
    assert line["reason"] == "timeout" and 395 < line["handshake_ms"] < 5000
    assert not function.connections


def test_one_byte_now_and_then_does_not_prolong_the_handshake(ingress):
    a = ingress(timeouts={"handshake": "500ms"})
    s = connect(a.port("sbi"))
    s.setblocking(True)
    stop = threading.Event()

    def drip():
        try:
            for byte in b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + bytes(400):
                s.sendall(bytes([byte]))
                if stop.wait(0.05):
                    return
        except OSError:
            pass

    t = threading.Thread(target=drip)
    t.start()
    line = failed(a)
    stop.set()
    t.join()
    assert line["reason"] == "timeout" and line["duration_ms"] < 2000


def test_a_server_that_stays_silent_is_given_up(start, pqplane, tmp_path, world):
    silent = socket.create_server(("127.0.0.1", 0))
    b = Proxy(start, pqplane, tmp_path, "egress",
              egress_config(world["main"], f"127.0.0.1:{silent.getsockname()[1]}", timeouts={"handshake": "300ms"}))
    assert refused(b.port("nrf"))
    assert failed(b)["reason"] == "timeout"


def test_a_peer_that_goes_away(ingress):
    a = ingress()
    s = connect(a.port("sbi"))
    s.sendall(b"\x16\x03\x01\x02\x00")
    s.close()
    assert failed(a)["reason"] == "reset"


def test_a_truncated_stream_is_no_end(start, pqplane, tmp_path, world, function):
    """TCP ends in order, but no close_notify came: the function must not take it for an end."""
    a = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(world["main"], function.address))
    cut = Cutter(a.port("sbi"))
    b = Proxy(start, pqplane, tmp_path, "egress", egress_config(world["main"], cut.address))
    s = connect(b.port("nrf"))
    s.sendall(b"hello")
    assert s.recv(5, socket.MSG_WAITALL) == b"hello"
    cut.now()
    assert read_all(s) == (b"", "reset")
    # The proxy that sees the cut first says so in an alert, which may still reach the other one.
    reasons = {x.wait_log("connection closed")["reason"] for x in (a, b)}
    assert "reset-by-peer" in reasons and reasons <= {"reset-by-peer", "peer-alert"}
    until(lambda: function.errors, "the error at the function")
    assert isinstance(function.errors[0], ConnectionResetError)


class Cutter(Splitter):
    """Ends TCP with FIN on both sides when told, whatever TLS thinks."""

    def __init__(self, port):
        self.ends = []
        super().__init__(port, size=65536)

    def carry(self, x, y):
        self.ends.append(y)
        super().carry(x, y)

    def now(self):
        for s in self.ends:
            with contextlib.suppress(OSError):  # what the first end makes the proxies do may be faster than the second
                s.shutdown(socket.SHUT_WR)


# --- unusual segments -------------------------------------------------------------------------------------------------


def test_a_handshake_in_one_byte_segments(start, pqplane, tmp_path, world, function):
    a = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(world["main"], function.address))
    split = Splitter(a.port("sbi"), size=1)
    b = Proxy(start, pqplane, tmp_path, "egress", egress_config(world["main"], split.address))
    assert exchange(b.port("nrf")) == (b"hello", "end")
    assert echoing_s_client(Splitter(a.port("sbi"), size=1).address.rsplit(":", 1)[1], world["main"]) == b"hello\n"


def test_flights_of_more_than_60_kilobytes(start, pqplane, tmp_path, function):
    pki = Pki(pqplane, tmp_path / "big", root="slhdsa256f", intermediate="slhdsa256f", leaf="mldsa87")
    pki.issue("server")
    pki.issue("client")
    size = len(open(pki.file("server.crt")).read()) * 3 // 4
    assert size > 60_000
    p = Pair(start, pqplane, tmp_path, pki, function.address, {"policy": {**POLICY, "level": 5}},
             {"policy": {**POLICY, "level": 5}, "carry": "connection"})
    assert exchange(p.egress.port("nrf")) == (b"hello", "end")
    # and where the way is narrow, so that a flight takes many reads and writes
    split = Splitter(p.ingress.port("sbi"), size=997)
    c = Proxy(start, pqplane, tmp_path, "narrow", egress_config(pki, split.address, policy={**POLICY, "level": 5}))
    assert exchange(c.port("nrf")) == (b"hello", "end")
