// What the page knows, and the line of decisions on their way to the disk.

export const NONE = -1; // no class: the item is unknown
export const OUTSIDER = -2; // a person said: none of the classes
export const PREDICTED = 0;
export const GIVEN = 1;
export const ACCEPTED = 2;
export const OUTSIDER_NAME = "_none";

const MOST_SURE = 1000; // in the column `sure`
const MOST_ITEMS = 20000; // of one decision; more are sent as several
const LONGEST_WAIT = 4000; // milliseconds between two tries
const LONGEST_ANSWER = 8000; // milliseconds after which a decision is sent again; the server knows it by its id
const KEPT = `waiting ${location.pathname}`; // decisions of this server that a reload interrupted

export class Store extends EventTarget {
  constructor() {
    super();
    this.items = null; // names, texts, kind
    this.state = null; // columns, queues, counts
    this.waiting = []; // decisions that are not on the disk yet
    this.acknowledged = 0; // the newest decision that the server has
    this.failing = 0; // requests in a row that the server did not answer
    this.refusal = ""; // why decisions cannot be saved now
    this.details = new Map(); // row -> promise of what is known of it
    this.ahead = []; // rows to prefetch
    this.prefetching = false;
    this.skipped = new Set();
    this.fetching = false;
    this.newest = ""; // version that the server told last
  }

  async open() {
    [this.items, this.state] = await Promise.all([ask("items"), ask("state")]);
    this.listen();
    document.addEventListener("visibilitychange", () => (document.hidden ? this.source.close() : this.listen()));
    window.addEventListener("online", () => this.listen());
    window.addEventListener("pagehide", () => keep(this.waiting));
    this.waiting = kept();
    if (this.waiting.length) this.drain();
  }

  // Why there are no predictions, or nothing where there are some.
  get unpredicted() {
    const { fit, busy, classes } = this.state;
    if (fit.number) return "";
    return busy || classes.length ? "The first predictions are being made…" : "There are no predictions yet. Label a few items first.";
  }

  // Whether the page shows all that was decided here.
  get settled() {
    return !this.waiting.length && !(this.acknowledged > this.state.version[0]);
  }

  // Server-sent events say that something is new; hidden tabs let go of their connection.
  listen() {
    this.source?.close();
    this.source = new EventSource("events");
    this.source.onmessage = (event) => {
      const { version, ...status } = JSON.parse(event.data);
      this.newest = JSON.stringify(version);
      Object.assign(this.state, status);
      this.reached();
      this.tell("status");
      this.refresh();
    };
    this.source.onerror = () => {
      this.unreached();
      if (this.source.readyState === EventSource.CLOSED) setTimeout(() => !document.hidden && this.listen(), LONGEST_WAIT);
    };
  }

  reached() {
    if (this.failing) {
      this.failing = 0;
      this.tell("connection");
    }
  }

  unreached() {
    this.failing += 1;
    this.tell("connection");
  }

  // Whether the server knows more than the page shows.
  get behind() {
    return this.newest !== "" && this.newest !== JSON.stringify(this.state.version);
  }

  tell(kind) {
    this.dispatchEvent(new CustomEvent("change", { detail: kind }));
  }

  async refresh() {
    if (this.fetching || this.waiting.length || !this.behind) return;
    this.fetching = true;
    try {
      const fresh = await ask("state");
      if (!this.waiting.length && fresh.version[0] >= this.acknowledged) {
        if (fresh.fit.number !== this.state.fit.number) this.details.clear();
        this.state = fresh;
        this.tell("state");
      }
    } catch {
      this.unreached();
    } finally {
      this.fetching = false;
    }
    if (!this.waiting.length && this.behind) setTimeout(() => this.refresh(), 60);
  }

  // A decision counts on the page at once, and is said to be saved once the server has it on the disk.
  decide(decision) {
    const { rows = [], label } = decision;
    if (decision.kind === "label" || decision.kind === "reject") {
      const parts = [];
      for (let at = 0; at < rows.length; at += MOST_ITEMS) parts.push(rows.slice(at, at + MOST_ITEMS));
      for (const items of parts) this.send({ kind: decision.kind, items, label, audit: decision.audit === true });
      this.apply(decision);
    } else {
      this.send({ kind: decision.kind, ...(decision.of ? { of: decision.of } : {}) });
    }
    this.tell("decision");
  }

  send(body) {
    this.waiting.push({ ...body, id: crypto.randomUUID() });
    if (this.waiting.length === 1) this.drain();
  }

  async drain() {
    while (this.waiting.length) {
      const begin = performance.now();
      let answer;
      let refusal = "";
      try {
        answer = await fetch("decisions", {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify(this.waiting[0]),
          signal: AbortSignal.timeout(LONGEST_ANSWER),
        });
        if (answer.status >= 500) {
          refusal = (await answer.json().catch(() => ({}))).error ?? "";
          throw new Error("full disk, busy or ending");
        }
      } catch (error) {
        this.refusal = refusal;
        if (error.name === "TimeoutError") this.failing += 2;
        this.unreached();
        await new Promise((done) => setTimeout(done, Math.min(LONGEST_WAIT, 250 * 2 ** Math.min(this.failing, 5))));
        continue;
      }
      performance.measure("decision", { start: begin, end: performance.now() });
      this.refusal = "";
      this.reached();
      const told = await answer.json().catch(() => ({}));
      if (answer.ok) this.acknowledged = Math.max(this.acknowledged, told.number);
      else {
        this.dispatchEvent(new CustomEvent("refused", { detail: told.error || "the server refused it." }));
        this.state.version = [];
      }
      this.waiting.shift();
      this.tell("saved");
    }
    this.refresh();
  }

  apply({ kind, rows, label, audit }) {
    const state = this.state;
    const code = label === OUTSIDER_NAME ? OUTSIDER : this.code(label);
    for (const row of rows) {
      if (kind === "label") {
        state.label[row] = code;
        state.source[row] = ACCEPTED;
        state.sure[row] = MOST_SURE;
      } else if (state.label[row] === code) {
        state.label[row] = state.second[row];
        state.source[row] = PREDICTED;
        state.sure[row] = Math.min(state.sure[row], MOST_SURE - state.sure[row]);
      }
      this.skipped.delete(row);
    }
    if (audit) state.audit.open = state.audit.open.filter(([row]) => !rows.includes(row));
    this.count();
  }

  code(label) {
    const known = this.state.classes.indexOf(label);
    return known < 0 ? this.state.classes.push(label) - 1 : known;
  }

  count() {
    const { label, source } = this.state;
    const counts = { given: 0, accepted: 0, predicted: 0, unknown: 0 };
    for (let row = 0; row < label.length; row++) {
      if (source[row] === GIVEN) counts.given++;
      else if (source[row] === ACCEPTED) counts.accepted++;
      else if (label[row] === NONE) counts.unknown++;
      else counts.predicted++;
    }
    this.state.counts = counts;
  }

  detail(row) {
    if (!this.details.has(row)) {
      const promise = ask(`item/${row}`);
      promise.catch(() => this.details.delete(row));
      this.details.set(row, promise);
    }
    return this.details.get(row);
  }

  // Fetch what is likely to be asked for next, one thing at a time: browsers have six connections to a server, and a
  // decision must not wait for one.
  async prefetch(rows) {
    this.ahead = rows;
    if (this.prefetching) return;
    this.prefetching = true;
    while (this.ahead.length) {
      const row = this.ahead.shift();
      await this.detail(row).catch(() => {});
      if (this.items.kind === "images") await loaded(`picture/large/${row}`);
    }
    this.prefetching = false;
  }

  className(code) {
    return code >= 0 ? this.state.classes[code] : code === OUTSIDER ? "none of these" : "unknown";
  }

  // Rows that nobody decided about, of one class (or NONE), the surest first.
  predicted(code) {
    const { label, source, sure } = this.state;
    const rows = [];
    for (let row = 0; row < label.length; row++) if (source[row] === PREDICTED && label[row] === code) rows.push(row);
    return sorted(rows, (row) => MOST_SURE - sure[row]);
  }

  doubtful() {
    const { label, source, sure } = this.state;
    const rows = [];
    for (let row = 0; row < label.length; row++) if (source[row] === PREDICTED && label[row] >= 0) rows.push(row);
    return sorted(rows, (row) => sure[row]);
  }

  // Number of items by class that nobody decided about, and of all.
  classCounts() {
    const { label, source, classes } = this.state;
    const open = new Array(classes.length).fill(0);
    const all = new Array(classes.length).fill(0);
    for (let row = 0; row < label.length; row++) {
      const code = label[row];
      if (code < 0) continue;
      all[code]++;
      if (source[row] === PREDICTED) open[code]++;
    }
    return { open, all };
  }
}

// Rows by a whole number from 0 to MOST_SURE, equal ones in their order. Counting is ten times as quick as comparing, and
// this is done at every key.
function sorted(rows, key) {
  const starts = new Uint32Array(MOST_SURE + 2);
  for (const row of rows) starts[key(row) + 1]++;
  for (let at = 1; at < starts.length; at++) starts[at] += starts[at - 1];
  const found = new Array(rows.length);
  for (const row of rows) found[starts[key(row)]++] = row;
  return found;
}

// Load a picture into the browser's cache, if it can be had.
function loaded(address) {
  const picture = new Image();
  picture.src = address;
  return new Promise((done) => {
    picture.onload = done;
    picture.onerror = done;
  });
}

// Decisions that are not saved when the page is left are sent after a reload.
function keep(waiting) {
  try {
    if (waiting.length) sessionStorage.setItem(KEPT, JSON.stringify(waiting));
  } catch {
    // without storage they are lost, as the browser's own question before leaving said
  }
}

function kept() {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
    sessionStorage.removeItem(KEPT);
    return found;
  } catch {
    return [];
  }
}

export async function ask(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  return answer.json();
}
