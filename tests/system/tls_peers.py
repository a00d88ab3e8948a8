"""Peers whose TLS is Python's and whose bytes the test carries, so that it can stop, spoil or cut them anywhere."""

import socket
import ssl

import pytest


def tls_context(pki, identity, server=False, alpn=None):
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    c.minimum_version = ssl.TLSVersion.TLSv1_3
    files = pki.identity(identity)
    c.load_cert_chain(files["certificate"], files["key"])
    c.load_verify_locations(files["ca"])
    c.verify_mode = ssl.CERT_REQUIRED
    c.check_hostname = False
    if alpn:
        c.set_alpn_protocols([alpn])
    return c


class Talk:
    """One side of a TLS connection whose bytes the test carries, so that it can stop anywhere."""

    def __init__(self, context, s, server=False):
        self.s, self.into, self.out = s, ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.into, self.out, server_side=server, server_hostname=None if server else "server.example")

    def step(self):
        """True when the handshake is finished."""
        try:
            self.tls.do_handshake()
            return True
        except ssl.SSLWantReadError:
            return False

    def flush(self):
        self.s.sendall(self.out.read())

    def serve(self):
        """A server's answer to the first flight, which is then in .out."""
        self.feed()
        self.step()

    def feed(self):
        self.into.write(self.s.recv(65536) or pytest.fail("closed early"))

    def handshake(self):
        """All but our last flight, which is then in .out."""
        while not self.step():
            self.flush()
            self.feed()


# --- clients, and how far they go -------------------------------------------------------------------------------------


def half_a_hello(context, s):
    t = Talk(context, s)
    t.step()
    s.sendall(t.out.read()[:-1])
    return t


def hello_only(context, s):
    t = Talk(context, s)
    t.step()
    t.flush()
    assert s.recv(1, socket.MSG_PEEK), "it answered"
    return t


def half_a_flight(context, s):
    t = Talk(context, s)
    t.handshake()
    s.sendall(t.out.read()[:-40])
    return t


def finished(context, s):
    t = Talk(context, s)
    t.handshake()
    t.flush()
    return t


def half_a_record(context, s):
    t = finished(context, s)
    t.tls.write(b"x" * 16384)
    s.sendall(t.out.read()[:-1])
    return t


# --- servers ----------------------------------------------------------------------------------------------------------


def answered(context, s):
    t = Talk(context, s, server=True)
    t.serve()
    return t


def server_half_a_hello(context, s):
    t = answered(context, s)
    s.sendall(t.out.read()[:60])
    return t


def server_half_a_flight(context, s):
    t = answered(context, s)
    s.sendall(t.out.read()[:-40])
    return t


def server_never_judges(context, s):
    """The client has finished, and is not told whether it was accepted."""
    t = answered(context, s)
    t.flush()
    s.recv(1, socket.MSG_PEEK)
    return t


def server_finished(context, s):
    t = answered(context, s)
    while not t.step():
        t.flush()
        t.feed()
    t.flush()
    return t


def server_half_a_record(context, s):
    t = server_finished(context, s)
    t.tls.write(b"x" * 16384)
    s.sendall(t.out.read()[:-1])
    return t
