"""tests/soak, shorter than `make soak` runs it."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "soak"))
import soak  # noqa: E402


@pytest.mark.parametrize("name, amount", [("kills", 200), ("last-byte", 200), ("bulk", 1_000_000_000), ("many", 1_000_000_000), ("soak", 180)],
                         ids=lambda x: x if isinstance(x, str) else "")
def test_soak(pqplane, tmp_path, name, amount):
    build = pathlib.Path(pqplane).resolve().parents[2]
    try:
        print(soak.CHECKS[name][0](build, tmp_path, amount, print))
    except soak.Failed as e:
        pytest.fail(f"{name}: {e}")
