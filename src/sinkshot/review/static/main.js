// The page: which view is shown, keys, and what is told about saving.

import { help } from "./dialogs.js";
import { ClassView, SearchView, UnknownView } from "./grid_views.js";
import { HistoryView, words } from "./history_view.js";
import { KEYS, number, plural, say, write } from "./parts.js";
import { AuditView, DoubtfulView, NextView, SuspiciousView } from "./queue_views.js";
import { Sidebar } from "./sidebar.js";
import { Store } from "./store.js";

const QUEUES = { doubtful: DoubtfulView, next: NextView, unknown: UnknownView, suspicious: SuspiciousView, audit: AuditView, history: HistoryView };
const $ = (id) => document.getElementById(id);
const store = new Store();
let sidebar = null;
let view = null;
let address = "";

function open(where) {
  const [kind, rest = ""] = where.split(/\/(.*)/s);
  const text = decodeURIComponent(rest);
  if (kind === "class" && store.state.classes.includes(text)) return new ClassView(store, text);
  if (kind === "search" && text) return new SearchView(store, text);
  return new (QUEUES[kind] ?? QUEUES[first()])(store);
}

// Where a review begins: with the doubtful, or without predictions with what to label first.
const first = () => (store.state.counts.predicted ? "doubtful" : "next");

function route() {
  const where = (location.hash.startsWith("#/") && location.hash.slice(2)) || first();
  if (where === address) return;
  address = where;
  view?.stop();
  view = open(where);
  $("main").replaceChildren(view.element);
  view.start();
  if (document.activeElement?.closest("nav")) $("main").focus({ preventScroll: true }); // keys go to the items now
  document.title = `${view.element.querySelector("h1").textContent} · SinkShot review`;
  sidebar.update(address);
  closeMenu();
}

function closeMenu() {
  document.body.classList.remove("menu-open");
  $("menu").setAttribute("aria-expanded", "false");
}

function status() {
  const { state, waiting, failing, refusal } = store;
  const kind = waiting.length ? "saving" : state.busy || store.behind ? "busy" : "saved";
  $("state").textContent = { saving: `saving ${number(waiting.length)}`, busy: "saved, learning…", saved: "saved" }[kind];
  $("state").dataset.kind = kind;
  $("undo").disabled = !state.undo && store.settled;
  const trouble = refusal && waiting.length ? unsaved(refusal, waiting.length) : failing > 2 ? unanswered(waiting.length) : sentence(state.trouble);
  $("trouble").hidden = !trouble;
  write($("trouble"), trouble);
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function unsaved(refusal, count) {
  return `${sentence(refusal)} ${plural(count, "decision is", "decisions are")} not saved yet. Keep this page open: ${count === 1 ? "it is" : "they are"} sent again every few seconds.`;
}

function unanswered(count) {
  const waits = count ? `${plural(count, "decision is", "decisions are")} not saved yet; keep this page open, and ${count === 1 ? "it is" : "they are"} sent once the server is back.` : "All that you decided is saved.";
  return `The server does not answer. ${waits} If it has ended, start the same command again and open the address that it prints.`;
}

const act = {
  Enter: () => view.accept?.(),
  a: () => view.accept?.(),
  x: () => view.reject?.(),
  u: () => view.unknown?.(),
  n: () => view.naming?.(),
  " ": () => view.skip?.(),
  Backspace: undo,
  "/": () => $("query").focus(),
  "?": () => help(store.items.file),
  Escape: () => view.escape?.(),
};

function undo() {
  if (!store.state.undo && store.settled) return say("There is nothing to undo.");
  const last = store.settled ? store.state.undo : null; // else the server knows which decision is the last
  store.skipped.clear();
  store.decide({ kind: "undo", of: last?.number });
  say(last ? `Undone: ${words(last)}` : "Undone");
}

// Keys are silent while something is typed or a dialog is open; buttons and links keep Enter and space.
function onKey(event) {
  const target = event.target;
  if (document.querySelector("dialog[open]") || target.matches("input[type=search], input[type=text], textarea, select")) return;
  const { key } = event;
  if (event.ctrlKey || event.metaKey) {
    if (key.toLowerCase() === "z" && !event.shiftKey) return stop(event, undo);
    if (key.toLowerCase() === "a" && view.selectAll) return stop(event, () => view.selectAll());
    return;
  }
  if (event.altKey || !store.state) return;
  if ((key === "Enter" || key === " ") && target.matches("button, a")) return;
  const place = KEYS.indexOf(key);
  if (place >= 0 && view.choose) return stop(event, () => view.choose(place));
  if (key.startsWith("Arrow") && view.move) {
    if (target.matches("input[type=range]")) return;
    return stop(event, () => view.move(key, event.shiftKey));
  }
  const does = act[key] ?? act[key.toLowerCase()];
  if (does) stop(event, does);
}

function stop(event, does) {
  event.preventDefault();
  does();
}

function wire() {
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", route);
  window.addEventListener("beforeunload", (event) => store.waiting.length && event.preventDefault());
  store.addEventListener("change", ({ detail }) => {
    status();
    if (detail === "state" && !location.hash && store.state.fit.number === 1) route(); // the first predictions
    if (detail === "state" || (detail === "status" && view.row < 0)) view.update(); // an empty queue says what goes on
    document.body.dataset.fit = store.state.fit.number;
    if (detail === "state" || detail === "decision") sidebar.update(address);
  });
  store.addEventListener("refused", ({ detail }) => say(`Not saved: ${detail}`));
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address says which view is shown
    ($("main").querySelector("[role=listbox], .choice, button:enabled") ?? $("main")).focus();
  });
  $("undo").addEventListener("click", undo);
  $("help").addEventListener("click", () => help(store.items.file));
  $("menu").addEventListener("click", () => {
    const opened = document.body.classList.toggle("menu-open");
    $("menu").setAttribute("aria-expanded", String(opened));
  });
  $("find").addEventListener("submit", (event) => {
    event.preventDefault();
    const words = $("query").value.trim();
    $("query").blur();
    if (words) location.hash = `#/search/${encodeURIComponent(words)}`;
  });
  $("query").addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    $("query").value = "";
    $("query").blur();
  });
}

try {
  await store.open();
  sidebar = new Sidebar(store, $("side"));
  wire();
  route();
  status();
  document.body.dataset.fit = store.state.fit.number;
  document.body.dataset.ready = "true";
} catch (error) {
  $("main").textContent = `The page could not be loaded: ${error.message}`;
}
