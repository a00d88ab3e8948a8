#!/usr/bin/env python3
"""The sidecar pair beside an nginx stream pair: same certificates, groups, machine and rounds, one process each.

bench/relay.py PQPLANE [--rounds N] [--json FILE]

Requests are `pqplane load`'s NF discoveries at a `pqplane nf nrf`, on loopback: directly, through our pair, through
nginx's. One line a figure: ratio BENCH METRIC ours=X peer=NAME:Y unit=U ratio=R low=L high=H
"""

import argparse
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

GROUP, SIGALG = "X25519MLKEM768", "mldsa65"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_port(port, process, deadline=10):
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"bench: a peer ended with {process.returncode} before it listened on port {port}")
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit(f"bench: nothing listens on port {port} after {deadline} s")


def cpu_us(pids):
    """CPU time of all threads of the processes, in µs, as the scheduler counts it (ns)."""
    return sum(int(t.read_text().split()[0]) for pid in pids for t in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1000


def children(pid):
    return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Bench:
    def __init__(self, pqplane, tmp):
        self.pqplane, self.tmp, self.running = pqplane, tmp, []
        self.pki()

    def run(self, *argv):
        subprocess.run([self.pqplane, *argv], check=True, stdout=subprocess.DEVNULL)

    def pki(self):
        self.run("pki", "init", "--dir", f"{self.tmp}/pki", "--root", SIGALG)
        for name in ("egress", "ingress"):
            self.run("pki", "issue", "--dir", f"{self.tmp}/pki", "--name", name, "--algorithm", SIGALG, "--dns", f"{name}.example")

    def start(self, argv, port):
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=open(self.tmp / f"log.{len(self.running)}", "wb"))
        self.running.append(p)
        wait_port(port, p)
        return p.pid

    def nrf(self):
        port = free_port()
        self.start([self.pqplane, "nf", "nrf", "--listen", f"127.0.0.1:{port}", "--instances", "2"], port)
        return port

    def ours(self, target):
        out, inside = free_port(), free_port()
        tls = lambda name: f"{{certificate: pki/{name}.crt, key: pki/{name}.key, ca: pki/root.crt, policy: {{mode: hybrid, level: 3, groups: {GROUP}, require: [pq-kex, pq-auth]}}}}"
        (self.tmp / "in.yaml").write_text(f"log: {{level: warn}}\ntls: {tls('ingress')}\ningress:\n  - {{name: a, listen: '127.0.0.1:{inside}', forward: '127.0.0.1:{target}'}}\n")
        (self.tmp / "out.yaml").write_text(f"log: {{level: warn}}\ntls: {tls('egress')}\negress:\n  - {{name: a, listen: '127.0.0.1:{out}', connect: '127.0.0.1:{inside}', peers: [ingress.example]}}\n")
        return out, [worker for name, port in (("in", inside), ("out", out))
                     for worker in children(self.start([self.pqplane, "proxy", "--config", f"{self.tmp}/{name}.yaml"], port))]

    def nginx(self, target):
        out, inside = free_port(), free_port()
        pids = []
        for name, port, body in (
            ("ingress", inside, f"""listen 127.0.0.1:{inside} ssl; proxy_pass 127.0.0.1:{target};
                ssl_certificate pki/ingress.crt; ssl_certificate_key pki/ingress.key; ssl_client_certificate pki/root.crt;
                ssl_verify_client on; ssl_verify_depth 3; ssl_protocols TLSv1.3; ssl_session_tickets off; ssl_ecdh_curve {GROUP};"""),
            ("egress", out, f"""listen 127.0.0.1:{out}; proxy_pass 127.0.0.1:{inside}; proxy_ssl on; proxy_ssl_session_reuse off;
                proxy_ssl_certificate pki/egress.crt; proxy_ssl_certificate_key pki/egress.key;
                proxy_ssl_trusted_certificate pki/root.crt; proxy_ssl_verify on; proxy_ssl_verify_depth 3;
                proxy_ssl_name ingress.example; proxy_ssl_server_name on; proxy_ssl_protocols TLSv1.3;
                proxy_ssl_conf_command Groups {GROUP};""")):
            conf = self.tmp / f"nginx-{name}.conf"
            conf.write_text(f"""load_module /usr/lib/nginx/modules/ngx_stream_module.so;
                user root; worker_processes 1; daemon off; pid {self.tmp}/nginx-{name}.pid; error_log {self.tmp}/nginx-{name}.log;
                events {{ worker_connections 4096; }}
                stream {{ tcp_nodelay on; server {{ {body} }} }}""".replace(" pki/", f" {self.tmp}/pki/"))
            master = self.start(["nginx", "-p", str(self.tmp), "-c", str(conf)], port)
            pids += children(master)
        return out, pids

    def load(self, port, connection, requests):
        out = self.tmp / "load.json"
        self.run("load", "--target", f"http://127.0.0.1:{port}", "--workload", "discovery", "--requests", str(requests),
                 "--warmup", "5", "--connection", connection, "--json", str(out))
        result = json.loads(out.read_text())
        if result["errors"]:
            raise SystemExit(f"bench: requests failed: {result['errors']}")
        return [s["total_ns"] / 1000 for s in result["samples"]]

    def stop(self):
        for p in self.running:
            p.send_signal(signal.SIGTERM)
        for p in self.running:
            try:
                p.wait(5)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()


def interval(a, b, seed=1, draws=1000):
    """Ratio of medians of per-round figures and its 95 % interval, rounds resampled together."""
    rng = random.Random(seed)
    n = len(a)
    seen = []
    for _ in range(draws):
        pick = [rng.randrange(n) for _ in range(n)]
        seen.append(statistics.median(a[i] for i in pick) / statistics.median(b[i] for i in pick))
    seen.sort()
    return statistics.median(a) / statistics.median(b), seen[int(0.025 * draws)], seen[int(0.975 * draws) - 1]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("pqplane")
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--json")
    a = p.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as tmp:
        bench = Bench(os.path.abspath(a.pqplane), pathlib.Path(tmp))
        try:
            target = bench.nrf()
            paths = {"direct": (target, []), "ours": bench.ours(target), "nginx": bench.nginx(target)}
            figures = {name: {"kept": [], "new": [], "cpu": []} for name in paths}
            rng = random.Random(1)
            for _ in range(a.rounds):
                for name in rng.sample(sorted(paths), len(paths)):
                    port, pids = paths[name]
                    before = cpu_us(pids)
                    figures[name]["kept"].append(statistics.median(bench.load(port, "kept", 2000)))
                    figures[name]["cpu"].append((cpu_us(pids) - before) / 2000)
                    figures[name]["new"].append(statistics.median(bench.load(port, "new", 30)))
        finally:
            bench.stop()
    f = figures
    added = lambda name, what: [x - y for x, y in zip(f[name][what], f["direct"][what])]
    for metric, ours, peer in (("kept_request_added_us", added("ours", "kept"), added("nginx", "kept")),
                               ("kept_request_cpu_us", f["ours"]["cpu"], f["nginx"]["cpu"]),
                               ("new_connection_added_us", added("ours", "new"), added("nginx", "new"))):
        ratio, low, high = interval(ours, peer)
        rows.append({"bench": "relay", "metric": metric, "ours": statistics.median(ours), "peer": "nginx-stream",
                     "peer_value": statistics.median(peer), "unit": "us", "ratio": ratio, "low": low, "high": high})
        print(f"ratio relay {metric} ours={statistics.median(ours):.1f} peer=nginx-stream:{statistics.median(peer):.1f} "
              f"unit=us ratio={ratio:.3f} low={low:.3f} high={high:.3f}")
    print(f"direct request: kept {statistics.median(f['direct']['kept']):.1f} us, new connection {statistics.median(f['direct']['new']):.1f} us")
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(rows, indent=1))


sys.exit(main())
