// Reports each test of node's test runner as one line of JSON: its file, its titles, how it ended and how long it took.
export default async function* reporter(source) {
  const titles = {};
  for await (const { type, data } of source) {
    if (type === "test:start") (titles[data.file] ??= [])[data.nesting] = data.name;
    if (type !== "test:pass" && type !== "test:fail") continue;
    if (data.details?.type === "suite") continue;
    const status = data.skip !== undefined || data.todo !== undefined ? "skipped" : type.slice(5) + "ed";
    const above = (titles[data.file] ?? []).slice(0, data.nesting);
    const why = String(data.details?.error?.cause?.message ?? data.details?.error?.message ?? "").slice(0, 300);
    const test = { file: data.file ?? "", titles: [...above, data.name], status, ms: data.details?.duration_ms ?? 0, why };
    yield JSON.stringify(test) + "\n";
  }
}
