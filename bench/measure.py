"""What the benchmarks measure with: CPU and memory of process trees, intervals, and the lines they print.

ratio BENCH METRIC ours=X peer=NAME:Y unit=U ratio=R low=L high=H     ours / peer, with its 95 % interval
figure BENCH METRIC path=NAME value=X unit=U low=L high=H             one path by itself
goal BENCH METRIC want=LIMIT got=X met|missed                         what the project has set itself
note BENCH TEXT

METRIC of a ratio starts with which of ours it is: tunnel.added_median. Intervals come from resampling rounds (bootstrap),
where both paths were measured in the same ones, so that a drifting machine cancels out.
"""

import json
import os
import pathlib
import random
import statistics
import time


def tree(pid):
    """The process and all that descend from it."""
    found = [pid]
    for p in found:
        try:
            tasks = os.listdir(f"/proc/{p}/task")
        except FileNotFoundError:
            continue
        for t in tasks:
            try:
                found += [int(c) for c in pathlib.Path(f"/proc/{p}/task/{t}/children").read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                pass
    return found


def trees(roots):
    return [p for root in roots for p in tree(root)]


def cpu_ns(roots):
    """CPU time of the trees with all their threads: the clock that clock_getcpuclockid(3) names."""
    total = 0
    for pid in trees(roots):
        try:
            total += time.clock_gettime_ns((~pid << 3) | 2)
        except OSError:  # it ended meanwhile
            pass
    return total


def memory_bytes(roots):
    """Memory that the trees have to themselves; what they share is divided among them (Pss)."""
    total = 0
    for pid in trees(roots):
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def pin(roots, cpus):
    for pid in trees(roots):
        for tid in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(tid), cpus)


def bootstrap(statistic, count, seed=1, draws=2000):
    """(low, high) of statistic(rounds) over resampled rounds."""
    rng = random.Random(seed)
    seen = sorted(statistic([rng.randrange(count) for _ in range(count)]) for _ in range(draws))
    return seen[int(0.025 * draws)], seen[int(0.975 * draws) - 1]


def number(x):
    return f"{x:.4g}" if abs(x) < 1000 else f"{x:.0f}"


class Report:
    """Prints each line as soon as it is known, and keeps them for --json."""

    def __init__(self, bench=""):
        self.bench, self.rows = bench, []

    def add(self, row, line):
        self.rows.append({"kind": line.split()[0], "bench": self.bench, **row})
        print(line, flush=True)

    def ratio(self, metric, ours, name, peer, unit, of=statistics.median):
        """ours and peer are figures of the same rounds, or one each."""
        a, b = of(ours), of(peer)
        one = lambda pick: safe(of([ours[i] for i in pick]), of([peer[i] for i in pick]))
        low, high = bootstrap(one, len(ours)) if len(ours) > 1 else (safe(a, b), safe(a, b))
        row = {"metric": metric, "ours": a, "peer": name, "peer_value": b, "unit": unit, "ratio": safe(a, b), "low": low,
               "high": high, "rounds": [ours, peer]}
        self.add(row, f"ratio {self.bench} {metric} ours={number(a)} peer={name}:{number(b)} unit={unit} "
                      f"ratio={safe(a, b):.3f} low={low:.3f} high={high:.3f}")
        return safe(a, b)

    def figure(self, metric, path, values, unit, of=statistics.median):
        values = values if isinstance(values, list) else [values]
        value = of(values)
        low, high = bootstrap(lambda pick: of([values[i] for i in pick]), len(values)) if len(values) > 1 else (value, value)
        self.add({"metric": metric, "path": path, "value": value, "unit": unit, "low": low, "high": high, "rounds": values},
                 f"figure {self.bench} {metric} path={path} value={number(value)} unit={unit} low={number(low)} high={number(high)}")
        return value

    def goal(self, metric, want, got, met):
        self.add({"metric": metric, "want": want, "got": got, "met": bool(met)},
                 f"goal {self.bench} {metric} want={want} got={number(got)} {'met' if met else 'missed'}")

    def note(self, text):
        self.add({"text": text}, f"note {self.bench} {text}")

    def save(self, path):
        pathlib.Path(path).write_text(json.dumps(self.rows, indent=1))


def safe(a, b):
    return a / b if b else float("nan")
