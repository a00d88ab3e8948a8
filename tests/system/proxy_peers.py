"""What the proxy's tests share: certificates, a proxy in front of a function, functions and peers made of sockets."""

import contextlib
import hashlib
import json
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

PATIENCE = 20  # seconds that anything may take on a busy machine


def until(condition, what, patience=PATIENCE):
    """Waits for an event that nothing but looking can tell, such as a line in a log."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        select.select([], [], [], 0.01)
    raise AssertionError(f"{what} did not happen within {patience} s")


class Pki:
    """An authority that `pqplane pki` made, and what it issued."""

    def __init__(self, pqplane, folder, root="mldsa65", intermediate="mldsa65", leaf="mldsa65"):
        self.pqplane, self.folder, self.leaf = pqplane, pathlib.Path(folder), leaf
        self.run("init", "--root", root, *(["--intermediate", intermediate] if intermediate else []))

    def run(self, verb, *args):
        subprocess.run([self.pqplane, "pki", verb, "--dir", self.folder, *args], check=True, capture_output=True)

    def issue(self, name, *args, dns=None, algorithm=None):
        self.run("issue", "--name", name, "--algorithm", algorithm or self.leaf, "--dns", dns or f"{name}.example", *args)
        return self.identity(name)

    def identity(self, name):
        return {"certificate": self.file(f"{name}.crt"), "key": self.file(f"{name}.key"), "ca": self.file("root.crt")}

    def file(self, name):
        return str(self.folder / name)


def children(pid):
    """Of a process, in the order of their numbers."""
    try:
        return sorted(int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    except FileNotFoundError:
        return []


class Proxy:
    """A running `pqplane proxy` with its configuration, bound addresses, the admin listener's (or None), and log.

    .supervisor is its first process, .workers are those that carry connections, .pid is the only worker.
    """

    def __init__(self, start, pqplane, folder, name, config, more=(), **options):
        self.path = pathlib.Path(folder) / f"{name}.yaml"
        self.path.write_text(json.dumps({"log": {"level": "info", "format": "json"}, **config}))  # JSON is YAML
        # Where the binary has AddressSanitizer: freed memory that it holds back would count as the proxy's.
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64"
        options.setdefault("env", {**os.environ, "ASAN_OPTIONS": sanitizer.strip(":")})
        self.program = start([pqplane, "proxy", "--config", self.path, *more], **options)
        self.address, self.admin = {}, None
        for line in self.program.ready:
            word, *rest = line.split()
            if word == "admin":
                (self.admin,) = rest
                continue
            assert word == "ready"
            self.address[rest[0]] = rest[1]
        self.supervisor = self.program.pid

    @property
    def workers(self):
        found = []
        for pid in children(self.supervisor):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it may end meanwhile
                if pathlib.Path(f"/proc/{pid}/comm").read_text().startswith("pqplane:"):
                    found.append(pid)
        return found

    @property
    def pid(self):
        (worker,) = until(lambda: self.workers, "a worker")
        return worker

    def write(self, config):
        """A new configuration in the place of the old, at once."""
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps({"log": {"level": "info", "format": "json"}, **config}))
        beside.rename(self.path)

    def reload(self, config=None, refused=False):
        """By SIGHUP; gives the log line that says what became of it."""
        if config:
            self.write(config)
        event = "reload refused" if refused else "reloaded"
        before = len(self.log(event))
        os.kill(self.supervisor, signal.SIGHUP)
        return self.wait_log(event, before + 1)

    def port(self, listener):
        return int(self.address[listener].rsplit(":", 1)[1])

    def log(self, event=None):
        lines = [json.loads(line) for line in self.program.text().splitlines() if line.endswith("}")]
        return [line for line in lines if event is None or line["event"] == event]

    def wait_log(self, event, count=1):
        until(lambda: len(self.log(event)) >= count, f"{count} log lines {event!r} of {self.path.name}")
        return self.log(event)[-1]

    def status(self, key):
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1])
        raise KeyError(key)

    def cpu_ticks(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def counts(self):
        """The counters of the line "stopped"."""
        return dict((k, int(v)) for k, v in (pair.split("=") for pair in self.log("stopped")[0]["reasons"].split()))


POLICY = {"mode": "hybrid", "level": 3, "require": ["pq-kex", "pq-auth"]}


def ingress_config(pki, forward, identity="server", peers=None, policy=None, tls=None, **more):
    listener = {"name": "sbi", "listen": "127.0.0.1:0", "forward": forward}
    if peers:
        listener["peers"] = peers
    return {"tls": {**pki.identity(identity), "policy": policy or POLICY, **(tls or {})}, "ingress": [listener], **more}


def egress_config(pki, connect, identity="client", peers=("server.example",), policy=None, tls=None, carry=None, **more):
    """carry None: what the program takes where nothing is said."""
    listener = {"name": "nrf", "listen": "127.0.0.1:0", "connect": connect, "peers": list(peers)}
    if carry:
        listener["carry"] = carry
    return {"tls": {**pki.identity(identity), "policy": policy or POLICY, **(tls or {})}, "egress": [listener], **more}


class Pair:
    """function -> egress proxy -> TLS -> ingress proxy -> function."""

    def __init__(self, start, pqplane, folder, pki, forward, ingress=None, egress=None):
        self.ingress = Proxy(start, pqplane, folder, "ingress", ingress_config(pki, forward, **(ingress or {})))
        self.egress = Proxy(start, pqplane, folder, "egress",
                            egress_config(pki, f"127.0.0.1:{self.ingress.port('sbi')}", **(egress or {})))

    def connect(self, **options):
        return connect(self.egress.port("nrf"), **options)

    def both(self):
        return (self.ingress, self.egress)


def connect(port, receive_buffer=None):
    s = socket.socket()
    if receive_buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    s.settimeout(PATIENCE)
    s.connect(("127.0.0.1", port))
    return s


def reset(s):
    """Closes with RST."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def read_all(s, size=65536):
    """(bytes, how it ended): "end" or "reset"."""
    parts = []
    while True:
        try:
            part = s.recv(size)
        except (ConnectionResetError, BrokenPipeError):
            return b"".join(parts), "reset"
        if not part:
            return b"".join(parts), "end"
        parts.append(part)


def refused(port):
    """Whether a connection is ended with a reset before a byte came back; it may be that quick that connect() tells."""
    try:
        return read_all(connect(port)) == (b"", "reset")
    except ConnectionResetError:
        return True


def let_workers_in(path):
    """To a socket of ours: workers are another user where the tests are root's."""
    os.chmod(path, 0o777)
    for folder in pathlib.Path(path).parents:
        if pathlib.Path(tempfile.gettempdir()) in folder.parents:
            folder.chmod(0o755)


def exchange(port):
    """What an echoing function answers a connection that half-closes, and how that ended."""
    try:
        s = connect(port)
        s.sendall(b"hello")
        s.shutdown(socket.SHUT_WR)
    except OSError:
        return b"", "reset"
    return read_all(s)


class Function:
    """A network function of sockets: serve(connection) runs in a thread for each one; what it raises fails the test."""

    def __init__(self, serve, path=None, host="127.0.0.1"):
        self.serve = serve
        self.errors, self.connections = [], []
        if path:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(str(path))
            let_workers_in(path)
            self.listener.listen(1024)
            self.address = f"unix:{path}"
        else:
            self.listener = socket.create_server((host, 0), backlog=1024)
            self.address = f"{host}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
            c.settimeout(PATIENCE)
            self.connections.append(c)
            threading.Thread(target=self.one, args=(c,), daemon=True).start()

    def one(self, c):
        try:
            self.serve(c)
        except Exception as e:  # reported by the test that looks
            self.errors.append(e)

    def take(self):
        """The next connection, for tests that play the function themselves (serve=hold)."""
        return until(lambda: self.connections and self.connections.pop(0), "a connection of the proxy")

    def close(self):
        self.listener.close()


def hold(c):
    """Leaves the connection to the test."""


def echo(c):
    while part := c.recv(65536):
        c.sendall(part)
    c.close()


class Splitter:
    """Passes TCP on in segments of so many bytes; the first limit bytes of each direction, then as they come."""

    def __init__(self, port, size=1, limit=1 << 30):
        self.port, self.size, self.limit = port, size, limit
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                a, _ = self.listener.accept()
            except OSError:
                return
            b = socket.create_connection(("127.0.0.1", self.port))
            for x, y in ((a, b), (b, a)):
                threading.Thread(target=self.carry, args=(x, y), daemon=True).start()

    def carry(self, x, y):
        y.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        done = 0
        try:
            while part := x.recv(65536):
                while part and done < self.limit:
                    y.sendall(part[: self.size])
                    part = part[self.size :]
                    done += self.size
                y.sendall(part)
            y.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def blocks(total, seed):
    """Deterministic bytes that do not repeat, in pieces of 64 KiB."""
    key = hashlib.sha256(str(seed).encode()).digest()
    piece = hashlib.shake_256(key).digest(65536)
    for i in range(0, total, 65536):
        yield (i.to_bytes(8, "big") + piece[8:])[: min(65536, total - i)]


def checksum(total, seed):
    h = hashlib.sha256()
    for b in blocks(total, seed):
        h.update(b)
    return h.hexdigest()
