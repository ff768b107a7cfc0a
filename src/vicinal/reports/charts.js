// Line charts as inline SVG, drawn from the JSON in #charts-data. Text is only ever set as textContent.
"use strict";
(() => {
  const COLORS = 8;
  const SOLID = 4;
  const DASHES = ["", "7 4", "2 4", "9 3 2 3"];
  const HEIGHT = 230;
  const LEFT = 46;
  const RIGHT = 12;
  const TOP = 8;
  const BOTTOM = 38;
  const NAMESPACE = "http://www.w3.org/2000/svg";

  const make = (name, attributes = {}, text = null) => {
    const element = document.createElementNS(NAMESPACE, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== null) element.textContent = text;
    return element;
  };
  const html = (name, text = null) => {
    const element = document.createElement(name);
    if (text !== null) element.textContent = text;
    return element;
  };
  const color = (place) => `var(--line-${place % COLORS})`;
  const dash = (place) => DASHES[Math.floor(place / SOLID) % DASHES.length];
  const short = (value) => {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e6 || size < 1e-4) return value.toExponential(1).replace("e+", "e");
    return String(Number(value.toPrecision(4)));
  };
  const whole = (value) => Math.round(value).toLocaleString("en");

  /** Round numbers, about `count` of them, that lie within [low, high]. */
  const ticks = (low, high, count) => {
    const raw = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
      found.push(i * step || 0);
    } // never -0
    return found;
  };
  const nearest = (sorted, x) => {
    let low = 0;
    let high = sorted.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < x) low = middle;
      else high = middle;
    }
    return Math.abs(sorted[low] - x) <= Math.abs(sorted[high] - x) ? low : high;
  };

  class Chart {
    constructor(figure, spec) {
      this.spec = spec;
      this.shown = spec.lines.map(() => true);
      this.plot = figure.querySelector(".plot");
      this.svg = make("svg", {
        height: HEIGHT,
        tabindex: 0,
        role: "img",
        "aria-label": this.summary(),
      });
      this.tip = html("div");
      this.tip.className = "tip";
      this.tip.hidden = true;
      this.plot.append(this.svg, this.tip);
      if (spec.lines.length > 1) figure.append(this.legend());
      this.svg.addEventListener("pointermove", (event) =>
        this.point(event.clientX - this.svg.getBoundingClientRect().left),
      );
      this.svg.addEventListener("pointerleave", () => this.leave());
      this.svg.addEventListener("blur", () => this.leave());
      this.svg.addEventListener("keydown", (event) => this.key(event));
      new ResizeObserver(() => this.draw()).observe(this.plot);
    }

    value(y) {
      if (this.spec.unit !== "share") return short(y);
      return `${this.spec.axis === "step" ? (100 * y).toFixed(1) : short(100 * y)} %`;
    }

    summary() {
      const ends = this.spec.lines.map(
        (line) => `${line.name} ends at ${this.value(line.y[line.y.length - 1])}`,
      );
      return `${this.spec.title} by ${this.spec.axis}: ${ends.join(", ")}`;
    }

    place(x) {
      return this.spec.axis === "step" ? whole(x) : short(x);
    }

    legend() {
      const box = html("div");
      box.className = "legend";
      this.spec.lines.forEach((line, place) => {
        const button = html("button");
        const swatch = make("svg", { viewBox: "0 0 18 8", "aria-hidden": "true" });
        swatch.append(
          make("line", {
            x1: 1,
            x2: 17,
            y1: 4,
            y2: 4,
            "stroke-width": 2.5,
            "stroke-dasharray": dash(place),
            style: `stroke:${color(place)}`,
          }),
        );
        button.type = "button";
        button.setAttribute("aria-pressed", "true");
        button.append(swatch, html("span", line.name));
        button.addEventListener("click", () => {
          this.shown[place] = !this.shown[place];
          button.setAttribute("aria-pressed", String(this.shown[place]));
          this.draw();
        });
        box.append(button);
      });
      return box;
    }

    lines() {
      return this.spec.lines
        .map((line, place) => ({ line, place }))
        .filter(({ place }) => this.shown[place]);
    }

    /** Set this.x and this.y, which turn values into pixels, from the lines in sight. */
    scale(lines) {
      const all = (pick) => lines.flatMap(({ line }) => pick(line));
      const xs = all((l) => [l.x[0], l.x[l.x.length - 1]]);
      const ys = all((l) => [...(l.low ?? l.y), ...(l.high ?? l.y)]);
      this.from = Math.min(...xs);
      this.to = Math.max(...xs);
      if (this.from > 0 && this.from < 0.1 * this.to) this.from = 0;
      if (this.from === this.to) {
        this.from -= 1;
        this.to += 1;
      }
      let low = Math.min(...ys);
      let high = Math.max(...ys);
      if (low > 0 && low < 0.6 * high) low = 0; // show how far from nothing, unless that would flatten the line
      const room = (high - low || Math.abs(high) || 1) * 0.05;
      high += room;
      if (low !== 0) low -= room;
      if (this.spec.unit === "share") {
        low = Math.max(low, 0);
        high = Math.min(high, 1);
      }
      if (low >= high) low = high - 1;
      const bottom = HEIGHT - BOTTOM;
      const tall = bottom - TOP;
      const wide = this.width - LEFT - RIGHT;
      this.x = (v) => LEFT + (wide * (v - this.from)) / (this.to - this.from);
      this.y = (v) => bottom - (tall * (v - low)) / (high - low);
      return ticks(low, high, 5);
    }

    draw() {
      this.width = this.plot.clientWidth;
      this.leave();
      this.svg.replaceChildren();
      const lines = this.lines();
      if (!this.width || !lines.length) return;
      const rows = this.scale(lines);
      const bottom = HEIGHT - BOTTOM;
      for (const y of rows) {
        const label = this.spec.unit === "share" ? `${short(100 * y)} %` : short(y);
        this.svg.append(
          make("line", {
            class: "grid",
            x1: LEFT,
            x2: this.width - RIGHT,
            y1: this.y(y),
            y2: this.y(y),
          }),
        );
        this.svg.append(
          make("text", { x: LEFT - 7, y: this.y(y) + 4, "text-anchor": "end" }, label),
        );
      }
      this.svg.append(
        make("line", { class: "base", x1: LEFT, x2: this.width - RIGHT, y1: bottom, y2: bottom }),
      );
      for (const x of ticks(this.from, this.to, Math.max(2, this.width / 80))) {
        if (this.spec.axis === "step" && !Number.isInteger(x)) continue;
        this.svg.append(
          make("text", { x: this.x(x), y: bottom + 16, "text-anchor": "middle" }, this.place(x)),
        );
      }
      this.svg.append(
        make(
          "text",
          { x: this.width - RIGHT, y: HEIGHT - 5, "text-anchor": "end" },
          this.spec.axis,
        ),
      );
      const mark = this.spec.mark;
      if (mark !== null && mark >= this.from && mark <= this.to) {
        this.svg.append(
          make("line", { class: "mark", x1: this.x(mark), x2: this.x(mark), y1: TOP, y2: bottom }),
        );
      }
      for (const { line, place } of lines) this.draw_line(line, place);
      this.over = make("g");
      this.svg.append(this.over);
    }

    draw_line(line, place) {
      const at = (column) =>
        line.x.map((x, i) => `${this.x(x).toFixed(1)},${this.y(column[i]).toFixed(1)}`);
      if (line.low) {
        const band = [...at(line.low), ...at(line.high).reverse()].join(" ");
        this.svg.append(
          make("polygon", { class: "band", points: band, style: `fill:${color(place)}` }),
        );
      }
      const style = `stroke:${color(place)}`;
      this.svg.append(
        make("polyline", {
          class: "line",
          points: at(line.y).join(" "),
          "stroke-dasharray": dash(place),
          style,
        }),
      );
      if (line.x.length <= 30) {
        line.x.forEach((x, i) =>
          this.svg.append(
            make("circle", {
              cx: this.x(x),
              cy: this.y(line.y[i]),
              r: 2.5,
              style: `fill:${color(place)}`,
            }),
          ),
        );
      }
    }

    /** Show the values nearest to a place, given in pixels from the left edge. */
    point(pixel) {
      const lines = this.lines();
      if (!lines.length || !this.over) return;
      const wanted =
        this.from + ((pixel - LEFT) / (this.width - LEFT - RIGHT)) * (this.to - this.from);
      const hits = lines.map(({ line, place }) => ({ line, place, i: nearest(line.x, wanted) }));
      this.at = hits
        .map(({ line, i }) => line.x[i])
        .reduce((a, b) => (Math.abs(a - wanted) <= Math.abs(b - wanted) ? a : b));
      const x = this.x(this.at);
      this.over.replaceChildren(
        make("line", { class: "cross", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }),
      );
      this.tip.replaceChildren(html("header", `${this.spec.axis} ${this.place(this.at)}`));
      for (const { line, place, i } of hits) {
        if (line.x[i] !== this.at) continue;
        this.over.append(
          make("circle", { cx: x, cy: this.y(line.y[i]), r: 4, style: `fill:${color(place)}` }),
        );
        const row = html("div");
        const dot = html("i");
        dot.style.background = color(place);
        row.append(dot, html("span", line.name), html("b", this.value(line.y[i])));
        this.tip.append(row);
      }
      this.tip.hidden = false;
      const room = this.tip.offsetWidth + 14;
      this.tip.style.left = `${Math.max(0, x + room < this.width ? x + 12 : x - room)}px`;
      this.tip.style.top = `${TOP}px`;
    }

    key(event) {
      const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const lines = this.lines();
      if (event.key === "Escape") this.leave();
      if (!direction || !lines.length) return;
      event.preventDefault();
      const xs = lines[0].line.x;
      const i =
        this.at === null
          ? xs.length - 1
          : Math.min(xs.length - 1, Math.max(0, nearest(xs, this.at) + direction));
      this.point(this.x(xs[i]));
    }

    leave() {
      this.at = null;
      this.tip.hidden = true;
      if (this.over) this.over.replaceChildren();
    }
  }

  const specs = new Map(
    JSON.parse(document.getElementById("charts-data").textContent).map((spec) => [spec.key, spec]),
  );
  for (const figure of document.querySelectorAll("[data-chart]")) {
    new Chart(figure, specs.get(figure.dataset.chart));
  }
})();
