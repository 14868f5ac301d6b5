"""Training on rented machines: plan, start, follow and resume a run under a cap on money, or cancel it.

from composer_hub import hub, jobs

launcher = jobs.launcher_for(hub.destination("hub"), show=print)
words = ["--config", "dr_grpo.yaml", "--repo", "me/student"]
jobs.launch(launcher, jobs.JobOptions(words, secrets={"HF_TOKEN": token}, max_usd=60))
"""

from composer_hub.jobs.launching import Launcher, cancel, launch, launcher_for, resume
from composer_hub.jobs.plan import JobOptions, JobPlan, duration, make_plan
from composer_hub.jobs.runs import JobError, JobRun, RunJob, RunSpec, read_run, run_names

__all__ = [
    "JobError",
    "JobOptions",
    "JobPlan",
    "JobRun",
    "Launcher",
    "RunJob",
    "RunSpec",
    "cancel",
    "duration",
    "launch",
    "launcher_for",
    "make_plan",
    "read_run",
    "resume",
    "run_names",
]
