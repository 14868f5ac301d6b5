"""`RunPublisher`: the checkpoints, rollouts and final model of a run, published as versions."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

from composer_hub.hub import Destination, HubError, Parent, Published, check_target, publish_model
from composer_hub.train.checkpoints import model_files
from composer_hub.train.run.export import publish_rollouts
from composer_hub.train.run.options import PublishingOptions

_PUBLIC_ADVICE = (
    "add --public true if everyone may have the results of this run, name another repository, or make it private first."
)


@dataclass(frozen=True)
class RunPublisher:
    """Publishes the results of one run, with their lineage, to the repositories that its options name."""

    where: Destination
    options: PublishingOptions
    run_id: str
    base: Parent
    parents: tuple[Parent, ...] = ()

    def check_repositories(self, output: Path) -> None:
        """Refuse before training what would be refused after it; a Hub that is down may be back by then."""
        options = self.options
        targets = (
            (options.repo, "model", "model"),
            (options.checkpoints_repo, "model", "model"),
            (options.rollouts_repo, "traces", "dataset"),
        )
        try:
            for repo, kind, repo_type in targets:
                if repo:
                    check_target(
                        self.where, repo, kind, public=options.public, repo_type=repo_type, advice=_PUBLIC_ADVICE
                    )
            for repo, _, repo_type in targets:
                if repo:
                    self.where.prepare(repo, private=not options.public, repo_type=repo_type)
        except HubError as error:
            warnings.warn(f"{error} Training begins; its results stay in {output}.", stacklevel=2)

    def publish_final(self, final: Path, num_steps: int, *, is_adapter: bool) -> None:
        """Publish the finished model, if the run has a repository for it, and print how to load it."""
        options = self.options
        if not options.repo:
            return
        published = self._model(options.repo, final, f"run-{self.run_id}", f"{num_steps} steps")
        print(f"{published.repo} {published.tag} {published.revision} at {published.address}")
        if options.to in ("local", "hub"):
            inside = ", in `composer-hub run -- python`" if options.to == "local" else ""
            reader = "AutoPeftModelForCausalLM" if is_adapter else "AutoModelForCausalLM"
            print(f'Load it with {reader}.from_pretrained("{published.repo}", revision="{published.tag}"){inside}.')
            print(f"Show its lineage: composer-hub lineage {published.repo}@{published.tag} --from {options.to}")

    def publish_checkpoint(self, copy: Path, step: int) -> dict[str, str]:
        """Publish the copy of a checkpoint and the rollouts so far, and return their revisions."""
        revisions = {}
        if (rollouts := self.publish_rollouts(copy / "rollouts")) is not None:
            revisions["rollouts"] = rollouts.revision
        if repo := self.options.checkpoints_repo:
            tag = f"run-{self.run_id}-step-{step}"
            revisions["checkpoint"] = self._model(repo, copy / "model", tag, f"step {step}").revision
        return revisions

    def publish_rollouts(self, folder: Path) -> Published | None:
        """Publish the rollouts in a folder as the next version of the run's dataset, if it has one."""
        if not self.options.rollouts_repo:
            return None
        return publish_rollouts(
            self.where,
            self.options.rollouts_repo,
            folder,
            run_id=self.run_id,
            license=self.options.license,
            parents=(self.base, *self.parents),
            public=self.options.public,
        )

    def _model(self, repo: str, folder: Path, tag: str, progress: str) -> Published:
        title = f"Run {self.run_id}: {progress} from {self.base.repo}"
        return publish_model(self.where, repo, model_files(folder), tag=tag, title=title, public=self.options.public)
