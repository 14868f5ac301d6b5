"""Rules that explain why a command failed, from its exit code, its programs and its output.

In: the text of a command, its exit code and its output. Out: `rule_of_exit` returns the `ErrorRule` that explains it.
`text_rule_of` does the same, with less confidence, for output without an exit code. Only the first and last few
thousand characters are read.
"""

# ruff: noqa: E501  # a rule is one line, so that the tables can be read down

from __future__ import annotations

import re
from collections.abc import Sequence

from composer_hub.actions.commands import SimpleCommand, commands_in
from composer_hub.errors.excerpts import without_colors
from composer_hub.errors.rules import ErrorRule, lines_with, rule

# --------------------------------------------------------------------------------------------- what a command is for


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TESTERS = _words(
    "pytest py.test tox nox nosetests jest vitest mocha ava karma rspec phpunit ctest playwright cypress bats unittest gotestsum nextest busted Invoke-Pester"
)
_CHECKERS = _words(
    "tsc tsgo eslint biome ruff mypy flake8 pylint pyright black isort prettier golangci-lint staticcheck clippy shellcheck"
    " gcc g++ clang clang++ cc rustc javac swiftc ghc zig cmake ninja hadolint stylelint rubocop phpstan detekt ktlint gofmt"
    " clang-tidy clang-format pre-commit oxlint vue-tsc knip webpack vite esbuild rollup"
)  # fmt: skip
_DISPATCHERS = _words(
    "npm pnpm yarn bun make just task mise gradle gradlew mvn mvnw cargo go dart flutter dotnet swift deno rake nx turbo vp bazel node python python3 mix stack lerna ant"
)
_SEARCHERS = _words("grep egrep fgrep rg ag ack zgrep fd")
_FILTERS = _words("tail head sed awk sort uniq wc cat tee less more tr cut echo true printf column fold")
_PROBES = _words("test [ [[ cmp diff colordiff which whereis type command pgrep false")
_REMOTES = _words("curl wget gh glab ssh scp rsync nc ping docker kubectl aws gcloud hf huggingface-cli")
_PRINTERS = _words(
    "cat head tail less more grep egrep fgrep rg ag sed awk nl bat find fd ls tree jq cut sort uniq wc echo printf xxd strings column tee fold curl wget"
)
_SHELL_STATE = _words("cd export set source . pushd popd unset alias ulimit umask trap echo printf mkdir sleep")

_TEST_WORD = re.compile(
    r"(?:^|[:_./-])(?:tests?|spec|e2e|check-tests)(?:$|[:_./-])|^(?:unittest|pytest|--test|doctest)$"
)
_CHECK_WORD = re.compile(
    r"(?:^|[:_.-])(?:build|check|lint|analy[sz]e|vet|clippy|compile|type-?check|tsc|types|fmt|format|assemble|doc|mypy|ruff)(?:$|[:_.-])|^(?:py_compile|compileall)$"
)


def purpose_of(command: SimpleCommand) -> str:
    """Return the purpose of a command: test, check, search, probe, remote, vcs, hooked, or "".

    "hooked" is a git command that may run other programs, whose output is then not git's.
    """
    program = command.program.removesuffix(".exe")
    if program in _TESTERS:
        return "test"
    if program in _CHECKERS or "lint" in program:
        return "check"
    if program == "git":
        hooked = not _HOOKED.isdisjoint(_git_words(command.words)[:1])
        return "probe" if _is_git_probe(command.words) else "hooked" if hooked else "vcs"
    if program in _DISPATCHERS:
        return _purpose_of_target(command.words[1:4], interpreted=program.startswith(("python", "node")))
    sets = (("search", _SEARCHERS), ("probe", _PROBES), ("remote", _REMOTES))
    return next((purpose for purpose, names in sets if program in names), "")


def _purpose_of_target(words: Sequence[str], *, interpreted: bool) -> str:
    # `python tests/run.py` runs a script; only `python -m pytest` and `node --test` name a runner.
    targets = [
        word for word in words if word != "run" and (word.startswith("-") or not interpreted or words[0] == "-m")
    ]
    if any(_TEST_WORD.search(word) for word in targets):
        return "test"
    return "check" if any(_CHECK_WORD.search(word) for word in targets) else ""


def _is_git_probe(words: Sequence[str]) -> bool:
    """A git command whose exit code 1 is an answer, not a failure."""
    rest = [word for word in _git_words(words) if not word.startswith("-")]
    probe = bool(rest) and rest[0] in _GIT_PROBES
    return probe or (rest[:1] == ["diff"] and any(word in _DIFF_ANSWERS for word in words))


_HOOKED = _words("commit push merge rebase cherry-pick revert am pull")
_GIT_PROBES = _words("grep check-ignore merge-base show-ref ls-remote config cat-file rev-parse")
_DIFF_ANSWERS = _words("--quiet --exit-code --check --no-index")


def _git_words(words: Sequence[str]) -> Sequence[str]:
    """Return the words from the subcommand on, without `-C folder` and `-c name=value`."""
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in ("-C", "-c") else rest[1:]
    return rest


def main_command(commands: Sequence[SimpleCommand]) -> SimpleCommand | None:
    """Return the command that most likely set a shell line's exit code: the last one that is neither a filter nor a
    `cd`.
    """
    for index in range(len(commands) - 1, -1, -1):
        fed = index > 0 and commands[index - 1].piped
        name = commands[index].program
        if not (fed and name in _FILTERS) and name not in _SHELL_STATE and name not in ("true", ":"):
            return commands[index]
    return commands[-1] if commands else None


def prints_files(commands: Sequence[SimpleCommand]) -> bool:
    """Return whether a shell line only prints other text, so that "error" in its output proves nothing."""
    shown = [command for command in commands if command.program not in _SHELL_STATE]
    return all(
        command.program in _PRINTERS or (command.program == "git" and command.words[1:2] != ("commit",))
        for command in shown
    )


# ------------------------------------------------------------------------------------------------------ exit rules

OUTPUT_CHARS = 4000  # from each end of what a command printed


def _out(
    rule_id: str,
    kind: str,
    confidence: float,
    pattern: str,
    purposes: str = "",
    codes: Sequence[int] = (),
    marks: tuple[str, ...] = (),
    in_lines: bool = False,
) -> ErrorRule:
    return rule(
        rule_id, kind, pattern, confidence, families="shell", where="output",
        purposes=_words(purposes), codes=frozenset(codes), marks=marks, in_lines=in_lines,
    )  # fmt: skip


_L = r"(?m:^)"  # a line start
_RUNS = "test check run"  # may print a test report or compiler messages (run: an unknown program)

_TEST_REPORT = (
    _L
    + r"(?:=+ [^\n]{0,200}[1-9]\d* (?:failed|errors?)\b|FAILED \S|--- FAIL: |FAIL[\t ]+\S|[ \t]*Tests?:? +[1-9]\d* failed|test result: FAILED|not ok \d+|[#\u2139] fail [1-9]|[ \t]*[1-9]\d* (?:fail|failed|failing)[ \t]*(?:\n|$)|[ \t]*[1-9]\d* failing\b|FAILED \((?:failures|errors)=|FAILURES!|DONE \d+ tests?, [^\n]{0,60}[1-9]\d* failures?\b|Tests Passed: \d+, Failed: [1-9])"
)
# PowerShell, and cmd.exe
_NOT_RECOGNIZED = (
    _L
    + r"[^\n]{0,80}(?:The term )?'[^'\n]{1,200}' is not recognized as (?:(?:a|the) name of a cmdlet|an internal or external)"
)
_FORM = (
    r"(?:(?:unknown|unrecognized|unrecognised|invalid|illegal|unexpected) (?:flag|option|arguments?|shorthand flag|command|subcommand|switch|long option)\b"
    r"|[Nn]o such (?:option|command)\b|the following arguments are required|option requires an argument"
    r"|requires (?:at least|at most|exactly) \d+ arg|accepts (?:at most |at least |between )?\d[^\n]{0,20} arg"
    r"|missing (?:file )?operand|extra operand|too (?:many|few) arguments|bad flag|required flag\(s\)|flag provided but not defined"
    r"|(?:argument|option|flag|parameter|input|prompt|value)s? (?:[^\n]{0,80} )?must be (?:provided|specified|given)|[Ii]nput must be provided|missing required \w|requires an? (?:argument|value|subcommand)\b|Unknown (?:option|argument|command|flag|JSON field)|regex parse error|paths must precede expression|unknown predicate"
    r"|Parameter validation failed|[Ii]nvalid (?:type|value) for (?:parameter|value)|[^\n]{0,80}Invalid [\w-]{1,40} value:? '|run or job ID required"
    r"|-e expression #\d|(?:parse )?error(?: \(at )?[^\n]{0,80}: (?:Cannot (?:iterate|index)|Invalid (?:numeric )?literal|syntax error))"
)

EXITS: tuple[ErrorRule, ...] = (
    _out("exit.env_missing", "command_not_found", 0.93, _L + r"(?:/usr/bin/)?env: ['\"`\u2018]?[\w.+-]{1,80}['\"`\u2019]?: No such file or directory", codes=[127]),
    _out("exit.script_missing", "path_not_found", 0.9, r"(?i:no such file or directory|can't open input file)", codes=[127]),
    _out("exit.code_127", "command_not_found", 0.95, "", codes=[127]),
    _out("exit.command_not_found", "command_not_found", 0.88, _L + r"(?:[^\n]{1,150}: ?command not found(?:: \S+)?|[^\n]{0,60}Command \"[\w@./-]{1,80}\" not found|(?:\S{0,80}sh|env)\b[^\n]{0,80}: not found)[ \t]*(?:\n|$)|" + _NOT_RECOGNIZED),
    _out("exit.timed_out", "timeout", 0.95, r"(?:^\s*|\n)\(?(?:Command|Process|command) timed out\b"),
    _out("exit.code_124", "timeout", 0.9, "", codes=[124]),
    _out("exit.code_130", "interrupted", 0.85, "", codes=[130]),
    _out("exit.conflict", "merge_conflict", 0.95, _L + r"(?:CONFLICT \(|Automatic merge failed|error: could not apply [0-9a-f]{6,40}\b|Applying autostash resulted in conflicts)"),
    _out("exit.untrusted", "permission_denied", 0.9, r"(?:are not trusted\.\s*Trust them with|detected dubious ownership)"),
    _out("exit.quoting", "usage_error", 0.93, r"(?:syntax error near unexpected token|permission denied: ?(?:\n|$)|unexpected EOF while looking for matching|The token '[^'\n]{1,9}' is not a valid statement separator|" + _L + r"(?:\(eval\)|zsh|bash|sh|/bin/\w{2,4}):[^\n]{0,20}(?:no matches found: |parse error near|bad pattern|bad substitution|unmatched |event not found|bad math expression|Syntax error: ))"),
    _out("exit.cd", "path_not_found", 0.93, _L + r"(?:\(eval\)|zsh|bash|sh|/bin/\w{2,4}):[^\n]{0,30}cd:[^\n]{0,300}(?:[Nn]o such file or directory|can't cd to )"),
    _out("exit.test_path", "path_not_found", 0.92, _L + r"ERROR: (?:file or directory not found|not found): ", purposes="test"),
    # Only at the start: a test may print the same about a program that it builds.
    _out("exit.no_project", "usage_error", 0.92, r"(?:^\s*(?:# [^\n]{0,200}\n)?(?:go: |pattern [^\n]{1,200}: )?(?:go\.mod file not found in current directory|cannot find main module|[^\n]{0,200}does not contain main module|[^\n]{0,200}outside (?:the )?main module)|could not find `Cargo\.toml`|Could not read package\.json|no package\.json (?:was )?found|does not contain a package\.json)"),
    _out("exit.no_target", "usage_error", 0.92, r"(?:No rule to make target|(?:ERR!|error) [Mm]issing script|Task '[^'\n]{1,100}' not found in|Justfile does not contain recipe|no task [\w:'\"-]{1,80} found)"),
    _out("exit.package_path", "path_not_found", 0.9, r"^\s*(?:# [^\n]{0,200}\n)?(?:(?:pattern|package) [^\n]{1,300}: )?(?:lstat|stat|open) [^\n]{1,300}: no such file or directory\s*(?:\n|$)", purposes="test check"),
    _out("exit.build_output", "usage_error", 0.9, r"^\s*go: build output [^\n]{1,200} already exists and is a directory", purposes="check"),
    _out("exit.test_report", "test_failure", 0.95, _TEST_REPORT, purposes=_RUNS),
    _out("exit.compiler_output", "compile_or_lint", 0.93, r"(?:error TS\d{4}|error\[E\d{4}\]|error: could not compile|undefined reference to|" + _L + r"(?:[^\s:]{1,200}\.\w{1,5}:\d+:(?:\d+:)? |[^\s(]{1,200}\.\w{1,5}\(\d+,\d+\): error|\u2716 \d+ (?:problems?|errors?)|Found \d+ errors?\b|Summary: [1-9]\d* (?:issues?|error\(s\))|BUILD FAIL|Failed to compile|would reformat ))", purposes=_RUNS),
    _out("exit.make", "compile_or_lint", 0.85, _L + r"make(?:\[\d+\])?: \*\*\* ", purposes="check run"),
    _out("exit.commit_tests", "test_failure", 0.88, r"(?:" + _TEST_REPORT + r"|" + _L + r"(?:bun test v\d|# Unhandled error between tests))", purposes="hooked"),
    _out("exit.commit_hook", "compile_or_lint", 0.9, r"(?:husky - |pre-(?:commit|push) (?:script|hook) failed|- hook id: |lint-staged)", purposes="hooked"),
    _out("exit.jq_input", "nonzero_exit", 0.85, r"^\s*jq: (?:parse error|error \(at <stdin>:\d+\)): (?:Invalid (?:numeric )?literal|Expected|Unfinished)"),
    _out("exit.jq", "usage_error", 0.9, _L + r"(?:jq: (?:error(?!: Could not open)[^\n]{0,200}|\d+ compile errors?\b|parse error: )|(?:failed to parse|invalid) jq expression)"),
    _out("exit.sql", "usage_error", 0.88, r"(?:" + _L + r"(?:psql:[^\n]{0,200} )?ERROR:  ?(?:relation|column|syntax error at|function|operator|type) |ERROR 1\d\d\d \(42|(?:Parse|Binder|Catalog) Error: |Error: in prepare, (?:no such|near)|" + _L + r"(?:SQL e|E)rror: (?:near \"|no such (?:table|column)))"),
    _out("exit.bad_request", "usage_error", 0.88, r"\(HTTP (?:400|405|406|410|411|413|414|415|422)\)", purposes="remote"),
    _out("exit.parameter", "usage_error", 0.9, r"A parameter cannot be found that matches parameter name"),
    _out("exit.usage", "usage_error", 0.88, _L + r"(?:[\w./-]{1,60}: ){0,3}(?:(?:error|Error|ERROR|fatal): )?" + _FORM),
    _out("exit.usage_text", "usage_error", 0.85, r"(?:^\s*|\n)(?:Usage|usage|USAGE):[ \n]", purposes="run remote vcs hooked search probe"),
    _out("exit.test_runner", "test_failure", 0.85, "", purposes="test"),
    _out("exit.checker", "compile_or_lint", 0.85, "", purposes="check"),
    _out("exit.no_match", "nonzero_empty", 0.95, r"^\s*0?\s*$", purposes="search", codes=[1]),
    _out("exit.probe", "nonzero_empty", 0.9, "", purposes="probe", codes=[1]),
    _out("exit.remote", "network_or_remote", 0.9, r"(?:Could not resolve host|Temporary failure in name resolution|[Cc]onnection (?:refused|reset|timed out)|ECONN(?:REFUSED|RESET)|ETIMEDOUT|ENOTFOUND|Failed to connect|Network is unreachable|could not read Username|Authentication failed|Permission denied \(publickey|Repository not found|Cannot connect to the Docker daemon|SSL certificate problem|npm (?:ERR!|error) code E(?:NEEDAUTH|40[134])|remote: (?:Permission|Not Found|Invalid)|\(HTTP [45]\d\d\)|HTTP [45]\d\d:|returned error: [45]\d\d|" + _L + r"(?:[^\n]{0,80}GraphQL: |To get started with GitHub CLI))"),
    _out("exit.git_network", "network_or_remote", 0.9, _L + r"(?:fatal: (?:unable to access '|Could not read from remote repository)|ssh: connect to host )", purposes="vcs hooked"),
    _out("exit.git_broken", "nonzero_exit", 0.9, r"(?:could not write (?:index|config)|cannot lock ref [^\n]{1,300}: unable to create|unable to (?:create|write) [^\n]{0,200}(?:director|file)|Another git process seems to be running|\.lock': File exists|fatal: unable to read [0-9a-f]{7,40}\b|(?:loose object|object file) [^\n]{1,200} is (?:corrupt|empty))", purposes="vcs hooked probe"),
    _out("exit.git_signing", "permission_denied", 0.9, r"(?:failed to write commit object|gpg failed to sign the data|1Password: )", purposes="vcs hooked"),
    _out("exit.git_sandbox", "permission_denied", 0.92, _L + r"(?:fatal|error): [^\n]{1,400}: (?:Operation not permitted|Permission denied|Read-only file system)\s*(?:\n|$)"),
    _out("exit.git_object", "nonzero_empty", 0.85, r"(?:could not get object info|Not a valid object name|Needed a single revision)", purposes="probe"),
    _out("exit.git_fatal", "vcs_error", 0.93, _L + r"fatal: (?:not a git repository|pathspec |ambiguous argument|bad revision|[Aa] branch named|'[^\n]{1,200}' (?:is already|already exists)|refusing to|couldn't find remote ref|invalid reference|[Nn]eed |[Nn]ot possible)", purposes="vcs hooked probe remote search"),
    _out("exit.git", "vcs_error", 0.9, _L + r"(?:fatal: |error: |hint: |nothing (?:added )?to commit|no changes added|Aborting|The following paths are ignored| ! \[rejected\])", purposes="vcs"),
    # Other programs also print "error: ", so if a hook may have run, only git's own sentences count.
    _out("exit.git_own", "vcs_error", 0.9, _L + r"(?:fatal: |nothing (?:added )?to commit|no changes added|The following paths are ignored| ! \[rejected\]|error: (?:pathspec|src refspec|Your local changes|The following untracked|cannot (?:pull|rebase|lock)|Committing is not possible|you need to resolve|invalid |unknown ))", purposes="hooked"),
    _out("exit.git_hook", "compile_or_lint", 0.8, _L + r"(?:error: failed to push some refs|[^\n]{0,200}(?:[Ee]rror|ERROR|[Ff]ail(?:ed|ure)?)\b)", purposes="hooked"),
    _out("exit.dependency", "dependency_missing", 0.9, r"(?:ModuleNotFoundError: |ImportError: No module named|No module named \S+\s*$|Cannot find (?:module|package) '|ERR_MODULE_NOT_FOUND|no required module provides package|cannot find package|error while loading shared libraries|Could not find a version that satisfies|was not found in the pkg-config)"),
    _out("exit.not_permitted", "permission_denied", 0.88, r"(?:\bE(?:PERM|ACCES)\b|PermissionError: |[Oo]peration not permitted)", purposes="run test check"),
    _out("exit.exception", "runtime_exception", 0.9, r"(?:Traceback \(most recent call last\)|goroutine \d+ \[running\]|[Ss]egmentation fault|Aborted \(core dumped\)|" + _L + r"(?:panic: |thread '[^'\n]{1,100}' panicked at|Exception in thread |Unhandled |Uncaught |[ \t]*(?:SyntaxError|IndentationError|ReferenceError|TypeError): |node:internal/|    at \S[^\n]{0,200}:\d+:\d+\)?))"),
    _out("exit.permission", "permission_denied", 0.88, r"(?:[Pp]ermission denied|EACCES|[Oo]peration not permitted|EPERM|[Rr]ead-only file system|must be (?:run as )?root)"),
    _out("exit.script_line", "nonzero_exit", 0.8, _L + r"[\w./~-]{1,200}\.(?:sh|bash|zsh): line \d+: "),
    _out("exit.path", "path_not_found", 0.88, r"(?:: (?:\[Errno 2\] )?[Nn]o such file or directory|cannot (?:access|stat|open|find the (?:file|path)) ['\"`\w]|can't (?:open|cd to|read|stat) |ENOENT|No such file or directory \(os error 2\)|The system cannot find the|[Ff]ile not found: )"),
    _out("exit.pending", "nonzero_empty", 0.85, r"\tpending\t", purposes="remote", codes=[8]),
    _out("exit.last_search", "nonzero_empty", 0.7, "", purposes="search", codes=[1]),
    _out("exit.other", "nonzero_exit", 0.7, ""),
)  # fmt: skip
"""Rules over a failed command's code, purpose and output, in order. The last one always matches."""


def rule_of_exit(command: str, code: int, output: str) -> ErrorRule:
    """Return the first rule of `EXITS` that holds for a command that left with this code."""
    commands = commands_in(command)
    main = main_command(commands)
    purpose = (main and purpose_of(main)) or "run"
    text = _both_ends(output)
    found = next(rule for rule in EXITS if _holds(rule, code, purpose, text))
    if not (found.pattern.pattern or found.codes) and _refuses_a_word(text, commands):
        return _REFUSED
    if found.kind == "path_not_found" and _LISTED.search(text):
        return _LOOKED
    if found.rule_id == "exit.quoting" and (glob := _NO_MATCH.search(text)):
        by = next((one.program for one in commands if glob[1].rsplit("/", 1)[-1] in " ".join(one.words)), "")
        return _LOOKED if by in _LISTERS else _NO_FILES if by in _PRINTERS | _MOVERS else found
    return found


def _refuses_a_word(text: str, commands: Sequence[SimpleCommand]) -> bool:
    """Return whether a program says that it does not know a word of the command, or offers another one."""
    words = {part for one in commands for word in one.words[1:] for part in word.split("=")}
    return any(not words.isdisjoint(_NAMED_WORD.findall(said[0])) for said in _REFUSAL.finditer(text))


_REFUSAL = re.compile(
    r"(?im)(?:^.+\n\s{0,9})?^.*\b(?:did you mean|(?:unknown|unrecogni[sz]ed|unsupported|unexpected|invalid|illegal|not an?) (?:\w+ )?(?:option|flag|(?:sub)?command|switch|type)s?\b.*)"
)
_NAMED_WORD = re.compile(
    r"(?:(?<=[\"'`\u2018\u201c])|(?<=[degnh]: )|(?<=\s)(?=--))[\w./:-]*\w(?![\w./:=-]*\w)(?<!\.\w)(?<!\.\w\w)(?<!\.\w\w\w)"
)
"""A word in quotes, an option, or what follows `type: `. On a file, with its ending, a program may just report."""
_REFUSED = _out("exit.refused", "usage_error", 0.85, "")
_LISTERS = _words("ls stat du rm file find rmdir")
_LISTED = re.compile(_L + r"(?:ls|stat|du|find|file|rm): (?!\S{0,40}command not found)")
"""A lister that finds nothing has answered: it is how models look whether something is there."""
_MOVERS = _words("cp mv chmod chown ln")
_NO_MATCH = re.compile(r"no matches found: ([^\n]{1,300})")
_LOOKED = _out("exit.looked", "nonzero_empty", 0.8, "")
_NO_FILES = _out("exit.no_files", "path_not_found", 0.85, "")


def _holds(rule: ErrorRule, code: int, purpose: str, text: str) -> bool:
    fits = code in (rule.codes or [code]) and purpose in (rule.purposes or [purpose])
    return fits and bool(rule.pattern.search(text))


def _both_ends(text: str) -> str:
    text = without_colors(text)
    if len(text) <= 2 * OUTPUT_CHARS:
        return text
    return f"{text[:OUTPUT_CHARS]}\n{text[-OUTPUT_CHARS:]}"


# ------------------------------------------------------------------------------------------------------ text rules


_LAST = r"[^\n]{0,400}\s*$"  # the rest of the last line

TEXTS: tuple[ErrorRule, ...] = (
    _out("text.import_missing", "dependency_missing", 0.8, _L + r"(?:ModuleNotFoundError|ImportError): No module named" + _LAST),
    _out("text.exception", "runtime_exception", 0.75, r"Traceback \(most recent call last\):.*\n(?:\w+\.){0,6}\w*(?:Error|Exception|Interrupt|Exit|Warning|Iteration)(?::" + _LAST + r"|\s*$)"),
    _out("text.argparse", "usage_error", 0.75, _L + r"[\w./-]{1,60}: error: (?:unrecognized arguments|the following arguments are required|argument )" + _LAST),
    _out("text.git_fatal", "vcs_error", 0.75, r"^\s*(?:OBSERVATION:\s*)?fatal: (?:not a git repository|pathspec |ambiguous argument|bad revision)"),
)  # fmt: skip
"""Rules over the end of an output without an exit code. They are opt-in, since quoted text looks the same."""


def text_rule_of(command: str, output: str) -> ErrorRule | None:
    """Return the first rule of `TEXTS` that matches the end of an output, or None if the command only shows files."""
    text = output[-OUTPUT_CHARS:]
    # A file that was shown may hold any text: there, the output has to be the error and nothing else.
    rules = TEXTS[-1:] if prints_files(commands_in(command)) else TEXTS
    return next((rule for rule in rules if rule.pattern.search(text)), None)


# ---------------------------------------------------------------------------------------------------- hidden reports


_FAILED_TASK = r"|(?:\[[\w:.-]{1,60}\] )?ERROR task failed\b|npm (?:ERR!|error) (?:Lifecycle script|code ELIFECYCLE|command failed)"

REPORTS: tuple[ErrorRule, ...] = (
    _out("report.tests", "test_failure", 0.88, _TEST_REPORT + _FAILED_TASK, purposes="test", marks=("ail", "AIL", "error", "not ok ", "ERR!"), in_lines=True),
    _out("report.checker", "compile_or_lint", 0.88, r"(?:error TS\d{4}|error\[E\d{4}\]|error: could not compile|undefined reference to|" + _L + r"(?:make(?:\[\d+\])?: \*\*\* |\u2716 \d+ problems? \((?!0 errors)|\u2716 [1-9]\d* errors?\b|Summary: [1-9]\d* (?:issues?|error\(s\))|Found [1-9]\d* errors?\b(?! \([^\n]{0,40}\b0 remaining)|[1-9]\d* issues?:[ \t]*(?:\n|$)|BUILD FAIL|Failed to compile|would reformat )" + _FAILED_TASK + r")", purposes="check", marks=("rror", "RROR", "make", "\u2716 ", "issue", "BUILD FAIL", "Failed to compile", "would reformat", "undefined reference", "ERR!"), in_lines=True),
    _out("report.no_project", "usage_error", 0.88, r"(?:^\s*(?:# [^\n]{0,200}\n)?|(?:^|\n)level=error msg=[^\n]{0,100}error: )(?:go: |pattern [^\n]{1,200}: )?(?:go\.mod file not found in current directory|cannot find main module|[^\n]{0,200}does not contain main module)", purposes="test check", marks=("go.mod", "main module")),
    _out("report.usage", "usage_error", 0.85, r"^\s*(?:[Ee]rror: )?(?:unknown|unrecognized) (?:flag|option|arguments?|shorthand flag): |\n(?:[Ee]rror: )?(?:unknown|unrecognized) (?:flag|option|arguments?): [^\n]{1,200}\s*$", purposes="test check", marks=("unknown ", "unrecognized ")),
    _out("report.position", "compile_or_lint", 0.85, _L + r"[^\s:]{1,200}\.\w{1,5}:\d+:\d+:? (?:error\b|undefined: |cannot use |declared and not used|expected |missing return|[^\n]{1,300} \(\w+\)[ \t]*(?:\n|$))", purposes="check"),
)  # fmt: skip
"""Rules over the end of what a test runner, a linter or a build printed while its exit code was hidden."""

ALONE: tuple[ErrorRule, ...] = (
    _out("alone.usage", "usage_error", 0.85, r"^\s*(?:[\w./-]{1,60}: )?(?:[Ee]rror: )?(?:unexpected argument|unrecognized (?:option|argument|subcommand)|unknown (?:flag|option|command|shorthand flag)|(?:illegal|invalid) option)\b[\s\S]{0,300}(?:[Uu]sage|--help)"),
    _out("alone.usage_text", "usage_error", 0.85, r"^\s*[^\n]{0,120}\b(?:required|requires|unknown|unrecognized|invalid|unexpected|accepts|must be)\b[^\n]{0,120}\n\s*[Uu]sage: "),
)  # fmt: skip
"""Rules for a pipe whose whole output is one complaint, as nothing came through from the program that failed."""

MAX_ALONE_CHARS = 600
_BY_SHELL = re.compile(
    r"(?:\(eval\)|(?:/\w{1,20}){0,3}/?(?:ba|z|da|k)?sh):(?:(?:line )?\d+:|cd:\d+:| line \d+:)* ?([^\n]{1,300})"
)
_BY_PROGRAM = re.compile(r"([\w.+/-]{1,60}): ([^\n]{1,400})")
COMPLAINT = re.compile(
    r"[Nn]o such file or directory|(?:illegal|invalid|unrecognized|unknown) (?:long )?(?:option|argument|flag)|[Cc]an't (?:open|read|cd)"
    r"|cannot (?:access|open|stat)|no matches found: -|(?:command )?not found(?:: \S+)?$|unmatched |parse error|syntax error|[Ii]s a directory"
)


COMPLAINT_MARKS = (
    "o such file", "illegal ", "invalid ", "unrecognized ", "unknown ", "an't ", "cannot ", "no matches found: -", "not found",
    "unmatched ", "parse error", "syntax error", "s a directory",
)  # fmt: skip
"""One of them is in every complaint."""
_BEGUN = re.compile(r"(\(eval\)|[\w.+/-]{1,60}):")
_BROKEN_LINE = re.compile(r"unmatched |no matches found: -|parse error|cd:|No such file or directory")


def complaint_rule_of(command: str, output: str) -> ErrorRule | None:
    """Return the rule of the first complaint that the command itself proves, although its exit code hides it.

    A line proves a failure if the shell or a program of this command begins it, and it names a word of the command.
    """
    head = output[:OUTPUT_CHARS]
    lines = [line for line in lines_with(COMPLAINT_MARKS, head) if _may_prove(command, line)]
    if not lines:
        return None
    commands = commands_in(command)
    if prints_files(commands) and len(output) > MAX_ALONE_CHARS:
        return None
    programs = {one.program: one for one in commands}
    words = {word for one in commands for word in one.words if len(word) > 1}
    for line in lines:
        if by_shell := _BY_SHELL.fullmatch(line.rstrip()):
            is_proven = (
                any(word in by_shell[1] for word in words | set(command.split()))
                or _BROKEN_LINE.search(line) is not None
            )
            blamed = command
        else:
            by_program = _BY_PROGRAM.match(line)
            who = programs.get(by_program[1].rsplit("/", 1)[-1]) if by_program else None
            if not by_program or not who or who.program in _PROBES | _LISTERS:
                continue
            is_proven = any(word in by_program[2] for word in words - {who.program})
            blamed = " ".join(who.words)
        rule = rule_of_exit(blamed, 1, line) if is_proven else None
        if rule and rule.blame in ("model", "unknown"):
            return rule
    return None


def _may_prove(command: str, line: str) -> bool:
    """Return whether a line is a complaint of the shell or of a program that may be in the command."""
    begun = _BEGUN.match(line)
    if not begun or not COMPLAINT.search(line) or ("no matches found" in line and "found: -" not in line):
        return False
    if "||" in command and "cd:" not in line and not command.rstrip().endswith("|| true"):
        return False  # the command line itself handles this failure
    return begun[1].rsplit("/", 1)[-1] in command or _BY_SHELL.fullmatch(line.rstrip()) is not None


def report_rule_of(command: str, output: str, *, code_known: bool) -> ErrorRule | None:
    """Return the rule of `REPORTS` for a report of failure; `code_known` is whether some exit code is 0."""
    if code_known and "pipefail" in command:
        return None
    output = without_colors(output)
    if found := _reports(command, output[-OUTPUT_CHARS:]):
        commands = commands_in(command)
        chained = not code_known or any(mark in command for mark in (";", "||", "\n"))
        purposes = {purpose_of(one) for one in commands if chained or one.piped}
        if report := next((rule for rule in found if rule.purposes & purposes), None):
            return report
    if "|" in command and "||" not in command and "help" not in command:
        alone = ALONE if len(output) <= MAX_ALONE_CHARS else ALONE[1:2]
        report = next((rule for rule in alone if rule.pattern.match(output[:OUTPUT_CHARS])), None)
        if report and any(one.piped for one in commands_in(command)):
            return report
    return complaint_rule_of(command, output)


def _reports(command: str, text: str) -> list[ErrorRule]:
    """Return the rules of `REPORTS` that an output meets, if a word of the command may be a runner or a checker."""
    if "lint" not in command and _REPORTERS.isdisjoint(command.translate(_BLANKS).split()):
        return []
    return [rule for rule in REPORTS if rule.meets(text)]


_BLANKS = str.maketrans(dict.fromkeys("/\\'\"`$(){}[]<>|&;=,:", " "))
_RUNNERS = _TESTERS | _CHECKERS | _DISPATCHERS
_REPORTERS = _RUNNERS | {f"{name}.exe" for name in _RUNNERS}


def hides_exit_code(command: str) -> bool:
    """Return whether a pipe into a filter or an `|| …` hides the exit code of a failed command."""
    if not any(mark in command for mark in "|;\n"):
        return False
    commands = commands_in(command)
    return bool(commands) and (any(one.piped for one in commands) or any(mark in command for mark in ("||", ";", "\n")))
