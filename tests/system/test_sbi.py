"""The embedded 5G core over HTTP/2: real peers (curl, h2load, python-h2) against pqplane nf and pqplane load."""

import hashlib
import hmac
import json
import re
import shutil
import signal
import socket
import struct
import subprocess
import time

import pytest

h2 = pytest.importorskip("h2.connection", reason="python3-h2 is not installed")
import h2.config
import h2.errors
import h2.events
import h2.settings

NETWORK = "5G:mnc001.mcc001.3gppnetwork.org"
DISCOVER = "/nnrf-disc/v1/nf-instances?target-nf-type=UDM&requester-nf-type=AMF"
ID = "5b9e4b10-0000-4000-8000-0000000000aa"
MODES = ["plain", "tls"]


def program(name):
    path = shutil.which(name)
    if not path:
        pytest.skip(f"{name} is not installed")
    return path


# --- the functions under test --------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def pki(pqplane, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki") / "ca"
    subprocess.run([pqplane, "pki", "init", "--dir", folder, "--root", "mldsa44"], check=True)
    for name in ("nrf", "ausf", "udm", "udr", "amf"):
        subprocess.run(
            [pqplane, "pki", "issue", "--dir", folder, "--name", name, "--algorithm", "mldsa44"]
            + ["--dns", f"{name}.5gc.example", "--ip", "127.0.0.1"],
            check=True,
        )
    return folder


class Core:
    """Starts functions by kind and speaks to them as an AMF with curl."""

    def __init__(self, pqplane, start, mode, pki):
        self.pqplane, self.start, self.tls, self.pki = pqplane, start, mode == "tls", pki
        self.at, self.running = {}, {}

    def identity(self, name):
        if not self.tls:
            return []
        d = self.pki
        return ["--certificate", f"{d}/{name}.crt", "--key", f"{d}/{name}.key", "--ca", f"{d}/root.crt", "--mode", "hybrid", "--level", "1"]

    def uri(self, kind):
        return f"{'https' if self.tls else 'http'}://{self.at[kind]}"

    def run(self, kind, *options):
        p = self.start(
            [self.pqplane, "nf", kind, "--listen", "127.0.0.1:0", "--log-level", "info", *self.identity(kind), *options])
        word, name, address = p.ready[0].split()
        assert (word, name) == ("ready", kind)
        self.at[kind], self.running[kind] = address, p
        return p

    def run_chain(self, *options):
        self.run("nrf")
        for kind in ("udr", "udm", "ausf"):
            self.run(kind, "--nrf", self.uri("nrf"), "--register", *options)

    def call(self, kind, method, path, body=None, content="application/json", extra=()):
        argv = [program("curl"), "-sS", "-m", "20", "-g", "-X", method, "-D", "-", *extra]
        if method == "HEAD":
            argv = [a for a in argv if a not in ("-X", "HEAD")] + ["-I"]
        if self.tls:
            argv += ["--cacert", f"{self.pki}/root.crt", "--cert", f"{self.pki}/amf.crt", "--key", f"{self.pki}/amf.key"]
        else:
            argv += ["--http2-prior-knowledge"]
        if body is not None:
            argv += ["-H", f"content-type: {content}", "--data-binary", body if isinstance(body, str) else json.dumps(body)]
        done = subprocess.run([*argv, self.uri(kind) + path], capture_output=True, check=True)
        head, _, text = done.stdout.decode().partition("\r\n\r\n")
        lines = head.split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        return int(lines[0].split()[1]), fields, json.loads(text) if text.strip() else None

    def load(self, kind, *options, check=True):
        argv = [self.pqplane, "load", "--target", self.uri(kind), "--json", "-", *self.identity("amf"), *options]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
        if check:
            assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout else None

    def registered(self, kind):
        """Waits until the NRF finds a function of that kind."""
        query = f"/nnrf-disc/v1/nf-instances?target-nf-type={kind.upper()}&requester-nf-type=AUSF"
        return wait_for(lambda: self.call("nrf", "GET", query)[2]["nfInstances"])


@pytest.fixture(params=MODES)
def core(request, pqplane, start, pki):
    return Core(pqplane, start, request.param, pki)


@pytest.fixture
def plain(pqplane, start, pki):
    return Core(pqplane, start, "plain", pki)


def wait_for(condition, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
    raise AssertionError("it did not happen in time")


# --- a UE's side of 5G-AKA, computed apart from the program under test ---------------------------------------------------------


def aes(key, block):
    argv = [program("openssl"), "enc", "-aes-128-ecb", "-nopad", "-K", key.hex()]
    return subprocess.run(argv, input=block, capture_output=True, check=True).stdout


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


class Usim:
    """MILENAGE (TS 35.206) and the KDFs of TS 33.501, Annex A."""

    def __init__(self, k, opc):
        self.k, self.opc = bytes.fromhex(k), bytes.fromhex(opc)

    def out(self, y, turn, c, x=bytes(16)):
        turned = y[turn:] + y[:turn]
        block = bytearray(xor(x, turned))
        block[15] ^= c
        return xor(aes(self.k, bytes(block)), self.opc)

    def f1(self, rand, sqn, amf):
        temp = aes(self.k, xor(rand, self.opc))
        o = self.out(xor((sqn + amf) * 2, self.opc), 8, 0, temp)
        return o[:8], o[8:]

    def f2345(self, rand):
        y = xor(aes(self.k, xor(rand, self.opc)), self.opc)
        o2, o5 = self.out(y, 0, 1), self.out(y, 12, 8)
        return {"res": o2[8:], "ak": o2[:6], "ck": self.out(y, 4, 2), "ik": self.out(y, 8, 4), "ak_star": o5[:6]}

    @staticmethod
    def kdf(key, fc, *parameters):
        s = bytes([fc]) + b"".join(p + struct.pack(">H", len(p)) for p in parameters)
        return hmac.new(key, s, hashlib.sha256).digest()

    def answer(self, rand, autn):
        """Checks AUTN as a USIM does; RES*, KSEAF and the SQN that came."""
        o = self.f2345(rand)
        sqn = xor(autn[:6], o["ak"])
        assert self.f1(rand, sqn, autn[6:8])[0] == autn[8:], "MAC-A is wrong"
        key, name = o["ck"] + o["ik"], NETWORK.encode()
        res_star = self.kdf(key, 0x6B, name, rand, o["res"])[16:]
        kausf = self.kdf(key, 0x6A, name, autn[:6])
        return res_star, self.kdf(kausf, 0x6C, name), int.from_bytes(sqn, "big")

    def auts(self, rand, sqn):
        sqn = sqn.to_bytes(6, "big")
        return xor(sqn, self.f2345(rand)["ak_star"]) + self.f1(rand, sqn, bytes(2))[1]


def usim(core, supi):
    path = f"/nudr-dr/v2/subscription-data/{supi}/authentication-data/authentication-subscription"
    status, _, data = core.call("udr", "GET", path)
    assert status == 200
    return Usim(data["encPermanentKey"], data["encOpcKey"]), int(data["sequenceNumber"]["sqn"], 16)


def challenge(core, user, **more):
    body = {"supiOrSuci": user, "servingNetworkName": NETWORK, **more}
    status, fields, data = core.call("ausf", "POST", "/nausf-auth/v1/ue-authentications", body)
    assert status == 201, data
    assert data["authType"] == "5G_AKA"
    assert data["_links"]["5g-aka"]["href"] == fields["location"] + "/5g-aka-confirmation"
    path = "/" + fields["location"].split("/", 3)[3]
    av = data["5gAuthData"]
    return path, bytes.fromhex(av["rand"]), bytes.fromhex(av["autn"]), bytes.fromhex(av["hxresStar"])


def test_registration_of_a_ue(core):
    """AMF -> AUSF -> UDM -> UDR: authentication, its result, registration of the AMF, subscription data."""
    core.run_chain()
    for kind in ("udr", "udm", "ausf"):
        core.registered(kind)
    supi = "imsi-001010000000042"
    card, sqn_before = usim(core, supi)

    path, rand, autn, hxres_star = challenge(core, "suci-0-001-01-0000-0-0-0000000042")
    res_star, kseaf, sqn = card.answer(rand, autn)
    assert sqn == sqn_before + 32 == usim(core, supi)[1]
    assert hashlib.sha256(rand + res_star).digest()[16:] == hxres_star
    status, _, data = core.call("ausf", "PUT", path + "/5g-aka-confirmation", {"resStar": res_star.hex()})
    assert (status, data) == (200, {"authResult": "AUTHENTICATION_SUCCESS", "supi": supi, "kseaf": kseaf.hex()})
    status_path = f"/nudr-dr/v2/subscription-data/{supi}/authentication-data/authentication-status"
    kept = wait_for(lambda: core.call("udr", "GET", status_path)[0] == 200 and core.call("udr", "GET", status_path)[2])
    assert kept["success"] is True and kept["servingNetworkName"] == NETWORK

    amf = {"amfInstanceId": ID, "deregCallbackUri": "http://amf.example/cb", "ratType": "NR",
           "guami": {"plmnId": {"mcc": "001", "mnc": "01"}, "amfId": "cafe00"}}
    where = f"/nudm-uecm/v1/{supi}/registrations/amf-3gpp-access"
    assert core.call("udm", "GET", where)[0] == 404
    status, fields, data = core.call("udm", "PUT", where, amf)
    assert (status, data) == (201, amf) and fields["location"].endswith(where)
    assert core.call("udm", "PUT", where, amf)[0] == 200
    assert core.call("udm", "GET", where)[2] == amf
    plmn = '?plmn-id={"mcc":"001","mnc":"01"}'.replace('"', "%22")
    assert core.call("udm", "GET", f"/nudm-sdm/v2/{supi}/am-data{plmn}")[2]["gpsis"] == ["msisdn-0000000042"]
    assert core.call("udm", "GET", f"/nudm-sdm/v2/{supi}/smf-select-data")[2]["subscribedSnssaiInfos"]
    assert core.call("udm", "GET", f"/nudm-sdm/v2/{supi}/sm-data")[2][0]["dnnConfigurations"]["internet"]

    for kind in ("ausf", "udm", "udr"):
        assert core.running[kind].stop() == 0
        query = f"/nnrf-disc/v1/nf-instances?target-nf-type={kind.upper()}&requester-nf-type=AUSF"
        assert core.call("nrf", "GET", query)[2]["nfInstances"] == []
    assert core.running["nrf"].stop() == 0


def test_authentication_that_fails(plain):
    plain.run("udr", "--subscribers", "3")
    plain.run("udm", "--udr", plain.uri("udr"))
    plain.run("ausf", "--udm", plain.uri("udm"))
    supi = "imsi-001010000000003"
    card, _ = usim(plain, supi)

    # a wrong RES*, then the context is gone
    path, rand, autn, _ = challenge(plain, supi)
    answer = plain.call("ausf", "PUT", path + "/5g-aka-confirmation", {"resStar": "00" * 16})
    assert answer[0] == 200 and answer[2] == {"authResult": "AUTHENTICATION_FAILURE"}
    assert plain.call("ausf", "PUT", path + "/5g-aka-confirmation", {"resStar": "00" * 16})[2]["cause"] == "CONTEXT_NOT_FOUND"
    # no RES* at all
    path, *_ = challenge(plain, supi)
    assert plain.call("ausf", "PUT", path + "/5g-aka-confirmation", {"resStar": None})[2]["authResult"] == "AUTHENTICATION_FAILURE"
    # a USIM that is ahead: the next vector starts from what it says
    path, rand, autn, _ = challenge(plain, supi)
    auts = card.auts(rand, 0x123460)
    info = {"rand": rand.hex(), "auts": auts.hex()}
    _, rand2, autn2, _ = challenge(plain, supi, resynchronizationInfo=info)
    assert card.answer(rand2, autn2)[2] == 0x123480
    # a forged AUTS
    body = {"supiOrSuci": supi, "servingNetworkName": NETWORK, "resynchronizationInfo": {"rand": rand.hex(), "auts": "00" * 14}}
    status, _, problem = plain.call("ausf", "POST", "/nausf-auth/v1/ue-authentications", body)
    assert (status, problem["cause"]) == (403, "AUTHENTICATION_REJECTED")


@pytest.mark.parametrize("body, status, cause", [
    ({"supiOrSuci": "imsi-001010000000004", "servingNetworkName": NETWORK}, 404, "USER_NOT_FOUND"),
    ({"supiOrSuci": "imsi-x", "servingNetworkName": NETWORK}, 400, "MANDATORY_IE_INCORRECT"),
    ({"servingNetworkName": NETWORK}, 400, "MANDATORY_IE_MISSING"),
    ({"supiOrSuci": "imsi-001010000000001"}, 400, "MANDATORY_IE_MISSING"),
    ({"supiOrSuci": "imsi-001010000000001", "servingNetworkName": "WLAN"}, 403, "SERVING_NETWORK_NOT_AUTHORIZED"),
    ({"supiOrSuci": "suci-0-001-01-0000-1-1-ab", "servingNetworkName": NETWORK}, 501, "UNSUPPORTED_PROTECTION_SCHEME"),
    ("{", 400, "INVALID_MSG_FORMAT"),
])
def test_refused_authentications(plain, body, status, cause):
    plain.run("udr", "--subscribers", "3")
    plain.run("udm", "--udr", plain.uri("udr"))
    plain.run("ausf", "--udm", plain.uri("udm"))
    got, fields, problem = plain.call("ausf", "POST", "/nausf-auth/v1/ue-authentications", body)
    assert (got, problem["cause"], problem["status"]) == (status, cause, status)
    assert fields["content-type"] == "application/problem+json"


def test_the_chain_is_broken(plain):
    plain.run("udm", "--udr", "http://127.0.0.1:1")
    plain.run("ausf", "--udm", plain.uri("udm"))
    body = {"supiOrSuci": "imsi-001010000000001", "servingNetworkName": NETWORK}
    assert plain.call("udm", "GET", "/nudm-sdm/v2/imsi-001010000000001/am-data")[2]["cause"] == "TARGET_NF_NOT_REACHABLE"
    assert plain.call("ausf", "POST", "/nausf-auth/v1/ue-authentications", body)[0] == 500
    plain.running["udm"].stop()
    status, _, problem = plain.call("ausf", "POST", "/nausf-auth/v1/ue-authentications", body)
    assert (status, problem["cause"]) == (504, "TARGET_NF_NOT_REACHABLE")
    plain.run("ausf")
    assert plain.call("ausf", "POST", "/nausf-auth/v1/ue-authentications", body)[0] == 500
    # the NRF alone is away: the problem says so, and does not blame the UDM
    plain.run("nrf")
    plain.run("udm", "--nrf", plain.uri("nrf"))
    plain.run("ausf", "--nrf", plain.uri("nrf"))
    status, _, problem = plain.call("ausf", "POST", "/nausf-auth/v1/ue-authentications", body)
    assert status == 504 and problem["detail"] == "the NRF knows no UDM"
    plain.running["nrf"].stop()
    status, _, problem = plain.call("ausf", "POST", "/nausf-auth/v1/ue-authentications", body)
    assert (status, problem["cause"]) == (504, "TARGET_NF_NOT_REACHABLE")
    assert problem["detail"].startswith("the NRF can't be asked where the UDM is: ")


def test_concurrent_vectors_have_different_sequence_numbers(plain):
    plain.run("udr", "--subscribers", "1")
    plain.run("udm", "--udr", plain.uri("udr"))
    body = json.dumps({"servingNetworkName": NETWORK, "ausfInstanceId": ID}).encode()
    path = "/nudm-ueau/v1/imsi-001010000000001/security-information/generate-auth-data"
    card, _ = usim(plain, "imsi-001010000000001")
    with Client(plain.at["udm"]) as c:
        for _ in range(4):
            c.request(path, body=body)
        streams = c.finish()
    sqns = set()
    for s in streams.values():
        assert s.status == 200
        av = json.loads(s.body)["authenticationVector"]
        sqns.add(card.answer(bytes.fromhex(av["rand"]), bytes.fromhex(av["autn"]))[2])
    assert len(sqns) == 4


# --- NRF ---------------------------------------------------------------------------------------------------------------------


def profile(**more):
    return {"nfInstanceId": ID, "nfType": "UDM", "nfStatus": "REGISTERED", "ipv4Addresses": ["192.0.2.1"], **more}


def test_nrf_management(core):
    core.run("nrf")
    where = f"/nnrf-nfm/v1/nf-instances/{ID}"
    status, fields, data = core.call("nrf", "PUT", where, profile())
    assert status == 201 and fields["location"] == core.uri("nrf") + where and data["heartBeatTimer"] == 60
    assert core.call("nrf", "PUT", where, profile(capacity=5))[0] == 200
    assert core.call("nrf", "GET", where)[2]["capacity"] == 5
    assert [i["nfInstanceId"] for i in core.call("nrf", "GET", DISCOVER)[2]["nfInstances"]] == [ID]
    links = core.call("nrf", "GET", "/nnrf-nfm/v1/nf-instances")[2]["_links"]["item"]
    assert links == [{"href": core.uri("nrf") + where}]
    beat = [{"op": "replace", "path": "/nfStatus", "value": "REGISTERED"}]
    assert core.call("nrf", "PATCH", where, beat, "application/json-patch+json")[0] == 204
    assert core.call("nrf", "PATCH", where, beat, "application/merge-patch+json")[0] == 415
    assert core.call("nrf", "DELETE", where)[0] == 204
    assert core.call("nrf", "DELETE", where)[2]["cause"] == "CONTEXT_NOT_FOUND"
    assert core.call("nrf", "GET", DISCOVER)[2]["nfInstances"] == []


def test_nrf_says_what_is_wrong(plain):
    plain.run("nrf")
    status, fields, problem = plain.call("nrf", "GET", "/nnrf-disc/v1/nf-instances?target-nf-type=UDM")
    assert status == 400 and problem["invalidParams"][0]["param"] == "requester-nf-type"
    assert fields["content-type"] == "application/problem+json"
    assert plain.call("nrf", "POST", "/nnrf-disc/v1/nf-instances")[1]["allow"] == "GET"
    assert plain.call("nrf", "GET", "/none/v1/x")[0] == 400
    assert plain.call("nrf", "GET", "/nnrf-nfm/v1/none")[0] == 404
    assert plain.call("nrf", "BREW", "/nnrf-nfm/v1/nf-instances")[0] == 501
    big = "[" + "1," * 60000
    assert plain.call("nrf", "PUT", f"/nnrf-nfm/v1/nf-instances/{ID}", big[:100000] + "]")[0] == 400
    assert plain.call("nrf", "HEAD", DISCOVER)[0] == 200


def test_silent_instances_disappear(plain):
    plain.run("nrf", "--heartbeat", "1s", "--instances", "1", "--instance-type", "UDM")
    assert plain.call("nrf", "PUT", f"/nnrf-nfm/v1/nf-instances/{ID}", profile())[0] == 201
    assert len(plain.call("nrf", "GET", DISCOVER)[2]["nfInstances"]) == 2
    wait_for(lambda: len(plain.call("nrf", "GET", DISCOVER)[2]["nfInstances"]) == 1)
    assert plain.call("nrf", "GET", f"/nnrf-nfm/v1/nf-instances/{ID}")[2]["nfStatus"] == "SUSPENDED"


def test_a_registered_function_stays_and_comes_back(plain):
    """Heart-beats keep it; an NRF that restarts and has forgotten it gets it again."""
    p = plain.run("nrf", "--heartbeat", "1s")
    plain.run("udr", "--nrf", plain.uri("nrf"), "--register")
    plain.registered("udr")
    beats = lambda: p.text().count("instance silent")
    end = time.monotonic() + 3
    while time.monotonic() < end:
        assert plain.call("nrf", "GET", "/nnrf-disc/v1/nf-instances?target-nf-type=UDR&requester-nf-type=AMF")[2]["nfInstances"]
    assert beats() == 0
    listen = plain.at["nrf"]
    p.stop()
    again = plain.start([plain.pqplane, "nf", "nrf", "--listen", listen, "--heartbeat", "1s"])
    assert again.ready == [f"ready nrf {listen}"]
    plain.registered("udr")


# --- HTTP/2: real peers and raw frames ---------------------------------------------------------------------------------------------


class Stream:
    def __init__(self):
        self.status, self.body, self.reset, self.ended = None, b"", None, False


class Client:
    """A client of python-h2 on a plain connection that shows every event."""

    def __init__(self, address, settings=None, window_updates=True):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.authority, self.window_updates = address, window_updates
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()
        if settings:
            self.h2.update_settings(settings)
        self.streams, self.goaways, self.end = {}, [], False
        self.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def flush(self):
        data = self.h2.data_to_send()
        if data:
            self.socket.sendall(data)

    def request(self, path=DISCOVER, method=None, body=None):
        i = self.h2.get_next_available_stream_id()
        head = [(":method", method or ("POST" if body else "GET")), (":scheme", "http"), (":authority", self.authority), (":path", path)]
        if body:
            head.append(("content-type", "application/json"))
        self.h2.send_headers(i, head, end_stream=not body)
        if body:
            self.h2.send_data(i, body, end_stream=True)
        self.streams[i] = Stream()
        self.flush()
        return i

    def turn(self):
        """Takes what comes next: False at the end of the stream."""
        data = self.socket.recv(65536)
        if not data:
            self.end = True
            return False
        for e in self.h2.receive_data(data):
            self.on(e)
        self.flush()
        return True

    def on(self, e):
        s = self.streams.get(getattr(e, "stream_id", None))
        if isinstance(e, h2.events.ResponseReceived):
            s.status = int(dict(e.headers)[":status"])
        elif isinstance(e, h2.events.DataReceived):
            s.body += e.data
            if self.window_updates and e.flow_controlled_length:
                self.h2.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
        elif isinstance(e, h2.events.StreamEnded):
            s.ended = True
        elif isinstance(e, h2.events.StreamReset):
            s.reset = e.error_code
        elif isinstance(e, h2.events.ConnectionTerminated):
            self.goaways.append((e.error_code, e.last_stream_id))

    def finish(self):
        """Until every stream has ended."""
        while not all(s.ended or s.reset is not None for s in self.streams.values()):
            assert self.turn(), "the connection ended before its streams"
        return self.streams

    def until_end(self):
        while self.turn():
            pass


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)
GET = bytes.fromhex("828684410161")  # GET http / with authority "a"


def frames(data):
    """What came: (kind, flags, stream, payload) of each whole frame."""
    while len(data) >= 9:
        n = int.from_bytes(data[:3], "big")
        if len(data) < 9 + n:
            return
        yield data[3], data[4], int.from_bytes(data[5:9], "big"), data[9:9 + n]
        data = data[9 + n:]


def exchange(address, data):
    """Sends raw bytes, then reads to the end of the stream."""
    host, port = address.rsplit(":", 1)
    got = b""
    with socket.create_connection((host, int(port)), timeout=20) as s:
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            while True:
                more = s.recv(65536)
                if not more:
                    break
                got += more
        except ConnectionError:
            pass
    return got


BROKEN = {
    "frame longer than announced limit": (PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01", "FRAME_SIZE_ERROR"),
    "DATA on stream 0": (PREFACE + frame(0, 1, 0, b"x"), "PROTOCOL_ERROR"),
    "HEADERS on stream 0": (PREFACE + frame(1, 5, 0, GET), "PROTOCOL_ERROR"),
    "HEADERS on an even stream": (PREFACE + frame(1, 5, 2, GET), "PROTOCOL_ERROR"),
    "no such table entry": (PREFACE + frame(1, 5, 1, b"\xff\xff\xff\x7f"), "COMPRESSION_ERROR"),
    "window overflow": (PREFACE + frame(8, 0, 0, b"\x7f\xff\xff\xff"), "FLOW_CONTROL_ERROR"),
    "window update of 0": (PREFACE + frame(8, 0, 0, b"\0\0\0\0"), "PROTOCOL_ERROR"),
    "initial window too large": (PREFACE + frame(4, 0, 0, b"\0\4\xff\xff\xff\xff"), "FLOW_CONTROL_ERROR"),
    "SETTINGS of 5 bytes": (PREFACE + frame(4, 0, 0, b"\0\4\0\0\0"), "FRAME_SIZE_ERROR"),
    "too many SETTINGS": (PREFACE + frame(4, 0, 0, b"\0\4\0\0\0\1" * 33), "ENHANCE_YOUR_CALM"),
    "PING of 7 bytes": (PREFACE + frame(6, 0, 0, b"1234567"), "FRAME_SIZE_ERROR"),
    "CONTINUATION without HEADERS": (PREFACE + frame(9, 4, 1, b""), "PROTOCOL_ERROR"),
    "another frame within a header block": (PREFACE + frame(1, 1, 1, GET) + frame(6, 0, 0, b"12345678"), "PROTOCOL_ERROR"),
    "CONTINUATION flood": (PREFACE + frame(1, 1, 1, GET) + frame(9, 0, 1, b"") * 100, "ENHANCE_YOUR_CALM"),
    "rapid reset": (PREFACE + b"".join(frame(1, 5, i, GET) + frame(3, 0, i, b"\0\0\0\x08") for i in range(1, 4001, 2)),
                    "INTERNAL_ERROR"),  # nghttp2's word for it
    "PUSH_PROMISE": (PREFACE + frame(5, 4, 1, b"\0\0\0\2" + GET), "PROTOCOL_ERROR"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_frames(plain, name):
    data, code = BROKEN[name]
    p = plain.run("nrf")
    got = exchange(plain.at["nrf"], data)
    goaways = [f[3] for f in frames(got) if f[0] == 7]
    assert int.from_bytes(goaways[-1][4:8], "big") == h2.errors.ErrorCodes[code]
    # and it serves on
    assert plain.call("nrf", "GET", DISCOVER)[0] == 200
    assert p.stop() == 0


def test_floods_end_the_connection(plain):
    """Acknowledgements that the peer does not read pile up to a limit, then the connection ends."""
    p = plain.run("nrf")
    host, port = plain.at["nrf"].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(PREFACE)
        with pytest.raises(ConnectionError):
            for _ in range(100000):
                s.sendall(frame(6, 0, 0, b"12345678") * 1000)
    assert plain.call("nrf", "GET", DISCOVER)[0] == 200
    assert p.stop() == 0


@pytest.mark.parametrize("data", [b"", b"PRI * HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0" * 100, b"GARBAGE\r\n\r\n" * 10])
def test_other_protocols_are_closed(plain, data):
    p = plain.run("nrf")
    exchange(plain.at["nrf"], data)
    assert plain.call("nrf", "GET", DISCOVER)[0] == 200
    assert p.stop() == 0


def test_http1_is_answered(plain):
    plain.run("nrf")
    for request in ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", "POST /x HTTP/1.0\r\n\r\n"):
        got = exchange(plain.at["nrf"], request.encode())
        head, _, body = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 505 ")
        assert int(re.search(rb"Content-Length: (\d+)", head)[1]) == len(body)


@pytest.mark.parametrize("method, path, length, status", [
    ("PUT", f"/nnrf-nfm/v1/nf-instances/{ID}", 300000, 413),
    ("GET", "/" + "a" * 40000, 0, 431),
    ("GET", "/nnrf-nfm/v1/nf-instances/" + "a" * 500, 0, 400),
])
def test_too_large(plain, method, path, length, status):
    plain.run("nrf")
    with Client(plain.at["nrf"]) as c:
        i = c.request(path, method, b"x" * min(length, 16000) if length else None) if not length else None
        if length:
            i = c.h2.get_next_available_stream_id()
            c.streams[i] = Stream()
            c.h2.send_headers(i, [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path),
                                  ("content-type", "application/json"), ("content-length", str(length))])
            c.flush()
        c.finish()
        assert c.streams[i].status == status
        # the connection lives on
        j = c.request()
        c.finish()
        assert c.streams[j].status == 200


def test_an_announced_body_that_never_comes_is_not_waited_for(plain):
    """413 at once, then RST_STREAM(NO_ERROR): the client may stop sending (RFC 9113, 8.1)."""
    plain.run("nrf")
    with Client(plain.at["nrf"]) as c:
        i = c.h2.get_next_available_stream_id()
        c.streams[i] = Stream()
        c.h2.send_headers(i, [(":method", "PUT"), (":scheme", "http"), (":authority", "a"), (":path", "/x"),
                              ("content-type", "application/json"), ("content-length", "100000000")])
        c.flush()
        while c.streams[i].reset is None:
            assert c.turn()
        assert (c.streams[i].status, c.streams[i].reset) == (413, h2.errors.ErrorCodes.NO_ERROR)


def test_an_answer_is_one_write(plain):
    """SETTINGS, their acknowledgement, HEADERS and DATA arrive together, so that no algorithm can hold a part back."""
    plain.run("nrf", "--instances", "3", "--instance-type", "UDM")
    host, port = plain.at["nrf"].rsplit(":", 1)
    path = DISCOVER.encode()
    head = bytes.fromhex("828641016104") + bytes([len(path)]) + path  # GET http, authority "a", path literal
    with socket.create_connection((host, int(port)), timeout=20) as s:
        s.sendall(PREFACE + frame(1, 5, 1, head))
        first = list(frames(s.recv(65536)))
    assert [f[0] for f in first if f[0] != 8] == [4, 4, 1, 0]
    assert first[-1][1] & 1


def test_tiny_windows(plain):
    """A byte at a time, on several streams: every body arrives whole."""
    plain.run("nrf", "--instances", "5", "--instance-type", "UDM")
    whole = plain.call("nrf", "GET", DISCOVER)[2]
    with Client(plain.at["nrf"], {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1}) as c:
        ids = [c.request() for _ in range(3)]
        c.finish()
        for i in ids:
            assert json.loads(c.streams[i].body) == whole


def test_a_reset_stream_leaves_the_others(plain):
    plain.run("nrf", "--instances", "200", "--instance-type", "UDM")
    with Client(plain.at["nrf"], window_updates=False) as c:
        first, second = c.request(), c.request()
        while not c.streams[first].body:
            assert c.turn()
        c.h2.reset_stream(first, h2.errors.ErrorCodes.CANCEL)
        c.streams.pop(first)
        c.window_updates = True
        c.h2.increment_flow_control_window(10_000_000)
        c.h2.increment_flow_control_window(10_000_000, second)
        c.flush()
        c.finish()
        assert len(json.loads(c.streams[second].body)["nfInstances"]) == 200


def test_goaway_loses_nothing(plain):
    """SIGTERM: the first GOAWAY announces, requests sent meanwhile are served, the second says up to which stream."""
    p = plain.run("nrf", "--instances", "300", "--instance-type", "UDM")
    with Client(plain.at["nrf"], window_updates=False) as c:
        big = c.request()
        while not c.streams[big].body:
            assert c.turn()
        p.process.send_signal(signal.SIGTERM)
        while not c.goaways:
            assert c.turn()
        assert c.goaways[0] == (h2.errors.ErrorCodes.NO_ERROR, 2**31 - 1)
        assert not c.streams[big].ended
        # python-h2 refuses to send after GOAWAY, so this request is written by hand
        late = c.h2.highest_outbound_stream_id + 2
        head = c.h2.encoder.encode([(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/none")])
        raw = Raw(c.socket)
        raw.send(frame(1, 5, late, head) + frame(8, 0, 0, b"\0\x7f\xff\xff") + frame(8, 0, big, b"\0\x7f\xff\xff"))
        seen = raw.until_end()
    goaways = [f for f in seen if f[0] == 7]
    # The request raced with the second GOAWAY: it is served if that includes it, and else says so.
    last = int.from_bytes(goaways[-1][3][:4], "big")
    assert last in (big, late)
    answered = any(f[0] in (0, 1) and f[1] & 1 and f[2] == late for f in seen)
    assert answered == (last == late)
    assert any(f[0] == 0 and f[1] & 1 and f[2] == big for f in seen), "the running answer was cut"
    assert seen[-1][0] != 3
    assert p.process.wait(15) == 0
    with pytest.raises(ConnectionError):
        socket.create_connection(plain.at["nrf"].rsplit(":", 1), timeout=5)


class Raw:
    def __init__(self, s):
        self.s, self.data = s, b""

    def send(self, data):
        self.s.sendall(data)

    def until_end(self):
        """All frames up to the end of the stream; PINGs are answered."""
        answered = 0
        while True:
            more = self.s.recv(65536)
            if not more:
                return list(frames(self.data))
            self.data += more
            pings = [f for f in frames(self.data) if f[0] == 6 and not f[1] & 1]
            for f in pings[answered:]:
                self.s.sendall(frame(6, 1, 0, f[3]))
            answered = len(pings)


def test_h2load(plain):
    plain.run("nrf", "--instances", "3", "--instance-type", "UDM")
    argv = [program("h2load"), "-n", "20000", "-c", "8", "-m", "10"]
    done = subprocess.run([*argv, plain.uri("nrf") + DISCOVER], capture_output=True, text=True, timeout=120, check=True)
    assert "20000 succeeded, 0 failed, 0 errored, 0 timeout" in done.stdout
    assert "status codes: 20000 2xx" in done.stdout
    assert plain.running["nrf"].stop() == 0


def test_sigterm_under_h2load_loses_no_request(plain, tmp_path):
    p = plain.run("nrf", "--instances", "3", "--instance-type", "UDM")
    log = tmp_path / "requests"  # h2load writes each answered request there
    argv = [program("h2load"), "-n", "3000000", "-c", "8", "-m", "16", f"--log-file={log}", plain.uri("nrf") + DISCOVER]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as loader:
        wait_for(lambda: log.exists() and log.stat().st_size > 0)
        assert p.stop(timeout=60) == 0
        rest = loader.stdout.read()
    answers = int(re.search(r"event=ended .*requests=(\d+) answers=(\d+)", p.text())[2])
    requests = int(re.search(r"event=ended .*requests=(\d+)", p.text())[1])
    good = int(re.search(r"status codes: (\d+) 2xx", rest)[1])
    done = int(re.search(r"requests: .* (\d+) succeeded", rest)[1])
    assert 0 < good < 3000000
    assert requests == answers == good == done


@pytest.mark.parametrize("connection", ["kept", "new"])
def test_sigterm_ends_it_when_a_client_dies_amid_a_request(pqplane, start, pki, connection, tmp_path):
    """50 times: a consumer is killed with a request under way, then the function is told to end."""
    for turn in range(50):
        core = Core(pqplane, start, "plain", pki)
        p = core.run("nrf", "--instances", "200")
        argv = [pqplane, "load", "--target", core.uri("nrf"), "--workload", "discovery", "--requests", "1000000"]
        argv += ["--connection", connection, "--json", "-", "--log-level", "error"]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as consumer:
            busy = lambda: int(open(f"/proc/{p.pid}/stat").read().rsplit(")", 1)[1].split()[11]) > turn % 5
            wait_for(busy)  # of its CPU time, so that the kill comes at some time of a request
            consumer.kill()
            assert p.stop(timeout=3) == 0
            consumer.wait()


# --- pqplane load ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("connection", ["kept", "new"])
@pytest.mark.parametrize("workload", ["discovery", "authentication"])
def test_load(core, workload, connection):
    core.run("nrf", "--instances", "20")
    core.run("udr")
    core.run("udm", "--udr", core.uri("udr"), "--connection", connection)
    core.run("ausf", "--udm", core.uri("udm"), "--connection", connection)
    kind = "nrf" if workload == "discovery" else "ausf"
    result = core.load(kind, "--workload", workload, "--connection", connection, "--requests", "20", "--warmup", "2", "--body-bytes", "2048")
    assert result["errors"] == [] and len(result["samples"]) == 20
    assert (result["workload"], result["connection"]) == (workload, connection)
    assert 0 < result["cpu_ns"] and 0 < result["wall_ns"]
    before = -1
    for s in result["samples"]:
        assert s["status"] == (200 if workload == "discovery" else 201)
        assert before < s["at_ns"] <= result["wall_ns"] and s["total_ns"] > 0
        before = s["at_ns"]
        if connection == "new":
            assert s["tcp_ns"] > 0 and (s["tls_ns"] > 0) == core.tls and (s["chain_ns"] > 0) == core.tls
            assert s["chain_ns"] <= s["tls_ns"]
            assert 0 <= s["total_ns"] - (s["tcp_ns"] + s["tls_ns"] + s["http_ns"]) < 1_000_000
        else:
            assert (s["tcp_ns"], s["tls_ns"], s["chain_ns"], s["http_ns"]) == (0, 0, 0, s["total_ns"])
        if workload == "discovery":
            assert abs(s["bytes"] - 2048) < 500
    for p in core.running.values():
        assert p.stop() == 0
        assert "level=error" not in p.text() and "RESET" not in p.text()


def test_load_counts_failures(core):
    core.run("nrf")
    lost = core.load("nrf", "--workload", "authentication", "--requests", "3", check=False)
    assert lost["samples"] == [] and lost["errors"] == [{"reason": "status 400", "count": 3}]
    core.running["nrf"].stop()
    lost = core.load("nrf", "--workload", "discovery", "--requests", "3", check=False)
    assert lost["samples"] == [] and lost["errors"] == [{"reason": "REFUSED", "count": 3}]


def test_load_checks_the_name(pqplane, start, pki):
    core = Core(pqplane, start, "tls", pki)
    core.run("nrf")
    common = ("--workload", "discovery", "--requests", "2", "--warmup", "0", "--connection", "new")
    assert core.load("nrf", *common, "--name", "nrf.5gc.example")["errors"] == []
    assert core.load("nrf", *common, "--name", "udm.5gc.example", check=False)["errors"] == [{"reason": "wrong-name", "count": 2}]


def test_idle_timeout_of_one_millisecond(core):
    """As free5GC has it: connections end between requests, and no request is lost."""
    core.run("nrf", "--instances", "1", "--idle-timeout", "1ms")
    result = core.load("nrf", "--workload", "discovery", "--requests", "200")
    assert result["errors"] == [] and len(result["samples"]) == 200


def test_mutual_tls_is_demanded(pqplane, start, pki):
    core = Core(pqplane, start, "tls", pki)
    p = core.run("nrf")
    argv = [program("curl"), "-sS", "-m", "10", "--cacert", f"{pki}/root.crt", core.uri("nrf") + DISCOVER]
    assert subprocess.run(argv, capture_output=True).returncode != 0
    wait_for(lambda: "no-certificate" in p.text())
    assert core.call("nrf", "GET", DISCOVER)[0] == 200


@pytest.mark.parametrize("argv, words", [
    (["nf"], "name the network function"),
    (["nf", "amf", "--listen", "127.0.0.1:0"], "there is no network function"),
    (["nf", "nrf"], "--listen"),
    (["nf", "nrf", "--listen", "127.0.0.1:0", "--certificate", "x"], "--key and --ca"),
    (["nf", "nrf", "--listen", "127.0.0.1:0", "--idle-timeout", "5"], "--idle-timeout"),
    (["nf", "udm", "--listen", "127.0.0.1:0", "--udr", "https://a:1"], "--udr"),
    (["nf", "udm", "--listen", "127.0.0.1:0", "--register"], "--nrf"),
    (["nf", "nrf", "--listen", "127.0.0.1:0", "--instance", "7"], "no UUID"),
    (["nf", "nrf", "--listen", "127.0.0.1:0", "--nope"], "no option"),
    (["load", "--target", "http://127.0.0.1:1"], "are needed"),
    (["load", "--target", "127.0.0.1:1", "--workload", "discovery", "--json", "-"], "--target"),
    (["load", "--target", "https://127.0.0.1:1", "--workload", "discovery", "--json", "-"], "--certificate"),
    (["load", "--target", "http://127.0.0.1:1", "--workload", "coffee", "--json", "-"], "one of discovery, authentication"),
])
def test_wrong_usage(pqplane, argv, words):
    done = subprocess.run([pqplane, *argv], capture_output=True, text=True, timeout=10)
    assert done.returncode == 2 and words in done.stderr


def test_help(pqplane):
    for argv in (["nf", "--help"], ["nf", "ausf", "--help"], ["load", "--help"]):
        done = subprocess.run([pqplane, *argv], capture_output=True, text=True, timeout=10, check=True)
        assert "usage: pqplane" in done.stdout
