"""The benchmark's own parts: its smallest relay carries what it shall, its lines have their form, its statistics are right."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

from proxy_peers import until

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "bench"))
import measure  # noqa: E402


@pytest.fixture
def build(pqplane):
    return pathlib.Path(pqplane).resolve().parents[2]


def test_the_floor_carries_every_byte_and_end(build, start, tmp_path, free_port):
    with open(tmp_path / "port", "wb") as out:
        server = subprocess.Popen([build / "tests/soak/streams", "serve"], stdin=subprocess.PIPE, stdout=out)
    try:
        target = until(lambda: (tmp_path / "port").read_text(), "the function").split()[1]
        inside, outside = free_port(), free_port()
        start([build / "bench/floor", inside, target], ready=False)
        start([build / "bench/floor", outside, inside], ready=False)

        def load():
            argv = [build / "tests/soak/streams", "load", "--to", str(outside), "--streams", "30", "--count", "300", "--slow", "10"]
            r = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
            return json.loads(r.stdout.splitlines()[-1])["whole"] == 300

        until(load, "all streams whole")
    finally:
        server.kill()
        server.wait()
        server.stdin.close()


NUMBER = r"-?(\d+(\.\d+)?(e[+-]\d+)?|nan)"
FORMS = {
    "ratio": rf"ratio \S+ \S+ ours={NUMBER} peer=\S+:{NUMBER} unit=\S+ ratio={NUMBER} low={NUMBER} high={NUMBER}",
    "figure": rf"figure \S+ \S+ path=\S+ value={NUMBER} unit=\S+ low={NUMBER} high={NUMBER}",
    "goal": rf"goal \S+ \S+ want=\S+ got={NUMBER} (met|missed)",
    "note": r"note \S+ .+",
}


def test_lines_of_a_quick_run(build, tmp_path):
    r = subprocess.run([TOP / "bench/relay.py", build, "--quick", "--json", tmp_path / "out.json", "sequential"],
                       capture_output=True, text=True, timeout=200)
    assert r.returncode == 0, r.stdout + r.stderr
    lines = r.stdout.splitlines()
    for line in lines:
        assert re.fullmatch(FORMS[line.split()[0]], line), line
    for ours in ("tunnel", "connection"):
        for peer in ("floor", "nginx", "haproxy", "nghttpx"):
            assert any(line.startswith(f"ratio sequential {ours}.added_median ") and f" peer={peer}:" in line for line in lines)
    assert len(json.loads((tmp_path / "out.json").read_text())) == len(lines)


def test_every_server_does_the_same_handshake(build):
    r = subprocess.run([TOP / "bench/relay.py", build, "--quick", "handshake"], capture_output=True, text=True, timeout=200)
    assert r.returncode == 0, r.stdout + r.stderr
    assert "ratio handshake full.server_cpu" in r.stdout


def test_intervals(capsys):
    report = measure.Report("part")
    assert report.ratio("a.b", [2.0, 4.0, 6.0], "peer", [1.0, 2.0, 3.0], "us") == 2
    assert "ratio=2.000 low=2.000 high=2.000" in capsys.readouterr().out, "rounds are resampled together"
    report.figure("b", "a", [1.0, 1.0, 1.0, 9.0, 9.0], "us")
    assert report.rows[-1]["low"] == 1 and report.rows[-1]["high"] == 9
    report.figure("c", "a", 3, "us")
    assert (report.rows[-1]["low"], report.rows[-1]["high"]) == (3, 3)


def test_cpu_and_memory_of_a_tree():
    """A shell whose child burns a known amount, as its own clock tells it."""
    burn = "import time, sys\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass\nprint('done', flush=True)\nsys.stdin.read()"
    p = subprocess.Popen(["sh", "-c", f'"$0" -c "{burn}"; true', sys.executable], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert p.stdout.readline() == "done\n"
        assert len(measure.tree(p.pid)) == 2
        assert 0.5e9 <= measure.cpu_ns([p.pid]) < 2e9
        assert measure.memory_bytes([p.pid]) > 1 << 20
    finally:
        p.communicate()
