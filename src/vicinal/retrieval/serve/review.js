// The queue of what `vicinal clean` found: one finding at a time, decided by keys or buttons.
import { address, ask } from "/static/asking.js";
import { counted, fill, keyed, make, number } from "/static/dom.js";
import { name_of, picture } from "/static/results.js";
import { downloads, suggestions, word_field } from "/static/work.js";

const PAGE = 60; // findings at a time
const BEFORE = 6; // rows of the queue before the finding, of this many:
const ROWS = 14;

const KINDS = {
  label: "Probably mislabeled",
  duplicate: "Near duplicate",
  outlier: "Outlier",
  class: "Ambiguous class",
};
const HELP = {
  j: "next",
  k: "previous",
  Enter: "accept the suggestion",
  s: "keep as it is",
  x: "drop",
  e: "another class",
  u: "undo",
  "?": "this help",
};

export class Review {
  findings = [];
  total = 0;
  at = 0;
  kind = "";
  kinds = {};
  naming = false; // whether another class is being typed

  constructor(place, work, context) {
    Object.assign(this, { place, work, context });
    work.watchers.push(() => {
      if (!place.hidden && this.findings.length) this.draw();
    });
    document.addEventListener("keydown", (event) => this.press(event));
  }

  // -- which finding ------------------------------------------------------------------------------

  async open() {
    if (!this.findings.length) {
      fill(this.place, make("p.lead", "Reading the findings …"));
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
    this.total = answer.total;
    this.kinds = answer.kinds;
    this.findings = [...this.findings, ...page];
  }

  async narrow(kind) {
    Object.assign(this, { kind, findings: [], at: 0 });
    await this.load().catch(this.work.complain);
    this.draw();
  }

  get finding() {
    return this.findings[this.at];
  }

  show(at) {
    Object.assign(this, { at, naming: false });
    this.draw();
  }

  async go(step) {
    this.naming = false;
    const at = Math.max(0, Math.min(this.total - 1, this.at + step));
    while (at >= this.findings.length && this.findings.length < this.total) {
      const before = this.findings.length;
      await this.load().catch(this.work.complain);
      if (this.findings.length === before) return; // the table has become shorter
    }
    this.show(Math.min(at, this.findings.length - 1));
  }

  // -- deciding -----------------------------------------------------------------------------------

  async decide(label) {
    if (!this.work.writable) return;
    if (await this.work.change([this.finding.target], label)) await this.go(1);
  }

  /** The label that would be right, "drop", or null where nothing is suggested. */
  get suggestion() {
    return this.finding.suggested || (this.finding.kind === "class" ? null : "drop");
  }

  accept() {
    if (this.finding.suggested) this.decide(this.finding.suggested);
    else if (this.suggestion) this.drop();
  }

  keep() {
    this.decide(this.finding.label);
  }

  drop() {
    this.decide("");
  }

  async undo() {
    const before = this.work.by;
    if (!this.work.can_undo || !(await this.work.undo())) return;
    const changed = ({ target }) =>
      JSON.stringify(before.get(target)) !== JSON.stringify(this.work.by.get(target));
    const back = this.findings.findIndex(changed);
    if (back >= 0) this.at = back;
    this.draw();
  }

  name() {
    this.naming = true;
    this.draw();
    this.place.querySelector("#review-word").focus();
  }

  async typed(event, word) {
    event.preventDefault();
    if (!word) return;
    this.naming = false;
    await this.decide(word);
  }

  get dialog() {
    return this.place.querySelector("dialog");
  }

  press(event) {
    if (this.place.hidden || !this.finding || this.dialog.open) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, textarea, dialog *")) {
      if (event.key === "Escape") this.show(this.at);
      return;
    }
    if (event.key === "Enter" && event.target.matches("a, button")) return; // it is theirs
    const act = {
      j: () => this.go(1),
      k: () => this.go(-1),
      ArrowDown: () => this.go(1),
      ArrowUp: () => this.go(-1),
      Enter: () => this.accept(),
      s: () => this.keep(),
      x: () => this.drop(),
      u: () => this.undo(),
      e: () => this.name(),
      "?": () => this.dialog.showModal(),
    }[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  }

  // -- drawing ------------------------------------------------------------------------------------

  draw() {
    const { place, finding } = this;
    if (!finding) {
      const none = "`vicinal clean` found nothing to review.";
      fill(place, make("p.lead", this.kind ? "Nothing of this kind was found." : none));
      return;
    }
    const focused = this.naming && document.activeElement?.id === "review-word";
    const first = Math.max(0, this.at - BEFORE);
    const queue = this.findings.slice(first, first + ROWS);
    fill(
      place,
      this.head(),
      this.work.notices(),
      make(
        "div.review-body",
        make(
          "ol.queue.card",
          queue.map((one, i) => this.row(one, first + i)),
        ),
        make(
          "div.finding.card",
          this.shown(finding, 256, "large"),
          this.verdict(),
          this.evidence(),
        ),
      ),
      this.help(),
    );
    if (focused) place.querySelector("#review-word").focus();
  }

  shown(one, side, classes) {
    const item = { id: one.target, label: one.label ?? one.held, path: one.path };
    return picture(item, side, this.context(), classes);
  }

  decided({ target }) {
    const { dropped, label } = this.work.of(target);
    return dropped || label !== null;
  }

  head() {
    const kinds = Object.entries(this.kinds).map(([kind, count]) =>
      make(
        "option",
        { value: kind, selected: kind === this.kind },
        `${KINDS[kind] ?? kind} (${number(count)})`,
      ),
    );
    const done = this.findings.filter((one) => this.decided(one)).length;
    const narrow = { id: "review-kind", onchange: (event) => this.narrow(event.target.value) };
    return make(
      "div.review-head",
      make(
        "div",
        make("h2", `${number(this.at + 1)} of ${counted(this.total, "finding")}`),
        make("p", { id: "review-said", "aria-live": "polite" }, `${number(done)} decided`),
      ),
      make(
        "label",
        "Show ",
        make("select", narrow, make("option", { value: "" }, "all kinds"), kinds),
      ),
      downloads(),
    );
  }

  /** One finding of the queue. */
  row(one, i) {
    const now = this.work.of(one.target);
    const decided = this.decided(one);
    const what = now.dropped ? "dropped" : `→ ${now.label}`;
    const why = `${KINDS[one.kind] ?? one.kind} · ${one.score.toFixed(2)}`;
    return make(
      "li",
      make(
        "button",
        {
          type: "button",
          "aria-current": i === this.at ? "true" : null,
          class: decided ? "done" : null,
          onclick: () => this.show(i),
        },
        this.shown(one, 64),
        make(
          "span",
          make("bdi", one.label || name_of(one, this.context())),
          make("small", decided ? what : why),
        ),
      ),
    );
  }

  verdict() {
    const { finding, work } = this;
    const now = work.of(finding.target);
    const relabeled = now.label !== null && make("span", " → ", make("bdi", now.label));
    const absent = typeof finding.target !== "number" && this.context().pictures;
    return make(
      "div.verdict",
      make(
        "p.kicker",
        `${KINDS[finding.kind] ?? finding.kind} · score ${finding.score.toFixed(3)}`,
      ),
      make(
        "h2",
        make("bdi", { class: this.decided(finding) ? "gone" : null }, finding.label || "no class"),
        now.dropped ? make("em", " dropped") : relabeled || null,
      ),
      make("p.path", make("bdi", finding.path)),
      absent &&
        make(
          "p.aside",
          "Not in the collection, so there is no picture: `vicinal index RUN DATA` adds it.",
        ),
      this.deciding(),
      this.naming && this.typing(),
    );
  }

  deciding() {
    const { suggestion, work } = this;
    const suggested = suggestion === "drop" ? "Drop it" : `Make it ${suggestion}`;
    const on = (id, more = work.changing) => ({ id: `review-${id}`, ...more });
    return make(
      "div.deciding",
      suggestion && keyed(".accept", suggested, "⏎", () => this.accept(), on("accept")),
      keyed("", "Keep", "s", () => this.keep(), on("keep")),
      keyed(".warn", "Drop", "x", () => this.drop(), on("drop")),
      keyed("", "Class", "e", () => this.name(), on("class")),
      keyed("", "Undo", "u", () => this.undo(), on("undo", work.undoing)),
      keyed("", "", "?", () => this.dialog.showModal(), on("help", { "aria-label": "Help" })),
    );
  }

  /** A field for a class. */
  typing() {
    const word = word_field("review-word", "class, then Enter", "Class", "review-classes");
    return make(
      "form.deciding",
      { onsubmit: (event) => this.typed(event, word.value.trim()) },
      word,
      suggestions("review-classes", this.context().classes),
      make("button", { type: "submit" }, "Set class"),
    );
  }

  evidence() {
    const { neighbors, label } = this.finding;
    const judged = ({ held }) => (held === null ? "plain" : held === label ? "right" : "wrong");
    const cards = neighbors.map((one) =>
      make(
        "li",
        make(`span.judged.${judged(one)}`, { title: one.path }, this.shown(one, 128)),
        make("bdi", one.held ?? name_of(one, this.context())),
      ),
    );
    return make(
      "div.evidence",
      make("h3", neighbors.length ? "Its neighbors" : "No neighbors are named"),
      make("ol.matches", cards),
    );
  }

  help() {
    const keys = Object.entries(HELP).map(([key, said]) =>
      make("div", make("dt", make("kbd", key)), make("dd", said)),
    );
    return make(
      "dialog.help-keys.card",
      make("h3", "Keys"),
      make("dl", keys),
      make("form", { method: "dialog" }, make("button", "Close")),
    );
  }
}
