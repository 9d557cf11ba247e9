"""The page of --html in a real browser: what it shows, how it folds, and that nothing gets in."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "page"))
import open_page

from oddrank import page
from oddrank.finding import Confidence, Evidence, Finding, Who
from oddrank.inputs import Notes
from oddrank.page import Branch, Chart, Dot, Note, Parts, Table, Tree
from oddrank.report import Report
from oddrank.triage import report
from oddrank.triage.facts import Death, Process, Source

pytestmark = [pytest.mark.needs("chromium", "jinja2"), pytest.mark.timeout(180)]

EVIL = (
    "</script></title><img src=x onerror='evil=1'><script>evil=1</script>{{7*7}}&lt;\u202e\x1b[31m"
)


@pytest.fixture(scope="module")
def browser():
    with open_page.browser() as driver:
        yield driver


class Shown:
    """A page in the browser."""

    def __init__(self, driver, file):
        self.driver = driver
        driver.get_log("browser")  # of an earlier page
        driver.get(file.as_uri())

    def texts(self, selector):
        return [each.text for each in self.found(selector)]

    def text(self, selector):
        (text,) = self.texts(selector)
        return text

    def contents(self, selector):
        """Returns the texts, shown or not: in large pages a hundred times as fast as texts()."""
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
        return self.driver.execute_script(script, selector)

    def found(self, selector):
        return self.driver.find_elements("css selector", selector)

    def press(self, key):
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(key).perform()

    def visible(self, selector):
        return [each.text for each in self.found(selector) if each.is_displayed()]

    @property
    def complaints(self):
        return [each["message"] for each in self.driver.get_log("browser")]


@pytest.fixture
def shows(browser, tmp_path):
    """Returns a function that opens a page in the browser."""

    def opened(made, parts):
        file = tmp_path / "page.html"
        page.write(made, parts, str(file))
        return Shown(browser, file)

    return opened


def shown_job(shows, ranks=64):
    found = open_page.big_job(ranks)
    return shows(report.made(found), report.parts(found))


def finding(text="rank 2 is stuck", rank=2, level="high", **more):
    return Finding(
        condition="stuck", who=Who("rank", (rank,)), cause="host-stuck", what=text,
        confidence=Confidence(level, "why not"), **more,
    )  # fmt: skip


def test_the_verdict_and_what_is_known_of_it_are_seen_and_the_console_stays_empty(browser, shows):
    shown = shown_job(shows)
    assert shown.visible("#verdict") == ["odd"]
    (summary,) = shown.visible("#summary")
    assert summary.startswith("rank 33 (node0004) is stuck in next_batch (data.py:17)")
    assert shown.driver.title == f"triage: odd: {summary}"
    assert shown.texts(".cell.odd") == ["33"]
    assert len(shown.found(".cell.waits")) == 63
    assert shown.text("#legend").startswith("waits: 63")
    # Evidence is quoted with its source.
    said = shown.texts("blockquote")
    assert said[0].startswith("rank 33 stands in next_batch (data.py:17)")
    assert [text for text in said if text.startswith("rank 33 completed 5 of 6 in default_pg")]
    assert shown.texts("cite")[0] == "records:1"
    # The group in question shows who is behind, and when the others entered.
    first, second = shown.texts(".table tbody tr")
    assert first.split() == ["33", "5", "no", "call"]
    assert second == "0-32, 34-63 5 all_reduce 6 +0.0 to 1.0"
    # One line of time for all that waited as long, and a box as wide as its ranks are many.
    died, waited = shown.texts("#lanes tr")
    in_call = "in all_reduce 6 of default_pg (ranks 0-63)"
    assert died == f"0 {in_call}, then was killed by the watchdog with SIGABRT, 60.0 s"
    assert waited == f"1-32,34-63 {in_call}, 61.0 s"
    odd, others = shown.found("#tree .leaf")
    assert [box.get_attribute("class") for box in (odd, others)] == ["leaf odd", "leaf waits"]
    assert odd.size["width"] < others.size["width"]
    assert shown.complaints == []
    # A small window shows the verdict first.
    size = browser.get_window_size()
    browser.set_window_size(900, 500)
    try:
        scrolled, bottom, height = shown_job(shows).driver.execute_script(
            "return [scrollY, document.getElementById('summary').getBoundingClientRect().bottom,"
            " innerHeight]"
        )
    finally:
        browser.set_window_size(size["width"], size["height"])
    assert scrolled == 0
    assert bottom < height


def test_a_page_fits_a_narrow_window_and_no_label_of_a_chart_is_cut_off(browser, shows):
    job = report.parts(open_page.big_job(64))
    hosts = {rank: f"gpu-node-{rank // 8:04}.cluster.example.com" for rank in range(64)}
    dots = [Dot(2.0**power, 1e-5 * 4.0**power, "text") for power in range(3, 29)]
    ticks = {8.0: "8 B", 2.0**28: "256 MiB"}
    curves = {f"float8_e4m3fn, in place {i}": dots for i in range(3)}
    parts = replace(
        job, hosts=hosts, charts=[Chart("all_reduce", curves, ticks)] * 3,
        tables=[*job.tables, Table("wide", ("one",) * 40, (("100 GB/s",) * 40,) * 3)],
    )  # fmt: skip
    size = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        shown = shows(report.made(open_page.big_job(64)), parts)
        widths = shown.driver.execute_script(
            "return [innerWidth, document.documentElement.scrollWidth]"
        )
        labels = shown.driver.execute_script(
            "return [...document.querySelectorAll('figure text')].map(e => e.getBBox())"
            ".map(box => [box.x, box.x + box.width])"
        )
        lines = [len({c.location["y"] for c in row.find_elements("css selector", ".cell")})
                 for row in shown.found(".host")]  # fmt: skip
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert widths[1] <= widths[0] == 400
    assert len(labels) >= 3 * (2 + 4)
    assert {left >= 0 and right <= 400 for left, right in labels} == {True}
    assert lines == [1] * 8


def test_branches_of_the_stacks_fold_by_mouse_and_by_key(shows):
    shown = shown_job(shows)
    leaves = "#tree .leaf"
    assert [text.split("\n")[0][:7] for text in shown.visible(leaves)] == ["rank 33", "ranks 0"]
    (root,) = shown.found("#tree summary")
    root.click()
    assert shown.visible(leaves) == []
    shown.press("e")
    assert len(shown.visible(leaves)) == 2
    shown.press("c")
    assert shown.visible(leaves) == []
    assert shown.visible("blockquote") == []
    assert shown.visible("#summary") != []


def test_keys_go_from_rank_to_rank_and_from_section_to_section(shows):
    from selenium.webdriver import Keys

    findings = [finding(), finding("rank 7 is stuck", 7), finding("rank 9?", 9, level="low")]
    made = Report.of("triage", {"size": 12}, {}, findings, complete=True)
    hosts = {rank: f"node{rank // 4}" for rank in range(12)}
    shown = shows(made, Parts(hosts=hosts, notes=[Note("in step 3", (2, 3, 4))]))
    at = "#rank p:first-child"
    assert shown.text(at) == "rank 2 (node0): stuck"
    assert "in step 3" in shown.text("#rank")
    for key, rank in (
        ("n", "7 (node1): stuck"), ("n", "9 (node2): perhaps stuck"), ("n", "2 (node0): stuck"),
        ("p", "9 (node2): perhaps stuck"), (Keys.HOME, "0 (node0): no findings"),
        (Keys.ARROW_RIGHT, "1 (node0): no findings"), (Keys.END, "11 (node2): no findings"),
        (Keys.ARROW_RIGHT, "11 (node2): no findings"),
    ):  # fmt: skip
        if key == Keys.HOME:
            shown.found("#grid")[0].click()
        shown.press(key)
        assert shown.text(at) == f"rank {rank}"
        assert ("in step 3" in shown.text("#rank")) == rank.startswith("2 ")
    for key, section in (("k", "findings"), ("j", "ranks"), ("k", "findings")):
        shown.press(key)
        assert shown.driver.switch_to.active_element.get_attribute("id") == section
    assert shown.complaints == []


def shown_ranks(shows, size, hosts):
    made = Report.of("triage", {"size": size}, {}, [finding()], complete=True)
    return shows(made, Parts(hosts=hosts))


def test_each_host_is_one_row_with_its_name_in_front_of_its_ranks_and_arrows_go_along(shows):
    from selenium.webdriver import Keys

    hosts = {rank: f"node{rank % 2}" for rank in range(8)}
    shown = shown_ranks(shows, 9, hosts)
    found = shown.found(".host")
    rows = [row.text.split() for row in found]
    assert rows == [["node0", *"0246"], ["node1", *"1357"], ["host", "unknown", "8"]]
    cells = [row.find_elements("css selector", ".cell") for row in found]
    assert [len({cell.location["y"] for cell in row}) for row in cells] == [1, 1, 1]
    assert len({row[0].location["x"] for row in cells}) == 1
    shown = shown_ranks(shows, 8, hosts)
    shown.found("#grid")[0].click()
    for key, rank in (
        (Keys.HOME, 0), (Keys.ARROW_RIGHT, 2), (Keys.ARROW_DOWN, 3), (Keys.ARROW_LEFT, 1),
        (Keys.ARROW_UP, 0), (Keys.ARROW_UP, 0), (Keys.END, 7), (Keys.ARROW_RIGHT, 7),
    ):  # fmt: skip
        shown.press(key)
        assert shown.text("#rank p:first-child").startswith(f"rank {rank} (node{rank % 2})")
    assert shown.complaints == []
    shown = shown_ranks(shows, 16, {})  # of unknown hosts: no names
    assert [row.text.split() for row in shown.found(".host")] == [[str(r) for r in range(16)]]


def test_texts_of_strangers_are_shown_and_never_run(shows):
    hostile = finding(
        EVIL, evidence=(Evidence(EVIL, EVIL, 1.0, EVIL, 2.0),), next=(EVIL,), stage=EVIL
    )
    made = Report.of("triage", {"size": 3, "job": EVIL}, {}, [hostile], complete=True, why=EVIL)
    shown = shows(made, Parts(
        hosts={0: EVIL}, notes=[Note(EVIL, (2,))], status=[EVIL], events=[EVIL],
        tables=[Table(EVIL, (EVIL,), ((EVIL,),))],
        charts=[Chart(EVIL, {EVIL: [Dot(1.0, 1.0, EVIL)]}, {1.0: EVIL})],
        tree=Tree(EVIL, (Branch(0, EVIL, 1, (EVIL,) * 9),), (EVIL,)),
    ))  # fmt: skip
    assert shown.driver.execute_script("return typeof evil") == "undefined"
    assert shown.found("img") == []
    assert len(shown.found("script")) == 2
    plain = EVIL.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
    assert shown.text("#summary") == plain
    assert plain in shown.text("#rank")
    for selector in (
        ".status", "blockquote", "cite", ".next", ".leaf", "#events li", "th", "figcaption",
        "figure p", "figure text",
    ):  # fmt: skip
        assert plain in " ".join(shown.texts(selector)), selector
    assert shown.complaints == []


def test_a_browser_runs_nothing_that_was_put_into_the_file(browser, tmp_path):
    file = tmp_path / "page.html"
    made = page.text(Report.of("triage", {"size": 1}, {}, [finding()], complete=True), Parts())
    assert "</main>" in made
    file.write_text(
        made.replace("</main>", "<script>evil=1</script><img src='file:///dev/null'></main>")
    )
    shown = Shown(browser, file)
    assert shown.driver.execute_script("return typeof evil") == "undefined"
    assert any("Content Security Policy" in each for each in shown.complaints)


def test_10240_ranks_are_one_small_file_that_loads_nothing(shows, tmp_path):
    shown = shown_job(shows, 10240)
    made = (tmp_path / "page.html").read_text()
    assert len(made) <= 5_000_000
    assert not re.search(r"""(?:src|href)=|url\(|@import|https?://""", made)
    counts = [len(shown.contents(each)) for each in (".cell", ".cell.odd", ".host")]
    assert counts == [10240, 1, 1280]
    assert shown.text("#rank p:first-child") == "rank 5121 (node0640): stuck"
    assert shown.driver.execute_script(
        "const box = document.querySelector('#grid').getBoundingClientRect(),"
        " odd = document.querySelector('.cell.odd').getBoundingClientRect();"
        " return scrollY === 0 && box.top <= odd.top && odd.bottom <= box.bottom"
    )
    assert shown.complaints == []


def test_ranks_that_all_differ_are_still_a_page_of_bounded_size(shows, tmp_path):
    ranks = range(10240)
    evidence = (Evidence("9999, " * 5000, "a"),) * 99
    branches = [Branch(min(r, 3000), f"rank {r}", 1, ("frame",) * 300) for r in ranks]
    findings = [
        finding(f"rank {rank} is stuck", rank, evidence=evidence) for rank in range(0, 10240, 2)
    ]
    parts = Parts(
        notes=[Note(f"{'text ' * 20}{rank}", (rank,)) for rank in ranks] * 20,
        tree=Tree("stacks", tuple(branches)),
        tables=[Table("table", ("row",), tuple((f"row {rank}",) for rank in ranks))],
    )
    made = Report.of("triage", {"size": 10240}, {}, findings, complete=True)
    shown = shows(made, parts)
    assert (tmp_path / "page.html").stat().st_size <= 5_000_000
    assert len(shown.contents(".cell.odd")) == 5120
    for selector, said in (
        ("#findings", "and 5020 more: see --json"), (".finding", "and 79 more: see --json"),
        ("#ranks", "lines about ranks are left out"), (".table", "the last 2000 of 10240"),
    ):  # fmt: skip
        assert said in " ".join(shown.contents(selector)[0].split()), selector
    assert shown.contents(".table td")[-1] == "row 10239"
    assert shown.complaints == []


def test_a_page_keeps_the_lines_about_the_odd_rank_where_there_are_too_many(shows, monkeypatch):
    monkeypatch.setattr(page, "_MOST_NOTES", 20_000)
    found = open_page.big_job(256, groups=20)
    shown = shows(report.made(found), report.parts(found))
    assert "lines about ranks are left out" in shown.text("#ranks")
    assert shown.text("#rank").count("\ncompleted ") == 20


def test_long_lists_are_cut_behind_an_entry_and_say_so(shows):
    ranks = ", ".join(map(str, range(1000, 2000)))
    members = ranks.replace(", ", ",")
    made = Report.of(
        "triage", {"size": 1}, {}, [finding(evidence=(Evidence(ranks, "a.log"),))], complete=True
    )
    tree = Tree("stacks", (Branch(0, f"ranks {members}", 1000, ("main",)),))
    shown = shows(made, Parts(tree=tree, status=["x" * 3000]))
    assert re.fullmatch(r"1000, .*, 1\d{3}, \.\.\.\s*a\.log", shown.texts("blockquote")[0])
    assert re.fullmatch(r"ranks 1000,.*,1\d{3}, \.\.\. \(1000\)", shown.text(".members"))
    assert shown.text(".status").endswith("x ... (1000 more characters)")


def test_ranks_of_several_jobs_are_not_shown_as_one_job(shows, tmp_path):
    log = tmp_path / "jobs.log"
    lines = [
        f"[rank{rank}]: {day}T10:00:00.000000Z [rank{rank}]: Traceback (most recent call last):\n"
        f'[rank{rank}]:   File "train.py", line 9, in main\n[rank{rank}]: ValueError: boom\n'
        for rank, day in ((1, "2026-01-01"), (2, "2026-03-01"))
    ]
    log.write_text("".join(lines))
    found = report.read([str(log)])
    shown = shows(report.made(found), report.parts(found))
    assert shown.found(".cell") == []
    assert "The files tell of 2 jobs" in shown.text("main > p")
    assert shown.complaints == []


def test_events_beyond_the_limit_are_counted_once(shows):
    found = open_page.big_job(16)
    facts = [Death(Process(r % 16), "exit", Source("a"), 10.0 * r, code=r) for r in range(3000)]
    found = report.judge({"": [*found.view.facts, *facts]}, [], Notes(), {})
    events = report.parts(found).events
    assert events[0] == "times in UTC"
    assert events[1].startswith(" 1970-01-01 00:00:00.000  rank 0: exited")
    assert len(events) == 502
    assert events[-1].startswith("... and 250")


def test_a_report_without_ranks_is_a_page_too(shows):
    made = Report.of("triage", {}, {}, [], complete=True, why="nothing in what was read")
    shown = shows(made, Parts())
    assert shown.text("#verdict") == "healthy"
    assert shown.found("#ranks") == []
    for key in ("n", "p", "j", "k", "e", "c"):
        shown.press(key)
    assert shown.complaints == []
