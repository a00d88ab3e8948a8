"""What we send, as a real dissector reads it: tshark on a loopback interface of our own namespace."""

import subprocess

import pytest

from wire_peers import capture_of

PROBE = r"""
run("ip", "link", "set", "lo", "up")
issue("mldsa87", "mldsa65", "amf", "nrf", intermediate="mldsa65")
TLS = "tls: {{certificate: pki/{0}.crt, key: pki/{0}.key, ca: pki/root.crt, policy: {{mode: hybrid, level: 3, require: [pq-kex, pq-auth]}}}}\n"
open("in.yaml", "w").write(TLS.format("nrf") + "ingress: [{name: sbi, listen: '127.0.0.1:7777', forward: '127.0.0.1:8000', peers: [amf.example]}]\n")
open("out.yaml", "w").write(TLS.format("amf") + "egress: [{name: nrf, listen: '127.0.0.1:9001', connect: '127.0.0.1:7777', peers: [nrf.example]}]\n")
capturing = capture()
running = [start("nf", "nrf", "--listen", "127.0.0.1:8000", "--instances", "3"),
           start("nf", "nrf", "--listen", "127.0.0.1:8010", "--instances", "3", "--write", "frame"),
           start("proxy", "--config", "in.yaml"), start("proxy", "--config", "out.yaml")]
# The capture starts some time after its message: ask until a request is in the file.
load = lambda: run(pqplane, "load", "--target", "http://127.0.0.1:9001", "--workload", "discovery", "--requests", "2", "--connection", "new", "--json", "load.json")
for _ in range(100):
    load()
    if captured("tls.handshake.type == 2"):
        break
load()
for target in ("http://127.0.0.1:8000", "http://127.0.0.1:8010"):
    run(pqplane, "load", "--target", target, "--workload", "discovery", "--requests", "5", "--connection", "kept", "--json", "load.json")
# It also writes to its file some time after a packet came.
for _ in range(100):
    if captured("http2.headers.status && tcp.srcport == 8010", "-d", "tcp.port==8010,http2"):
        break
    time.sleep(0.1)
stop(capturing, running)
"""


@pytest.fixture(scope="module")
def capture(pqplane, tmp_path_factory):
    return capture_of(PROBE, pqplane, tmp_path_factory.mktemp("wire"))


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
