#!/usr/bin/env python3
"""The harness's own cost: the same path without sidecars and TLS. bench/harness.py RESULTS.json"""

import json
import statistics
import sys

for cell in json.load(open(sys.argv[1]))["cells"]:
    factors = cell["factors"]
    if factors.get("deployment") != "none":
        continue
    for name in ("request_ms", "first_request_ms", "cpu_us_per_request.consumer", "cpu_us_per_request.producer"):
        samples = cell["metrics"].get(name, {}).get("samples")
        if samples:
            print(f"harness connection={factors['connection']} {name} median={statistics.median(samples):.4f} n={len(samples)}")
