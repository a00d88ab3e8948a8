"""Peers that mean harm: what they hold while they stall, at every flight, and what a tunnel does with abuse of HTTP/2."""

import collections
import contextlib
import pathlib
import resource
import socket
import ssl
import struct
import subprocess
import threading
import time

import h2.config
import h2.connection
import h2.events
import pytest

from tls_peers import (Talk, finished, half_a_flight, half_a_hello, half_a_record, hello_only, server_half_a_flight,
                       server_half_a_hello, server_half_a_record, server_never_judges, tls_context)
from proxy_peers import PATIENCE, Function, Pki, Proxy, connect, egress_config, hold, ingress_config, reset, until

PEERS, WARM_UP = 100, 50
STALLED, PEAK = 64, 256  # KiB that a stalled peer may hold, and may have held
HALF_FLIGHT = 80  # of one that stops in the middle of its certificates: docs/limits.md
FREE = {"limits": {"connections": 20000, "handshakes": 20000, "handshakes_per_source": 1000000, "strangers": 1000000},
        "timeouts": {"handshake": "60s", "connect": "60s"}}


@pytest.fixture(scope="session")
def level_5(pqplane, tmp_path_factory):
    """The largest keys and signatures in use, with an intermediate."""
    p = Pki(pqplane, tmp_path_factory.mktemp("pki5") / "a", root="mldsa87", intermediate="mldsa87", leaf="mldsa87")
    p.issue("server")
    p.issue("client")
    return p


@pytest.fixture(autouse=True)
def descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# --- what a stalled peer holds: ingress -----------------------------------------------------------------------------


def silent(context, s):
    pass


STALLS = [silent, half_a_hello, hello_only, half_a_flight, finished, half_a_record]


def sizes(proxy):
    return proxy.status("VmRSS"), proxy.status("VmHWM")


def grown(proxy, before, peers, limit=STALLED):
    now, peak = sizes(proxy)
    each, most = (now - before) / peers, (peak - before) / peers
    print(f"{each:.1f} KiB each, {most:.1f} KiB at the peak")
    assert each <= limit, f"a peer holds {each:.0f} KiB"
    assert most <= PEAK, f"a peer held {most:.0f} KiB"


@pytest.mark.parametrize("level, stall", [*((3, f) for f in STALLS), *((5, f) for f in (hello_only, half_a_flight, finished))],
                         ids=lambda x: getattr(x, "__name__", f"level {x}"))
def test_memory_of_clients_that_stall(start, pqplane, tmp_path, request, level, stall):
    pki = request.getfixturevalue("pki" if level == 3 else "level_5")
    f = Function(hold)
    policy = {"mode": "hybrid", "level": level, "groups": "X25519MLKEM768:SecP384r1MLKEM1024"}
    p = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(pki, f.address, policy=policy, **FREE))
    context = tls_context(pki, "client")
    kept = []
    for i in range(PEERS + WARM_UP):
        if i == WARM_UP:
            settled(p, WARM_UP)
            before, _ = sizes(p)
        s = connect(p.port("sbi"))
        kept.append((s, stall(context, s)))
    settled(p, PEERS + WARM_UP)
    grown(p, before, PEERS, HALF_FLIGHT if stall is half_a_flight else STALLED)
    for s, _ in kept:
        reset(s)
    until(lambda: p.descriptors() < 20, "the end of all")
    s = connect(p.port("sbi"))
    finished(context, s)
    until(lambda: f.connections, "a good peer is served")
    f.close()


def settled(proxy, connections):
    """All are accepted, and nothing that was sent is left in a socket's queue."""
    until(lambda: proxy.descriptors() >= connections, "all connections")
    until(lambda: unread(proxy) == 0, "all bytes taken in")


def unread(proxy):
    """Bytes that wait in the receive queues of the proxy's TLS port."""
    port = f":{proxy.port('sbi'):04X}"
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(r[4].split(":")[1], 16) for r in rows if r[1].endswith(port) and r[3] == "01")


@pytest.mark.parametrize("what", ["100 certificates", "one of 1 MB"])
def test_peak_of_one_with_too_many_certificates(start, pqplane, tmp_path, pki, what):
    chain, files = tmp_path / "chain.pem", pki.identity("client")
    if what == "one of 1 MB":
        names = tmp_path / "names.cnf"
        names.write_text("[req]\ndistinguished_name=d\n[d]\n[x]\nnsComment=" + "x" * 1_000_000 + "\n")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "mldsa65", "-nodes", "-keyout", tmp_path / "key.pem", "-out", chain,
                        "-subj", "/CN=client", "-config", names, "-extensions", "x"], check=True, capture_output=True)
        files = {**files, "key": str(tmp_path / "key.pem")}
    else:
        leaf = open(files["certificate"]).read()
        chain.write_text(leaf + leaf[leaf.index("-----BEGIN", 1):] * 99)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(chain, files["key"])
    context.load_verify_locations(files["ca"])
    context.check_hostname = False
    f = Function(hold)
    p = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(pki, f.address, **FREE))
    good = tls_context(pki, "client")
    for _ in range(10):
        s = connect(p.port("sbi"))
        finished(good, s)
        s.close()
    p.wait_log("connection closed", 10)
    pathlib.Path(f"/proc/{p.pid}/clear_refs").write_text("5")  # its peak starts anew
    before, _ = sizes(p)
    s = connect(p.port("sbi"))
    t = Talk(context, s)
    t.handshake()
    with contextlib.suppress(OSError):
        t.flush()
    line = p.wait_log("handshake failed")
    assert line["reason"] == "certificates-too-long", line
    peak = sizes(p)[1] - before
    print(f"{peak} KiB at the peak")
    assert peak <= PEAK, f"a peer held {peak} KiB"
    f.close()


# --- and egress -----------------------------------------------------------------------------------------------------


def server_silent(context, s):
    return None


@pytest.mark.parametrize("stall", [server_silent, server_half_a_hello, server_half_a_flight, server_never_judges, server_half_a_record],
                         ids=lambda f: f.__name__.removeprefix("server_"))
def test_memory_of_servers_that_stall(start, pqplane, tmp_path, pki, stall):
    context = tls_context(pki, "server", server=True)
    done = []

    def serve(s):
        done.append((s, stall(context, s)))

    f = Function(serve)
    config = egress_config(pki, f.address, **FREE)
    config["egress"][0]["carry"] = "connection"
    p = Proxy(start, pqplane, tmp_path, "egress", config)
    near = []
    for i in range(PEERS + WARM_UP):
        if i == WARM_UP:
            before, _ = sizes(p)
        near.append(connect(p.port("nrf")))
        until(lambda i=i: len(done) == i + 1, "a connection at the server")
    until(lambda: p.descriptors() >= 2 * PEERS, "all connections")
    grown(p, before, PEERS, HALF_FLIGHT if stall is server_half_a_flight else STALLED)
    assert not f.errors
    f.close()


# --- tunnels: abuse of HTTP/2 ---------------------------------------------------------------------------------------


ALPN = "pqplane-tunnel/1"
CONNECT_ERROR, REFUSED_STREAM, CANCEL = 10, 7, 8


class Tunnel:
    """A peer that speaks our tunnels, well or badly."""

    def __init__(self, proxy, pki, preface=None):
        self.s = connect(proxy.port("sbi"))
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.talk = Talk(tls_context(pki, "client", alpn=ALPN), self.s)
        self.talk.handshake()
        self.talk.flush()
        assert self.talk.tls.selected_alpn_protocol() == ALPN
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False))
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(1 << 29)
        self.data, self.status, self.ended, self.reset = collections.defaultdict(bytes), {}, set(), {}
        self.gone = None
        if preface:
            self.raw(preface)
        else:
            self.flush()

    def raw(self, data):
        """As it stands, past all that checks."""
        while data:
            data = data[self.talk.tls.write(data[:16384]) :]
            self.talk.flush()

    def flush(self):
        self.raw(self.h2.data_to_send())

    def open(self, authority="nrf", method="CONNECT", data=b"", end=False, extra=()):
        stream = self.h2.get_next_available_stream_id()
        head = [(":method", method), (":authority", authority), *extra]
        if method != "CONNECT":
            head += [(":scheme", "https"), (":path", "/")]
        self.h2.send_headers(stream, head, end_stream=end and not data)
        if data:
            self.h2.send_data(stream, data, end_stream=end)
        self.flush()
        return stream

    def send(self, stream, data, end=False):
        self.h2.send_data(stream, data, end_stream=end)
        self.flush()

    @staticmethod
    def frame(kind, flags, stream, payload=b"", length=None):
        n = len(payload) if length is None else length
        return struct.pack(">I", n)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def read(self):
        while True:
            try:
                return self.talk.tls.read(65536)
            except ssl.SSLWantReadError:
                part = self.s.recv(65536)
                if not part:
                    return b""
                self.talk.into.write(part)

    def hear(self):
        """One read's events; False when the tunnel is gone."""
        try:
            part = self.read()
        except OSError as e:
            self.gone = self.gone or str(e)
            return False
        if not part:
            self.gone = self.gone or "end"
            return False
        for e in self.h2.receive_data(part):
            if isinstance(e, h2.events.ResponseReceived):
                self.status[e.stream_id] = dict(e.headers)[b":status"].decode()
            elif isinstance(e, h2.events.DataReceived):
                self.data[e.stream_id] += e.data
                self.h2.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
            elif isinstance(e, h2.events.StreamEnded):
                self.ended.add(e.stream_id)
            elif isinstance(e, h2.events.StreamReset):
                self.reset[e.stream_id] = e.error_code
            elif isinstance(e, h2.events.ConnectionTerminated):
                self.gone = f"GOAWAY {e.error_code}"
        self.flush()
        return True

    def wait(self, condition):
        end = time.monotonic() + PATIENCE
        while not condition():
            assert self.hear(), f"the tunnel ended: {self.gone}"
            assert time.monotonic() < end, f"nothing of it came: {self.status} {self.reset} {self.gone}"

    def flood(self, bytes_):
        """Until the other side has had enough; its goodbye is often lost in a reset."""
        sent = 0
        try:
            while sent < 50 << 20:
                self.raw(bytes_)
                sent += len(bytes_)
            raise AssertionError(f"{sent} bytes of it were taken")
        except OSError:
            return sent


@pytest.fixture
def served(start, pqplane, tmp_path, pki):
    """served(serve, authorities=...) is an ingress in front of a function."""
    functions = []

    def make(serve, target=None, **listener):
        f = Function(serve)
        functions.append(f)
        config = ingress_config(pki, target or f.address, **FREE)
        config["ingress"][0].update(listener)
        p = Proxy(start, pqplane, tmp_path, "ingress", config)
        p.function = f
        return p

    yield make
    for f in functions:
        f.close()
        assert not f.errors


def echo_to_end(c):
    try:
        while part := c.recv(65536):
            c.sendall(part)
    except ConnectionResetError:
        pass
    c.close()


def works(t):
    stream = t.open(data=b"hello")
    t.wait(lambda: t.data[stream] == b"hello")
    return stream


def closed_for(proxy, reason):
    line = proxy.wait_log("tunnel closed")
    assert line["reason"] == reason and line["detail"] and line["level"] == "warn", line
    return line


def test_connect_to_a_forbidden_authority(served, pki):
    p = served(echo_to_end, authorities=["nrf", "udm:80"])
    t = Tunnel(p, pki)
    for authority in ("amf", "nrf:81", "nrf.", "127.0.0.1:22", "NRF:80"):
        stream = t.open(authority, data=b"let me in")
        t.wait(lambda s=stream: s in t.status)
        assert t.status[stream] == "403", authority
    assert {line["reason"] for line in p.log("connection refused")} == {"connect-forbidden"}
    assert not p.function.connections, "the function heard nothing of it"
    works(t)
    t.s.close()
    assert p.program.stop() == 0
    assert p.counts()["connect-forbidden"] >= 1


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_another_method_on_a_tunnel(served, pki, method):
    p = served(echo_to_end)
    t = Tunnel(p, pki)
    stream = t.open(method=method, end=True)
    t.wait(lambda: stream in t.status)
    assert t.status[stream] == "405"
    assert p.wait_log("connection refused")["reason"] == "bad-request"
    assert not p.function.connections
    works(t)


def test_half_close_each_way_in_a_tunnel(served, pki):
    p = served(hold)
    t = Tunnel(p, pki)
    stream = t.open(data=b"last", end=True)
    far = p.function.take()
    assert far.recv(100, socket.MSG_WAITALL) == b"last", "then the end"
    far.sendall(b"still here")
    t.wait(lambda: t.data[stream] == b"still here")
    far.close()
    t.wait(lambda: stream in t.ended)
    stream = t.open(data=b"?")
    far = p.function.take()
    assert far.recv(1) == b"?"
    far.shutdown(socket.SHUT_WR)
    t.wait(lambda: stream in t.ended)
    t.send(stream, b"still here", end=True)
    assert far.recv(100, socket.MSG_WAITALL) == b"still here"
    assert t.gone is None and stream not in t.reset


def test_resets_in_a_tunnel_go_through(served, pki, free_port):
    p = served(hold)
    t = Tunnel(p, pki)
    stream = t.open(data=b"?")
    far = p.function.take()
    assert far.recv(1) == b"?"
    reset(far)
    t.wait(lambda: stream in t.reset)
    stream = t.open(data=b"?")
    far = p.function.take()
    assert far.recv(1) == b"?"
    t.h2.reset_stream(stream, CANCEL)
    t.flush()
    with pytest.raises(ConnectionResetError):
        far.recv(1)
    works_stream = t.open(data=b"!")
    far = p.function.take()
    assert far.recv(1) == b"!"
    t.s.close()  # without close_notify, streams open: no end of any stream
    with pytest.raises(ConnectionResetError):
        far.recv(1)
    del works_stream


def test_a_function_that_is_not_there(served, pki, free_port):
    p = served(hold, target=f"127.0.0.1:{free_port()}")
    t = Tunnel(p, pki)
    stream = t.open(data=b"?")
    t.wait(lambda: stream in t.reset)
    assert t.reset[stream] == CONNECT_ERROR
    assert p.wait_log("connection closed")["reason"] == "connect-refused"


def floods(t):
    stream = works(t)
    headers = b"\x82\x86\x84"  # GET https /
    return {
        "PING": t.frame(6, 0, 0, b"12345678"),
        "SETTINGS": t.frame(4, 0, 0, struct.pack(">HI", 4, 65535)),
        "empty DATA": t.frame(0, 0, stream),
        "padding": t.frame(0, 8, stream, b"\xff" + bytes(255)),
        "WINDOW_UPDATE": t.frame(8, 0, 0, struct.pack(">I", 1)),
        "PRIORITY": t.frame(2, 0, stream, struct.pack(">IB", 0, 16)),
        "RST_STREAM": t.frame(3, 0, stream, struct.pack(">I", CANCEL)),
        "unknown frame": t.frame(0xEE, 0, 0, b"x"),
        "CONTINUATION": t.frame(1, 0, stream + 2, headers) + t.frame(9, 0, stream + 2) * 50,
    }


FLOODS = ["PING", "SETTINGS", "empty DATA", "padding", "WINDOW_UPDATE", "PRIORITY", "RST_STREAM", "unknown frame", "CONTINUATION"]


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_of_frames_ends_the_tunnel_and_nobody_else(served, pki, kind):
    p = served(echo_to_end)
    good, bad = Tunnel(p, pki), Tunnel(p, pki)
    stream = works(good)
    before = p.status("VmRSS")
    frame = floods(bad)[kind]
    answered = []

    def beside():
        for i in range(20):
            good.send(stream, b"x")
            good.wait(lambda i=i: len(good.data[stream]) == 6 + i)
            answered.append(i)

    t = threading.Thread(target=beside)
    t.start()
    bad.flood(frame * (1 if kind == "CONTINUATION" else 1000))
    t.join(PATIENCE)
    assert len(answered) == 20, "others are served meanwhile"
    line = p.wait_log("tunnel closed")
    assert line["reason"] in ("tunnel-flood", "tunnel-protocol") and line["detail"], line
    assert p.status("VmHWM") - before <= 1024, "KiB"
    works(good)


def test_rapid_resets_end_the_tunnel(served, pki):
    """Streams that are opened and reset at once, each of which would be a connection to the function."""
    p = served(echo_to_end)
    good, bad = Tunnel(p, pki), Tunnel(p, pki)
    with pytest.raises(OSError):
        for _ in range(100_000):
            stream = bad.open()
            bad.h2.reset_stream(stream, CANCEL)
            bad.flush()
    assert closed_for(p, "tunnel-flood")
    works(good)


def test_who_sends_past_the_window_is_stopped(served, pki):
    p = served(hold)
    t = Tunnel(p, pki)
    stream = t.open(data=b"?")
    far = p.function.take()
    before = p.status("VmRSS")
    t.flood(t.frame(0, 0, stream, bytes(16384)))
    line = p.wait_log("tunnel closed")
    assert line["reason"] == "tunnel-protocol", line
    assert p.status("VmHWM") - before <= 1024, "KiB"
    with pytest.raises(ConnectionResetError):
        while far.recv(65536):
            pass


def test_who_reads_nothing_stops_its_own_stream_only(served, pki):
    """The peer opens no window: what its function sends stays there."""
    def endless(c):
        try:
            while True:
                c.sendall(bytes(65536))
        except (ConnectionResetError, BrokenPipeError):
            pass

    p = served(endless)
    t = Tunnel(p, pki)
    before = p.status("VmRSS")
    t.h2.acknowledge_received_data = lambda *_: None
    streams = [t.open(data=b"?") for _ in range(20)]
    t.wait(lambda: all(len(t.data[s]) == 65535 for s in streams))
    assert p.status("VmHWM") - before <= 20 * 64 + 1024, "KiB"
    t.s.close()
    until(lambda: p.log("tunnel closed"), "the end of the tunnel")


@pytest.mark.parametrize("what", ["no preface", "a frame too large", "a stream of the wrong side"])
def test_broken_http2(served, pki, what):
    p = served(echo_to_end)
    good = Tunnel(p, pki)
    bad = Tunnel(p, pki, preface=b"GET / HTTP/1.1\r\n\r\n" + bytes(100) if what == "no preface" else None)
    if what == "a frame too large":
        bad.raw(bad.frame(0, 0, 1, bytes(100), length=(1 << 24) - 1))
    elif what == "a stream of the wrong side":
        bad.raw(bad.frame(1, 4, 2, b"\x82\x86\x84"))
    assert closed_for(p, "tunnel-protocol")
    works(good)


def test_memory_of_tunnels_that_stall(served, pki):
    """Each with a stream of which a frame is cut."""
    p = served(hold)
    kept = []
    for i in range(PEERS + WARM_UP):
        if i == WARM_UP:
            settled(p, WARM_UP)
            before, _ = sizes(p)
        t = Tunnel(p, pki)
        stream = t.open(data=b"?")
        t.wait(lambda t=t, s=stream: s in t.status)
        t.raw(t.frame(0, 0, stream, bytes(16000), length=16384))
        kept.append(t)
    settled(p, PEERS + WARM_UP)
    grown(p, before, PEERS)
