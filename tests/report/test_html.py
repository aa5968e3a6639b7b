import os
import re
import stat
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from torchlift import report

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"'&`{{ 7*7 }}"


class Elements(HTMLParser):
    """Every start tag with its attributes, and all the text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "img"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        self.text.append(data)


def pages():
    import report_demo as demo

    return {
        "run": report.run_page(demo.history(), demo.summary()),
        "comparison": report.comparison_page(demo.comparison()),
        "reproduction": report.reproduction_page(demo.reproduction()),
        "gallery": demo.gallery(),
    }


def hostile_page():
    from report_demo import png

    line = report.Line(EVIL, [0.0, 1.0], [1.0, 2.0], [0.5, 1.5], [1.5, 2.5])
    column, card = report.Column(EVIL, hint=EVIL), report.Card(EVIL, EVIL, unit=EVIL, hint=EVIL)
    blocks = [
        report.Paragraphs(EVIL),
        report.Note(EVIL, title=EVIL),
        report.Cards([card]),
        report.Table([column], [[EVIL]], EVIL, EVIL),
        report.KeyValues({EVIL: {EVIL: EVIL}}),
        report.Chart([line, line], EVIL, EVIL, EVIL, [report.Phase(0, 1, EVIL)], caption=EVIL),
        report.Scatter([report.Points(EVIL, [1.0], [1.0], labels=[EVIL])], EVIL, EVIL, EVIL, caption=EVIL),
        report.Dots([report.DotRow(EVIL, [1.0])], [EVIL], EVIL, EVIL, EVIL),
        report.Bars([EVIL], {EVIL: [1.0]}, title=EVIL, caption=EVIL),
        report.Heatmap([EVIL], [EVIL], [[1.0]], EVIL, EVIL, EVIL, EVIL),
        report.Images([report.Image(png(8), EVIL, EVIL)], EVIL, EVIL),
        report.Details(EVIL, [report.Paragraphs(EVIL)]),
    ]
    return report.Page(EVIL, EVIL, [report.Section(EVIL, blocks)] * 3)


@pytest.mark.parametrize("name", ["run", "comparison", "reproduction", "gallery"])
def test_pages_are_well_formed_self_contained_and_deterministic(name):
    page = pages()[name]
    text = report.render(page)
    actual = Elements(text)
    assert actual.open == []
    addresses = [attrs[key] for _, attrs in actual.tags for key in ("src", "href") if key in attrs]
    assert all(address.startswith(("data:", "#")) for address in addresses)
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text)
    ids = [attrs["id"] for _, attrs in actual.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert text == report.render(page)
    assert not re.search(r"\bnan\b|NaN%|None", re.sub(r"<script.*?</script>", "", text, flags=re.S))


def test_hostile_strings_stay_text():
    text = report.render(hostile_page())
    actual = Elements(text)
    assert actual.open == []
    assert {tag for tag, _ in actual.tags}.isdisjoint({"iframe", "object", "embed", "form"})
    scripts = [attrs for tag, attrs in actual.tags if tag == "script"]
    assert all(attrs in ({}, {"type": "application/json"}) for attrs in scripts)
    assert sum(attrs == {} for attrs in scripts) == 1
    assert not any(key.startswith("on") for _, attrs in actual.tags for key in attrs)
    assert all(attrs.get("src", "data:").startswith("data:") for tag, attrs in actual.tags if tag == "img")
    assert "49" not in "".join(actual.text).split("{{")[0]
    assert EVIL in "".join(actual.text)


def test_the_policy_admits_the_page_s_own_script_alone():
    import base64
    import hashlib

    text = report.render(report.Page("t"))
    script = re.search(r"<script>(.*?)</script>", text, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(attrs["content"] for tag, attrs in Elements(text).tags if attrs.get("http-equiv"))
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def to_html(text):
    """The HTML of a paragraph."""
    page = report.render(report.Page("t", sections=[report.Section("s", [report.Paragraphs(text)])]))
    return re.search(r'<div class="text">(.*?)</div>', page, re.S)[1]


def test_markdown_is_little_and_safe():
    assert to_html("a `x*y*z` **b** *c*\n\n- one\n- two") == (
        "<p>a <code>x*y*z</code> <strong>b</strong> <em>c</em></p>\n<ul><li>one</li><li>two</li></ul>"
    )
    assert to_html("2 * 3 * 4") == "<p>2 * 3 * 4</p>"
    assert to_html("<b>") == "<p>&lt;b&gt;</p>"
    assert to_html("  \n\n ") == ""


def test_write_replaces_the_file_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    assert report.write(report.Page("new"), path) == path
    assert "<h1>new</h1>" in path.read_text()
    assert os.listdir(tmp_path) == ["report.html"]
    assert stat.S_IMODE(path.stat().st_mode) & 0o444


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"cannot write \(No space left on device"):
        report.write(report.Page("new"), path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(OSError, match=r"cannot write .No such file.*absent/report.html"):
        report.write(report.Page("new"), tmp_path / "absent" / "report.html")


def test_importing_the_report_needs_neither_jinja2_nor_torch_and_rendering_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    loaded, said = done.stdout.splitlines()
    assert loaded == "False False"
    assert "pip install 'torchlift[report]'" in said


WITHOUT = """
import sys, torchlift.report as report
print('jinja2' in sys.modules, 'torch' in sys.modules)
sys.modules['jinja2'] = None
try:
    report.render(report.Page("t"))
except ModuleNotFoundError as error:
    print(error)
"""
