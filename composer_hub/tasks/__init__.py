"""Tested packages in, verifiable coding tasks out: no model is asked, and no container is needed.

made = tasks.make(["./my-repo", "inflection"], tasks.TaskOptions(max_per_kind=10))
draft = tasks.draft(made, "my-tasks")
"""

from composer_hub.records import SourceEdit, Task
from composer_hub.tasks.check import TaskCheck, check_task, check_version, one_of
from composer_hub.tasks.dataset import draft, oracle_draft, tasks_of
from composer_hub.tasks.harbor import write_harbor
from composer_hub.tasks.language import PackageRefused
from composer_hub.tasks.make import make
from composer_hub.tasks.options import KINDS, TaskOptions
from composer_hub.tasks.sets import Bundle, PackageReport, TaskSet

__all__ = [
    "KINDS",
    "Bundle",
    "PackageRefused",
    "PackageReport",
    "SourceEdit",
    "Task",
    "TaskCheck",
    "TaskOptions",
    "TaskSet",
    "check_task",
    "check_version",
    "draft",
    "make",
    "one_of",
    "oracle_draft",
    "tasks_of",
    "write_harbor",
]
