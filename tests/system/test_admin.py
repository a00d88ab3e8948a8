"""The proxy seen from outside: metrics, health, connections, configuration; and what a client of it can't do."""

import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

import proxy_peers
from proxy_peers import PATIENCE, Function, Proxy, children, connect, egress_config, hold, ingress_config, read_all, until

JSON = "application/json"
TOP = pathlib.Path(__file__).resolve().parents[2]


def echo(c):
    try:
        proxy_peers.echo(c)
    except ConnectionResetError:  # the test broke it
        pass


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.path)


class Admin:
    """A client of a proxy's admin listener."""

    def __init__(self, proxy):
        self.address = proxy.admin

    def ask(self, method, path, body=None, **fields):
        if self.address.startswith("unix:"):
            c = UnixConnection(self.address.removeprefix("unix:"))
        else:
            c = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        c.request(method, path, body=body, headers={k.replace("_", "-"): v for k, v in fields.items()})
        r = c.getresponse()
        answer = r.status, r.read().decode(), r.headers
        c.close()
        return answer

    def get(self, path, status=200):
        got, text, headers = self.ask("GET", path)
        assert got == status, text
        return json.loads(text) if headers["Content-Type"] == JSON else text

    def metrics(self):
        return dict(line.rsplit(" ", 1) for line in self.get("/metrics").splitlines() if not line.startswith("#"))

    def metric(self, name):
        return float(self.metrics()[name])

    def connections(self):
        return [json.loads(line) for line in self.get("/connections").splitlines()]


class Both:
    """A pair of proxies, each with an admin listener."""

    def __init__(self, start, pqplane, folder, pki, serve, ingress=None, egress=None, carry="connection", tls=None):
        self.function = Function(serve)
        self.ingress = Proxy(start, pqplane, folder, "ingress",
                             {**ingress_config(pki, self.function.address, tls=tls), "admin": "127.0.0.1:0", **(ingress or {})})
        config = egress_config(pki, f"127.0.0.1:{self.ingress.port('sbi')}")
        config["egress"][0]["carry"] = carry
        self.egress = Proxy(start, pqplane, folder, "egress",
                            {**config, "admin": f"unix:{folder}/admin.sock", **(egress or {})})
        self.admins = Admin(self.ingress), Admin(self.egress)

    def connect(self):
        return connect(self.egress.port("nrf"))

    def once(self):
        s = self.connect()
        s.sendall(b"hello")
        s.shutdown(socket.SHUT_WR)
        assert read_all(s) == (b"hello", "end")


@pytest.fixture
def both(start, pqplane, tmp_path, pki):
    made = []

    def make(serve=echo, **options):
        made.append(Both(start, pqplane, tmp_path, pki, serve, **options))
        return made[-1]

    yield make
    for b in made:
        b.function.close()
        assert not b.function.errors


def admin_process(proxy):
    (pid,) = until(lambda: [p for p in children(proxy.supervisor)
                            if pathlib.Path(f"/proc/{p}/comm").read_text().strip() == "pqplane-admin"], "an admin process")
    return pid


# --- metrics --------------------------------------------------------------------------------------------------------


def test_promtool_finds_nothing_to_say(both):
    b = both()
    b.once()
    tool = shutil.which("promtool") or pytest.skip("promtool is not there (Debian package prometheus)")
    for admin in b.admins:
        r = subprocess.run([tool, "check", "metrics"], input=admin.get("/metrics"), text=True, capture_output=True)
        assert (r.returncode, r.stdout, r.stderr) == (0, "", "")


def documented(text):
    """Rows of /metrics as docs/metrics.md has them: name, type, labels, help."""
    helps, types, labels = {}, {}, {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, help = line.split(" ", 3)
            helps[name] = help
        elif line.startswith("# TYPE "):
            _, _, name, types[name] = line.split(" ")
        else:
            series = line.rsplit(" ", 1)[0]
            name = re.sub("_(bucket|sum|count)$", "", series.split("{")[0]) if types.get(series.split("{")[0]) is None \
                else series.split("{")[0]
            labels.setdefault(name, set()).update(set(re.findall(r'[{,]([a-z_]+)="', series)) - {"le"})
    return [f"| `{n}` | {types[n]} | {', '.join(f'`{k}`' for k in sorted(labels.get(n, ())))} | {helps[n]} |" for n in helps]


def test_the_documentation_has_every_metric(both, pki):
    b = both(tls={"crl": pki.file("crl.pem")})
    b.once()
    until(lambda: b.admins[0].metric('pqplane_connections_ended_total{direction="ingress",reason="end"}') == 1, "its end")
    rows = [line for line in (TOP / "docs/metrics.md").read_text().splitlines() if line.startswith("| `")]
    assert rows == documented(b.admins[0].get("/metrics"))


def promtool(*args):
    tool = shutil.which("promtool") or pytest.skip("promtool is not there (Debian package prometheus)")
    r = subprocess.run([tool, *args], cwd=TOP / "deploy/prometheus", capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr


def test_the_example_rules_alert(both):
    promtool("check", "rules", "--lint=all", "--lint-fatal", "pqplane.rules.yml")
    promtool("check", "config", "--lint=all", "--lint-fatal", "prometheus.yml")
    promtool("test", "rules", "pqplane.rules.test.yml")
    names = set(re.findall("# HELP ([a-z_]+)", both().admins[0].get("/metrics")))
    used = set(re.findall(r"\bpqplane_[a-z_]+", (TOP / "deploy/prometheus/pqplane.rules.yml").read_text()))
    assert used <= names, used - names


def test_a_connection_is_counted_on_both_sides(both):
    b = both()
    b.once()
    for admin, direction in zip(b.admins, ("ingress", "egress")):
        d = f'{{direction="{direction}"}}'
        until(lambda: admin.metric(f'pqplane_connections_ended_total{{direction="{direction}",reason="end"}}') == 1, "its end")
        m = admin.metrics()
        handshake = (f'pqplane_handshakes_total{{direction="{direction}",group="X25519MLKEM768",signature="mldsa65",'
                     'own_signature="mldsa65",resumed="false",hello_retry="false",result="ok",reason="ok"}')
        assert m[handshake] == "1"
        assert m["pqplane_connections_accepted_total" + d] == m["pqplane_connections_established_total" + d] == "1"
        assert m["pqplane_connections_open" + d] == "0"
        for flow in ("up", "down"):
            assert m[f'pqplane_bytes_total{{direction="{direction}",flow="{flow}"}}'] == "5"
        assert m["pqplane_connection_duration_seconds_count" + d] == m["pqplane_connect_duration_seconds_count" + d] == "1"
        assert m[f'pqplane_handshake_duration_seconds_count{{direction="{direction}",resumed="false"}}'] == "1"
        assert float(m["pqplane_handshake_cpu_seconds_total" + d]) > 0
        assert m['pqplane_worker_up{worker="0"}'] == "1"
        assert m["pqplane_config_generation"] == "1"
        assert time.time() - PATIENCE * 10 < float(m["pqplane_start_time_seconds"]) <= time.time()
        assert [k for k in m if k.startswith('pqplane_build_info{version="0.')]


def test_bytes_are_counted_while_a_connection_lasts(both):
    b = both()
    s = b.connect()
    s.sendall(b"x" * 1000)
    for admin, direction in zip(b.admins, ("ingress", "egress")):
        until(lambda: admin.metric(f'pqplane_bytes_total{{direction="{direction}",flow="down"}}') == 1000, "the bytes")
        assert admin.metric(f'pqplane_connections_open{{direction="{direction}"}}') == 1
    s.close()


def test_refusals_are_counted_with_their_reason(both, pki, start, pqplane, tmp_path):
    b = both()
    classical = egress_config(pki, f"127.0.0.1:{b.ingress.port('sbi')}", policy={"mode": "hybrid", "level": 3, "groups": "X25519"})
    classical["egress"][0]["carry"] = "connection"
    p = Proxy(start, pqplane, tmp_path, "classical", {**classical, "admin": "127.0.0.1:0"})
    assert read_all(connect(p.port("nrf"))) == (b"", "reset")
    reason = 'pqplane_connections_ended_total{direction="ingress",reason="no-shared-group"}'
    until(lambda: b.admins[0].metric(reason) == 1, "the refusal")
    failed = [k for k in b.admins[0].metrics() if k.startswith("pqplane_handshakes_total") and 'result="failed"' in k]
    assert len(failed) == 1 and 'reason="no-shared-group"' in failed[0]
    failed = [k for k in Admin(p).metrics() if k.startswith("pqplane_handshakes_total")]
    assert len(failed) == 1 and 'result="failed",reason="peer-alert"' in failed[0]


def test_certificate_expiry(both, pki, pqplane):
    b = both()
    (name,) = [k for k in b.admins[0].metrics() if k.startswith("pqplane_certificate_expiry_timestamp_seconds")]
    assert 'direction="ingress",listener="sbi",identity="0",algorithm="ML-DSA-65"' in name
    (shown,) = b.admins[0].get("/config")["certificates"]
    assert b.admins[0].metric(name) == shown["until_unix"]
    assert shown["subject"] == "CN=server" and shown["chain"] == 2 and shown["file"] == pki.file("server.crt")
    text = subprocess.run([pqplane, "pki", "show", pki.file("server.crt")], capture_output=True, text=True).stdout
    assert f"to {shown['until']}" in text


def test_dates_of_authorities_and_lists(both, pki, pqplane):
    b = both(tls={"crl": pki.file("crl.pem")})
    shown, m = b.admins[0].get("/config"), b.admins[0].metrics()
    for key, metric, file in (("authorities", "pqplane_authority_expiry_timestamp_seconds", "root.crt"),
                              ("revocation_lists", "pqplane_crl_next_update_timestamp_seconds", "crl.pem")):
        text = subprocess.run([pqplane, "pki", "show", pki.file(file)], capture_output=True, text=True).stdout
        assert shown[key] and all(f"to {row['until']}" in text for row in shown[key])
        for row in shown[key]:
            assert row["file"] == pki.file(file)
            name = row["name"].replace("\\", "\\\\")
            assert m[f'{metric}{{file="{row["file"]}",number="{row["number"]}",name="{name}"}}'] == str(row["until_unix"])
    assert b.admins[1].get("/config")["revocation_lists"] == []


# --- health ---------------------------------------------------------------------------------------------------------


def test_ready_until_it_drains(both):
    b = both(hold)
    s = b.connect()
    far = b.function.take()
    for admin in b.admins:
        assert admin.get("/healthz")["healthy"] is True
        assert admin.get("/ready") == {"ready": True, "workers": {"wanted": 1, "up": 1, "ready": 1}}
    admin = b.admins[1]
    assert admin.ask("POST", "/drain")[:2] == (202, '{"draining":true}\n')
    until(lambda: admin.ask("GET", "/ready")[0] == 503, "draining")
    assert admin.get("/ready", 503)["reason"] == "draining"
    assert admin.ask("POST", "/drain")[0] == 202
    assert admin.ask("POST", "/reload")[0] == 422
    assert b.egress.wait_log("draining")["signal"] == "the admin listener"
    assert len(admin.connections()) == 1
    s.close()
    far.close()
    assert b.egress.program.process.wait(PATIENCE) == 0
    assert not os.path.exists(admin.address.removeprefix("unix:"))


def test_a_killed_worker_is_seen(both):
    b = both()
    admin = b.admins[0]
    before = b.ingress.pid
    os.kill(before, signal.SIGKILL)
    until(lambda: admin.metric('pqplane_worker_restarts_total{worker="0"}') == 1, "the restart")
    until(lambda: admin.ask("GET", "/ready")[0] == 200, "readiness")
    assert b.ingress.pid != before
    b.once()


def test_counters_outlive_a_worker(both):
    b = both()
    s = b.connect()
    s.sendall(b"?")
    assert s.recv(1) == b"?"
    admin, d = b.admins[1], '{direction="egress"}'
    assert admin.metric("pqplane_connections_open" + d) == 1
    os.kill(b.egress.pid, signal.SIGKILL)
    assert read_all(s)[1] == "reset"
    until(lambda: admin.metric("pqplane_connections_open" + d) == 0, "an empty gauge")
    assert admin.metric("pqplane_connections_accepted_total" + d) == 1


def test_a_killed_admin_process_comes_back_and_costs_no_traffic(both):
    b = both()
    s = b.connect()
    s.sendall(b"a")
    assert s.recv(1) == b"a"
    for proxy, admin in zip((b.ingress, b.egress), b.admins):
        before = admin_process(proxy)
        os.kill(before, signal.SIGKILL)
        proxy.wait_log("admin process died")
        assert admin.get("/config")["generation"] == 1  # whoever comes too early waits in the backlog
        assert admin_process(proxy) != before
    s.sendall(b"b")
    assert s.recv(1) == b"b"
    s.close()


def test_the_admin_process_is_contained(both):
    b = both()
    contained(b.ingress)
    status = pathlib.Path(f"/proc/{admin_process(b.ingress)}/status").read_text()
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
    assert "CapEff:\t0000000000000000" in status


def contained(proxy):
    if any("can't work contained" in line.get("detail", "") for line in proxy.log("containment off")):
        pytest.skip("this build can't work contained: see the log")


def test_contained_it_misses_nothing(both, monkeypatch):
    monkeypatch.setenv("PQPLANE_TRACE_REFUSED", "1")  # a build with tests then logs each system call that is refused
    b = both()
    contained(b.ingress)
    s = b.connect()
    s.sendall(b"?")
    assert s.recv(1) == b"?"
    for admin in b.admins:
        for path in ("/", "/metrics", "/healthz", "/ready", "/config", "/log-level"):
            assert admin.get(path)
        assert len(admin.connections()) == 1
        assert admin.ask("POST", "/reload")[0] == 200
        assert admin.ask("PUT", "/log-level", "info")[0] == 200
    s.close()
    for proxy, admin in zip((b.ingress, b.egress), b.admins):
        assert admin.ask("POST", "/drain")[0] == 202
        until(lambda: proxy.log("stopped"), "its end")
        malloc_asks = {"x86_64": 257, "aarch64": 56}.get(os.uname().machine)  # for vm.overcommit_memory
        assert {int(n) for n in re.findall(r'"system call refused" number=(\d+)', proxy.program.text())} <= {malloc_asks}


def test_it_ends_with_its_supervisor(both):
    b = both()
    pid = admin_process(b.ingress)
    os.kill(b.ingress.supervisor, signal.SIGKILL)
    until(lambda: not os.path.exists(f"/proc/{pid}") or "State:\tZ" in pathlib.Path(f"/proc/{pid}/status").read_text(),
          "its end")


def test_an_upgrade_is_not_felt(both, pqplane, tmp_path):
    b = both()
    admin = b.admins[0]
    kept = http.client.HTTPConnection(admin.address, timeout=PATIENCE)
    kept.request("GET", "/healthz")
    assert kept.getresponse().read()
    before = b.ingress.supervisor
    os.kill(before, signal.SIGUSR2)
    try:
        while not b.ingress.log("replaced"):
            assert admin.get("/healthz")["healthy"] is True
        b.ingress.supervisor = b.ingress.log("replaced")[0]["pid"]
        assert admin.get("/ready")["ready"] is True
        assert admin.get("/config")["generation"] == 1
        b.once()
        until(lambda: admin.metric('pqplane_connections_ended_total{direction="ingress",reason="end"}') == 1, "its end")
        b.ingress.program.process.wait(PATIENCE)
    finally:  # nobody's child
        if b.ingress.program.process.poll() is None:
            b.ingress.wait_log("replaced")
        for line in b.ingress.log("replaced"):
            os.kill(line["pid"], signal.SIGTERM)
            until(lambda: not os.path.exists(f"/proc/{line['pid']}"), "its end")


# --- connections ----------------------------------------------------------------------------------------------------


def test_open_connections_are_listed(both):
    b = both()
    sockets = [b.connect() for _ in range(3)]
    for s in sockets:
        s.sendall(b"x" * 10)
        assert s.recv(10)
    for admin, direction, peer in zip(b.admins, ("ingress", "egress"), ("CN=client", "CN=server")):
        rows = until(lambda: (r := admin.connections()) and all(x["bytes_down"] == 10 for x in r) and r, "the bytes")
        assert len(rows) == 3
        assert len({row["id"] for row in rows}) == 3
        for row in rows:
            assert row["direction"] == direction and row["peer_name"] == peer and row["state"] == "relay"
            assert (row["group"], row["signature"], row["own_signature"]) == ("X25519MLKEM768", "mldsa65", "mldsa65")
            assert row["resumed"] is False and row["tunnel"] is None and row["worker"] == 0 and row["kind"] == "connection"
            assert row["bytes_up"] == 10 and 0 <= row["idle_s"] <= row["age_s"] + 1
    assert {r["local"] for r in b.admins[1].connections()} == {"127.0.0.1:%d" % s.getsockname()[1] for s in sockets}
    for s in sockets:
        s.close()
    for admin in b.admins:
        until(lambda: admin.connections() == [], "their end")


def test_many_connections_of_several_workers_are_listed(both):
    b = both(egress={"workers": 3, "limits": {"connections": 2000}},
             ingress={"limits": {"handshakes": 2000, "handshakes_per_source": 10000, "strangers": 10000}})
    sockets = [b.connect() for _ in range(500)]
    admin = b.admins[1]
    rows = until(lambda: (r := admin.connections()) and len(r) == 500 and r, "all rows")
    assert len({(r["worker"], r["id"]) for r in rows}) == 500
    assert len(b.ingress.workers) == 1 and len(b.egress.workers) == 3
    for s in sockets:
        s.close()


def test_tunnels_and_their_streams_are_listed(both):
    b = both(carry="tunnel")
    sockets = [b.connect() for _ in range(5)]
    for s in sockets:
        s.sendall(b"x" * 10)
        assert s.recv(10)
    for admin, direction, peer in zip(b.admins, ("ingress", "egress"), ("CN=client", "CN=server")):
        d = f'{{direction="{direction}"}}'
        until(lambda: admin.metric("pqplane_tunnels_open" + d) == 2, "both tunnels")
        assert admin.metric("pqplane_tunnel_streams_open" + d) == 5
        tunnels = {r["id"]: r for r in admin.connections() if r["kind"] == "tunnel"}
        rows = until(lambda: (r := admin.connections()) and sum(x["bytes_down"] for x in r if x["kind"] == "stream") == 50 and r,
                     "the bytes")
        streams = [row for row in rows if row["kind"] == "stream"]
        assert len(tunnels) == 2 and len(streams) == 5
        assert len({(row["tunnel"], row["id"]) for row in streams}) == 5
        for row in streams:
            assert row["tunnel"] in tunnels and row["state"] == "relay"
            assert (row["peer_name"], row["group"], row["signature"]) == (peer, "X25519MLKEM768", "mldsa65")
            assert (row["bytes_up"], row["bytes_down"]) == (10, 10)
        assert all(row["state"] == "open" and row["peer_name"] == peer for row in tunnels.values())
    os.kill(b.ingress.pid, signal.SIGKILL)
    for s in sockets:
        assert read_all(s)[1] == "reset"
    until(lambda: b.admins[1].metric('pqplane_tunnel_streams_lost_total{direction="egress"}') == 5, "the loss")
    until(lambda: b.admins[0].metric('pqplane_tunnel_streams_open{direction="ingress"}') == 0, "an empty gauge")


# --- configuration --------------------------------------------------------------------------------------------------


def test_the_configuration_in_force_can_be_used(both, pqplane, tmp_path):
    b = both()
    shown = b.admins[0].get("/config")
    assert shown["generation"] == 1 and shown["file"] == str(b.ingress.path)
    assert shown["config"]["timeouts"]["handshake"] == "5s"
    assert shown["config"]["ingress"][0]["tls"]["policy"]["require"] == ["pq-kex", "pq-auth"]
    assert "PRIVATE" not in json.dumps(shown)
    copy = tmp_path / "copy.yaml"
    copy.write_text(json.dumps(shown["config"]))
    r = subprocess.run([pqplane, "proxy", "--check", "--config", copy], capture_output=True, text=True)
    assert (r.returncode, r.stderr) == (0, "")


def test_reload_over_http(both):
    b = both()
    admin = b.admins[0]
    config = json.loads(b.ingress.path.read_text())
    b.ingress.write({**config, "timeouts": {"handshake": "7s"}, "watch": False})
    status, text, _ = admin.ask("POST", "/reload")
    assert (status, json.loads(text)["generation"]) == (200, admin.get("/config")["generation"])
    assert admin.get("/config")["config"]["timeouts"]["handshake"] == "7s"
    b.ingress.write({**config, "timeouts": {"handshake": "soon"}, "watch": False})
    status, text, _ = admin.ask("POST", "/reload")
    assert status == 422 and "timeouts" in json.loads(text)["error"] or "handshake" in json.loads(text)["error"]
    m = admin.metrics()
    assert m['pqplane_config_reloads_total{result="refused"}'] == "1"
    assert m["pqplane_config_last_reload_successful"] == "0"
    assert admin.get("/config")["config"]["timeouts"]["handshake"] == "7s"
    b.ingress.write({**config, "watch": False})
    assert admin.ask("POST", "/reload")[0] == 200
    assert admin.metric("pqplane_config_last_reload_successful") == 1
    b.once()


def test_the_log_level_changes_at_run_time(both):
    b = both()
    admin = b.admins[1]
    assert admin.get("/log-level") == {"level": "info"}
    assert admin.ask("PUT", "/log-level", "debug")[:2] == (200, '{"level":"debug"}\n')
    b.once()
    b.egress.wait_log("connection state")
    assert admin.ask("PUT", "/log-level", '{"level": "error"}')[0] == 200
    lines = len(b.egress.log())
    b.once()
    until(lambda: admin.metric('pqplane_connections_ended_total{direction="egress",reason="end"}') == 2, "its end")
    assert len(b.egress.log()) == lines
    assert admin.ask("PUT", "/log-level", "loud")[0] == 400


# --- who may ---------------------------------------------------------------------------------------------------------


def test_wrong_requests_get_a_sentence(both):
    b = both()
    for admin in b.admins:
        for method, path, status, allow in (("GET", "/nothing", 404, None), ("GET", "/drain", 405, "POST"),
                                            ("DELETE", "/metrics", 405, "GET, HEAD"), ("POST", "/log-level", 405, "GET, HEAD, PUT"),
                                            ("PUT", "/log-level", 400, None), ("POST", "/metrics", 405, "GET, HEAD")):
            got, text, headers = admin.ask(method, path)
            assert (got, headers["Allow"], headers["Content-Type"]) == (status, allow, JSON)
            assert json.loads(text)["error"]
        assert admin.ask("PUT", "/log-level", "x" * 300)[0] == 413
        assert admin.ask("HEAD", "/metrics")[1] == ""
        assert "GET  /metrics" in admin.get("/")


def test_a_browser_is_no_way_in(both):
    b = both()
    tcp, unix = b.admins
    assert tcp.ask("GET", "/metrics", Host="evil.example")[0] == 403
    assert tcp.ask("GET", "/metrics", Host=f"localhost:{tcp.address.split(':')[1]}")[0] == 200
    for admin in b.admins:
        assert admin.ask("POST", "/drain", Origin="http://evil.example")[0] == 403
        assert admin.ask("POST", "/drain", Origin="null")[0] == 403
        assert admin.ask("POST", "/reload", Sec_Fetch_Site="cross-site")[0] == 403
        assert admin.get("/ready")["ready"] is True
    assert not b.ingress.log("draining")


def test_curl(both):
    b = both()
    curl = shutil.which("curl") or pytest.skip("curl is not there")
    tcp, unix = b.admins
    for args in ([f"http://{tcp.address}/healthz"], ["--unix-socket", unix.address.removeprefix("unix:"), "http://sidecar/healthz"]):
        r = subprocess.run([curl, "-sS", "--fail", *args], capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        assert json.loads(r.stdout)["healthy"] is True


def test_hostile_clients_cost_no_traffic(both):
    b = both()
    host, port = b.admins[0].address.split(":")
    held = []
    for what in (b"", b"GET /metrics HTTP/1.1\r\nA: ", b"\x16\x03\x01\x02\x00\x01" * 100, b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000,
                 b"GET /connections HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50):
        for _ in range(20):
            s = socket.create_connection((host, int(port)), PATIENCE)
            s.setblocking(False)
            try:
                s.send(what)
            except OSError:
                pass
            held.append(s)
    for _ in range(10):
        b.once()
    for s in held:
        s.close()
    assert until(lambda: b.admins[0].get("/healthz"), "an answer")["healthy"] is True


def test_only_this_host_gets_there(pqplane, tmp_path, pki):
    config = {**ingress_config(pki, "127.0.0.1:9"), "admin": "0.0.0.0:9901"}
    (tmp_path / "p.yaml").write_text(json.dumps(config))
    r = subprocess.run([pqplane, "proxy", "--check", "--config", tmp_path / "p.yaml"], capture_output=True, text=True)
    assert r.returncode == 1 and "admin: 0.0.0.0:9901 can be reached from other hosts" in r.stderr


def test_a_unix_socket_is_its_owners(both):
    b = both()
    assert os.stat(b.admins[1].address.removeprefix("unix:")).st_mode & 0o777 == 0o660
