#!/usr/bin/env python3
"""Streams through a pair of proxies for a long time, while all that an operator does, and some of what happens to him, happens.

tests/soak/soak.py BUILD [--seconds N] [CHECK...]       without names: all; the last line counts

  soak         churn, slow readers, certificates that change every 10 s, reloads with good and bad files, upgrades, then
               killed workers and peers as well: nothing lost, doubled or faked, nothing cut but by a kill, memory flat,
               no descriptor left over
  kills        a worker or a peer is killed in mid-stream: an error at both ends, in 200 of 200
  last-byte    200 of 200 slow readers get the last byte of a stream whose sender closed at once
  bulk         10 GB each way over one connection in less than 32 MiB
  many         10 GB each way over 1,000 connections at no more than 160 KiB each
Each uses both ways to carry: as streams of tunnels, and a TLS connection each.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests/system"))

from proxy_peers import POLICY, Pki, children, until  # noqa: E402
from conftest import Running, free_port  # noqa: E402

GRACE = 10  # seconds after a kill in which streams may still notice it
ROUTES = {"tunnel": {"carry": "tunnel"}, "connection": {"carry": "connection"}}


class Failed(AssertionError):
    pass


def check(condition, text):
    if not condition:
        raise Failed(text)


def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def lives(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def memory(pid, what):
    """KiB."""
    for line in pathlib.Path(f"/proc/{pid}/{'smaps_rollup' if what == 'Pss' else 'status'}").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1])
    return 0


class Program:
    """tests/soak/streams, either end; what it prints is collected in a file."""

    def __init__(self, build, log, *args):
        self.log = pathlib.Path(log)
        self.out = open(log, "wb")
        self.process = subprocess.Popen([build / "tests/soak/streams", *(str(a) for a in args)], stdin=subprocess.PIPE, stdout=self.out)

    def say(self, word):
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def lines(self):
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def failures(self):
        return [line for line in self.lines() if "outcome" in line]

    def totals(self, word, patience=120):
        """Says the word and waits for the totals that answer it."""
        count = lambda: [line for line in self.lines() if line.get("totals") == word]
        before = len(count())
        self.say(word)
        return until(lambda: count()[before:], f"an answer to {word!r}", patience)[-1]

    def wait(self, patience):
        self.process.wait(patience)
        return [line for line in self.lines() if line.get("totals") == "end"][-1]

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.out.close()


class Proxy:
    """A proxy on fixed ports, which is started again when it was killed; an upgrade replaces its processes."""

    def __init__(self, pqplane, folder, name, config):
        self.pqplane, self.folder, self.name, self.config = pqplane, pathlib.Path(folder), name, config
        self.path = self.folder / f"{name}.yaml"
        self.runs = []
        self.write()
        self.start()

    def write(self, text=None):
        """The file is replaced, never half written."""
        new = self.path.with_suffix(".new")
        new.write_text(text if text is not None else json.dumps(self.config))
        os.replace(new, self.path)

    def start(self):
        self.runs.append(Running([self.pqplane, "proxy", "--config", str(self.path)], self.folder / f"{self.name}.log.{len(self.runs)}"))

    def processes(self):
        """Of any generation."""
        name = str(self.path).encode()
        return [int(p) for p in os.listdir("/proc") if p.isdigit() and name in command_line(p)]

    def supervisors(self):
        """Two of them while an upgrade is under way."""
        return [p for p in self.processes() if any(is_worker(c) for c in children(p))]

    def workers(self):
        return [p for p in self.processes() if is_worker(p)]

    def send(self, how):
        for pid in self.supervisors():
            os.kill(pid, how)

    def catches(self, how):
        """Whether a signal has a handler: what it stands for is built."""
        pid = self.supervisors()[0]
        line = [x for x in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("SigCgt:")][0]
        return bool(int(line.split()[1], 16) >> (how - 1) & 1)

    def kill(self):
        """Again until none is left: one may have been forked meanwhile. Who exits loses its command line before its sockets."""
        seen = set()

        def all_gone():
            for pid in self.processes():
                seen.add(pid)
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            return not self.processes() and not any(lives(pid) for pid in seen)

        until(all_gone, f"the end of {self.name}")
        self.runs[-1].process.wait()

    def log(self, event=None):
        lines = []
        for run in self.runs:
            for text in run.text().splitlines():
                try:
                    lines.append(json.loads(text))
                except ValueError:
                    pass
        return [line for line in lines if event is None or line["event"] == event]

    def memory(self, what="Pss"):
        return sum(memory(p, what) for p in self.processes())

    def descriptors(self):
        """By worker."""
        return [len(os.listdir(f"/proc/{p}/fd")) for p in self.workers()]

    def stop(self):
        self.send(signal.SIGTERM)
        until(lambda: not self.processes(), f"the orderly end of {self.name}", 60)
        self.runs[-1].process.wait()


def is_worker(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().startswith("pqplane:")
    except (FileNotFoundError, ProcessLookupError):
        return False


class Stage:
    """A function, a pair of proxies in front of it, and one listener for each way to carry."""

    def __init__(self, build, folder, workers=1, routes=("tunnel", "connection"), **more):
        self.build, self.folder = pathlib.Path(build), pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.pqplane = str(self.build / "src/cli/pqplane")
        self.programs, self.proxies = [], []
        self.pki = Pki(self.pqplane, self.folder / "pki")
        for name in ("server", "client"):
            self.pki.issue(name)
        self.server = self.program("serve")
        target = int(until(lambda: self.server.log.read_text(), "the function").split()[1])
        inside = free_port()
        self.ports = {name: free_port() for name in routes}
        base = {"log": {"level": "info", "format": "json"}, "workers": workers,
                "timeouts": {"handshake": "30s", "connect": "30s", "drain": "30s"},
                "limits": {"connections": 20000, "handshakes_per_source": 1000000, "strangers": 1000000, "handshakes": 10000}, **more}
        self.ingress = self.proxy("ingress", {**base, "tls": {**self.pki.identity("server"), "policy": POLICY},
                                              "ingress": [{"name": "in", "listen": f"127.0.0.1:{inside}", "forward": f"127.0.0.1:{target}"}]})
        self.egress = self.proxy("egress", {**base, "tls": {**self.pki.identity("client"), "policy": POLICY}, "egress": [
            {"name": name, "listen": f"127.0.0.1:{port}", "connect": f"127.0.0.1:{inside}", "peers": ["server.example"], **ROUTES[name]}
            for name, port in self.ports.items()]})
        self.both = (self.ingress, self.egress)

    def program(self, *args):
        self.programs.append(Program(self.build, self.folder / f"streams.{len(self.programs)}", *args))
        return self.programs[-1]

    def proxy(self, name, config):
        p = Proxy(self.pqplane, self.folder, name, config)
        self.proxies.append(p)
        return p

    def load(self, *args, routes=None):
        to = ",".join(str(self.ports[r]) for r in routes or self.ports)
        return self.program("load", "--to", to, "--seed", len(self.programs), *args)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.proxies:
            p.kill()
        for p in self.programs:
            p.end()


def whole(totals, count=None):
    bad = {k: v for k, v in totals.items() if k in ("refused", "cut", "short", "wrong", "stuck", "open") and v}
    check(not bad, f"not all streams were whole: {totals}")
    check(count is None or totals["whole"] == count, f"{count} streams were wanted: {totals}")


# --- the long one ---------------------------------------------------------------------------------------------------


class Soak:
    def __init__(self, build, folder, seconds, say, seed=1):
        self.seconds, self.say = seconds, say
        self.dice = random.Random(seed)
        self.stage = Stage(build, folder, workers=2, routes=("tunnel", "connection"), tunnel={"connections": 2, "max_age": "20s"})
        self.kills = []  # (when, until when), ns
        self.done = {}  # actions, counted
        self.memory = []
        self.reloads = all(p.catches(signal.SIGHUP) for p in self.stage.both)
        self.upgrades = all(p.catches(signal.SIGUSR2) for p in self.stage.both)

    def count(self, what):
        self.done[what] = self.done.get(what, 0) + 1

    # --- what an operator does --------------------------------------------------------------------------------------
    def rotate(self):
        """New certificates in place of the old: by rename, or under a link that is pointed elsewhere."""
        n = self.done.get("rotations", 0)
        for name, proxy in (("server", self.stage.ingress), ("client", self.stage.egress)):
            fresh = self.stage.pki.issue(f"{name}.{n}", dns=f"{name}.example")
            for kind in ("key", "certificate"):
                at = pathlib.Path(proxy.config["tls"][kind])
                new = at.with_name(at.name + ".new")
                if n % 2:
                    new.symlink_to(fresh[kind])
                else:
                    new.touch(mode=0o600)
                    new.write_bytes(pathlib.Path(fresh[kind]).read_bytes())
                os.replace(new, at)
            proxy.send(signal.SIGHUP)
        self.count("rotations")

    def reload(self):
        """Limits change, a listener comes and goes."""
        for p in self.stage.both:
            p.config["limits"]["handshakes"] = 9000 + self.dice.randrange(1000)
            p.config["timeouts"]["idle"] = f"{self.dice.randrange(200, 400)}s"
        routes = self.stage.egress.config["egress"]
        if routes[-1]["name"] == "passing":
            routes.pop()
        else:
            routes.append({**routes[0], "name": "passing", "listen": f"127.0.0.1:{free_port()}"})
        for p in self.stage.both:
            p.write()
            p.send(signal.SIGHUP)
        self.count("reloads")

    def reload_wrongly(self):
        """A file that is no YAML, a key of somebody else, one that is not there: refused, and served on."""
        p = self.dice.choice(self.stage.both)
        other = "client" if p is self.stage.ingress else "server"
        wrong = self.dice.choice(["tls: [", json.dumps({**p.config, "tls": {**p.config["tls"], "key": self.stage.pki.file(f"{other}.key")}}),
                                  json.dumps({**p.config, "tls": {**p.config["tls"], "ca": "/nowhere/root.crt"}})])
        before = len([line for line in p.log() if line["level"] in ("warn", "error")])
        p.write(wrong)
        p.send(signal.SIGHUP)
        until(lambda: len([line for line in p.log() if line["level"] in ("warn", "error")]) > before, "a bad reload's refusal in the log")
        p.write()
        p.send(signal.SIGHUP)
        self.count("bad reloads")

    def upgrade(self):
        p = self.dice.choice(self.stage.both)
        old = p.supervisors()
        p.send(signal.SIGUSR2)
        until(lambda: set(p.supervisors()) - set(old), f"a new process of {p.name}", 60)
        until(lambda: not set(p.supervisors()) & set(old), f"the retirement of the old process of {p.name}", 120)
        self.count("upgrades")

    # --- what happens to him ----------------------------------------------------------------------------------------
    def kill_worker(self):
        p = self.dice.choice(self.stage.both)
        workers = p.workers()
        if workers:
            now = time.monotonic_ns()
            os.kill(self.dice.choice(workers), signal.SIGKILL)
            until(lambda: len(p.workers()) >= 2, "a worker in the dead one's place", 60)
            self.kills.append((now, time.monotonic_ns()))
            self.count("killed workers")

    def kill_peer(self):
        p = self.dice.choice(self.stage.both)
        now = time.monotonic_ns()
        p.kill()
        p.start()
        self.kills.append((now, time.monotonic_ns()))
        self.count("killed peers")

    # --- the run ----------------------------------------------------------------------------------------------------
    def rest(self, seconds):
        time.sleep(max(0, seconds))

    def sample(self):
        """Memory with no stream open, so that two samples can be compared."""
        self.load.totals("pause")
        self.memory.append(sum(p.memory() for p in self.stage.both))
        self.load.say("go")

    def phase(self, seconds, plan, sample_every=None):
        """plan: {action: every so many seconds}"""
        start = time.monotonic()
        due = {action: start + every * (0.5 + 0.5 * self.dice.random()) for action, every in plan.items()}
        next_sample = start + sample_every if sample_every else float("inf")
        while time.monotonic() < start + seconds:
            check(self.load.process.poll() is None, "the client ended early")
            for action, at in due.items():
                if time.monotonic() >= at:
                    action()
                    due[action] = time.monotonic() + plan[action]
            if time.monotonic() >= next_sample:
                self.sample()
                next_sample = time.monotonic() + sample_every
            self.rest(0.1)

    def run(self):
        s = self.stage
        self.load = s.load("--streams", 40, "--most", 1 << 20, "--slow", 20)
        self.load.totals("pause")  # what exists at the start
        start = [p.descriptors() for p in s.both]
        self.load.say("go")
        operator = {self.rotate: 10, self.reload: 7, self.reload_wrongly: 13} if self.reloads else {}
        self.phase(self.seconds * 0.5, operator, sample_every=max(4, self.seconds / 60))
        self.judge_memory()
        if self.upgrades:
            self.phase(self.seconds * 0.15, {**operator, self.upgrade: max(10, self.seconds / 40)})
        self.phase(self.seconds * (0.35 if self.upgrades else 0.5),
                   {**operator, **({self.upgrade: 45} if self.upgrades else {}), self.kill_worker: 6, self.kill_peer: 20})
        self.load.totals("pause")
        until(lambda: s.server.totals("so far")["open"] == 0, "the end of all streams at the function", 90)
        if self.stage.egress.config["egress"][-1]["name"] == "passing":
            self.reload()
        self.judge_descriptors(start)
        self.load.say("stop")
        client, server = self.load.wait(60), s.server.totals("so far")
        self.judge_streams(client, server)
        for p in s.both:
            p.stop()
        built = "" if self.reloads and self.upgrades else f" (reloads: {'yes' if self.reloads else 'not there yet'}, upgrades: {'yes' if self.upgrades else 'not there yet'})"
        return f"{client['whole']} streams and {(client['bytes'] + server['bytes']) / 1e9:.2f} GB whole, {client['cut'] + client['refused']} cut by kills; " \
               f"{', '.join(f'{v} {k}' for k, v in self.done.items())}; memory {self.memory_text}{built}"

    def judge_memory(self):
        samples = self.memory[len(self.memory) // 3 :]
        half = len(samples) // 2
        check(half >= 2, f"too few samples of memory: {self.memory}")
        early, late = statistics.median(samples[:half]), statistics.median(samples[half:])
        self.memory_text = f"{early:.0f} KiB, then {late:.0f} KiB ({100 * (late / early - 1):+.1f} %)"
        check(late <= 1.05 * early, f"memory grows: {self.memory} KiB")

    def judge_descriptors(self, start):
        for p, was in zip(self.stage.both, start):
            try:
                until(lambda: max(p.descriptors()) <= max(was) + 2, "as many as at the start", 60)
            except AssertionError:
                raise Failed(f"{p.name}: descriptors by worker {p.descriptors()}, at the start {was}") from None

    def judge_streams(self, client, server):
        unexplained = [line for side in (self.load, self.stage.server) for line in side.failures()
                       if line["outcome"] not in ("cut", "refused")
                       or not any(line["began"] <= end + 2e9 and k <= line["ended"] <= end + GRACE * 1e9 for k, end in self.kills)]
        check(not unexplained, f"{len(unexplained)} streams that no kill explains: {unexplained[:3]}, kills {self.kills[-5:]}")
        check(client["whole"] > 0 and client["open"] == 0, f"{client}")


# --- the short ones -------------------------------------------------------------------------------------------------


def kills(build, folder, tries, say):
    """Ten streams a round, which never end by themselves; a round's victim dies with SIGKILL."""
    victims = [("egress", "worker"), ("ingress", "worker"), ("egress", "all"), ("ingress", "all")]
    done, each = 0, 10
    with Stage(build, folder) as s:
        for n in range((tries + each - 1) // each):
            who, what = victims[n % len(victims)]
            proxy = getattr(s, who)
            before = len(s.server.failures())
            load = s.load("--streams", each, "--count", each, "--up", 1 << 50, "--down", 1 << 50, "--kind", "both")
            until(lambda: s.server.totals("so far")["open"] == each, f"{each} streams at the function", 60)
            time.sleep(0.1)
            if what == "all":
                proxy.kill()
            else:
                for pid in proxy.workers():
                    os.kill(pid, signal.SIGKILL)
            load.wait(60)
            ends = until(lambda: len(s.server.failures()) - before >= each and load.failures() + s.server.failures()[before:],
                         "errors at the function", 30)
            check(len(ends) == 2 * each and all(e["outcome"] == "cut" for e in ends), f"{who} {what} killed: {[(e['side'], e['outcome'], e['error']) for e in ends]}")
            done += each
            # A killed worker's place is taken again only after a growing while.
            proxy.kill()
            proxy.start()
    return f"{done} of {done} streams ended with an error at both ends"


def last_byte(build, folder, tries, say):
    with Stage(build, folder) as s:
        load = s.load("--streams", 20, "--count", tries, "--up", 100, "--down", 300_000, "--slow", 100, "--kind", "at-once")
        whole(load.wait(300), tries)
        whole(s.server.totals("so far"), tries)
    return f"{tries} of {tries} slow readers got the last byte"


def bulk(build, folder, size, say):
    texts = []
    for route in ("tunnel", "connection"):
        with Stage(build, folder / route, routes=(route,)) as s:
            warm = s.load("--streams", 1, "--count", 1, "--up", 1000, "--down", 1000, "--kind", "both")
            whole(warm.wait(60), 1)
            start = time.monotonic()
            whole(s.load("--streams", 1, "--count", 1, "--up", size, "--down", size, "--kind", "both").wait(1800), 1)
            took = time.monotonic() - start
            most = {p.name: max(memory(w, "VmHWM") for w in p.workers()) for p in s.both}
            texts.append(f"{route}: {2 * size / took / 1e9:.2f} GB/s, peak {most} KiB")
            check(max(most.values()) < 32 << 10, f"a worker took more than 32 MiB: {most} KiB")
    return "; ".join(texts)


def many(build, folder, size, say, count=1000):
    """size: of all together. Each proxy's memory, over what it had before, is divided among the connections."""
    texts = []
    for route in ("tunnel", "connection"):
        with Stage(build, folder / route, routes=(route,)) as s:
            warm = s.load("--streams", 1, "--count", 1, "--up", 1000, "--down", 1000, "--kind", "both")
            whole(warm.wait(60), 1)
            before = {p.name: p.memory("VmRSS") for p in s.both}
            load = s.load("--streams", count, "--count", count, "--up", size // count, "--down", size // count, "--kind", "both")
            most = dict(before)
            while load.process.poll() is None:
                for p in s.both:
                    most[p.name] = max(most[p.name], p.memory("VmRSS"))
                time.sleep(0.05)
            whole(load.wait(1), count)
            each = {name: (most[name] - before[name]) / count for name in most}
            texts.append(f"{route}: {', '.join(f'{name} {kib:.0f} KiB each' for name, kib in each.items())}")
            check(max(each.values()) <= 160, f"memory of each of {count} connections: {each} KiB")
    return "; ".join(texts)


def soak(build, folder, seconds, say):
    one = Soak(build, folder, seconds, say)
    with one.stage:
        return one.run()


CHECKS = {"soak": (soak, 1800), "kills": (kills, 200), "last-byte": (last_byte, 200), "bulk": (bulk, 10_000_000_000), "many": (many, 10_000_000_000)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("check", nargs="*")
    p.add_argument("--seconds", type=int, default=1800, help="of the check named soak (1800)")
    p.add_argument("--keep", help="folder for logs and files; without it they are removed")
    a = p.parse_args()
    passed = failed = 0
    for name in a.check or CHECKS:
        if name not in CHECKS:
            p.error(f"there is no check {name}")
        run, amount = CHECKS[name]
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as tmp:
            folder = pathlib.Path(a.keep or tmp) / name
            os.chmod(tmp, 0o755)
            try:
                text = run(a.build.resolve(), folder, a.seconds if name == "soak" else amount, print)
                passed += 1
                print(f"ok {name}: {text} ({time.monotonic() - started:.0f} s)", flush=True)
            except AssertionError as e:
                failed += 1
                print(f"FAILED {name}: {e} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
