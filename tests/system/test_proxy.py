"""pqplane proxy as a relay: what goes in comes out, ends are ends, resets are resets, memory is bounded, stopping is safe."""

import array
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import threading

import pytest

from proxy_peers import (PATIENCE, Function, Pair, Proxy, blocks, checksum, connect, echo, egress_config, hold, ingress_config,
                         let_workers_in, read_all, refused, reset, until)


@pytest.fixture(params=["connection", "tunnel"])
def carry(request):
    """What holds for a local connection holds however it is carried."""
    return request.param


@pytest.fixture
def pair(start, pqplane, tmp_path, pki, carry):
    """pair(serve, ...) is a pair of proxies in front of a function."""
    functions = []

    def make(serve, ingress=None, egress=None, path=None):
        f = Function(serve, path)
        functions.append(f)
        p = Pair(start, pqplane, tmp_path, pki, f.address, ingress, {"carry": carry, **(egress or {})})
        p.carry = carry
        p.function = f
        return p

    yield make
    for f in functions:
        f.close()
        assert not f.errors


def held(p):
    """Both ends of one connection through the pair, proven to be connected."""
    near = p.connect()
    near.sendall(b"?")
    far = p.function.take()
    assert far.recv(1) == b"?"
    return near, far


# --- bytes ----------------------------------------------------------------------------------------------------------


def test_bytes_and_log_line(pair):
    p = pair(echo)
    s = p.connect()
    s.sendall(b"hello")
    s.shutdown(socket.SHUT_WR)
    assert read_all(s) == (b"hello", "end")
    for proxy, direction, name in ((p.ingress, "ingress", "CN=client"), (p.egress, "egress", "CN=server")):
        line = proxy.wait_log("connection closed")
        assert line["direction"] == direction
        assert line["peer_name"] == name
        assert line["group"] == "X25519MLKEM768"
        assert line["signature"] == "mldsa65"
        assert line["cipher"] == "TLS_AES_256_GCM_SHA384"
        assert line["reason"] == "end"
        assert (line["bytes_up"], line["bytes_down"]) == (5, 5)
        if p.carry == "connection":
            assert line["handshake_ms"] > line["handshake_cpu_ms"] * 0.5 > 0
            assert line["chain_ms"] > 0 and line["duration_ms"] >= line["handshake_ms"]
        else:  # there was none on its way
            assert (line["handshake_ms"], line["handshake_cpu_ms"], line["chain_ms"]) == (0, 0, 0)
            assert line["tunnel"] > 0
        for key in ("route", "local", "peer", "resumed", "connect_ms"):
            assert key in line


def test_100_megabytes_each_way_in_bounded_memory(pair):
    total = 100_000_000
    received = {}

    def send(s, seed):
        for b in blocks(total, seed):
            s.sendall(b)
        s.shutdown(socket.SHUT_WR)

    def receive(s, name):
        h = hashlib.sha256()
        while part := s.recv(1 << 18):
            h.update(part)
        received[name] = h.hexdigest()

    def serve(c):
        c.settimeout(60)
        if c.recv(1) == b"w":  # a first connection warms both proxies up
            c.close()
            return
        t = threading.Thread(target=send, args=(c, "down"))
        t.start()
        receive(c, "up")
        t.join()

    p = pair(serve)
    warm = p.connect()
    warm.sendall(b"w")
    assert read_all(warm) == (b"", "end")
    warm.close()
    for x in p.both():
        x.wait_log("connection closed")
    before = [x.status("VmRSS") for x in p.both()]
    s = p.connect()
    s.settimeout(60)
    s.sendall(b"t")
    t = threading.Thread(target=send, args=(s, "up"))
    t.start()
    receive(s, "down")
    t.join()
    for x in p.both():
        until(lambda x=x: len(x.log("connection closed")) >= 2, "the end of the transfer")
    assert received == {"up": checksum(total, "up"), "down": checksum(total, "down")}
    for x, was in zip(p.both(), before):
        assert x.status("VmHWM") - was < 4096, "KiB: more than two buffers, TLS records and noise account for"
        assert {total, total + 1} == {x.log("connection closed")[-1][k] for k in ("bytes_up", "bytes_down")}


def test_slow_reader_stops_the_sender(pair):
    p = pair(hold, ingress={"limits": {"buffer": "16KiB"}}, egress={"limits": {"buffer": "16KiB"}})
    near, far = held(p)
    near.setblocking(False)
    sent, block = 0, b"x" * 65536
    while select.select([], [near], [], 1)[1]:
        sent += near.send(block)
    ticks = [x.cpu_ticks() for x in p.both()]
    select.select([], [], [], 0.5)
    assert all(x.cpu_ticks() - t <= 2 for x, t in zip(p.both(), ticks)), "it spins while nothing can move"
    near.setblocking(True)
    near.shutdown(socket.SHUT_WR)
    data, how = read_all(far)
    assert (len(data), how) == (sent, "end")


def test_last_byte_reaches_a_slow_reader_of_50(pair):
    total = 300_000

    def serve(c):
        for b in blocks(total, "answer"):
            c.sendall(b)
        c.close()

    p = pair(serve)
    want = checksum(total, "answer")
    for _ in range(50):
        s = p.connect(receive_buffer=8192)
        h = hashlib.sha256()
        count = 0
        while part := s.recv(7000):
            h.update(part)
            count += len(part)
        assert (count, h.hexdigest()) == (total, want)
        s.close()
    assert not p.function.errors


def test_what_was_sent_before_a_close_arrives_though_the_reader_still_sends(pair):
    """The function answers and closes at once, while the other side, slow, goes on sending."""
    total = 6_000_000
    closed = threading.Event()

    def serve(c):
        for b in blocks(total, "answer"):
            c.sendall(b)
        # What the function's own kernel still holds at close would be lost without any proxy, too.
        until(lambda: unsent(c) == 0, "the proxy's kernel having it all")
        c.close()
        closed.set()

    p = pair(serve)
    want = checksum(total, "answer")
    sent_late = 0
    for _ in range(10):
        closed.clear()
        near = p.connect(receive_buffer=65536)
        h, count = hashlib.sha256(), 0
        while count < total:
            try:
                if closed.wait(0.002):
                    near.send(b"window update", socket.MSG_DONTWAIT)
                    sent_late += 1
            except (BlockingIOError, ConnectionResetError, BrokenPipeError):
                pass
            part = near.recv(20000)
            assert part, f"the stream ended after {count} of {total} bytes"
            h.update(part)
            count += len(part)
        assert h.hexdigest() == want
        near.close()
        assert closed.wait(PATIENCE)
    assert sent_late > 10


def unsent(s):
    value = array.array("i", [0])
    fcntl.ioctl(s.fileno(), 0x5411, value)  # SIOCOUTQ
    return value[0]


def test_unix_sockets_on_both_plain_sides(start, pqplane, tmp_path, pki):
    f = Function(echo, tmp_path / "function.sock")
    ingress = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(pki, f.address))
    config = egress_config(pki, f"127.0.0.1:{ingress.port('sbi')}")
    config["egress"][0]["listen"] = f"unix:{tmp_path}/egress.sock"
    egress = Proxy(start, pqplane, tmp_path, "egress", config)
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(PATIENCE)
    s.connect(str(tmp_path / "egress.sock"))
    s.sendall(b"hello")
    s.shutdown(socket.SHUT_WR)
    assert read_all(s) == (b"hello", "end")
    for proxy, route, path in ((ingress, "sbi", "function.sock"), (egress, "nrf", "egress.sock")):
        warnings = proxy.log("unix socket")
        assert [(w["level"], w["route"], w["address"]) for w in warnings] == [("warn", route, f"unix:{tmp_path}/{path}")]
        assert "a broken stream looks like its end there" in warnings[0]["detail"]
    assert egress.program.stop() == 0
    assert not (tmp_path / "egress.sock").exists()


def test_a_full_backlog_of_a_unix_socket_ends_one_connection_only(start, pqplane, tmp_path, pki):
    with socket.socket(socket.AF_UNIX) as function:
        function.settimeout(PATIENCE)
        function.bind(str(tmp_path / "f.sock"))
        let_workers_in(tmp_path / "f.sock")
        function.listen(0)
        with socket.socket(socket.AF_UNIX) as filler:
            filler.connect(str(tmp_path / "f.sock"))
            p = Pair(start, pqplane, tmp_path, pki, f"unix:{tmp_path}/f.sock")
            assert refused(p.egress.port("nrf"))
            line = p.ingress.wait_log("connection closed")
            assert line["reason"] == "connect-refused" and line["detail"], line
            assert not p.ingress.log("accepting paused")
            function.accept()[0].close()
        near = p.connect()
        near.sendall(b"next")
        far, _ = function.accept()
        with far:
            far.settimeout(PATIENCE)
            assert far.recv(4) == b"next"
        near.close()


def test_unix_sockets_are_relative_to_the_configuration(start, pqplane, tmp_path, pki):
    elsewhere, etc = tmp_path / "elsewhere", tmp_path / "etc"
    elsewhere.mkdir()
    etc.mkdir()
    config = egress_config(pki, "127.0.0.1:9")
    config["egress"][0]["listen"] = "unix:./egress.sock"
    p = Proxy(start, pqplane, etc, "relative", config, cwd=elsewhere)
    assert p.address["nrf"] == f"unix:{etc}/egress.sock"
    assert (etc / "egress.sock").is_socket()
    assert p.program.stop() == 0
    assert not (etc / "egress.sock").exists()


def test_file_names_are_relative_to_the_configuration(start, pqplane, pki, tmp_path):
    f = Function(echo)
    config = ingress_config(pki, f.address)
    config["tls"].update(certificate="server.crt", key="server.key", ca="root.crt")
    Proxy(start, pqplane, pki.folder, "relative", config, cwd=tmp_path)


# --- ends -----------------------------------------------------------------------------------------------------------


def test_half_close_each_way(pair):
    p = pair(hold)
    for first, second in ((0, 1), (1, 0)):
        ends = held(p)
        ends[first].sendall(b"last")
        ends[first].shutdown(socket.SHUT_WR)
        assert read_all(ends[second]) == (b"last", "end")
        for x in p.both():  # one direction stays open, and nothing spins
            ticks = x.cpu_ticks()
            select.select([], [], [], 0.2)
            assert x.cpu_ticks() - ticks <= 1
        ends[second].sendall(b"still here")
        ends[second].shutdown(socket.SHUT_WR)
        assert read_all(ends[first]) == (b"still here", "end")
    until(lambda: [x.status("Threads") and len(x.log("connection closed")) for x in p.both()] == [2, 2], "two log lines")
    assert {line["reason"] for x in p.both() for line in x.log("connection closed")} == {"end"}


def test_reset_goes_through_both_ways(pair):
    p = pair(hold)
    near, far = held(p)
    reset(near)
    assert read_all(far) == (b"", "reset")
    assert p.egress.wait_log("connection closed")["reason"] == "reset-by-local"
    assert p.ingress.wait_log("connection closed")["reason"] == "reset-by-peer"
    near, far = held(p)
    reset(far)
    assert read_all(near) == (b"", "reset")
    assert p.ingress.wait_log("connection closed", 2)["reason"] == "reset-by-local"
    assert p.egress.wait_log("connection closed", 2)["reason"] == "reset-by-peer"


@pytest.mark.parametrize("which", ["ingress", "egress"])
def test_a_killed_proxy_is_an_error_at_both_ends(pair, which):
    p = pair(hold)
    near, far = held(p)
    far.sendall(b"half of it")
    assert near.recv(100) == b"half of it"
    os.kill(getattr(p, which).pid, signal.SIGKILL)
    assert read_all(near) == (b"", "reset")
    assert read_all(far) == (b"", "reset")


@pytest.mark.parametrize("which", ["ingress", "egress"])
def test_a_proxy_killed_in_mid_stream_is_an_error_at_both_ends(pair, which):
    def serve(c):
        try:
            for b in blocks(1 << 30, "endless"):
                c.sendall(b)
            raise AssertionError("it ended")
        except (ConnectionResetError, BrokenPipeError):
            pass

    p = pair(serve)
    s = p.connect()
    assert len(s.recv(65536)) > 0
    os.kill(getattr(p, which).pid, signal.SIGKILL)
    assert read_all(s)[1] == "reset"


def test_refused_connect_is_a_reset_with_a_reason(start, pqplane, tmp_path, pki, free_port):
    p = Pair(start, pqplane, tmp_path, pki, f"127.0.0.1:{free_port()}")
    assert refused(p.egress.port("nrf"))
    line = p.ingress.wait_log("connection closed")
    assert line["reason"] == "connect-refused" and "can't connect to 127.0.0.1:" in line["detail"]
    assert p.egress.wait_log("connection closed")["reason"] == "reset-by-peer"
    alone = Proxy(start, pqplane, tmp_path, "alone", egress_config(pki, f"127.0.0.1:{free_port()}", carry="connection"))
    assert refused(alone.port("nrf"))
    assert alone.wait_log("connection closed")["reason"] == "connect-refused"


# --- time -----------------------------------------------------------------------------------------------------------


def test_idle_timeout(pair):
    p = pair(hold, ingress={"timeouts": {"idle": "700ms"}})
    near, far = held(p)
    for _ in range(4):  # not idle: a byte now and then keeps it
        select.select([], [], [], 0.4)
        near.sendall(b".")
        assert far.recv(1) == b"."
    assert read_all(far) == (b"", "reset")
    assert read_all(near) == (b"", "reset")
    line = p.ingress.wait_log("connection closed")
    assert line["reason"] == "idle" and 2200 < line["duration_ms"] < 8000


def test_who_sends_for_ever_and_never_reads_is_idle(pair):
    """The function answers, closes and resets; what the other side still sends goes nowhere and keeps nothing alive."""

    def serve(c):
        c.recv(1)
        c.sendall(b"x" * 300_000)
        c.shutdown(socket.SHUT_WR)
        until(lambda: unsent(c) == 0, "the proxy's kernel having it all")
        reset(c)

    p = pair(serve, ingress={"timeouts": {"idle": "2s"}}, egress={"timeouts": {"idle": "2s"}})
    near = p.connect(receive_buffer=4096)
    near.sendall(b"?")
    near.setblocking(False)

    def ended():
        try:
            near.send(b"and more")
        except (BlockingIOError, ConnectionResetError, BrokenPipeError):
            pass
        return all(x.log("connection closed") for x in p.both())

    until(ended, "the end of the connection")
    for x in p.both():
        line = x.log("connection closed")[0]
        assert line["reason"] in ("idle", "reset-by-local", "reset-by-peer"), line
        assert line["duration_ms"] < 12000
    assert "idle" in {x.log("connection closed")[0]["reason"] for x in p.both()}


def test_what_came_while_the_proxy_was_stopped_is_served(pair):
    p = pair(hold, ingress={"timeouts": {"idle": "500ms"}})
    for source, sink in ((0, 1), (1, 0)):
        ends = held(p)
        os.kill(p.ingress.pid, signal.SIGSTOP)
        ends[source].sendall(b"meanwhile")
        select.select([], [], [], 1)
        os.kill(p.ingress.pid, signal.SIGCONT)
        assert ends[sink].recv(100) == b"meanwhile"
        for s in ends:
            s.close()
    assert [line["reason"] for line in p.ingress.log("connection closed")].count("idle") == 0


def test_connect_timeout(start, pqplane, tmp_path, pki):
    full = socket.socket()  # a backlog of one that is full does not answer
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    filler = [socket.socket() for _ in range(3)]
    for f in filler:
        f.setblocking(False)
        f.connect_ex(full.getsockname())
    p = Proxy(start, pqplane, tmp_path, "egress",
              egress_config(pki, f"127.0.0.1:{full.getsockname()[1]}", timeouts={"connect": "300ms"}, carry="connection"))
    assert refused(p.port("nrf"))
    line = p.wait_log("connection closed")
    assert line["reason"] == "connect-timeout" and 290 < line["connect_ms"] < 3000


# --- limits ---------------------------------------------------------------------------------------------------------


def test_limit_of_connections(pair):
    p = pair(hold, egress={"limits": {"connections": 2}})
    first, second = held(p), held(p)
    assert refused(p.egress.port("nrf"))
    line = p.egress.wait_log("connection refused")
    assert line["reason"] == "limit" and line["open"] == 2
    first[0].close()
    first[1].close()
    p.egress.wait_log("connection closed")
    held(p)
    second[1].sendall(b"still served")
    assert second[0].recv(100) == b"still served"
    p.egress.program.process.send_signal(signal.SIGTERM)
    p.egress.wait_log("draining")
    p.egress.program.process.send_signal(signal.SIGTERM)
    p.egress.wait_log("stopped")
    assert p.egress.counts()["limit"] == 1


def test_500_connections_at_once(pair):
    patient = {"timeouts": {"handshake": "60s"}}  # the last of 500 handshakes waits for all others, on any machine
    p = pair(echo, ingress={**patient, "limits": {"handshakes_per_source": 500, "strangers": 500}}, egress=patient)
    need = 2 * 500 + 100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < need + 1100:
        pytest.skip(f"the limit of descriptors here is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sockets = [p.connect() for _ in range(500)]
    for i, s in enumerate(sockets):
        s.sendall(b"%d." % i)
    for i, s in enumerate(sockets):
        s.settimeout(60)
        want = b"%d." % i
        assert s.recv(len(want), socket.MSG_WAITALL) == want
    for s in sockets:
        s.shutdown(socket.SHUT_WR)
    assert all(read_all(s) == (b"", "end") for s in sockets)
    for x in p.both():
        x.wait_log("connection closed", 500)
        assert x.descriptors() < 20


def connect_or_none(port):
    try:
        return connect(port)
    except ConnectionResetError:
        return None


@pytest.mark.parametrize("when", ["from the start", "later"])
def test_descriptors_run_out_and_come_back(start, pqplane, tmp_path, pki, when):
    f = Function(echo)
    ingress = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(pki, f.address))
    config = egress_config(pki, f"127.0.0.1:{ingress.port('sbi')}", user="root")  # whose limits root may set here
    few = (60, 60)
    early = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few)} if when == "from the start" else {}
    egress = Proxy(start, pqplane, tmp_path, "egress", config, **early)
    first = connect(egress.port("nrf"))
    first.sendall(b"1")
    assert first.recv(1) == b"1"
    if when == "later":
        resource.prlimit(egress.pid, resource.RLIMIT_NOFILE, few)
    rest = [quick for _ in range(60) if (quick := connect_or_none(egress.port("nrf")))]
    egress.wait_log("accepting paused")
    ticks = egress.cpu_ticks()
    for _ in range(50):  # what is open goes on
        first.sendall(b"x" * 1000)
        assert first.recv(1000, socket.MSG_WAITALL) == b"x" * 1000
    select.select([], [], [], 0.5)
    assert egress.cpu_ticks() - ticks < 25, "it spins on the listener"
    answered = 0
    for s in rest:  # each either waits its turn and is then served, or is refused with a reset: never left hanging
        try:
            s.sendall(b"2")
            answered += s.recv(1) == b"2"
        except (ConnectionResetError, BrokenPipeError):
            pass
        s.close()
    failures = [line for line in egress.log("connection closed") if line["reason"] == "descriptors"]
    assert answered + len(failures) == 60
    assert answered >= 20
    if when == "from the start":
        assert answered == 60, "clients wait while none is left"
    again = connect(egress.port("nrf"))
    again.sendall(b"3")
    assert again.recv(1) == b"3"
    first.sendall(b"4")
    assert first.recv(1) == b"4"


def socket_options(pid, level, name):
    """The option's value on each connected TCP socket of another process."""
    pidfd_getfd = 438
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    values = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        copy = libc.syscall(pidfd_getfd, process, int(fd), 0)
        if copy < 0 and ctypes.get_errno() == errno.EPERM:
            pytest.skip("the sockets of another process can't be looked at here (pidfd_getfd: not permitted)")
        try:
            with socket.socket(fileno=copy) as s:
                s.getpeername()
                values.append(s.getsockopt(level, name))
        except OSError:  # no socket, or a listening one
            if copy >= 0 and os.path.exists(f"/proc/self/fd/{copy}"):
                os.close(copy)
    os.close(process)
    return values


@pytest.mark.parametrize("on", [True, False])
def test_nagle(pair, on):
    p = pair(hold, ingress={"tcp_nodelay": on}, egress={"tcp_nodelay": on})
    ends = held(p)
    for x in p.both():
        want = [int(on)] * 2 if p.carry == "connection" else [int(on), 1, 1]  # tunnels never wait
        until(lambda x=x, want=want: sorted(socket_options(x.pid, socket.IPPROTO_TCP, socket.TCP_NODELAY)) == want, want)
    del ends


# --- stopping -------------------------------------------------------------------------------------------------------


def test_drain_loses_nothing(pair, pqplane):
    total = 30_000_000

    def serve(c):
        assert c.recv(1) == b"?"
        for b in blocks(total, "answer"):
            c.sendall(b)
        c.close()

    p = pair(serve)
    s = p.connect()
    s.sendall(b"?")
    h = hashlib.sha256(s.recv(1))
    port = p.egress.port("nrf")
    for x in p.both():
        x.program.process.send_signal(signal.SIGTERM)
        x.wait_log("draining")
    with pytest.raises(ConnectionRefusedError):
        connect(port)
    while part := s.recv(1 << 18):
        h.update(part)
    assert h.hexdigest() == checksum(total, "answer")
    s.close()
    for x in p.both():
        assert x.program.process.wait(PATIENCE) == 0
        # A further tunnel may just be on its way, and is given up then.
        assert x.log("stopped")[0]["reasons"] in ("end=1", "end=1 reset=1")


def test_drain_ends_with_resets(pair):
    p = pair(hold, egress={"timeouts": {"drain": "300ms"}})
    near, far = held(p)
    assert p.egress.program.stop() == 0
    assert read_all(near) == (b"", "reset")
    assert read_all(far) == (b"", "reset")
    assert p.egress.log("connection closed")[0]["reason"] == "drain"
    assert p.egress.counts() == {"drain": 1}


def test_a_second_signal_ends_at_once(pair):
    p = pair(hold)
    near, _ = held(p)
    p.egress.program.process.send_signal(signal.SIGINT)
    p.egress.wait_log("draining")
    assert p.egress.program.stop(signal.SIGINT) == 1
    assert read_all(near) == (b"", "reset")


def test_signal_without_connections(pair):
    p = pair(hold)
    for x in p.both():
        assert x.program.stop() == 0


# --- configuration --------------------------------------------------------------------------------------------------


def check(pqplane, path):
    return subprocess.run([pqplane, "proxy", "--config", path, "--check"], capture_output=True, text=True)


def test_check(pqplane, pki, tmp_path):
    good = ingress_config(pki, "127.0.0.1:80")

    def result(config):
        (tmp_path / "p.yaml").write_text(json.dumps(config))
        r = check(pqplane, tmp_path / "p.yaml")
        return r.returncode, r.stderr

    assert result(good) == (0, "")
    for change, says in (
        ({"key": pki.file("client.key")}, "key"),
        ({"certificate": "/nowhere.crt"}, "/nowhere.crt"),
        ({"ca": pki.file("server.key")}, "server.key"),
        ({"crl": "/nowhere.pem"}, "/nowhere.pem"),
        ({"policy": {"mode": "classical", "level": 3, "require": ["pq-kex"]}}, "pq-kex"),
        ({"policy": {"mode": "hybrid", "level": 3, "groups": "nonsense"}}, "nonsense"),
        ({"policy": {"mode": "hybrid", "level": 3, "groups": "X25519", "require": "pq-kex"}}, "pq-kex"),
        ({"policy": {"mode": "hybrid", "level": 3, "sigalgs": "ed25519", "require": "pq-auth"}}, "pq-auth"),
    ):
        status, text = result({**good, "tls": {**good["tls"], **change}})
        assert status == 1 and says in text, text
        assert re.search(r"p\.yaml:\d+:\d+: ", text), text
    loop = egress_config(pki, "127.0.0.1:9001")
    loop["egress"][0]["listen"] = "127.0.0.1:9001"
    status, text = result(loop)
    assert status == 1 and re.search(r"p\.yaml:\d+:\d+: .*leads back to \"nrf\"", text), text
    assert check(pqplane, tmp_path / "none.yaml").returncode == 1


def test_wrong_usage(pqplane, tmp_path):
    for args in ([], ["--config"], ["--config", "x", "y"], ["--colour"], ["--config", "x", "--ready-fd", "77"]):
        r = subprocess.run([pqplane, "proxy", *args], capture_output=True, text=True)
        assert r.returncode == 2 and "pqplane proxy --help" in r.stderr
    assert subprocess.run([pqplane, "proxy", "--help"], capture_output=True).returncode == 0


def test_address_in_use(start, pqplane, pki, tmp_path):
    f = Function(echo)
    p = Proxy(start, pqplane, tmp_path, "one", ingress_config(pki, f.address))
    config = ingress_config(pki, f.address)
    config["ingress"][0]["listen"] = p.address["sbi"]
    with pytest.raises(RuntimeError, match="another program does"):
        Proxy(start, pqplane, tmp_path, "two", config)


# --- real programs --------------------------------------------------------------------------------------------------


@pytest.fixture
def nginx(tmp_path, free_port, start):
    port = free_port()
    (tmp_path / "www").mkdir(mode=0o755)
    for folder in [tmp_path, *tmp_path.parents]:  # nginx's worker is another user
        if folder.stat().st_uid == os.getuid() and folder.name.startswith(("pytest", "test_")):
            folder.chmod(0o755)
    (tmp_path / "www" / "small").write_bytes(b"s" * 500)
    (tmp_path / "www" / "large").write_bytes(b"".join(blocks(20_000_000, "large")))
    (tmp_path / "nginx.conf").write_text(f"""
daemon off; master_process off; pid {tmp_path}/nginx.pid; error_log stderr;
events {{ worker_connections 1024; }}
http {{ access_log off; server {{ listen 127.0.0.1:{port}; http2 on; root {tmp_path}/www; keepalive_requests 100000; }} }}
""")
    start(["nginx", "-p", tmp_path, "-c", tmp_path / "nginx.conf"], ready=False)

    def up():
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    until(up, "nginx")
    return f"127.0.0.1:{port}"


def test_curl_and_h2load_through_a_pair_to_nginx(start, pqplane, tmp_path, pki, nginx):
    p = Pair(start, pqplane, tmp_path, pki, nginx)
    at = f"http://127.0.0.1:{p.egress.port('nrf')}"
    for options in ([], ["--http2-prior-knowledge"]):
        r = subprocess.run(["curl", "-sS", "--fail", "--max-time", "60", *options, f"{at}/large"], capture_output=True)
        assert r.returncode == 0, r.stderr
        assert hashlib.sha256(r.stdout).hexdigest() == checksum(20_000_000, "large")
    for options in (["-c", "10", "-m", "10"], ["--h1", "-c", "20"]):
        r = subprocess.run(["h2load", "-n", "2000", *options, f"{at}/small"], capture_output=True, text=True, timeout=60)
        assert "2000 succeeded, 0 failed, 0 errored, 0 timeout" in r.stdout, r.stdout + r.stderr
