"""The segments of a server's first flight, as they cross a link of 1,500 bytes: tshark in a network namespace of our own.

An ML-DSA-87 certificate and its signature fit the initial window of ten segments (RFC 6928) when they leave in one
piece. In pieces of 4 KB, as libssl writes them, they do not, and the client waits a round trip longer."""

import collections
import subprocess

import pytest

from wire_peers import capture_of

SEGMENT = 1448  # of 1,500 bytes: 20 IP, 20 TCP, 12 its timestamps
WINDOW = 10

PROBE = r"""
# The loopback interface takes 64 KB at once, and joins segments into what it calls one.
run("ip", "link", "set", "lo", "mtu", "1500", "gso_max_segs", "1", "up")
issue("mldsa87", "mldsa87", "amf", "nrf")
# With the root behind it, to see that it stays at home.
open("nrf-chain.crt", "w").write(open("pki/nrf.crt").read() + open("pki/root.crt").read())
TLS = "tls: {certificate: nrf-chain.crt, key: pki/nrf.key, ca: pki/root.crt, policy: {mode: hybrid, level: 5, require: [pq-kex, pq-auth]}}\n"
for name, port, whole in (("whole", 7777, "true"), ("pieces", 7778, "false")):
    open(name + ".yaml", "w").write(TLS + f"whole_flights: {whole}\ningress: [{{name: sbi, listen: '127.0.0.1:{port}', forward: '127.0.0.1:8000'}}]\n")
capturing = capture()
running = [start("nf", "nrf", "--listen", "127.0.0.1:8000"), start("proxy", "--config", "whole.yaml"), start("proxy", "--config", "pieces.yaml")]
def visit(port):
    run("openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", "pki/root.crt", "-cert", "pki/amf.crt", "-key", "pki/amf.key",
        "-groups", "SecP384r1MLKEM1024", "-verify_return_error", "-no_ign_eof", input=b"")
# The capture starts some time after its message.
for port in (7777, 7778):
    for _ in range(100):
        visit(port)
        time.sleep(0.1)
        if captured(f"tcp.port == {port} && tcp.flags.fin == 1 && tcp.dstport == {port}"):
            break
stop(capturing, running)
"""


@pytest.fixture(scope="module")
def capture(pqplane, tmp_path_factory):
    return capture_of(PROBE, pqplane, tmp_path_factory.mktemp("flight"))


def server_flights(capture, port):
    """For each connection: the payloads from the server between the client's first flight and its second."""
    r = subprocess.run(["tshark", "-r", str(capture), "-Y", f"tcp.port == {port} && tcp.len > 0", "-T", "fields",
                        "-e", "tcp.stream", "-e", "tcp.srcport", "-e", "tcp.len"], capture_output=True, text=True, check=True)
    streams = collections.defaultdict(list)
    for line in r.stdout.splitlines():
        stream, source, size = (int(x) for x in line.split("\t"))
        streams[stream].append((source == port, int(size)))
    flights = []
    for packets in streams.values():
        first = next((i for i, (server, _) in enumerate(packets) if server), len(packets))
        end = next((i for i in range(first, len(packets)) if not packets[i][0]), len(packets))
        if first and end < len(packets):  # whole in the capture
            flights.append([size for _, size in packets[first:end]])
    return flights


def test_a_flight_leaves_in_as_few_segments_as_it_needs(capture):
    flights = server_flights(capture, 7777)
    assert flights
    for sizes in flights:
        print("in one piece:", sizes)
        assert len(sizes) == -(-sum(sizes) // SEGMENT) <= WINDOW
        assert all(size == SEGMENT for size in sizes[:-1])
        assert sum(sizes) < 14_500  # a leaf and a signature; the root would add 7.4 KB


def test_pieces_of_four_kilobytes_take_more_than_the_window(capture):
    flights = server_flights(capture, 7778)
    assert flights
    for sizes in flights:
        print("in pieces:", sizes)
        assert len(sizes) > WINDOW
        assert len([size for size in sizes[:-1] if size < SEGMENT]) >= 2
