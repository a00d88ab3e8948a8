"""Makes results.json files for the tests of `pqplane report`. The figures are drawn by a random generator: they are TEST
INPUT, say so in every text, and are nobody's measurement.

    python3 tests/system/report_test_inputs.py FOLDER [KIND]      KIND: plain (default), hostile, large, incomplete
"""

import json
import math
import pathlib
import random
import sys

NOTE = "TEST INPUT: these figures were drawn by a random generator; nothing was measured."

EXPERIMENT = """\
name: sbi-sidecar
title: "TEST INPUT: a sidecar beside SBI network functions"
why: What does a post-quantum sidecar add to an SBI request?
interface: sbi
factors:
  deployment: [none, native-tls, sidecar-classical, sidecar-hybrid, sidecar-pqc]
  connection: [kept, new]
  option: [standard, nagle]
  ca: {values: [mldsa44, mldsa87], when: {deployment: [sidecar-hybrid, sidecar-pqc]}}
exclude:
  - {option: [nagle], deployment: [none, native-tls, sidecar-hybrid]}
repetitions: 20
metrics: [request_ms, tls_ms, cpu_us_per_request.ingress, wire_bytes]
questions:
  - ask: Does a post-quantum sidecar cost a request on a kept connection less than 5 % more than a classical one?
    ratio:
      of: {metric: request_ms, cell: {deployment: sidecar-pqc, connection: kept, option: standard, ca: mldsa44}}
      to: {metric: request_ms, cell: {deployment: sidecar-classical, connection: kept, option: standard}}
    at_most: 1.05
    or_contains: 1
    holds: On a kept connection the post-quantum sidecar costs a request no more than the classical one.
  - ask: Does a new connection cost less than 1 ms more with post-quantum cryptography?
    difference:
      metric: request_ms
      cell: {deployment: sidecar-pqc, connection: new, option: standard, ca: mldsa44}
      minus: {deployment: sidecar-classical}
    at_most: 1
    fails: A new connection costs more than 1 ms more.
    because: The chain of certificates is longer.
  - ask: Which of the options reaches the published overhead?
    reaches:
      published: overhead_over_classical_ms
      within_factor: 2
      options:
        - name: Nagle's algorithm on
          difference: {metric: request_ms, cell: {deployment: sidecar-pqc, connection: new, option: nagle, ca: mldsa44}, minus: {deployment: sidecar-classical, option: standard}}
        - name: as it comes
          difference: {metric: request_ms, cell: {deployment: sidecar-pqc, connection: new, option: standard, ca: mldsa44}, minus: {deployment: sidecar-classical}}
  - ask: Does the certification authority's algorithm matter on a kept connection?
    varies:
      metric: request_ms
      cells:
        - {deployment: sidecar-pqc, connection: kept, option: standard, ca: mldsa44}
        - {deployment: sidecar-pqc, connection: kept, option: standard, ca: mldsa87}
      labels: [ML-DSA-44, ML-DSA-87]
  - ask: What does IPsec cost?
    difference: {metric: request_ms, cell: {deployment: ipsec, connection: kept, option: standard}, minus: {deployment: none}}
    at_most: 1
"""

PUBLISHED = """\
# Invented for tests.
title: "TEST INPUT: a study that does not exist"
source: nowhere
baseline: classical_latency_ms
classical_latency_ms: 6
sbi_latency_ms: 54
overhead_over_classical_ms: [48, 49]
claims: [none]
"""

BASE_MS = {"none": 0.31, "native-tls": 0.36, "sidecar-classical": 0.52, "sidecar-hybrid": 0.53, "sidecar-pqc": 0.53}
NEW_MS = {"none": 0.9, "native-tls": 2.4, "sidecar-classical": 3.6, "sidecar-hybrid": 4.6, "sidecar-pqc": 5.1}


def cells():
    for deployment in BASE_MS:
        for connection in ("kept", "new"):
            for option in ("standard", "nagle"):
                if option == "nagle" and deployment in ("none", "native-tls", "sidecar-hybrid"):
                    continue
                for ca in ("mldsa44", "mldsa87") if deployment in ("sidecar-hybrid", "sidecar-pqc") else (None,):
                    factors = {"deployment": deployment, "connection": connection, "option": option}
                    if ca:
                        factors["ca"] = ca
                    yield factors


def metric(rng, unit, median, spread, rounds, per_round, whole=False):
    samples, numbers, at = [], [], []
    for r in range(rounds):
        drift = rng.gauss(0, spread / 4)
        for i in range(per_round):
            v = median * math.exp(rng.gauss(drift, spread))
            if rng.random() < 0.01:
                v *= 1 + rng.random() * 3
            samples.append(round(v) if whole else round(v, 6))
            numbers.append(r)
            at.append(round(r * 1000 + i * 2.5, 3))
    return {"unit": unit, "samples": samples, "rounds": numbers, "at_ms": at}


def cell(rng, factors, rounds, requests):
    kept = factors["connection"] == "kept"
    ms = (BASE_MS if kept else NEW_MS)[factors["deployment"]]
    if factors.get("ca") == "mldsa87" and not kept:
        ms *= 1.2
    if factors["option"] == "nagle":
        ms += 41 if not kept else 0.05
    n = requests if kept else max(1, requests // 10)
    metrics = {"request_ms": metric(rng, "ms", ms, 0.12, rounds, n)}
    if not kept and factors["deployment"] != "none":
        metrics["tls_ms"] = metric(rng, "ms", ms * 0.6, 0.1, rounds, n)
    metrics["cpu_us_per_request.ingress"] = metric(rng, "us", 120 * ms, 0.05, rounds, 1)
    metrics["wire_bytes"] = metric(rng, "bytes", 2600 if kept else 21000, 0.0, rounds, 1, whole=True)
    errors = [{"reason": "reset-by-peer", "count": 2}] if factors["option"] == "nagle" else []
    return {"factors": factors, "metrics": metrics, "errors": errors}


def results(seed=7, rounds=20, requests=100, complete=True):
    rng = random.Random(seed)
    return {
        "schema": 1, "pqplane": "0.0.0-test-input", "seed": seed,
        "started": "2026-01-01T00:00:00.000Z", "finished": "2026-01-01T00:10:00.000Z" if complete else "",
        "complete": complete, "quick": False,
        "experiment": {"name": "sbi-sidecar", "text": EXPERIMENT,
                       "published": {"file": "published/test-input.yaml", "text": PUBLISHED}},
        "host": {"cpu": "TEST INPUT, no such processor", "cores": 2, "kernel": "0.0", "memory_kib": 16384000,
                 "distribution": "none", "virtual": True},
        "libraries": {"openssl": "0.0.0", "nghttp2": "0.0.0"},
        "command": "pqplane lab run experiments/sbi-sidecar.yaml --seed 7 --out results/sbi",
        "rounds": rounds,
        "cells": [cell(rng, f, rounds, requests) for f in cells()],
        "calibration": [{"round": r, "at_ms": r * 1000.0, "work_ms": round(12 * math.exp(rng.gauss(0, 0.01)), 4),
                         "steal_ms": round(rng.random() * 0.2, 3)} for r in range(rounds)],
        "notes": [NOTE],
    }


HOSTILE = [
    "<script>alert(1)</script>", "\"><img src=x onerror=alert(2)>", "'; DROP TABLE x; --", "`id` $(id) $HOME",
    "a\nb\r\nc\td", "\u202egnp.exe\u202c \u2066x\u2069", "\u0000".replace("\u0000", "\u0001\u001b[31mred\u001b[0m\u0007\u009b2J"),
    "@x^y_{z} {/=40 big} \\n \\\\ %s %n %d", "=1+1", "+1", "-1", "@SUM(A1)", "</title></svg><svg onload=alert(3)>",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627", "PQ0Q", "]]>--><!--", "&lt;b&gt;&amp;", "javascript:alert(4)",
    "EOD\nsystem(\"touch /tmp/owned\")\n", "x" * 10240, "\U0001f600 \ufeff\u200b", "https://example.com/\" onclick=\"alert(5)",
]


def hostile(seed=7):
    r = results(seed, rounds=5, requests=10)
    r["cells"] = []
    rng = random.Random(seed)
    for i, name in enumerate(HOSTILE):
        r["cells"].append({
            "factors": {"deployment": name, HOSTILE[(i * 0)]: HOSTILE[(i + 1) % len(HOSTILE)]},
            "metrics": {"request_ms": metric(rng, HOSTILE[0], 1 + i, 0.1, 5, 8),
                        HOSTILE[1]: metric(rng, HOSTILE[8], 3 + i, 0.1, 5, 12)},
            "errors": [{"reason": name, "count": i}]})
    r["notes"] = HOSTILE
    r["command"] = " ".join(HOSTILE[:8])
    r["host"] = {n: n for n in HOSTILE}
    r["libraries"] = {n: n for n in HOSTILE}
    r["started"] = HOSTILE[0]
    r["pqplane"] = HOSTILE[1]
    text = json.dumps({"name": "x", "title": HOSTILE[0] + HOSTILE[12], "why": HOSTILE[1], "questions": [
        {"ask": HOSTILE[0], "holds": HOSTILE[1], "fails": HOSTILE[1], "because": HOSTILE[12],
         "varies": {"metric": "request_ms", "labels": [HOSTILE[0], HOSTILE[1]],
                    "cells": [c["factors"] for c in r["cells"][:2]]}}]})
    published = json.dumps({"title": HOSTILE[0], "source": HOSTILE[17], "url": HOSTILE[21],
                            "group " + HOSTILE[1]: {"unit": HOSTILE[0], "where": HOSTILE[12], HOSTILE[0]: 3, "what": HOSTILE[0]}})
    r["experiment"] = {"name": HOSTILE[0], "text": text, "published": {"file": HOSTILE[1], "text": published}}
    return r


KINDS = {
    "plain": lambda: results(),
    "again": lambda: results(seed=8),
    "hostile": hostile,
    "large": lambda: results(requests=300),
    "incomplete": lambda: results(rounds=2, complete=False),
}


def write(folder, content):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(content, ensure_ascii=False))
    return folder


if __name__ == "__main__":
    write(sys.argv[1], KINDS[sys.argv[2] if len(sys.argv) > 2 else "plain"]())
