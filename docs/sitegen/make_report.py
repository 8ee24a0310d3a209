"""Run the suite on backends and write their reports for the page of results.

    python docs/sitegen/make_report.py reference torch optimized
    python docs/sitegen/make_report.py c=exec:./adapter

Each argument is a backend, or NAME=BACKEND where the report is to have another name. The report is
the suite's own; only `platform` is cut down to system and machine, since the rest of it describes a
computer, not a result.
"""

import json
import platform
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

REPORTS = Path(__file__).parent.parent / "reports"


def main(arguments: list[str]) -> int:
    """Write the reports; return the worst exit status of the runs."""
    worst = 0
    for argument in arguments:
        name, _, backend = argument.partition("=")
        with TemporaryDirectory() as folder:
            written = Path(folder) / "report.json"
            command = ["conformance", f"--backend={backend or name}", f"--report={written}"]
            done = subprocess.run(
                [sys.executable, "-m", "nibblespec.conformance", *command], check=False
            )
            worst = max(worst, abs(done.returncode))
            if done.returncode not in (0, 1):  # a run that was ended has half a report
                continue
            report = json.loads(written.read_text(encoding="utf-8"))
        report["environment"]["platform"] = f"{platform.system()} {platform.machine()}"
        text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
        (REPORTS / f"{name}.json").write_text(text, encoding="utf-8")
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
