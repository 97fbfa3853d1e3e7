// Views with one item at a time: the doubtful, what to label next, suspicious labels, the audit.

import { askName } from "./dialogs.js";
import { button, face, h, KEYS, number, percent, plural, refill, say, write } from "./parts.js";
import { GIVEN, NONE, OUTSIDER, OUTSIDER_NAME, PREDICTED } from "./store.js";

const AHEAD = 3; // items that are fetched before they are shown

class QueueView {
  constructor(store, { eyebrow, title, lead }) {
    this.store = store;
    this.row = -1;
    this.left = -1; // the item that something was said of last
    this.place = h("p", { className: "place", role: "status" });
    this.head = h("div", { className: "head" },
      h("div", {}, h("p", { className: "eyebrow" }, eyebrow), h("h1", {}, title), h("p", { className: "lead" }, lead)), this.place);
    this.stage = h("div", { className: "stage" });
    this.bar = h("div", { className: "actions", role: "toolbar", ariaLabel: "Decide" });
    this.element = h("section", { className: "view queue-view" }, this.head, this.stage, this.bar);
    this.names = [];
  }

  start() {
    this.update();
  }

  stop() {}

  // The queue as it stands; skipped items are at its end.
  queue() {
    let rows = this.rows();
    const { skipped } = this.store;
    if (skipped.size) rows = [...rows.filter((row) => !skipped.has(row)), ...[...skipped].filter((row) => rows.includes(row))];
    if (this.stays() && !rows.includes(this.row)) rows.splice(this.at, 0, this.row);
    return rows;
  }

  // An item that is looked at stays until something is said of it, even if a new fit would no longer show it here: else
  // an answer that is on its way would be lost.
  stays() {
    const { row } = this;
    return row >= 0 && row === this.shown && row !== this.left && !this.store.skipped.has(row) && this.undecided(row);
  }

  undecided(row) {
    return this.store.state.source[row] === PREDICTED;
  }

  // Go on with the same item where it is still in the queue, else with the one that stands in its place.
  update() {
    const rows = this.queue();
    const place = rows.indexOf(this.row);
    if (place < 0) this.at = Math.min(this.at ?? 0, Math.max(0, rows.length - 1));
    else this.at = place;
    this.show(rows[this.at] ?? -1, rows);
  }

  async show(row, rows = this.queue()) {
    if (row !== this.row) this.left = -1; // it may come back, by an undo, and then it is looked at anew
    this.row = row;
    this.place.textContent = rows.length ? `${number(rows.indexOf(row) + 1)} of ${number(rows.length)}` : "";
    if (row < 0) {
      this.shown = null;
      this.names = [];
      this.stage.replaceChildren(...this.nothing());
      this.bar.hidden = true;
      return;
    }
    this.bar.hidden = false;
    const detail = await this.store.detail(row).catch(() => null);
    if (this.row !== row || !detail) return;
    this.draw(detail);
    this.store.prefetch(rows.slice(this.at + 1, this.at + 1 + AHEAD));
  }

  draw(detail) {
    const { state, items } = this.store;
    const shares = new Map([...detail.classes, ...state.classes.map((name) => [name, 0])].reverse());
    const best = [...new Set([...detail.classes.map(([name]) => name), ...state.classes])];
    // While an item is looked at, its keys keep their meaning, whatever a new fit says.
    this.names = this.shown === detail.row ? [...new Set([...this.names, ...best])] : best;
    const fresh = this.shown !== detail.row;
    if (fresh) {
      this.offer = this.proposal();
      const text = items.kind === "texts" ? h("p", { className: "text" }, detail.text) : face(this.store, detail.row, { size: "large" });
      if (items.kind === "images") text.alt = detail.name;
      this.figure = h("figure", {}, text, h("figcaption", {}, detail.name));
      this.shown = detail.row;
    }
    if (fresh) this.lay();
    this.names.forEach((name, index) => this.share(name, shares.get(name) ?? 0, index));
    write(this.said, this.note());
    this.said.hidden = !this.note();
    this.neighbours(detail.near);
  }

  // The places of a new item. A new fit only changes what is in them, so that focus and scrolling stay.
  lay() {
    const held = this.list?.contains(document.activeElement);
    this.said = h("p", { className: "note" });
    this.list = h("div", { className: "choices", role: "group", ariaLabel: "Classes, the most probable first" });
    this.beside = h("h2", {}, "Nearest labelled items");
    this.nearest = h("ul", { className: `near ${this.store.items.kind}` });
    this.near = "";
    this.stage.replaceChildren(this.figure, h("div", { className: "beside" }, this.said, h("h2", {}, "Which class?"), this.list, this.beside, this.nearest));
    this.stage.scrollTop = 0;
    this.names.forEach((name, index) => this.list.append(this.choice(name, index)));
    if (held) this.list.firstElementChild?.focus({ preventScroll: true });
    this.actions();
  }

  choice(name, index) {
    const one = button(name, { key: KEYS[index], kind: "choice", onclick: () => this.choose(index) });
    one.append(h("i", { className: "share" }));
    one.insertBefore(h("span", { className: "percent" }), one.querySelector("kbd"));
    return one;
  }

  share(name, share, index) {
    if (index >= this.list.children.length) this.list.append(this.choice(name, index));
    const one = this.list.children[index];
    write(one.querySelector(".percent"), percent(share));
    one.lastChild.style.transform = `scaleX(${share})`;
  }

  neighbours(near) {
    const shown = JSON.stringify(near.map(({ row, label }) => [row, label]));
    if (shown === this.near) return;
    this.near = shown;
    this.beside.hidden = !near.length;
    this.nearest.replaceChildren(...near.map((one) => this.neighbour(one)));
  }

  neighbour(one) {
    const label = one.label === OUTSIDER_NAME ? "none of these" : one.label;
    const shown = face(this.store, one.row);
    if (this.store.items.kind === "images") shown.alt = this.store.items.names[one.row];
    return h("li", {}, shown, h("span", { className: "label" }, label));
  }

  note() {
    return "";
  }

  // What Enter accepts: a label, or null where there is none.
  proposal() {
    const code = this.store.state.label[this.row];
    return code >= 0 ? this.store.state.classes[code] : null;
  }

  accepting() {
    const name = this.offer;
    return name === null ? "Accept" : `Accept ${name === OUTSIDER_NAME ? "unknown" : name}`;
  }

  actions() {
    const proposal = this.offer;
    refill(this.bar, h("div", { className: "does" },
      button(this.accepting(), { key: "⏎", kind: "main", disabled: proposal === null, onclick: () => this.accept() }),
      button("Reject", { key: "x", disabled: proposal === null || proposal === OUTSIDER_NAME, onclick: () => this.reject() }),
      button("Unknown", { key: "u", onclick: () => this.unknown() }),
      button("New class", { key: "n", onclick: () => this.naming() }),
      button("Skip", { key: "␣", kind: "quiet", onclick: () => this.skip() })));
  }

  decide(decision) {
    if (this.row < 0 || this.shown !== this.row) return; // nothing is said of an item that is not seen
    const row = (this.left = this.row);
    this.store.details.delete(row);
    this.store.decide({ rows: [row], audit: this.audit, ...decision });
    const what = decision.label === OUTSIDER_NAME ? "none of the classes" : decision.label;
    say(decision.kind === "reject" ? `Not ${what}` : `Labelled ${what}`);
    this.update();
  }

  choose(index) {
    if (this.names[index] !== undefined) this.decide({ kind: "label", label: this.names[index] });
  }

  accept() {
    const label = this.offer;
    if (label !== null) this.decide({ kind: "label", label });
  }

  reject() {
    const label = this.offer;
    if (label !== null && label !== OUTSIDER_NAME) this.decide({ kind: "reject", label });
  }

  unknown() {
    this.decide({ kind: "label", label: OUTSIDER_NAME });
  }

  async naming() {
    const row = this.row;
    if (row < 0 || this.shown !== row) return;
    const name = await askName(this.store, { title: "Class by name", hint: "Of this item. A new name makes a new class." });
    if (name && this.row === row) this.decide({ kind: "label", label: name });
  }

  skip() {
    if (this.row < 0) return;
    this.store.skipped.delete(this.row);
    this.store.skipped.add(this.row);
    const rows = this.queue();
    this.show(rows[Math.min(this.at, rows.length - 1)] ?? -1, rows);
  }

  move(key) {
    const rows = this.queue();
    if (!rows.length) return;
    const step = key === "ArrowLeft" || key === "ArrowUp" ? -1 : 1;
    this.at = Math.min(Math.max(rows.indexOf(this.row) + step, 0), rows.length - 1);
    this.show(rows[this.at], rows);
  }

  selectAll() {}

  escape() {}

  nothing() {
    return [h("p", { className: "empty" }, this.store.unpredicted || "Nothing is left here.")];
  }
}

export class DoubtfulView extends QueueView {
  constructor(store) {
    super(store, { eyebrow: "One at a time", title: "Doubtful", lead: "The least certain predictions first." });
  }

  rows() {
    return this.store.doubtful();
  }
}

export class NextView extends QueueView {
  constructor(store) {
    super(store, { eyebrow: "One at a time", title: "Label next", lead: "Labels for these would help most." });
  }

  rows() {
    const { next, source } = this.store.state;
    return next.filter((row) => source[row] === PREDICTED);
  }

  nothing() {
    return [h("p", { className: "empty" }, this.store.state.busy || this.store.state.seeking ? "Looking for what to label next…" : "Nothing is left to label.")];
  }
}

export class SuspiciousView extends QueueView {
  constructor(store) {
    super(store, { eyebrow: "Given labels", title: "Suspicious", lead: "The other items contradict these labels. Nothing was changed." });
  }

  rows() {
    const { suspicious, source, label } = this.store.state;
    return suspicious.filter((one) => source[one.row] === GIVEN && label[one.row] === one.label).map((one) => one.row);
  }

  undecided(row) {
    return this.store.state.source[row] === GIVEN;
  }

  note() {
    const one = this.store.state.suspicious.find((each) => each.row === this.row);
    if (!one) return "";
    const { classes } = this.store.state;
    return `Labelled ${classes[one.label]}; without this label, ${classes[one.suggested]} has ${percent(one.probability)}.`;
  }

  accepting() {
    return `Keep ${this.offer}`;
  }

  nothing() {
    return [h("p", { className: "empty" }, this.store.unpredicted || "No given label looks wrong.")];
  }
}

export class AuditView extends QueueView {
  constructor(store) {
    super(store, { eyebrow: "Random items", title: "Audit", lead: "How right is what nobody has looked at? Items drawn at random tell; items of the other queues would not." });
    this.audit = true;
  }

  rows() {
    return this.store.state.audit.open.map(([row]) => row);
  }

  // The items of an audit are drawn once, whatever the fits say.
  undecided() {
    return false;
  }

  proposal() {
    const found = this.store.state.audit.open.find(([row]) => row === this.row);
    if (!found) return null;
    return found[1] >= 0 ? this.store.state.classes[found[1]] : found[1] === NONE || found[1] === OUTSIDER ? OUTSIDER_NAME : null;
  }

  note() {
    const name = this.proposal();
    return name === null ? "" : `Predicted: ${name === OUTSIDER_NAME ? "none of the classes" : name}.`;
  }

  accepting() {
    return "Right";
  }

  nothing() {
    const { audit, counts } = this.store.state;
    if (this.store.unpredicted) return [h("p", { className: "empty" }, this.store.unpredicted)];
    const open = counts.predicted + counts.unknown;
    const draw = button(audit.number ? "Draw again" : `Draw ${Math.min(50, open)} at random`, { kind: "main", disabled: !open || !this.store.state.classes.length, onclick: () => this.store.decide({ kind: "draw" }) });
    const words = audit.answered
      ? [h("p", { className: "figure-big" }, percent(audit.accuracy)),
        h("p", {}, `of ${plural(audit.answered, "item")} drawn at random were predicted right; 95 % interval ${percent(audit.interval[0])} to ${percent(audit.interval[1])}.`)]
      : [h("p", {}, `${number(open)} items are predicted and nobody has looked at them.`)];
    return [h("div", { className: "empty" }, words, h("p", {}, draw))];
  }
}
