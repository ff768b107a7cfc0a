// What is selected on the map: its cards, and what can be decided about all of it.
import { button, counted, fill, make, number } from "/static/dom.js";
import { picture } from "/static/results.js";
import { downloads, suggestions, word_field } from "/static/work.js";

const SHOWN = 48; // cards at a time

/** How often each value occurs, the most frequent first. */
const counts = (values) => {
  const held = new Map();
  for (const value of values) held.set(value, (held.get(value) ?? 0) + 1);
  return [...held].sort((a, b) => b[1] - a[1]);
};

/** The class of an item; crossed out where it is dropped, the new one where it has one. */
const class_now = (label, name, now) => {
  if (now.dropped) return make("bdi.gone", label ?? name, make("small", " dropped"));
  if (now.label === null || now.label === label) return make("bdi", label ?? name);
  return make("bdi", { title: `was ${label ?? "without class"}` }, make("b", `→ ${now.label}`));
};

export class Selection {
  items = [];
  shown = SHOWN;
  word = word_field("selection-word", "a class", "Class for the selection", "known-classes");

  constructor(place, work, context, clear) {
    Object.assign(this, { place, work, context });
    this.clear = () => {
      clear();
      this.show([]);
    };
    work.watchers.push(() => this.draw());
  }

  get ids() {
    return this.items.map(({ id }) => id);
  }

  show(items) {
    Object.assign(this, { items, shown: SHOWN });
    this.draw();
  }

  more() {
    this.shown += 2 * SHOWN;
    this.draw();
  }

  async name() {
    const word = this.word.value.trim();
    if (!word) this.word.focus();
    else if (await this.work.change(this.ids, word)) this.word.value = "";
  }

  draw() {
    const { place, items } = this;
    place.hidden = !items.length;
    if (!items.length) {
      place.replaceChildren();
      return;
    }
    const focused = document.activeElement === this.word;
    const context = this.context();
    fill(
      place,
      this.head(),
      this.deciding(context.classes),
      this.work.notices(),
      make(
        "ol.matches",
        items.slice(0, this.shown).map((item) => this.card(item, context)),
      ),
      items.length > this.shown &&
        make(
          "p.more",
          button("", () => this.more(), {}, `Show more of ${number(items.length)}`),
        ),
    );
    if (focused) this.word.focus();
  }

  head() {
    const labels = this.items.map(({ id, label }) => this.work.of(id).label ?? label ?? "no class");
    const kinds = counts(labels);
    const said = kinds.slice(0, 3).map(([label, count]) => `${label} ${number(count)}`);
    const more =
      kinds.length > 3 ? ` and ${counted(kinds.length - 3, "class", "classes")} more` : "";
    return make(
      "div.selection-head",
      make("h2", `${number(this.items.length)} selected`),
      make("p", { "aria-live": "polite" }, make("bdi", said.join(", ") + more)),
      button(".clear", this.clear, { "aria-label": "Select nothing" }, "✕"),
    );
  }

  deciding(classes) {
    const { work, ids } = this;
    const name = (event) => {
      event.preventDefault();
      this.name();
    };
    const drop = { ...work.changing, title: "Leave these out of the data" };
    this.word.disabled = !work.writable;
    return make(
      "form.deciding",
      { onsubmit: name },
      this.word,
      suggestions("known-classes", classes),
      make("button", { type: "submit", ...work.changing }, "Set class"),
      button(".warn", () => work.change(ids, ""), drop, "Drop"),
      button("", () => work.undo(), work.undoing, "Undo"),
      downloads(),
    );
  }

  card({ id, label }, context) {
    const name = `item ${id}`;
    const now = this.work.of(id);
    const events = {
      "aria-label": `Search from ${label ?? name}`,
      onpointerenter: () => context.point(id),
      onpointerleave: () => context.point(null),
    };
    const shown = picture({ id, label }, 128, context);
    return make(
      "li",
      button(
        ".match",
        () => context.search(id),
        events,
        make("span.judged.plain", shown),
        class_now(label, name, now),
      ),
    );
  }
}
