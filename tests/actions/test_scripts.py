"""Scripts of Codex's code mode: which calls they surely make, and whose output is whose."""

from __future__ import annotations

import json

import pytest

from composer_hub.actions.calls import command_of
from composer_hub.actions.script_results import CallResult, output_of, results_of
from composer_hub.actions.script_values import PlainScript
from composer_hub.actions.scripts import _CHANGING, calls_in, script_of
from composer_hub.records import ToolCall

RUN = "const r = await tools.exec_command({cmd:'make test', workdir:'/w'}); "
TWO = "const [a, b] = await Promise.all([tools.exec_command({cmd:'x'}), tools.exec_command({cmd:'y'})]); "


def commands(text: str) -> list[str] | None:
    script = script_of(text)
    return [arguments["cmd"] for _, arguments in script.calls] if script else None


def results(text: str, body: str) -> list[CallResult] | None:
    script = script_of(text)
    assert isinstance(script, PlainScript)
    return results_of(script, body)


def as_json(**fields: object) -> str:
    return json.dumps({"chunk_id": "a1", "wall_time_seconds": 0.5, **fields}, separators=(",", ":"))


LONG = [f"file{number}" for number in range(150)]
MARKED = "[a, b].forEach((r, i) => text(`--${i + 1}--\\n${r.output}\\nexit=${r.exit_code}`));"
FIRST, SECOND = as_json(output="1", exit_code=0), as_json(output="2", exit_code=3)
FAILED = {"exit_code": 2, "output": "a\nb"}
MAYBE_ID = "text(r.output); if (r.session_id) text(`ID=${r.session_id}`);"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (RUN + "text(r.output);", ["make test"]),
        ("text((await tools.exec_command({\"cmd\": 'a \\'b\\'\\n\\u00e9'}))?.output ?? '');", ["a 'b'\né"]),
        ("const d = '/w'; text(await tools.exec_command({cmd: `ls ${d}/src`}));", ["ls /w/src"]),
        ("const cmd = ['a', 'b'].join(' && '); await tools.exec_command({cmd});", ["a && b"]),
        ("await tools.exec_command({cmd: String.raw`rg '\\d+'`});", ["rg '\\d+'"]),
        ("await tools.exec_command({cmd: 'a' + ' b'});", ["a b"]),
        ("await tools.exec_command({cmd: `echo \\ud83d\\ude00 \\ud83d`});", ["echo \U0001f600 \ufffd"]),
        (TWO, ["x", "y"]),
        (
            "for (const one of ['x', 'y']) { text(await tools.exec_command({cmd: one})); }",
            ["x", "y"],
        ),
        (
            "await Promise.all(['x', 'y'].map((c, i) => tools.exec_command({cmd: c + i})));",
            ["x0", "y1"],
        ),
        ("const run = async cmd => tools.exec_command({cmd}); await run('x'); await run('y');", ["x", "y"]),
        ("async function run(cmd) { return await tools.exec_command({cmd}); } text(await run('x'));", ["x"]),
        ("const {output, ...rest} = await tools.exec_command({cmd: 'x'}); text(rest); text(output);", ["x"]),
        (
            "await tools.exec_command({cmd: 'x', yield_time_ms: Date.now() > 5 ? 1 : 2});",
            ["x"],
        ),
        ("try { text(await tools.exec_command({cmd: 'x'})); } catch (e) { text(String(e)); }", ["x"]),
        (
            "if (1 === 2) tools.exec_command({cmd: 'x'}); else tools.exec_command({cmd: 'y'});",
            ["y"],
        ),
        ("const {exec_command: run} = tools; text(await run({cmd: 'x'}));", ["x"]),
        (RUN + "text(r.output); exit();", ["make test"]),
        (RUN + "text(r.output); return;", ["make test"]),
        (RUN + "if (!r.output) { text(''); exit(); } else { text(r.output); }", ["make test"]),
        ("try { text(await tools.exec_command({cmd: 'x'})); } catch (e) { text(String(e)); exit(); }", ["x"]),
        ("false && await tools.exec_command({cmd: 'x'}); true || await tools.exec_command({cmd: 'y'});", []),
        ("const stop = () => { exit(); }; stop(); await tools.exec_command({cmd: 'x'});", []),
        ("if (true === 1) { await tools.exec_command({cmd: 'x'}); }", []),
        ("const [, b] = ['x', /* not z */ 'y']; await tools.exec_command({cmd: b});", ["y"]),
        ("const o = {c: 'x'}; o.c += 'y'; await tools.exec_command({cmd: o.c});", ["xy"]),
        (
            f"const a = {LONG}; await tools.exec_command({{cmd: a.map(n => n + '.c').join(' ')}});",
            [" ".join(f"{n}.c" for n in LONG)],
        ),
        (
            f"let s = 'a'; for (const n of {LONG}) {{ s += n; }} await tools.exec_command({{cmd: s}});",
            ["a" + "".join(LONG)],
        ),
        ("text(ALL_TOOLS.filter(one => one.name.includes('git')));", []),
        ("", []),
    ],
)
def test_a_plain_script_makes_the_calls_that_it_writes_out(text, expected):
    assert commands(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "const r = await tools.exec_command({cmd: 'ls'}); await tools.exec_command({cmd: r.output});",
        "if (Date.now() > 5) await tools.exec_command({cmd: 'x'});",
        "while (await more()) { await tools.exec_command({cmd: 'x'}); }",
        "for (const n of names) { await tools.exec_command({cmd: n}); }",
        "for (let i = 0; i < 3; i++) { await tools.exec_command({cmd: 'x'}); }",
        "await tools[name]({cmd: 'x'});",
        "const {exec_command} = globalThis.tools; exec_command({cmd: 'x'});",
        "call(tools);",
        "names.forEach(tools.exec_command);",
        "names.forEach(async n => { await tools.exec_command({cmd: 'x'}) });",
        "new Worker(() => tools.exec_command({cmd: 'x'}));",
        "eval(\"tools.exec_command({cmd: 'x'})\");",
        "const r = await tools.exec_command({cmd: 'x'",  # broken off
        "const f = () => f(); f(); tools.exec_command({cmd: 'x'});",
        RUN + "if (!r.output) { text(''); return; } await tools.exec_command({cmd: 'y'});",
        "try { await tools.exec_command({cmd: 'x'}); throw 1; } catch (e) { await tools.exec_command({cmd: 'y'}); }",
        "try { await tools.exec_command({cmd: 'x'}); } catch (e) { exit(); } await tools.exec_command({cmd: 'y'});",
        "try { exit(); } finally { await tools.exec_command({cmd: 'x'}); }",
        "let i = 0; i++; await tools.exec_command({cmd: `echo ${i}`});",
        "let c = 'x'; switch (pick()) { case 1: c = 'y'; } await tools.exec_command({cmd: c});",
        "let c = 'x'; new Promise(done => { c = 'y'; done(); }); await tools.exec_command({cmd: c});",
        "const a = ['x', 'y']; a[0] = 'z'; await tools.exec_command({cmd: a[0]});",
        *(f"const a = ['y', 'x']; a.{name}(); await tools.exec_command({{cmd: a[0]}});" for name in sorted(_CHANGING)),
        "let a = ['x']; " + "a = [...a, ...a]; " * 40 + "await tools.exec_command({cmd: a.join('')});",
        "let a = ['x']; " + "a = [a, a]; " * 40 + "await tools.exec_command({cmd: a});",
        "let a = ['x']; " + "a = [a, a]; " * 40 + "text(a);",
        "let s = 'x'; " + "s += s; " * 40 + "await tools.exec_command({cmd: s});",
        "const o = {}; o.self = o; text(o);",
        "const o = []; o.push(o); await tools.exec_command({cmd: o});",
        RUN + "r.exit_code === 0 || exit(); await tools.exec_command({cmd: 'y'});",
        RUN + "if (r.exit_code) { exit(); } else { await tools.exec_command({cmd: 'y'}); }",
        RUN + "for (const p of ['a']) { if (r.output) continue; exit(); } await tools.exec_command({cmd: 'y'});",
        "const run = cmd => tools.exec_command({cmd}); switch (1) { case 1: await run('x'); }",
        "const t = tools; switch (1) { case 1: await t.exec_command({cmd: 'x'}); }",
        "while ((await tools.exec_command({cmd: 'x'})).exit_code) { }",
        "for (let r = await tools.exec_command({cmd: 'x'}); false;) { }",
        "let r = 'a'; r ||= await tools.exec_command({cmd: 'x'});",
        "function* run() { tools.exec_command({cmd: 'x'}); } run();",
        "let c = 'x'; switch (1) { case 1: [c] = ['y']; } await tools.exec_command({cmd: c});",
        "const o = {c: 'x'}; switch (1) { case 1: o.c = 'y'; } await tools.exec_command({cmd: o.c});",
        "if ('1' == 1) await tools.exec_command({cmd: 'x'});",
        "await tools.exec_command({cmd: `echo ${null}`});",
        "const f = () => { if (pick()) return 'y'; }; await tools.exec_command({cmd: f()});",
        "const o = {c: 'x'}; change(o); await tools.exec_command({cmd: o.c});",
        "const f = async () => { await tools.x({a: 'x'}); await tools.x({a: 'y'}); }; f(); await tools.x({a: 'z'});",
        "[" * 5000 + "tools.exec_command({cmd: 'x'})" + "]" * 5000,
        f"for (const a of {[0] * 11}) for (const b of {[0] * 11}) await tools.exec_command({{cmd: 'x'}});",
    ],
)
def test_a_script_whose_calls_only_a_run_would_show_is_not_plain(text):
    assert script_of(text) is None


def test_a_script_that_waits_for_its_own_command_makes_one_call():
    wait = "s = await tools.write_stdin({session_id: s.session_id, chars: ''}); o += s.output;"
    text = f"{RUN} let o = r.output; let s = r; while (s.session_id) {{ {wait} }} text(o);"
    assert commands(text) == ["make test"]


def test_a_key_that_a_script_deletes_is_not_an_argument():
    script = script_of("const o = {cmd: 'x', workdir: '/w'}; delete o.workdir; await tools.exec_command(o);")
    assert script is not None
    assert script.calls == (("exec_command", {"cmd": "x", "workdir": None}),)


def test_an_object_is_printed_as_it_was_then():
    text = RUN + "const o = {code: r.exit_code}; text(o); o.code = 5; o.self = o;"
    assert results(text, '{"code":2}') == [CallResult('{"code":2}', 2)]


def test_a_call_that_is_no_plain_script_stands_for_itself():
    wild = ToolCall("exec", {"input": "await tools[name]({})"}, "1")
    shell = ToolCall("exec", {"command": "ls"}, "2")
    assert calls_in(wild) == (wild,)
    assert calls_in(shell) == (shell,)
    assert command_of(wild) == ""
    assert command_of(shell) == "ls"


def test_the_calls_of_a_script_have_its_id():
    (call,) = calls_in(ToolCall("exec", {"input": "text(await tools.apply_patch('*** Begin Patch'))"}, "7"))
    assert call == ToolCall("apply_patch", {"input": "*** Begin Patch"}, "7")


@pytest.mark.parametrize(
    ("text", "body", "expected"),
    [
        (RUN + "text(r.output);", "ok\n", CallResult("ok\n")),
        (RUN + "text(r);", as_json(exit_code=2, original_token_count=1, output="no"), CallResult("no", 2)),
        (RUN + "text(JSON.stringify(r, null, 2));", json.dumps(FAILED, indent=2), CallResult("a\nb", 2)),
        (RUN + "text(r.output); text(`exit=${r.exit_code}`);", "a\nexit=2", CallResult("a", 2)),
        (RUN + "text(r.output + '\\nexit ' + r.exit_code);", "a\nexit 0", CallResult("a", 0)),
        (RUN + "text(r.output); text(`exit=${r.exit_code}`);", "exit=2", CallResult("", 2)),
        (RUN + MAYBE_ID, "a\nID=77", CallResult("a", None, "77")),
        (RUN + MAYBE_ID, "a", CallResult("a")),
        (RUN + "const {output, ...rest} = r; text(rest); text(output);", '{"exit_code":2}\nno', CallResult("no", 2)),
        (RUN + "text({code: r.exit_code, t: r.output.slice(1)});", '{"code":1}', CallResult('{"code":1}', 1)),
        (RUN + "text(r.output.split('\\n').pop());", "last", CallResult("last")),
    ],
)  # fmt: skip
def test_what_a_script_prints_of_its_only_call_is_its_result(text, body, expected):
    assert results(text, body) == [expected]


def test_an_output_that_was_cut_keeps_its_exit_code():
    body = as_json(exit_code=1, original_token_count=9, output="first\nlast")[:-5]
    assert results(RUN + "text(JSON.stringify(r));", body) == [CallResult("first\nl", 1)]


def test_the_words_of_an_mcp_server_are_its_result():
    body = json.dumps({"content": [{"type": "text", "text": "No such page"}], "isError": True})
    (result,) = results("text(JSON.stringify(await tools.mcp__docs__find({page: 'x'})));", body) or [None]
    assert result == CallResult("No such page", None, "", True)


@pytest.mark.parametrize(
    ("prints", "body"),
    [
        ("for (const r of [a, b]) text(JSON.stringify(r));", f"{FIRST}\n{SECOND}"),
        ("text(JSON.stringify([a, b]));", f"[{FIRST},{SECOND}]"),
        ("text({a, second: b});", f'{{"a":{FIRST},"second":{SECOND}}}'),
        (MARKED, "--1--\n1\nexit=0\n--2--\n2\nexit=3"),
        ("[a, b].forEach((r, i) => text(`## ${i}: ${r.exit_code}\\n${r.output}`));", "## 0: 0\n1\n## 1: 3\n2"),
    ],
)  # fmt: skip
def test_the_results_of_several_calls_are_told_apart(prints, body):
    assert results(TWO + prints, body) == [CallResult("1", 0), CallResult("2", 3)]


@pytest.mark.parametrize(
    ("prints", "body"),
    [
        ("text(a.output); text(b.output);", "1\n2"),  # nothing between them
        ("text(a.output); text('---'); text(b.output);", "1\n---\n2\n---\n3"),  # an output has the same mark
        ("text(a.output.trim()); text(b);", "1\n" + as_json(output="2", exit_code=0)),
        ("text(a); text(b);", "cut"),
    ],
)
def test_results_that_the_texts_do_not_settle_are_given_to_nobody(prints, body):
    assert results(TWO + prints, body) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Script completed\nWall time 0.6 seconds\nOutput:\n\nhello", ("hello", False, "", "")),
        ("Script running with cell ID 18\nWall time 1.0 seconds\nOutput:\n", ("", False, "18", "")),
        ("Script failed\nWall time 0.0 seconds\nOutput:\n\na\nScript error:\nno", ("a", True, "", "no")),
    ],
)  # fmt: skip
def test_the_words_of_the_harness_around_a_script_are_no_output(text, expected):
    shown = output_of(text)
    assert shown is not None
    assert (shown.body, shown.is_failed, shown.cell_id, shown.error) == expected


def test_a_result_without_those_words_is_of_no_script():
    assert output_of("Wall time: 0.1 seconds\nOutput:\nhello") is None


def test_long_texts_with_many_marks_are_read_at_all():
    # A pattern that tries every way to split the text would not end.
    text = TWO + "".join(f"text(a.output); text('mark {number}');" for number in range(10)) + "text(b);"
    assert results(text, "{}" * 50_000) is None
    assert results(TWO + "text(a.output); text('== b =='); text(b);", "{" * 150_000) is None
    maybe = RUN + "if (r.session_id) text(`a${r.output}`); " * 24 + "text('END');"
    assert results(maybe, "END" + "a" * 24) == [CallResult("END" + "a" * 24)]


@pytest.mark.parametrize("code", ["for (const x of a) { f = () => {%s}; }", "a.map(x => { if (false) {%s} });"])
def test_code_that_a_loop_only_looks_through_is_work_too(code: str) -> None:
    text = f"const a = [{'1,' * 150}]; let f; {code % ('y = 1;' * 600)} await tools.exec_command({{cmd: 'x'}});"
    assert script_of(text) is None
