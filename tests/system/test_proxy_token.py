"""pqplane proxy with keys that stay in a PKCS#11 token: SoftHSM, whose keys were imported and then deleted here."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from proxy_peers import PATIENCE, Function, Pair, Pki, connect, echo, ingress_config, read_all

PIN = "1234"
MODULE = next((m for m in ("/usr/lib/softhsm/libsofthsm2.so", "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so")
               if os.path.exists(m)), None)
POLICY = {"mode": "hybrid", "level": 1, "groups": "X25519MLKEM768", "sigalgs": "ecdsa_secp256r1_sha256",
          "require": ["pq-kex"]}

pytestmark = pytest.mark.skipif(not MODULE or not shutil.which("softhsm2-util"), reason="SoftHSM is not installed")


class Token:
    """A SoftHSM token in a folder of its own; both proxies' keys in it, and nowhere else."""

    def __init__(self, folder, pki):
        self.folder = folder
        self.environment = {**os.environ, "SOFTHSM2_CONF": str(folder / "softhsm2.conf")}
        (folder / "tokens").mkdir()
        (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder}/tokens\nobjectstore.backend = file\n"
                                              "log.level = ERROR\nslots.removable = false\n")
        self.tool("--init-token", "--free", "--label", "lab", "--so-pin", "5678")
        for number, name in enumerate(("server", "client")):
            key = pki.file(f"{name}.key")
            self.tool("--import", key, "--token", "lab", "--label", name, "--id", f"0{number + 1}")
            os.remove(key)
        self.pin = folder / "pin"
        self.write_pin(PIN + "\n")

    def tool(self, *args):
        subprocess.run(["softhsm2-util", *args, "--pin", PIN], check=True, capture_output=True, env=self.environment)

    def write_pin(self, text, mode=0o600):
        self.pin.write_text(text)
        self.pin.chmod(mode)

    def uri(self, name, token="lab", pin=True):
        return f"pkcs11:token={token};object={name}" + (f"?pin-source=file:{self.pin}" if pin else "")


@pytest.fixture
def pki(pqplane, tmp_path):
    pki = Pki(pqplane, tmp_path / "pki", root="p256", intermediate="p256", leaf="p256")
    pki.issue("server")
    pki.issue("client")
    return pki


@pytest.fixture
def token(tmp_path, pki):
    return Token(tmp_path, pki)


@pytest.fixture
def function():
    f = Function(echo)
    yield f
    f.close()


def start_with(start, token):
    return lambda argv, **options: start(argv, **{**options, "env": {**options.get("env", os.environ), **token.environment}})


def side(token, name):
    return {"policy": POLICY, "tls": {"key": token.uri(name)}, "pkcs11": {"module": MODULE}}


def exchange(port, data=b"hello"):
    s = connect(port)
    s.sendall(data)
    s.shutdown(1)
    return read_all(s)


def test_a_pair_with_both_keys_in_a_token(start, pqplane, tmp_path, pki, token, function):
    p = Pair(start_with(start, token), pqplane, tmp_path, pki, function.address, ingress=side(token, "server"),
             egress=side(token, "client"))
    assert exchange(p.egress.port("nrf")) == (b"hello", "end")
    for i in range(50):
        assert exchange(p.egress.port("nrf"), bytes([i])) == (bytes([i]), "end")
    for proxy in p.both():
        line = proxy.wait_log("connection closed")
        assert (line["reason"], line["group"]) == ("end", "X25519MLKEM768")
        assert line["signature"] == "ecdsa_secp256r1_sha256"


def test_keys_do_not_leave_the_token(token):
    """What is in the token can't be read out, neither by its module nor from its files."""
    stored = b"".join(p.read_bytes() for p in pathlib.Path(token.folder, "tokens").rglob("*.object"))
    assert stored and b"PRIVATE KEY" not in stored
    config = token.folder / "openssl.cnf"
    config.write_text("openssl_conf = i\n[i]\nproviders = p\n[p]\ndefault = d\npkcs11 = k\n[d]\nactivate = 1\n"
                      f"[k]\npkcs11-module-path = {MODULE}\nactivate = 1\n")
    r = subprocess.run(["openssl", "pkey", "-in", token.uri("server"), "-outform", "DER"],
                       capture_output=True, timeout=PATIENCE, env={**token.environment, "OPENSSL_CONF": str(config)})
    assert r.returncode != 0 or not r.stdout


def check(pqplane, folder, token, pki, key, module=MODULE, environment=None):
    """What --check says of an ingress with this key."""
    config = ingress_config(pki, "127.0.0.1:8000", policy=POLICY, tls={"key": key},
                            **({"pkcs11": {"module": module}} if module else {}))
    path = folder / "checked.yaml"
    path.write_text(json.dumps(config))
    r = subprocess.run([pqplane, "proxy", "--check", "--config", path], capture_output=True, text=True, timeout=PATIENCE,
                       env=environment or token.environment, stdin=subprocess.DEVNULL)
    return r.returncode, r.stderr


def test_a_good_key_passes_the_check(pqplane, tmp_path, token, pki):
    assert check(pqplane, tmp_path, token, pki, token.uri("server")) == (0, "")


# What is done to the token before, the key's URI, what else is different, and what the sentence says.
MISTAKES = {
    "wrong PIN": lambda t: (
        t.write_pin("9999"), t.uri("server"), {},
        f'the token "lab" does not take the PIN in {t.pin}: correct it before the token locks itself'),
    "a PIN that others may read": lambda t: (
        t.write_pin(PIN, 0o644), t.uri("server"), {}, f"{t.pin} has mode 0644, so others may read it: chmod 600 it"),
    "an empty PIN": lambda t: (t.write_pin("\n"), t.uri("server"), {}, "must hold a PIN of 1 to 255 bytes"),
    "no PIN's file": lambda t: (t.pin.unlink(), t.uri("server"), {}, f"can't read {t.pin}: No such file"),
    "no PIN": lambda t: (
        None, t.uri("server", pin=False), {}, 'the token "lab" wants a PIN: write it into a file of mode 0600'),
    "a PIN in the URI": lambda t: (
        None, t.uri("server", pin=False) + "?pin-value=" + PIN, {}, "pin-value: a PIN has no place here"),
    "no token": lambda t: (
        None, t.uri("server", token="none"), {},
        'no token fits pkcs11:token=none;object=server;type=private: the PKCS#11 module has the tokens "lab"'),
    "no object": lambda t: (
        None, t.uri("nobody"), {},
        'the token "lab" holds no private key that fits pkcs11:token=lab;object=nobody;type=private'),
    "another's key": lambda t: (None, t.uri("client"), {}, "does not belong to the certificate"),
    "no module named": lambda t: (
        None, t.uri("server"), {"module": None},
        "is in a token: name the token's module with pkcs11: {module: PATH}"),
    "no module": lambda t: (
        None, t.uri("server"), {"module": "/nowhere/module.so"},
        "the PKCS#11 module /nowhere/module.so can't be loaded: /nowhere/module.so: cannot open"),
    "another library": lambda t: (None, t.uri("server"), {"module": "libz.so.1"}, "libz.so.1 is no PKCS#11 module"),
    "a module without its configuration": lambda t: (
        None, t.uri("server"), {"environment": {**t.environment, "SOFTHSM2_CONF": "/nowhere"}},
        "can't be initialised (its error 0x"),
    "a URI without object": lambda t: (
        None, f"pkcs11:token=lab?pin-source=file:{t.pin}", {}, "it names no key: add object=LABEL"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_one_clear_sentence(pqplane, tmp_path, token, pki, what):
    _, key, more, says = MISTAKES[what](token)
    code, text = check(pqplane, tmp_path, token, pki, key, **more)
    assert code == 1 and says in text, text
    assert text.count("\n") == 1 and PIN not in text.replace(str(tmp_path), "")
