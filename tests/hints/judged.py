"""Sites judged by reading: what a command or tool said, whose fault it was, and what a true hint must say.

Each case is rewritten from a real session, with other names. `kind` and `blame` were written down from the text, before
the rules were asked. `then` is a later call that works; `words` are what a hint must then contain, `never` what would
make it false. Where no later call works, nothing right is known: there is no default hint. Cases of blame other than the
model's get none either.
"""

# ruff: noqa: E501  # a case is one line

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Judged:
    """One call, what came back, and the judgement."""

    call: str  # the command, or `tool path`
    code: int | None
    output: str
    kind: str  # "" = no site
    blame: str = ""
    words: tuple[str, ...] = ()
    then: str = ""  # a later call that works
    never: tuple[str, ...] = ()


def m(
    call: str, code: int | None, output: str, kind: str, *words: str, then: str = "", never: tuple[str, ...] = ()
) -> Judged:
    """Return a mistake of the model."""
    return Judged(call, code, output, kind, "model", words, then, never)


def other(blame: str, call: str, code: int | None, output: str, kind: str) -> Judged:
    """Return a site that is not the model's fault."""
    return Judged(call, code, output, kind, blame)


def ok(call: str, code: int | None, output: str) -> Judged:
    """Return a result that looks like a failure and is none."""
    return Judged(call, code, output, "")


SHELL: tuple[Judged, ...] = (
    # paths
    m("sed -n '1,80p' lib/parser/lexer.go", 1, "sed: lib/parser/lexer.go: No such file or directory", "path_not_found"),
    m("cat src/config/defaults.yml", 1, "cat: src/config/defaults.yml: No such file or directory", "path_not_found"),
    m("grep -A 10 'func Reset' internal/store/reset.go", 2, "grep: internal/store/reset.go: No such file or directory", "path_not_found"),
    other("env", "ls -la /srv/app/commands/", 1, "ls: /srv/app/commands/: No such file or directory", "nonzero_empty"),
    m("cp dist/app.css public/", 1, "cp: dist/app.css: No such file or directory", "path_not_found"),
    m("python scripts/migrate.py", 2, "python: can't open file '/w/scripts/migrate.py': [Errno 2] No such file or directory", "path_not_found"),
    m("cd services/billing && go test ./...", 1, "sh: 1: cd: can't cd to services/billing", "path_not_found"),
    m("cd services/mail && npm test", 1, "(eval):cd:1: no such file or directory: services/mail", "path_not_found"),
    m("cd /tmp/clone && git log -3", 1, "bash: line 1: cd: /tmp/clone: No such file or directory", "path_not_found"),
    m("echo PORT=1 > /tmp/stage/.env", 1, "bash: /tmp/stage/.env: No such file or directory", "path_not_found"),
    m("go build ./services/mail/...", 1, "pattern ./services/mail/...: lstat ./services/mail/: no such file or directory", "path_not_found"),
    m("gofmt -l ./cmd/...", 2, "stat ./cmd/...: no such file or directory", "path_not_found"),
    m("pytest tests/test_billing.py", 4, "ERROR: file or directory not found: tests/test_billing.py\n\nno tests ran in 0.01s", "path_not_found"),
    m("wc -l api/*.proto", 1, "zsh:1: no matches found: api/*.proto", "path_not_found"),
    m("rg --files docs/adr services", 2, "rg: docs/adr: No such file or directory (os error 2)\nservices/a.go", "path_not_found"),
    m("cat src/theme.json", 1, "cat: src/theme.json: No such file or directory", "path_not_found", "src/ui/theme.json", then="cat src/ui/theme.json"),
    m("sed -n 1,9p agents/alpha/net/handler_test.go", 1, "sed: agents/alpha/net/handler_test.go: No such file or directory", "path_not_found", then="sed -n 1,9p agents/beta/net/handler_test.go", never=("beta",)),
    other("env", "ls .git/gc.log 2>&1", 1, "ls: .git/gc.log: No such file or directory", "nonzero_empty"),
    other("env", "ls /tmp/out-*.txt 2>/dev/null", 1, "zsh:1: no matches found: /tmp/out-*.txt", "nonzero_empty"),
    other("env", "rm -r build && ls build", 1, "ls: build: No such file or directory", "nonzero_empty"),
    # programs and options
    m("golangci-lint run ./...", 127, "bash: golangci-lint: command not found", "command_not_found"),
    m("env GOFLAGS=-v staticcheck ./...", 127, "env: staticcheck: No such file or directory", "command_not_found"),
    m("python tool.py", 127, "zsh:1: command not found: python", "command_not_found", "python3", then="python3 tool.py"),
    m("/w/bin/app list --json", 127, "bash: /w/bin/app: No such file or directory", "path_not_found"),
    m("depot search x --json --no-pager", 1, "Error: unknown flag: --no-pager", "usage_error", then="depot search --help", never=("--help",)),
    m("curl -I http://127.0.0.1:5174/?view=2", 1, "zsh:1: no matches found: http://127.0.0.1:5174/?view=2", "path_not_found"),
    other("unknown", "npx host@latest inspect app-1 --logs", 1, "2026-06-18T14:44:18Z  Running build\n2026-06-18T14:44:19Z  sh: line 1: vite: command not found", "command_not_found"),
    m("gh issue create --body-file - <<EOF\nuse `rows_now`\nEOF", 127, "zsh:2: command not found: rows_now\nhttps://example.com/issues/1", "command_not_found"),
    m("gh pr diff 12 --stat", 1, "unknown flag: --stat\n\nUsage:  gh pr diff [<number> | <url> | <branch>] [flags]", "usage_error", "gh pr diff 12 --name-only", then="gh pr diff 12 --name-only"),
    m("gh pr diff 13 -- api/a.go", 1, "accepts at most 1 arg(s), received 2", "usage_error"),
    m("git show 83f1a2c --no-stat", 128, "fatal: unrecognized argument: --no-stat", "usage_error", then="git show 83f1a2c", never=("git show",)),
    m("git gc --auto --dry-run", 129, "error: unknown option `dry-run'\nusage: git gc [<options>]", "usage_error"),
    m("golangci-lint run --disable-all --enable=unused ./...", 3, "Error: unknown flag: --disable-all\nThe command is terminated due to an error: unknown flag: --disable-all", "usage_error"),
    m("sed -n 1,5p a.go | cat -A", 1, "cat: illegal option -- A\nusage: cat [-belnstuv] [file ...]", "usage_error"),
    m("go test ./... 2>&1 | grep -E '--- FAIL'", 2, "grep: unrecognized option `--- FAIL'\nusage: grep [-abcdDEFGHhIiJLlMmnOopqRSsUVvwXxZz] [-A num]", "usage_error"),
    m("mise run lint:full", 1, "mise ERROR no task lint:full found", "usage_error"),
    m("npm run typecheck", 1, "npm error Missing script: \"typecheck\"", "usage_error"),
    m("make deploy-all", 2, "make: *** No rule to make target 'deploy-all'.  Stop.", "usage_error"),
    m("pytest -q --cov-fail=80", 4, "ERROR: usage: pytest [options] [file_or_dir]\npytest: error: unrecognized arguments: --cov-fail=80", "usage_error"),
    m("jq '{a: .x // .y}' d.json", 3, "jq: error: syntax error, unexpected //, expecting '}' (Unix shell quoting issues?) at <top-level>, line 1:\njq: 1 compile error", "usage_error"),
    m("jq '.[] | .name' d.json", 5, "jq: error (at d.json:4): Cannot index number with \"name\"", "usage_error"),
    m("gh api repos/o/r/issues -f labels=1", 1, "{\"message\":\"Invalid request.\\n\\n\\\"title\\\" wasn't supplied.\",\"status\":\"422\"}gh: Invalid request. (HTTP 422)", "usage_error"),
    m("go vet ./... && go test ./...", 1, "pattern ./...: directory prefix . does not contain main module or its selected dependencies", "usage_error"),
    m("go test ./e2e/...", 1, "go: cannot find main module, but found .git/config in /w\n\tto create a module there, run:\n\tgo mod init", "usage_error"),
    m("go build ./e2e/...", 1, "pattern ./e2e/...: directory prefix e2e does not contain main module or its selected dependencies", "usage_error", then="cd e2e && go build ./..."),
    m("cargo build", 101, "error: could not find `Cargo.toml` in `/w` or any parent directory", "usage_error"),
    m("go build ./bootstrap/", 1, "go: build output \"bootstrap\" already exists and is a directory", "usage_error"),
    m("entire search topic repo:*", 1, "zsh:1: no matches found: repo:*", "usage_error"),
    m("gh api repos/o/r/pulls/3/comments?per_page=9", 1, "zsh:1: no matches found: repos/o/r/pulls/3/comments?per_page=9", "usage_error"),
    m("rg -n \"a|`b\" README.md", 1, "zsh:1: unmatched \"", "usage_error"),
    m("X=$(go env ROOT)/p@* && ls (a)", 1, "(eval):1: parse error near `('", "usage_error"),
    m("make fmt && \\\n\\\nmake lint", 126, "(eval):1: permission denied: \n", "usage_error"),
    # git
    m("git add docs/plan.md && git commit -m plan", 1, "The following paths are ignored by one of your .gitignore files:\ndocs\nhint: Use -f if you really want to add them.", "vcs_error"),
    m("git push", 1, " ! [rejected]        topic -> topic (fetch first)\nerror: failed to push some refs to 'example.com:o/r.git'", "vcs_error"),
    m("git add skills/old && git commit -m x", 128, "fatal: pathspec 'skills/old' did not match any files", "vcs_error"),
    m("git diff --cached cmd/a_test.go", 128, "fatal: ambiguous argument 'cmd/a_test.go': unknown revision or path not in the working tree.", "vcs_error"),
    m("git checkout main", 128, "fatal: 'main' is already used by worktree at '/w/cli'", "vcs_error", then="git fetch origin main", never=("git fetch",)),
    m("cat -A src/a.ts | sed -n '1,4p'", 0, "error: unexpected argument '-A' found\n\nUsage: quick read [OPTIONS] <FILE>\n", "usage_error"),
    m("gofmt -l . && go vet ./... && go test ./... 2>&1 | grep FAIL", 1, "pattern ./...: directory prefix . does not contain main module or its selected dependencies", "usage_error"),
    m("find / -name hue.go 2>/dev/null | grep hcl", 143, "Command timed out after 2m 0s", "timeout"),
    m("make gen-doc", 2, "make: *** No rule to make target 'gen-doc'.  Stop.", "usage_error"),
    m("gh pr view 7 --json base", 1, 'Unknown JSON field: "base"\nAvailable fields:\n  title', "usage_error"),
    m("git stash pop", 1, "error: Your local changes to the following files would be overwritten by merge:\n\ta.json\nno changes added to commit", "vcs_error"),
    m("gh api graphql -f query=x | jq '.data[]'", 5, "gh: Could not resolve to a Repository with the name 'a/b'.\njq: error (at <stdin>:0): Cannot iterate over null (null)", "usage_error"),
    m("echo x | python3 -c 'import json,sys; json.load(sys.stdin)'", 1, 'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\njson.decoder.JSONDecodeError: Extra data: line 1 column 2', "runtime_exception"),
    m("sed -n 1,9p src/routes/$id.tsx", 2, "sed: can't read src/routes/.tsx: No such file or directory", "path_not_found"),
    other("outcome", "bun apps/cli.ts prepare", 1, "1 | })\nSyntaxError: Export named 'grade' not found in module '/w/core/dist/index.js'.\n      at loadAndEvaluateModule (2:1)", "program_exception"),
    other("env", "git commit -m x", 128, "error: 1Password: agent returned an error\n\nfatal: failed to write commit object", "permission_denied"),
    m("zsh -c 'echo $HOME/omp; ls /home/u/omp/ts.txt'", 2, "ls: cannot access '/home/u/omp/ts.txt': No such file or directory", "path_not_found"),
    m("wsl zsh /mnt/c/s/test.zsh", 127, "zsh: can't open input file: /mnt/c/s/test.zsh", "path_not_found"),
    other("outcome", "git commit -m x", 1, "$ bun test src/\nbun test v1.3.5 (1e86cebd)\n\nerror: Cannot find module 'b' from 'c'", "test_failure"),
    m("nope --version | head -1", 0, "bash: line 1: nope: command not found", "command_not_found"),
    ok("cat build.log | tail -2", 0, "step 4\nerror: unexpected argument in the last run"),
    m("git status", 128, "fatal: not a git repository (or any of the parent directories): .git", "vcs_error"),
    other("outcome", "git fetch && git merge origin/main", 1, "Auto-merging a.go\nCONFLICT (content): Merge conflict in a.go\nAutomatic merge failed; fix conflicts and then commit the result.", "merge_conflict"),
    other("outcome", "git rebase main", 1, "Rebasing (2/4)\nerror: could not apply 1f2e3d4... Add reader\nhint: Resolve all conflicts manually", "merge_conflict"),
    other("outcome", "git cherry-pick 9e8d7c6", 1, "CONFLICT (modify/delete): b.go deleted in HEAD", "merge_conflict"),
    other("env", "git rebase origin/main", 1, "error: Unable to create '/w/.git/index.lock': File exists.\n\nAnother git process seems to be running in this repository", "nonzero_exit"),
    other("env", "git add a.md", 128, "fatal: Unable to create '/w/.git/index.lock': Operation not permitted", "permission_denied"),
    other("env", "git cat-file -t e53647ba1f1e", 128, "fatal: git cat-file: could not get object info", "nonzero_empty"),
    other("env", "git config --global core.excludesfile", 1, "", "nonzero_empty"),
    other("env", "git diff --no-index /dev/null NEW.md", 1, "diff --git a/NEW.md b/NEW.md\nnew file mode 100644", "nonzero_empty"),
    other("env", "git clone git@example.com:o/r.git", 128, "Permission denied (publickey).\nfatal: Could not read from remote repository.", "network_or_remote"),
    # tests, lints, builds
    other("outcome", "go test ./store", 1, "--- FAIL: TestReset (0.00s)\n    reset_test.go:9: got 8, want 2\nFAIL\nFAIL\texample.com/store\t0.16s", "test_failure"),
    other("outcome", "go test ./store -run TestReset", 1, "# example.com/store [example.com/store.test]\nstore/reset_test.go:12:3: undefined: NewReset\nFAIL\texample.com/store [build failed]", "test_failure"),
    other("outcome", "E2E=1 go test ./e2e", 1, "Building the agent...\ngo: cannot find main module, but found .git/config in /w\nfailed to build agent: exit status 1\nFAIL\texample.com/e2e\t0.29s\nFAIL", "test_failure"),
    other("outcome", "pytest -q", 1, "FAILED tests/test_a.py::test_sum - assert 3 == 4\n=== 1 failed, 12 passed in 0.20s ===", "test_failure"),
    other("outcome", "npm test", 1, "Tests:       2 failed, 40 passed, 42 total", "test_failure"),
    other("outcome", "cargo test", 101, "test result: FAILED. 3 passed; 1 failed; 0 ignored", "test_failure"),
    other("outcome", "mise run test:ci", 1, "[test] go test ./...\nFAIL\n[test] ERROR task failed", "test_failure"),
    other("outcome", "go test ./... 2>&1 | tail -20", 0, "--- FAIL: TestGet (0.1s)\nFAIL\nFAIL\texample.com/api\t0.9s\nFAIL", "test_failure"),
    other("outcome", "pytest -q 2>&1 | tail -3", 0, "FAILED tests/test_b.py::test_x\n=== 1 failed, 3 passed in 0.1s ===", "test_failure"),
    other("outcome", "npx jest; echo done", 0, "Tests:       1 failed, 4 passed, 5 total\ndone", "test_failure"),
    other("outcome", "out=$(go test ./... | tail -3); echo \"$out\"", 0, "--- FAIL: TestA (0.0s)\nFAIL", "test_failure"),
    other("outcome", "golangci-lint run ./...", 1, "a.go:9:2: Error return value of `f` is not checked (errcheck)\n1 issues:\n* errcheck: 1", "compile_or_lint"),
    other("outcome", "npx tsc --noEmit", 2, "src/a.ts(28,2): error TS2739: Type '{}' is missing the following properties", "compile_or_lint"),
    other("outcome", "cargo build", 101, "error[E0425]: cannot find value `x` in this scope\nerror: could not compile `a`", "compile_or_lint"),
    other("outcome", "ruff check .", 1, "a.py:1:8: F401 `os` imported but unused\nFound 1 error.", "compile_or_lint"),
    other("outcome", "make build", 2, "cc -c a.c\na.c:3:1: error: unknown type name 'foo'\nmake: *** [a.o] Error 1", "compile_or_lint"),
    other("outcome", "golangci-lint run 2>&1 | tail", 0, "a.go:3:1: unused (deadcode)\n2 issues:\n* unused: 2", "compile_or_lint"),
    other("outcome", "mise run lint 2>&1 | head -50", 0, "a.go:7:1: cyclomatic complexity 22 (gocyclo)\n1 issues:\n* gocyclo: 1\n[lint] ERROR task failed", "compile_or_lint"),
    other("outcome", "go build ./... 2>&1 | head", 0, "# pkg\n./a.go:12:5: undefined: foo", "compile_or_lint"),
    other("outcome", "git commit -m x", 1, "husky - pre-commit script failed (code 1)", "compile_or_lint"),
    m("go test ./e2e 2>&1 | tail -80", 0, "go: cannot find main module, but found .git/config in /w\n\tto create a module there, run:\n\tgo mod init", "usage_error"),
    m("golangci-lint run --out-format=tab 2>&1 | head -5", 0, "Error: unknown flag: --out-format\nThe command is terminated due to an error: unknown flag: --out-format", "usage_error"),
    # programs of its own
    other("outcome", "cat > reproduce.py <<'E'\nimport app\napp.run(0)\nE\npython reproduce.py", 1, "Traceback (most recent call last):\n  File \"/w/reproduce.py\", line 2, in <module>\n  File \"/w/app.py\", line 9, in run\nZeroDivisionError: division by zero", "program_exception"),
    other("outcome", "node - <<'N'\nif (!text.includes('## Map')) throw new Error('missing Map section');\nN", 1, "[stdin]:1\n  throw new Error('missing Map section')\n\nError: missing Map section\n    at [stdin]:1:9", "program_exception"),
    other("outcome", "go build -o /tmp/app ./cmd/app && /tmp/app frob", 1, "Usage:\n  app [command]\n\nError: unknown command \"frob\" for \"app\"", "program_exception"),
    m("python3 -c \"import json; print(json.load(open('a.json'))['x'][0])\"", 1, "Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\nTypeError: 'NoneType' object is not subscriptable", "runtime_exception"),
    m("python3 -c \"print(undefinedname)\"", 1, "Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\nNameError: name 'undefinedname' is not defined", "runtime_exception"),
    # the environment
    other("env", "python3 -c \"import yaml\"", 1, "Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\nModuleNotFoundError: No module named 'yaml'", "dependency_missing"),
    other("env", "node index.js", 1, "Error: Cannot find module 'express'\nRequire stack:\n- /w/index.js\n    at Module._resolve (node:internal/modules/cjs/loader:1:2)", "dependency_missing"),
    other("env", "curl -sf https://example.invalid/x", 6, "curl: (6) Could not resolve host: example.invalid", "network_or_remote"),
    other("env", "docker ps", 1, "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", "network_or_remote"),
    other("env", "gh api repos/o/r/pulls/9/comments/1", 1, "gh: Not Found (HTTP 404)", "network_or_remote"),
    other("env", "gh pr checks 4", 8, "lint\tpass\t1m\thttps://example.com\ntest\tpending\t0\thttps://example.com", "nonzero_empty"),
    other("env", "mise run fmt", 1, "mise ERROR Config files in ~/cli/mise.toml are not trusted.\nTrust them with `mise trust`.", "permission_denied"),
    other("env", "mkdir /opt/x", 1, "mkdir: cannot create directory '/opt/x': Permission denied", "permission_denied"),
    other("env", "rg -n TODO src", 1, "", "nonzero_empty"),
    other("env", "bash tests/verify.sh", 1, "missing file: INSTALL.md", "nonzero_exit"),
    m("sleep 400 && curl localhost", 124, "", "timeout"),
    # of readers who did not know the rules
    other("env", "curl -s https://example.com/api | jq '.'", 5, "jq: parse error: Invalid numeric literal at line 1, column 10", "nonzero_exit"),
    other("env", "git pull --rebase && git push", 1, "ssh: connect to host example.com port 22: Operation timed out\nfatal: Could not read from remote repository.", "network_or_remote"),
    other("env", "git stash", 1, "error: could not write index", "nonzero_exit"),
    other("env", "node serve.js", 1, "Error: listen EPERM: operation not permitted 127.0.0.1\n    at Server.listen (node:net:2045:8)", "permission_denied"),
    other("unknown", "timeout 5 nc -zv db.example.com 6379", 124, "", "timeout"),
    other("env", "pwd && ls -la go/cmd/tool.go", 2, "/w/go\nls: cannot access 'go/cmd/tool.go': No such file or directory", "nonzero_empty"),
    other("outcome", "git commit -m x", 1, "error: Cannot find module 'q' from 'r'\nerror: script \"check\" exited with code 1", "compile_or_lint"),
    other("outcome", "npx markdownlint-cli2 docs/a.md 2>&1 | tail -9", 0, "Linting: 1 file\nSummary: 6 issues in 1 file", "compile_or_lint"),
    other("outcome", "npx playwright test a.spec.ts 2>&1 | tail -9", 0, "  1 failed\n    [chromium] > a.spec.ts\n  13 passed (43.1s)", "test_failure"),
    m("go build ./cmd/mcp", 127, "/bin/bash: line 1: go: command not found", "command_not_found"),
    other("unknown", "go run web.go 2>&1 | head -5", 127, "/bin/bash: line 1: head: command not found", "command_not_found"),
    m("psql -d a -c 'select x from y'", 1, "ERROR:  relation \"y\" does not exist", "usage_error"),
    m("grep -n foo src/gone.js | head -5", 0, "grep: src/gone.js: No such file or directory", "path_not_found"),
    m("sed -n 1,9p web/a.mjs", 2, "sed: can't read web/a.mjs: No such file or directory", "path_not_found", "/w/site", then="cd /w/site && sed -n 1,9p web/a.mjs"),
    m("cd client && npm run build", 1, "At line:1 char:29\nThe token '&&' is not a valid statement separator in this version.", "usage_error"),
    m("cd board; go test ./...", 1, "go: The term 'go' is not recognized as a name of a cmdlet, function, script file, or executable program.", "command_not_found"),
    m("grep -rn a app --include=*.py | head -4", 0, "(eval):1: no matches found: --include=*.py", "path_not_found"),
    other("outcome", "cd x; Invoke-Pester -Path a.Tests.ps1", 0, "Tests completed in 1.21s\nTests Passed: 0, Failed: 1", "test_failure"),
    # looks like a failure, is none
    m("pwsh ./scripts/Land.ps1 -Subject x", 1, "Land.ps1: A parameter cannot be found that matches parameter name 'Subject'.", "usage_error"),
    other("unknown", "command -v opencode; command -v ocv; ocv --version 2>/dev/null", 127, "/opt/homebrew/bin/opencode", "command_not_found"),
    ok("cat notes.md | head -40", 0, "--- FAIL: TestA is what the log says\nerror: nothing"),
    ok("git log --oneline -3", 0, "1a2b3c4 fix: No such file or directory on start\n5d6e7f8 error: handle EOF"),
    ok("go test ./... 2>&1 | tail -3", 0, "ok  \texample.com/a\t0.3s\nok  \texample.com/errors\t0.1s"),
    ok("gh pr diff 3 | head -20", 0, "+\tt.Fatal(\"unknown flag: --x\")\n+// FAIL"),
    ok("which yq || echo 'yq not available'", 0, "yq not found\nyq not available"),
)  # fmt: skip
"""Cases that any harness with a shell and exit codes can show."""

Tool = tuple[str, str, dict[str, object], bool, str, str, str, tuple[str, ...]]
P = "/w/src/app.go"

TOOLS: tuple[Tool, ...] = (
    # (harness, tool, arguments, failed, text, kind, blame, words)
    ("claude_code", "Read", {"file_path": P}, True, "<tool_use_error>File does not exist.</tool_use_error>", "path_not_found", "model", ()),
    ("claude_code", "Read", {"file_path": "/w/.golangci.yml"}, True, "<tool_use_error>File does not exist. Did you mean .golangci.yaml?</tool_use_error>", "path_not_found", "model", (".golangci.yaml",)),
    ("claude_code", "Grep", {"pattern": "x", "path": "/w/commands"}, True, "<tool_use_error>Path does not exist: /w/commands</tool_use_error>", "path_not_found", "model", ()),
    ("claude_code", "Read", {"file_path": "/w/logs"}, True, "EISDIR: illegal operation on a directory, read", "is_directory", "model", ()),
    ("claude_code", "Read", {"file_path": "/w/big.json"}, True, "File content (31616 tokens) exceeds maximum allowed tokens (25000). Please use offset and limit parameters to read specific portions of the file.", "output_limit", "model", ()),
    ("claude_code", "Read", {"file_path": "/w/big.json", "limit": 500}, True, "File content (24295 tokens) exceeds maximum allowed tokens (10000). Use offset and limit parameters to read specific portions of the file.", "output_limit", "model", ()),
    ("claude_code", "Edit", {"file_path": P, "old_string": "a", "new_string": "b"}, True, "<tool_use_error>String to replace not found in file.\nString: a</tool_use_error>", "edit_no_match", "model", ()),
    ("claude_code", "Edit", {"file_path": P, "old_string": "}", "new_string": "b"}, True, "<tool_use_error>Found 8 matches of the string to replace, but replace_all is false. To replace all occurrences, set replace_all to true.\nString: }</tool_use_error>", "edit_ambiguous", "model", ()),
    ("claude_code", "Edit", {"file_path": P, "old_string": "a", "new_string": "a"}, True, "<tool_use_error>No changes to make: old_string and new_string are exactly the same.</tool_use_error>", "edit_noop", "model", ()),
    ("claude_code", "Edit", {"file_path": P, "old_string": "a", "new_string": "b"}, True, "<tool_use_error>File has not been read yet. Read it first before writing to it.</tool_use_error>", "stale_read", "model", ()),
    ("claude_code", "Write", {"file_path": P, "content": "b"}, True, "<tool_use_error>File has been modified since read, either by the user or by a linter. Read it again before attempting to write it.</tool_use_error>", "stale_read", "model", ()),
    ("claude_code", "Skill", {"skill": "commit"}, True, "<tool_use_error>Unknown skill: commit</tool_use_error>", "tool_not_found", "model", ()),
    ("claude_code", "Task", {"subagent_type": "simplifier", "prompt": "x", "description": "y"}, True, "Agent type 'simplifier' not found. Available agents: Explore, Plan, code:simplifier, reviewer", "tool_not_found", "model", ()),
    ("claude_code", "TaskUpdate", {"taskId": "2", "status": "completed"}, True, "Task not found", "usage_error", "model", ()),
    ("claude_code", "mcp__tracker__create_issue", {"title": "x"}, True, "Argument Validation Error", "schema_validation", "model", ()),
    ("claude_code", "mcp__tracker__get_issue", {"id": "T-9"}, True, "Entity not found: Issue - Could not find referenced Issue.", "tool_error", "env", ()),
    ("claude_code", "Edit", {"file_path": P, "old_string": "a", "new_string": "b"}, True, "The user doesn't want to proceed with this tool use. The tool use was rejected.", "user_rejected", "user", ()),
    ("claude_code", "Bash", {"command": "ls"}, True, "<tool_use_error>Sibling tool call errored</tool_use_error>", "cancelled_sibling", "harness", ()),
    ("claude_code", "Bash", {"command": "rm -rf /w"}, True, "Permission to use Bash with command rm -rf /w has been denied.", "policy_denied", "harness", ()),
    ("claude_code", "Grep", {"pattern": "x"}, True, "spawn /opt/claude/vendor/ripgrep/rg ENOENT", "sandbox_unavailable", "harness", ()),
    ("codex", "apply_patch", {"input": "*** Begin Patch\n*** Update File: /w/a.toml\n*** Update File: /w/README.md\n*** End Patch"}, True, "apply_patch verification failed: Failed to read file to update /w/src/app.go: fs sandbox helper failed with status exit code: 1", "sandbox_unavailable", "harness", ()),
    ("codex", "apply_patch", {"input": "*** Begin Patch\n*** Update File: /w/a.toml\n*** Update File: /w/README.md\n*** End Patch"}, True, "apply_patch verification failed: Failed to find expected lines in /w/README.md:\nTesting is split:", "edit_no_match", "model", ()),
    ("codex", "apply_patch", {"input": "*** Begin Patch\n*** Update File: /w/a.sh\n*** End Patch"}, True, "apply_patch verification failed: invalid hunk at line 11, Unexpected line found in update hunk: 'x'. Every line should start with ' '", "format_error", "model", ()),
    ("codex", "write_file", {"path": "x"}, True, "unsupported call: write_file", "tool_not_found", "model", ()),
    ("codex", "exec_command", {"cmd": "rm x"}, True, "exec_command failed for `rm x`: rejected by user", "user_rejected", "user", ()),
    ("gemini", "replace", {"file_path": P, "old_string": "a", "new_string": "b"}, True, "Failed to edit, 0 occurrences found for old_string in /w/src/app.go. Original old_string was (a).", "edit_no_match", "model", ()),
    ("gemini", "read_file", {"file_path": "/w/none.md"}, True, "File not found: /w/none.md", "path_not_found", "model", ()),
    ("gemini", "write_file", {"file_path": P, "content": "b"}, True, "[Operation Cancelled] Reason: User did not allow tool call", "user_rejected", "user", ()),
    ("qwen_code", "edit", {"file_path": P, "old_string": "a", "new_string": "b"}, True, "Failed to edit, 0 occurrences found for old_string in /w/src/app.go.", "edit_no_match", "model", ()),
    ("qwen_code", "read_file", {"file_path": "/w/none.md"}, True, "File not found: /w/none.md", "path_not_found", "model", ()),
    ("pi", "edit", {"path": P, "oldText": "a", "newText": "b"}, True, "Could not find the exact text in /w/src/app.go. The old text must match exactly including all whitespace and newlines.", "edit_no_match", "model", ()),
    ("pi", "edit", {"path": P, "oldText": "a", "newText": "b"}, True, "Guard found oldText matches 3 locations in /w/src/app.go.", "edit_ambiguous", "model", ()),
    ("pi", "read", {"path": "/w/none.md"}, True, "ENOENT: no such file or directory, access '/w/none.md'", "path_not_found", "model", ()),
    ("opencode", "edit", {"filePath": P, "oldString": "a", "newString": "b"}, True, "Error: Could not find oldString in the file. It must match exactly, including whitespace, indentation, and line endings.", "edit_no_match", "model", ()),
    ("opencode", "read", {"filePath": "/w/none.md"}, True, "Error: File not found: /w/none.md", "path_not_found", "model", ()),
    ("opencode", "edit", {"filePath": P, "oldString": "a", "newString": "b"}, True, "Error: You must read file /w/src/app.go before overwriting it. Use the Read tool first", "stale_read", "model", ()),
    ("openhands_v1", "file_editor", {"command": "str_replace", "path": P, "old_str": "a", "new_str": "b"}, True, "No replacement was performed, old_str `a` did not appear verbatim in /w/src/app.go.", "edit_no_match", "model", ()),
    ("openhands_v1", "file_editor", {"command": "view", "path": "/w/none.md"}, True, "Invalid `path` parameter: /w/none.md. The path /w/none.md does not exist. Please provide a valid path.", "path_not_found", "model", ()),
    ("swe_agent", "bash", {"command": "edit 287:295\n x\nend_of_edit"}, False, "Your proposed edit has introduced new syntax error(s). Please understand the fixes and retry your edit commmand.\n\nERRORS:\n- E999 IndentationError: unexpected indent\n\nThis is how your edit would have looked if applied\n[File: /r/src/fields.py (900 lines total)]\n287: x", "edit_syntax_rejected", "model", ()),
    ("swe_agent", "str_replace_editor", {"command": "str_replace", "path": "/r/a.py", "old_str": "a", "new_str": "b"}, False, "No replacement was performed. Multiple occurrences of old_str `a` in lines [3, 9]. Please ensure it is unique", "edit_ambiguous", "model", ()),
    ("swe_agent", "str_replace_editor", {"command": "view", "path": "/r/none.py"}, False, "The path /r/none.py does not exist. Please provide a valid path.", "path_not_found", "model", ()),
    ("swe_agent", "str_replace_editor", {"command": "str_replace", "path": "/r/a.py", "old_str": "a", "new_str": "a"}, False, "No replacement was performed. `old_str` and `new_str` are the same.", "edit_noop", "model", ()),
)  # fmt: skip
"""Cases in one harness's own words."""
