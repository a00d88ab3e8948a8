"""Programs that tests talk to through the proxy: those of tests/peers, built when needed, and tools made of sockets."""

import fcntl
import os
import pathlib
import subprocess

TOP = pathlib.Path(__file__).resolve().parents[2]


def go_program(build, name):
    """Builds tests/peers/NAME with what the Go installation has, without the network; kept in the build's folder."""
    source, out = TOP / "tests/peers" / name, pathlib.Path(build) / "tests/peers" / name
    out.parent.mkdir(parents=True, exist_ok=True)
    with open(out.parent / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        newest = max(f.stat().st_mtime for f in source.iterdir())
        if out.exists() and out.stat().st_mtime >= newest:
            return str(out)
        cache = pathlib.Path(build).resolve() / "go-cache"
        env = {**os.environ, "GOCACHE": str(cache), "GOPATH": str(cache / "path"), "GOFLAGS": "-mod=mod", "GOPROXY": "off",
               "GOTOOLCHAIN": "local", "GOTELEMETRY": "off", "CGO_ENABLED": "0"}
        r = subprocess.run(["go", "build", "-o", out.resolve(), "."], cwd=source, env=env, capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
    return str(out)
