"""What crosses a loopback interface of our own namespace, in a file that tshark wrote."""

import os
import shutil
import subprocess
import sys

import pytest

SCRIPT = r"""
import os, subprocess, sys, time
pqplane, out = sys.argv[1], sys.argv[2]
os.chdir(out)

def run(*argv, **options):
    return subprocess.run(argv, check=True, capture_output=True, **options)

def issue(root, leaf, *names, **options):
    run(pqplane, "pki", "init", "--dir", "pki", "--root", root, *(["--intermediate", options["intermediate"]] if options else []))
    for name in names:
        run(pqplane, "pki", "issue", "--dir", "pki", "--name", name, "--algorithm", leaf, "--dns", name + ".example")

def capture():
    program = subprocess.Popen(["tshark", "-q", "-i", "lo", "-w", "all.pcapng", "-f", "tcp"], stderr=subprocess.PIPE, text=True)
    for line in program.stderr:
        if "Capturing on" in line:
            return program

def captured(where, *options):
    # The file lags behind the wire, and may end in the middle of a packet.
    argv = ["tshark", "-r", "all.pcapng", *options, "-Y", where, "-T", "fields", "-e", "frame.number"]
    return subprocess.run(argv, capture_output=True).stdout.strip()

def start(*argv):
    r, w = os.pipe()
    p = subprocess.Popen([pqplane, *argv, "--ready-fd", str(w)], pass_fds=(w,))
    os.close(w)
    assert os.fdopen(r).read(), argv
    return p

def stop(capturing, running):
    for p in reversed(running):
        p.terminate()
        assert p.wait(20) == 0
    capturing.terminate()
    capturing.wait(20)
"""


def capture_of(script, pqplane, folder):
    """The capture's file: the script runs after SCRIPT, whose functions it calls, in the folder and a network namespace."""
    if os.geteuid() != 0:
        pytest.skip("capturing takes root")
    if not shutil.which("tshark"):
        pytest.skip("tshark is missing")
    folder.chmod(0o777)
    subprocess.run(["unshare", "--net", sys.executable, "-c", SCRIPT + script, pqplane, str(folder)], check=True, timeout=180)
    return folder / "all.pcapng"
