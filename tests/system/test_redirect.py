"""Transparent egress: a function's connections are redirected by the host's rules and leave through TLS, for IPv4 and
IPv6; the proxy's own are not; nothing goes past it; and the rules come, show and go."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import threading

import pytest

from proxy_peers import PATIENCE, POLICY, Function, Proxy, until

USER, OTHER = 1000, 1001  # the function's, and one that has nothing to do with it
CGROUPS = pathlib.Path("/sys/fs/cgroup")
HERE, THERE, ELSEWHERE = "198.18.0.1", "198.18.0.2", "198.18.1.2"
HERE_6, THERE_6 = "fd00::1", "fd00::2"
PORT, EGRESS = 7777, 15001


def run(argv, **options):
    return subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE * 3, **options)


class Host:
    """A network namespace that lives as long as a process in it."""

    def __init__(self):
        self.holder = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c",
                                        "ip link set lo up && echo up && exec sleep 3600"],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "up\n":
            raise RuntimeError("no network namespace")
        self.pid = self.holder.pid

    def argv(self, *argv, user=None):
        become = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"] if user is not None else []
        return ["nsenter", "-t", self.pid, "-n", *become, *argv]

    def run(self, *argv, user=None, **options):
        return run(self.argv(*argv, user=user), **options)

    def do(self, *argv):
        r = self.run(*argv)
        assert r.returncode == 0, f"{argv}: {r.stderr}"
        return r.stdout

    def within(self, f):
        """What f returns, called by a thread in there: sockets that it makes stay there."""
        result = []

        def body():
            fd = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY)
            os.setns(fd, os.CLONE_NEWNET)
            os.close(fd)
            result.append(f())

        t = threading.Thread(target=body)
        t.start()
        t.join(PATIENCE)
        return result[0]

    def stop(self):
        self.holder.kill()
        self.holder.wait()


def answer(c):
    """An HTTP function that closes after each answer."""
    request = b""
    while b"\r\n\r\n" not in request:
        part = c.recv(65536)
        if not part:
            return
        request += part
    c.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nhello\n")
    c.close()


@pytest.fixture
def hosts():
    """Two hosts joined by a link, and nothing else."""
    if os.geteuid() != 0 or run(["unshare", "--net", "true"]).returncode != 0:
        pytest.skip("needs root, and network namespaces")
    near, far = Host(), Host()
    try:
        near.do("ip", "link", "add", "dev", "wire0", "type", "veth", "peer", "name", "wire1", "netns", str(far.pid))
        for host, link, addresses in ((near, "wire0", (f"{HERE}/15", f"{HERE_6}/64")),
                                      (far, "wire1", (f"{THERE}/15", f"{ELSEWHERE}/15", f"{THERE_6}/64"))):
            for a in addresses:
                host.do("ip", "address", "add", a, "dev", link, *(["nodad"] if ":" in a else []))
            host.do("ip", "link", "set", link, "up")
        if near.run("nft", "add", "table", "inet", "probe").returncode != 0:
            pytest.skip("this kernel has no nftables")
        near.do("nft", "delete", "table", "inet", "probe")
        yield near, far
    finally:
        near.stop()
        far.stop()


class World:
    """function (near) - rules - egress - TLS - ingress - function (far)"""

    def __init__(self, start, pqplane, folder, pki, hosts, egress=None, **config):
        self.near, self.far = hosts
        self.pqplane, self.start, self.folder, self.pki = pqplane, start, folder, pki
        self.function = self.far.within(lambda: Function(answer))
        self.ingress = self.proxy(self.far, "ingress", "server", ingress=[
            {"name": f"in{i}", "listen": a, "forward": self.function.address}
            for i, a in enumerate((f"{THERE}:{PORT}", f"[{THERE_6}]:{PORT}", f"{ELSEWHERE}:{PORT}"))])
        listeners = egress or [{"listen": f"127.0.0.1:{EGRESS}"}, {"listen": f"[::1]:{EGRESS}"}]
        self.egress = self.proxy(self.near, "egress", "client", egress=[
            {"name": f"out{i}", "transparent": True, "peers": ["server.example"], **l} for i, l in enumerate(listeners)
        ], **config)

    def proxy(self, host, name, identity, **config):
        return Proxy(lambda argv, **o: self.start(host.argv(*argv), **o), self.pqplane, self.folder, name,
                     {"tls": {**self.pki.identity(identity), "policy": POLICY}, **config})

    @property
    def own_user(self):
        return int([line for line in pathlib.Path(f"/proc/{self.egress.pid}/status").read_text().splitlines()
                    if line.startswith("Uid:")][0].split()[1])

    def redirect(self, *argv, user=None):
        return self.near.run(self.pqplane, "redirect", *argv, user=user)

    def install(self, *argv):
        r = self.redirect("install", "--name", "nf", "--port", str(EGRESS), "--except", str(self.own_user), *argv)
        assert r.returncode == 0, r.stderr
        return r

    def redirected(self):
        r = self.redirect("show", "--name", "nf", "--json")
        assert r.returncode == 0, r.stderr
        return json.loads(r.stdout)["redirects"][0]["connections"]

    def curl(self, user=USER, host=THERE, port=PORT):
        host = f"[{host}]" if ":" in host else host
        return self.near.run("curl", "-sS", "--max-time", str(PATIENCE), f"http://{host}:{port}/", user=user)

    def reset(self, user, host, port):
        """Whether a connection is ended by a reset, without a byte."""
        script = ("import socket,sys\n"
                  "try:\n"
                  "    s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20)\n"
                  "    print('bytes' if s.recv(1) else 'end')\n"
                  "except ConnectionResetError: print('reset')\n")
        r = self.near.run("python3", "-c", script, host, str(port), user=user)
        return r.stdout.strip() or r.stderr


@pytest.fixture
def world(start, pqplane, tmp_path, pki, hosts):
    made = []

    def make(**options):
        made.append(World(start, pqplane, tmp_path, pki, hosts, **options))
        return made[-1]

    yield make
    for w in made:
        w.function.close()
        assert not w.function.errors


# --- traffic --------------------------------------------------------------------------------------------------------


def test_a_users_connections_leave_through_tls(world):
    w = world()
    w.install("--uid", str(USER))
    for i, host in enumerate((THERE, THERE_6)):
        r = w.curl(host=host)
        assert (r.returncode, r.stdout) == (0, "hello\n"), r.stderr
        line = w.egress.wait_log("connection closed", i + 1)
        assert line["peer"] == (f"[{host}]:{PORT}" if ":" in host else f"{host}:{PORT}")
        assert line["peer_name"] == "CN=server" and line["reason"] == "end"
        assert w.ingress.wait_log("connection closed", i + 1)["peer_name"] == "CN=client"
    assert w.redirected() == 2
    # Somebody else's go as they would have gone: in the clear, which the far proxy refuses.
    assert w.curl(user=OTHER).returncode != 0
    assert w.ingress.wait_log("handshake failed")["reason"] != ""
    assert w.redirected() == 2
    assert len(w.egress.log("connection closed")) == 2


def test_one_listener_for_both_families(world):
    w = world(egress=[{"listen": f"[::]:{EGRESS}", "listen_remote": True}])
    w.install("--uid", str(USER))
    for i, host in enumerate((THERE, THERE_6)):
        r = w.curl(host=host)
        assert (r.returncode, r.stdout) == (0, "hello\n"), r.stderr
        assert host in w.egress.wait_log("connection closed", i + 1)["peer"]
    # Who calls the listener by its own address, by whichever family, was not redirected.
    for i, host in enumerate(("127.0.0.1", "::1", HERE, HERE_6)):
        assert w.reset(OTHER, host, EGRESS) == "reset"
    w.egress.wait_log("connection refused")
    assert all(line["reason"] == "not-redirected" for line in w.egress.log("connection refused"))


def test_only_named_destinations_and_ports(world):
    w = world()
    w.install("--uid", str(USER), "--networks", f"{THERE},fd00::/8", "--ports", f"{PORT}-{PORT + 1}")
    assert w.curl().stdout == "hello\n"
    assert w.curl(host=THERE_6).stdout == "hello\n"
    assert w.curl(host=ELSEWHERE).returncode != 0  # in the clear, to a TLS server
    plain = w.far.within(lambda: socket.create_server((THERE, PORT + 2)))
    threading.Thread(target=lambda: answer(plain.accept()[0]), daemon=True).start()
    assert w.curl(port=PORT + 2).stdout == "hello\n"
    assert w.redirected() == 2
    plain.close()


def test_a_target_outside_networks_is_refused(world):
    w = world(egress=[{"listen": f"127.0.0.1:{EGRESS}", "networks": [f"{THERE}/32", "10.0.0.0/8"]},
                      {"listen": f"[::1]:{EGRESS}", "networks": "10.0.0.0/8"}])
    w.install("--uid", str(USER))
    assert w.curl().stdout == "hello\n"
    for host in (ELSEWHERE, THERE_6):
        assert w.reset(USER, host, PORT) == "reset"
    until(lambda: sum(line.get("count", 1) for line in w.egress.log("connection refused")) >= 2, "two refusals")
    assert {line["reason"] for line in w.egress.log("connection refused")} == {"forbidden-destination"}
    assert len(w.function.connections) == 1


def test_loopback_is_left_alone_unless_asked(world):
    w = world()
    w.install("--uid", str(USER))
    local = w.near.within(lambda: Function(answer))
    port = int(local.address.rsplit(":", 1)[1])
    assert w.curl(host="127.0.0.1", port=port).stdout == "hello\n"
    assert w.reset(USER, "127.0.0.1", EGRESS) == "reset"  # not redirected: the listener's own address
    w.install("--uid", str(USER), "--loopback")
    assert w.curl(host="127.0.0.1", port=port).returncode != 0  # led to the egress, whose TLS this is no peer for
    assert w.reset(USER, "127.0.0.1", EGRESS) == "reset"
    assert w.redirected() >= 1
    local.close()


def test_nothing_goes_past_a_proxy_that_is_not_there(world):
    w = world()
    w.install("--uid", str(USER))
    seen = w.far.within(lambda: socket.create_server((THERE, 9000)))
    w.egress.program.stop()
    r = w.curl(port=9000)
    assert r.returncode == 7, (r.stdout, r.stderr)  # refused
    seen.setblocking(False)
    with pytest.raises(BlockingIOError):
        seen.accept()
    seen.close()


def test_own_connections_that_come_back_are_refused(world):
    """Rules of somebody else's that redirect the proxy's own: one client must not become connections without end."""
    w = world()
    rules = "\n".join(("table inet wrong {", "chain output {", "type nat hook output priority -100;",
                       f"tcp dport {PORT} redirect to :{EGRESS}", "}", "}"))
    subprocess.run([str(a) for a in w.near.argv("nft", "-f", "-")], input=rules, text=True, check=True)
    for host in (THERE, THERE_6):
        assert w.curl(host=host).returncode != 0
    until(lambda: sum(line.get("count", 1) for line in w.egress.log("connection refused")) >= 2, "two refusals")
    assert {line["reason"] for line in w.egress.log("connection refused")} == {"loop"}
    w.egress.program.stop()
    assert w.egress.log("stopped")[0]["accepted"] == 4  # each client, and the proxy itself once for each


def test_a_cgroups_connections_leave_through_tls(world):
    if not (CGROUPS / "cgroup.procs").exists():
        pytest.skip("cgroup2 is not mounted on /sys/fs/cgroup")
    w = world()
    group = CGROUPS / f"pqplane-test-{os.getpid()}"
    inner = group / "function"
    try:
        inner.mkdir(parents=True)
        w.install("--cgroup", str(group))
        enter = ["sh", "-c", f'echo $$ > {inner}/cgroup.procs && exec "$@"', "sh"]
        curl = ["curl", "-sS", "--max-time", PATIENCE]
        for host in (THERE, f"[{THERE_6}]"):
            r = run([*enter, *w.near.argv(*curl, f"http://{host}:{PORT}/", user=USER)])
            assert (r.returncode, r.stdout) == (0, "hello\n"), r.stderr
        # The proxy may be in there as well: it is known by its user.
        (inner / "cgroup.procs").write_text(str(w.egress.pid))
        r = run([*enter, *w.near.argv(*curl, f"http://{THERE}:{PORT}/", user=USER)])
        assert (r.returncode, r.stdout) == (0, "hello\n"), r.stderr
        assert w.redirected() == 3
        assert w.curl(user=OTHER).returncode != 0  # outside of it
        assert w.redirected() == 3
    finally:
        w.egress.program.stop()
        for folder in (inner, group):
            if folder.exists():
                folder.rmdir()
    r = w.redirect("show")
    assert "which is gone" in r.stdout


# --- the rules ------------------------------------------------------------------------------------------------------


def test_rules_come_show_and_go(pqplane, hosts):
    near, _ = hosts
    redirect = lambda *argv: near.run(pqplane, "redirect", *argv)
    options = ("--name", "udm", "--uid", str(USER), "--port", "15001", "--networks", "10.0.0.0/8,fd00::/8", "--ports",
               "80,8000-8100")
    assert json.loads(redirect("show", "--json").stdout) == {"redirects": []}
    dry = redirect("install", *options, "--dry-run").stdout
    assert near.do("nft", "list", "ruleset") == ""
    for _ in range(2):  # again: replaces it
        assert redirect("install", *options).returncode == 0
    assert redirect("install", "--name", "ausf", "--uid", str(OTHER), "--port", "15002", "--loopback").returncode == 0
    shown = json.loads(redirect("show", "--json").stdout)["redirects"]
    assert shown[0] == {"name": "udm", "uid": USER, "networks": ["10.0.0.0/8", "fd00::/8"],
                        "ports": [[80, 80], [8000, 8100]], "loopback": False, "port": 15001, "except": 65534,
                        "connections": 0, "edited": False}
    assert shown[1]["name"] == "ausf" and shown[1]["loopback"] and len(shown) == 2
    lines = redirect("show").stdout.splitlines()
    assert lines[0].split()[0] == "name" and lines[1].startswith("udm ") and "8000-8100" in lines[1]
    # What --dry-run printed is what install does.
    before = near.do("nft", "list", "ruleset")
    subprocess.run([str(a) for a in near.argv("nft", "-f", "-")], input=dry, text=True, check=True)
    assert sorted(near.do("nft", "list", "ruleset").splitlines()) == sorted(before.splitlines())
    # Somebody's hand in it shows.
    near.do("nft", "add", "rule", "inet", "pqplane-udm", "output", "tcp", "dport", "5", "accept")
    for name, edited in (("udm", True), ("ausf", False)):
        assert json.loads(redirect("show", "--name", name, "--json").stdout)["redirects"][0]["edited"] is edited
    for name in ("udm", "ausf"):
        assert redirect("remove", "--name", name).returncode == 0
    assert near.do("nft", "list", "ruleset") == ""
    r = redirect("remove", "--name", "udm")
    assert r.returncode == 1 and 'there is no redirect "udm" here' in r.stderr
    assert redirect("show", "--name", "udm").returncode == 1


def test_what_is_missing_is_said(pqplane, hosts):
    near, _ = hosts
    install = (pqplane, "redirect", "install", "--name", "a", "--uid", str(USER), "--port", "15001")
    r = near.run(*install, user=USER)
    assert r.returncode == 1 and "run this as root" in r.stderr and len(r.stderr.splitlines()) == 1
    nft = shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin")
    hide = f'mount --bind /dev/null {nft} && exec "$@"'
    r = near.run("unshare", "--mount", "--propagation", "private", "sh", "-c", hide, "sh", *install)
    assert r.returncode == 1 and "install nftables" in r.stderr
    r = near.run(pqplane, "redirect", "install", "--name", "a", "--cgroup", "no/such", "--port", "1")
    assert r.returncode == 1 and "there is no cgroup /sys/fs/cgroup/no/such" in r.stderr
    for argv, says in (
            (["install"], "--name NAME"),
            (["install", "--name", "a"], "--uid USER or --cgroup PATH"),
            (["install", "--name", "a", "--uid", "1", "--cgroup", "x", "--port", "1"], "one of them"),
            (["install", "--name", "a", "--uid", "1"], "--port N"),
            (["remove"], "--name NAME"),
            (["show", "--uid", "1"], "show takes --name"),
            (["replace"], 'there is no "replace"'),
            ([], "say what to do")):
        r = run([pqplane, "redirect", *argv])
        assert r.returncode == 2 and says in r.stderr, (argv, r.stderr)
    r = run([pqplane, "redirect", "install", "--name", "a", "--uid", "nobody", "--port", "1"])
    assert r.returncode == 1 and "is the proxy's own" in r.stderr
    assert run([pqplane, "redirect", "--help"]).stdout.startswith("usage: pqplane redirect install")
