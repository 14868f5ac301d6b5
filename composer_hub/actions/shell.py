"""A shell command as a tree: text -> lists, pipelines, commands and words, quoting removed but never forgotten.

The grammar is the part of POSIX sh (with `|&`, `&>` and `<<<` of bash) that agents write: simple commands, pipes,
`&&`, `||`, `;`, `&`, subshells, groups, loops, `if`, redirections, heredocs, substitutions. Tests in `[[ ]]`, `case`,
functions and whatever else is not read with certainty raise `Unparsable`: the caller then compares the text as written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from composer_hub import exits
from composer_hub.actions.tree import Command, Compound, Group, Item, Part, Pipeline, Redirect, Simple, Word

MAX_CHARS = 100_000
MAX_DEPTH = 30

_OPERATOR_LIST = "&>> <<< <<- && || |& &> << >> <& >& <> >| ; & | ( ) > <"  # longer ones first
_REDIRECT_LIST = "&>> <<< <<- &> << >> <& >& <> >| > <"
OPERATORS = tuple(_OPERATOR_LIST.split())
REDIRECTS = frozenset(_REDIRECT_LIST.split())
_COMPOUND = "! { if then elif else fi for while until do done case esac select function coproc [[ time }"
KEYWORDS = frozenset(_COMPOUND.split())
_PLAIN = re.compile(r"[^\s'\"\\$`*?\[\]{}~|&;()<>]+")
_PLAIN_IN_QUOTES = re.compile(r'[^"\\$`]+')
_NAME = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*|[0-9?$!#@*-])")
_BRACED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*\+?=)")
_REST_OF_LINE = re.compile(r"(?:[^\n'\"\\`#]|(?<=\S)#|\\.|'[^']*'|\"[^\"\\]*\"|(?<!\S)#[^\n]*)*", re.DOTALL)
_BRACE_LIST = re.compile(r"\{[^{}]*(,|\.\.)[^{}]*\}")
_BRACKET = re.compile(r"\[.+\]", re.DOTALL)
IO_NUMBER = re.compile(r"[0-9]+(?=[<>])")
WORD_END = frozenset(" \t\n|&;()<>")


class Unparsable(exits.ComposerError, ValueError):
    """A shell text whose meaning is not certain."""


def parse_shell(text: str) -> tuple[Item, ...]:
    """Return the tree of a shell text; raise `Unparsable` if its meaning is not certain."""
    if len(text) > MAX_CHARS:
        raise Unparsable(f"The command has {len(text):,} characters; more than {MAX_CHARS:,} are compared as text.")
    reader = ShellReader(text)
    return reader.items()


class ShellReader:
    """Reads the text from left to right, one token ahead."""

    def __init__(self, text: str, depth: int = 0) -> None:
        self.text = text
        self.pos = 0
        self.depth = depth
        self.closed = ""  # the token that ended the last list

    # ------------------------------------------------------------------------------------------------ grammar

    def items(self, *closing: str) -> tuple[Item, ...]:
        """Read and-or lists until a closing token, which is consumed."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unparsable(f"The command nests deeper than {MAX_DEPTH} levels.")
        items: list[Item] = []
        while True:
            self._skip_newlines()
            if self._closes(closing):
                self.depth -= 1
                return tuple(items)
            items.append(self._item(in_subshell=closing == (")",)))

    def _closes(self, closing: Sequence[str]) -> bool:
        if not closing:
            return self.pos >= len(self.text)
        for token in closing:
            end = self.pos + len(token)
            # A keyword is a separate word.
            if self.text.startswith(token, self.pos) and (token == ")" or self.text[end : end + 1] in ("", *WORD_END)):
                self.pos, self.closed = end, token
                return True
        return False

    def _item(self, *, in_subshell: bool) -> Item:
        pipelines, operators = [self._pipeline()], []
        while (op := self._operator("&&", "||")) is not None:
            self._skip_newlines()
            operators.append(op)
            pipelines.append(self._pipeline())
        end = self._operator(";", "&")
        if end is None and self.peek() not in ("", "\n", ")" if in_subshell else ""):
            raise Unparsable("Something follows a command that is not an operator.")
        return Item(tuple(pipelines), tuple(operators), background=end == "&")

    def _pipeline(self) -> Pipeline:
        negated = False
        while self._bare_word("!"):
            negated = not negated
        commands, pipes = [self._command()], []
        while (op := self._operator("|&", "|")) is not None:
            self._skip_newlines()
            pipes.append(op)
            commands.append(self._command())
        return Pipeline(negated, tuple(commands), tuple(pipes))

    def _command(self) -> Command:
        self.peek()
        if self._operator("(") is not None:
            if self.text.startswith("(", self.pos):
                raise Unparsable("Arithmetic commands are not read.")
            return Group(True, self._some(self.items(")")), self._redirects())
        if self._bare_word("{"):
            return Group(False, self._some(self.items("}")), self._redirects())
        for keyword in ("for", "while", "until", "if"):
            if self._bare_word(keyword):
                return self._compound(keyword)
        if self._bare_word("[["):
            return self._test()
        return self._simple()

    def _test(self) -> Simple:
        """Read `[[ -f a ]]` as `test -f a`; an operator between two words may mean a pattern."""
        words: list[Word] = []
        while (word := self.word()) is not None and word.literal != "]]":
            words.append(word)
        unary = len(words) == 2 and words[0].bare and re.fullmatch(r"-[a-z]", words[0].literal or "")
        if word is None or not unary or any(part.kind != "lit" for part in words[1].parts):
            raise Unparsable("A test in [[ ]] with more than one operand is not read.")
        return Simple((), (Word((Part("lit", "test"),)), *words), self._redirects())

    def _compound(self, keyword: str) -> Compound:
        words: list[Word] = []
        bodies: list[tuple[str, tuple[Item, ...]]] = []
        if keyword == "for":
            while (word := self.word()) is not None:
                words.append(word)
            if len(words) < 2 or words[1].literal != "in" or not words[0].literal:
                raise Unparsable("A loop without a list is not read.")
            if self._operator(";") is None and self.peek() != "\n":
                raise Unparsable("The list of a loop does not end.")
            self._skip_newlines()
            if not self._closes(["do"]):
                raise Unparsable("A loop has no `do`.")
            return Compound(tuple(words), (("do", self._some(self.items("done"))),), self._redirects())
        if keyword != "if":
            bodies = [(keyword, self._some(self.items("do"))), ("do", self._some(self.items("done")))]
            return Compound((), tuple(bodies), self._redirects())
        while True:
            bodies.append((keyword, self._some(self.items("then") if keyword != "else" else self.items("fi"))))
            if keyword == "else":
                break
            bodies.append(("then", self._some(self.items("elif", "else", "fi"))))
            keyword = self.closed
            if keyword == "fi":
                break
        return Compound((), tuple(bodies), self._redirects())

    def _some(self, body: tuple[Item, ...]) -> tuple[Item, ...]:
        if not body:
            raise Unparsable("A group holds no command.")
        return body

    def _redirects(self) -> tuple[Redirect, ...]:
        redirects = []
        while (redirect := self._redirect()) is not None:
            redirects.append(redirect)
        return tuple(redirects)

    def _simple(self) -> Simple:
        assignments: list[Word] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            if (redirect := self._redirect()) is not None:
                redirects.append(redirect)
            elif (word := self.word()) is not None:
                (assignments if word.assignment and not words else words).append(word)
            else:
                break
        if words and words[0].bare and words[0].literal in KEYWORDS:
            raise Unparsable(f"`{words[0].literal}` starts a compound command.")
        if not (assignments or words or redirects):
            raise Unparsable("A command is missing.")
        if self.text.startswith("(", self.pos):
            raise Unparsable("Functions and arrays are not read.")
        return Simple(tuple(assignments), tuple(words), tuple(redirects))

    def _redirect(self) -> Redirect | None:
        self.peek()
        number = IO_NUMBER.match(self.text, self.pos)
        start = self.pos
        if number:
            self.pos = number.end()
        op = next((op for op in OPERATORS if op in REDIRECTS and self.text.startswith(op, self.pos)), None)
        if op is None:
            self.pos = start
            return None
        self.pos += len(op)
        if self.text.startswith("(", self.pos):
            raise Unparsable("Process substitution is not read.")
        target = self.word()
        if target is None:
            raise Unparsable("A redirection has no target.")
        fd = number.group() if number else ""
        return self._heredoc(fd, op, target) if op in ("<<", "<<-") else Redirect(fd, op, target)

    def _heredoc(self, fd: str, op: str, delimiter: Word) -> Redirect:
        """Take the body from after the current line; reading continues on that line."""
        name = delimiter.literal
        if name is None:
            raise Unparsable("A heredoc's delimiter is not plain text.")
        line_end = self._line_end()
        body, rest = _heredoc_body(self.text, line_end, name, tabs=op == "<<-")
        # The body is cut out of the text, so that what follows the line is read next.
        self.text = self.text[:line_end] + rest
        expands = delimiter.bare and any(char in body for char in "$`\\")
        return Redirect(fd, "<<", Word(()), body, expands)

    def _line_end(self) -> int:
        """Find the newline that ends the current line: the next one that no quote or backslash hides."""
        line = _REST_OF_LINE.match(self.text, self.pos)
        end = line.end() if line else self.pos
        if not self.text.startswith("\n", end) or "$(" in self.text[self.pos : end]:
            raise Unparsable("Where a heredoc's body begins is not certain.")
        return end

    # ------------------------------------------------------------------------------------------------- tokens

    def peek(self) -> str:
        """Skip blanks, continued lines and a comment; return the character that comes next."""
        while self.pos < len(self.text):
            char = self.text[self.pos]
            if char in " \t":
                self.pos += 1
            elif self.text.startswith("\\\n", self.pos):
                self.pos += 2
            elif char == "#":
                end = self.text.find("\n", self.pos)
                self.pos = len(self.text) if end < 0 else end
            else:
                return char
        return ""

    def _skip_newlines(self) -> None:
        while self.peek() == "\n":
            self.pos += 1

    def _operator(self, *wanted: str) -> str | None:
        self.peek()
        operator = next((op for op in OPERATORS if self.text.startswith(op, self.pos)), None)
        if operator not in wanted:
            return None
        if self.text.startswith(";;", self.pos):
            raise Unparsable("`;;` belongs to a case.")
        self.pos += len(operator)
        return operator

    def _bare_word(self, word: str) -> bool:
        self.peek()
        after = self.text[self.pos + len(word) : self.pos + len(word) + 1]
        if self.text.startswith(word, self.pos) and after in (" ", "\t", "\n"):
            self.pos += len(word)
            return True
        return False

    def word(self) -> Word | None:
        """Read the next word; None at an operator, a newline or the end."""
        char = self.peek()
        if not char or char in WORD_END:
            return None
        return _WordReader(self).read()


def _heredoc_body(text: str, line_end: int, name: str, *, tabs: bool) -> tuple[str, str]:
    """Return a heredoc's body and the text after it, which again starts with a newline."""
    lines: list[str] = []
    pos = line_end + 1
    while pos <= len(text):
        end = text.find("\n", pos)
        line = text[pos:] if end < 0 else text[pos:end]
        if tabs:
            line = line.lstrip("\t")
        if line == name:
            return "".join(f"{one}\n" for one in lines), "" if end < 0 else text[end:]
        lines.append(line)
        if end < 0:
            break
        pos = end + 1
    raise Unparsable(f"The heredoc is not closed by a line {name!r}.")


class _WordReader:
    """Reads one word: its text without the quotes, and what the shell would still expand in it."""

    def __init__(self, reader: ShellReader) -> None:
        self.reader = reader
        self.start = reader.pos
        self.parts: list[Part] = []
        self.mask = ""  # the word as read, quoted characters blanked out
        self.quoted = False
        self.empty_quotes = False

    def read(self) -> Word:
        while (char := self._char()) and char not in WORD_END:
            self._piece(char)
        assignment = _ASSIGNMENT.match(self.reader.text, self.start, self.reader.pos)
        return Word(self._finished(), not self.quoted, assignment.group() if assignment else "")

    def _char(self) -> str:
        return self.reader.text[self.reader.pos : self.reader.pos + 1]

    def _piece(self, char: str) -> None:
        if plain := _PLAIN.match(self.reader.text, self.reader.pos):
            self._take(plain.end(), "lit")
        elif char == "'":
            end = self._find("'", self.reader.pos + 1)
            self._quote(self.reader.text[self.reader.pos + 1 : end])
            self.reader.pos = end + 1
        elif char == '"':
            self._double_quotes()
        elif char == "\\":
            self._backslash()
        elif char in "$`":
            self._expansion("")
        elif char in "*?":
            self._take(self.reader.pos + 1, "glob")
        elif char == "~" and (not self.mask or self.mask[-1] in "=:"):
            self._take(self.reader.pos + 1, "tilde")
        else:
            self._take(self.reader.pos + 1, "lit")

    def _finished(self) -> tuple[Part, ...]:
        tilde = self.quoted and any(part.kind == "tilde" for part in self.parts)
        if tilde or _BRACE_LIST.search(self.mask) or _BRACKET.search(self.mask):
            # A quoted comma, dash or slash has another meaning there: only the spelling itself is safe.
            if any(not isinstance(part.value, str) for part in self.parts):
                raise Unparsable("Braces around a command substitution are not read.")
            return (Part("raw", self.reader.text[self.start : self.reader.pos]),)
        if self.empty_quotes and any(part.kind in ("var", "sub") for part in self.parts):
            self.parts.append(Part("null", ""))
        return tuple(_merged(self.parts))

    def _take(self, end: int, kind: str) -> None:
        text = self.reader.text[self.reader.pos : end]
        self.parts.append(Part(kind, text))
        self.mask += text
        self.reader.pos = end

    def _quote(self, text: str) -> None:
        self.quoted = True
        self.empty_quotes |= not text
        self.parts.append(Part("lit", text))
        self.mask += "\0" * len(text)

    def _find(self, closing: str, start: int) -> int:
        end = self.reader.text.find(closing, start)
        if end < 0:
            raise Unparsable(f"A {closing} is not closed.")
        return end

    def _backslash(self) -> None:
        after = self.reader.text[self.reader.pos + 1 : self.reader.pos + 2]
        self.reader.pos += 2
        if after != "\n":
            self._quote(after or "\\")
        elif self._char() not in ("", *WORD_END):
            # Together the two halves may form a keyword or an assignment.
            raise Unparsable("A line is continued inside a word.")

    def _double_quotes(self) -> None:
        self.quoted = True
        self.reader.pos += 1
        before = len(self.parts)
        while (char := self._char()) != '"':
            if not char:
                raise Unparsable('A " is not closed.')
            if plain := _PLAIN_IN_QUOTES.match(self.reader.text, self.reader.pos):
                self._quote(plain.group())
                self.reader.pos = plain.end()
            elif char == "\\":
                self._backslash_in_quotes()
            else:
                self._expansion("d")
        self.empty_quotes |= len(self.parts) == before
        self.reader.pos += 1

    def _backslash_in_quotes(self) -> None:
        after = self.reader.text[self.reader.pos + 1 : self.reader.pos + 2]
        self.reader.pos += 2
        if after != "\n":
            self._quote(after if after and after in '$`"\\' else "\\" + after)

    def _expansion(self, quotes: str) -> None:
        """Read an expansion, which begins with `$` or a backtick; `quotes` is "d" in double quotes."""
        text, pos = self.reader.text, self.reader.pos
        if text[pos] == "`":
            self._backticks(quotes)
        elif text.startswith("$((", pos):
            end = self._find("))", pos) + 2
            if text.count("(", pos, end) != text.count(")", pos, end) or set(text[pos:end]) & set("'\"`\\"):
                raise Unparsable("Nested arithmetic is not read.")
            self._expand(f"{quotes}arith", text[pos:end], end)
        elif text.startswith("$(", pos):
            self.reader.pos += 2
            body = self.reader.items(")")
            text_meant = _document(body) if quotes else None
            if text_meant is None:
                self._expand(f"{quotes}sub", body, self.reader.pos)
            else:
                self._quote(text_meant)
        elif braced := _BRACED.match(text, pos):
            self._expand(f"{quotes}var", f"${braced.group(1)}", braced.end())
        elif text.startswith("${", pos):
            end = self._closing_brace(pos + 2)
            self._expand(f"{quotes}var", text[pos:end], end)
        elif name := _NAME.match(text, pos):
            self._expand(f"{quotes}var", name.group(), name.end())
        elif not quotes and text[pos + 1 : pos + 2] in ("'", '"'):
            raise Unparsable("Strings in $'' are not read.")
        elif quotes:
            self._quote("$")
            self.reader.pos += 1
        else:
            self._take(pos + 1, "lit")

    def _expand(self, kind: str, value: str | tuple[Item, ...], end: int) -> None:
        self.parts.append(Part(kind, value))
        self.mask += "\0"
        self.reader.pos = end

    def _backticks(self, quotes: str) -> None:
        end = self._find("`", self.reader.pos + 1)
        inner = self.reader.text[self.reader.pos + 1 : end]
        if "\\" in inner or '"' in inner or "<<" in inner:
            raise Unparsable("Quoting inside backticks is not read.")
        body = ShellReader(inner, self.reader.depth).items()
        self._expand(f"{quotes}sub", body, end + 1)

    def _closing_brace(self, pos: int) -> int:
        """Find the end of `${…}`; quotes, escapes and commands inside are left to the shell."""
        depth = 1
        while depth:
            char = self.reader.text[pos : pos + 1]
            if not char or char in "'\"`\\\n" or self.reader.text.startswith("$(", pos):
                raise Unparsable("Quoting inside ${} is not read.")
            depth += {"{": 1, "}": -1}.get(char, 0)
            pos += 1
        return pos


def _document(body: Sequence[Item]) -> str | None:
    """Return the text of a lone `cat <<EOF` inside double quotes, which agents use for long messages."""
    command = body[0].pipelines[0].commands[0] if len(body) == 1 and len(body[0].pipelines) == 1 else None
    if not isinstance(command, Simple) or len(body[0].pipelines[0].commands) > 1 or body[0].background:
        return None
    if body[0].pipelines[0].negated or command.assignments or [word.literal for word in command.words] != ["cat"]:
        return None
    redirects = command.redirects
    plain = len(redirects) == 1 and redirects[0].op == "<<" and not redirects[0].expands and not redirects[0].fd
    return redirects[0].body.rstrip("\n") if plain else None


def _merged(parts: list[Part]) -> list[Part]:
    merged: list[Part] = []
    for part in parts:
        if part.kind == "lit" and merged and merged[-1].kind == "lit":
            merged[-1] = Part("lit", f"{merged[-1].value}{part.value}")
        elif part.kind != "lit" or part.value:
            merged.append(part)
    return merged
