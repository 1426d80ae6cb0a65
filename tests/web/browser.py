"""The distribution's Chromium, driven by its own driver, on a page of ours."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.shell import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from selenium.webdriver.remote.webelement import WebElement

PATIENCE: Final = 30.0  # seconds that anything may take on a busy machine
AXE: Final = ROOT / ".web" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or ""
DRIVER: Final = shutil.which("chromedriver") or ""
PHONE: Final = 600  # pixels of width below which fingers are used
SERIOUS: Final = {"serious", "critical"}


class WebBrowser:
    """A window of a given width; what it logs and asks for is kept."""

    def __init__(self, driver: webdriver.Chrome, base: str) -> None:
        self.driver = driver
        self.base = base

    def open(self, path: str) -> None:
        self.driver.get(f"{self.base}{path}")

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self) -> str:
        return str(self.driver.execute_script("return document.body.innerText"))

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait until *condition* holds."""
        WebDriverWait(self.driver, PATIENCE, 0.05).until(lambda _: condition(), what)

    def wait_for(self, words: str) -> None:
        self.until(lambda: words in self.text(), f"{words!r} is not shown")

    def wait_without(self, words: str) -> None:
        self.until(lambda: words not in self.text(), f"{words!r} is still shown")

    def fill(self, selector: str, **fields: str) -> None:
        """Fill in the form *selector* and send it."""
        form = self.find(selector)
        for name, value in fields.items():
            form.find_element(By.NAME, name).send_keys(value)
        self._click(form.find_element(By.CSS_SELECTOR, "button"))

    def click(self, selector: str) -> None:
        self._click(self.find(selector))

    def _click(self, element: WebElement) -> None:
        """Click where nothing lies over it, as a person would scroll to it first."""
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        return int(self.driver.execute_script("return document.documentElement.scrollWidth - innerWidth"))

    def complaints(self) -> list[str]:
        """Return what the browser complained about: a broken policy, a script that failed."""
        return [entry["message"] for entry in self._log("browser") if entry["level"] in {"SEVERE", "WARNING"}]

    def _log(self, kind: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.driver.get_log(kind)
        return found

    def requests(self) -> list[str]:
        """Return the addresses that the browser asked for since the last time."""
        events = (json.loads(entry["message"])["message"] for entry in self._log("performance"))
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def barriers(self) -> list[str]:
        """Return what keeps people out who do not see, or do not use a mouse, by the rules of axe."""
        self.driver.execute_script(AXE.read_text(encoding="utf-8"))
        found = self.driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
        return [
            f"{one['id']}: {node['target']} {node['failureSummary']}"
            for one in found["violations"]
            if one["impact"] in SERIOUS
            for node in one["nodes"]
        ]

    def save(self, path: Path) -> None:
        self.driver.save_screenshot(str(path))


@contextmanager
def window(base: str, width: int, height: int, *, dark: bool = False) -> Iterator[WebBrowser]:
    """Yield a browser of *width* pixels that shows pages of *base*."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    # Chromium's own sandbox does not work for root in a container; the pages are ours.
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    size = {"width": width, "height": height, "pixelRatio": 1.0, "touch": width < PHONE}
    options.add_experimental_option("mobileEmulation", {"deviceMetrics": size})
    driver = webdriver.Chrome(options, Service(DRIVER))
    try:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        driver.set_script_timeout(PATIENCE)
        yield WebBrowser(driver, base)
    finally:
        driver.quit()
