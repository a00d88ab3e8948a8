"""The proxy's processes: a supervisor that keeps the listening sockets, workers that come and go."""

import itertools
import json
import mmap
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import time

import pytest

import proxy_peers
from proxy_peers import PATIENCE, Pair, Pki, Proxy, connect, egress_config, hold, ingress_config, read_all, refused, until


def echo(c):
    try:
        proxy_peers.echo(c)
    except ConnectionResetError:  # its worker was killed
        pass


def exactly(s, count):
    data = b""
    while len(data) < count:
        part = s.recv(count - len(data))
        assert part, f"the stream ended after {len(data)} of {count} bytes"
        data += part
    return data


def works(p):
    s = p.connect()
    s.sendall(b"hello")
    assert exactly(s, 5) == b"hello"
    return s


def gone(pid):
    return not os.path.exists(f"/proc/{pid}")


# --- workers --------------------------------------------------------------------------------------------------------


def test_a_killed_worker_is_started_again_and_the_sockets_stay(start, pqplane, tmp_path, pki, functions):
    p = Pair(start, pqplane, tmp_path, pki, functions(echo).address)
    s = works(p)
    first = p.egress.pid
    os.kill(first, signal.SIGSTOP)  # who comes now waits in the backlog
    waiting = p.connect()
    waiting.sendall(b"later")
    os.kill(first, signal.SIGKILL)
    assert read_all(s) == (b"", "reset")
    assert exactly(waiting, 5) == b"later"
    line = p.egress.wait_log("worker died")
    assert line["worker"] == 0 and "killed by signal 9" in line["detail"] and line["restart_in_s"] == 0
    second = p.egress.pid
    assert second != first
    os.kill(second, signal.SIGKILL)
    assert read_all(waiting) == (b"", "reset")
    assert p.egress.wait_log("worker died", 2)["restart_in_s"] == 1
    works(p)
    os.kill(p.egress.pid, signal.SIGKILL)
    assert p.egress.wait_log("worker died", 3)["restart_in_s"] == 2
    assert p.egress.program.stop() == 0, "also while it waits to start one"
    assert p.egress.log("stopped")[0]["accepted"] == 3, "what dead workers counted stays"


def test_several_workers_share_sockets_and_limit(start, pqplane, tmp_path, pki, functions):
    f = functions(echo)
    more = {"workers": 3, "limits": {"connections": 30}}
    p = Pair(start, pqplane, tmp_path, pki, f.address, egress=more, ingress={"workers": 2})
    assert len(p.egress.workers) == 3 and len(p.ingress.workers) == 2
    open_now = [works(p) for _ in range(30)]
    assert refused(p.egress.port("nrf"))
    assert p.egress.wait_log("connection refused")["open"] == 30
    victim = p.egress.workers[0]
    os.kill(victim, signal.SIGKILL)
    until(lambda: gone(victim) and len(p.egress.workers) == 3, "a new worker")
    alive = []
    for s in open_now:
        try:
            s.sendall(b"again")
            if exactly(s, 5) == b"again":
                alive.append(s)
        except (ConnectionResetError, BrokenPipeError):
            pass
    refill = [works(p) for _ in range(30 - len(alive))]  # a dead worker's connections no longer count
    assert refused(p.egress.port("nrf"))
    for s in alive + refill:
        s.close()
    for x in p.both():
        assert x.program.stop() == 0
    assert p.egress.counts()["limit"] == 2


def test_a_worker_does_not_listen_to_signals_meant_for_the_supervisor(start, pqplane, tmp_path, pki, functions):
    p = Pair(start, pqplane, tmp_path, pki, functions(echo).address)
    s = works(p)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
        os.kill(p.egress.pid, number)
    s.sendall(b"still")
    assert exactly(s, 5) == b"still"
    assert not p.egress.log("worker died")


# --- the supervisor -------------------------------------------------------------------------------------------------


def test_workers_finish_when_the_supervisor_is_killed(start, pqplane, tmp_path, pki, functions):
    f = functions(hold)
    p = Pair(start, pqplane, tmp_path, pki, f.address, egress={"workers": 2})
    near = p.connect()
    near.sendall(b"?")
    far = f.take()
    assert far.recv(1) == b"?"
    workers = p.egress.workers
    p.egress.program.process.kill()
    p.egress.program.process.wait(PATIENCE)
    p.egress.wait_log("supervisor gone", 2)
    until(lambda: sum(map(gone, workers)) == 1, "the end of the worker without connections")
    with pytest.raises(ConnectionRefusedError):
        connect(p.egress.port("nrf"))
    near.sendall(b"still carried")
    near.shutdown(socket.SHUT_WR)
    assert read_all(far) == (b"still carried", "end")
    far.sendall(b"both ways")
    far.close()
    assert read_all(near) == (b"both ways", "end")
    until(lambda: all(map(gone, workers)), "the end of the last worker")


def test_nothing_is_left_behind(start, pqplane, tmp_path, pki, functions):
    p = Pair(start, pqplane, tmp_path, pki, functions(echo).address, egress={"workers": 2})
    works(p).close()
    all_of_them = [x.supervisor for x in p.both()] + [w for x in p.both() for w in x.workers]
    for x in p.both():
        assert x.program.stop() == 0
    until(lambda: all(map(gone, all_of_them)), "the end of all processes")


def test_ready_means_that_all_workers_serve(start, pqplane, tmp_path, pki):
    p = Proxy(start, pqplane, tmp_path, "many", egress_config(pki, "127.0.0.1:9", workers=8))
    assert len(p.workers) == 8
    assert p.log("started")[0]["workers"] == 8


def test_what_is_wrong_is_said_before_anything_is_served(start, pqplane, tmp_path, pki):
    config = ingress_config(pki, "127.0.0.1:9", tls={"key": pki.file("client.key")}, workers=2)
    with pytest.raises(RuntimeError, match="does not belong to the certificate"):
        Proxy(start, pqplane, tmp_path, "wrong", config)


# --- reload ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def own(pqplane, tmp_path):
    """An authority of one test's own, whose files it may change. Classical, so that Python's TLS can look."""
    p = Pki(pqplane, tmp_path / "own", root="p384", intermediate=None, leaf="p384")
    for name in ("server", "client", "second"):
        p.issue(name)
    return p


CLASSICAL = {"mode": "classical", "level": 3}


def shown(p, pki, identity="client"):
    """The names in the certificate that the ingress shows now."""
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    c.check_hostname = False
    c.load_verify_locations(pki.file("root.crt"))
    c.load_cert_chain(pki.file(f"{identity}.crt"), pki.file(f"{identity}.key"))
    with socket.create_connection(("127.0.0.1", p.port("sbi")), timeout=PATIENCE) as raw, c.wrap_socket(raw) as s:
        s.sendall(b"x")
        assert s.recv(1) == b"x"
        return [name for _, name in s.getpeercert()["subjectAltName"]]


def put(pki, name, source):
    """source's certificate and key in the place of name's."""
    for kind in ("crt", "key"):
        shutil.copy2(pki.file(f"{source}.{kind}"), pki.file("new"))
        os.rename(pki.file("new"), pki.file(f"{name}.{kind}"))


def test_reload_takes_new_files_and_keeps_connections(start, pqplane, tmp_path, own, functions):
    ingress = {"policy": CLASSICAL, "workers": 2}
    p = Pair(start, pqplane, tmp_path, own, functions(echo).address, ingress=ingress,
             egress={"policy": CLASSICAL, "peers": ["server.example", "second.example"]})
    kept = works(p)
    workers = p.ingress.workers
    assert shown(p.ingress, own) == ["server.example"]
    put(own, "server", "second")
    line = p.ingress.reload()
    assert line["generation"] == 2 and line["cause"] == "SIGHUP"
    assert shown(p.ingress, own) == ["second.example"]
    kept.sendall(b"still")
    assert exactly(kept, 5) == b"still"
    assert p.ingress.workers == workers
    for i in range(3, 30):
        assert p.ingress.reload()["generation"] == i
    kept.sendall(b"and on")
    assert exactly(kept, 6) == b"and on"
    works(p)


def test_what_can_not_be_used_is_refused_and_the_old_goes_on(start, pqplane, tmp_path, own, functions):
    good = ingress_config(own, functions(echo).address, policy=CLASSICAL, watch=False)
    p = Proxy(start, pqplane, tmp_path, "ingress", good)
    bad = lambda **tls: {**good, "tls": {**good["tls"], **tls}}
    (tmp_path / "rubbish.crt").write_text("rubbish")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for config, says in (
            (bad(key=own.file("client.key")), "does not belong to the certificate"),
            (bad(key=own.file("none.key")), "none.key"),
            (bad(ca=str(tmp_path / "rubbish.crt")), "rubbish.crt"),
            (bad(policy={"mode": "classical", "level": 3, "groups": "nonsense"}), "nonsense"),
            ({"ingress": []}, "there is nothing to do"),
            ({**good, "ingress": [{**good["ingress"][0], "forward": "no-such-host.invalid:1"}]}, "no-such-host"),
            ({**good, "ingress": good["ingress"] + [{**good["ingress"][0], "name": "b", "listen": address}]}, address),
        ):
            line = p.reload(config, refused=True)
            assert says in line["detail"] and line["generation"] == 1, line
            assert shown(p, own) == ["server.example"]
    p.path.write_text("{")
    assert "ingress.yaml:2:1: " in p.reload(refused=True)["detail"]
    assert p.reload(good)["generation"] == 2
    assert not p.log("worker died")


def test_a_changed_file_is_taken_without_being_told(start, pqplane, tmp_path, own, functions):
    p = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(own, functions(echo).address, policy=CLASSICAL))
    for kind in ("crt", "key"):
        shutil.copy2(own.file(f"server.{kind}"), own.file(f"first.{kind}"))
    os.utime(own.file("server.crt"))
    for i, name in enumerate(("second", "first", "second"), 2):
        put(own, "server", name)
        assert p.wait_log("reloaded", i - 1)["generation"] == i
        assert shown(p, own) == ["second.example" if name == "second" else "server.example"]
    assert [line["cause"] for line in p.log("reloaded")] == ["a file changed"] * 3
    shutil.copy(own.file("client.key"), own.file("server.key"))
    assert "does not belong" in p.wait_log("reload refused")["detail"]
    put(own, "server", "first")
    assert p.wait_log("reloaded", 4)["generation"] == 5
    assert shown(p, own) == ["server.example"]


def test_a_folder_that_a_link_stands_for_is_replaced(start, pqplane, tmp_path, own, functions):
    """As a Kubernetes secret: NAME -> ..data/NAME, and ..data -> a folder for each version."""
    mount, numbers = tmp_path / "mount", itertools.count()
    mount.mkdir()

    def publish(identity):
        version = mount / f"..version{next(numbers)}"
        version.mkdir()
        for kind in ("crt", "key"):
            shutil.copy2(own.file(f"{identity}.{kind}"), version / f"tls.{kind}")
        (mount / "..new").symlink_to(version.name)
        (mount / "..new").rename(mount / "..data")

    publish("server")
    for kind in ("crt", "key"):
        (mount / f"tls.{kind}").symlink_to(f"..data/tls.{kind}")
    config = ingress_config(own, functions(echo).address, policy=CLASSICAL,
                            tls={"certificate": str(mount / "tls.crt"), "key": str(mount / "tls.key")})
    p = Proxy(start, pqplane, tmp_path, "ingress", config)
    assert shown(p, own) == ["server.example"]
    for i, name in enumerate(("second", "server", "second"), 1):
        publish(name)
        p.wait_log("reloaded", i)
        assert shown(p, own) == [f"{name}.example"]
    assert not p.log("reload refused")


def test_listeners_come_and_go(start, pqplane, tmp_path, pki, functions, free_port):
    f = functions(echo)
    ingress = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(pki, f.address))
    config = egress_config(pki, f"127.0.0.1:{ingress.port('sbi')}", workers=2)
    p = Proxy(start, pqplane, tmp_path, "egress", config)
    more = {**config["egress"][0], "name": "more", "listen": f"127.0.0.1:{free_port()}"}
    kept = connect(p.port("nrf"))
    kept.sendall(b"1")
    assert kept.recv(1) == b"1"
    assert p.reload({**config, "egress": [more, config["egress"][0]]})["listeners"] == 2
    p.address["more"] = more["listen"]
    for listener in ("more", "nrf"):
        s = connect(p.port(listener))
        s.sendall(b"hello")
        assert exactly(s, 5) == b"hello"
    p.reload({**config, "egress": [more]})
    with pytest.raises(ConnectionRefusedError):
        connect(p.port("nrf"))
    for s in (kept, connect(p.port("more"))):
        s.sendall(b"2")
        assert s.recv(1) == b"2"


def test_who_waits_in_a_removed_listener_is_still_served(start, pqplane, tmp_path, pki, functions, free_port):
    ingress = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(pki, functions(echo).address))
    config = egress_config(pki, f"127.0.0.1:{ingress.port('sbi')}")
    p = Proxy(start, pqplane, tmp_path, "egress", config)
    other = {**config["egress"][0], "name": "other", "listen": f"127.0.0.1:{free_port()}"}
    os.kill(p.pid, signal.SIGSTOP)
    waiting = [connect(p.port("nrf")) for _ in range(20)]
    p.write({**config, "egress": [other]})
    os.kill(p.supervisor, signal.SIGHUP)
    until(lambda: f":{int(other['listen'].rsplit(':')[1]):04X} 00000000:0000 0A" in open("/proc/net/tcp").read(), "the new socket")
    os.kill(p.pid, signal.SIGCONT)
    p.wait_log("reloaded")
    for s in waiting:
        s.sendall(b"hello")
        assert exactly(s, 5) == b"hello"


def test_the_number_of_workers_changes(start, pqplane, tmp_path, pki, functions):
    p = Pair(start, pqplane, tmp_path, pki, functions(echo).address)
    config = egress_config(pki, f"127.0.0.1:{p.ingress.port('sbi')}")
    first = p.egress.pid
    kept = works(p)
    assert p.egress.reload({**config, "workers": 4})["workers"] == 4
    assert len(p.egress.workers) == 4 and first in p.egress.workers
    held = [works(p) for _ in range(40)]
    p.egress.reload({**config, "workers": 1})
    for s in [kept, *held, works(p)]:
        s.sendall(b"again")
        assert exactly(s, 5) == b"again"
        s.close()
    until(lambda: p.egress.workers == [first], "the end of the retired workers")
    assert not p.egress.log("worker died")
    assert p.egress.program.stop() == 0
    assert p.egress.counts() == {"end": 42}


def test_timeouts_limits_and_level_hold_at_once(start, pqplane, tmp_path, pki, functions):
    p = Pair(start, pqplane, tmp_path, pki, functions(echo).address)
    config = egress_config(pki, f"127.0.0.1:{p.ingress.port('sbi')}")
    kept = works(p)
    p.egress.reload({**config, "limits": {"connections": 1, "buffer": "4KiB"}, "log": {"level": "debug", "format": "json"}})
    assert refused(p.egress.port("nrf"))
    kept.sendall(b"x" * 100_000)
    assert exactly(kept, 100_000) == b"x" * 100_000
    p.egress.reload({**config, "timeouts": {"idle": "300ms"}, "user": "root" if os.getuid() else "daemon"})
    assert p.egress.wait_log("change needs a restart")["key"] == "user"
    s = works(p)
    assert read_all(s) == (b"", "reset")
    until(lambda: any(x["reason"] == "idle" for x in p.egress.log("connection closed")), "its end for idleness")


def test_the_log_is_opened_anew(start, pqplane, tmp_path, pki, functions):
    ingress = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(pki, functions(echo).address))
    p = Proxy(start, pqplane, tmp_path, "egress", egress_config(pki, f"127.0.0.1:{ingress.port('sbi')}"),
              more=["--log-file", tmp_path / "egress.log"])
    connect(p.port("nrf")).close()
    text = lambda: (tmp_path / "egress.log").read_text()
    until(lambda: "connection closed" in text(), "the log line")
    (tmp_path / "egress.log").rename(tmp_path / "egress.log.1")
    os.kill(p.supervisor, signal.SIGHUP)
    until(lambda: (tmp_path / "egress.log").exists() and "reloaded" in text(), "the new log")
    connect(p.port("nrf")).close()
    until(lambda: "connection closed" in text(), "a worker's line in the new log")
    assert (tmp_path / "egress.log.1").read_text().count("connection closed") == 1


# --- connections that a reload no longer allows ---------------------------------------------------------------------


@pytest.fixture
def revocable(start, pqplane, tmp_path, own, functions):
    """A pair whose ingress knows of revocations: (pair, the ingress's configuration, the list's file)."""
    crl = tmp_path / "crl.pem"
    own.run("crl")
    shutil.copy(own.file("crl.pem"), crl)
    f = functions(echo)
    ingress = ingress_config(own, f.address, policy=CLASSICAL, tls={"crl": str(crl)}, timeouts={"grace": "700ms"}, watch=False)
    p = Pair.__new__(Pair)
    p.ingress = Proxy(start, pqplane, tmp_path, "ingress", ingress)
    p.egress = Proxy(start, pqplane, tmp_path, "egress",
                     egress_config(own, f"127.0.0.1:{p.ingress.port('sbi')}", policy=CLASSICAL, carry="connection"))
    return p, ingress, crl


def test_a_revoked_peer_is_closed_after_the_grace_time(revocable, own):
    p, _, crl = revocable
    s, idle = works(p), works(p)
    own.run("crl", "--revoke", "client")
    shutil.copy(own.file("crl.pem"), crl)
    p.ingress.reload()
    line = p.ingress.wait_log("connections no longer allowed")
    assert line["connections"] == 2 and line["grace_s"] == 0.7 and line["generation"] == 2
    s.sendall(b"last words")
    assert exactly(s, 10) == b"last words"
    assert read_all(s) == read_all(idle) == (b"", "reset")
    for line in (p.ingress.wait_log("connection closed", 2), p.ingress.log("connection closed")[0]):
        assert line["reason"] == "no-longer-allowed" and line["detail"].startswith("revoked: "), line
    assert refused(p.egress.port("nrf"))
    assert p.ingress.program.stop() == 0
    assert p.ingress.counts()["no-longer-allowed"] == 2


def test_a_reload_that_allows_the_peer_again_saves_its_connections(revocable, own):
    p, ingress, crl = revocable
    patient = {**ingress, "timeouts": {"grace": "60s"}}
    p.ingress.reload(patient)
    s = works(p)
    good = crl.read_bytes()
    own.run("crl", "--revoke", "client")
    shutil.copy(own.file("crl.pem"), crl)
    p.ingress.reload()
    p.ingress.wait_log("connections no longer allowed")
    crl.write_bytes(good)
    p.ingress.reload({**ingress, "timeouts": {"grace": "0s"}})
    s.sendall(b"still")
    assert exactly(s, 5) == b"still"
    p.ingress.reload({**ingress, "timeouts": {"grace": "0s"}, "ingress": [{**ingress["ingress"][0], "peers": ["other.example"]}]})
    assert read_all(s) == (b"", "reset")
    line = p.ingress.wait_log("connection closed")
    assert line["reason"] == "no-longer-allowed" and line["detail"].startswith("wrong-name: "), line


def test_a_handshake_that_a_reload_overtakes_is_judged_by_the_new_rules(revocable, own, pqplane):
    p, ingress, crl = revocable
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    c.check_hostname = False
    c.load_verify_locations(own.file("root.crt"))
    c.load_cert_chain(own.file("client.crt"), own.file("client.key"))
    to, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = c.wrap_bio(back, to)
    with socket.create_connection(("127.0.0.1", p.ingress.port("sbi")), timeout=PATIENCE) as raw:
        while True:
            try:
                peer.do_handshake()
                break
            except ssl.SSLWantReadError:
                if to.pending:
                    raw.sendall(to.read())
                back.write(raw.recv(65536))
        # The client's last flight is made and not sent: the server still waits for it.
        own.run("crl", "--revoke", "client")
        shutil.copy(own.file("crl.pem"), crl)
        p.ingress.reload()
        raw.sendall(to.read())
        assert read_all(raw)[1] == "reset"
    line = p.ingress.wait_log("connection closed")
    assert line["reason"] == "no-longer-allowed" and line["detail"].startswith("revoked: "), line


# --- upgrade --------------------------------------------------------------------------------------------------------


@pytest.fixture
def program(pqplane, tmp_path):
    """A copy of the program that a test may replace."""
    copy = tmp_path / "bin" / "pqplane"
    copy.parent.mkdir()
    shutil.copy2(pqplane, copy)
    return copy


@pytest.fixture
def replaced():
    """Supervisors that took another's place are nobody's children: replaced(proxy) follows, and stops them at the end."""
    pids = []

    def follow(p, count=1):
        p.supervisor = p.wait_log("replaced", count)["pid"]
        pids.append(p.supervisor)

    yield follow
    for pid in pids:
        if not gone(pid):
            os.kill(pid, signal.SIGKILL)


def upgrade_pair(start, program, tmp_path, pki, functions, **more):
    p = Pair(start, program, tmp_path, pki, functions(echo).address, egress={"workers": 2, "carry": os.environ.get("CARRY", "tunnel"), **more})
    return p, p.egress


def still(s, text=b"still"):
    s.sendall(text)
    assert exactly(s, len(text)) == text


def test_an_upgrade_keeps_connections_and_sockets(start, program, tmp_path, pki, functions, replaced):
    p, e = upgrade_pair(start, program, tmp_path, pki, functions)
    kept, supervisors = works(p), []
    for count in (1, 2):  # twice in a row
        before = e.supervisor
        os.kill(before, signal.SIGUSR2)
        replaced(e, count)
        still(kept)
        assert e.supervisor != before and len(e.workers) == 2
        fresh = works(p)
        fresh.close()
        supervisors.append(before)
    assert not any(map(gone, supervisors)), "the first has its connection yet, and the second looks after the first"
    assert len(e.log("started")) == 3
    kept.close()
    assert e.program.process.wait(PATIENCE) == 0
    until(lambda: all(map(gone, supervisors)), "the end of those that were replaced")
    works(p).close()
    files = [os.readlink(f"/proc/{e.supervisor}/fd/{fd}") for fd in os.listdir(f"/proc/{e.supervisor}/fd")]
    assert len(files) < 25, files
    os.kill(e.supervisor, signal.SIGTERM)
    until(lambda: gone(e.supervisor), "the end of the last supervisor")
    with pytest.raises(ConnectionRefusedError):
        connect(e.port("nrf"))


def test_no_connection_is_lost_while_upgrades_go_on(start, program, tmp_path, pki, functions, replaced):
    p, e = upgrade_pair(start, program, tmp_path, pki, functions)
    for count in (1, 2, 3):
        os.kill(e.supervisor, signal.SIGUSR2)
        while len(e.log("replaced")) < count:
            works(p).close()
        replaced(e, count)
    assert {line["reason"] for x in p.both() for line in x.log("connection closed")} == {"end"}


def test_a_program_that_can_not_take_over_leaves_the_old_one(start, program, tmp_path, pki, functions, replaced):
    p, e = upgrade_pair(start, program, tmp_path, pki, functions)
    good = program.read_bytes()
    config = e.path.read_text()
    kept = works(p)
    for what, says in (
        (b"#!/bin/sh\nexit 3\n", "ended with status 3"),
        (b"#!/bin/sh\nkill -9 $$\n", "killed by signal 9"),
        (b"\x7fELF and no more", "Exec format error"),
        (None, "No such file"),
        (good, "nowhere.crt"),
    ):
        if what == good:
            e.path.write_text(config.replace("client.crt", "nowhere.crt"))
        program.unlink(missing_ok=True)
        if what:
            program.write_bytes(what)
            program.chmod(0o755)
        count = len(e.log("upgrade failed"))
        os.kill(e.supervisor, signal.SIGUSR2)
        assert says in e.wait_log("upgrade failed", count + 1)["detail"]
        still(kept)
        works(p).close()
    e.path.write_text(config)
    os.kill(e.supervisor, signal.SIGUSR2)
    replaced(e)
    still(kept)
    still(works(p))


def test_a_program_that_hangs_is_given_up(start, program, tmp_path, pki, functions):
    p, e = upgrade_pair(start, program, tmp_path, pki, functions)
    kept = works(p)
    program.unlink()
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    os.kill(e.supervisor, signal.SIGUSR2)
    hanging = e.wait_log("upgrading")["pid"]
    works(p).close()
    until(lambda: still(kept) or e.log("upgrade failed"), "giving it up", 60)
    assert "within 30 s" in e.log("upgrade failed")[0]["detail"]
    until(lambda: gone(hanging), "its end")
    still(kept)
    os.kill(e.supervisor, signal.SIGUSR2)
    hanging = e.wait_log("upgrading", 2)["pid"]
    kept.close()
    assert e.program.stop() == 0
    assert gone(hanging)


def test_what_stayed_behind_is_drained_with_the_new_one(start, program, tmp_path, pki, functions, replaced):
    p, e = upgrade_pair(start, program, tmp_path, pki, functions, timeouts={"drain": "500ms"})
    kept = works(p)
    os.kill(e.supervisor, signal.SIGUSR2)
    replaced(e)
    os.kill(e.supervisor, signal.SIGTERM)
    assert read_all(kept) == (b"", "reset")
    assert e.program.process.wait(PATIENCE) == 0
    until(lambda: gone(e.supervisor), "the end of the new one")
    assert [line["signal"] for line in e.log("draining")] in (["the new supervisor", "Terminated"],
                                                              ["Terminated", "the new supervisor"])


def test_what_stayed_behind_obeys_reloads_and_retire(start, program, tmp_path, own, functions, replaced):
    f = functions(echo)
    ingress = Proxy(start, program, tmp_path, "ingress", ingress_config(own, f.address, policy=CLASSICAL))
    config = egress_config(own, f"127.0.0.1:{ingress.port('sbi')}", policy=CLASSICAL, timeouts={"grace": "0s"}, watch=False,
                           carry="connection")
    e = Proxy(start, program, tmp_path, "egress", config)
    s = connect(e.port("nrf"))
    still(s)
    os.kill(e.supervisor, signal.SIGUSR2)
    replaced(e)
    e.write({**config, "egress": [{**config["egress"][0], "peers": ["other.example"]}]})
    os.kill(e.supervisor, signal.SIGHUP)
    assert read_all(s) == (b"", "reset")
    line = e.wait_log("connection closed")
    assert line["reason"] == "no-longer-allowed" and line["detail"].startswith("wrong-name: ")
    assert e.program.process.wait(PATIENCE) == 0
    e.write({**config, "timeouts": {"retire": "300ms"}})
    os.kill(e.supervisor, signal.SIGHUP)
    e.wait_log("reloaded", 3)  # the first was told by both
    s = connect(e.port("nrf"))
    still(s)
    os.kill(e.supervisor, signal.SIGUSR2)
    replaced(e, 2)
    assert read_all(s) == (b"", "reset")


def test_unix_sockets_pass_on_with_their_paths(start, program, tmp_path, pki, functions, replaced):
    ingress = Proxy(start, program, tmp_path, "ingress", ingress_config(pki, functions(echo).address))
    config = egress_config(pki, f"127.0.0.1:{ingress.port('sbi')}", watch=False)
    paths = [tmp_path / "stays here.sock", tmp_path / "goes.sock"]
    config["egress"] = [{**config["egress"][0], "name": f"n{i}", "listen": f"unix:{path}"} for i, path in enumerate(paths)]
    e = Proxy(start, program, tmp_path, "egress", config)
    e.write({**config, "egress": config["egress"][:1]})
    os.kill(e.supervisor, signal.SIGUSR2)
    replaced(e)
    assert e.program.process.wait(PATIENCE) == 0
    assert paths[0].is_socket() and not paths[1].exists()
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(PATIENCE)
        s.connect(str(paths[0]))
        still(s)
    os.kill(e.supervisor, signal.SIGTERM)
    until(lambda: gone(e.supervisor), "its end")
    assert not paths[0].exists()


# --- a service manager ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("abstract", [False, True])
def test_a_service_manager_is_told(start, program, tmp_path, pki, functions, replaced, abstract):
    name = f"@pqplane-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(PATIENCE)
        manager.bind(name.replace("@", "\0", 1))

        def told():
            return dict(line.split("=", 1) for line in manager.recv(4096).decode().splitlines())

        e = Proxy(start, program, tmp_path, "egress", egress_config(pki, "127.0.0.1:9", watch=False),
                  env={**os.environ, "NOTIFY_SOCKET": name})
        first = told()
        assert first["READY"] == "1" and "1 listeners, 1 workers" in first["STATUS"]
        os.kill(e.supervisor, signal.SIGHUP)
        reloading = told()
        assert reloading["RELOADING"] == "1" and int(reloading["MONOTONIC_USEC"]) > 0
        assert told()["READY"] == "1"
        os.kill(e.supervisor, signal.SIGUSR2)
        replaced(e)
        both = [told(), told()]
        assert {"MAINPID": str(e.supervisor)} in both
        assert any(t.get("READY") == "1" for t in both)
        os.kill(e.supervisor, signal.SIGTERM)
        assert told()["STOPPING"] == "1"
        until(lambda: gone(e.supervisor), "its end")


# --- when something runs out, or jumps --------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    r = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, text=True)
    if r.returncode:
        pytest.skip(f"nothing can be mounted here: {r.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_for_the_log_stops_no_traffic(start, pqplane, tmp_path, pki, functions, small_disk):
    p = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(pki, functions(echo).address))
    e = Proxy(start, pqplane, tmp_path, "egress", egress_config(pki, f"127.0.0.1:{p.port('sbi')}", carry="connection"),
              more=["--log-file", small_disk / "log"])
    (small_disk / "filler").write_bytes(b"x" * (40 << 10))
    kept = connect(e.port("nrf"))
    for _ in range(60):
        still(kept)
        s = connect(e.port("nrf"))
        still(s)
        s.close()
    assert os.statvfs(small_disk).f_bavail == 0
    (small_disk / "filler").unlink()
    s = connect(e.port("nrf"))
    still(s)
    s.close()
    last = lambda: json.loads((small_disk / "log").read_text().splitlines()[-1])
    until(lambda: s and last()["event"] == "connection closed", "a line again")
    kept.close()
    assert e.program.stop() == 0
    assert last()["event"] == "stopped" and last()["log_lines_dropped"] > 0
    assert last()["accepted"] == 62


CLOCK = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long *offset;
__attribute__((constructor)) static void start(void)
{
    int fd = open(getenv("CLOCK_OFFSET"), O_RDONLY);
    offset = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
}
int clock_gettime(clockid_t id, struct timespec *t)
{
    int e = (int)syscall(SYS_clock_gettime, id, t);
    if (offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        t->tv_sec += *offset;
    return e;
}
int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *t = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}
time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return out ? *out = now.tv_sec : now.tv_sec;
}
"""


@pytest.fixture
def clock(tmp_path):
    """(what to add to a program's environment, a function that moves its wall clock by so many seconds)"""
    (tmp_path / "clock.c").write_text(CLOCK)
    (tmp_path / "offset").write_bytes(struct.pack("l", 0))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "clock.so", tmp_path / "clock.c"], check=True)
    with open(tmp_path / "offset", "r+b") as f, mmap.mmap(f.fileno(), 8) as shared:

        def move(seconds):
            shared[:8] = struct.pack("l", seconds)

        yield {"LD_PRELOAD": str(tmp_path / "clock.so"), "CLOCK_OFFSET": str(tmp_path / "offset")}, move


@pytest.mark.parametrize("carry", ["connection", "tunnel"])
def test_a_clock_that_jumps_ends_nothing(start, pqplane, tmp_path, pki, functions, clock, carry):
    if os.environ.get("ASAN_OPTIONS") or "asan" in str(pqplane):
        pytest.skip("a sanitizer wants to be the first library")
    variables, move = clock
    p = Proxy(start, pqplane, tmp_path, "ingress", ingress_config(pki, functions(echo).address, timeouts={"idle": "4s"}),
              env={**os.environ, **variables})
    e = Proxy(start, pqplane, tmp_path, "egress",
              egress_config(pki, f"127.0.0.1:{p.port('sbi')}", carry=carry, timeouts={"idle": "4s"}), env={**os.environ, **variables})
    kept = connect(e.port("nrf"))
    still(kept)
    for seconds in (3600, -3600, 7200, 0):
        move(seconds)
        for _ in range(15):
            still(kept)
            time.sleep(0.1)
    os.kill(e.supervisor, signal.SIGHUP)
    moved = e.wait_log("reloaded")["time"]
    still(kept)
    assert not e.log("worker died") and not p.log("worker died") and moved
    assert not [line for x in (p, e) for line in x.log("connection closed")]
    kept.close()
    e.wait_log("connection closed")
    idle = connect(e.port("nrf"))
    still(idle)
    assert read_all(idle) == (b"", "reset")
    assert "idle" in [line["reason"] for x in (p, e) for line in x.log("connection closed")]
