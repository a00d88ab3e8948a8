"""scripts/env: where it can't work, one sentence says what is missing and what to do, and nothing is left."""

import os
import pathlib
import shutil
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


@pytest.fixture
def checkout(tmp_path):
    """A checkout that needs a package no host has, so that a root must be made."""
    for part in ("scripts/env", "deps/debian.txt"):
        (tmp_path / part).parent.mkdir()
        shutil.copy(TOP / part, tmp_path / part)
    with open(tmp_path / "deps/debian.txt", "a") as f:
        f.write("no-such-package-anywhere\n")
    for folder in [tmp_path, *tmp_path.parents]:
        if folder != pathlib.Path("/") and folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o055)
    return tmp_path


def env(checkout, *before, **variables):
    e = {"PATH": os.environ["PATH"], "HOME": str(checkout), "XDG_CACHE_HOME": str(checkout / "cache"), **variables}
    return subprocess.run([*before, checkout / "scripts/env", "true"], env=e, capture_output=True, text=True, timeout=120)


def one_sentence(r, *parts):
    assert r.returncode == 1, r.stderr
    last = r.stderr.strip().splitlines()[-1]
    assert last.startswith("scripts/env: ") and all(p in last for p in parts), r.stderr


def root_only():
    if os.geteuid() != 0:
        pytest.skip("only root may set up a root")


def test_no_command_is_wrong_usage(checkout):
    r = subprocess.run([checkout / "scripts/env"], capture_output=True, text=True)
    one_sentence(r, "name the command to run")


def test_an_ordinary_user_is_told_to_be_root_or_to_install(checkout):
    root_only()
    one_sentence(env(checkout, *NOBODY), "only root may set up a Debian 14 root", "install the listed packages")
    assert not (checkout / "cache").exists()


def test_host_only_names_what_is_missing(checkout):
    one_sentence(env(checkout, PQPLANE_ENV="host", **{}) if os.geteuid() else env(checkout, *NOBODY, PQPLANE_ENV="host"),
                 "this host lacks", "no-such-package-anywhere")


def test_a_full_disk_is_told_before_anything_is_fetched(checkout):
    root_only()
    small = checkout / "small"
    small.mkdir()
    script = f"mount -t tmpfs -o size=20m tmpfs {small} && exec {checkout}/scripts/env true"
    r = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=60,
                       env={"PATH": os.environ["PATH"], "HOME": str(checkout), "XDG_CACHE_HOME": str(small), "PQPLANE_ENV": "root"})
    one_sentence(r, "MiB free", "free some space, or set XDG_CACHE_HOME")


def test_no_network_is_told_and_leaves_no_half_root(checkout):
    root_only()
    r = env(checkout, PQPLANE_ENV="root", PQPLANE_MIRROR="http://127.0.0.1:9/debian")
    if "MiB free" in r.stderr:
        pytest.skip("this disk is too full for a root")
    one_sentence(r, "could not be built", "127.0.0.1:9", "check the network")
    assert sorted(p.name.split("-")[0] for p in (checkout / "cache/pqplane").iterdir()) == ["lock", "root"]
    assert not [p for p in (checkout / "cache/pqplane").iterdir() if p.is_dir()]


def test_what_an_interrupted_set_up_left_goes_first(checkout):
    root_only()
    left = checkout / "cache/pqplane/root-0123456789ab.new"
    left.mkdir(parents=True)
    (left / "half").write_text("x")
    r = env(checkout, PQPLANE_ENV="root", PQPLANE_MIRROR="http://127.0.0.1:9/debian")
    if "MiB free" in r.stderr:
        pytest.skip("this disk is too full for a root")
    assert not left.exists()
