"""The explorer served on a free port, and a browser that looks at it."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from werkzeug.serving import make_server

from latency_model.views.explorer.app import build

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
)
PATIENCE = 60.0  # seconds; a machine that does much else at once is no fault of the page
#: Where pictures of the page are kept for people to look at.
PICTURES = Path(os.environ.get("PICTURES", "build/pictures"))


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Where the explorer answers."""
    server = make_server("127.0.0.1", 0, build().server, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


class Page:
    """A tab that shows the explorer."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> Page:
        """Go there and wait for the first answer, figures included."""
        self.driver.get(url)
        self.wait(lambda: self.text("sentence") and len(self.driver.find_elements(By.CSS_SELECTOR, ".main-svg")) >= 5)
        return self

    def wait(self, condition: Callable[[], Any]) -> Any:
        """Wait until something holds; what is not there yet, or not any more, does not hold."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                if found := condition():
                    return found
            except Exception:
                if time.monotonic() > end:
                    raise
            if time.monotonic() > end:
                raise AssertionError(f"waited {PATIENCE} s in vain; the page says {self.text('answer')[:300]!r}")
            time.sleep(0.1)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript."""
        return self.driver.execute_script(script, *arguments)

    def text(self, name: str) -> str:
        """The text of an element by its id."""
        return str(self.run("const e = document.getElementById(arguments[0]); return e ? e.textContent : ''", name))

    def find(self, selector: str) -> Any:
        """The first element that a CSS selector finds."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def curve(self, name: str = "batch") -> str:
        """The numbers of the first line of a figure, as text."""
        script = """
            const traces = document.querySelector(arguments[0] + ' .js-plotly-plot').data;
            return JSON.stringify(traces.find(trace => trace.mode && trace.mode.includes('lines+markers')).y);"""
        return str(self.run(script, f"#figure-{name}"))

    def complaints(self) -> list[str]:
        """What the browser's console holds: errors, warnings, violated policies."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def hosts(self) -> set[str]:
        """Where requests of this tab went since last asked."""
        entries = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [e["params"]["request"]["url"] for e in entries if e["method"] == "Network.requestWillBeSent"]
        return {url.split("/")[2] for url in urls if url.startswith(("http:", "https:", "ws:", "wss:"))}

    def picture(self, name: str) -> Path:
        """Keep a picture of the whole page."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        width, height = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        self.size(width, height)
        time.sleep(1)  # figures follow the size of the window
        path = PICTURES / f"{name}.png"
        self.driver.save_screenshot(str(path))
        return path

    def size(self, width: int, height: int = 900, *, dark: bool = False) -> Page:
        """Give the screen a size, and its reader a taste."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        if dark:
            taste = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", taste)
        return self


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """A browser that has seen nothing yet."""
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or ""
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}", "--window-size=1280,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser: Chrome, tmp_path: Path) -> Iterator[Page]:
    """A new tab of the size of a desk; what it saves goes to ``downloads``."""
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    saved = {"behavior": "allow", "downloadPath": str(tmp_path / "downloads")}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", saved)
    browser.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
    tab = Page(browser)
    tab.complaints(), tab.hosts()  # those of the tabs before
    yield tab.size(1280)
    for handle in browser.window_handles:
        if handle != first:
            browser.switch_to.window(handle)
            browser.close()
    browser.switch_to.window(first)
