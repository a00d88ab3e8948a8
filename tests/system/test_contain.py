"""What a worker gave up before it meets a peer, seen from outside, and that traffic, reload and stopping need none of it."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading

import pytest

from proxy_peers import PATIENCE, Pair, Pki, Proxy, connect, echo, egress_config, hold, ingress_config, read_all, reset, until

NOBODY = 65534
ROOT = os.geteuid() == 0


@pytest.fixture(scope="session")
def pki(pqplane, tmp_path_factory):
    p = Pki(pqplane, tmp_path_factory.mktemp("pki") / "a")
    for name in ("server", "client", "renewed"):
        p.issue(name, dns="server.example" if name == "renewed" else None)
    return p


@pytest.fixture(autouse=True)
def traced(monkeypatch):
    """A build with tests then logs each system call that is refused."""
    monkeypatch.setenv("PQPLANE_TRACE_REFUSED", "1")


def status(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def core_limit(pid):
    (line,) = [l for l in pathlib.Path(f"/proc/{pid}/limits").read_text().splitlines() if l.startswith("Max core")]
    return line.split()[4:6]


def contained(proxy):
    if any("can't work contained" in line.get("detail", "") for line in proxy.log("containment off")):
        pytest.skip("this build can't work contained: see the log")


def forgiving(c):
    with contextlib.suppress(ConnectionResetError):
        echo(c)


def missed(proxy):
    """System calls that were refused, but one that malloc(3) does without: it looks for vm.overcommit_memory."""
    refused = {int(n) for n in re.findall(r'"system call refused" number=(\d+)', proxy.program.text())}
    return refused - {{"x86_64": 257, "aarch64": 56}.get(os.uname().machine)}


def asked_again(port):
    s = connect(port)
    s.sendall(b"hello")
    s.shutdown(socket.SHUT_WR)
    return read_all(s)


def test_a_worker_has_given_up_what_it_does_not_need(start, pqplane, tmp_path, pki):
    p = Proxy(start, pqplane, tmp_path, "p", ingress_config(pki, "127.0.0.1:9", workers=2))
    contained(p)
    workers = until(lambda: len(p.workers) == 2 and p.workers, "two workers")
    for pid in workers:
        s = status(pid)
        assert s["NoNewPrivs"].strip() == "1" and s["Seccomp"].strip() == "2"
        for name in ("CapInh", "CapPrm", "CapEff", "CapAmb", *(["CapBnd"] if ROOT else [])):
            assert int(s[name], 16) == 0, name
        if ROOT:
            assert set(s["Uid"].split()) == set(s["Gid"].split()) == {str(NOBODY)}
            assert s["Groups"].split() == [str(NOBODY)]
    for pid in (p.supervisor, *workers):
        assert core_limit(pid) == ["0", "0"]
        # Not dumpable: then /proc belongs to root, and nobody else of that user may look.
        assert os.stat(f"/proc/{pid}/mem").st_uid == 0


def test_no_system_call_is_missed(start, pqplane, tmp_path, pki, functions):
    """Traffic of every kind, a reload, a worker's death and an orderly stop: nothing that is refused was needed."""
    f = functions(forgiving)
    pair = Pair(start, pqplane, tmp_path, pki, f.address, {"workers": 2})
    contained(pair.ingress)
    for _ in range(20):
        assert asked_again(pair.egress.port("nrf")) == (b"hello", "end")
    s = pair.connect()
    blob = os.urandom(1 << 20)
    threading.Thread(target=lambda: (s.sendall(blob * 8), s.shutdown(socket.SHUT_WR)), daemon=True).start()
    assert read_all(s) == (blob * 8, "end")
    s = pair.connect()
    s.sendall(b"?")
    assert s.recv(1) == b"?"
    reset(s)
    s = connect(pair.ingress.port("sbi"))
    s.sendall(b"GET / HTTP/1.1\r\n\r\n")  # no TLS
    read_all(s)
    pair.ingress.wait_log("handshake failed")
    config = pair.ingress.path.read_text().replace("server.crt", "renewed.crt").replace("server.key", "renewed.key")
    pair.ingress.path.write_text(config)
    os.kill(pair.ingress.supervisor, signal.SIGHUP)
    pair.ingress.wait_log("reloaded")
    assert asked_again(pair.egress.port("nrf")) == (b"hello", "end")
    os.kill(pair.ingress.workers[0], signal.SIGKILL)
    pair.ingress.wait_log("worker died")
    until(lambda: asked_again(pair.egress.port("nrf")) == (b"hello", "end"), "an answer, by one that is there")
    held = pair.connect()
    held.sendall(b"x")
    assert held.recv(1) == b"x"
    for p in pair.both():
        os.kill(p.supervisor, signal.SIGTERM)
        p.wait_log("draining")
    held.shutdown(socket.SHUT_WR)
    assert read_all(held) == (b"", "end")
    for p in pair.both():
        assert p.program.process.wait(PATIENCE) == 0
        assert not missed(p)


def test_a_crash_leaves_no_core_and_a_reset(start, pqplane, tmp_path, pki, functions):
    f = functions(hold)
    pair = Pair(start, pqplane, tmp_path, pki, f.address)
    contained(pair.ingress)
    s = pair.connect()
    s.sendall(b"?")
    far = f.take()
    assert far.recv(1) == b"?"
    pid = pair.ingress.pid
    os.kill(pid, signal.SIGSEGV)
    assert read_all(s) == (b"", "reset")
    with pytest.raises(ConnectionResetError):
        far.recv(1)
    line = pair.ingress.wait_log("worker died")
    assert "core" not in str(line)
    pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text()
    folder = pathlib.Path(os.path.dirname(pattern)) if pattern.startswith("/") else pathlib.Path.cwd()
    assert not [p for p in folder.glob("*core*") if p.is_file() and str(pid) in p.name]


def test_an_ordinary_user_runs_it_contained(start, pqplane, tmp_path, pki, functions):
    if not ROOT:
        pytest.skip("needs root to become an ordinary user")
    f = functions(echo)
    folder = tmp_path / "open"
    folder.mkdir()
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid != 0 or not path.stat().st_mode & 0o001:
            if path == pathlib.Path("/tmp"):
                break
            path.chmod(path.stat().st_mode | 0o055)
    for name in ("server.crt", "server.key", "root.crt"):
        (folder / name).write_bytes(pathlib.Path(pki.file(name)).read_bytes())
        (folder / name).chmod(0o600)
        os.chown(folder / name, 1000, 1000)
    os.chown(folder, 1000, 1000)
    config = ingress_config(pki, f.address)
    config["tls"] |= {key: str(folder / pathlib.Path(config["tls"][key]).name) for key in ("certificate", "key", "ca")}
    become = ["setpriv", "--reuid", 1000, "--regid", 1000, "--clear-groups"]
    ingress = Proxy(lambda argv, **o: start([*become, *argv], **o), pqplane, tmp_path, "ingress", config)
    contained(ingress)
    s = status(ingress.pid)
    assert s["Uid"].split()[0] == "1000" and s["Seccomp"].strip() == "2" and s["NoNewPrivs"].strip() == "1"
    egress = Proxy(start, pqplane, tmp_path, "egress", egress_config(pki, f"127.0.0.1:{ingress.port('sbi')}"))
    assert asked_again(egress.port("nrf")) == (b"hello", "end")


def test_who_workers_become_is_checked(pqplane, tmp_path, start, pki):
    if not ROOT:
        pytest.skip("needs root")
    path = tmp_path / "p.yaml"
    path.write_text(json.dumps(ingress_config(pki, "127.0.0.1:9", user="no-such-user")))
    r = subprocess.run([pqplane, "proxy", "--config", path], capture_output=True, text=True, timeout=PATIENCE * 3)
    assert r.returncode == 1 and 'this host has no user "no-such-user"' in r.stderr
    p = Proxy(start, pqplane, tmp_path, "q", ingress_config(pki, "127.0.0.1:9", user="daemon", contain=False))
    s = status(p.pid)
    assert s["Uid"].split()[0] == "1" and int(s["CapEff"], 16) == 0 and s["Seccomp"].strip() == "0"
    assert p.wait_log("containment off")["detail"] != ""


def test_unix_sockets_on_both_sides(start, pqplane, tmp_path, pki, functions):
    """A contained ingress reaches a function's socket, and a contained egress is reached through one."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder == pathlib.Path("/tmp") or folder.stat().st_mode & 0o001:
            break
        folder.chmod(folder.stat().st_mode | 0o011)
    path = tmp_path / "function.sock"
    f = functions(echo, path)
    path.chmod(0o777)
    ingress = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(pki, f.address))
    config = egress_config(pki, f"127.0.0.1:{ingress.port('sbi')}")
    config["egress"][0]["listen"] = f"unix:{tmp_path}/egress.sock"
    egress = Proxy(start, pqplane, tmp_path, "egress", config)

    def ask():
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(PATIENCE)
        s.connect(f"{tmp_path}/egress.sock")
        s.sendall(b"hello")
        s.shutdown(socket.SHUT_WR)
        return read_all(s)

    assert ask() == (b"hello", "end")
    # A function that restarts has another socket at that path.
    f.close()
    path.unlink()
    again = functions(echo, path)
    path.chmod(0o777)
    assert ask() == (b"hello", "end")
    assert len(again.connections) == 1
    if ROOT:
        path.chmod(0o700)  # not for the workers' user
        ask()
        line = ingress.wait_log("connection closed", 3)
        assert line["reason"] == "connect-failed" and "ermission denied" in line["detail"]
    for p in (ingress, egress):
        assert not missed(p)


# --- keys -----------------------------------------------------------------------------------------------------------


def holds(pid, needle):
    """Whether a process has these bytes in memory that it may write to or mapped for itself."""
    try:
        mem, maps = open(f"/proc/{pid}/mem", "rb", buffering=0), pathlib.Path(f"/proc/{pid}/maps").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended
    with mem:
        for line in maps.splitlines():
            m = re.match(r"([0-9a-f]+)-([0-9a-f]+) r", line)
            if not m or "[v" in line:
                continue
            at, end, tail = int(m[1], 16), int(m[2], 16), b""
            while at < end:
                try:
                    part = os.pread(mem.fileno(), min(1 << 22, end - at), at)
                except OSError:
                    break
                if not part:
                    break
                if needle in tail + part:
                    return True
                tail = part[-len(needle):]
                at += len(part)
    return False


def holders(proxy, needle):
    """Of its processes that last; the one that checks a new configuration reads the key's file, and ends."""
    return [pid for pid in (proxy.supervisor, *proxy.workers) if holds(pid, needle)]


def test_a_keys_file_is_wiped_from_memory(start, pqplane, tmp_path, pki, functions):
    """Once contexts are made, no process has the text of a key's file any more; the worker has what libcrypto needs."""
    if not ROOT:
        pytest.skip("needs root to look into the proxy's memory")
    f = functions(echo)
    pair = Pair(start, pqplane, tmp_path, pki, f.address)
    contained(pair.ingress)  # a sanitizer keeps freed memory, and terabytes of its own
    assert asked_again(pair.egress.port("nrf")) == (b"hello", "end")
    lines = pathlib.Path(pki.file("server.key")).read_bytes().splitlines()
    secret = max(lines, key=len)
    path = pair.ingress.path.name.encode()
    assert holds(pair.ingress.supervisor, path), "this looks into memory"
    assert not holders(pair.ingress, secret)
    os.kill(pair.ingress.supervisor, signal.SIGHUP)
    pair.ingress.path.write_text(pair.ingress.path.read_text().replace("server.crt", "renewed.crt")
                                 .replace("server.key", "renewed.key"))
    os.kill(pair.ingress.supervisor, signal.SIGHUP)
    pair.ingress.wait_log("reloaded")
    renewed = max(pathlib.Path(pki.file("renewed.key")).read_bytes().splitlines(), key=len)
    assert not holders(pair.ingress, secret) and not holders(pair.ingress, renewed)
