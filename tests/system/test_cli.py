"""What every command keeps to: closed standard descriptors, a reader that went away, an output that can't be written."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import textwrap

import pytest

from proxy_peers import Pki, ingress_config

TOP = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def pki(pqplane, tmp_path_factory):
    p = Pki(pqplane, tmp_path_factory.mktemp("pki") / "a")
    p.issue("server")
    return p


@pytest.fixture
def config(pki, tmp_path):
    def make(tail=b"", listen="127.0.0.1:0"):
        c = ingress_config(pki, "127.0.0.1:9")
        c["ingress"][0]["listen"] = listen
        path = tmp_path / "config.yaml"
        path.write_bytes(json.dumps(c).encode() + tail)
        return path

    return make


def run(argv, **options):
    return subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          **options)


@pytest.mark.parametrize("command", [["version"], ["--help"], ["suites"], ["algorithms"], ["proxy", "--help"]])
def test_an_output_that_can_not_be_written_fails(pqplane, command):
    with open("/dev/full", "wb") as full:
        r = subprocess.run([pqplane, *command], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True,
                           timeout=60)
    assert r.returncode == 1
    assert "No space left on device" in r.stderr or "write" in r.stderr
    assert len(r.stderr.splitlines()) == 1


def test_a_check_that_can_not_say_ok_fails(pqplane, config):
    with open("/dev/full", "wb") as full:
        r = subprocess.run([pqplane, "proxy", "--check", "--config", config()], stdin=subprocess.DEVNULL, stdout=full,
                           stderr=subprocess.PIPE, text=True, timeout=60)
    assert (r.returncode, r.stderr) == (1, "pqplane proxy: can't write the output: No space left on device\n")


def test_a_reader_that_went_away_is_an_error(pqplane):
    read_end, write_end = os.pipe()
    os.close(read_end)
    r = subprocess.run([pqplane, "version"], stdin=subprocess.DEVNULL, stdout=write_end, stderr=subprocess.PIPE, text=True,
                       restore_signals=True, timeout=60)
    os.close(write_end)
    assert (r.returncode, r.stderr) == (1, "pqplane version: can't write the output: Broken pipe\n")


@pytest.mark.parametrize("tail, place", [(b"# caf\xe9\n", "2:6"), (b"#\0\n", "2:2"), (b"---\nlog: {}\n", "2:1"),
                                         (b"...\nlog: {}\n", "3:1")])
def test_a_configuration_is_read_to_its_end(pqplane, config, tail, place):
    path = config()
    assert run([pqplane, "proxy", "--check", "--config", path]).returncode == 0
    path = config(b"\n" + tail)
    r = run([pqplane, "proxy", "--check", "--config", path])
    assert r.returncode == 1
    assert f"{path}:{place}: " in r.stderr


def test_a_file_in_a_listener_s_place_is_kept(pqplane, config, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("kept")
    r = run([pqplane, "proxy", "--config", config(listen=f"unix:{precious}")])
    assert r.returncode == 1
    assert "exists and is no socket" in r.stderr
    assert precious.read_text() == "kept"


def fd_targets(pid):
    return {n: os.readlink(f"/proc/{pid}/fd/{n}") for n in ("0", "1", "2")}


def stop(process):
    process.send_signal(signal.SIGTERM)
    return process.wait(20)


def test_closed_standard_descriptors_stay_out_of_reach(pqplane, config):
    read_end, write_end = os.pipe()
    p = subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", pqplane, "proxy", "--config", config(), "--ready-fd",
                          str(write_end)], pass_fds=(write_end,))
    os.close(write_end)
    try:
        with os.fdopen(read_end) as f:
            assert f.read().startswith("ready ")
        assert set(fd_targets(p.pid).values()) == {"/dev/null"}
        assert stop(p) == 0
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()


@pytest.mark.parametrize("number", [1, 2])
def test_a_standard_descriptor_can_tell_ready(pqplane, config, number):
    read_end, write_end = os.pipe()
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, ("stdout", "stderr")[number - 1]: write_end}
    p = subprocess.Popen([pqplane, "proxy", "--config", config(), "--ready-fd", str(number)], stdin=subprocess.DEVNULL,
                         **streams)
    os.close(write_end)
    try:
        with os.fdopen(read_end) as f:
            assert "ready sbi 127.0.0.1:" in f.read()  # and its end: the descriptor is let go
        assert set(fd_targets(p.pid).values()) == {"/dev/null"}
        assert stop(p) == 0
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()


# --- the guide ------------------------------------------------------------------------------------------------------------
def test_every_configuration_in_the_guide_is_valid(pqplane, tmp_path):
    guide = (TOP / "docs/guide.md").read_text()
    blocks = [textwrap.dedent(b) for b in re.findall(r"```yaml\n(.*?)```", guide, re.S)]
    assert len(blocks) == 4
    pki = lambda *argv: subprocess.run([pqplane, "pki", *argv], check=True, cwd=tmp_path)
    pki("init", "--dir", "pki", "--root", "mldsa87", "--intermediate", "mldsa65")
    for name in ("amf", "nrf", "leaf"):
        pki("issue", "--dir", "pki", "--name", name, "--algorithm", "mldsa65", "--dns", f"{name}.5gc.example")
    for name in ("leaf.crt", "leaf.key", "root.crt", "crl.pem"):
        shutil.copy(tmp_path / "pki" / name, tmp_path / name)
    for i, block in enumerate(blocks):
        (tmp_path / f"{i}.yaml").write_text(block)
        r = subprocess.run([pqplane, "proxy", "--check", "--config", f"{i}.yaml"], cwd=tmp_path, capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
