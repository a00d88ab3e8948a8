"""pqplane report on generated inputs (report_test_inputs.py): exit statuses, CSV, comparison, and the page in a real browser."""

import base64
import csv
import gzip
import hashlib
import html.parser
import io
import json
import os
import pty
import re
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
import report_test_inputs as inputs

CHROMIUM = shutil.which("chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--hide-scrollbars"]


def report(pqplane, *args, status=0, **options):
    r = subprocess.run([pqplane, "report", *map(str, args)], capture_output=True, text=True, timeout=300, **options)
    assert r.returncode == status, r.stderr
    return r


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    top = tmp_path_factory.mktemp("runs")
    return {kind: inputs.write(top / kind, make()) for kind, make in inputs.KINDS.items()}


@pytest.fixture(scope="session")
def pages(pqplane, runs, tmp_path_factory):
    if not shutil.which("gnuplot"):
        pytest.skip("gnuplot is not installed")
    top = tmp_path_factory.mktemp("pages")
    made = {}
    for kind in ("plain", "hostile", "incomplete"):
        made[kind] = top / f"{kind}.html"
        report(pqplane, runs[kind], "--html", made[kind])
    made["several"] = top / "several.html"
    report(pqplane, runs["plain"], runs["incomplete"], "--html", made["several"])
    return made


class Page(html.parser.HTMLParser):
    """Elements and attributes as a parser sees them."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.ids, self.links, self.headings, self.text = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.elements.append((tag, attrs))
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if "href" in attrs:
            self.links.append(attrs["href"])
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_data(self, data):
        self.text.append(data)

    def count(self, tag, cls=None):
        return sum(t == tag and (cls is None or cls in a.get("class", "").split()) for t, a in self.elements)


def browser(tmp_path, page, *flags):
    if not CHROMIUM:
        pytest.skip("chromium is not installed")
    r = subprocess.run([CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *flags, f"file://{page}"],
                       capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr
    return r.stdout


def probe(tmp_path, page, width, script, *flags):
    """Runs a script in a copy of the page; what it gives comes back by way of the title. Headless Chromium's window has a
    least width, so a frame of the wanted width holds the copy."""
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    text = policy.sub("", page.read_text(encoding="utf-8"), count=1)
    inner = tmp_path / "inner.html"
    inner.write_text(text.replace("</body>", "<script>addEventListener('load',()=>parent.postMessage(String((()=>{%s})()),'*'))"
                                             "</script></body>" % script), encoding="utf-8")
    outer = tmp_path / "outer.html"
    outer.write_text(f"<body style='margin:0'><script>addEventListener('message',e=>document.title=e.data)</script>"
                     f"<iframe src='inner.html' style='border:0;width:{width}px;height:900px'></iframe>")
    dom = browser(tmp_path, outer, "--allow-file-access-from-files", "--virtual-time-budget=5000", "--dump-dom",
                  "--window-size=1400,1000", *flags)
    return re.search("<title>(.*?)</title>", dom, re.S).group(1)


# --- the command ------------------------------------------------------------------------------------------------------------


def test_usage(pqplane, tmp_path):
    assert "usage: pqplane report" in report(pqplane, "--help").stdout
    for args in ([], ["--nonsense", "x"], ["x", "--html"], ["--compare", "x"], ["--compare", "x", "y", "z"],
                 ["--compare", "x", "y", "--csv", "z"]):
        r = report(pqplane, *args, status=2)
        assert r.stderr.startswith("pqplane report: ") and r.stderr.count("\n") == 1
    assert "can't read" in report(pqplane, tmp_path / "none", status=1).stderr


@pytest.mark.parametrize("content,says", [
    ("", "no JSON"), ("{}", "schema: is missing"), ('{"schema":2}', "made by a newer pqplane"),
    ('{"schema":1,"pqplane":"\\u001b[31m"}', "seed: is missing"),
])
def test_broken_files_are_one_sentence(pqplane, tmp_path, content, says):
    (tmp_path / "results.json").write_text(content)
    r = report(pqplane, tmp_path, status=1)
    assert says in r.stderr and r.stderr.count("\n") == 1 and r.stdout == ""


def small(folder, samples):
    text = "name: x\nwhy: because\nmetrics: [m]\n"
    cells = [{"factors": {"d": d}, "metrics": {"m": {"unit": "ms", "samples": samples, "rounds": list(range(len(samples))),
              "at_ms": list(range(len(samples)))}}, "errors": []} for d in "ab"]
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps({
        "schema": 1, "pqplane": "0-test", "seed": 7, "started": "2026-01-01T00:00:00Z", "complete": True,
        "experiment": {"name": "x", "text": text, "published": None}, "host": {}, "cells": cells, "calibration": [], "notes": []}))
    return folder


@pytest.mark.parametrize("samples", [[5e-324] * 4, [1e15, -1e15, 1e15, -1e15], [1e15] * 4, [1e-12] * 4, [1e-12, 1e15, 0, -1e15],
                                     [1e-12, 2e-12, 3e-12, 0], [1e15, 1e15, 1e15, 999999999999999]])
def test_extreme_values_still_make_a_page(pqplane, tmp_path, samples):
    if not shutil.which("gnuplot"):
        pytest.skip("gnuplot is not installed")
    report(pqplane, small(tmp_path / "in", samples), "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not re.search(r"\b(nan|inf)\b", re.sub(r'href="data:[^"]*"', "", page), re.I)


def test_a_value_beyond_sense_is_named(pqplane, tmp_path):
    r = report(pqplane, small(tmp_path / "in", [1, 2, 1e308, 3]), status=1)
    assert "cells[0].metrics.m.samples[2]: lies beyond 1e15" in r.stderr and r.stderr.count("\n") == 1


def test_a_dash_is_standard_output(pqplane, runs, tmp_path):
    report(pqplane, runs["plain"], "--csv", tmp_path / "a.csv")
    out = subprocess.run([pqplane, "report", str(runs["plain"]), "--csv", "-"], cwd=tmp_path, stdout=subprocess.PIPE, check=True).stdout
    assert out == (tmp_path / "a.csv").read_bytes() and not (tmp_path / "-").exists()
    assert "FILE - is standard output" in report(pqplane, "--help").stdout
    assert "not both" in report(pqplane, runs["plain"], "--csv", "-", "--html", "-", status=2).stderr
    with open("/dev/full", "w") as full:
        full = subprocess.run([pqplane, "report", str(runs["plain"]), "--csv", "-"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert full.returncode == 1 and "standard output" in full.stderr and full.stderr.count("\n") == 1
    if shutil.which("gnuplot"):
        page = report(pqplane, runs["plain"], "--html", "-", "--csv", tmp_path / "b.csv", cwd=tmp_path).stdout
        assert page.startswith("<!") and page.rstrip().endswith("</html>")
        assert (tmp_path / "b.csv").read_bytes() == (tmp_path / "a.csv").read_bytes()


def test_table_and_findings(pqplane, runs):
    out = report(pqplane, runs["plain"]).stdout
    assert inputs.NOTE in out
    assert "\x1b" not in out
    assert max(len(line) for line in out.splitlines()) <= 120
    assert len(re.findall(r"^[✓✗?–] ", out, re.M)) == 5
    assert "none · kept · standard" in out
    assert "INCOMPLETE" in report(pqplane, runs["incomplete"]).stdout
    assert report(pqplane, runs["plain"] / "results.json").stdout == out


def on_terminal(argv, columns, env=None):
    """What the program writes to a terminal of that width."""
    import fcntl
    import struct
    import termios
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    p = subprocess.Popen(argv, stdout=slave, stdin=subprocess.DEVNULL, env=env)
    os.close(slave)
    out = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        out += piece
    os.close(master)
    assert p.wait(60) == 0
    return out.decode()


def test_terminal_width_and_colour(pqplane, runs):
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    out = on_terminal([pqplane, "report", str(runs["plain"])], 90, env)
    assert "\x1b[3" in out
    plain = re.sub(r"\x1b\[\d+m", "", out)
    assert max(len(line) for line in plain.splitlines()) <= 90
    assert "\x1b" not in on_terminal([pqplane, "report", str(runs["plain"])], 300, {**env, "NO_COLOR": "1"})
    hostile = on_terminal([pqplane, "report", str(runs["hostile"])], 100, {**env, "NO_COLOR": "1"})
    assert not re.search("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", hostile)


def test_same_input_same_bytes(pqplane, runs, pages, tmp_path):
    report(pqplane, runs["plain"], "--html", tmp_path / "again.html", "--csv", tmp_path / "a.csv")
    report(pqplane, runs["plain"], "--csv", tmp_path / "b.csv", env={**os.environ, "TZ": "Asia/Tokyo", "LC_ALL": "de_DE.UTF-8"})
    assert (tmp_path / "again.html").read_bytes() == pages["plain"].read_bytes()
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_csv_holds_every_sample(pqplane, runs, tmp_path):
    for kind in ("plain", "hostile"):
        report(pqplane, runs[kind], "--csv", tmp_path / "x.csv")
        rows = list(csv.reader(io.StringIO((tmp_path / "x.csv").read_bytes().decode())))
        data = json.loads((runs[kind] / "results.json").read_text())
        flat = [(v, r, t) for c in data["cells"] for m in c["metrics"].values() for v, r, t in zip(m["samples"], m["rounds"], m["at_ms"])]
        assert [(float(x[-3]), int(x[-2]), float(x[-1])) for x in rows[1:]] == flat
        for row in rows:
            assert len(row) == len(rows[0])
            for field in row[:-3]:
                assert not re.match(r"[=+\-@\t\r]", field)
                assert not re.search("[\x00-\x1f\x7f-\x9f]", field)


def test_compare(pqplane, runs):
    last = report(pqplane, "--compare", runs["plain"], runs["plain"]).stdout.splitlines()[-1]
    assert re.fullmatch(r"compare overlap=1\.0000 cells=\d+", last)
    out = report(pqplane, "--compare", runs["plain"], runs["again"]).stdout
    assert re.search(r"intervals overlap in [\d.]+ % of \d+ cells×metrics", out)
    overlap = float(re.search(r"^compare overlap=([\d.]+) cells=\d+$", out, re.M).group(1))
    assert 0.8 <= overlap <= 1
    assert "two experiments" in report(pqplane, "--compare", runs["plain"], runs["hostile"], status=1).stderr


def test_without_gnuplot(pqplane, runs, tmp_path):
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("needs root and unshare to hide gnuplot")
    gnuplot = os.path.realpath(shutil.which("gnuplot") or "/nonexistent")
    hide = f"mount --bind /dev/null {gnuplot} && exec \"$@\""
    r = subprocess.run(["unshare", "--mount", "sh", "-c", hide, "sh", pqplane, "report", str(runs["plain"]), "--html",
                        str(tmp_path / "x.html")], capture_output=True, text=True)
    assert r.returncode == 1 and "gnuplot" in r.stderr and r.stderr.count("\n") == 1
    assert not (tmp_path / "x.html").exists()


# --- the page ---------------------------------------------------------------------------------------------------------------


def test_structure(pages):
    for kind, path in pages.items():
        page = Page(path.read_text(encoding="utf-8"))
        assert page.headings.count(1) == 1
        for before, after in zip(page.headings, page.headings[1:]):
            assert after <= before + 1, "a level of headings is left out"
        assert len(page.ids) == len(set(page.ids)), "an id stands twice"
        for link in page.links:
            assert link.startswith("#") or link.startswith("data:application/gzip;base64,")
            assert not link.startswith("#") or link[1:] in page.ids, link
        for tag, attrs in page.elements:
            if tag == "svg" and "aria-hidden" not in attrs:
                assert attrs["role"] == "img"
                assert all(i in page.ids for i in attrs["aria-labelledby"].split())
            if tag == "th":
                assert attrs.get("scope") in ("row", "col")
        assert page.count("table") == page.count("caption")
        assert dict(page.elements[0][1]).get("lang") == "en"
        assert page.count("svg", "desk") == page.count("svg", "phone") == page.count("figure")


def test_plots_and_tables(pages):
    page = Page(pages["plain"].read_text(encoding="utf-8"))
    # request_ms: rows and curves for two kinds of connection; tls_ms: rows and curves for new ones; CPU and bytes: rows for both;
    # two courses of the calibration
    assert page.count("figure") == 4 + 2 + 2 + 2 + 2
    assert page.count("table") == 4 + 1 + 1  # a metric each, published figures, errors
    assert page.count("li") >= 5
    several = Page(pages["several"].read_text(encoding="utf-8"))
    assert several.count("article") == 2


def test_policy_and_no_outside(pages):
    for path in pages.values():
        text = path.read_text(encoding="utf-8")
        style = re.search(r"<style>(.*?)</style>", text, re.S).group(1)
        script = re.findall(r"<script>(.*?)</script>", text, re.S)[-1]
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text).group(1)
        assert "default-src 'none'" in policy
        for part in (style, script):
            assert "sha256-" + base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() in policy
        assert not re.search(r"url\(|@import|https?://", style + script)
        page = Page(text)
        assert page.count("script") == 1 and page.count("style") == 1
        for tag, attrs in page.elements:
            assert tag not in ("img", "iframe", "object", "embed", "link", "base", "form", "use", "image", "foreignobject")
            assert not any(a.startswith("on") or a in ("style", "src", "srcset", "xlink:href") for a in attrs)


def test_hostile_names_stay_text(pages, tmp_path):
    page = Page(pages["hostile"].read_text(encoding="utf-8"))
    joined = "".join(page.text)
    for name in inputs.HOSTILE:
        if len(name) < 100 and not re.search("[\x00-\x1f\x7f-\x9f\u200b-\u206f\ufeff]", name):
            assert name in joined, name
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", joined)
    plain = Page(pages["plain"].read_text(encoding="utf-8"))
    assert {t for t, _ in page.elements} <= {t for t, _ in plain.elements} | {"div", "span"}
    dom = browser(tmp_path, pages["hostile"], "--virtual-time-budget=3000", "--dump-dom")
    seen = Page(dom)
    assert seen.count("img") == seen.count("iframe") == 0
    assert not any(a.startswith("on") for _, attrs in seen.elements for a in attrs)
    assert seen.count("svg") == page.count("svg")
    assert not os.path.exists("/tmp/owned")


def test_raw_data_comes_back(pages, runs):
    text = pages["plain"].read_text(encoding="utf-8")
    packed = re.search(r'href="data:application/gzip;base64,([^"]*)"', text).group(1)
    raw = (runs["plain"] / "results.json").read_bytes()
    assert gzip.decompress(base64.b64decode(packed)) == raw
    assert hashlib.sha256(raw).hexdigest() in text


@pytest.mark.parametrize("width", [375, 768, 1280])
def test_no_sideways_scrolling(pages, tmp_path, width):
    script = ("document.querySelectorAll('details').forEach(d=>d.open=true);"
              "return document.documentElement.scrollWidth+' '+innerWidth+' '+[...document.querySelectorAll('svg.desk,svg.phone')]"
              ".filter(s=>s.getBoundingClientRect().width>0).every(s=>s.getBoundingClientRect().right<=innerWidth)")
    for kind, path in pages.items():
        scroll, inner, inside = probe(tmp_path, path, width, script).split()
        assert int(inner) == width
        assert int(scroll) <= width, kind
        assert inside == "true", kind


def test_plot_text_is_legible_on_a_phone(pages, tmp_path):
    script = ("document.querySelectorAll('details').forEach(d=>d.open=true);"
              "const s=[...document.querySelectorAll('svg.phone text')].map(t=>t.getBoundingClientRect()).filter(r=>r.height>0);"
              "return s.length+' '+Math.min(...s.map(r=>r.height))+' '+s.every(r=>r.left>=0&&r.right<=innerWidth)")
    count, least, inside = probe(tmp_path, pages["plain"], 375, script).split()
    assert int(count) > 100 and float(least) >= 11 and inside == "true"


def luminance(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a, b):
    x, y = sorted((luminance(a), luminance(b)), reverse=True)
    return (x + 0.05) / (y + 0.05)


def test_contrast_in_light_and_dark(pages):
    style = re.search(r"<style>(.*?)</style>", pages["plain"].read_text(encoding="utf-8"), re.S).group(1)
    schemes = re.findall(r":root\{([^}]*)\}", style)[:2]
    assert len(schemes) == 2
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+):(#[0-9a-f]{6})", scheme))
        names = ["ink", "soft", "link", "good", "bad", "open", *(f"c{i}" for i in range(8))]
        for name in names:
            for ground in ("bg", "panel"):
                assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)


def test_plots_follow_the_scheme(pages, tmp_path):
    script = ("const s=document.querySelector('svg.desk');const c=(q,p)=>getComputedStyle(s.querySelector(q))[p];"
              "return [c('.t0','fill'),c('.m0','stroke'),getComputedStyle(document.body).backgroundColor].join('|')")
    light = probe(tmp_path, pages["plain"], 1280, script, "--blink-settings=preferredColorScheme=1")
    dark = probe(tmp_path, pages["plain"], 1280, script, "--blink-settings=preferredColorScheme=0")
    assert light.startswith("rgb(26, 30, 35)|rgb(10, 95, 168)|rgb(253")
    assert dark.startswith("rgb(231, 233, 235)|rgb(109, 179, 242)|rgb(21")


def test_tables_sort(pages, tmp_path):
    script = ("const t=document.querySelector('table.sort'),h=t.tHead.rows[0].cells[2];const v=()=>[...t.tBodies[0].rows].map(r=>"
              "parseFloat(r.cells[2].textContent.replace(/,/g,'')));h.querySelector('button').click();const up=v();"
              "h.querySelector('button').click();const down=v();const sorted=(a,f)=>a.every((x,i)=>!i||f(a[i-1],x));"
              "return sorted(up,(a,b)=>a<=b)+' '+sorted(down,(a,b)=>a>=b)+' '+h.getAttribute('aria-sort')+' '+up.length")
    assert probe(tmp_path, pages["plain"], 1280, script) == "true true descending 20"
