"""Real stacks through a pair of proxies, none of which knows that it is there: Go's net/http with an idle timeout of a
millisecond, nginx, curl, h2load, Python; large bodies, trailers, 1,000 streams, servers that speak first, abrupt closes."""

import concurrent.futures
import hashlib
import http.client
import json
import os
import pathlib
import socket
import subprocess
import threading

import h2.config
import h2.connection
import h2.events
import pytest

from conftest import PQPLANE, Running
from peers import go_program
from proxy_peers import PATIENCE, Function, Pki, Proxy, blocks, checksum, connect, echo, read_all, reset, until, POLICY

LARGE = 64 << 20
GREETING = b"220 nrf.5gc.example ready\r\n"


def speaks_first(c):
    """Greets, answers one line, ends first."""
    c.sendall(GREETING)
    line = b""
    while not line.endswith(b"\n"):
        part = c.recv(100)
        if not part:
            return c.close()
        line += part
    c.sendall(b"250 " + line)
    c.close()


class Ends:
    """A function that only notes how each connection ended, and how much came before."""

    def __init__(self):
        self.seen, self.lock = [], threading.Lock()
        self.function = Function(self.serve)
        self.address = self.function.address

    def serve(self, c):
        data, how = read_all(c)
        with self.lock:
            self.seen.append((len(data), how))
        c.close()


class Stack:
    """Functions, a pair of proxies in front of all of them, and where each is to be reached."""

    def __init__(self, start, pqplane, folder, carry, nginx_port):
        self.carry = carry
        go = go_program(pathlib.Path(pqplane).parents[2], "h2c")
        self.go_program = go
        self.functions = {"first": Function(speaks_first), "echo": Function(echo)}
        self.ends = Ends()
        self.servers = [subprocess.Popen([go, "serve", idle], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
                        for idle in ("1ms", "1m")]
        hasty, patient = (f"127.0.0.1:{p.stdout.readline().split()[1]}" for p in self.servers)
        targets = {"go": hasty, "patient-go": patient, "nginx": f"127.0.0.1:{nginx_port}",
                   "first": self.functions["first"].address, "echo": self.functions["echo"].address, "ends": self.ends.address}
        pki = Pki(pqplane, folder / "pki")
        for name in ("server", "client"):
            pki.issue(name)
        (folder / "ingress").mkdir()
        (folder / "egress").mkdir()
        # A thousand connections come at once here, and the machine that tests run on may be slow.
        limits = {"limits": {"handshakes_per_source": 1000000, "strangers": 1000000, "handshakes": 10000},
                  "timeouts": {"handshake": "60s", "connect": "60s"}}
        self.ingress = Proxy(start, pqplane, folder / "ingress", "ingress", {
            "tls": {**pki.identity("server"), "policy": POLICY}, **limits,
            "ingress": [{"name": n, "listen": "127.0.0.1:0", "forward": t} for n, t in targets.items()]})
        self.egress = Proxy(start, pqplane, folder / "egress", "egress", {
            "tls": {**pki.identity("client"), "policy": POLICY}, **limits,
            "egress": [{"name": n, "listen": "127.0.0.1:0", "connect": f"127.0.0.1:{self.ingress.port(n)}", "carry": carry,
                        "peers": ["server.example"]} for n in targets]})

    def url(self, name):
        return f"http://127.0.0.1:{self.egress.port(name)}"

    def go(self, verb, n):
        r = subprocess.run([self.go_program, verb, self.url("go"), str(n)], capture_output=True, text=True, timeout=150)
        result = json.loads(r.stdout)
        assert result["error"] == "" and r.returncode == 0, result
        return result

    def curl(self, *args, **options):
        return subprocess.run(["curl", "-sS", "--max-time", "120", *args], capture_output=True, **options)


@pytest.fixture(scope="module", params=["tunnel", "connection"])
def stack(request, tmp_path_factory, pqplane):
    folder = tmp_path_factory.mktemp(request.param)
    running = []

    def start(argv, **options):
        running.append(Running([str(a) for a in argv], folder / f"log.{len(running)}", **options))
        return running[-1]

    s = None
    try:
        s = Stack(start, pqplane, folder, request.param, nginx(start, folder))
        yield s
        handshakes = [line for x in (s.ingress, s.egress) for line in x.log("handshake failed")]
        assert not handshakes
        if any("tunnel" in key for line in s.ingress.log() for key in line):
            assert bool(s.egress.log("tunnel opened")) == (request.param == "tunnel"), "carried as the configuration says"
    finally:
        for r in reversed(running):
            r.process.kill()
            r.process.wait()
        if s:
            for p in s.servers:
                p.kill()
                p.wait()


def nginx(start, folder):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    www = folder / "www"
    www.mkdir()
    (www / "small").write_bytes(b"s" * 500)
    with open(www / "large", "wb") as f:
        f.writelines(blocks(LARGE, "large"))
    (folder / "nginx.conf").write_text(f"""
daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr;
events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 100000; http2_max_concurrent_streams 1000;
  server {{ listen 127.0.0.1:{port}; http2 on; root {www}; }} }}
""")
    start(["nginx", "-p", folder, "-c", folder / "nginx.conf"], ready=False)

    def up():
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    until(up, "nginx")
    return port


# --- Go -------------------------------------------------------------------------------------------------------------


def test_go_with_an_idle_timeout_of_a_millisecond(stack):
    result = stack.go("churn", 400)
    assert result["dials"] > 100, "connections did close all the time"


def test_go_64_megabytes_each_way_with_trailers(stack):
    stack.go("stream", LARGE)


def test_go_100_bodies_with_trailers_at_once(stack):
    stack.go("trailers", 100)


def test_go_1000_requests_at_once(stack):
    result = stack.go("crowd", 1000)
    assert result["dials"] > 1


# --- curl and h2load ------------------------------------------------------------------------------------------------


HTTP = pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])


@HTTP
def test_curl_downloads_from_nginx(stack, version):
    r = stack.curl(version, "--fail", f"{stack.url('nginx')}/large")
    assert r.returncode == 0, r.stderr
    assert hashlib.sha256(r.stdout).hexdigest() == checksum(LARGE, "large")


@HTTP
def test_curl_uploads_to_go_and_gets_it_back(stack, version, tmp_path):
    with open(tmp_path / "body", "wb") as f:
        f.writelines(blocks(LARGE, "upload"))
    r = stack.curl(version, "--fail", "-T", str(tmp_path / "body"), "-H", "expect:", "-o", str(tmp_path / "back"), f"{stack.url('go')}/echo")
    assert r.returncode == 0, r.stderr
    assert hashlib.sha256((tmp_path / "back").read_bytes()).hexdigest() == checksum(LARGE, "upload")


def test_curl_notices_that_a_body_broke(stack):
    """A body that lasts until the connection closes: only a reset tells that it was not whole."""
    r = stack.curl("--http1.1", f"{stack.url('go')}/broken")
    assert r.stdout == b"half of it" and r.returncode == 56, (r.returncode, r.stderr)
    r = stack.curl("--http2-prior-knowledge", f"{stack.url('go')}/abort")
    assert r.stdout == b"half of it" and r.returncode == 92, (r.returncode, r.stderr)


@pytest.mark.parametrize("where", ["patient-go", "nginx"])
@pytest.mark.parametrize("options", [["-c", "10", "-m", "10"], ["-c", "1", "-m", "1000"], ["--h1", "-c", "50"]],
                         ids=["10 by 10", "1000 streams of one", "50 clients"])
def test_h2load(stack, where, options):
    r = subprocess.run(["h2load", "-n", "5000", *options, f"{stack.url(where)}/small"], capture_output=True, text=True, timeout=90)
    assert "5000 succeeded, 0 failed, 0 errored, 0 timeout" in r.stdout, r.stdout + r.stderr


# --- Python ---------------------------------------------------------------------------------------------------------


def test_python_http_client(stack):
    c = http.client.HTTPConnection("127.0.0.1", stack.egress.port("nginx"), timeout=PATIENCE)
    for _ in range(50):
        c.request("GET", "/small")
        assert c.getresponse().read() == b"s" * 500
    c.close()


def test_python_h2_with_trailers(stack):
    body = b"".join(blocks(50_000, "python"))
    digest = hashlib.sha256(body).hexdigest().encode()
    with connect(stack.egress.port("go")) as s:
        c = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        c.initiate_connection()
        c.send_headers(1, [(":method", "POST"), (":scheme", "http"), (":path", "/echo"), (":authority", "go"), ("trailer", "client-sha256")])
        for i in range(0, len(body), 10_000):
            c.send_data(1, body[i : i + 10_000])
        c.send_headers(1, [("client-sha256", digest)], end_stream=True)
        s.sendall(c.data_to_send())
        back, trailers, ended = b"", {}, False
        while not ended:
            for event in c.receive_data(s.recv(65536) or pytest.fail("the connection ended early")):
                if isinstance(event, h2.events.DataReceived):
                    back += event.data
                    c.acknowledge_received_data(event.flow_controlled_length, 1)
                elif isinstance(event, h2.events.TrailersReceived):
                    trailers = dict(event.headers)
                ended = ended or isinstance(event, h2.events.StreamEnded)
            s.sendall(c.data_to_send())
    assert back == body
    assert trailers[b"body-sha256"] == trailers[b"request-trailer"] == digest


# --- ends -----------------------------------------------------------------------------------------------------------


def test_a_server_that_speaks_first(stack):
    def one(i):
        with connect(stack.egress.port("first")) as s:
            assert s.recv(len(GREETING), socket.MSG_WAITALL) == GREETING
            s.sendall(b"HELO %d\r\n" % i)
            return read_all(s) == (b"250 HELO %d\r\n" % i, "end")

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        assert all(pool.map(one, range(300)))
    assert not stack.functions["first"].errors


def test_who_ends_at_once_is_heard(stack):
    """The client sends, half-closes and waits; or closes having sent nothing."""
    def one(i):
        with connect(stack.egress.port("echo")) as s:
            if i % 3 == 0:
                return True
            s.sendall(b"%d" % i * 1000)
            s.shutdown(socket.SHUT_WR)
            return read_all(s) == (b"%d" % i * 1000, "end")

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        assert all(pool.map(one, range(300)))
    assert not stack.functions["echo"].errors


def test_abrupt_closes_are_no_ends(stack):
    """100 clients reset in the middle, 100 end in order: the function sees which was which."""
    before = len(stack.ends.seen)

    def one(i):
        s = connect(stack.egress.port("ends"))
        s.sendall(b"x" * 1000 * (i + 1))
        if i % 2:
            reset(s)
        else:
            s.close()

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        list(pool.map(one, range(200)))
    until(lambda: len(stack.ends.seen) == before + 200, "200 ends at the function")
    ends = stack.ends.seen[before:]
    assert sorted(n for n, how in ends if how == "end") == [1000 * (i + 1) for i in range(0, 200, 2)]
    assert sum(how == "reset" for _, how in ends) == 100
