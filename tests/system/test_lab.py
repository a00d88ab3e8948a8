"""pqplane lab: experiments run end to end, and nothing of a run outlives it, however it ends."""

import fcntl
import json
import os
import pathlib
import pty
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
import uuid

import pytest

TWO_CELLS = """
name: two
why: does it run
interface: sbi
factors: {deployment: [none, sidecar-pqc], connection: [new]}
load: {requests: 20, new_connections: 5, warmup: 1, new_warmup: 1}
repetitions: 2
metrics: [first_request_ms, tcp_ms, tls_ms, chain_ms, http_ms, memory_handshake_ms, cpu_us_per_request.consumer,
  cpu_us_per_request.producer, cpu_us_per_request.egress, cpu_us_per_request.ingress, peak_rss_kib.producer,
  peak_rss_kib.egress, peak_rss_kib.ingress, wire_bytes]
questions: []
"""
# A visit of some seconds, so that a test can do something to it.
LONG = """
name: long
why: to be interrupted
interface: sbi
factors: {deployment: [none, sidecar-classical], connection: [kept]}
load: {requests: 100000, warmup: 1}
repetitions: 50
metrics: [request_ms, cpu_us_per_request.producer]
"""


def namespaces_or_skip():
    if subprocess.run(["unshare", "-n", "-p", "-m", "-f", "true"], capture_output=True).returncode and \
       subprocess.run(["unshare", "-U", "-r", "-n", "-p", "-m", "-f", "true"], capture_output=True).returncode:
        pytest.skip("neither root nor user namespaces here: the lab can't make its hosts")


def wait_until(condition, what, seconds=30):
    """There is no event to wait for where the kernel ends processes or a run starts them: so look, often, for a limited time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.005)
    pytest.fail(f"{what}: not within {seconds} s")


class Run:
    """One run, its processes marked by an environment variable that all of them inherit."""

    def __init__(self, pqplane, folder, text, *options, prefix=(), user=None):
        self.folder = pathlib.Path(folder)
        self.mark = f"PQPLANE_TEST_MARK={uuid.uuid4()}"
        self.file = self.folder / "experiment.yaml"
        self.file.write_text(text)
        self.out = self.folder / "out"
        name, value = self.mark.split("=")
        self.log = open(self.folder / "log", "w+b")
        self.process = subprocess.Popen(
            [*prefix, pqplane, "lab", "run", str(self.file), "--out", str(self.out), *options],
            env={**os.environ, name: value}, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def end(self, seconds=120):
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return status

    def text(self):
        return (self.folder / "log").read_text(errors="replace")

    def results(self):
        return json.loads((self.out / "results.json").read_text())

    def pids(self, *words):
        """Living processes of the run whose command line holds all words."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if self.mark.encode() not in (entry / "environ").read_bytes().split(b"\0"):
                    continue
                line = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if line != [b""] and all(w.encode() in line for w in words):
                found.append(int(entry.name))
        return found

    def network_namespaces(self):
        own = os.readlink("/proc/self/ns/net")
        return {n for n in (link(p) for p in self.pids()) if n and n != own}


def link(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def processes_by_space():
    """Network namespace: its processes, each with its start time, so that a number used again is another process."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                started = (entry / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()[19]
            except OSError:
                continue
            found.setdefault(link(entry.name), set()).add((entry.name, started))
    return found


def links_here():
    """Interfaces and named namespaces that a run might leave."""
    interfaces = {l.split()[0] for l in subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout.splitlines()}
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    return interfaces, names


@pytest.fixture
def run(pqplane, tmp_path):
    namespaces_or_skip()
    runs = []

    def start(text, *options, **named):
        folder = named.pop("folder", None) or tmp_path / str(len(runs))
        folder.mkdir(exist_ok=True)
        runs.append(Run(pqplane, folder, text, *options, **named))
        return runs[-1]

    before = links_here()
    yield start
    for r in runs:
        if r.process.poll() is None:
            r.process.kill()
            r.process.wait()
        wait_until(lambda: not r.pids(), "the end of every process of the run")
    assert links_here() == before


def cell(results, **factors):
    return next(c for c in results["cells"] if c["factors"] == factors)


def test_two_cells_end_to_end(run, pqplane):
    r = run(TWO_CELLS, "--seed", "7")
    assert r.end() == 0, r.text()
    d = r.results()
    assert d["schema"] == 1 and d["complete"] is True and d["quick"] is False
    assert d["seed"] == 7 and d["rounds"] == 2 and d["experiment"]["text"] == TWO_CELLS and d["experiment"]["published"] is None
    assert d["command"] == f"pqplane lab run --seed 7 {r.file}" and d["libraries"]["openssl"].startswith("3.") and d["host"]["cores"] >= 1
    assert [c["round"] for c in d["calibration"]] == [1, 2] and all(c["work_ms"] > 0 for c in d["calibration"])
    assert len(d["cells"]) == 2 and not any(c["errors"] for c in d["cells"]), d["cells"]
    for c in d["cells"]:
        for name, m in c["metrics"].items():
            assert len(m["samples"]) == len(m["rounds"]) == len(m["at_ms"]) > 0, name
            assert set(m["rounds"]) == {1, 2}, name
            assert m["unit"] in ("ms", "us", "KiB", "B")
    none = cell(d, deployment="none", connection="new")["metrics"]
    pqc = cell(d, deployment="sidecar-pqc", connection="new")["metrics"]
    for name in ("first_request_ms", "tcp_ms", "http_ms"):
        assert len(none[name]["samples"]) == len(pqc[name]["samples"]) == 10, name
    assert "tls_ms" not in none and "memory_handshake_ms" not in none and "cpu_us_per_request.egress" not in none
    assert len(pqc["tls_ms"]["samples"]) == len(pqc["chain_ms"]["samples"]) == 10
    assert len(pqc["memory_handshake_ms"]["samples"]) == 20
    for total, tcp, tls, http in zip(*(pqc[n]["samples"] for n in ("first_request_ms", "tcp_ms", "tls_ms", "http_ms"))):
        assert abs(total - tcp - tls - http) < 1e-3 and min(tcp, tls, http) > 0
    # Two ML-DSA chains and signatures cross the wire: far more than the plain request.
    assert min(pqc["wire_bytes"]["samples"]) > min(none["wire_bytes"]["samples"]) + 15000
    report = subprocess.run([pqplane, "report", str(r.out)], capture_output=True, text=True)
    assert report.returncode == 0, report.stderr


def test_costs_do_not_count_the_connection_of_a_kept_request(run):
    r = run(TWO_CELLS.replace("[new]", "[kept]").replace("requests: 20", "requests: 300").replace("[first_request_ms,", "[request_ms,"))
    assert r.end() == 0, r.text()
    pqc = cell(r.results(), deployment="sidecar-pqc", connection="kept")["metrics"]
    assert len(pqc["request_ms"]["samples"]) == 600
    # A handshake with ML-DSA certificates is 20 kB; a request with its answer and their TLS records is about 3 kB.
    assert 2000 < min(pqc["wire_bytes"]["samples"]) and max(pqc["wire_bytes"]["samples"]) < 5000
    assert max(pqc["cpu_us_per_request.egress"]["samples"]) < 1000


ONE_CELL = """
name: one
why: quickly
interface: sbi
factors: {deployment: [none], connection: [kept]}
load: {requests: 5, warmup: 1}
repetitions: 1
quick: {load: {requests: 3}}
metrics: [request_ms]
"""


def test_no_body_bytes_asks_for_all(run):
    r = run(ONE_CELL.replace("requests: 5", "body_bytes: 0, requests: 5"))
    assert r.end() == 0, r.text()
    c = r.results()["cells"][0]
    assert c["errors"] == [] and len(c["metrics"]["request_ms"]["samples"]) == 5


@pytest.mark.parametrize("name", ["a file's name.yaml", "f\u00fcnf\\ $(x)\n'.yaml", "-x.yaml", b"\xff.yaml"])
def test_the_command_can_be_pasted(pqplane, tmp_path, name):
    namespaces_or_skip()
    path = os.path.join(os.fsencode(tmp_path), name if isinstance(name, bytes) else name.encode())
    pathlib.Path(os.fsdecode(path)).write_text(ONE_CELL)
    argv = [pqplane, "lab", "run", "--quick", "--repetitions", "2", "--out", "out", "--", name]
    first = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    assert first.returncode == 0, first.stderr
    one = json.loads((tmp_path / "out/results.json").read_text())
    # Another folder for its results is all that is added.
    line = one["command"].replace("pqplane lab run", '"$0" lab run --out again')
    again = subprocess.run(["bash", "-c", line, pqplane], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    two = json.loads((tmp_path / "again/results.json").read_text())
    for key in ("seed", "quick", "rounds", "complete", "command", "experiment"):
        assert one[key] == two[key], key
    assert two["quick"] is True and two["rounds"] == 2


def test_a_second_run_in_the_same_folder_is_refused_at_once(run):
    r = run(LONG)
    begun(r)
    other = run(ONE_CELL, folder=r.folder)
    assert other.end(10) == 1
    assert other.text().splitlines()[-1] == f"pqplane lab: another run writes to {r.out}: name another folder with --out"
    r.process.send_signal(signal.SIGINT)
    assert r.end(20) == 130
    assert sorted(p.name for p in r.out.iterdir()) == ["results.json"]
    # The lock went with the run.
    after = run(ONE_CELL, folder=r.folder)
    assert after.end() == 0, after.text()


def test_runs_of_the_same_second_have_folders_of_their_own(pqplane, tmp_path):
    namespaces_or_skip()
    (tmp_path / "one.yaml").write_text(ONE_CELL)
    argv = [pqplane, "lab", "run", "one.yaml"]
    runs = [subprocess.Popen(argv, cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(5)]
    said = [r.communicate(timeout=60)[1] for r in runs]
    assert [r.returncode for r in runs] == [0] * 5, said
    folders = list((tmp_path / "results").iterdir())
    assert len(folders) == 5
    seeds = {json.loads((f / "results.json").read_text())["seed"] for f in folders}
    assert len(seeds) == 5 and all([p.name for p in f.iterdir()] == ["results.json"] for f in folders)


def test_the_bar_never_wraps(pqplane, tmp_path):
    namespaces_or_skip()
    (tmp_path / "one.yaml").write_text(ONE_CELL)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
    p = subprocess.Popen([pqplane, "lab", "run", "one.yaml", "--out", "o"], cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    out = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the last one has closed it
            break
        if not piece:
            break
        out += piece
    os.close(master)
    assert p.wait(60) == 0
    bars = [b.split("\r")[0] for b in out.decode().split("\r\x1b[K")[1:-1]]
    assert any("1/1" in b for b in bars), out
    assert max(map(len, bars)) < 20, bars


def order_of(results):
    """The cells by round, in the order in which they were visited."""
    seen = {}
    for i, c in enumerate(results["cells"]):
        m = c["metrics"]["request_ms"]
        for rnd, at in zip(m["rounds"], m["at_ms"]):
            seen[rnd, i] = min(at, seen.get((rnd, i), at))
    return [i for (rnd, i), _ in sorted(seen.items(), key=lambda s: (s[0][0], s[1]))]


def test_the_same_seed_visits_in_the_same_order(run):
    text = """
name: order
why: reproducible
interface: sbi
factors: {deployment: [none, native-tls], connection: [kept], option: [standard, nagle, nagle-frames, window-1]}
load: {requests: 2, warmup: 1}
repetitions: 3
metrics: [request_ms]
"""
    orders = []
    for seed in ("11", "11", "12"):
        r = run(text, "--seed", seed)
        assert r.end() == 0, r.text()
        orders.append(order_of(r.results()))
    assert len(orders[0]) == 24 and orders[0] == orders[1] != orders[2]
    assert all(sorted(orders[0][i:i + 8]) == list(range(8)) for i in (0, 8, 16))


def begun(r):
    """The run is in the middle of a cell: its function and its load are there."""
    wait_until(lambda: r.process.poll() is not None or r.pids("load"), "a load of the run")
    assert r.process.poll() is None, r.text()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_it_keeps_what_was_measured(run, how):
    r = run(LONG.replace("requests: 100000", "requests: 3000"))
    wait_until((r.out / "results.json").exists, "the first round's results")
    begun(r)
    r.process.send_signal(how)
    assert r.end(20) == 130, r.text()
    d = r.results()
    assert d["complete"] is False and 1 <= d["rounds"] < 50
    assert all(set(c["metrics"]["request_ms"]["rounds"]) >= {1} for c in d["cells"])
    assert r.pids() == []
    assert sorted(p.name for p in r.out.iterdir()) == ["results.json"]


def test_interrupted_in_its_first_round(run):
    r = run(LONG)
    begun(r)
    r.process.send_signal(signal.SIGINT)
    assert r.end(20) == 130, r.text()
    assert r.results()["complete"] is False and r.results()["rounds"] == 0
    assert r.pids() == []


def test_killed_it_leaves_nothing(run):
    r = run(LONG)
    begun(r)
    spaces = r.network_namespaces()
    assert len(r.pids()) >= 4 and spaces
    old = processes_by_space()
    r.process.kill()
    r.process.wait()
    wait_until(lambda: not r.pids(), "the end of every process of the run")
    # The kernel gives a removed namespace's number to another one: only who was there before counts.
    left = {p for s in spaces for p in processes_by_space().get(s, set()) & old.get(s, set())}
    assert not left
    assert not (r.out / "results.json").exists()
    # The next run in the same folder is none the worse for it.
    again = run(TWO_CELLS, folder=r.folder)
    assert again.end() == 0, again.text()
    assert sorted(p.name for p in again.out.iterdir()) == ["results.json"]


@pytest.mark.parametrize("victim", [("nf",), ("load", "100000")])
def test_a_killed_program_is_an_error_of_its_cell_only(run, victim):
    if os.geteuid() != 0:
        pytest.skip("only root may kill what runs in the lab's namespaces")
    r = run(LONG.replace("[none, sidecar-classical]", "[none]").replace("[kept]", "[kept, new]"), "--repetitions", "1")
    wait_until(lambda: r.pids("load", "100000"), "the measured load")
    os.kill(r.pids(*victim)[0], signal.SIGKILL)
    assert r.end() == 0, r.text()
    d = r.results()
    kept, new = (cell(d, deployment="none", connection=c) for c in ("kept", "new"))
    failed, fine = (kept, new) if kept["errors"] else (new, kept)
    assert d["complete"] is True
    assert len(failed["errors"]) == 1 and failed["errors"][0]["count"] == 1
    assert "signal 9" in failed["errors"][0]["reason"]
    assert failed["metrics"] == {} and fine["errors"] == []


def test_as_an_ordinary_user(run, pqplane):
    if os.geteuid() != 0:
        r = run(TWO_CELLS)
        assert r.end() == 0, r.text()
        return
    become = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if subprocess.run([*become, "unshare", "-U", "-r", "-n", "true"], capture_output=True).returncode:
        pytest.skip("user namespaces are not for ordinary users here")
    if subprocess.run([*become, "test", "-x", pqplane]).returncode:
        pytest.skip(f"an ordinary user may not run {pqplane}")
    folder = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        os.chmod(folder, 0o777)
        r = run(TWO_CELLS, prefix=become, folder=folder)
        assert r.end() == 0, r.text()
        assert not any(c["errors"] for c in r.results()["cells"])
        assert (r.out / "results.json").stat().st_uid == 65534
    finally:
        shutil.rmtree(folder)


def test_without_privilege_one_sentence_says_what_to_do(run):
    prefix = ["unshare", "-U", "-r", "sh", "-c",
              "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"", "sh"]
    if subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("a user namespace without privilege can't be made here")
    r = run(TWO_CELLS, prefix=prefix)
    assert r.end() == 1
    assert "run it as root" in r.text().splitlines()[-1]
    assert not r.out.exists()


def private_mounts(script):
    """Runs the program after script in a mount namespace of its own."""
    prefix = ["unshare", "-m", "sh", "-ec", script + '; exec "$@"', "sh"]
    if os.geteuid() != 0 or subprocess.run([*prefix[:2], "true"], capture_output=True).returncode:
        pytest.skip("only root may mount here")
    return prefix


def test_a_full_disk_is_one_sentence(run, tmp_path):
    full = tmp_path / "full"
    (full / "out").mkdir(parents=True)
    r = run(TWO_CELLS, folder=full, prefix=private_mounts(f"mount -t tmpfs -o size=8k none {full}/out"))
    assert r.end() == 1
    assert "No space left on device" in r.text().splitlines()[-1] and "results.json" in r.text().splitlines()[-1]


def test_without_ip_one_sentence_says_what_to_install(run):
    places = {os.path.realpath(p) for p in ("/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip") if os.path.exists(p)}
    r = run(TWO_CELLS, prefix=private_mounts("; ".join(f"mount --bind /dev/null {p}" for p in places)))
    assert r.end() == 1
    assert "install iproute2" in r.text().splitlines()[-1]
    assert not r.out.exists()


@pytest.mark.parametrize("old, new, sentence", [
    ("sidecar-pqc]", "sidecar-magic]", 'deployment: "sidecar-magic" is none of none, native-tls'),
    ("metrics: [", "metrics: [speed, ", 'metrics: "speed" is none of request_ms'),
    ("repetitions: 2", "repetitions: 0", "repetitions:"),
    ("interface: sbi", "interface: pigeon", 'interface: "pigeon" can\'t be measured'),
    ("questions: []", "exclude: [{connection: new}]", "exclude leaves no cell"),
    ("questions: []", "questions: [{ask: what}]", "experiment.yaml:"),
])
def test_a_mistake_is_named_before_anything_runs(run, old, new, sentence):
    r = run(TWO_CELLS.replace(old, new))
    assert r.end() == 1
    last = r.text().splitlines()[-1]
    assert last.startswith("pqplane lab: ") and "experiment.yaml:" in last and sentence in last
    assert not r.out.exists()


@pytest.mark.parametrize("arguments", [
    [], ["walk"], ["run"], ["run", "a", "b"], ["run", "x", "--seed", "-1"], ["run", "x", "--repetitions", "0"], ["run", "x", "--fast"],
    ["list", "x"]])
def test_wrong_usage(pqplane, arguments):
    r = subprocess.run([pqplane, "lab", *arguments], capture_output=True, text=True)
    assert r.returncode == 2 and r.stderr.startswith("pqplane lab: ") and len(r.stderr.splitlines()) == 1


def test_list_names_each_experiment_with_its_cells(pqplane):
    r = subprocess.run([pqplane, "lab", "list"], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    row = next(l for l in r.stdout.splitlines() if l.startswith("sbi-sidecar "))
    assert row.split()[1] == "38"
    unknown = subprocess.run([pqplane, "lab", "run", "no-such"], capture_output=True, text=True)
    assert unknown.returncode == 1 and "pqplane lab list" in unknown.stderr
