"""pqplane algorithms and suites against what openssl itself says."""

import json
import pathlib
import re
import subprocess

import pytest



def run(*argv, **options):
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=60, **options)


def catalogue(pqplane, *options):
    r = run(pqplane, "algorithms", "--json", *options)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


@pytest.fixture(scope="module")
def algorithms(pqplane):
    return catalogue(pqplane)["algorithms"]


@pytest.fixture(scope="module")
def forward(pqplane):
    """The test provider, built beside the program under test."""
    path = pathlib.Path(pqplane).resolve().parents[2] / "tests/unit/crypto/pqforward.so"
    if not path.exists():
        pytest.skip(f"{path} is not built: it comes with the unit tests")
    return path


def openssl_list(what):
    r = run("openssl", "list", what)
    assert r.returncode == 0, r.stderr
    return set(r.stdout.strip().split(":"))


def test_groups_are_those_that_openssl_has(algorithms):
    ours = {a["name"] for a in algorithms if a["use"] == "key-exchange" and a["code_point"] is not None}
    assert ours == openssl_list("-tls-groups")


def test_schemes_are_those_that_tls13_can_use(algorithms):
    ours = {a["name"] for a in algorithms if a["use"] == "signature" and a["code_point"] is not None}
    theirs = openssl_list("-tls-signature-algorithms")
    for_tls12_alone = {n for n in theirs if n.startswith("dsa_") or n.endswith(("_sha1", "_sha224"))}
    for_tls12_alone |= {"ecdsa_sha224", "ecdsa_sha1"} & theirs
    assert ours == theirs - for_tls12_alone


def test_every_slh_dsa_is_there_without_a_code_point(algorithms):
    ours = {a["name"]: a for a in algorithms if a["name"].startswith("SLH-DSA")}
    text = run("openssl", "list", "-signature-algorithms").stdout
    assert set(ours) == set(re.findall(r"SLH-DSA-[A-Z0-9]+-\d+[sf]", text))
    assert len(ours) == 12
    assert all(a["code_point"] is None and a["kind"] == "pq" for a in ours.values())


@pytest.mark.parametrize("group", ["X25519MLKEM768", "SecP256r1MLKEM768", "SecP384r1MLKEM1024", "MLKEM512", "MLKEM1024", "secp521r1", "x448", "ffdhe2048"])
def test_sizes_are_those_of_a_real_handshake(algorithms, group, pqplane, tmp_path, free_port):
    """The key shares that openssl s_client and s_server exchange measure what is listed."""
    a = next(x for x in algorithms if x["name"] == group)
    ca = tmp_path / "ca"
    assert run(pqplane, "pki", "init", "--dir", ca, "--root", "ed25519").returncode == 0
    assert run(pqplane, "pki", "issue", "--dir", ca, "--name", "s", "--algorithm", "mldsa44", "--dns", "localhost").returncode == 0
    port = free_port()
    server = subprocess.Popen(["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-cert", ca / "s.crt", "-key", ca / "s.key", "-groups", group,
                               "-tls1_3", "-naccept", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in server.stdout:
            if line.startswith("ACCEPT"):
                break
        r = run("openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-groups", group, "-tls1_3", "-CAfile", ca / "root.crt", "-verify_return_error",
                "-trace", input="Q\n")
        assert r.returncode == 0, r.stdout + r.stderr
    finally:
        server.kill()
        server.communicate()
    shares = re.findall(r"NamedGroup: .* \((\d+)\)\s+key_exchange:\s*\(len=(\d+)\)", r.stdout)
    assert [(int(code), int(size)) for code, size in shares] == [
        (a["code_point"], a["public_key_bytes"]),
        (a["code_point"], a["ciphertext_bytes"]),
    ]


def test_a_third_provider_shows_up(pqplane, forward):
    before = {a["name"] for a in catalogue(pqplane)["algorithms"]}
    after = {a["name"]: a for a in catalogue(pqplane, "--provider", forward)["algorithms"]}
    assert set(after) - before == {"x25519_again", "ed25519_again"}
    group, scheme = after["x25519_again"], after["ed25519_again"]
    assert (group["code_point"], group["public_key_bytes"], group["ciphertext_bytes"]) == (0xFE01, 32, 32)
    assert (scheme["code_point"], scheme["public_key_bytes"], scheme["signature_bytes"]) == (0xFE02, 32, 64)
    assert group["provider"] == scheme["provider"] == str(forward)


def test_table_fits_a_hundred_columns(pqplane, forward):
    for argv in (["algorithms"], ["algorithms", f"--provider={forward}"], ["suites"]):
        r = run(pqplane, *argv)
        assert r.returncode == 0, r.stderr
        assert max(map(len, r.stdout.splitlines())) <= 100
        assert r.stdout == run(pqplane, *argv).stdout
    text = run(pqplane, "algorithms").stdout
    row = next(x for x in text.splitlines() if x.startswith("SLH-DSA-SHA2-128s"))
    assert row.split() == ["SLH-DSA-SHA2-128s", "pq", "1", "128", "-", "32", "7856", "default"]
    assert next(x for x in text.splitlines() if x.startswith("mldsa65")).split() == ["mldsa65", "pq", "3", "192", "0x0905", "1952", "3309", "default"]


def test_suites_name_what_is_there(pqplane, algorithms):
    r = run(pqplane, "suites", "--json")
    assert r.returncode == 0, r.stderr
    suites = json.loads(r.stdout)["suites"]
    assert len({s["name"] for s in suites}) == len(suites) >= 10
    groups = {a["name"] for a in algorithms if a["use"] == "key-exchange"}
    schemes = {a["name"] for a in algorithms if a["use"] == "signature"}
    for s in suites:
        assert set(s["groups"]) <= groups
        assert set(s["signature_algorithms"]) <= schemes
        assert all(c.startswith("TLS_") for c in s["cipher_suites"])
        assert (s["mode"] == "plain") == (s["level"] == 0) == (not s["groups"])


@pytest.mark.parametrize("argv, status, words", [
    (["algorithms", "--provider"], 2, "needs a name or a path"),
    (["algorithms", "--nope"], 2, 'no option "--nope"'),
    (["suites", "x"], 2, 'no option "x"'),
    (["algorithms", "--provider", "no-such-provider"], 1, "no-such-provider"),
    (["algorithms", "--provider", "/no/such.so"], 1, "/no/such.so"),
])
def test_mistakes_are_one_sentence(pqplane, argv, status, words):
    r = run(pqplane, *argv)
    assert r.returncode == status
    assert words in r.stderr and r.stderr.count("\n") == 1 and not r.stdout


@pytest.mark.parametrize("argv", [["algorithms"], ["algorithms", "--json"], ["suites"], ["suites", "--json"]])
def test_a_full_disk_is_told(pqplane, argv):
    with open("/dev/full", "w") as full:
        r = subprocess.run([pqplane, *argv], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert r.returncode == 1
    assert r.stderr.count("\n") == 1


def test_help(pqplane):
    for command in ("algorithms", "suites", "pki"):
        r = run(pqplane, command, "--help")
        assert r.returncode == 0 and r.stdout.startswith(f"usage: pqplane {command}") and not r.stderr
