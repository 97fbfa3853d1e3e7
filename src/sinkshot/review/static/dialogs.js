// Dialogs: the name of a class, and help.

import { button, h, kbd } from "./parts.js";

const LINES = [
  [["1", "…", "9", "0"], "label with the class of that number, and go on"],
  [["⏎", "a"], "accept: the prediction, the selected items, or all above the threshold"],
  [["x"], "reject: not this class"],
  [["u"], "unknown: none of the classes"],
  [["n"], "new class, or any class by its name"],
  [["␣"], "skip"],
  [["⌫", "Ctrl Z"], "undo, as far back as you like"],
  [["←", "↑", "→", "↓"], "move; with Shift, select"],
  [["Ctrl A"], "select all of a grid; Esc selects none"],
  [["/"], "search"],
  [["?"], "this help"],
];

function open(title, ...content) {
  const dialog = h("dialog", { ariaLabel: title }, h("h2", { tabIndex: -1, autofocus: true }, title), ...content);
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.showModal();
  return dialog;
}

export function help(file) {
  const rows = LINES.map(([keys, text]) => h("div", {}, h("dt", {}, keys.map(kbd)), h("dd", {}, text)));
  const close = button("Close", { key: "Esc", onclick: () => dialog.close() });
  const dialog = open(
    "Keys",
    h("dl", { className: "keys" }, rows),
    h("p", { className: "note" }, "Each decision is saved at once; labels are in ", h("code", {}, file), "."),
    h("p", { className: "ends" }, close),
  );
}

// Ask for the name of a class; the answer is null where the person changed their mind.
export function askName(store, { title, hint }) {
  return new Promise((answer) => {
    const list = h("datalist", { id: "known-classes" }, store.state.classes.map((name) => h("option", { value: name })));
    const input = h("input", { type: "text", maxLength: 200, autocomplete: "off", spellcheck: false });
    input.setAttribute("list", "known-classes");
    input.setAttribute("aria-label", "Name of the class");
    const problem = h("p", { className: "problem", role: "alert" });
    let name = null;
    const submit = (event) => {
      event.preventDefault();
      const typed = input.value.trim().replace(/\s+/g, " ");
      problem.textContent = fault(typed, store.state.classes);
      if (problem.textContent) return;
      name = typed;
      dialog.close();
    };
    const form = h("form", { onsubmit: submit }, input, list, problem,
      h("p", { className: "ends" },
        button("Cancel", { key: "Esc", kind: "quiet", onclick: () => dialog.close() }),
        h("button", { type: "submit", className: "button main" }, "Label ", kbd("⏎"))));
    const dialog = open(title, h("p", { className: "note" }, hint), form);
    dialog.addEventListener("close", () => answer(name));
    input.focus();
  });
}

function fault(name, classes) {
  if (!name) return "Type a name.";
  if (classes.includes(name)) return "";
  if (name.startsWith("_") || ["unknown", "-1"].includes(name.toLowerCase())) return `${name} has a meaning of its own; choose another name.`;
  return "";
}
