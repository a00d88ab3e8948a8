"""The ways from a client to the function that are compared: straight, through the floor twice, through a pair of ours, of
nginx stream, of haproxy, of nghttpx. Same certificates (ML-DSA-65), group (X25519MLKEM768), TLS 1.3 with certificates on
both sides, one worker with one thread each (ours has its handshake thread and supervisor beside), TCP_NODELAY, OpenSSL's
own algorithms.

A path has .port (where clients connect), .tls (the ingress's TLS port, or None) and .roots (process trees to account).

Sessions: "tunnel" and nghttpx keep TLS connections and carry many local ones on them. "connection", nginx and
haproxy make one for each; "full" and "nginx", "haproxy" never resume (a full handshake each time), "connection"
and "nginx-resumed" may, each as it does by itself.
"""

import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import time

import measure

GROUP, SIGALG, CIPHER = "X25519MLKEM768", "mldsa65", "TLS_AES_256_GCM_SHA384"
SERVER = "ingress.example"
PATIENCE = 20


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Path:
    def __init__(self, port, tls=None, roots=()):
        self.port, self.tls, self.roots = port, tls, list(roots)

    def cpu_ns(self):
        return measure.cpu_ns(self.roots)

    def memory(self):
        return measure.memory_bytes(self.roots)


class Stage:
    """A folder with certificates, and the processes that were started for a benchmark."""

    def __init__(self, build, folder):
        self.build, self.folder, self.running, self.logs = pathlib.Path(build).resolve(), pathlib.Path(folder), [], 0
        self.pqplane = str(self.build / "src/cli/pqplane")
        self.folder.chmod(0o755)
        soft, self.descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptors, self.descriptors))
        self.pki("init", "--root", SIGALG)
        for name in ("egress", "ingress", "stranger"):
            self.pki("issue", "--name", name, "--algorithm", SIGALG, "--dns", f"{name}.example")
            both = b"".join((self.folder / f"pki/{name}.{kind}").read_bytes() for kind in ("crt", "key"))
            (self.folder / f"pki/{name}.pem").touch(mode=0o600)
            (self.folder / f"pki/{name}.pem").write_bytes(both)

    def pki(self, verb, *args):
        subprocess.run([self.pqplane, "pki", verb, "--dir", self.folder / "pki", *args], check=True, stdout=subprocess.DEVNULL)

    def start(self, argv, port):
        self.logs += 1
        log = self.folder / f"log.{self.logs}"
        p = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=open(log, "wb"), cwd=self.folder)
        self.running.append(p)
        end = time.monotonic() + PATIENCE
        while not listens(port):
            if p.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"bench: {argv[0]} does not listen on port {port}:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)
        return p.pid

    def stop(self):
        for p in reversed(self.running):
            p.send_signal(signal.SIGTERM)
        for p in self.running:
            try:
                p.wait(3)
            except subprocess.TimeoutExpired:
                for pid in reversed(measure.tree(p.pid)):
                    os.kill(pid, signal.SIGKILL)
                p.wait()
        self.running = []

    # --- the function, and ways to it ---------------------------------------------------------------------------------
    def function(self):
        port = free_port()
        self.start([self.build / "bench/function", port], port)
        return port

    def http2_function(self):
        """nginx answering 512 bytes over HTTP/2 without TLS, for h2load."""
        port = free_port()
        self.nginx_file("function", f"""http {{ access_log off; keepalive_requests 1000000000; http2_max_concurrent_streams 1000;
            server {{ listen 127.0.0.1:{port}; http2 on; location / {{ return 200 "{'x' * 512}"; }} }} }}""", port)
        return port

    def direct(self, target):
        return Path(target)

    def floor(self, target):
        inside, out = free_port(), free_port()
        return Path(out, None, [self.start([self.build / "bench/floor", inside, target], inside),
                                self.start([self.build / "bench/floor", out, inside], out)])

    def ours(self, target, carry, resumption=True, limits=None):
        """limits: None takes those away that are there against strangers, for benchmarks that are strangers themselves."""
        out, inside = free_port(), free_port()
        connections = 20000
        limits = {"connections": connections, **({"handshakes_per_source": 1000000, "strangers": 1000000} if limits is None else limits)}

        def tls(name):
            return {"certificate": f"pki/{name}.crt", "key": f"pki/{name}.key", "ca": "pki/root.crt", "resumption": resumption,
                    "policy": {"mode": "hybrid", "level": 3, "groups": GROUP, "require": ["pq-kex", "pq-auth"]}}

        egress = {"name": "a", "listen": f"127.0.0.1:{out}", "connect": f"127.0.0.1:{inside}", "peers": [SERVER], "carry": carry}
        roots = []
        for name, kind, listener, port in (
            ("ingress", "ingress", {"name": "a", "listen": f"127.0.0.1:{inside}", "forward": f"127.0.0.1:{target}"}, inside),
            ("egress", "egress", egress, out),
        ):
            path = self.folder / f"{name}-{port}.yaml"
            path.write_text(json.dumps({"log": {"level": "warn"}, "limits": limits, "tls": tls(name), kind: [listener]}))
            roots.append(self.start([self.pqplane, "proxy", "--config", path], port))
        return Path(out, inside, roots)

    def tunnel(self, target, **options):
        return self.ours(target, "tunnel", **options)

    def connection(self, target, **options):
        return self.ours(target, "connection", **options)

    def full(self, target, **options):
        return self.ours(target, "connection", resumption=False, **options)

    def nginx_file(self, name, body, port):
        path = self.folder / f"nginx-{name}-{port}.conf"
        path.write_text(f"""load_module /usr/lib/nginx/modules/ngx_stream_module.so;
            user root; worker_processes 1; worker_rlimit_nofile {self.descriptors}; daemon off; error_log {path}.log;
            pid {path}.pid; events {{ worker_connections {self.descriptors}; }} {body}""")
        return self.start(["nginx", "-p", self.folder, "-c", path], port)

    def nginx(self, target, resume=False, **_):
        out, inside, pki = free_port(), free_port(), self.folder / "pki"
        tickets, reuse = ("on", "on") if resume else ("off", "off")
        cache = "ssl_session_cache shared:a:10m;" if resume else "ssl_session_cache off;"
        ingress = f"""listen 127.0.0.1:{inside} ssl backlog=4096; proxy_pass 127.0.0.1:{target};
            ssl_certificate {pki}/ingress.crt; ssl_certificate_key {pki}/ingress.key; ssl_client_certificate {pki}/root.crt;
            ssl_verify_client on; ssl_verify_depth 3; ssl_protocols TLSv1.3; ssl_session_tickets {tickets}; {cache}
            ssl_ecdh_curve {GROUP};"""
        egress = f"""listen 127.0.0.1:{out} backlog=4096; proxy_pass 127.0.0.1:{inside}; proxy_ssl on; proxy_ssl_session_reuse {reuse};
            proxy_ssl_certificate {pki}/egress.crt; proxy_ssl_certificate_key {pki}/egress.key;
            proxy_ssl_trusted_certificate {pki}/root.crt; proxy_ssl_verify on; proxy_ssl_verify_depth 3;
            proxy_ssl_name {SERVER}; proxy_ssl_server_name on; proxy_ssl_protocols TLSv1.3;
            proxy_ssl_conf_command Groups {GROUP};"""
        return Path(out, inside, [self.nginx_file(name, f"stream {{ tcp_nodelay on; server {{ {body} }} }}", port)
                                  for name, body, port in (("in", ingress, inside), ("out", egress, out))])

    def nginx_resumed(self, target, **_):
        return self.nginx(target, resume=True)

    def haproxy(self, target, **_):
        out, inside, pki = free_port(), free_port(), self.folder / "pki"
        common = f"ca-file {pki}/root.crt verify required curves {GROUP} ssl-min-ver TLSv1.3"
        roots = []
        for port, lines in (
            (inside, [f"bind 127.0.0.1:{inside} backlog 4096 ssl crt {pki}/ingress.pem {common} no-tls-tickets",
                      f"server a 127.0.0.1:{target}"]),
            (out, [f"bind 127.0.0.1:{out} backlog 4096",
                   f"server a 127.0.0.1:{inside} ssl crt {pki}/egress.pem {common} no-ssl-reuse verifyhost {SERVER} sni str({SERVER})"]),
        ):
            path = self.folder / f"haproxy-{port}.cfg"
            most = (self.descriptors - 100) // 2
            path.write_text("\n".join([
                "global", "  nbthread 1", f"  maxconn {most}", "  tune.ssl.cachesize 0", "defaults", "  mode tcp",
                "  timeout connect 5s", "  timeout client 1h", "  timeout server 1h", f"  maxconn {most}", "listen a",
                *(f"  {line}" for line in lines), ""]))
            roots.append(self.start(["haproxy", "-db", "-f", path], port))
        return Path(out, inside, roots)

    def nghttpx(self, target, http2=False, **_):
        out, inside, pki = free_port(), free_port(), self.folder / "pki"
        empty = self.folder / "nghttpx.conf"
        empty.touch()
        common = ["nghttpx", f"--conf={empty}", "--workers=1", "--tls-min-proto-version=TLSv1.3", f"--groups={GROUP}",
                  f"--tls13-ciphers={CIPHER}", f"--tls13-client-ciphers={CIPHER}",
                  "--backlog=4096", "--errorlog-file=/dev/stderr", "--accesslog-file=/dev/null",
                  "--frontend-keep-alive-timeout=1h", "--backend-read-timeout=1h", "--frontend-read-timeout=1h"]
        to = f"--backend=127.0.0.1,{target};;proto={'h2' if http2 else 'http/1.1'}"
        ingress = [*common, f"--frontend=127.0.0.1,{inside}", to, "--verify-client", f"--verify-client-cacert={pki}/root.crt",
                   f"{pki}/ingress.key", f"{pki}/ingress.crt"]
        egress = [*common, f"--frontend=127.0.0.1,{out};no-tls", f"--backend=127.0.0.1,{inside};;tls;proto=h2;sni={SERVER}",
                  f"--cacert={pki}/root.crt", f"--client-cert-file={pki}/egress.crt", f"--client-private-key-file={pki}/egress.key"]
        return Path(out, inside, [self.start(ingress, inside), self.start(egress, out)])

    # --- generators ---------------------------------------------------------------------------------------------------
    def popen(self, program, *args, cpus=None, **options):
        return subprocess.Popen([str(self.build / "bench" / program), *(str(a) for a in args)], stdout=subprocess.PIPE, text=True,
                                preexec_fn=(lambda: os.sched_setaffinity(0, cpus)) if cpus else None, **options)

    def run(self, program, *args, **options):
        return finish(self.popen(program, *args, **options))

    def traffic(self, port, *args, **options):
        return self.run("traffic", "--to", f"127.0.0.1:{port}", *args, **options)

    def stranger_args(self, port):
        pki = self.folder / "pki"
        return ["--to", f"127.0.0.1:{port}", "--certificate", pki / "stranger.crt", "--key", pki / "stranger.key",
                "--ca", pki / "root.crt", "--name", SERVER, "--group", GROUP]


def finish(process):
    out, _ = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"bench: {process.args[0]} ended with {process.returncode}")
    return json.loads(out)


def listens(port):
    """Asks the kernel, so that no connection of ours is in anybody's figures."""
    at = f"0100007F:{port:04X}"
    return any(line.split()[1] == at and line.split()[3] == "0A" for line in open("/proc/net/tcp").readlines()[1:])
