// Work on the collection: what is selected on the map, and the queue of findings; every change is kept by the server at once.
import { address, ask, counted, make } from "/static/asking.js";
import { picture } from "/static/results.js";

const SHOWN = 48; // thumbnails of a selection at a time
const PAGE = 60; // findings at a time
const file = (path) => path.split("/").pop();
const send = (path, body) =>
  ask(path, {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json" },
  });

/** All that was decided, as the server keeps it; whoever shows it is told when it changes. */
export class Work {
  constructor(complain) {
    Object.assign(this, {
      complain,
      by: new Map(),
      writable: false,
      can_undo: false,
      findings: false,
      damaged: 0,
      watchers: [],
    });
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
    return this.by.get(target) ?? { label: null, dropped: false, tags: [] };
  }

  async change(targets, what) {
    return this.attempt(() => send("/api/annotations", { targets, ...what }));
  }
  async undo() {
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
}

const button = (text, act, more = {}) =>
  make("button", { type: "button", onclick: act, ...more }, text);
const key = (text) => make("kbd", {}, text);
const chips = (tags, remove) =>
  make(
    "span",
    { class: "chips" },
    ...tags.map(([tag, said]) =>
      make(
        "span",
        { class: "chip" },
        make("bdi", {}, tag),
        said ? make("small", {}, said) : null,
        remove ? button("✕", () => remove(tag), { "aria-label": `Remove the tag ${tag}` }) : null,
      ),
    ),
  );
const downloads = () => [
  make(
    "a",
    {
      href: "/api/annotations.csv",
      download: "annotations.csv",
      title: "path, label and tags of all that was decided",
    },
    "annotations.csv",
  ),
  make(
    "a",
    {
      href: "/api/decisions.csv",
      download: "decisions.csv",
      title: "new labels and drops, for `vicinal clean --apply`",
    },
    "decisions.csv",
  ),
];
const condition = (work) =>
  work.damaged
    ? make(
        "p",
        { class: "aside" },
        `${counted(work.damaged, "line")} of the journal cannot be read and ${work.damaged === 1 ? "is" : "are"} left out.`,
      )
    : null;

/** What stands below a card: its class, crossed out where it has another one now, and its tags. */
const state_of = (label, path, now) => [
  now.dropped
    ? make("bdi", { class: "gone" }, label ?? path, make("small", {}, " dropped"))
    : now.label !== null && now.label !== label
      ? make("bdi", { title: `was ${label ?? "without class"}` }, make("b", {}, `→ ${now.label}`))
      : make("bdi", {}, label ?? path),
  now.tags.length ? chips(now.tags.map((tag) => [tag])) : null,
];

export class Selection {
  constructor(place, work, context, clear) {
    Object.assign(this, { place, work, context, items: [], shown: SHOWN });
    this.clear = () => {
      clear();
      this.show([]);
    };
    this.word = make("input", {
      type: "text",
      id: "selection-word",
      maxlength: "200",
      autocomplete: "off",
      placeholder: "a tag, or a class",
      "aria-label": "Tag or class for the selection",
      list: "known-classes",
    });
    work.watchers.push(() => this.draw());
  }

  show(items) {
    Object.assign(this, { items, shown: SHOWN });
    this.draw();
  }

  async say(what) {
    const word = this.word.value.trim();
    if (!word) {
      this.word.focus();
      return;
    }
    if (
      await this.work.change(
        this.items.map(({ id }) => id),
        what(word),
      )
    ) {
      this.word.value = "";
    }
  }

  draw() {
    const { place, work, items } = this;
    const ids = items.map(({ id }) => id);
    const { search, point, pictures, generation, classes } = items.length ? this.context() : {};
    place.hidden = !items.length;
    if (!items.length) {
      place.replaceChildren();
      return;
    }
    const count = (values) =>
      [
        ...values.reduce((held, value) => held.set(value, (held.get(value) ?? 0) + 1), new Map()),
      ].sort((a, b) => b[1] - a[1]);
    const kinds = count(items.map(({ id, label }) => work.of(id).label ?? label ?? "no class"));
    const tags = count(ids.flatMap((id) => work.of(id).tags));
    const said =
      kinds
        .slice(0, 3)
        .map(([label, number]) => `${label} ${number.toLocaleString("en")}`)
        .join(", ") +
      (kinds.length > 3 ? ` and ${counted(kinds.length - 3, "class", "classes")} more` : "");
    const off = { disabled: !work.writable };
    this.word.disabled = !work.writable;
    const card = ({ id, label }) =>
      make(
        "li",
        {},
        make(
          "button",
          {
            type: "button",
            class: "match",
            "aria-label": `Search from ${label ?? `item ${id}`}`,
            onclick: () => search(id),
            onpointerenter: () => point(id),
            onpointerleave: () => point(null),
          },
          make(
            "span",
            { class: "judged plain" },
            picture({ id, label, path: String(id) }, 128, generation, pictures),
          ),
          ...state_of(label, `item ${id}`, work.of(id)),
        ),
      );
    const focused = document.activeElement === this.word;
    const parts = [
      make(
        "div",
        { class: "selection-head" },
        make("h2", {}, `${items.length.toLocaleString("en")} selected`),
        make("p", { "aria-live": "polite" }, make("bdi", {}, said)),
        button("✕", this.clear, { class: "clear", "aria-label": "Select nothing" }),
      ),
      make(
        "form",
        {
          class: "deciding",
          onsubmit: (event) => {
            event.preventDefault();
            this.say((word) => ({ add: [word] }));
          },
        },
        this.word,
        make(
          "datalist",
          { id: "known-classes" },
          ...classes.slice(0, 2000).map((label) => make("option", { value: label })),
        ),
        make("button", { type: "submit", ...off }, "Add tag"),
        button("Set class", () => this.say((word) => ({ label: word })), off),
        button("Drop", () => work.change(ids, { drop: true }), {
          ...off,
          class: "warn",
          title: "Leave these out of the data",
        }),
        button("Undo", () => work.undo(), { disabled: !work.writable || !work.can_undo }),
        make("span", { class: "downloads" }, ...downloads()),
      ),
      work.writable
        ? null
        : make(
            "p",
            { class: "aside" },
            "This server can be reached from other machines, so it takes no changes.",
          ),
      condition(work),
      tags.length
        ? chips(
            tags.map(([tag, number]) => [tag, number.toLocaleString("en")]),
            work.writable ? (tag) => work.change(ids, { remove: [tag] }) : null,
          )
        : null,
      make("ol", { class: "matches" }, ...items.slice(0, this.shown).map(card)),
      items.length > this.shown
        ? make(
            "p",
            { class: "more" },
            button(`Show more of ${items.length.toLocaleString("en")}`, () => {
              this.shown += 2 * SHOWN;
              this.draw();
            }),
          )
        : null,
    ];
    place.replaceChildren(...parts.filter((part) => part !== null));
    if (focused) this.word.focus();
  }
}

const KINDS = {
  label: "Probably mislabeled",
  duplicate: "Near duplicate",
  outlier: "Outlier",
  class: "Ambiguous class",
};
const HELP = [
  ["j", "next"],
  ["k", "previous"],
  ["Enter", "accept the suggestion"],
  ["s", "keep as it is"],
  ["x", "drop"],
  ["e", "another class"],
  ["t", "tag"],
  ["u", "undo"],
  ["?", "this help"],
];

export class Review {
  constructor(place, work, context) {
    Object.assign(this, {
      place,
      work,
      context,
      findings: [],
      total: 0,
      at: 0,
      kind: "",
      kinds: {},
      mode: null,
    });
    work.watchers.push(() => {
      if (!place.hidden && this.findings.length) this.draw();
    });
    document.addEventListener("keydown", (event) => this.press(event));
  }

  async open() {
    if (!this.findings.length) {
      this.place.replaceChildren(make("p", { class: "lead" }, "Reading the findings …"));
      try {
        await Promise.all([this.load(), this.work.read()]);
      } catch (error) {
        this.place.replaceChildren();
        throw error;
      }
    }
    this.draw();
    this.place.focus({ preventScroll: true }); // else Enter would be the link's that led here
  }

  async load() {
    const answer = await ask(
      address("/api/review", { offset: this.findings.length, limit: PAGE, kind: this.kind }),
    );
    // An item is named by its id; what is not in the collection by its path.
    const named = (path) => ({
      path,
      target: answer.items[path]?.id ?? path,
      held: answer.items[path]?.label ?? null,
    });
    const page = answer.findings.map((one) => ({
      ...one,
      ...named(one.path),
      neighbors: one.neighbors.map(named),
    }));
    Object.assign(this, {
      total: answer.total,
      kinds: answer.kinds,
      findings: [...this.findings, ...page],
    });
  }

  async narrow(kind) {
    Object.assign(this, { kind, findings: [], at: 0 });
    await this.load().catch(this.work.complain);
    this.draw();
  }

  get finding() {
    return this.findings[this.at];
  }

  async go(step) {
    this.mode = null;
    const at = Math.max(0, Math.min(this.total - 1, this.at + step));
    while (at >= this.findings.length && this.findings.length < this.total) {
      const before = this.findings.length;
      await this.load().catch(this.work.complain);
      if (this.findings.length === before) return; // the table has become shorter
    }
    this.at = Math.min(at, this.findings.length - 1);
    this.draw();
  }

  async decide(what) {
    if (this.work.writable && (await this.work.change([this.finding.target], what))) {
      await this.go(1);
    }
  }

  accept() {
    const { suggested, kind } = this.finding;
    if (suggested) return this.decide({ label: suggested });
    return kind === "class" ? undefined : this.decide({ drop: true });
  }

  async undo() {
    const before = this.work.by;
    if (!this.work.can_undo || !(await this.work.undo())) return;
    const changed = (target) =>
      JSON.stringify(before.get(target)) !== JSON.stringify(this.work.by.get(target));
    const back = this.findings.findIndex(({ target }) => changed(target));
    if (back >= 0) this.at = back;
    this.draw();
  }

  ask_for(mode) {
    this.mode = mode;
    this.draw();
    this.place.querySelector("#review-word").focus();
  }

  press(event) {
    if (
      this.place.hidden ||
      !this.finding ||
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      this.place.querySelector("dialog[open]")
    ) {
      return;
    }
    if (event.target.matches("input, select, textarea, dialog *")) {
      if (event.key === "Escape") {
        this.mode = null;
        this.draw();
      }
      return;
    }
    if (event.key === "Enter" && event.target.matches("a, button")) return; // it is theirs
    const act = {
      j: () => this.go(1),
      k: () => this.go(-1),
      ArrowDown: () => this.go(1),
      ArrowUp: () => this.go(-1),
      Enter: () => this.accept(),
      s: () => this.decide({ label: this.finding.label }),
      x: () => this.decide({ drop: true }),
      u: () => this.undo(),
      t: () => this.ask_for("tag"),
      e: () => this.ask_for("class"),
      "?": () => this.place.querySelector("dialog").showModal(),
    }[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  }

  shown(target, label, path, side, classes = "") {
    const { generation, pictures } = this.context();
    return picture(
      { id: target, label, path: file(path) },
      side,
      generation,
      pictures && typeof target === "number",
      classes,
    );
  }

  draw() {
    const { place, work, finding, findings, total, at } = this;
    const { classes } = this.context();
    if (!finding) {
      place.replaceChildren(
        make(
          "p",
          { class: "lead" },
          this.kind
            ? "Nothing of this kind was found."
            : "`vicinal clean` found nothing to review.",
        ),
      );
      return;
    }
    const now = work.of(finding.target);
    const off = { disabled: !work.writable };
    const suggestion = finding.suggested || (finding.kind === "class" ? null : "drop");
    const decided = (one) => {
      const { dropped, label } = work.of(one.target);
      return dropped || label !== null;
    };
    const row = (one, i) =>
      make(
        "li",
        {},
        make(
          "button",
          {
            type: "button",
            "aria-current": i === at ? "true" : null,
            class: decided(one) ? "done" : null,
            onclick: () => {
              this.at = i;
              this.mode = null;
              this.draw();
            },
          },
          this.shown(one.target, one.label, one.path, 64),
          make(
            "span",
            {},
            make("bdi", {}, one.label || file(one.path)),
            make(
              "small",
              {},
              decided(one)
                ? work.of(one.target).dropped
                  ? "dropped"
                  : `→ ${work.of(one.target).label}`
                : `${KINDS[one.kind] ?? one.kind} · ${one.score.toFixed(2)}`,
            ),
          ),
        ),
      );
    const near = finding.neighbors.map((one) =>
      make(
        "li",
        {},
        make(
          "span",
          {
            class: `judged ${one.held === null ? "plain" : one.held === finding.label ? "right" : "wrong"}`,
            title: one.path,
          },
          this.shown(one.target, one.held, one.path, 128),
        ),
        make("bdi", {}, one.held ?? file(one.path)),
      ),
    );
    const absent = typeof finding.target !== "number" && this.context().pictures;
    const first = Math.max(0, at - 6);
    const focused = this.mode && document.activeElement?.id === "review-word";
    const word = make("input", {
      type: "text",
      id: "review-word",
      maxlength: "200",
      autocomplete: "off",
      "aria-label": this.mode === "tag" ? "Tag" : "Class",
      placeholder: this.mode === "tag" ? "tag, then Enter" : "class, then Enter",
      list: this.mode === "tag" ? null : "review-classes",
    });
    const typed = async (event) => {
      event.preventDefault();
      const text = word.value.trim();
      const mode = this.mode;
      if (!text) return;
      if (mode === "class") {
        this.mode = null;
        await this.decide({ label: text });
        return;
      }
      if (await work.change([finding.target], { add: [text] })) {
        this.mode = null;
        this.draw();
      }
    };
    const parts = [
      make(
        "div",
        { class: "review-head" },
        make(
          "div",
          {},
          make("h2", {}, `${(at + 1).toLocaleString("en")} of ${counted(total, "finding")}`),
          make(
            "p",
            { id: "review-said", "aria-live": "polite" },
            `${findings.filter(decided).length.toLocaleString("en")} decided`,
          ),
        ),
        make(
          "label",
          {},
          "Show ",
          make(
            "select",
            { id: "review-kind", onchange: (event) => this.narrow(event.target.value) },
            make("option", { value: "" }, "all kinds"),
            ...Object.entries(this.kinds).map(([kind, number]) =>
              make(
                "option",
                { value: kind, selected: kind === this.kind },
                `${KINDS[kind] ?? kind} (${number.toLocaleString("en")})`,
              ),
            ),
          ),
        ),
        make("span", { class: "downloads" }, ...downloads()),
      ),
      work.writable
        ? null
        : make(
            "p",
            { class: "aside" },
            "This server can be reached from other machines, so it takes no changes.",
          ),
      condition(work),
      make(
        "div",
        { class: "review-body" },
        make(
          "ol",
          { class: "queue card" },
          ...findings.slice(first, first + 14).map((one, i) => row(one, first + i)),
        ),
        make(
          "div",
          { class: "finding card" },
          this.shown(finding.target, finding.label, finding.path, 256, "large"),
          make(
            "div",
            { class: "verdict" },
            make(
              "p",
              { class: "kicker" },
              `${KINDS[finding.kind] ?? finding.kind} · score ${finding.score.toFixed(3)}`,
            ),
            make(
              "h2",
              {},
              make(
                "bdi",
                { class: now.dropped || now.label !== null ? "gone" : null },
                finding.label || "no class",
              ),
              now.dropped
                ? make("em", {}, " dropped")
                : now.label !== null
                  ? make("span", {}, " → ", make("bdi", {}, now.label))
                  : null,
            ),
            make("p", { class: "path" }, make("bdi", {}, finding.path)),
            now.tags.length
              ? chips(
                  now.tags.map((tag) => [tag]),
                  work.writable ? (tag) => work.change([finding.target], { remove: [tag] }) : null,
                )
              : null,
            absent
              ? make(
                  "p",
                  { class: "aside" },
                  "Not in the collection, so there is no picture: `vicinal index RUN DATA` adds it.",
                )
              : null,
            make(
              "div",
              { class: "deciding" },
              suggestion === null
                ? null
                : button("", () => this.accept(), { ...off, class: "accept", id: "review-accept" }),
              button("", () => this.decide({ label: finding.label }), {
                ...off,
                id: "review-keep",
              }),
              button("", () => this.decide({ drop: true }), {
                ...off,
                class: "warn",
                id: "review-drop",
              }),
              button("", () => this.ask_for("class"), { ...off, id: "review-class" }),
              button("", () => this.ask_for("tag"), { ...off, id: "review-tag" }),
              button("", () => this.undo(), {
                disabled: !work.writable || !work.can_undo,
                id: "review-undo",
              }),
              button("", () => place.querySelector("dialog").showModal(), {
                id: "review-help",
                "aria-label": "Help",
              }),
            ),
            this.mode
              ? make(
                  "form",
                  { class: "deciding", onsubmit: typed },
                  word,
                  make(
                    "datalist",
                    { id: "review-classes" },
                    ...classes.slice(0, 2000).map((label) => make("option", { value: label })),
                  ),
                  make("button", { type: "submit" }, this.mode === "tag" ? "Add tag" : "Set class"),
                )
              : null,
          ),
          make(
            "div",
            { class: "evidence" },
            make("h3", {}, finding.neighbors.length ? "Its neighbors" : "No neighbors are named"),
            make("ol", { class: "matches" }, ...near),
          ),
        ),
      ),
      make(
        "dialog",
        { class: "help-keys card" },
        make("h3", {}, "Keys"),
        make(
          "dl",
          {},
          ...HELP.map(([name, said]) =>
            make("div", {}, make("dt", {}, key(name)), make("dd", {}, said)),
          ),
        ),
        make("form", { method: "dialog" }, make("button", {}, "Close")),
      ),
    ];
    place.replaceChildren(...parts.filter((part) => part !== null));
    for (const [id, name, said] of [
      ["accept", "⏎", suggestion === "drop" ? "Drop it" : `Make it ${suggestion}`],
      ["keep", "s", "Keep"],
      ["drop", "x", "Drop"],
      ["class", "e", "Class"],
      ["tag", "t", "Tag"],
      ["undo", "u", "Undo"],
      ["help", "?", ""],
    ]) {
      place.querySelector(`#review-${id}`)?.append(make("bdi", {}, said), key(name));
    }
    if (focused) word.focus();
  }
}
