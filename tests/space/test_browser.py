"""A reviewer's work in a real browser, on data that tries to break out of every field.

The fixture `open_page` asserts after each test that nothing of the data ran, no request left this machine, and the
browser had nothing to complain about: the content policy never had to stop anything.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from inspector.verdicts import chosen_first

from composer_hub import hub
from composer_hub.records import stable_id
from tests.hidden import HIDDEN, hidden_in
from tests.quick import quick
from tests.space.conftest import NUM_PAIRS, Published, serving
from tests.space.hostile import PAYLOADS

Open = Callable[..., Any]
ARTIFACTS = Path(os.environ.get("SPACE_SCREENSHOTS", ".artifacts/space"))
VIEWS = ("pairs", "hints", "sessions", "runs", "tasks", "overview")
DESKTOP = {"width": 1440, "height": 850}
PHONE = {"width": 390, "height": 844}


def rows(page: Any) -> Any:
    return page.locator("#list [data-item]")


def current(page: Any) -> str:
    return page.locator("#list [aria-current]").get_attribute("data-item")


def press(page: Any, key: str) -> None:
    page.keyboard.press(key)


def wait_for(page: Any, condition: str, argument: Any = None) -> None:
    page.wait_for_function(condition, arg=argument)


def moved(page: Any, before: str) -> str:
    """Wait until another item is shown, and return it."""
    attribute = {"pairs": "pair", "hints": "hint"}[page.evaluate("document.body.dataset.view")]
    script = """([name, before]) => {
        const id = document.querySelector('#detail article')?.dataset[name];
        return id && id !== before && document.querySelector('#list [aria-current]')?.dataset.item === id;
    }"""
    wait_for(page, script, [attribute, before])
    return page.evaluate(f"document.querySelector('#detail article').dataset.{attribute}")


# --------------------------------------------------------------------------------------------------------- hostile data


@pytest.mark.parametrize("view", quick(1, VIEWS))
def test_hostile_text_is_shown_and_never_runs(open_page: Open, space: str, view: str) -> None:
    page = open_page(f"{space}?view={view}")
    for at in range(min(3, rows(page).count())):
        rows(page).nth(at).click()
        page.wait_for_timeout(150)
        page.evaluate("document.querySelectorAll('#detail details').forEach((one) => { one.open = true })")
        unfold = "#detail :is([data-earlier], [data-context]), .raw button"
        page.evaluate(f"document.querySelectorAll('{unfold}').forEach((one) => one.click())")
        page.wait_for_timeout(300)
    if view in ("pairs", "hints"):
        press(page, "f")
        page.wait_for_selector("#filters select")
    text = page.inner_text("body")
    assert "window.pwned" in text
    assert any(payload in text for payload in PAYLOADS[:9])
    assert hidden_in(page.content()) == []
    # None of the data became an element.
    strange = "img, iframe, style, body script, meta[http-equiv], [onerror], [onload], [onmouseover], [onfocus]"
    assert page.locator(strange).count() == 0
    assert page.locator("a[href^='javascript']").count() == 0


@pytest.mark.slow
def test_the_browser_knows_the_same_hidden_characters(open_page: Open, space: str) -> None:
    script = """() => {
        const every = Array.from({ length: 0x110000 }, (_, code) => code);
        return every.filter((code) => spelledOut(String.fromCodePoint(code)) !== String.fromCodePoint(code));
    }"""
    assert open_page(space).evaluate(script) == [ord(char) for char in HIDDEN]


@pytest.mark.slow
def test_the_edit_box_hides_nothing_and_holds_the_very_values(
    open_page: Open, space: str, published: Published, where: Any
) -> None:
    stored = {row["pair_id"]: row for row in hub.load(where, f"{published.pairs}@main").rows("default")}
    page = open_page(space)
    hiding = 0
    for at in range(2, 2 + len(PAYLOADS)):
        rows(page).nth(at).click()
        wait_for(page, "(id) => document.querySelector('#detail article')?.dataset.pair === id", current(page))
        press(page, "e")
        sides = ["chosen", "rejected"] if chosen_first("me", current(page)) else ["rejected", "chosen"]
        for start, side in zip(("first", "second"), sides, strict=True):
            page.click(f"[data-start={start}]")
            call = stored[current(page)][side][0]["tool_calls"][0]["function"]
            assert hidden_in(page.input_value("#edited")) == []
            assert json.loads(page.input_value("#edited")) == [{"name": call["name"], "arguments": call["arguments"]}]
            hiding += bool(hidden_in(str(call["arguments"].values())))
        press(page, "Escape")
    assert hiding


@pytest.mark.slow
def test_hostile_words_in_the_address_and_in_the_search_are_values(open_page: Open, space: str) -> None:
    page = open_page(space)
    for payload in PAYLOADS:
        page.fill("#search", payload)
        wait_for(page, "(value) => new URLSearchParams(location.search).get('q') === value", payload)
    kind, id = quote(PAYLOADS[0]), quote(PAYLOADS[4])
    page.goto(f"{space}?error_kind={kind}&pair={id}")
    page.wait_for_selector("body[data-ready]")  # a pair comes after the page
    assert "No such pair" in page.inner_text("#detail")


@pytest.mark.slow
def test_a_pair_that_comes_after_the_list_was_emptied_is_not_shown(open_page: Open, space: str) -> None:
    page = open_page(space)
    held: list[Any] = []
    page.route(lambda url: "want=detail" in url, lambda route: held.append(route))
    rows(page).nth(5).click()
    page.fill("#search", "nothing has these words")
    wait_for(page, "() => !document.querySelector('#list [data-item]')")
    assert held
    for route in held:
        with page.expect_response(route.request.url):
            route.continue_()
    page.wait_for_load_state("networkidle")
    assert page.inner_text("#detail").strip() == ""


@pytest.mark.slow
def test_a_line_of_ten_million_characters_costs_a_page_little_and_is_fetched_in_pieces(
    open_page: Open, space: str
) -> None:
    page = open_page(f"{space}?view=hints")
    sizes: list[int] = []
    page.on("response", lambda response: sizes.append(int(response.headers.get("content-length") or 0)))
    page.fill("#search", "")
    site = f"{stable_id(stable_id('hostile', 0), 0)}:1"
    page.goto(f"{space}?view=hints&hint={site}")
    page.wait_for_selector("body[data-ready]")
    assert len(page.content()) < 200_000
    page.click("#detail [data-more]")
    page.wait_for_selector("#detail [data-more]:has-text('Show more')")
    assert max(sizes) < 1_000_000


# --------------------------------------------------------------------------------------------------------------- moving


def test_keys_move_decide_and_undo_and_drafts_survive_a_reload(open_page: Open, space: str) -> None:
    page = open_page(space)
    first = current(page)
    press(page, "j")
    second = moved(page, first)
    assert current(page) == second
    press(page, "k")
    assert moved(page, second) == first
    for key in "arx":
        here = current(page)
        press(page, key)
        moved(page, here)
    assert page.inner_text("[data-count]") == "2"  # A skip is not submitted.
    press(page, "u")
    press(page, "u")
    wait_for(page, "() => document.querySelector('[data-count]').textContent === '1'")
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert page.inner_text("[data-count]") == "1"
    assert page.locator("#list [data-draft]:not(:empty)").count() == 1
    assert page.inner_text("#progress") == f"1 of {NUM_PAIRS - 1}"
    press(page, "u")
    wait_for(page, "() => document.querySelector('[data-count]').textContent === '0'")
    assert page.inner_text("#progress") == f"0 of {NUM_PAIRS - 1}"


@pytest.mark.slow
def test_keys_scroll_the_detail_whatever_has_the_focus(open_page: Open, space: str) -> None:
    page = open_page(space, viewport={"width": 1300, "height": 500})
    assert page.evaluate("document.activeElement.id") == "detail"
    top = "() => document.querySelector('#detail').scrollTop"
    end = page.evaluate(
        "document.querySelector('#detail').scrollHeight - document.querySelector('#detail').clientHeight"
    )
    assert end > 0
    for focus in ("#detail", "#list [data-item]", "#theme"):
        page.focus(focus)
        for there, back in (("PageDown", "PageUp"), ("ArrowDown", "ArrowUp"), ("End", "Home")):
            press(page, there)
            assert page.evaluate(top) > 0, (focus, there)
            press(page, back)
            assert page.evaluate(top) == 0, (focus, back)
    page.focus("#detail")
    press(page, "Space")
    assert page.evaluate(top) > 0
    press(page, "Shift+Space")
    assert page.evaluate(top) == 0


@pytest.mark.slow
def test_one_key_unfolds_all_messages_and_one_jumps_between_differences(open_page: Open, space: str) -> None:
    page = open_page(space)
    wait_for(page, "() => document.querySelector('.recent > details')")
    assert not page.locator(".earlier .message").first.is_visible()
    press(page, "c")
    page.wait_for_selector(".earlier .message")
    assert page.locator(".before .message").count() == 6
    assert page.locator(".recent > details:not([open])").count() == 0
    press(page, "c")
    assert not page.locator(".earlier .message").first.is_visible()
    seen, num = [], page.evaluate("differences().length")
    for key in "dddD":
        press(page, key)
        seen.append(page.evaluate("differences().indexOf(document.querySelector('.here'))"))
        assert page.locator(".here").is_visible()
    assert seen == [at % num for at in (0, 1, 2, 1)]


@pytest.mark.slow
def test_a_blind_reader_sees_neither_student_nor_teachers_before_a_decision(
    open_page: Open, space: str, published: Published, where: Any
) -> None:
    page = open_page(space)
    rows(page).nth(30).click()
    id = moved(page, "")
    pair = next(row for row in hub.load(where, f"{published.pairs}@main").rows("default") if row["pair_id"] == id)
    words = re.compile(r"student|teacher|chosen|reject|votes|agree", re.IGNORECASE)
    names = {pair["chosen_teacher"], pair["source_model"], *pair["teachers"], pair["error_kind"]} - {""}

    def naming(selector: str) -> list[str]:
        text = page.inner_text(selector)
        return words.findall(text) + [name for name in names if name in text]

    detail = page.locator("#detail article")
    assert naming("#list") == []
    assert naming("#detail article") == []
    assert words.findall(re.sub(r"data-verdict=\"reject\"|class=\"reject\"", "", detail.inner_html())) == []
    press(page, "a")
    moved(page, id)
    assert naming("#detail article") == []
    wait_for(page, "() => document.querySelector('#last').textContent.includes('teachers')")
    press(page, "k")
    wait_for(page, "(id) => document.querySelector('#detail article.open')?.dataset.pair === id", id)
    assert {"student", "teachers", "Votes"} <= set(
        re.findall(r"student|teachers|Votes", page.inner_text("#detail article"))
    )


@pytest.mark.slow
def test_labels_are_open_for_those_who_explore(
    open_page: Open, hub_server: Any, published: Published, tmp_path: Path
) -> None:
    text = tmp_path / "guidelines.md"
    text.write_text("Prefer the **smaller** change. <img src=x onerror=window.pwned=1>")
    settings = {"SPACE_OPEN_LABELS": "yes", "SPACE_GUIDELINES": str(text), "SPACE_REVIEW_SIZE": "7"}
    with serving(hub_server, published.all, "hf_test_me", tmp_path / "open", **settings) as address:
        page = open_page(address)
        assert "student (rejected)" in page.inner_text("#detail")
        assert page.inner_text("#progress") == "0 of 7"
        press(page, "g")
        assert page.locator("#guidelines strong").inner_text() == "smaller"
        assert page.locator("#guidelines img").count() == 0
        press(page, "Escape")
        first = current(page)
        press(page, "s")
        moved(page, first)
        assert "swap" in page.locator("#list [data-draft]").first.inner_text()
        page.close()


@pytest.mark.slow
def test_keys_are_letters_while_one_types_and_can_be_turned_off(open_page: Open, space: str) -> None:
    page = open_page(space)
    press(page, "n")
    page.keyboard.type("ajar")
    assert page.input_value("[data-note]") == "ajar"
    press(page, "Escape")
    press(page, "?")
    assert page.locator("#help").is_visible()
    page.uncheck("#keys-on")
    page.keyboard.press("Escape")
    press(page, "a")
    assert page.inner_text("[data-count]") == "0"


@pytest.mark.slow
def test_the_next_page_opens_when_one_moves_past_the_last_pair(open_page: Open, space: str) -> None:
    page = open_page(space)
    rows(page).last.click()
    last = moved(page, "")
    press(page, "j")
    moved(page, last)
    wait_for(page, "() => location.search.includes('page=1')")
    assert rows(page).count() == NUM_PAIRS - 1 - 50
    press(page, "k")
    wait_for(page, "() => !location.search.includes('page=1')")
    wait_for(page, "(id) => document.querySelector('#list [aria-current]')?.dataset.item === id", last)


@pytest.mark.slow
def test_a_link_opens_its_pair_on_its_page(open_page: Open, space: str) -> None:
    page = open_page(f"{space}?page=1")
    rows(page).last.click()
    id = moved(page, "")
    link = page.get_attribute("#detail .id", "href")
    other = open_page(f"{space}{link.removeprefix('./')}")
    assert other.locator("#detail article").get_attribute("data-pair") == id
    assert current(other) == id
    assert other.locator("[rel=next][href]").count() == 0


@pytest.mark.slow
def test_the_address_holds_the_filters(open_page: Open, space: str) -> None:
    page = open_page(space)
    press(page, "f")
    page.wait_for_selector("#filters select")
    page.select_option("[name=repository]", "org/plain")
    wait_for(page, "() => location.search.includes('repository=org%2Fplain')")
    wait_for(page, "() => document.querySelectorAll('#list [data-item]').length < 20")
    shown = rows(page).count()
    other = open_page(page.url)
    assert rows(other).count() == shown
    assert other.inner_text("[data-active]") == "1"


@pytest.mark.parametrize(
    ("query", "holds"),
    [
        ("agree=yes", lambda count: 0 < count < NUM_PAIRS),
        ("agree=no", lambda count: 0 < count < NUM_PAIRS),
        ("error_kind=none", lambda count: 0 < count < NUM_PAIRS),
        ("after_error=yes", lambda count: 0 < count < NUM_PAIRS),
        ("scripted=yes", lambda count: count == NUM_PAIRS - 1),
        ("scripted=no", lambda count: count == 0),
        ("family=scripted-a", lambda count: count == NUM_PAIRS - 1),
        ("same_family=yes", lambda count: count == 0),
        ("max_cost=0.01", lambda count: count == 10),
        ("min_cost=0.05", lambda count: count == 10),
        ("tool=Bash", lambda count: count == NUM_PAIRS - 1),
        ("review=new", lambda count: count >= NUM_PAIRS - 10),
        ("split=train", lambda count: count == NUM_PAIRS - 1),
        ("q=%25", lambda count: count < NUM_PAIRS - 1),
        ("q=PYTEST", lambda count: count == NUM_PAIRS - 1),
        ("min_cost=-1", None),
        ("max_cost=much", None),
    ],
)
def test_each_filter_counts_what_it_names(space: str, query: str, holds: Callable[[int], bool] | None) -> None:
    from huggingface_hub.utils import httpx

    answer = httpx.get(f"{space}part?view=pairs&want=list&{query}", trust_env=False)
    if holds is None:
        assert answer.status_code == 400
        assert "amount in dollars" in answer.json()["error"]
        return
    found = re.search(r'data-total="(\d+)"', answer.json()["list"])
    assert holds(int(found.group(1)) if found else 0), answer.json()["list"][:200]


def test_the_hint_is_at_its_place_in_the_teachers_prompt_alone(open_page: Open, space: str) -> None:
    page = open_page(f"{space}?view=hints")
    rows(page).first.click()
    moved(page, "")
    assert page.locator(".conversation + .inserted").is_visible()
    press(page, "t")
    assert not page.locator(".inserted").is_visible()
    press(page, "t")
    assert page.locator(".inserted").is_visible()


@pytest.mark.slow
def test_versions_are_compared_by_step(open_page: Open, space: str) -> None:
    page = open_page(f"{space}?view=overview&base=v1.0.0")
    assert "1 added, 1 removed, 0 changed" in page.inner_text(".changes-card")
    page.click("text=before")
    page.wait_for_selector("body[data-ready] article[data-pair]")


# ------------------------------------------------------------------------------------------------------------- verdicts


@pytest.mark.slow
def test_two_reviewers_submit_pull_requests_and_their_agreement_is_shown(
    open_page: Open, space: str, space_of_ada: str, published: Published, where: Any
) -> None:
    def open_pulls() -> list[Any]:
        pulls = where.api.get_repo_discussions(published.pairs, repo_type="dataset", discussion_type="pull_request")
        return list(pulls)

    before = {pull.num for pull in open_pulls()}  # other tests of this server send verdicts too, in any order
    page = open_page(space_of_ada)
    ids = [current(page), *(rows(page).nth(at).get_attribute("data-item") for at in (1, 2))]
    for address, name, keys in ((space_of_ada, "ada", "a1a"), (space, "me", "aae")):
        page = open_page(address)
        for num, (id, key) in enumerate(zip(ids, keys, strict=True), 1):
            if key == "a" and not chosen_first(name, id):
                key = "b"
            # By name, because a server that knows the verdicts of others offers other pairs first.
            page.goto(f"{address}?pair={id}")
            page.wait_for_selector("body[data-ready]")
            press(page, key)
            if key == "e":
                page.fill("#edited", '[{"name": "Bash", "arguments": {"command": "make test"}}]')
                page.click("#save-edit")
            wait_for(page, "(num) => document.querySelector('[data-count]').textContent === num", str(num))
        page.click("#submit")
        page.click("#send")
        page.wait_for_selector("#sent a")
        assert "3 verdicts of" in page.inner_text("#sent")
        assert page.inner_text("[data-count]") == "0"
    page = open_page(f"{space}?view=overview")
    review = page.inner_text(".review")
    assert "33%" in review
    assert "agreement of 2 reviewers" in review
    assert "3 of them blind" in review
    assert "Krippendorff's alpha" in review
    assert f"{len(before) + 2}\nopen pull requests" in review
    listed = open_page(f"{space}?review=disputed")
    assert rows(listed).count() == 2
    pulls = [pull for pull in open_pulls() if pull.num not in before]
    assert {pull.author for pull in pulls} == {"me", "ada"}
    details = where.api.get_discussion_details(published.pairs, pulls[0].num, repo_type="dataset")
    assert not details.conflicting_files
    sent = [json.loads(line) for pull in pulls for line in verdict_lines(where, published.pairs, pull.num)]
    assert [row["reason"] for row in sent if row["verdict"] == "reject"] == ["equal"]
    assert [row["verdict"] for row in sent if row["reviewer"] == "ada"] == ["accept", "reject", "accept"]


def verdict_lines(where: Any, repo: str, num: int) -> list[str]:
    """Return the lines of the verdict files of a pull request."""
    files = where.api.list_repo_files(repo, repo_type="dataset", revision=f"refs/pr/{num}")
    paths = [path for path in files if path.startswith("verdicts/")]
    local = [where.api.hf_hub_download(repo, path, repo_type="dataset", revision=f"refs/pr/{num}") for path in paths]
    return [line for path in local for line in Path(path).read_text().splitlines()]


@pytest.mark.slow
def test_other_verdicts_stay_hidden_until_one_has_decided(
    open_page: Open, space: str, space_of_ada: str, published: Published
) -> None:
    page = open_page(space_of_ada)
    rows(page).nth(20).click()
    id = moved(page, "")
    page.fill("[data-note]", "a wild guess")
    page.click("[data-verdict=reject]")
    moved(page, id)
    page.click("#submit")
    page.click("#send")
    page.wait_for_selector("#sent a")
    # A server reads the verdicts of others again after a minute; its own submission makes it read at once.
    own = open_page(f"{space}?q=zzz-nothing")
    verdict = {"dataset": published.pairs, "revision": "main", "verdicts": [{"id": f"{id}x", "verdict": "accept"}]}
    own.evaluate(
        """(verdict) => fetch('verdicts', {method: 'POST', body: JSON.stringify(verdict),
             headers: {'Content-Type': 'application/json'}})""",
        verdict,
    )
    own.goto(f"{space}?q={id}&pair={id}")
    own.wait_for_selector("body[data-ready]")
    assert not own.locator("[data-others]").is_visible()
    press(own, "a")
    wait_for(own, "() => document.querySelector('[data-others]:not([hidden])')?.innerText.includes('a wild guess')")


@pytest.mark.slow
def test_an_edit_that_is_not_a_list_of_calls_is_refused_in_the_dialog(open_page: Open, space: str) -> None:
    page = open_page(space)
    press(page, "e")
    page.fill("#edited", "{broken")
    page.click("#save-edit")
    assert "not JSON" in page.inner_text("#edit-error")
    page.fill("#edited", '[{"name": "Bash", "arguments": "ls"}]')
    page.click("#save-edit")
    assert "object of arguments" in page.inner_text("#edit-error")
    assert page.inner_text("[data-count]") == "0"


@pytest.mark.slow
def test_one_key_names_a_wrong_blame_on_the_trace_set(
    open_page: Open, space: str, published: Published, where: Any
) -> None:
    page = open_page(f"{space}?view=hints")
    rows(page).first.click()
    id = moved(page, "")
    press(page, "b")
    moved(page, id)
    page.click("#submit")
    assert published.traces in page.inner_text("#drafts")
    page.click("#send")
    page.wait_for_selector("#sent a")
    pulls = where.api.get_repo_discussions(published.traces, repo_type="dataset", discussion_type="pull_request")
    assert [pull.title for pull in pulls] == ["Add 1 verdicts of me"]


@pytest.mark.slow
def test_a_hint_is_edited_in_a_box_and_a_wrong_blame_names_another(
    open_page: Open, space: str, published: Published
) -> None:
    page = open_page(f"{space}?view=hints")
    rows(page).first.click()
    edited = moved(page, "")
    press(page, "e")
    assert hidden_in(page.input_value("#edited-hint")) == []
    page.fill("#edited-hint", "  ")
    page.click("#save-hint")
    assert "Write the hint" in page.inner_text("#hint-error")
    page.fill("#edited-hint", "Read the file first.")
    page.click("#save-hint")
    blamed = moved(page, edited)
    page.select_option("[data-blame]", "env")
    press(page, "b")
    moved(page, blamed)
    drafts = page.evaluate("JSON.parse(localStorage.getItem('composer-space-drafts'))")[published.traces]
    assert (drafts[edited]["verdict"], drafts[edited]["edited_hint"]) == ("edit_hint", "Read the file first.")
    assert (drafts[blamed]["verdict"], drafts[blamed]["blame"]) == ("wrong_blame", "env")


@pytest.mark.slow
def test_a_mark_of_a_session_opens_its_page_and_a_step_in_full(open_page: Open, space: str) -> None:
    page = open_page(f"{space}?view=sessions")
    page.click("#detail a[href*='#step-0']")
    page.wait_for_selector("body[data-ready]")
    page.locator("#step-0 [data-earlier]").click()
    page.wait_for_selector("#step-0 .earlier .message")
    page.locator("#step-0 a", has_text="Open the site").click()
    page.wait_for_selector("body[data-ready] article[data-hint]")
    page.locator("#detail .head a", has_text="of its session").click()
    page.wait_for_selector("body[data-ready] article[data-session]")


# ----------------------------------------------------------------------------------------------------------- appearance


@pytest.mark.parametrize(("scheme", "size"), quick(1, itertools.product(("light", "dark"), (DESKTOP, PHONE))), ids=str)
@pytest.mark.parametrize("view", quick(1, [*VIEWS, "decided pairs"]))
def test_a_view_passes_axe_and_fits_its_screen(open_page: Open, space: str, view: str, size: Any, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = open_page(f"{space}?view={view.split()[-1]}", viewport=size, color_scheme=scheme)
    if view != "overview":
        rows(page).first.click()
        page.wait_for_timeout(200)
    if view == "decided pairs":
        id = page.locator("#detail article").get_attribute("data-pair")
        press(page, "a")
        moved(page, id)
        press(page, "k")
        page.wait_for_selector("article.open")
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"{view}-{scheme}-{size['width']}.png", full_page=size is PHONE)
    wide = page.evaluate(
        """() => document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('main *')]
             .filter((one) => one.getBoundingClientRect().right > innerWidth && !one.closest('.scroll'))
             .map((one) => one.outerHTML.slice(0, 200))"""
    )
    assert wide == []
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.slow
def test_the_theme_button_turns_the_theme_and_it_stays(open_page: Open, space: str) -> None:
    page = open_page(space, color_scheme="light")
    page.click("#theme")
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.slow
def test_a_phone_shows_the_list_then_the_pair_and_goes_back(open_page: Open, space: str) -> None:
    page = open_page(space, viewport=PHONE)
    assert page.locator("#list").is_visible()
    assert not page.locator("#detail").is_visible()
    rows(page).first.click()
    page.wait_for_selector("#detail article")
    assert not page.locator("#list").is_visible()
    bars = "['.bar', '.verdict'].map((one) => document.querySelector(one).offsetHeight)"
    assert sum(page.evaluate(bars)) <= PHONE["height"] / 5
    page.click("[data-unfold]")
    assert page.locator(".reasons").is_visible()
    page.click("#menu")
    assert page.locator("#theme").is_visible()
    page.click("#back")
    assert page.locator("#list").is_visible()
