"""What we send, as a real dissector reads it: tshark on a loopback interface of our own namespace."""

import os
import shutil
import subprocess
import sys

import pytest

PROBE = r"""
import json, os, subprocess, sys, time
pqplane, out = sys.argv[1], sys.argv[2]
os.chdir(out)
run = lambda *a: subprocess.run(a, check=True, capture_output=True, text=True)
run("ip", "link", "set", "lo", "up")
run(pqplane, "pki", "init", "--dir", "pki", "--root", "mldsa87", "--intermediate", "mldsa65")
for n in ("amf", "nrf"):
    run(pqplane, "pki", "issue", "--dir", "pki", "--name", n, "--algorithm", "mldsa65", "--dns", n + ".example")
TLS = "tls: {{certificate: pki/{0}.crt, key: pki/{0}.key, ca: pki/root.crt, policy: {{mode: hybrid, level: 3, require: [pq-kex, pq-auth]}}}}\n"
open("in.yaml", "w").write(TLS.format("nrf") + "ingress: [{name: sbi, listen: '127.0.0.1:7777', forward: '127.0.0.1:8000', peers: [amf.example]}]\n")
open("out.yaml", "w").write(TLS.format("amf") + "egress: [{name: nrf, listen: '127.0.0.1:9001', connect: '127.0.0.1:7777', peers: [nrf.example]}]\n")
capture = subprocess.Popen(["tshark", "-q", "-i", "lo", "-w", "all.pcapng", "-f", "tcp"], stderr=subprocess.PIPE, text=True)
for line in capture.stderr:
    if "Capturing on" in line:
        break
def start(*a):
    r, w = os.pipe()
    p = subprocess.Popen([pqplane, *a, "--ready-fd", str(w)], pass_fds=(w,))
    os.close(w)
    assert os.fdopen(r).read(), a
    return p
running = [start("nf", "nrf", "--listen", "127.0.0.1:8000", "--instances", "3"),
           start("nf", "nrf", "--listen", "127.0.0.1:8010", "--instances", "3", "--write", "frame"),
           start("proxy", "--config", "in.yaml"), start("proxy", "--config", "out.yaml")]
# The capture starts some time after its message: ask until a request is in the file.
load = lambda: run(pqplane, "load", "--target", "http://127.0.0.1:9001", "--workload", "discovery", "--requests", "2", "--connection", "new", "--json", "load.json")
for _ in range(100):
    load()
    seen = subprocess.run(["tshark", "-r", "all.pcapng", "-Y", "tls.handshake.type == 2", "-T", "fields", "-e", "frame.number"], capture_output=True, text=True).stdout
    if seen.strip():
        break
load()
for target in ("http://127.0.0.1:8000", "http://127.0.0.1:8010"):
    run(pqplane, "load", "--target", target, "--workload", "discovery", "--requests", "5", "--connection", "kept", "--json", "load.json")
# It also writes to its file some time after a packet came.
for _ in range(100):
    seen = subprocess.run(["tshark", "-r", "all.pcapng", "-d", "tcp.port==8010,http2", "-Y", "http2.headers.status && tcp.srcport == 8010", "-T", "fields", "-e", "frame.number"],
                          capture_output=True, text=True).stdout
    if seen.strip():
        break
    time.sleep(0.1)
for p in reversed(running):
    p.terminate()
    assert p.wait(20) == 0
capture.terminate()
capture.wait(20)
"""


@pytest.fixture(scope="module")
def capture(pqplane, tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("capturing takes root")
    if not shutil.which("tshark"):
        pytest.skip("tshark is missing")
    out = tmp_path_factory.mktemp("wire")
    out.chmod(0o777)
    subprocess.run(["unshare", "--net", sys.executable, "-c", PROBE, pqplane, str(out)], check=True, timeout=180)
    return out / "all.pcapng"


def tshark(capture, *argv):
    r = subprocess.run(["tshark", "-r", str(capture), "-d", "tcp.port==8000,http2", "-d", "tcp.port==8010,http2", "-d", "tcp.port==9001,http2",
                        "-d", "tcp.port==7777,tls", *argv], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr
    return r.stdout


def fields(capture, where, *names):
    argv = [part for name in names for part in ("-e", name)]
    lines = tshark(capture, "-Y", where, "-T", "fields", *argv).splitlines()
    return [line.split("\t") for line in lines]


def test_nothing_is_malformed(capture):
    assert tshark(capture, "-Y", "_ws.malformed || _ws.expert.severity == error") == ""
    assert int(tshark(capture, "-Y", "http2", "-T", "fields", "-e", "frame.number").count("\n")) > 0


def test_requests_and_answers_are_http2_with_json(capture):
    paths = fields(capture, "http2.headers.path && tcp.dstport == 8000", "http2.headers.method", "http2.headers.path")
    assert paths and all(m == "GET" and p.startswith("/nnrf-disc/v1/nf-instances?") for m, p in paths)
    answers = fields(capture, "http2.headers.status && tcp.srcport == 8000", "http2.headers.status", "http2.headers.content_type")
    assert answers and all(s == "200" and t == "application/json" for s, t in answers)
    bodies = fields(capture, "json && tcp.srcport == 8000", "json.key")
    assert any("nfInstances" in b[0] for b in bodies)


def test_the_handshake_is_tls_1_3_with_the_hybrid_group(capture):
    hellos = fields(capture, "tls.handshake.type == 1", "tls.handshake.extensions_key_share_group", "tls.handshake.sig_hash_alg")
    assert hellos
    for groups, algorithms in hellos:
        assert "4588" in groups.split(",")  # X25519MLKEM768
        assert "0x0905" in algorithms.split(",")  # mldsa65
    servers = fields(capture, "tls.handshake.type == 2", "tls.handshake.extensions.supported_version",
                     "tls.handshake.extensions_key_share_selected_group", "tls.handshake.extensions_key_share_group")
    assert servers and all("0x0304" in s[0] and "4588" in s[1:] for s in servers)


def test_nothing_readable_crosses_between_the_sidecars(capture):
    text = subprocess.run(["tshark", "-r", str(capture), "-Y", "tcp.port == 7777", "-T", "fields", "-e", "tcp.payload"],
                          capture_output=True, text=True, check=True).stdout.replace("\n", "")
    assert len(text) > 20000
    for plain in (b"nnrf-disc", b"nfInstances", b"PRI * HTTP/2.0"):
        assert plain.hex() not in text


def test_an_answer_is_one_segment_unless_frames_are_asked_for(capture):
    def segments(port):
        rows = fields(capture, f"http2.headers.status && tcp.srcport == {port}", "http2.type")
        return [r[0].split(",") for r in rows]

    # Types 0 and 1 are DATA and HEADERS (RFC 9113, section 6).
    whole, split = segments(8000), segments(8010)
    assert whole and all("0" in types and "1" in types for types in whole)
    assert split and all("0" not in types for types in split)
