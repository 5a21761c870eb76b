"""The explorer as a reader meets it: in Chromium, by mouse and keyboard, on a desk and on a phone."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from werkzeug.serving import make_server

import latency_model as lm
from latency_model.views.explorer.app import build
from latency_model.views.symbols import find_symbol

pytestmark = pytest.mark.browser

CONFIG = Path(lm.__file__).parent / "specs" / "bundled_models" / "Llama-3.2-1B.json"
EVIL = "<img src=x onerror=document.title='taken'>"


def drop(page, name: str, path: Path) -> None:
    """Give a file to one of the two places for uploads."""
    page.find(f"#upload-{name} input[type=file]").send_keys(str(path))


def test_the_page_answers_without_a_complaint_and_without_a_network(page, address):
    page.open(address)
    assert page.text("sentence").startswith("Draft ")
    page.wait(lambda: "Best draft length" in page.text("title-map"))
    assert page.hosts() == {address.split("/")[2]}
    assert page.complaints() == []


def test_a_slider_changes_the_curve_and_the_sentence(page, address):
    page.open(f"{address}?acceptance=0.6")
    sentence, curve = page.text("sentence"), page.curve()
    thumb = page.find("#acceptance_constant [role=slider]")
    thumb.send_keys(Keys.END)
    page.wait(lambda: page.text("sentence") != sentence)
    page.wait(lambda: page.curve() != curve)
    page.wait(lambda: "acceptance=1" in page.driver.current_url)
    assert page.text("problem") == ""
    assert page.complaints() == []


def test_a_shared_address_shows_the_same_choice(page, address):
    page.open(
        f"{address}?model=Qwen3-8B&hardware=h200-sxm&batch=24&context=8192&tp=2&acceptance=preset%3Amtp-qwen3-next-80b-a3b-stock-mtp"
    )
    said = [page.text(name) for name in ("subject", "sentence", "facts", "remarks", "settings")]
    shared = page.wait(lambda: page.driver.current_url)
    curve = page.curve()
    page.driver.switch_to.new_window("tab")
    page.open(shared)
    assert [page.text(name) for name in ("subject", "sentence", "facts", "remarks", "settings")] == said
    assert page.curve() == curve
    page.driver.refresh()
    page.open(page.driver.current_url)
    assert page.text("sentence") == said[1]
    assert page.driver.current_url == shared


def test_two_tabs_keep_their_own_choices(page, address):
    first = page.driver.current_window_handle
    page.open(f"{address}?batch=1")
    one = page.text("sentence")
    page.driver.switch_to.new_window("tab")
    page.open(f"{address}?batch=64&tp=4")
    other = page.text("sentence")
    assert one != other
    batch = page.find("#batch")
    batch.send_keys(Keys.BACKSPACE, Keys.BACKSPACE, "8")
    page.wait(lambda: "batch 8," in page.text("subject"))
    page.driver.switch_to.window(first)
    assert page.text("sentence") == one
    page.find("#context").send_keys(Keys.BACKSPACE)
    page.wait(lambda: "context 409" in page.text("subject"))
    assert "batch 1," in page.text("subject")


def test_a_broken_config_is_a_message_and_a_good_one_an_answer(page, address, tmp_path):
    page.open(address)
    before = page.text("sentence")
    broken = tmp_path / "config.json"
    broken.write_text('{"model_type": "llama", "hidden_size": "many"')
    drop(page, "config", broken)
    page.wait(lambda: "the uploaded config: is not valid JSON" in page.text("problem"))
    assert page.find("#problem").is_displayed()
    assert page.text("sentence") == before
    named = tmp_path / "named.json"
    named.write_text(json.dumps(json.loads(CONFIG.read_text()) | {"_name_or_path": EVIL}))
    drop(page, "config", named)
    page.wait(lambda: EVIL in page.text("subject"))
    assert page.text("problem") == ""
    assert "config=" in page.driver.current_url
    assert page.driver.title == "latency-model explorer"
    assert not page.driver.find_elements(By.CSS_SELECTOR, "img[src=x]")
    page.open(page.driver.current_url)
    assert EVIL in page.text("subject")
    assert page.complaints() == []


def test_files_that_are_no_text_or_too_long_are_messages(page, address, tmp_path):
    page.open(address)
    binary = tmp_path / "weights.bin"
    binary.write_bytes(b"\xff\xfe\x00\x80")
    drop(page, "device", binary)
    page.wait(lambda: "not UTF-8 text" in page.text("notice"))
    huge = tmp_path / "huge.toml"
    huge.write_text("#" * (3 << 20))
    drop(page, "device", huge)
    page.wait(lambda: "at most 1048576" in page.text("notice"))
    good = tmp_path / "ours.toml"
    good.write_text('extends = "h100-sxm"\nid = "ours"\ntitle = "Our device"\n[memory]\nbandwidth = "2 TB/s"\n')
    drop(page, "device", good)
    page.wait(lambda: "Our device" in page.text("subject"))
    assert page.text("notice") == ""


def test_a_pasted_config_is_used(page, address):
    page.open(address)
    page.run("document.querySelectorAll('.paste').forEach(e => { e.open = true; })")
    page.find("#paste-config").send_keys('{"model_type": "no-such"}', Keys.TAB)
    page.find("#use-config").click()
    page.wait(lambda: "no-such" in page.text("problem"))


def test_what_cannot_be_is_said_and_the_last_answer_fades(page, address):
    page.open(address)
    before = page.text("sentence")
    page.run("document.querySelectorAll('details.group').forEach(e => { e.open = true; })")
    page.find("#tp").send_keys(Keys.BACKSPACE, "3")
    page.wait(lambda: "tp must divide the 32 attention heads" in page.text("problem"))
    assert page.text("sentence") == before
    assert "stale" in page.find("#answer").get_attribute("class")
    page.find("#tp").send_keys(Keys.BACKSPACE, "2")
    page.wait(lambda: page.text("problem") == "" and "× 2" in page.text("subject"))


def test_a_hostile_address_shows_the_example_and_says_why(page, address):
    page.open(f"{address}?model=%3Cimg%20src=x%20onerror=alert(1)%3E")
    page.wait(lambda: "This address cannot be shown" in page.text("notice"))
    assert "<img src=x" in page.text("notice")
    assert not page.driver.find_elements(By.CSS_SELECTOR, "img[src=x]")


def test_a_click_on_the_map_chooses_batch_and_context(page, address):
    page.open(address)
    plot = page.find("#figure-map .nsewdrag")
    page.run("arguments[0].scrollIntoView({block: 'center'})", plot)
    ActionChains(page.driver).move_to_element_with_offset(plot, -150, 20).click().perform()
    page.wait(lambda: "batch=" in page.driver.current_url or "context=" in page.driver.current_url)
    assert page.text("problem") == ""


def test_a_server_that_is_gone_is_a_message_until_it_is_back(page):
    server = make_server("127.0.0.1", 0, build().server, threaded=True)
    threading.Thread(target=server.serve_forever).start()
    try:
        page.open(f"http://127.0.0.1:{server.server_port}/")
    finally:
        server.shutdown()
        server.server_close()
    page.find("#batch").send_keys(Keys.BACKSPACE)
    page.wait(lambda: "does the command that serves this page still run?" in page.text("problem"))
    assert page.find("#problem").is_displayed()
    server = make_server("127.0.0.1", server.server_port, build().server, threaded=True)
    threading.Thread(target=server.serve_forever).start()
    try:
        page.find("#batch").send_keys("2")
        page.wait(lambda: "batch 12," in page.text("subject") and not page.text("problem"))
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("width", [1280, 390])
def test_numbers_have_room_in_their_fields(page, address, width):
    page.size(width).open(f"{address}?hardware=h200-sxm&batch=4096&context=131072")
    page.run("document.querySelectorAll('#controls, details.group').forEach(e => { e.open = true; })")
    for name in ("batch", "context", "tp"):
        field = page.find(f"#{name}")
        assert page.run("return arguments[0].scrollWidth <= arguments[0].clientWidth", field), name


def test_results_are_kept_as_files(page, address, tmp_path):
    page.open(address)
    starts = {
        "save-csv": (".csv", b"batch,"),
        "save-html": (".html", b"<!doctype html>"),
        "save-settings": (".txt", b"# vLLM"),
        "png-waterfall": (".png", b"\x89PNG"),
    }
    for button, (ending, start) in starts.items():
        page.run("document.getElementById(arguments[0]).click()", button)
        (path,) = page.wait(lambda ending=ending: list((tmp_path / "downloads").glob(f"latency-model-*{ending}")))
        assert path.read_bytes().startswith(start)
    assert page.complaints() == []


def test_controls_have_names_and_work_by_keyboard(page, address):
    page.open(f"{address}?acceptance=0.6")
    page.run("document.querySelectorAll('details.group').forEach(e => { e.open = true; })")
    page.wait(lambda: page.find("#weights").get_attribute("aria-labelledby") == "label-weights weights-value")
    unnamed = page.run(
        """
        const said = id => document.getElementById(id)?.textContent;
        const named = e => e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim() || e.title
            || (e.getAttribute('aria-labelledby') || '').split(' ').some(said);
        return [...document.querySelectorAll('button, input, textarea, [role=slider]')]
            .filter(e => e.offsetParent && e.type !== 'file' && e.getAttribute('aria-hidden') !== 'true' && !named(e))
            .map(e => e.outerHTML.slice(0, 120));"""
    )
    assert unnamed == []
    page.run("document.querySelector('#label-model + .help').focus()")
    page.wait(lambda: page.find("#tip-model").is_displayed())
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.wait(lambda: not page.find("#tip-model").is_displayed())
    for name in ("batch", "context", "draft_length", "persistence", "tp"):
        assert page.text(f"tip-{name}") == find_symbol(name).tooltip


def test_letters_stand_out_in_light_and_dark(page, address):
    page.open(address)
    for _ in range(2):
        contrast = page.run(
            """
            const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
            const rgb = c => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1);
                return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3); };
            const light = c => rgb(c).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
                .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
            const paper = e => { for (; e; e = e.parentElement) {
                const c = getComputedStyle(e).backgroundColor;
                if (!c.endsWith(', 0)') && c !== 'transparent') return c; }
                return 'white'; };
            const says = e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
            const worst = {};
            for (const e of document.querySelectorAll('#page *')) {
                if (!e.offsetParent || e.closest('.dash-graph') || !says(e)) continue;
                const a = light(getComputedStyle(e).color), b = light(paper(e));
                const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
                if (ratio < 4.5) worst[e.outerHTML.slice(0, 100)] = ratio;
            }
            return worst;"""
        )
        assert contrast == {}
        page.find("#toggle").click()
        time.sleep(0.5)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_screen(page, address, width, dark):
    page.size(width, dark=dark).open(f"{address}?model=DeepSeek-V3&hardware=h200-sxm&tp=8&ep=8&context=32768&batch=32")
    page.wait(lambda: page.run("return document.documentElement.dataset.theme") == ("dark" if dark else "light"))
    picture = page.picture(f"explorer-{width}-{'dark' if dark else 'light'}")
    assert picture.stat().st_size > 20_000
    assert page.run("return document.documentElement.scrollWidth") <= width
    outside = page.run(
        """
        return [...document.querySelectorAll('.card, .card > *, .control, .caption > *')].filter(e => e.offsetParent)
            .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 100));"""
    )
    assert outside == []
    assert page.complaints() == []
