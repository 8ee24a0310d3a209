"""The built site in Chromium, from a sub-path of a local server."""

from collections.abc import Iterator

import pytest

from tests.website.browser import Browser
from tests.website.server import Server


@pytest.fixture(name="browser")
def watched(chromium: Browser, server: Server) -> Iterator[Browser]:
    """Give the browser, and look afterwards for errors, failed requests and foreign ones."""
    chromium.events.clear()
    server.requests.clear()
    yield chromium
    assert complaints(chromium) == []
    assert [request for request in server.requests if request[1] >= 400] == []
    assert foreign(chromium, server) == []


def complaints(browser: Browser) -> list[object]:
    """Return what the console, the log and scripts complain about."""
    found: list[object] = []
    for event in browser.events:
        given = event["params"]
        if event["method"] == "Runtime.exceptionThrown":
            found.append(given["exceptionDetails"])
        if event["method"] == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning"):
            found.append(given["args"])
        if event["method"] == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            found.append(given["entry"])
        if event["method"] == "Network.loadingFailed" and not given.get("canceled"):
            found.append(given)
    return found


def foreign(browser: Browser, server: Server) -> list[str]:
    """Return the requests that left the site."""
    urls = [
        event["params"]["request"]["url"]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
    ]
    return [url for url in urls if not url.startswith((server.url, "data:", "blob:"))]


def test_navigation_leads_to_every_page(browser: Browser, server: Server) -> None:
    browser.open(server.url + "index.html")
    links = ".md-nav--primary a.md-nav__link[href]:not([href^='#'])"
    count = browser.run(f'document.querySelectorAll("{links}").length')
    assert count > 15
    visited = set()
    for number in range(count):
        script = f'document.querySelectorAll("{links}")[{number}].click()'
        browser.follow(lambda script=script: browser.run(script))  # type: ignore[misc]
        visited.add(browser.run("location.pathname"))
        assert browser.run("document.querySelector('h1').textContent.trim()")
    assert len(visited) > 15


def test_a_link_of_an_id_shows_its_statement(browser: Browser, server: Server) -> None:
    browser.open(server.url + "requirements.html")
    browser.click("td a[href$='#dq1-module-packing']")
    assert browser.run("location.pathname").endswith("/dashq-packed-linear-v1.html")
    shown = browser.run("document.querySelector(location.hash).closest('p').textContent")
    assert shown.startswith("DQ1-MODULE-PACKING (MUST, manifest)")


def test_search_finds_a_statement(browser: Browser, server: Server) -> None:
    browser.open(server.url + "index.html")
    browser.run("document.querySelector('.md-search__input').focus()")
    for letter in "excess":  # of 8, in which nibbles are stored
        browser.press(letter, ord(letter.upper()), letter)
    found = browser.wait(
        "[...document.querySelectorAll('a.md-search-result__link')].map(one => one.href).join(' ')"
    )
    assert "specification/bitnest-package-v1.html" in found


def test_theme_is_switched_and_kept(browser: Browser, server: Server) -> None:
    scheme = "document.body.getAttribute('data-md-color-scheme')"
    browser.open(server.url + "index.html")
    before = browser.run(scheme)
    browser.run("document.querySelector('label[for^=__palette]:not([hidden])').click()")
    browser.wait(f"{scheme} !== {before!r}")
    after = browser.run(scheme)
    assert {before, after} == {"default", "slate"}
    browser.open(server.url + "results.html")
    assert browser.run(scheme) == after


@pytest.mark.parametrize("width", [320, 1280])
def test_pages_do_not_scroll_sideways(browser: Browser, server: Server, width: int) -> None:
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=800,
        deviceScaleFactor=1,
        mobile=False,
    )
    for page in ("index", "check", "requirements", "results", "specification/numerics"):
        browser.open(f"{server.url}{page}.html")
        sizes = "[document.documentElement.scrollWidth, innerWidth]"
        whole, visible = browser.run(sizes)
        assert whole <= visible, page
    browser.call("Emulation.clearDeviceMetricsOverride")
