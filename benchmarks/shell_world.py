"""A shell whose programs have changed since the model learned them: real argparse, real messages, no hint in sight.

    composer-hub train grpo --model_name_or_path WARM --environment benchmarks.shell_world:Shell \\
        --tasks benchmarks.shell_world:tasks --eval_tasks benchmarks.shell_world:held_out
    python -m benchmarks.shell_world warm MODEL OUT     # a short SFT on the old interface; OUT is WARM above

A dozen programs print a code for a file, which nobody guesses. Each has an old interface, on which the model is warmed
up, and a new one, in which it acts. `--help` works, and files have moved into a folder. Hints come from the product's
writers, which read what the programs print. docs/results/real_model.md names the plan.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub.environments.process import Limits
from composer_hub.environments.sandbox import Sandbox, open_sandbox

FILES = tuple("notes draft todo ledger report agenda minutes budget roster recipe".split())
LIMITS = Limits(seconds=10.0)
MAX_CHARS = 1500  # of a result


@dataclass(frozen=True)
class Interface:
    """How a program is called: its subcommand, the option of its file ("" if it stands alone), and one of a number."""

    command: str
    file: str
    number: str

    def call(self, program: str, file: str, number: int) -> str:
        """Return the command line."""
        words = [program, self.command, self.file, file, self.number, str(number)]
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class Program:
    name: str
    purpose: str  # as a task says it
    old: Interface
    new: Interface

    def source(self, interface: Interface) -> str:
        """Return the program's text."""
        file = f'"{interface.file}", dest="file", required=True' if interface.file else '"file"'
        number = (
            f'"{interface.number}", dest="number", type=int, required=True'
            if interface.number
            else '"number", type=int'
        )
        return f'''#!/usr/bin/env python3
import argparse, hashlib, pathlib
parser = argparse.ArgumentParser(prog="{self.name}")
commands = parser.add_subparsers(dest="command", required=True)
one = commands.add_parser("{interface.command}", help="{self.purpose.format(file="FILE", number="NUMBER")}")
one.add_argument({file})
one.add_argument({number})
args = parser.parse_args()
path = pathlib.Path(args.file)
if not path.is_file():
    parser.exit(1, f"{self.name}: {{args.file}}: No such file or directory\\n")
print(hashlib.sha256(f"{self.name} {{args.number}} {{path.read_text()}}".encode()).hexdigest()[:8])
'''

    def code(self, text: str, number: int) -> str:
        """Return what the program prints."""
        return hashlib.sha256(f"{self.name} {number} {text}".encode()).hexdigest()[:8]


def _program(name: str, purpose: str, old: str, new: str) -> Program:
    first, second = (Interface(*(word if word != "-" else "" for word in text.split())) for text in (old, new))
    return Program(name, purpose, first, second)


# Subcommand, option of the file, option of the number; "-" is an argument without an option.
PROGRAMS = (
    _program(
        "tally", "count the words of {file} in blocks of {number}", "count --file --block", "words --file --block"
    ),
    _program("stamp", "stamp {file} with mark {number}", "add --file --mark", "add --path --mark"),
    _program("fold", "fold {file} at column {number}", "lines --input --width", "lines --input --columns"),
    _program("seal", "seal {file} at level {number}", "file - --level", "file --input --level"),
    _program("probe", "probe {file} to depth {number}", "scan --target --depth", "scan - --depth"),
    _program("grade", "grade {file} on scale {number}", "run --file --scale", "score --source --scale"),
    _program("shelve", "shelve {file} in slot {number}", "put --file --slot", "put --file -"),
    _program("index", "index {file} from line {number}", "build --source --start", "build --source --from-line"),
    _program("weigh", "weigh {file} in units of {number}", "file --name --unit", "measure --name --unit"),
    _program("trace", "trace {file} for {number} steps", "follow --log --steps", "follow --file --max-steps"),
    _program("merge", "merge {file} into {number} parts", "split --file --parts", "into --file --parts"),
    _program("audit", "audit {file} under rule {number}", "check - --rule", "check - --policy"),
)


def call_of(row: dict[str, Any], *, old: bool = False) -> str:
    """Return the command line that solves a task."""
    program = PROGRAMS[row["program"]]
    file = row["file"] if old else f"docs/{row['file']}"
    return (program.old if old else program.new).call(program.name, file, row["number"])


class Shell:
    """The environment. One tool; the reward is 1 if the program that the task names printed its code, otherwise 0."""

    old = False  # the interface of the demonstrations

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self._sandbox = sandbox or open_sandbox()
        self._root = Path(tempfile.mkdtemp(prefix="shell-"))
        weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)

    def reset(self, program: int = 0, file: str = "notes.txt", number: int = 1, **_: Any) -> None:
        shutil.rmtree(self._root)
        folder = self._root if self.old else self._root / "docs"
        (self._root / "bin").mkdir(parents=True)
        folder.mkdir(exist_ok=True)
        rng, texts = random.Random(f"{program} {file} {number}"), {}
        for name in FILES:
            texts[f"{name}.txt"] = " ".join(rng.choices(FILES, k=12)) + "\n"
            (folder / f"{name}.txt").write_text(texts[f"{name}.txt"])
        for one in PROGRAMS:
            path = self._root / "bin" / one.name
            path.write_text(one.source(one.old if self.old else one.new))
            path.chmod(0o755)
        self._root.chmod(0o777)
        self._code, self._solved = PROGRAMS[program].code(texts[file], number), False

    def run(self, command: str) -> str:
        """Run a command in the shell.

        Args:
            command: The command line.
        """
        found = self._sandbox.run(f"export PATH=$PWD/bin:$PATH; {command}", root=self._root, limits=LIMITS)
        text = found.output.strip()[:MAX_CHARS]
        # Observed outside of the shell: no file, and no text of the model, holds the code.
        self._solved = self._solved or self._code in text.split()
        if found.exit_code:
            raise ValueError(f"{text}\nexit code {found.exit_code}")
        return text or "(no output)"

    def get_reward(self) -> float:
        return float(self._solved)


class OldShell(Shell):
    """The world of the demonstrations, to measure what is forgotten."""

    old = True


def tasks(count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return task rows; none is a held-out one."""
    return [row for row in _rows(f"tasks {seed}", 2 * count + 50) if not _is_held_out(row)][:count]


def held_out(count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return tasks with files and numbers that `tasks` never combines."""
    return [row for row in _rows(f"held out {seed}", 6 * count + 50) if _is_held_out(row)][:count]


def _is_held_out(row: dict[str, Any]) -> bool:
    return (FILES.index(row["file"].removesuffix(".txt")) + row["number"]) % 3 == 0


def _rows(seed: str, count: int) -> list[dict[str, Any]]:
    rng, rows = random.Random(seed), []
    for _ in range(count):
        program, file, number = rng.randrange(len(PROGRAMS)), f"{rng.choice(FILES)}.txt", rng.randint(2, 40)
        purpose = PROGRAMS[program].purpose.format(file=file, number=number)
        text = f"Use the program {PROGRAMS[program].name} to {purpose}. Answer with the code that it prints."
        rows.append({"prompt": [{"role": "user", "content": text}], "program": program, "file": file, "number": number})
    return rows


# ------------------------------------------------------------------------------------------------------ the warm start


def demonstrations(count: int, seed: int) -> Iterator[list[dict[str, Any]]]:
    """Yield episodes in the old world; a third begins with a wrong call, the error and a look at --help."""
    rng, shell = random.Random(f"demonstrations {seed}"), OldShell()
    for row in tasks(count, seed=1000 + seed):
        shell.reset(**row)
        program = PROGRAMS[row["program"]]
        commands = [call_of(row, old=True)]
        if rng.random() < 1 / 3:
            wrong = Interface(*rng.sample(["go", "--in", "--size"], 3)).call(program.name, row["file"], row["number"])
            commands = [wrong, f"{program.name} {program.old.command} --help", *commands]
        talk, result = [*row["prompt"]], ""
        for command in commands:
            try:
                result = shell.run(command)
                shown = result
            except ValueError as error:
                shown = str({"error": str(error)})
            call = {"type": "function", "function": {"name": "run", "arguments": {"command": command}}}
            talk += [
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "name": "run", "content": shown},
            ]
        yield [*talk, {"role": "assistant", "content": result}]


def encoded(talk: Sequence[dict[str, Any]], tokenizer: Any, tool: Any) -> tuple[list[int], list[int]]:
    """Return the tokens of an episode, and 1 for those that the assistant wrote."""
    ids: list[int] = []
    mask: list[int] = []
    for stop, message in enumerate(talk):
        if message["role"] != "assistant":
            continue
        for part, own in ((talk[:stop], 0), (talk[: stop + 1], 1)):
            text = tokenizer.apply_chat_template(
                list(part), tools=[tool], add_generation_prompt=not own, tokenize=False
            )
            ids = tokenizer(str(text).removesuffix("\n"), add_special_tokens=False)["input_ids"]
            mask += [own] * (len(ids) - len(mask))
    return ids, mask


def warm(model: Path, out: Path, *, count: int, seed: int, rate: float = 5e-5, batch: int = 8) -> None:
    """Fine-tune a model on demonstrations of the old interface."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl.chat_template_utils import qwen3_chat_template

    from composer_hub.train.uplift import right_padded

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = qwen3_chat_template
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    rows = [encoded(talk, tokenizer, OldShell().run) for talk in demonstrations(count, seed)]
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate)
    for start in range(0, len(rows), batch):
        part = rows[start : start + batch]
        ids, attention, _ = right_padded([(row, ()) for row, _ in part])
        learned, _, _ = right_padded([(mask, ()) for _, mask in part])
        labels = ids.masked_fill(learned == 0, -100)
        loss = network(input_ids=ids, attention_mask=attention, labels=labels, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(json.dumps({"rows": start + len(part), "loss": round(loss.item(), 3)}), flush=True)
    network.save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["warm"])
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=400, help="Demonstrations (400).")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    warm(args.model, args.out, count=args.count, seed=args.seed)


if __name__ == "__main__":
    main()
