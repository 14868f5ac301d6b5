// The page's own behavior: moving, deciding, filtering, submitting. Markup comes escaped from the server; text that is
// fetched on demand is set as text. Everything shown is named by the address.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const body = document.body;
const ITEM = body.dataset.parameter;
const FILTERS = (body.dataset.filters || "").split(" ");
let place = new URLSearchParams(location.search);

// ----------------------------------------------------------------------------------------------------------- storage

// A page inside a frame of another site may have no storage: drafts then last as long as the page.
const memory = {};
const store = {
  get(key) {
    try { return JSON.parse(localStorage.getItem(key)); } catch { return memory[key] ?? null; }
  },
  set(key, value) {
    memory[key] = value;
    try { localStorage.setItem(key, JSON.stringify(value)); } catch { /* kept in memory */ }
  },
};
const DRAFTS = "composer-space-drafts";
const drafts = () => Object.assign(Object.create(null), store.get(DRAFTS) || {});
const UNDONE = "composer-space-undone";
let undone = store.get(UNDONE) || [];
function remember(decisions) { undone = decisions.slice(-100); store.set(UNDONE, undone); }

function setDraft(repo, id, draft) {
  const all = drafts();
  const own = Object.assign(Object.create(null), all[repo] || {});
  if (draft) own[id] = draft; else delete own[id];
  all[repo] = own;
  store.set(DRAFTS, all);
}

function toSubmit() {
  return Object.entries(drafts()).flatMap(([repo, own]) =>
    Object.entries(own).filter(([, draft]) => draft.verdict !== "skip").map(([id, draft]) => ({ repo, id, draft })));
}

// ----------------------------------------------------------------------------------------------------------- fetching

const cache = new Map();
let running = null;

async function ask(path, options = {}) {
  const response = await fetch(path, options);
  let answer = null;
  try { answer = await response.json(); } catch { /* not JSON */ }
  if (!response.ok || !answer) throw new Error(answer?.error || `The server answered ${response.status}.`);
  return answer;
}

function partAddress(parameters, want) {
  const asked = new URLSearchParams(parameters);
  asked.set("want", want);
  return `part?${asked}`;
}

function detailOf(id) {
  const asked = new URLSearchParams();
  for (const name of ["dataset", "revision", "view"]) if (place.get(name)) asked.set(name, place.get(name));
  asked.set(ITEM, id);
  // A blind reader sees everything of a pair that they have decided on.
  if (isDecided(id)) asked.set("decided", "yes");
  const address = partAddress(asked, "detail");
  if (!cache.has(address)) {
    cache.set(address, ask(address));
    cache.get(address).catch(() => cache.delete(address));
    if (cache.size > 24) cache.delete(cache.keys().next().value);
  }
  return cache.get(address);
}

function isDecided(id) {
  const draft = Object.values(drafts()).map((own) => own[id]).find(Boolean);
  return Boolean(draft) && draft.verdict !== "skip";
}

function complain(error) {
  const status = $("#status");
  status.textContent = error.message || String(error);
  status.hidden = false;
}

// -------------------------------------------------------------------------------------------------------------- moving

function visit(parameters, push = true) {
  place = parameters;
  const address = `${location.pathname}?${place}`;
  if (push) history.pushState(null, "", address); else history.replaceState(null, "", address);
}

async function go(parameters, { push = true, pick = "" } = {}) {
  running?.abort();
  running = new AbortController();
  const list = $("#list");
  list?.classList.add("busy");
  try {
    const answer = await ask(partAddress(parameters, "list"), { signal: running.signal });
    visit(parameters, push);
    $("#status").hidden = true;
    list.innerHTML = answer.list;
    list.scrollTop = 0;
    markFilters();
    markDrafts();
    const items = $$("[data-item]", list);
    const wanted = items.find((item) => item.dataset.item === place.get(ITEM));
    const next = pick === "last" ? items.at(-1) : wanted || items[0];
    if (next) await select(next.dataset.item, { open: false, focus: Boolean(pick) });
    else if (!place.get(ITEM)) {
      selected++;  // A detail that is still on its way belongs to the old list.
      $("#detail").replaceChildren();
    }
  } catch (error) {
    if (error.name !== "AbortError") complain(error);
  } finally {
    list?.classList.remove("busy");
  }
}

let selected = 0;
let shownAt = 0;
const revealed = new Set();  // pairs whose sides this reader has seen named
async function select(id, { open = true, push = false, focus = true } = {}) {
  const turn = ++selected;
  const parameters = new URLSearchParams(place);
  parameters.set(ITEM, id);
  parameters.delete("at");  // a page of another session
  visit(parameters, push);
  if (open) body.classList.add("open");
  markCurrent(id);
  const detail = $("#detail");
  const wait = setTimeout(() => detail.classList.add("busy"), 80);
  try {
    const answer = await detailOf(id);
    if (turn !== selected) return;
    detail.innerHTML = answer.detail;
    detail.scrollTop = 0;
    shownAt = performance.now();
    if ($("article.open", detail)) revealed.add(id);
    if (focus && !document.activeElement.closest("input, textarea, select, dialog")) detail.focus({ preventScroll: true });
    if (open && matchMedia("(max-width: 820px)").matches) scrollTo(0, 0);
    $("#status").hidden = true;
    markDrafts();
    for (const by of [1, 2]) {  // A reader may decide faster than a slow machine reads one pair.
      const next = neighbor(by);
      if (next) detailOf(next.dataset.item).catch(() => {});
    }
  } catch (error) {
    if (turn === selected) complain(error);
  } finally {
    clearTimeout(wait);
    if (turn === selected) detail.classList.remove("busy");
  }
}

function markCurrent(id) {
  const list = $("#list");
  for (const item of $$("[data-item]", list)) {
    if (item.dataset.item !== id) { item.removeAttribute("aria-current"); continue; }
    item.setAttribute("aria-current", "true");
    // scrollIntoView would move the whole page.
    const above = item.offsetTop - list.offsetTop - 40;
    const below = above + item.offsetHeight + 80 - list.clientHeight;
    if (list.scrollTop > above) list.scrollTop = above;
    else if (list.scrollTop < below) list.scrollTop = below;
  }
}

function neighbor(by) {
  const items = $$("#list [data-item]");
  const at = items.findIndex((item) => item.hasAttribute("aria-current"));
  return at < 0 ? items[0] : items[at + by];
}

async function move(by) {
  const next = neighbor(by);
  if (next) { await select(next.dataset.item); return true; }
  const link = $(`#list [rel=${by > 0 ? "next" : "prev"}][href]`);
  if (link) {
    await go(new URL(link.href).searchParams, { pick: by > 0 ? "first" : "last" });
    body.classList.add("open");
    return true;
  }
  const end = $("#detail [data-decided]");
  if (end) end.textContent += by > 0 ? " This is the last one of the list." : " This is the first one of the list.";
  return false;
}

// ------------------------------------------------------------------------------------------------------------- reading

// Keys that scroll reach the detail wherever the focus is, unless something in it takes them.
function scrolls(event) {
  const detail = $("#detail");
  const takes = event.key === " " ? "button, summary, pre, .scroll" : "pre, .scroll";
  if (matchMedia("(max-width: 820px)").matches || event.target.closest(takes)) return false;
  const screen = detail.clientHeight - 80;
  const by = { PageDown: screen, PageUp: -screen, " ": event.shiftKey ? -screen : screen, ArrowDown: 60, ArrowUp: -60 }[event.key];
  if (by === undefined && event.key !== "Home" && event.key !== "End") return false;
  if (by === undefined) detail.scrollTop = event.key === "Home" ? 0 : detail.scrollHeight;
  else detail.scrollTop += by;
  return true;
}

// Places where the sides differ: words that are marked, a screen's part from each other, and calls of one side.
function differences() {
  const found = [];
  for (const row of $$("#detail .diff .changed, #detail .diff .only")) {
    let last = -Infinity;
    const marks = $$("del, ins", row);
    for (const mark of marks.length ? marks : [row]) {
      const top = mark.getBoundingClientRect().top + (mark.closest("pre")?.scrollTop || 0);
      if (top - last > 160) { found.push(mark); last = top; }
    }
  }
  return found;
}

function jump(by) {
  const places = differences();
  const at = places.findIndex((one) => one.classList.contains("here"));
  for (const one of places) one.classList.remove("here");
  const next = places[at < 0 ? (by > 0 ? 0 : places.length - 1) : (at + by + places.length) % places.length];
  if (!next) return;
  next.classList.add("here");
  const pre = next.closest("pre");
  if (pre && pre.scrollHeight > pre.clientHeight) pre.scrollTop += next.getBoundingClientRect().top - pre.getBoundingClientRect().top - 40;
  const detail = $("#detail");
  const narrow = matchMedia("(max-width: 820px)").matches;
  const scroller = narrow ? document.scrollingElement : detail;
  scroller.scrollTop += next.getBoundingClientRect().top - (narrow ? 0 : detail.getBoundingClientRect().top) - scroller.clientHeight / 3;
}

async function toggleContext() {
  const button = $("#detail [data-context]");
  if (!button) { $("#detail [data-earlier]")?.click(); return; }
  const card = button.closest("section");
  const whole = card.classList.toggle("whole");
  button.setAttribute("aria-expanded", String(whole));
  button.firstChild.textContent = whole ? "Fold the messages " : `${button.dataset.context} `;
  for (const one of $$(".recent > details", card)) one.open = whole || "open" in one.dataset;
  const earlier = $(".earlier", card);
  earlier.hidden = !whole;
  if (whole && earlier.dataset.messages && !earlier.childElementCount) {
    try { earlier.innerHTML = (await ask(earlier.dataset.messages)).html; } catch (error) { complain(error); }
  }
}

// ------------------------------------------------------------------------------------------------------------ deciding

function current() {
  const holder = $("#detail [data-repo]");
  const article = $("#detail article");
  const id = article?.dataset.pair || article?.dataset.hint;
  return holder && id ? { repo: holder.dataset.repo, revision: holder.dataset.revision, id, article } : null;
}

async function decide(verdict, extra = {}) {
  if (verdict === "undo") return undo();
  const here = current();
  if (!here) return;
  if (verdict === "edit" && !extra.edited) return openEditor(here);
  if (verdict === "edit_hint" && !extra.edited_hint) return openHintEditor(here);
  if (verdict === "wrong_blame") extra = { blame: $("[data-blame]", here.article).value };
  const before = drafts()[here.repo]?.[here.id] || null;
  remember([...undone, { repo: here.repo, id: here.id, before, at: place.toString() }]);
  const note = $("[data-note]", here.article)?.value || "";
  const shuffle = here.article.dataset.shuffle;
  const seconds = Math.round((performance.now() - shownAt) / 100) / 10;
  const item = $("#list [aria-current]");
  const title = item?.dataset.item === here.id ? $$(".line", item).map((line) => line.textContent).join(" → ") : "";
  setDraft(here.repo, here.id, {
    verdict, note, title: title.slice(0, 160), revision: here.revision, trace_id: here.article.dataset.trace || "", shuffle,
    seen: revealed.has(here.id), ...extra,
  });
  count(here.repo, here.id, seconds);
  markDrafts();
  if (!await move(1) && shuffle !== undefined) await select(here.id);
  tellOutcome(here.id, verdict, shuffle);
}

// The work of one review: how many of its pairs are decided, and how long the rest takes at this pace.
const JOBS = "composer-space-job";
const SIZE = Number(body.dataset.reviewSize);

function count(repo, id, seconds) {
  const jobs = store.get(JOBS) || {};
  const done = Object.entries(jobs[repo] || {});
  jobs[repo] = { ...Object.fromEntries(done.length >= SIZE ? [] : done), [id]: seconds };
  store.set(JOBS, jobs);
}

function uncount(repo, id) {
  const jobs = store.get(JOBS) || {};
  delete jobs[repo]?.[id];
  store.set(JOBS, jobs);
}

function markProgress(repo) {
  const bar = $("#progress");
  const times = Object.values((store.get(JOBS) || {})[repo] || {}).sort((one, other) => one - other);
  const listed = Number($("#list [data-total]")?.dataset.total || 0);
  bar.hidden = body.dataset.view !== "pairs" || !listed;
  const total = Math.max(times.length, Math.min(SIZE, listed));
  $("progress", bar).max = Math.max(total, 1);
  $("progress", bar).value = times.length;
  const left = (total - times.length) * (times[times.length >> 1] || 0);
  const rest = times.length < 3 || total === times.length ? "" : left < 60 ? " · 1 min left" : ` · ${Math.round(left / 60)} min left`;
  $("span", bar).textContent = `${times.length} of ${total}${rest}`;
}

// What a blind reader decided on is named once they have moved on, and fetched so that one can look back.
async function tellOutcome(id, verdict, shuffle) {
  const last = $("#last");
  if (!last || shuffle === undefined || verdict === "skip") { if (last) last.textContent = ""; return; }
  try {
    const answer = await detailOf(id);
    const outcome = new DOMParser().parseFromString(answer.detail, "text/html").querySelector("article")?.dataset.outcome;
    revealed.add(id);
    if (isDecided(id)) last.textContent = `${MARKS[verdict]}: ${outcome || ""} k looks back, u undoes.`;
  } catch { last.textContent = ""; }
}

async function undo() {
  const last = undone.at(-1);
  if (!last) return;
  remember(undone.slice(0, -1));
  setDraft(last.repo, last.id, last.before);
  if (!last.before) uncount(last.repo, last.id);
  if ($("#last")) $("#last").textContent = "";
  const shown = $$("#list [data-item]").some((item) => item.dataset.item === last.id);
  if (shown) await select(last.id);
  else await go(new URLSearchParams(last.at));
  markDrafts();
}

const MARKS = { accept: "✓ accept", reject: "✗ reject", edit: "✎ edit", swap: "⇄ swap", skip: "– skip", first: "A is better", second: "B is better", good_hint: "✓ good hint",
  bad_hint: "✗ bad hint", edit_hint: "✎ edit hint", wrong_blame: "⚑ wrong blame" };

function markDrafts() {
  const all = drafts();
  const repo = $("#detail [data-repo]")?.dataset.repo || place.get("dataset") || body.dataset.dataset;
  const own = all[repo] || {};
  for (const mark of $$("#list [data-draft]")) mark.textContent = MARKS[own[mark.dataset.draft]?.verdict] || "";
  const here = current();
  if (here) {
    const draft = own[here.id];
    for (const button of $$("[data-verdict]", here.article)) {
      if (button.dataset.verdict !== "undo") {
        const pressed = button.dataset.verdict === draft?.verdict && (button.dataset.reason || "") === (draft?.reason || "");
        button.setAttribute("aria-pressed", String(pressed));
      } else button.disabled = undone.length === 0;
    }
    const note = $("[data-note]", here.article);
    if (note && draft?.note && !note.value) note.value = draft.note;
    $("[data-decided]", here.article).textContent = draft ? `${MARKS[draft.verdict] || ""} (draft)` : "";
    // Other verdicts would sway a reader who has not decided.
    const others = $("[data-others]", here.article);
    if (others) others.hidden = !draft || draft.verdict === "skip";
  }
  const num = toSubmit().length;
  $("[data-count]").textContent = String(num);
  $("#submit").disabled = num === 0;
  markProgress(repo);
}

// The characters of inspector/characters.py. As escapes of JSON they are seen, and the values stay as they are.
const HIDDEN = /[\p{Default_Ignorable_Code_Point}\p{Cs}\p{Zl}\p{Zp}\ufff9-\ufffb\u{13430}-\u{1343f}\u2800\u{16fe4}\u{1d159}]|(?![\n\t])\p{Cc}/gu;
const spelledOut = (json) => json.replace(HIDDEN, (character) => Array.from({ length: character.length }, (_, at) =>
  `\\u${character.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""));

function openEditor(here) {
  const draft = drafts()[here.repo]?.[here.id];
  $("#edited").value = draft?.edited ? spelledOut(JSON.stringify(draft.edited, null, 2)) : startingEdit("shuffle" in here.article.dataset ? "first" : "second");
  $("#edit-error").textContent = "";
  $("#editor").showModal();
}

function startingEdit(side) { return current()?.article.dataset[side] || "[]"; }

function saveEdit() {
  let calls = null;
  try { calls = JSON.parse($("#edited").value); } catch (error) { $("#edit-error").textContent = spelledOut(`This is not JSON: ${error.message}`); return; }
  const good = Array.isArray(calls) && calls.length > 0 && calls.every((call) => call && typeof call.name === "string" && call.name
    && call.arguments && typeof call.arguments === "object" && !Array.isArray(call.arguments));
  if (!good) { $("#edit-error").textContent = "Write a list of calls, each with a name and an object of arguments."; return; }
  $("#editor").close();
  decide("edit", { edited: calls });
}

function openHintEditor(here) {
  $("#edited-hint").value = drafts()[here.repo]?.[here.id]?.edited_hint || here.article.dataset.text || "";
  $("#hint-error").textContent = "";
  $("#hint-editor").showModal();
}

function saveHint() {
  const text = $("#edited-hint").value.trim();
  if (!text) { $("#hint-error").textContent = "Write the hint, or decide that it is a bad one."; return; }
  $("#hint-editor").close();
  decide("edit_hint", { edited_hint: text });
}

// ---------------------------------------------------------------------------------------------------------- submitting

function openSubmission() {
  const holder = $("#drafts");
  const found = toSubmit();
  holder.replaceChildren();
  $("#sent").textContent = "";
  $("#send").disabled = found.length === 0;
  for (const repo of new Set(found.map((one) => one.repo))) {
    const own = found.filter((one) => one.repo === repo);
    holder.append(element("p", `${own.length} verdicts on ${repo}: one pull request, under your own name.`));
    const list = element("ul");
    for (const { id, draft } of own.slice(0, 200)) {
      const item = element("li");
      const remove = element("button", "Remove");
      remove.type = "button";
      remove.addEventListener("click", () => { setDraft(repo, id, null); item.remove(); markDrafts(); });
      item.append(element("span", `${draft.title || id}${draft.note ? ` · ${draft.note}` : ""}`), element("b", MARKS[draft.verdict] || draft.verdict), remove);
      list.append(item);
    }
    holder.append(list);
    if (own.length > 200) holder.append(element("p", `and ${own.length - 200} more`));
  }
  $("#submission").showModal();
}

function element(name, text = "") {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

async function send() {
  const found = toSubmit();
  const sent = $("#sent");
  $("#send").disabled = true;
  sent.textContent = "Opening…";
  try {
    const done = [];
    for (const repo of new Set(found.map((one) => one.repo))) {
      // The server takes a thousand verdicts at a time.
      const own = found.filter((one) => one.repo === repo);
      for (let at = 0; at < own.length; at += 1000) {
        const some = own.slice(at, at + 1000);
        const answer = await ask("verdicts", {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ dataset: repo, revision: some[0].draft.revision, verdicts: some.map(({ id, draft }) => ({ ...draft, id })) }),
        });
        for (const { id } of some) setDraft(repo, id, null);
        done.push(answer);
      }
    }
    sent.replaceChildren(...done.flatMap((answer) => {
      const link = element("a", `pull request #${answer.num}`);
      if (/^https?:\/\//.test(answer.url)) link.href = answer.url;
      link.target = "_blank";
      link.rel = "noopener";
      return [element("span", `${answer.count} verdicts of ${answer.reviewer} are in `), link, element("span", ". ")];
    }));
    $("#drafts").replaceChildren();
    remember([]);
    cache.clear();
  } catch (error) {
    sent.textContent = error.message;
    $("#send").disabled = false;
  }
  markDrafts();
}

// ----------------------------------------------------------------------------------------------------------- filtering

function markFilters() {
  const active = FILTERS.filter((name) => place.get(name)).length;
  const mark = $("[data-active]");
  if (mark) mark.textContent = active ? String(active) : "";
}

async function fillPanel() {
  const panel = $("#filters");
  if (!panel || panel.childElementCount) return;
  try { panel.innerHTML = (await ask(`filters?${place}`)).html; } catch (error) { complain(error); }
}

let typing = 0;
function filter() {
  const parameters = new URLSearchParams(place);
  for (const name of ["page", ITEM]) parameters.delete(name);
  for (const [name, value] of new FormData($("#form"))) {
    if (value) parameters.set(name, value); else parameters.delete(name);
  }
  go(parameters, { push: false });
}

// ------------------------------------------------------------------------------------------------------------ on demand

async function showMore(button) {
  button.disabled = true;
  const target = $("pre", button.parentElement);
  try {
    const answer = await ask(`${button.dataset.more}&offset=${button.dataset.at}`);
    target.hidden = false;
    target.append(answer.text);
    if (answer.next == null) button.remove();
    else { button.dataset.at = answer.next; button.textContent = "Show more"; button.disabled = false; }
  } catch (error) { complain(error); button.disabled = false; }
}

async function showEarlier(button) {
  button.disabled = true;
  try {
    const { html } = await ask(button.dataset.earlier);
    if (!button.closest(".earlier")) $(".earlier", button.closest("li, section")).innerHTML = html;
    button.outerHTML = button.closest(".earlier") ? html : "";
  } catch (error) { complain(error); button.disabled = false; }
}

function showPrompt(which) {
  const card = $("#detail .prompt");
  if (!card) return;
  const next = which || (card.classList.contains("student") ? "teacher" : "student");
  card.classList.toggle("student", next === "student");
  for (const button of $$("[data-prompt]", card)) button.setAttribute("aria-pressed", String(button.dataset.prompt === next));
}

// --------------------------------------------------------------------------------------------------------------- events

document.addEventListener("click", (event) => {
  const target = event.target.closest("a, button");
  if (!target || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const data = target.dataset;
  if (data.item) { event.preventDefault(); select(data.item, { push: true }); }
  else if ("go" in data && new URL(target.href).searchParams.get("view") !== body.dataset.view && new URL(target.href).searchParams.has("view")) return;
  else if ("go" in data) {
    event.preventDefault();
    const parameters = new URL(target.href).searchParams;
    $("#form")?.reset();
    for (const field of $$("#form [name]")) field.value = parameters.get(field.name) || "";
    go(parameters);
  }
  else if (data.verdict) decide(data.verdict, data.reason ? { reason: data.reason } : {});
  else if (data.more) showMore(target);
  else if (data.earlier) showEarlier(target);
  else if (data.prompt) showPrompt(data.prompt);
  else if (data.context) toggleContext();
  else if (data.start) $("#edited").value = startingEdit(data.start);
  else if ("unfold" in data) target.setAttribute("aria-expanded", String(target.closest(".verdict").classList.toggle("unfolded")));
  else if ("close" in data) target.closest("dialog").close();
  else if (target.id === "submit") openSubmission();
  else if (target.id === "send") send();
  else if (target.id === "save-edit") saveEdit();
  else if (target.id === "save-hint") saveHint();
  else if (target.id === "help-button") $("#help").showModal();
  else if (target.id === "guidelines-button") $("#guidelines").showModal();
  else if (target.id === "menu") target.setAttribute("aria-expanded", String(body.classList.toggle("menu")));
  else if (target.id === "back") body.classList.remove("open");
  else if (target.id === "theme") turnTheme();
});

document.addEventListener("input", (event) => {
  if (event.target.closest("#form") && event.target.matches("input")) { clearTimeout(typing); typing = setTimeout(filter, 160); }
  if (event.target.matches("[data-note]")) {
    const here = current();
    const draft = here && drafts()[here.repo]?.[here.id];
    if (draft) setDraft(here.repo, here.id, { ...draft, note: event.target.value });
  }
});

document.addEventListener("change", (event) => {
  if (event.target.matches("#form select")) filter();
  else if (event.target.matches("[data-place]")) {
    const parameters = new URLSearchParams();
    for (const name of ["dataset", "revision", "base", "view"]) if (place.get(name)) parameters.set(name, place.get(name));
    parameters.set("view", event.target.name === "base" ? "overview" : body.dataset.view);
    for (const picker of $$("[data-place]")) parameters.set(picker.name, picker.value);
    if (event.target.name === "dataset") for (const name of ["revision", "base", "view"]) parameters.delete(name);
    for (const [name, value] of [...parameters]) if (!value) parameters.delete(name);
    location.search = parameters;
  }
  else if (event.target.id === "keys-on") store.set("composer-space-keys", event.target.checked);
});

document.addEventListener("toggle", (event) => { if (event.target.id === "panel" && event.target.open) fillPanel(); }, true);
document.addEventListener("submit", (event) => { event.preventDefault(); filter(); });
window.addEventListener("popstate", () => location.reload());

document.addEventListener("keydown", (event) => {
  const typingIn = event.target.closest("input:not([type=checkbox]), textarea, select");
  if (typingIn) {
    if (event.key === "Escape") typingIn.blur();
    else if (event.key === "Enter" && typingIn.matches("[data-note]")) typingIn.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]") || store.get("composer-space-keys") === false) {
    return;
  }
  const moves = { j: () => move(1), k: () => move(-1), t: () => showPrompt(), "?": () => $("#help").showModal(),
    g: () => $("#guidelines").showModal(), c: toggleContext, d: () => jump(1), D: () => jump(-1),
    "/": () => $("#search")?.focus(),
    n: () => { $("#detail .verdict")?.classList.add("unfolded"); $("#detail [data-note]")?.focus(); },
    f: () => { const panel = $("#panel"); if (panel) panel.open = !panel.open; } };
  const button = $$("#detail [data-verdict]").find((one) => $("kbd", one)?.textContent === event.key);
  const run = Object.hasOwn(moves, event.key) ? moves[event.key] : button ? () => button.click() : null;
  if (run) { event.preventDefault(); run(); }
  else if (scrolls(event)) event.preventDefault();
});

// --------------------------------------------------------------------------------------------------------------- start

function turnTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  store.set("composer-space-theme", document.documentElement.dataset.theme);
}

const theme = store.get("composer-space-theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
if (ITEM && place.get(ITEM)) body.classList.add("open");
$("#keys-on").checked = store.get("composer-space-keys") !== false;
markFilters();
markDrafts();
start();

async function start() {
  const shown = $("#list [aria-current]");
  const wanted = place.get(ITEM) || shown?.dataset.item;
  if (ITEM && wanted && !$("#detail article")) {
    await select(wanted, { open: place.has(ITEM) });
  } else if (shown) markCurrent(shown.dataset.item);
  shownAt = performance.now();
  if (document.activeElement === body) $("#detail").focus({ preventScroll: true });
  body.dataset.ready = "yes";
}
