"""The pages in a real browser: nothing is loaded, nothing complains, and everything that moves does."""

import shutil

import pytest
import report_demo as demo

from torchlift import report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
PAGES = ("run", "comparison", "reproduction", "gallery", "hostile")
PHONE = {"width": 390, "height": 844}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH: apt-get install chromium")


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    evil = "</script><script>document.title='pwned'</script><img src=http://127.0.0.1:9/x onerror=alert(1)>"
    hostile = demo.comparison(2)
    hostile["title"] = evil
    hostile["recipes"][evil * 3] = hostile["recipes"].pop("soft mask") | {"notes": [evil]}
    pages = {
        "run": report.run_page(demo.history(), demo.summary()),
        "comparison": report.comparison_page(demo.comparison()),
        "reproduction": report.reproduction_page(demo.reproduction()),
        "gallery": demo.gallery(),
        "hostile": report.comparison_page(hostile),
    }
    return {name: report.write(page, folder / f"{name}.html").as_uri() for name, page in pages.items()}


@pytest.fixture
def visit(browser, files):
    """Open a page; at the end of the test nothing may have been complained about or asked for."""
    complaints, requests, contexts = [], [], []

    def go(name, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(files[name])
        return page

    yield go
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert sum(url.startswith("file:") for url in requests) == len(contexts)


def hover(page, selector, across=0.5, up=0.5):
    frame = page.locator(selector).first
    frame.scroll_into_view_if_needed()
    box = frame.bounding_box()
    page.mouse.move(box["x"] + across * box["width"], box["y"] + (1 - up) * box["height"])


@pytest.mark.parametrize("name", PAGES)
def test_no_page_scrolls_sideways_on_a_phone(visit, name):
    page = visit(name, viewport=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.title().endswith("· torchlift")


def test_hovering_a_chart_shows_the_values_of_all_lines(visit):
    page = visit("run")
    tip = page.locator(".tip").first
    assert not tip.is_visible()
    hover(page, ".frame", 0.5)
    text = tip.inner_text()
    assert "lifted" in text
    assert "train" in text
    assert "validation" in text
    row = min(demo.history(), key=lambda row: abs(row["cost"] - 18.0))
    assert f"{row['train_loss']:.4g}" in text
    assert page.locator(".cursor circle").count() == 2
    page.mouse.move(1, 1)
    assert not tip.is_visible()


def test_the_keyboard_reads_a_chart_too(visit):
    page = visit("run")
    page.locator(".frame").first.focus()
    page.keyboard.press("ArrowRight")
    first = page.locator(".tip").first.inner_text()
    page.keyboard.press("ArrowRight")
    assert page.locator(".tip").first.inner_text() != first
    page.keyboard.press("Escape")
    assert not page.locator(".tip").first.is_visible()


def test_hovering_points_shows_the_nearest_with_its_errors(visit):
    page = visit("comparison")
    hover(page, ".chart .frame", 0.05, 0.95)
    text = page.locator(".tip").first.inner_text()
    assert "packed file (kB)" in text
    assert "±" in text


def test_the_legend_hides_and_shows_a_line(visit):
    page = visit("run")
    button, line = page.locator(".legend button").first, page.locator(".canvas g[data-series='0']").first
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert not line.is_visible()
    hover(page, ".frame")
    assert page.locator(".cursor circle").count() == 1
    button.click()
    assert line.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_until_the_reader_chooses(visit, scheme):
    page = visit("run", color_scheme=scheme)
    ground = "getComputedStyle(document.body).backgroundColor"
    dark, light = "rgb(15, 20, 26)", "rgb(244, 246, 248)"
    assert page.evaluate(ground) == (dark if scheme == "dark" else light)
    page.locator(".theme").click()
    assert page.evaluate(ground) == (light if scheme == "dark" else dark)


@pytest.mark.parametrize("chosen", [False, True])
def test_print_is_black_on_white_whatever_the_theme(visit, chosen):
    page = visit("run", color_scheme="light" if chosen else "dark")
    if chosen:
        page.locator(".theme").click()
    page.emulate_media(media="print")
    colors = page.evaluate(
        "(({ color, backgroundColor }) => [color, backgroundColor])(getComputedStyle(document.body))"
    )
    assert colors == ["rgb(24, 33, 44)", "rgb(255, 255, 255)"]
    assert not page.locator(".theme").is_visible()


def test_a_click_sorts_a_table_and_another_turns_it_round(visit):
    page = visit("comparison")
    heads, names = page.locator(".data thead button"), page.locator(".data tbody th")
    scores = {name: sum(recipe["test"]) for name, recipe in demo.comparison()["recipes"].items()}
    heads.nth(1).click()
    assert names.all_inner_texts() == sorted(scores, key=scores.get, reverse=True)
    assert page.locator(".data thead th").nth(1).get_attribute("aria-sort") == "descending"
    heads.nth(1).click()
    assert names.all_inner_texts() == sorted(scores, key=scores.get)
    heads.nth(0).click()
    assert names.all_inner_texts() == sorted(scores)
    heads.nth(2).click()
    assert names.all_inner_texts()[-1] == "plain"


def test_pointing_at_a_seed_marks_it_in_every_row(visit):
    page = visit("comparison")
    page.locator("[data-dot='seed 2']").first.hover(force=True)
    dots = page.locator(".same")
    names = {dots.nth(k).get_attribute("data-dot") for k in range(dots.count())}
    assert dots.count() == 4
    assert len(names) == 1


def test_details_open_before_printing(visit):
    page = visit("run")
    assert not page.locator(".pairs").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".pairs").is_visible()


def test_hostile_names_are_shown_as_text(visit):
    page = visit("hostile")
    assert "</script>" in page.locator("h1").inner_text()
    assert page.evaluate("document.images.length") == 0
    assert page.title() != "pwned"
