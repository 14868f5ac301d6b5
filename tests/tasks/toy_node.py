"""A small JavaScript package without dependencies, tested by node's own test runner."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = """/** Keep letters, digits and spaces. */
function clean(text) {
  const kept = [...text].filter((one) => /[a-z0-9 ]/i.test(one));
  return kept.join("").trim();
}

/**
 * Return a text as it stands in an address.
 */
export function slug(text, separator = "-", limit = 0) {
  // words are joined by the separator
  const words = clean(text).toLowerCase().split(/\\s+/);
  let result = words.join(separator);
  if (limit > 0) {
    result = result.slice(0, limit);
  }
  return result;
}

export const title = (text) => text.split(" ").map((one) => one.charAt(0).toUpperCase() + one.slice(1)).join(" ");
"""
SPANS = """const UNITS = { s: 1, m: 60, h: 3600 };

/** Return the seconds of a text such as `1h30m`. */
export function seconds(text) {
  let total = 0;
  for (const [, number, unit] of text.matchAll(/(\\d+)([smh])/g)) {
    total += Number(number) * UNITS[unit];
  }
  if (total === 0) {
    throw new RangeError(`no span: ${text}`);
  }
  return total;
}

export class Clock {
  constructor(start) {
    this.now = start;
  }

  advance(text) {
    const before = this.now;
    this.now = before + seconds(text);
    return this.now;
  }
}
"""
TEST_WORDS = """import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { slug, title } from "../src/words.js";

describe("slug", () => {
  test("joins words", () => {
    assert.equal(slug("Hello, big World"), "hello-big-world");
  });
  test("cuts at a limit", () => {
    assert.equal(slug("hello world", "-", 5), "hello");
  });
});
test("a title has capitals", () => {
  assert.equal(title("one two"), "One Two");
});
"""
TEST_SPANS = """import assert from "node:assert/strict";
import { test } from "node:test";
import { Clock, seconds } from "../src/spans.js";

test("seconds of a span", () => {
  assert.equal(seconds("1h30m"), 5400);
});
test("no span is an error", () => {
  assert.throws(() => seconds("never"), RangeError);
});
test("a clock goes on", () => {
  assert.equal(new Clock(10).advance("5s"), 15);
});
"""
OTHERS = "\n".join(
    ['import assert from "node:assert/strict";', 'import { test } from "node:test";']
    + [f'test("unrelated {number}", () => assert.equal({number} + 1, {number + 1}));' for number in range(12)]
)


def write(folder: Path, **more: str) -> Path:
    """Write the package, with other files or other texts of its files by path."""
    manifest = {"name": "tiny-words", "version": "1.2.0", "type": "module", "license": "MIT",
                "scripts": {"test": "node --test"}}  # fmt: skip
    files = {
        "package.json": json.dumps(manifest, indent=2),
        "src/words.js": WORDS,
        "src/spans.js": SPANS,
        "test/words.test.js": TEST_WORDS,
        "test/spans.test.js": TEST_SPANS,
        "test/others.test.js": OTHERS,
        **more,
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder
