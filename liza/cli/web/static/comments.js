// Comments on lines of a diff. The box of the form has them all, a line each, and is what is sent;
// this script writes into it what was said about a line, and shows each comment below its line.
(() => {
  "use strict";
  const box = () => document.querySelector("textarea[name=comments]");
  const buttons = (table) => [...table.querySelectorAll("button[data-line]")];
  const comments = () => (box() ? box().value.split("\n").map((line) => line.trim()).filter(Boolean) : []);

  function make(tag, text, properties = {}) {
    const made = Object.assign(document.createElement(tag), properties);
    made.textContent = text;
    return made;
  }

  function clear() {
    for (const row of document.querySelectorAll("tr.said")) row.remove();
  }

  function show() {
    clear();
    const said = comments();
    for (const table of document.querySelectorAll("table[data-comments]")) {
      const all = buttons(table);
      all.forEach((button, place) => { button.tabIndex = place ? -1 : 0; });
      for (const comment of said) {
        const button = all.find((one) => comment.startsWith(`${table.dataset.comments}:${one.dataset.line}:`));
        if (!button) continue;
        const words = comment.slice(`${table.dataset.comments}:${button.dataset.line}:`.length);
        const row = make("tr", "", { className: "said" });
        row.append(make("td", "", { colSpan: 2 }), make("td", `you: ${words.trim()}`));
        let place = button.closest("tr");
        while (place.nextElementSibling && place.nextElementSibling.classList.contains("said")) place = place.nextElementSibling;
        place.after(row);
      }
    }
  }

  function write(file, line, words) {
    const flat = words.split(/\s+/).filter(Boolean).join(" ");
    if (!flat || !box()) return;
    box().value = [...comments(), `${file}:${line}:${flat}`].join("\n");
    show();
  }

  function ask(button) {
    const file = button.closest("table").dataset.comments;
    const { line } = button.dataset;
    const dialog = make("dialog", "", { className: "panel" });
    const form = make("form", "", { method: "dialog", className: "do" });
    const label = make("label", "");
    const text = make("textarea", "", { rows: 3, required: true });
    label.append(make("span", `A comment on ${file}, line ${line}`), text);
    const choices = make("div", "", { className: "forms" });
    const add = make("button", "Add the comment", { className: "go", value: "add" });
    choices.append(add, make("button", "Leave it", { value: "", formNoValidate: true }));
    form.append(make("pre", button.closest("tr").querySelector(".code").textContent, { className: "tail" }), label, choices);
    dialog.append(form);
    dialog.setAttribute("aria-label", "A comment on a line");
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (dialog.returnValue === "add") write(file, line, text.value);
      button.focus();
    });
    text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault(); // else the key would press the button that gets the focus back
      form.requestSubmit(add);
    });
    document.body.append(dialog);
    dialog.showModal();
    text.focus();
  }

  const steps = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-line]");
    if (button) ask(button);
  });
  document.addEventListener("keydown", (event) => {
    const button = event.target.closest("button[data-line]");
    const step = steps[event.key];
    if (!button || !step) return;
    const all = buttons(button.closest("table"));
    const next = all[all.indexOf(button) + step];
    if (!next) return;
    event.preventDefault();
    button.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  // Whoever accepts would lose what they wrote about lines.
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[action='/do/accept']") || !comments().length) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const said = "Your comments would be lost: reject the work to send them, or empty their box to accept it.";
    document.getElementById("toasts").replaceChildren(make("p", said, { className: "toast bad", role: "alert" }));
  }, true);
  document.addEventListener("input", (event) => { if (event.target === box()) show(); });
  document.addEventListener("reset", () => setTimeout(show));
  document.addEventListener("htmx:before:swap", clear);
  document.addEventListener("htmx:after:swap", show);
  show();
})();
