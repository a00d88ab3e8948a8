#!/usr/bin/env python3
"""The relay beside its peers and beside the machine's limit, in one run: bench/relay.py BUILD [--quick] [PART...]

Paths, and what is the same for all of them: paths.py. Lines printed: measure.py. Parts:
  sequential   one kept connection, one request after the other
  new          a request on a new local connection
  throughput   h2load, 10 clients x 10 streams: requests a second, and the pair's CPU for each
  rate         so many new connections a second; what comes beyond what can be done
  handshake    CPU of a full handshake: the server's, and both sides'
  idle         memory of 10,000 held connections
  strangers    p99 of kept requests while 100 strangers a second do full handshakes
  replay       half of what can be done, while 1,000 source addresses replay one ClientHello
Rounds visit the paths in a new order each. Figures "one_cpu" have client, function and proxies on one processor: nothing
then waits for another one to wake up, which is the larger part of the others' noise.
"""

import argparse
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import measure
import paths

OURS = ["tunnel", "connection"]
PEERS = ["nginx", "haproxy", "nghttpx"]


NEVER = 1e9  # µs, where nothing was answered at all


def p99(result):
    return result["latencies"].get("p99_us", NEVER)


class Bench:
    def __init__(self, stage, report, quick):
        self.stage, self.report, self.quick = stage, report, quick
        self.rng = random.Random(1)

    def rounds(self, full):
        return 3 if self.quick else full

    def open(self, names, target, **options):
        """The paths of those names, ready and warmed up."""
        opened = {}
        for name in names:
            plain = name in ("direct", "floor")
            opened[name] = getattr(self.stage, name.replace("-", "_"))(target, **({} if plain else options))
        return opened

    def warm_up(self, opened):
        for name, path in opened.items():
            result = self.stage.traffic(path.port, "--count", 200)
            if result["failed"]:
                raise SystemExit(f"bench: the path {name} does not work: {result}")

    def visit(self, opened, rounds, measure_one):
        """measure_one(path) gives {metric: value}; {path: {metric: [value of each round]}}."""
        seen = {name: {} for name in opened}
        for _ in range(rounds):
            for name in self.rng.sample(sorted(opened), len(opened)):
                for metric, value in measure_one(opened[name]).items():
                    seen[name].setdefault(metric, []).append(value)
        return seen

    def compare(self, seen, metric, unit, ours, peers, added=False, of=statistics.median):
        """Prints each path's figure and each ratio; {(ours, peer): ratio}."""
        values = {name: seen[name][metric] for name in seen if metric in seen[name]}
        if added:
            direct = values["direct"]
            self.report.figure(metric, "direct", direct, unit)
            values = {n: [x - y for x, y in zip(v, direct)] for n, v in values.items() if n != "direct"}
        label = f"added_{metric}" if added else metric
        for name, v in values.items():
            self.report.figure(label, name, v, unit, of)
        return {(a, b): self.report.ratio(f"{a}.{label}", values[a], b, values[b], unit, of)
                for a in ours if a in values for b in peers if b in values}

    # --- parts --------------------------------------------------------------------------------------------------------
    def latency(self, *args):
        def one(path):
            r = self.stage.traffic(path.port, *args)
            if r["failed"]:
                self.report.note(f"port {path.port}: {r['failed']} of {r['requests']} requests failed: {r['errors']}")
            return {"median": r["latencies"]["median_us"], "p99": r["latencies"]["p99_us"]}

        return one

    def on_one_cpu(self, *args):
        cpu = {0}

        def one(path):
            r = self.stage.traffic(path.port, *args, cpus=cpu)
            return {"median_one_cpu": r["latencies"]["median_us"], "p99_one_cpu": r["latencies"]["p99_us"]}

        return one

    def one_after_the_other(self, names, args, rounds):
        target = self.stage.function()
        opened = self.open(names, target)
        self.warm_up(opened)
        roots = [p.pid for p in self.stage.running]
        seen = self.visit(opened, rounds, self.latency(*args))
        measure.pin(roots, {0})
        pinned = self.visit(opened, rounds, self.on_one_cpu(*args))
        return {name: {**seen[name], **pinned[name]} for name in seen}

    def sequential(self):
        seen = self.one_after_the_other(["direct", "floor", *OURS, *PEERS], ["--count", 500 if self.quick else 2000], self.rounds(12))
        for metric in ("median", "p99", "median_one_cpu", "p99_one_cpu"):
            got = self.compare(seen, metric, "us", OURS, ["floor", *PEERS], added=True)
            for name in OURS:
                if metric.startswith("median"):
                    self.report.goal(f"{name}.added_{metric}", "<=1.3xfloor", got[name, "floor"], got[name, "floor"] <= 1.3)
                self.report.goal(f"{name}.added_{metric}", "<=1xnginx", got[name, "nginx"], got[name, "nginx"] <= 1)

    def new(self):
        seen = self.one_after_the_other(["direct", "floor", *OURS, "full", "nginx", "nginx-resumed", "haproxy", "nghttpx"],
                                        ["--connections", 0, "--count", 40 if self.quick else 100], self.rounds(10))
        for metric in ("median", "p99", "median_one_cpu"):
            got = self.compare(seen, metric, "us", OURS, ["floor", "nginx", "nginx-resumed", "haproxy", "nghttpx"], added=True)
            for name in ("tunnel",) if metric.startswith("median") else ():
                self.report.goal(f"{name}.added_{metric}", "<=1.2xfloor", got[name, "floor"], got[name, "floor"] <= 1.2)
                self.report.goal(f"{name}.added_{metric}", "<=0.1xnginx", got[name, "nginx"], got[name, "nginx"] <= 0.1)

    def throughput(self):
        target = self.stage.http2_function()
        names = ["direct", "floor", *OURS, *PEERS]
        opened = self.open([n for n in names if n != "nghttpx"], target)
        opened["nghttpx"] = self.stage.nghttpx(target, http2=True)
        requests = 10000 if self.quick else 30000

        def one(path):
            before = path.cpu_ns()
            r = subprocess.run(["h2load", "-n", str(requests), "-c", "10", "-m", "10", f"http://127.0.0.1:{path.port}/"],
                               capture_output=True, text=True)
            if f"{requests} succeeded" not in r.stdout:
                raise SystemExit(f"bench: h2load through port {path.port}:\n{r.stdout}{r.stderr}")
            figures = {"per_second": float(re.search(r"finished in .*?, ([\d.]+) req/s", r.stdout)[1])}
            if path.roots:
                figures["pair_cpu"] = (path.cpu_ns() - before) / 1e3 / requests
            return figures

        for path in opened.values():
            one(path)
        seen = self.visit(opened, self.rounds(8), one)
        rate = self.compare(seen, "per_second", "1/s", OURS, ["direct", "floor", *PEERS])
        cpu = self.compare(seen, "pair_cpu", "us", OURS, ["floor", *PEERS])
        for name in OURS:
            self.report.goal(f"{name}.pair_cpu", "<=0.95xnginx", cpu[name, "nginx"], cpu[name, "nginx"] <= 0.95)
            self.report.goal(f"{name}.per_second", ">=1xnginx", rate[name, "nginx"], rate[name, "nginx"] >= 1)
            for peer in ("haproxy", "nghttpx"):
                self.report.goal(f"{name}.pair_cpu", f"<1x{peer}", cpu[name, peer], cpu[name, peer] < 1)

    def rate(self):
        """One path at a time, so that no other is on the machine; a minute where the goal says so."""
        long, short = (5, 2) if self.quick else (60, 8)
        plan = [("floor", 2000, short), ("tunnel", 2000, long), ("nghttpx", 2000, short), ("connection", 300, long), 
                ("nginx", 300, short), ("haproxy", 300, short), ("tunnel", 10000, short), ("connection", 1500, short)]
        target = self.stage.function()
        self.warm_up({"direct": self.stage.direct(target)})
        for name, rate, seconds in plan:
            path = self.open([name], target)[name]
            self.warm_up({name: path})
            r = self.stage.traffic(path.port, "--connections", 0, "--rate", rate, "--seconds", seconds, "--sources", 250,
                                   "--patience-ms", 30000)
            at = f"new_at_{rate}"
            self.report.figure(f"{at}.errors", name, r["failed"], "requests")
            self.report.figure(f"{at}.answered", name, r["answered"], "requests")
            self.report.figure(f"{at}.median", name, r["latencies"].get("median_us", NEVER), "us")
            self.report.figure(f"{at}.p99", name, p99(r), "us")
            self.report.figure(f"{at}.generator_cpu", name, 100 * r["cpu_seconds"] / max(r["seconds"], seconds), "percent")
            if name in ("tunnel", "connection"):
                self.report.goal(f"{name}.{at}.errors", "=0", r["failed"], r["failed"] == 0)
            for p in path.roots:
                self.end(p)

    def end(self, pid):
        for p in [p for p in self.stage.running if p.pid == pid]:
            p.terminate()
            try:
                p.wait(3)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
            self.stage.running.remove(p)

    def handshake(self):
        """Of strangers at the TLS side, and of local connections through a pair that resumes nothing."""
        target = self.stage.function()
        opened = self.open(["full", *PEERS], target)
        self.warm_up(opened)
        count = 50 if self.quick else 200

        def one(path):
            before = path.cpu_ns()
            r = self.stage.run("strangers", *self.stage.stranger_args(path.tls), "--count", count)
            self.same(path, r)
            figures = {"server_cpu": (path.cpu_ns() - before) / 1e3 / count}
            if path is not opened["nghttpx"]:  # it carries all on one connection
                before = path.cpu_ns()
                self.stage.traffic(path.port, "--connections", 0, "--count", count)
                figures["both_cpu"] = (path.cpu_ns() - before) / 1e3 / count
            return figures

        seen = self.visit(opened, self.rounds(6), one)
        for metric in ("server_cpu", "both_cpu"):
            got = self.compare(seen, metric, "us", ["full"], PEERS)
            for (_, peer), ratio in got.items():
                self.report.goal(f"full.{metric}", f"<=1x{peer}", ratio, ratio <= 1)

    def same(self, path, result):
        n = result["negotiated"]
        expected = {"version": "TLSv1.3", "group": paths.GROUP, "server_signature": paths.SIGALG, "client_signature": paths.SIGALG,
                    "cipher": paths.CIPHER, "resumed": 0}
        if n != expected or result["failed"]:
            raise SystemExit(f"bench: port {path.tls} negotiated {n} with {result['errors']}, not {expected}")

    def idle(self):
        """Each tenth of the connections is a sample of what one costs."""
        most = 1000 if self.quick else 10000
        target = self.stage.function()
        seen = {}
        for name in ["floor", *OURS, *PEERS]:
            path = self.open([name], target)[name]
            self.warm_up({name: path})
            # A connection carried alone takes a process two descriptors, and this system may not give so many.
            count = min(most, (self.stage.descriptors - 100) // (1 if name == "tunnel" else 2)) // 10 * 10
            steps = self.hold(name, path, count // 10)
            if steps:
                seen[name] = {"memory_each": steps}
            for root in path.roots:
                self.end(root)
        got = self.compare(seen, "memory_each", "KiB", OURS, ["floor", *PEERS], of=statistics.mean)
        for name, peers in (("tunnel", PEERS), ("connection", ["nginx", "haproxy"])):
            best = max((got[name, p] for p in peers if (name, p) in got), default=0)
            self.report.goal(f"{name}.memory_each", f"<=1xbest_of_{'_'.join(peers)}", best, 0 < best <= 1)

    def hold(self, name, path, step):
        """Memory of one connection, in KiB, for each of ten steps."""
        p = self.stage.popen("traffic", "--to", f"127.0.0.1:{path.port}", "--hold", 1, stdin=subprocess.PIPE)
        steps, before, held = [], path.memory(), 0
        for want in range(step, 11 * step, step):
            p.stdin.write(f"{want}\n")
            p.stdin.flush()
            held = int(p.stdout.readline().split()[1])
            if held != want:
                self.report.note(f"{name} holds {held} of {want} connections")
                break
            now = path.memory()
            steps.append((now - before) / step / 1024)
            before = now
        self.report.figure("held", name, held, "connections")
        p.stdin.close()
        p.wait()
        return steps

    def strangers(self):
        """The limits against strangers are as they are by default here."""
        target = self.stage.function()
        opened = self.open([*OURS, *PEERS], target, limits={})
        self.warm_up(opened)
        seconds = 2 if self.quick else 3

        def kept(path):
            return self.stage.traffic(path.port, "--connections", 10, "--rate", 1000, "--seconds", seconds)

        def one(path):
            alone = kept(path)
            p = self.stage.popen("strangers", *self.stage.stranger_args(path.tls), "--rate", 100, "--seconds", seconds + 1,
                                 "--sources", 50000, "--threads", 8)
            time.sleep(0.5)
            beside = kept(path)
            r = paths.finish(p)
            return {"p99_alone": p99(alone), "p99_beside": p99(beside), "p99_more": p99(beside) - p99(alone),
                    "handshakes": r["answered"] / r["seconds"], "failed": alone["failed"] + beside["failed"],
                    "strangers_failed": r["failed"], "generator_cpu": 100 * r["cpu_seconds"] / r["seconds"]}

        seen = self.visit(opened, self.rounds(4), one)
        for metric, unit in (("p99_alone", "us"), ("p99_beside", "us"), ("p99_more", "us"), ("handshakes", "1/s"), ("failed", "requests"),
                             ("strangers_failed", "requests"), ("generator_cpu", "percent")):
            for name in opened:
                self.report.figure(metric, name, seen[name][metric], unit)
        for name in OURS:
            for peer in PEERS:
                self.report.ratio(f"{name}.p99_beside", seen[name]["p99_beside"], peer, seen[peer]["p99_beside"], "us")
            more = statistics.median(seen[name]["p99_more"])
            self.report.goal(f"{name}.p99_more", "<=500us", more, more <= 500)

    def replay(self):
        """2,000 ClientHellos a second; then as many as the attacker can send, which costs this machine his CPU too."""
        target = self.stage.function()
        opened = self.open([*OURS, "nginx", "haproxy"], target, limits={})
        self.warm_up(opened)
        runs = 1 if self.quick else 3
        capacity = {name: statistics.median(self.stage.traffic(p.port, "--connections", 20, "--seconds", 2)["per_second"] for _ in range(runs))
                    for name, p in opened.items()}
        rates = {id(p): int(capacity[name] / 2) for name, p in opened.items()}
        for name, value in capacity.items():
            self.report.figure("capacity", name, value, "1/s")
        units = {"goodput_alone": "1/s", "goodput_beside": "1/s", "goodput_kept": "percent", "p99_alone": "us", "p99_beside": "us",
                 "failed": "requests", "known_let_in": "percent", "known_p99": "us", "hellos": "1/s", "hellos_answered": "1/s",
                 "generator_cpu": "percent"}
        for label, rate, rounds in (("paced", 2000, self.rounds(4)), ("flat_out", 0, 1)):
            seen = self.visit(opened, rounds, lambda path: self.beside_replay(path, rates[id(path)], rate))
            for metric, unit in units.items():
                for name in opened:
                    self.report.figure(f"{label}.{metric}", name, seen[name][metric], unit)
            for name in OURS:
                for peer in ("nginx", "haproxy"):
                    self.report.ratio(f"{name}.{label}.goodput_kept", seen[name]["goodput_kept"], peer, seen[peer]["goodput_kept"], "percent")
                kept, known = (statistics.median(seen[name][m]) for m in ("goodput_kept", "known_let_in"))
                self.report.goal(f"{name}.{label}.goodput_kept", ">90percent", kept, kept > 90)
                self.report.goal(f"{name}.{label}.known_let_in", "=100percent", known, known == 100)

    def beside_replay(self, path, rate, hellos):
        seconds = 3

        def half():
            r = self.stage.traffic(path.port, "--connections", 20, "--rate", rate, "--seconds", seconds)
            return r["answered"] / max(r["seconds"], seconds), p99(r), r["failed"]

        alone, alone_p99, _ = half()
        p = self.stage.popen("replay", "--to", f"127.0.0.1:{path.tls}", "--seconds", seconds + 1, "--group", paths.GROUP,
                             "--rate", hellos)
        time.sleep(0.5)
        known = {}
        t = threading.Thread(target=lambda: known.update(self.stage.traffic(
            path.port, "--connections", 0, "--rate", 20, "--seconds", seconds - 1, "--patience-ms", 20000)))
        t.start()
        beside, beside_p99, failed = half()
        t.join()
        r = paths.finish(p)
        return {"goodput_alone": alone, "goodput_beside": beside, "goodput_kept": 100 * beside / alone, "p99_alone": alone_p99,
                "p99_beside": beside_p99, "failed": failed, "known_let_in": 100 * known["answered"] / max(1, known["requests"]),
                "known_p99": p99(known), "hellos": r["attempts"] / r["seconds"],
                "hellos_answered": r["answered"] / r["seconds"], "generator_cpu": 100 * r["cpu_seconds"] / r["seconds"]}


PARTS = ["sequential", "new", "throughput", "rate", "handshake", "idle", "strangers", "replay"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build")
    p.add_argument("part", nargs="*", choices=[*PARTS, []])
    p.add_argument("--quick", action="store_true", help="fewer rounds, shorter runs, fewer connections: rough intervals")
    p.add_argument("--json", help="every figure of every round, for programs")
    a = p.parse_args()
    report = measure.Report()
    for part in a.part or PARTS:
        started = time.monotonic()
        report.bench = part
        with tempfile.TemporaryDirectory() as tmp:
            stage = paths.Stage(a.build, tmp)
            try:
                getattr(Bench(stage, report, a.quick), part)()
            finally:
                stage.stop()
        report.note(f"took {time.monotonic() - started:.0f} s")
        if a.json:
            report.save(a.json)


sys.exit(main())
