"""pqplane pki: what it makes is checked, and used, by openssl; what it is told wrongly is refused in one sentence."""

import os
import pathlib
import re
import shutil
import stat
import subprocess

import pytest

FORMS = ["seed-priv", "seed-only", "priv-only", "bare-seed", "bare-priv", "oqskeypair"]
FAST = ["p256", "p384", "p521", "ed25519", "ed448", "rsa2048", "rsa3072", "mldsa44", "mldsa65", "mldsa87", "slhdsa128f", "slhdsa192f", "slhdsa256f",
        "slhdsashake128f", "slhdsashake192f", "slhdsashake256f"]
SLOW = ["slhdsa128s", "slhdsa192s", "slhdsa256s", "slhdsashake128s", "slhdsashake192s", "slhdsashake256s"]
MIXED = [
    ("slhdsa128s", "mldsa65", "mldsa44"),
    ("rsa3072", None, "p256"),
    ("rsa2048", "p384", "mldsa65"),
    ("mldsa87", "ed25519", "rsa2048"),
    ("p521", "slhdsa128f", "slhdsashake128f"),
    ("ed448", None, "mldsa87"),
]


def run(*argv, **options):
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=120, **options)


def ok(*argv, **options):
    r = run(*argv, **options)
    assert r.returncode == 0, f"{argv}: {r.stdout}{r.stderr}"
    return r.stdout


def refused(status, words, *argv, **options):
    r = run(*argv, **options)
    assert r.returncode == status, f"{argv}: {r.returncode} {r.stdout}{r.stderr}"
    assert r.stderr.count("\n") == 1 and re.search(words, r.stderr), r.stderr
    return r


@pytest.fixture
def pki(pqplane, tmp_path):
    """pki(verb, options...) on the authority tmp_path/ca."""
    return lambda verb, *options: ok(pqplane, "pki", verb, "--dir", tmp_path / "ca", *options)


@pytest.fixture
def ca(tmp_path):
    return tmp_path / "ca"


def verify(ca, name, *options):
    return run("openssl", "verify", "-x509_strict", "-crl_check_all", "-CRLfile", ca / "crl.pem", "-CAfile", ca / "root.crt",
               "-untrusted", ca / f"{name}.crt", "-purpose", "sslserver", *options, ca / f"{name}.crt")


def text_of(path):
    return ok("openssl", "x509", "-in", path, "-noout", "-text", "-certopt", "no_pubkey,no_sigdump")


def files(folder):
    return sorted(p.name for p in folder.iterdir())


# --- what openssl makes of it -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("algorithm", FAST + SLOW)
def test_openssl_accepts_each_algorithm(pki, ca, algorithm):
    pki("init", "--root", algorithm)
    pki("issue", "--name", "amf", "--algorithm", algorithm, "--dns", "amf.5gc.example")
    r = verify(ca, "amf", "-verify_hostname", "amf.5gc.example")
    assert r.returncode == 0, r.stdout + r.stderr
    ok("openssl", "verify", "-x509_strict", "-CAfile", ca / "root.crt", ca / "amf.crt")


@pytest.mark.parametrize("root, intermediate, leaf", MIXED)
def test_openssl_accepts_mixed_paths(pki, ca, root, intermediate, leaf):
    pki("init", "--root", root, *(["--intermediate", intermediate] if intermediate else []))
    pki("issue", "--name", "amf", "--algorithm", leaf, "--nf", "4947a69a-f61b-4bc1-b9da-47c9c5d14b64")
    r = verify(ca, "amf")
    assert r.returncode == 0, r.stdout + r.stderr
    pki("crl", "--revoke", "amf")
    r = verify(ca, "amf")
    assert r.returncode != 0 and "certificate revoked" in r.stderr


def test_extensions(pki, ca):
    pki("init", "--root", "mldsa65", "--intermediate", "mldsa44", "--name", "operator A", "--valid", "365d")
    pki("issue", "--name", "amf", "--algorithm", "mldsa44", "--dns", "amf.5gc.example", "--dns", "*.slice.example", "--ip", "198.18.0.1", "--ip", "fd00::1",
        "--uri", "https://amf.5gc.example/", "--nf", "4947A69A-f61b-4bc1-b9da-47c9c5d14b64")
    leaf, middle, root = (text_of(ca / n) for n in ("amf.crt", "intermediate.crt", "root.crt"))
    assert "Subject: CN=amf\n" in leaf and "Issuer: CN=operator A intermediate\n" in leaf
    assert re.search(r"Basic Constraints: critical\s+CA:FALSE", leaf)
    assert re.search(r"Key Usage: critical\s+Digital Signature\n", leaf)
    assert re.search(r"Extended Key Usage:\s+TLS Web Server Authentication, TLS Web Client Authentication\n", leaf)
    assert ("DNS:amf.5gc.example, DNS:*.slice.example, IP Address:198.18.0.1, IP Address:FD00:0:0:0:0:0:0:1, URI:https://amf.5gc.example/, "
            "URI:urn:uuid:4947a69a-f61b-4bc1-b9da-47c9c5d14b64\n") in leaf
    for text, depth in ((root, 1), (middle, 0)):
        assert re.search(rf"Basic Constraints: critical\s+CA:TRUE, pathlen:{depth}\n", text)
        assert re.search(r"Key Usage: critical\s+Certificate Sign, CRL Sign\n", text)
    for text in (leaf, middle, root):
        serial = re.search(r"Serial Number:\s+([0-9a-f:]+)\n", text).group(1).replace(":", "")
        assert len(serial) == 40 and int(serial[:2], 16) < 0x80
    assert (ca / "amf.crt").read_text().count("BEGIN CERTIFICATE") == 2
    for name in ("root.key", "intermediate.key", "amf.key"):
        assert stat.S_IMODE((ca / name).stat().st_mode) == 0o600
        assert (ca / name).read_text().startswith("-----BEGIN PRIVATE KEY-----\n")


@pytest.mark.parametrize("valid, not_before, words", [
    ("1d", "-2d", "certificate has expired"),
    ("1d", "1h", "certificate is not yet valid"),
    ("2d", "-1d", None),
])
def test_times(pki, ca, valid, not_before, words):
    pki("init", "--root", "ed25519")
    pki("issue", "--name", "amf", "--algorithm", "ed25519", "--not-before", not_before, "--valid", valid)
    r = verify(ca, "amf")
    assert (r.returncode == 0) == (words is None), r.stderr
    assert words is None or words in r.stderr


# --- TLS ---------------------------------------------------------------------------------------------------------------------
def handshake(ca, name, port, expect):
    chain = ["-cert_chain", ca / "intermediate.crt"] if (ca / "intermediate.crt").exists() else []
    server = subprocess.Popen(["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-cert", ca / f"{name}.crt", *chain, "-key", ca / f"{name}.key",
                               "-tls1_3", "-naccept", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in server.stdout:
            if line.startswith("ACCEPT"):
                break
        else:
            pytest.fail("s_server did not start")
        text = ok("openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_3", "-CAfile", ca / "root.crt", "-verify_return_error", "-x509_strict",
                  "-verify_hostname", "amf.5gc.example", input="Q\n")
        assert f"Peer signature type: {expect}" in text
        assert "Verify return code: 0 (ok)" in text
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("algorithm, expect", [("mldsa65", "mldsa65"), ("p256", "ecdsa_secp256r1_sha256"), ("rsa2048", "rsa_pss_rsae_sha256")])
def test_openssl_serves_tls_with_it(pki, ca, free_port, algorithm, expect):
    pki("init", "--root", "ed25519")
    pki("issue", "--name", "amf", "--algorithm", algorithm, "--dns", "amf.5gc.example")
    handshake(ca, "amf", free_port(), expect)


# --- forms of an ML-DSA key --------------------------------------------------------------------------------------------------
def rewrite(key, form):
    """The key in another PKCS#8 form, written by openssl."""
    size = key.stat().st_size
    out = key.with_suffix(".other")
    ok("openssl", "pkey", "-in", key, "-provparam", f"ml-dsa.output_formats={form}", "-out", out)
    out.chmod(0o600)
    out.replace(key)
    return size


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_an_mldsa_key_issues_and_serves(pqplane, pki, ca, free_port, form):
    pki("init", "--root", "mldsa44", "--intermediate", "mldsa65")
    pki("issue", "--name", "before", "--algorithm", "mldsa65", "--dns", "amf.5gc.example")
    sizes = {rewrite(ca / f"{n}.key", form) - (ca / f"{n}.key").stat().st_size for n in ("root", "intermediate", "before")}
    assert form == "seed-priv" or sizes != {0}
    pki("issue", "--name", "amf", "--algorithm", "mldsa65")
    pki("crl", "--revoke", "amf", "--revoke", "1234")
    assert verify(ca, "before").returncode == 0
    assert "certificate revoked" in verify(ca, "amf").stderr
    assert "ML-DSA-65, public key 1952 bytes, pq" in ok(pqplane, "pki", "show", ca / "before.key")
    handshake(ca, "before", free_port(), "mldsa65")


def test_a_key_that_openssl_made_signs_too(pki, pqplane, ca):
    ca.mkdir()
    ok("openssl", "req", "-x509", "-newkey", "ML-DSA-87", "-noenc", "-keyout", ca / "root.key", "-out", ca / "root.crt", "-days", "100",
       "-subj", "/O=Operator/CN=theirs", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    pki("issue", "--name", "amf", "--algorithm", "mldsa44")
    pki("crl")
    assert verify(ca, "amf").returncode == 0


# --- revocation --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("left", ["", "junk\n"])
def test_a_list_that_lost_its_content_is_not_begun_anew(pki, pqplane, ca, left):
    pki("init", "--root", "mldsa44")
    pki("issue", "--name", "bad", "--algorithm", "mldsa44")
    pki("crl", "--revoke", "bad")
    (ca / "crl.pem").write_text(left)
    r = run(pqplane, "pki", "crl", "--dir", ca)
    assert r.returncode == 1 and "holds no list of the root authority: move the file away" in r.stderr
    assert (ca / "crl.pem").read_text() == left
    (ca / "crl.pem").unlink()
    pki("crl", "--revoke", "bad")
    assert "certificate revoked" in verify(ca, "bad").stderr


def test_revocation(pki, ca):
    pki("init", "--root", "slhdsa128f", "--intermediate", "mldsa44")
    for name in ("amf", "smf", "udm"):
        pki("issue", "--name", name, "--algorithm", "p256")
    pki("crl", "--revoke", "amf", "--valid", "2d")
    serial = ok("openssl", "x509", "-in", ca / "smf.crt", "-noout", "-serial").strip().split("=")[1]
    pki("crl", "--revoke", serial)
    assert [verify(ca, n).returncode == 0 for n in ("amf", "smf", "udm")] == [False, False, True]
    text = ok("openssl", "crl", "-in", ca / "crl.pem", "-noout", "-text")
    assert re.search(r"CRL Number:\s+3\n", text)
    pki("crl", "--revoke", "intermediate")
    r = verify(ca, "udm")
    assert r.returncode != 0 and "at 1 depth lookup: certificate revoked" in r.stderr
    assert [p for p in files(ca) if ".new" in p] == []


def test_two_at_once_lose_nothing(pqplane, pki, ca):
    pki("init", "--root", "ed25519")
    names = [f"n{i}" for i in range(6)]
    for n in names:
        pki("issue", "--name", n, "--algorithm", "ed25519")
    running = [subprocess.Popen([pqplane, "pki", "crl", "--dir", ca, "--revoke", n]) for n in names]
    assert [p.wait(60) for p in running] == [0] * len(names)
    assert all("certificate revoked" in verify(ca, n).stderr for n in names)


# --- show ----------------------------------------------------------------------------------------------------------------------
def test_show(pqplane, pki, ca, tmp_path):
    pki("init", "--root", "slhdsa128f", "--intermediate", "mldsa65")
    pki("issue", "--name", "amf", "--algorithm", "p256", "--dns", "amf.example")
    text = ok(pqplane, "pki", "show", ca / "amf.crt", ca / "amf.key", ca / "crl.pem")
    assert text.count(": certificate\n") == 2 and text.count(": revocation list\n") == 2 and text.count(": private key\n") == 1
    assert "EC prime256v1, 65 bytes, classical" in text and "ML-DSA-65, 3309 bytes, pq" in text and "SLH-DSA-SHA2-128f, 17088 bytes, pq" in text
    secret = ok("openssl", "pkey", "-in", ca / "amf.key", "-noout", "-text").split("priv:")[1].split("pub:")[0]
    digits = re.sub(r"[\s:]", "", secret)
    assert digits[2:18] not in text
    for name, form in (("amf.crt", ["x509"]), ("crl.pem", ["crl"]), ("amf.key", ["pkey"])):
        ok("openssl", *form, "-in", ca / name, "-outform", "DER", "-out", tmp_path / "der")
        assert ok(pqplane, "pki", "show", tmp_path / "der").count("\n") > 2
    ok("openssl", "pkey", "-in", ca / "amf.key", "-aes256", "-passout", "pass:word", "-out", tmp_path / "locked")
    assert "encrypted private key" in ok(pqplane, "pki", "show", tmp_path / "locked", stdin=subprocess.DEVNULL)


def test_show_refuses(pqplane, tmp_path):
    (tmp_path / "text").write_text("hello\n")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "broken").write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    refused(1, "holds no certificate", pqplane, "pki", "show", tmp_path / "text")
    refused(1, "holds no certificate", pqplane, "pki", "show", tmp_path / "empty")
    refused(1, "can't be read", pqplane, "pki", "show", tmp_path / "broken")
    refused(1, "No such file", pqplane, "pki", "show", tmp_path / "nothing")
    refused(1, "", pqplane, "pki", "show", "/dev/zero")
    refused(2, "needs a file", pqplane, "pki", "show")


# --- refusals --------------------------------------------------------------------------------------------------------------------
ISSUE = ["issue", "--name", "amf", "--algorithm", "ed25519"]


@pytest.mark.parametrize("status, words, argv", [
    (2, "say what to do", []),
    (2, 'no "nothing"', ["nothing"]),
    (2, "init needs --root", ["init"]),
    (2, "issue needs --name", ["issue", "--algorithm", "p256"]),
    (2, "issue needs --algorithm", ["issue", "--name", "amf"]),
    (2, "init takes no \"--dns\"", ["init", "--root", "p256", "--dns", "a"]),
    (2, "--root needs a value", ["init", "--root"]),
    (2, "given twice", ["init", "--root", "p256", "--root", "p256"]),
    (2, "--valid", ["init", "--root", "p256", "--valid", "soon"]),
    (2, "--valid", ["init", "--root", "p256", "--valid", "10"]),
    (2, "--valid", ["init", "--root", "p256", "--valid", "0"]),
    (2, "--valid", ["init", "--root", "p256", "--valid", "-1d"]),
    (2, "--valid", ["init", "--root", "p256", "--valid", "1ms"]),
    (2, "--not-before", [*ISSUE, "--not-before", "yesterday"]),
    (2, "--not-before", [*ISSUE, "--not-before", "--1d"]),
    (1, "at most 36525 days", ["init", "--root", "p256", "--valid", "40000d"]),
    (1, "mldsa65", ["init", "--root", "mldsa66"]),
    (1, "slhdsa128s", ["init", "--root", "p256", "--intermediate", "slhdsa129s"]),
    (1, "common name", ["init", "--root", "p256", "--name", "x" * 65]),
    (1, "no authority", ISSUE),
    (1, "no authority|can't use", ["crl"]),
])
def test_mistakes_without_an_authority(pqplane, ca, status, words, argv):
    dir_ = ["--dir", ca] if argv and argv[0] in ("init", "issue", "crl") else []
    refused(status, words, pqplane, "pki", *argv[:1], *dir_, *argv[1:])
    assert not ca.exists()


@pytest.mark.parametrize("status, words, argv", [
    (1, "exists", ["init", "--root", "p256"]),
    (1, "mldsa44", ["issue", "--name", "amf", "--algorithm", "mldsa4"]),
    (1, "can't name a certificate", ["issue", "--name", "../amf", "--algorithm", "p256"]),
    (1, "authority's own", ["issue", "--name", "root", "--algorithm", "p256"]),
    (1, "no DNS name", [*ISSUE, "--dns", "a b"]),
    (1, "no IP address", [*ISSUE, "--ip", "198.18.0.256"]),
    (1, "no URI", [*ISSUE, "--uri", "amf"]),
    (1, "no NF instance id", [*ISSUE, "--nf", "amf"]),
    (1, "outlive its issuer", [*ISSUE, "--valid", "11d"]),
    (1, "begin after its issuer", [*ISSUE, "--not-before", "11d"]),
    (1, "names no certificate", ["crl", "--revoke", "nobody"]),
    (1, "can't revoke itself", ["crl", "--revoke", "root"]),
])
def test_mistakes_with_an_authority(pqplane, pki, ca, status, words, argv):
    pki("init", "--root", "ed25519", "--valid", "10d")
    before = {p.name: p.read_bytes() for p in ca.iterdir()}
    refused(status, words, pqplane, "pki", argv[0], "--dir", ca, *argv[1:])
    assert {p.name: p.read_bytes() for p in ca.iterdir()} == before


def test_an_expired_authority(pqplane, ca):
    ca.mkdir()
    ok("openssl", "req", "-x509", "-newkey", "ed25519", "-noenc", "-keyout", ca / "root.key", "-out", ca / "root.crt", "-subj", "/CN=old",
       "-not_before", "20200101000000Z", "-not_after", "20210101000000Z", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    refused(1, "expired on 2021-01-01", pqplane, "pki", "issue", "--dir", ca, "--name", "amf", "--algorithm", "p256")
    assert files(ca) == ["root.crt", "root.key"]


def test_a_key_that_does_not_fit(pqplane, pki, ca, tmp_path):
    pki("init", "--root", "mldsa44")
    ok(pqplane, "pki", "init", "--dir", tmp_path / "other", "--root", "mldsa44")
    shutil.copy(tmp_path / "other/root.key", ca / "root.key")
    refused(1, "is not the key of", pqplane, "pki", "issue", "--dir", ca, "--name", "amf", "--algorithm", "p256")
    assert files(ca) == ["crl.pem", "root.crt", "root.key"]


# --- folders -----------------------------------------------------------------------------------------------------------------------
def in_own_mounts(script, *argv):
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    probe = run("unshare", "--mount", "true")
    if probe.returncode != 0:
        pytest.skip(f"no mount namespace here: {probe.stderr.strip()}")
    return run("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *argv)


def test_a_full_disk_leaves_nothing(pqplane, tmp_path):
    """A file system of 8 pages: the root's key and certificate fit, then the intermediate's don't."""
    script = """
        mount -t tmpfs -o size=32k,nr_inodes=16 none "$2" || exit 99
        "$1" pki init --dir "$2/ca" --root mldsa87 --intermediate mldsa87; echo "status $?"
        ls -A "$2"
        "$1" pki init --dir "$2/small" --root ed25519 || exit 98
        head -c 8k /dev/zero >"$2/fill"; head -c 32k /dev/zero >"$2/rest" 2>/dev/null
        "$1" pki issue --dir "$2/small" --name amf --algorithm mldsa65; echo "status $?"
        ls -A "$2/small"
    """
    r = in_own_mounts(script, pqplane, tmp_path)
    if r.returncode == 99:
        pytest.skip(f"no tmpfs can be mounted here: {r.stderr.strip()}")
    assert r.returncode == 0, r.stdout + r.stderr
    assert r.stdout.splitlines() == ["status 1", "status 1", "crl.pem", "root.crt", "root.key"], r.stdout + r.stderr
    assert r.stderr.count("No space left on device") == 2


def test_a_folder_that_cannot_be_written(pqplane, tmp_path):
    script = """
        mount -t tmpfs none "$2" && mkdir "$2/in" && mount -o remount,ro "$2" || exit 99
        "$1" pki init --dir "$2/ca" --root ed25519; echo "status $?"
        "$1" pki init --dir "$2/in" --root ed25519; echo "status $?"
    """
    r = in_own_mounts(script, pqplane, tmp_path)
    if r.returncode == 99:
        pytest.skip(f"no tmpfs can be mounted here: {r.stderr.strip()}")
    assert r.stdout.splitlines() == ["status 1", "status 1"], r.stdout + r.stderr
    assert r.stderr.count("Read-only file system") == 2 and r.stderr.count("\n") == 2


def test_a_folder_without_permission(pqplane, tmp_path):
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("setpriv is missing")
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o755)
    for parent in [tmp_path, *tmp_path.parents[:3]]:
        if str(parent).startswith("/tmp/"):
            parent.chmod(0o755)
    drop = ["setpriv", "--reuid", "65534", "--clear-groups", "--regid", "65534"] if os.geteuid() == 0 else []
    if not drop:
        locked.chmod(0o555)
    readable = run(*drop, "test", "-x", pqplane)
    if readable.returncode != 0:
        pytest.skip("another user can't run the program from here")
    refused(1, "Permission denied", *drop, pqplane, "pki", "init", "--dir", locked / "ca", "--root", "ed25519")
    refused(1, "Permission denied", *drop, pqplane, "pki", "init", "--dir", locked, "--root", "ed25519")
    assert files(locked) == []


def test_an_interrupted_run_never_leaves_a_readable_key(pki, ca):
    """Keys are made with their mode, not changed to it afterwards: even umask 0 shows them to nobody."""
    before = os.umask(0)
    try:
        pki("init", "--root", "ed25519")
    finally:
        os.umask(before)
    assert stat.S_IMODE((ca / "root.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((ca / "root.crt").stat().st_mode) == 0o644
    assert stat.S_IMODE(pathlib.Path(ca).stat().st_mode) == 0o755
