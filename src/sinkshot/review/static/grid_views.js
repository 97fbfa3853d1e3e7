// Views that are grids: a predicted class, the unknown in groups, what a search found.

import { askName } from "./dialogs.js";
import { Grid } from "./grid.js";
import { button, h, KEYS, number, percent, plural, refill, say } from "./parts.js";
import { ask, NONE, OUTSIDER_NAME } from "./store.js";

const threshold = { value: 0.8 }; // of all class grids, as the person left it

// What the views of grids share: choosing items, and saying something about them.
class GridView {
  constructor(store, label) {
    this.store = store;
    this.grid = new Grid(store, { label, onchange: () => this.actions(), about: (row) => this.about(row) });
    this.bar = h("div", { className: "actions", role: "toolbar", ariaLabel: "Decide" });
    this.head = h("div", { className: "head" });
    this.empty = h("div", { className: "empty", hidden: true });
    this.element = h("section", { className: "view grid-view" }, this.head, this.empty, this.grid.element, this.bar);
  }

  start() {
    this.update();
    this.grid.focus();
  }

  stop() {
    this.grid.destroy();
  }

  about() {
    return {};
  }

  // Classes in the order of their numbers on the keyboard.
  choices() {
    return this.store.state.classes;
  }

  label(rows, label) {
    if (!rows.length) return;
    this.store.decide({ kind: "label", rows, label });
    const what = label === OUTSIDER_NAME ? "none of the classes" : label;
    say(`${plural(rows.length, "item")}: ${what}`);
    this.grid.selected.clear();
    this.update();
  }

  choose(index) {
    const name = this.choices()[index];
    if (name !== undefined) this.label(this.grid.chosen(), name);
  }

  unknown() {
    this.label(this.grid.chosen(), OUTSIDER_NAME);
  }

  async naming(rows = this.grid.chosen()) {
    if (!rows.length) return;
    const name = await askName(this.store, { title: "Class by name", hint: `For ${plural(rows.length, "item")}. A new name makes a new class.` });
    this.grid.focus();
    if (name) this.label(rows, name);
  }

  reject() {
    const rows = this.grid.chosen();
    const byLabel = new Map();
    for (const row of rows) {
      const code = this.store.state.label[row];
      if (code >= 0) byLabel.set(code, [...(byLabel.get(code) ?? []), row]);
    }
    for (const [code, some] of byLabel) this.store.decide({ kind: "reject", rows: some, label: this.store.state.classes[code] });
    if (byLabel.size) say(`${plural(rows.length, "item")} rejected`);
    this.grid.selected.clear();
    this.update();
  }

  rejectable() {
    return this.grid.chosen().some((row) => this.store.state.label[row] >= 0);
  }

  skip() {
    this.grid.move("ArrowRight", false);
  }

  move(key, extend) {
    this.grid.move(key, extend);
  }

  selectAll() {
    this.grid.selectAll();
  }

  escape() {
    this.grid.selectNone();
  }

  // The buttons below the grid, each with its key.
  actions() {
    const { grid } = this;
    const chosen = grid.chosen().length;
    const none = !grid.order.length;
    const classes = this.choices().slice(0, KEYS.length).map((name, index) =>
      button(name, { key: KEYS[index], kind: "class", disabled: none, onclick: () => this.choose(index) }));
    const picked = grid.selected.size;
    refill(
      this.bar,
      h("div", { className: "does" },
        this.main(),
        button("Reject", { key: "x", disabled: none || !this.rejectable(), onclick: () => this.reject() }),
        button("Unknown", { key: "u", disabled: none, onclick: () => this.unknown() }),
        button("New class", { key: "n", disabled: none, onclick: () => this.naming() }),
        button("Skip", { key: "␣", disabled: none, kind: "quiet", onclick: () => this.skip() }),
        picked
          ? button(`Clear ${number(picked)}`, { key: "Esc", kind: "quiet", onclick: () => this.escape() })
          : button("Select all", { key: "Ctrl A", kind: "quiet", disabled: none, onclick: () => this.selectAll() })),
      h("div", { className: "classes", role: "group", ariaLabel: `Label ${plural(chosen, "item")}` }, classes));
  }

  main() {
    const rows = this.grid.chosen().filter((row) => this.store.state.label[row] >= 0);
    return button(`Accept ${number(rows.length)}`, { key: "⏎", kind: "main", disabled: !rows.length, onclick: () => this.accept() });
  }

  // Accept what is predicted of the chosen items, class by class.
  accept() {
    const { state } = this.store;
    const byLabel = new Map();
    for (const row of this.grid.chosen()) {
      if (state.label[row] >= 0) byLabel.set(state.label[row], [...(byLabel.get(state.label[row]) ?? []), row]);
    }
    for (const [code, rows] of byLabel) this.label(rows, state.classes[code]);
  }

  place(nothing) {
    const none = !this.grid.order.length;
    this.empty.hidden = !none;
    this.grid.element.hidden = this.bar.hidden = none;
    if (none) this.empty.replaceChildren(h("p", {}, nothing));
    this.actions();
  }
}

export class ClassView extends GridView {
  constructor(store, name) {
    super(store, `${name}, predicted, the surest first`);
    this.name = name;
    this.count = h("p", { className: "lead" });
    this.range = h("input", { type: "range", min: 0, max: 100, step: 1, value: Math.round(100 * threshold.value), id: "threshold" });
    this.output = h("output", { htmlFor: "threshold" });
    this.range.addEventListener("input", () => {
      threshold.value = this.range.value / 100;
      this.grid.render(true);
      this.shown();
    });
    this.head.append(
      h("div", {}, h("p", { className: "eyebrow" }, "Predicted class"), h("h1", {}, name), this.count),
      h("div", { className: "threshold" }, h("label", { htmlFor: "threshold" }, "Accept if at least this sure"), this.output, this.range));
  }

  get code() {
    return this.store.state.classes.indexOf(this.name);
  }

  about(row) {
    return { above: this.store.state.sure[row] >= 1000 * threshold.value };
  }

  sure() {
    return this.grid.order.filter((row) => this.store.state.sure[row] >= 1000 * threshold.value);
  }

  // This class first, then those that are most often second here; the keys keep their meaning while the view is open.
  choices() {
    const best = this.ranked();
    if (this.grid.order.length || this.names) this.names = [...new Set([...(this.names ?? []), ...best])];
    return this.names ?? best;
  }

  ranked() {
    const { classes, second } = this.store.state;
    const times = new Array(classes.length).fill(0);
    for (const row of this.grid.order) if (second[row] >= 0) times[second[row]]++;
    times[this.code] = Infinity;
    return classes.map((_, code) => code).sort((a, b) => times[b] - times[a] || a - b).map((code) => classes[code]);
  }

  update() {
    this.grid.show([{ key: "all", rows: this.store.predicted(this.code) }]);
    const { all, open } = this.store.classCounts();
    const total = all[this.code] ?? 0;
    this.count.textContent = `${number(open[this.code] ?? 0)} to review, ${number(total - (open[this.code] ?? 0))} given or accepted. The surest come first.`;
    this.shown();
    this.place(this.store.unpredicted || `Nothing is left to review in ${this.name}.`);
  }

  shown() {
    this.output.textContent = percent(threshold.value);
    this.actions();
  }

  main() {
    const picked = this.grid.selected.size;
    const rows = picked || this.sure().length;
    return button(picked ? `Accept ${number(rows)} selected` : `Accept ${number(rows)}`, { key: "⏎", kind: "main", disabled: !rows, onclick: () => this.accept() });
  }

  accept() {
    this.label(this.grid.selected.size ? this.grid.chosen() : this.sure(), this.name);
  }
}

export class UnknownView extends GridView {
  constructor(store) {
    super(store, "Unknown items in groups of alike ones");
    this.count = h("p", { className: "lead" });
    this.head.append(h("div", {}, h("p", { className: "eyebrow" }, "None of the classes, as predicted"), h("h1", {}, "Unknown"), this.count));
  }

  update() {
    const { groups } = this.store.state;
    const rows = this.store.unpredicted ? [] : this.store.predicted(NONE);
    const left = new Set(rows);
    const sections = groups
      .map((group, index) => ({ key: `group-${index}`, rows: group.filter((row) => left.delete(row)) }))
      .filter((section) => section.rows.length);
    if (left.size) sections.push({ key: "rest", rows: [...left] });
    for (const [index, section] of sections.entries()) {
      section.key = `${section.key}-${section.rows.length}`;
      section.heading = () => [
        h("h2", {}, section.key.startsWith("rest") ? "Not grouped yet" : `Group ${index + 1}`, h("small", {}, plural(section.rows.length, "item"))),
        button("Name this group", { kind: "small", onclick: () => this.naming(section.rows) }),
        button("None of the classes", { kind: "small quiet", onclick: () => this.label(section.rows, OUTSIDER_NAME) }),
      ];
    }
    this.grid.show(sections);
    this.count.textContent = `${plural(rows.length, "item")} that may belong to no class, alike ones together. Select some and press n to make a class of them.`;
    this.place(this.store.unpredicted || "Every item seems to belong to one of the classes.");
  }

  main() {
    const rows = this.grid.chosen().length;
    return button(`Accept ${number(rows)} as unknown`, { key: "⏎", kind: "main", disabled: !rows, onclick: () => this.accept() });
  }

  accept() {
    this.unknown();
  }
}

export class SearchView extends GridView {
  constructor(store, query) {
    super(store, `Items that match ${query}`);
    this.query = query;
    this.rows = [];
    this.count = h("p", { className: "lead" });
    this.head.append(h("div", {}, h("p", { className: "eyebrow" }, "Search"), h("h1", {}, query), this.count));
    this.found = ask(`search?q=${encodeURIComponent(query)}`).catch(() => []);
    this.found.then((rows) => {
      this.rows = rows;
      this.update();
    });
  }

  about(row) {
    return { label: this.store.className(this.store.state.label[row]) };
  }

  update() {
    this.grid.show([{ key: "all", rows: this.rows }]);
    this.count.textContent = `${plural(this.rows.length, "item")} whose name, text or class has these words.`;
    this.place("No item has these words in its name or text.");
  }
}
