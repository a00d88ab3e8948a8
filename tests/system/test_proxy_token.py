"""pqplane proxy with keys that stay in a PKCS#11 token: SoftHSM, whose keys were imported and then deleted here."""

import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile

import pytest

from proxy_peers import PATIENCE, Pair, Pki, Proxy, connect, egress_config, ingress_config, read_all, until

PIN = "1234"
MODULE = next((m for m in ("/usr/lib/softhsm/libsofthsm2.so", "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so")
               if os.path.exists(m)), None)
POLICY = {"mode": "hybrid", "level": 1, "groups": "X25519MLKEM768", "sigalgs": "ecdsa_secp256r1_sha256",
          "require": ["pq-kex"]}

pytestmark = pytest.mark.skipif(not MODULE or not shutil.which("softhsm2-util"), reason="SoftHSM is not installed")


class Token:
    """A SoftHSM token in a folder of its own; both proxies' keys in it, and nowhere else.

    Where the tests are root's, workers become nobody: then the token is nobody's, and the PIN's file stays root's.
    """

    def __init__(self, folder, pki):
        self.folder = folder
        self.environment = {**os.environ, "SOFTHSM2_CONF": str(folder / "softhsm2.conf")}
        (folder / "tokens").mkdir()
        (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder}/tokens\nobjectstore.backend = file\n"
                                              "log.level = ERROR\nslots.removable = false\n")
        self.tool("--init-token", "--free", "--label", "lab", "--so-pin", "5678")
        for number, name in enumerate(("server", "client"), 1):
            self.import_key(pki.file(f"{name}.key"), name, number)
        self.give_to_workers()
        self.pin = folder / "pin"
        self.write_pin(PIN + "\n")

    def tool(self, *args):
        subprocess.run(["softhsm2-util", *args, "--pin", PIN], check=True, capture_output=True, env=self.environment)

    def give_to_workers(self):
        if os.geteuid() != 0:
            return
        nobody = pwd.getpwnam("nobody")
        for path in [self.folder, *self.folder.rglob("*")]:
            os.chown(path, nobody.pw_uid, nobody.pw_gid)

    def import_key(self, key, name, number):
        """Takes a key into the token; the file goes."""
        self.tool("--import", key, "--token", "lab", "--label", name, "--id", f"{number:02x}")
        os.remove(key)
        self.give_to_workers()

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
def token(pki):
    with tempfile.TemporaryDirectory(prefix="pqplane-token-") as folder:
        yield Token(pathlib.Path(folder), pki)


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


def test_a_worker_that_died_finds_its_key_again(start, pqplane, tmp_path, pki, token, function):
    p = Pair(start_with(start, token), pqplane, tmp_path, pki, function.address, ingress=side(token, "server"),
             egress=side(token, "client"))
    old = p.ingress.pid
    os.kill(old, signal.SIGKILL)
    until(lambda: p.ingress.workers and p.ingress.pid != old, "a new worker")
    assert exchange(p.egress.port("nrf")) == (b"hello", "end")


def test_a_reload_names_another_key(start, pqplane, tmp_path, pki, token, function):
    """The worker is contained and can't look into the token again: another takes its place. What it carries lives on
    with it, and is judged by what later reloads bring."""
    run = start_with(start, token)
    ingress = Proxy(run, pqplane, tmp_path, "ingress",
                    ingress_config(pki, function.address, watch=False, timeouts={"grace": "100ms"}, **side(token, "server")))
    egress = Proxy(run, pqplane, tmp_path, "egress",
                   egress_config(pki, f"127.0.0.1:{ingress.port('sbi')}", carry="connection", **side(token, "client")))
    pki.issue("other", dns="server.example")
    token.import_key(pki.file("other.key"), "other", 3)
    s = connect(egress.port("nrf"))
    s.sendall(b"before")
    assert s.recv(6) == b"before"
    old = ingress.pid
    config = json.loads(ingress.path.read_text())
    config["tls"] |= {"certificate": pki.file("other.crt"), "key": token.uri("other")}
    assert ingress.reload(config)["generation"] == 2
    assert "the key pkcs11:token=lab;object=other" in ingress.wait_log("worker replaced")["detail"]
    assert exchange(egress.port("nrf")) == (b"hello", "end")
    assert "CN=other" in egress.wait_log("connection closed")["peer_name"]
    assert old in ingress.workers and len(ingress.workers) == 2
    s.sendall(b"after")
    assert s.recv(5) == b"after"
    pki.run("crl", "--revoke", "client")
    config["tls"]["crl"] = pki.file("crl.pem")
    ingress.reload(config)
    assert read_all(s) == (b"", "reset")
    until(lambda: old not in ingress.workers, "the end of the worker that was replaced")


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
