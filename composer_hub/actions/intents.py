"""The intention of a shell command: its strict form -> the form that level L2 compares.

`shell_form` keeps everything that a script may notice. This drops what another spelling of the same intention leaves
out: how much is printed about the work, where the shell stands afterwards, and whether a file tool or a program reads,
searches or writes. Where a command does just what a file tool does, the form is the tool's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from composer_hub.actions import patterns, programs
from composer_hub.actions.contents import plain_text, python_tree, tight_script
from composer_hub.actions.edits import Replacement
from composer_hub.actions.substance import FROM_END
from composer_hub.records import stable_id

_LINES = re.compile(r"(\d+)(?:,(\d+|\+\d+|\$))?p(?:;\d+q)?")
_ROWS = re.compile(
    r"NR ?>= ?(\d+) ?&& ?NR ?<= ?(\d+)(?: ?\{ ?print ?(?:\$0)?;? ?\})?|NR ?== ?(\d+)(?: ?\{ ?print ?\})?"
)
_SUBSTITUTE = re.compile(r"s([^\w\s\\])((?:(?!\1)[^\\\n]|\\.)*)\1((?:(?!\1)[^\\\n]|\\.)*)\1(g?)")
_SCRIPT_END = re.compile(r"(?<=[/|#,@!:g]);\s*(?=s[^\w\s]|$)")
_TYPES = {"py": "*.py", "js": "*.js", "ts": "*.ts", "rust": "*.rs", "go": "*.go", "java": "*.java", "md": "*.md"}
_AROUND = {"A": "after", "B": "before", "C": "around"}
_MODES = {"l": "files_with_matches", "c": "count"}
_NUMBERS = frozenset("nHhsIEG") | {"r", "R", "no-heading"}  # they change no hit
_SENDS = frozenset(("d", "data-binary", "data-urlencode", "F", "json"))  # options with which curl posts
_COLORS = frozenset(("color", "colour", "no-color", "no-colors", "colors"))
_REMOVALS = (["rm"], ["rm", "-f"], ["-r", "rm", "-f"])
_ERRORS_TOO = [["2", ">&", "1"]]
_LONG_END = 20
_EXTENSION = re.compile(r"\*\.\w+")


def intent(value: Any) -> Any:
    """Return the form of a whole command without what does not belong to its intention."""
    value = _plain(value["do"]) if isinstance(value, dict) and "do" in value else value
    while isinstance(value, dict) and value.keys() == {"sub"}:
        value = value["sub"]
    return value


def file_calls(value: Any) -> list[dict[str, Any]] | None:
    """Return the forms of the file tools that do the same as a command; None if no tool does."""
    parts = value if isinstance(value, list) else [value]
    if len(parts) == 1 and isinstance(parts[0], dict) and "chain" in parts[0] and "||" not in parts[0]["chain"]:
        parts = parts[0]["chain"][::2]
    made = {path for part in parts if (path := _made_folder(part))}
    parts = [part for part in parts if not _made_folder(part)]
    calls: list[dict[str, Any]] = []
    for part in parts:
        own = _file_call(part) if isinstance(part, dict) else None
        if own is None:
            return None
        calls += own
    # A tool that writes a file makes its folder.
    written = [str(one.get("write", "")) for one in calls]
    return calls if all(any(file.startswith(f"{path}/") for file in written) for path in made) else None


def _made_folder(value: Any) -> str:
    """Return the folder that a plain `mkdir -p` makes."""
    if not isinstance(value, dict) or value.keys() != {"run", "opts", "args"} or value["run"] != "mkdir":
        return ""
    return _path(value["args"][0]) if value["opts"] == [["p"]] and len(value["args"]) == 1 else ""


def looks(value: Any) -> list[Any]:
    """Return the commands of a list that only look at things, none of which depends on the one before."""
    parts = value
    if isinstance(value, dict) and value.keys() == {"chain"} and "||" not in value["chain"]:
        parts = value["chain"][::2]
    if not isinstance(parts, list) or len(parts) < 2:
        return []
    runs = [one["pipe"][0] if isinstance(one, dict) and "pipe" in one else one for one in parts]
    plain = all(isinstance(one, dict) and str(one.get("run", "echo")) not in programs.SILENT | {"test"} for one in runs)
    return list(parts) if plain else []


# -------------------------------------------------------------------------------------------- what is not intended


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        parts = [_plain(one) for one in value]
        parts = parts[:-1] if _tells_status(parts[-1]) else parts
        return parts[0] if len(parts) == 1 else parts
    if not isinstance(value, dict):
        return value
    if "chain" in value:
        return _chain(value["chain"])
    if "pipe" in value:
        return _pipe(value)
    if "run" in value:
        return _staged(_with_errors_shown(_call(value)))
    return {key: _plain(one) if key in ("sub", "group", "bg", "not") else one for key, one in value.items()}


def _chain(parts: Sequence[Any]) -> Any:
    """Drop a `cd` before what runs there: each call says where it runs."""
    rest = list(parts)
    while len(rest) > 2 and rest[1] == "&&" and _enters(rest[0]) and "||" not in rest:
        rest = rest[2:]
    plain = [one if isinstance(one, str) else _plain(one) for one in rest]
    # `git commit -am x` is a chain of its own.
    plain = (
        [part for one in plain for part in (one["chain"] if isinstance(one, dict) and "chain" in one else [one])]
        if "||" not in plain
        else plain
    )
    return plain[0] if len(plain) == 1 else {"chain": plain}


def _enters(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() != {"run", "args"} or value["run"] != "cd":
        return False
    return len(value["args"]) == 1 and isinstance(value["args"][0], dict) and "path" in value["args"][0]


def _pipe(value: dict[str, Any]) -> dict[str, Any]:
    parts = [one if isinstance(one, str) else _call(one, piped=True) if "run" in one else one for one in value["pipe"]]
    last = parts[-1]
    if isinstance(last, dict) and all(one == "|" for one in parts[1::2]):
        calls: list[Any] = parts[::2]
        if _counts_lines(calls):
            first = calls[-2]
            counted = {**first, "opts": sorted([*(one for one in first["opts"] if one != ["n"]), ["c"]])}
            calls = [*calls[:-2], counted]
        while len(calls) > 1 and isinstance(calls[-1], dict) and calls[-1] == {"run": "cat", "opts": [], "args": []}:
            calls.pop()
        while len(calls) > 1 and _only_indents(calls[-1]):
            calls.pop()
        first = calls[0]["run"] if isinstance(calls[0], dict) and "run" in calls[0] else "cat"
        if len(calls) > 1 and str(first) not in programs.READ_ONLY and _is_long_end(calls[-1]):
            calls.pop()
            calls[-1] = _with_errors_shown(calls[-1])
        if deleted := _deleted(calls):
            calls = [deleted]
        if len(calls) == 1:
            return _call(calls[0]) if "run" in calls[0] else calls[0]
        if all(isinstance(one, dict) and str(one.get("run")) in programs.SHAPERS for one in calls[1:]):
            calls[0] = _call(calls[0]) if "run" in calls[0] else calls[0]
        parts = [part for one in calls for part in ("|", one)][1:]
    return {**value, "pipe": parts}


def _counts_lines(calls: Sequence[Any]) -> bool:
    """Return whether a pipe ends in `grep … | wc -l`, which is `grep -c`."""
    if len(calls) < 2 or not all(isinstance(one, dict) and "run" in one for one in calls[-2:]):
        return False
    grep, count = calls[-2:]
    if count != {"run": "wc", "opts": [["l"]], "args": []} or grep["run"] != "grep" or "to" in grep:
        return False
    names = {one[0] for one in grep.get("opts", ())}
    num_files = len(grep["args"]) - (0 if names & {"e", "f"} else 1)
    return not names & {"c", "l", "L", "o", "r", "R", "A", "B", "C", "q"} and num_files <= 1


def _call(value: dict[str, Any], *, piped: bool = False) -> dict[str, Any]:
    """Return one call without the options that only change what is printed about the work."""
    value = dict(value)
    if value["run"] == "timeout" and "call" in value and "to" not in value and "env" not in value:
        return _call(value["call"], piped=piped)
    if "call" in value:
        value["call"] = _call(value["call"], piped=piped)
        return value
    if not isinstance(value["run"], str):
        return value
    if value["run"] not in programs.WRITERS and value["run"] != "git commit":
        value |= {key: [_tidied(one) for one in value[key]] for key in ("opts", "args") if key in value}
    if value["run"] in ("awk", "gawk", "jq", "yq") and isinstance((value["args"] or [None])[0], str):
        value["args"] = [tight_script(value["args"][0]), *value["args"][1:]]
    if value["run"] == "git commit" and len(parts := [one[1] for one in value.get("opts", ()) if one[:1] == ["m"]]) > 1:
        rest = [one for one in value["opts"] if one[:1] != ["m"]]
        value["opts"] = sorted([*rest, ["m", "\n\n".join(parts)]])
    if value["run"] == "python3":
        value["run"] = "python"
    spec = programs.SPECS.get(value["run"])
    if "opts" in value:
        shown = _COLORS | spec.shown if spec else _COLORS
        value["opts"] = [one for one in value["opts"] if one[0] not in shown]
    if value["run"] == "systemctl":
        value["args"] = [one.removesuffix(".service") if isinstance(one, str) else one for one in value["args"]]
    if value["run"] == "tar" and {"x", "t"} & {one[0] for one in value.get("opts", ())}:
        value["opts"] = [one for one in value["opts"] if one[0] not in "zjJ"]  # It sees how the file is compressed.
    if value["run"] == "curl" and "opts" in value:
        sends = _SENDS & {one[0] for one in value.get("opts", ())}
        value["args"] = [one.removeprefix("http://") if isinstance(one, str) else one for one in value["args"]]
        value["opts"] = sorted(
            (one for one in value["opts"] if not sends or one != ["X", "POST"]), key=lambda one: one[0]
        )
    if value["run"] == "make":
        value["args"] = sorted(value["args"], key=lambda one: str(one) if "=" in str(one) else "")
    if value["run"] == "find":
        value["args"] = _acted(value["args"])
    if value["run"] == "rm":
        value["args"] = [
            {"path": one["path"].rstrip("/")} if isinstance(one, dict) and "path" in one else one
            for one in value["args"]
        ]
    if value["run"] in programs.SEARCHERS and "opts" in value:
        value = _searched(value, piped=piped)
    return _code(value) if value["run"].startswith("python") else value


def _tells_status(value: Any) -> bool:
    """Return whether a command prints the exit status of the one before."""
    return isinstance(value, dict) and value.get("run") == "echo" and "to" not in value and "'$?'" in str(value["args"])


def _with_errors_shown(value: dict[str, Any]) -> dict[str, Any]:
    """Return a call whose output nothing reads without `2>&1`: a tool shows both streams."""
    return {key: one for key, one in value.items() if key != "to"} if value.get("to") == _ERRORS_TOO else value


def _only_indents(value: Any) -> bool:
    """Return whether a filter only shows JSON in another layout."""
    name = value.get("run") if isinstance(value, dict) and "to" not in value else ""
    if name == "jq":
        return value["args"] in ([], ["."]) and not value.get("opts")
    return name in ("python -m json.tool", "python3 -m json.tool") and not value["args"]


def _is_long_end(value: Any) -> bool:
    """Return whether a filter shows the first or last lines, and so many that they are most of a report."""
    if not isinstance(value, dict) or value.get("run") not in ("head", "tail") or value["args"] or "to" in value:
        return False
    count = value["opts"][0][1] if len(value["opts"]) == 1 and value["opts"][0][0] == "n" else ""
    return count.isdecimal() and int(count) >= _LONG_END


def _staged(value: dict[str, Any]) -> dict[str, Any]:
    """Return `git commit -a` as `git add -u` and `git commit`."""
    if value.get("run") != "git commit" or ["a"] not in value.get("opts", ()) or "to" in value:
        return value
    add = {"run": "git add", "opts": [["u"]], "args": []}
    if "in" in value:
        add["in"] = value["in"]
    return {"chain": [add, "&&", {**value, "opts": [one for one in value["opts"] if one != ["a"]]}]}


def _tidied(word: Any) -> Any:
    """Return a word, or an option with its value, with JSON and SQL in one layout."""
    if isinstance(word, list) and all(isinstance(one, str) for one in word):
        return [plain_text(one) for one in word]
    return plain_text(word) if isinstance(word, str) else word


def _acted(args: list[Any]) -> list[Any]:
    """Return the words of `find` with `-exec rm {} \\;` as `-delete`, and one way to end a command."""
    if "-exec" not in args:
        return args
    at = args.index("-exec")
    command = args[at + 1 :]
    if command[:-2] in (["rm"], ["rm", "-f"]) and command[-2:] in (["{}", ";"], ["{}", "+"]):
        return [*args[:at], "-delete"]
    return [*args[:-1], ";"] if args[-1] == "+" else args


def _deleted(calls: Sequence[Any]) -> Any:
    """Return `find … | xargs rm` as `find … -delete`, else None."""
    if len(calls) != 2 or not all(isinstance(one, dict) and "run" in one for one in calls):
        return None
    found, then = calls
    if (
        found["run"] != "find"
        or then["run"] != "xargs"
        or [one for one in then["args"] if one not in ("-0", "-r", "-0r", "-r0")] not in (["rm"], ["rm", "-f"])
    ):
        return None
    return {**found, "args": [*(one for one in found["args"] if one != "-print0"), "-delete"]}


def _searched(value: dict[str, Any], *, piped: bool) -> dict[str, Any]:
    """Return a search with its pattern in extended syntax; line numbers count only where a program reads them."""
    names = [one[0] for one in value["opts"]]
    own = [one[1] for one in value["opts"] if one[0] == "e" and len(one) > 1]
    if "f" in names or "P" in names or "files" in names or (not own and not value["args"]):
        return value
    args = value["args"] if own else value["args"][1:]
    texts = own or value["args"][:1]
    if not all(isinstance(text, str) for text in texts):
        return value
    dialect = "F" if "F" in names else "E" if "E" in names or value["run"] == "rg" else "G"
    gone = frozenset("eEG") if piped else frozenset("eEGn")
    pattern = patterns.either([patterns.extended(text, dialect) for text in texts])
    opts = [one for one in value["opts"] if one[0] not in gone]
    opts = [["around", one[1]] if one[0] == "C" else one for one in opts]
    around = {one[0]: one[1] for one in opts if one[0] in ("A", "B")}
    if len(around) == 2 and around["A"] == around["B"]:
        opts = [*(one for one in opts if one[0] not in ("A", "B")), ["around", around["A"]]]
    opts = [["r"] if one == ["R"] else one for one in opts]
    return {**value, "opts": sorted(opts), "args": [pattern, *args]}


def _code(value: dict[str, Any]) -> dict[str, Any]:
    """Return a call of Python with its code as a tree: quotes, comments and layout mean nothing."""
    heredoc = [one[2] for one in value.get("to", ()) if one[1] == "<<" and one[3:] == [""]]
    code = [one[1] for one in value.get("opts", ()) if one[0] == "c" and len(one) > 1]
    if len(heredoc) == 1 and not code and value["args"] in ([], ["-"]):
        rest = {key: one for key, one in value.items() if key != "to"}
        if left := [one for one in value["to"] if one[1] != "<<"]:
            rest["to"] = left
        return {**rest, "args": [], "code": python_tree(heredoc[0])}
    if len(code) == 1 and not heredoc:
        return {**value, "opts": [one for one in value["opts"] if one[0] != "c"], "code": python_tree(code[0])}
    return value


# -------------------------------------------------------------------------------------------------------- file tools


def _file_call(value: dict[str, Any]) -> list[dict[str, Any]] | None:
    if value.keys() == {"pipe"}:
        return _piped(value["pipe"])
    if "run" not in value or value.keys() - {"run", "opts", "args", "to"}:
        return None
    if value.get("to"):
        return _written(value)
    run = value["run"]
    if run in ("cat", "head", "tail", "sed", "nl", "awk", "bat"):
        return _read(value) or (_substituted(value) if run == "sed" else None)
    if run in ("grep", "rg"):
        return _search(value)
    if run == "find":
        return _found(value["args"])
    if run == "perl":
        return _by_perl(value["args"])
    if run == "ls" and all(one == ["1"] for one in value.get("opts", ())) and len(value["args"]) == 1:
        return [{"list": path}] if (path := _path(value["args"][0])) else None
    if run == "rm" and not value.get("opts") and (paths := _paths(value["args"])):
        return [{"delete": path} for path in paths]
    return None


def _path(value: Any) -> str:
    """Return the path of a word as file tools write it, "" if it is none."""
    if not isinstance(value, dict) or "node" in value:
        return ""
    return f"?/{value['rel']}" if "rel" in value else str(value.get("path", ""))


def _paths(values: Sequence[Any]) -> list[str]:
    paths = [_path(one) for one in values]
    return paths if all(paths) else []


def _read(value: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the reads of a command that shows lines of files; line numbers do not matter."""
    run, opts, args = value["run"], value.get("opts", []), value["args"]
    window: list[int | None] | None = None
    files = args
    if run in ("cat", "bat", "nl"):
        window = [1, None] if all(one[0] in ("n", "b", "-ba") for one in opts) else None
        files = [{"path": one} if run == "nl" and isinstance(one, str) else one for one in args]
    elif run in ("head", "tail") and [one[0] for one in opts] in ([], ["n"]):
        count = opts[0][1] if opts else "10"
        if count.isdecimal():
            window = [1 if run == "head" else FROM_END, int(count)]
        elif run == "tail" and re.fullmatch(r"\+\d+", count):
            window = [int(count[1:]), None]
    elif run in ("sed", "awk") and args and isinstance(args[0], str):
        window = _window(args[0]) if (run == "sed") == (opts == [["n"]]) else None
        files = [{"path": one} if run == "awk" and isinstance(one, str) else one for one in args[1:]]
    paths = _paths(files)
    if window is None or not paths or (len(paths) > 1 and window != [1, None]):
        return None
    return [{"read": path, "lines": window} for path in paths]


def _window(script: str) -> list[int | None] | None:
    """Return the first line and the number of lines that a script of sed or awk shows."""
    if lines := _LINES.fullmatch(script.replace(" ", "")):
        first, last = int(lines[1]), lines[2]
        if last == "$":
            return [first, None]
        return [first, 1 if last is None else int(last[1:]) + 1 if last[0] == "+" else int(last) - first + 1]
    if rows := _ROWS.fullmatch(script):
        return [int(rows[1]), int(rows[2]) - int(rows[1]) + 1] if rows[1] else [int(rows[3]), 1]
    return None


def _piped(parts: Sequence[Any]) -> list[dict[str, Any]] | None:
    """Return the call of a pipe whose later parts show some of the lines of its first one."""
    first = _file_call(parts[0]) if isinstance(parts[0], dict) else None
    if first is None or len(first) != 1 or any(one != "|" for one in parts[1::2]):
        return None
    call = first[0]
    for part in parts[2::2]:
        window = _shown(part)
        if window is None:
            return None
        if "read" in call:
            call = {**call, "lines": _within(call["lines"], window)}
        elif "search" in call and window[0] == 1 and window[1] and "limit" not in call:
            call = {**call, "limit": window[1]}
        else:
            return None
    return [call]


def _shown(part: Any) -> list[int | None] | None:
    """Return the lines that a filter lets through."""
    if not isinstance(part, dict) or part.keys() - {"run", "opts", "args"}:
        return None
    if part["run"] == "cat" and not part["args"] and all(one[0] == "n" for one in part.get("opts", ())):
        return [1, None]
    if part["run"] == "sed" and part.get("opts") == [["n"]] and len(part["args"]) == 1:
        return _window(str(part["args"][0]))
    count = part["opts"][0][1] if part.get("opts") and part["opts"][0][0] == "n" and len(part["opts"]) == 1 else ""
    if part["run"] == "head" and not part["args"] and not part.get("opts"):
        return [1, 10]
    if part["run"] == "head" and not part["args"] and count.isdecimal():
        return [1, int(count)]
    return (
        [int(count[1:]), None] if part["run"] == "tail" and not part["args"] and re.fullmatch(r"\+\d+", count) else None
    )


def _within(lines: list[int | None], window: list[int | None]) -> list[int | None]:
    first, count = lines
    skip, more = window[0] or 1, window[1]
    left = None if count is None else max(count - skip + 1, 0)
    shown = [one for one in (left, more) if one is not None]
    return [(first or 1) + skip - 1, min(shown) if shown else None]


def _search(value: dict[str, Any]) -> list[dict[str, Any]] | None:
    names = {one[0] for one in value.get("opts", ())}
    if not value["args"] or not isinstance(value["args"][0], str) or "files" in names:
        return None
    own: dict[str, Any] = {"output_mode": "content"}
    for name, *values in value.get("opts", ()):
        text = values[0] if values else ""
        if name in ("A", "B", "around") and text.isdecimal():
            own[_AROUND.get(name, name)] = int(text)
        elif name in _MODES:
            own["output_mode"] = _MODES[name]
        elif name == "i":
            own["ignore_case"] = True
        elif name in ("g", "include") and not text.startswith("!"):
            own.setdefault("globs", []).append(text)
        elif name == "t" and text in _TYPES:
            own.setdefault("globs", []).append(_TYPES[text])
        elif name not in _NUMBERS:
            own.setdefault("options", []).append([name, *values])
    paths = _paths(value["args"][1:])
    whole = value["run"] == "rg" or "r" in names or "R" in names
    if not paths or not (whole or all(re.search(r"[\w*]\.\w+$", path) for path in paths)):
        return None
    return [searched(value["args"][0], paths, own)]


def searched(pattern: str, paths: Sequence[str], own: dict[str, Any]) -> dict[str, Any]:
    """Return the form of a search: its pattern in extended syntax, where it looks, and what it shows."""
    globs = {one.removeprefix("**/") for one in own.pop("globs", [])}
    globs |= {str(own.pop("glob")).removeprefix("**/")} if "glob" in own else set()
    if str(own.get("type")) in _TYPES:
        globs.add(_TYPES[str(own.pop("type"))])
    if own.get("output_mode") == "files_with_matches":
        own.pop("output_mode")
    if own.get("after") == own.get("before") and "after" in own:
        own = {**{key: one for key, one in own.items() if key not in ("after", "before")}, "around": own["after"]}
    named = {"globs": sorted(globs)} if globs else {}
    return {"search": pattern, "paths": sorted(set(paths)), **named, **own}


def _found(args: Sequence[Any]) -> list[dict[str, Any]] | None:
    """Return the glob of a `find` by name: below a folder, files of one pattern."""
    words = [one for one in args if isinstance(one, str)]
    folders = _paths([one for one in args if not isinstance(one, str)])
    if len(folders) != 1 or len(words) + 1 != len(args):
        return None
    tests = dict(zip(words[::2], words[1::2], strict=False))
    files_only = tests.pop("-type", "") == "f" or bool(_EXTENSION.fullmatch(tests.get("-name", "")))
    if len(words) % 2 or tests.keys() != {"-name"} or not files_only or "type" in tests:
        return None
    return [{"glob": f"**/{tests['-name']}", "path": folders[0]}]


def _written(value: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the write of a command that puts a text of its own into a file."""
    targets = [one for one in value["to"] if one[1] in (">", ">>") and not one[0]]
    body = [one[2] for one in value["to"] if one[1] == "<<" and one[3:] == [""]]
    run, opts, args = value["run"], value.get("opts", []), value["args"]
    text = None
    if run == "cat" and len(body) == 1 and not args and not opts:
        text = body[0]
    elif run == "tee" and len(body) == 1 and len(args) == 1 and opts in ([], [["a"]]):
        if [one[2] for one in targets] not in ([], [{"path": "/dev/null"}]):
            return None
        targets, text = [["", ">>" if opts else ">", args[0]]], body[0]
    elif run == "echo" and not body and len(args) == 1 and isinstance(args[0], str) and not opts:
        text = None if args[0].startswith("-") or "\\" in args[0] else f"{args[0]}\n"
    elif run == "printf" and not body and len(args) == 1 and isinstance(args[0], str) and "%" not in args[0]:
        text = args[0].replace("\\n", "\n") if "\\" not in args[0].replace("\\n", "") else None
    if text is None or len(targets) != 1 or len(value["to"]) > (2 if body else 1) or not (path := _path(targets[0][2])):
        return None
    if targets[0][1] == ">>":
        return [{"append": path, "text": stable_id(text)}]
    return [{"write": path, "text": stable_id(text), "content": text}]


def _by_perl(args: Sequence[Any]) -> list[dict[str, Any]] | None:
    """Return the edits of `perl -pi -e s/a/b/g FILE`."""
    words = [one for one in args if isinstance(one, str)]
    if (
        len(words) < len(args)
        or len(words) < 3
        or words[0] not in ("-pi", "-pie", "-i")
        or words[1] not in ("-e", "-pe")
    ):
        return None
    files = [{"path": one} for one in words[3:]]
    return _substituted({"opts": [["i", ""], ["E"]], "args": [words[2], *files]})


def _substituted(value: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the edits of `sed -i s/a/b/ FILE`, if it looks for a plain text."""
    opts = value.get("opts", [])
    scripts = [one[1] for one in opts if one[0] == "e" and len(one) > 1]
    files = value["args"] if scripts else value["args"][1:]
    scripts = scripts or [one for one in value["args"][:1] if isinstance(one, str)]
    if ["i", ""] not in opts or any(one[0] not in "iEe" for one in opts):
        return None
    dialect = "E" if ["E"] in opts else "G"
    changes: list[Replacement] = []
    for part in (part for script in scripts for part in _SCRIPT_END.split(script) if part.strip()):
        found = _SUBSTITUTE.fullmatch(part.strip())
        pattern = patterns.extended(found[2].replace("\\" + found[1], found[1]), dialect) if found else None
        old = patterns.literal(pattern.removeprefix("^").removesuffix("$")) if pattern else None
        new = found[3].replace("\\" + found[1], found[1]) if found else ""
        if not found or not old or re.search(r"\\[^.*/\[\]$&]|(?<!\\)&", new):
            return None
        changes.append(Replacement(old, re.sub(r"\\(.)", r"\1", new), bool(found[4])))
    paths = _paths(files)
    if not changes or not paths:
        return None
    return [{"edit": path, "changes": changes} for path in paths]
