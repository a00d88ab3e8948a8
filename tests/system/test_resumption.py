"""Sessions resumed between two proxies: what the logs say of them, who shares the tickets' keys, what ends it."""

import pytest

from proxy_peers import Pair, Pki, connect, read_all


@pytest.fixture(scope="module")
def pki(pqplane, tmp_path_factory):
    p = Pki(pqplane, tmp_path_factory.mktemp("pki"))
    for name in ("server", "client", "other"):
        p.issue(name)
    p.run("crl")
    return p


@pytest.fixture
def pair(start, pqplane, tmp_path, pki, function):
    def make(ingress=None, egress=None):
        return Pair(start, pqplane, tmp_path, pki, function.address, ingress, egress)

    return make


def visit(pair):
    """One local connection, and the line that each proxy logs of it."""
    before = [len(p.log("connection closed")) for p in (pair.ingress, pair.egress)]
    s = connect(pair.egress.port("nrf"))
    s.sendall(b"hello")
    assert s.recv(5) == b"hello"
    s.shutdown(1)
    assert read_all(s) == (b"", "end")
    return [p.wait_log("connection closed", n + 1) for p, n in zip((pair.ingress, pair.egress), before)]


ALONE = {"carry": "connection"}


def test_the_second_connection_is_resumed(pair):
    p = pair(egress=ALONE)
    for resumed in (0, 1, 1):
        for line, name in zip(visit(p), ("CN=client", "CN=server")):
            assert line["resumed"] == resumed
            assert line["peer_name"] == name
            assert line["group"] == "X25519MLKEM768"
            assert line["signature"] == line["own_signature"] == ("" if resumed else "mldsa65")


@pytest.mark.parametrize("side", ["ingress", "egress"])
def test_either_side_can_switch_it_off(pair, side):
    how = {"ingress": {}, "egress": dict(ALONE)}
    how[side]["tls"] = {"resumption": False}
    p = pair(**how)
    for _ in range(2):
        assert [line["resumed"] for line in visit(p)] == [0, 0]


def test_workers_share_the_keys_of_tickets(pair):
    p = pair(ingress={"workers": 4}, egress=ALONE)
    assert [visit(p)[0]["resumed"] for _ in range(12)] == [0] + [1] * 11


def test_a_new_list_ends_it_once(pair, pki):
    p = pair(ingress={"tls": {"crl": pki.file("crl.pem")}}, egress=ALONE)
    assert [visit(p)[0]["resumed"] for _ in range(2)] == [0, 1]
    pki.run("crl", "--revoke", "other")
    p.ingress.reload()
    assert [visit(p)[0]["resumed"] for _ in range(2)] == [0, 1]
    pki.run("crl", "--revoke", "client")
    p.ingress.reload()
    read_all(connect(p.egress.port("nrf")))
    assert p.ingress.wait_log("handshake failed")["reason"] == "revoked"
