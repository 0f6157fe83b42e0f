"""A real browser without a window, for looking at what a page shows."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--use-angle=swiftshader",  # WebGL without a graphics card
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
    "--disable-background-networking",
]


def browser_path() -> str | None:
    """A Chromium that is installed, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


@contextlib.contextmanager
def open_page(url: str, size: tuple[int, int] = (960, 640)) -> Iterator:
    """A page of the installed browser that shows `url`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=ARGUMENTS)
        try:
            page = browser.new_page(viewport={"width": size[0], "height": size[1]})
            page.goto(url, wait_until="load")
            yield page
        finally:
            browser.close()
