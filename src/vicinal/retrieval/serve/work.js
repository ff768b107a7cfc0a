// What was decided about items, as the server keeps it at once, and the parts that show it.
import { ask } from "/static/asking.js";
import { make, number } from "/static/dom.js";

const KNOWN = 2000; // classes that a field suggests

const send = (path, body) =>
  ask(path, {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json" },
  });

/** All that was decided; whoever shows it is told when it changes. */
export class Work {
  by = new Map();
  writable = false;
  can_undo = false;
  lost = [];
  watchers = [];

  constructor(complain) {
    this.complain = complain;
  }

  take(answer) {
    Object.assign(this, answer, { by: new Map(answer.items.map((one) => [one.target, one])) });
    document.getElementById("to-review").hidden = !answer.findings;
    for (const watch of this.watchers) watch();
  }

  async read() {
    this.take(await ask("/api/annotations"));
  }

  of(target) {
    return this.by.get(target) ?? { label: null, dropped: false };
  }

  /** Gives targets a label; an empty one drops them. */
  change(targets, label) {
    return this.attempt(() => send("/api/annotations", { targets, label }));
  }

  undo() {
    return this.attempt(() => send("/api/annotations/undo", {}));
  }

  /** True where it was kept. */
  async attempt(asking) {
    try {
      this.take(await asking());
      return true;
    } catch (error) {
      this.complain(error);
      return false;
    }
  }

  /** Attributes of a button that changes something, and of the one that undoes. */
  get changing() {
    return { disabled: !this.writable };
  }

  get undoing() {
    return { disabled: !this.writable || !this.can_undo };
  }

  /** Why nothing can be changed, or what is lost; nothing where all is well. */
  notices() {
    return [
      this.writable
        ? null
        : make(
            "p.aside",
            "This server takes no changes: it is read-only, or other machines reach it without a token.",
          ),
      this.lost.length
        ? make(
            "p.aside",
            `Decided, but no longer in the collection: ${this.lost.slice(0, 5).join(", ")}`,
            this.lost.length > 5 ? ` and ${number(this.lost.length - 5)} more` : null,
          )
        : null,
    ];
  }
}

const download = (name, title) => make("a", { href: `/api/${name}`, download: name, title }, name);

export const downloads = () =>
  make(
    "span.downloads",
    download("decisions.csv", "new labels and drops, for `vicinal clean --apply`"),
  );

/** A field for one word, and what it may suggest. */
export const word_field = (id, placeholder, said, list) =>
  make("input", {
    type: "text",
    id,
    maxlength: "200",
    autocomplete: "off",
    placeholder,
    "aria-label": said,
    list,
  });

export const suggestions = (id, classes) =>
  make(
    "datalist",
    { id },
    classes.slice(0, KNOWN).map((label) => make("option", { value: label })),
  );
