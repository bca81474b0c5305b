import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Without a window, and without what a browser does on its own besides showing a page.
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
QUIET += ("--disable-background-networking", "--disable-component-update")


@contextlib.contextmanager
def chromium(profile: Path, *arguments: str) -> Iterator[Any]:
    """Chromium's driver, which logs every request of the browser; without Chromium the test is skipped."""
    pytest.importorskip("selenium", reason="selenium is not installed")
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("Chromium is not installed: apt-get install chromium chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in (*QUIET, *arguments, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()
