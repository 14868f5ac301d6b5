"""Report where a person's agents lose turns: session files in, numbers and one HTML page out.

Nothing leaves the machine.

from composer_hub import report

made = report.report(["~/.claude/projects"])
made.write("report.html")
"""

from composer_hub.report.make import Made, ReportOptions, report

__all__ = ["Made", "ReportOptions", "report"]
