// The collection as a map: points by class that become pictures as one zooms in; what a search found stands out, and
// what a rectangle or a lasso surrounds is selected. A crowd of points is drawn by WebGL on a canvas below.
import { ask, thumbnail } from "/static/asking.js";
import { counted, make } from "/static/dom.js";
import { words } from "/static/results.js";

const MOST = 200; // times
const SMALLEST = 20;
const LARGEST = 84; // side of a picture in pixels
const CROWD = 400; // points in sight above which pictures would only hide one another
const STANDING_OUT = 30; // side of a picture among points
const FEW = 2000; // points that a canvas draws as quickly as WebGL starts
const KEPT = 1200;
const AT_ONCE = 6; // thumbnails held, and asked for at a time
const element = (id) => document.getElementById(id);

/** Thumbnails by id, asked for a few at a time, those wanted last first; the oldest are let go. */
class Pictures {
  constructor(ready) {
    Object.assign(this, { ready, kept: new Map(), wanted: [], going: 0, generation: null });
  }

  reset(generation) {
    Object.assign(this, { generation, wanted: [] });
    this.kept.clear();
  }

  get(id) {
    const found = this.kept.get(id);
    if (found === undefined && !this.wanted.includes(id)) {
      this.wanted.push(id);
      this.next();
    }
    return found?.complete && found.naturalWidth ? found : null;
  }

  next() {
    if (this.wanted.length > 2 * CROWD) this.wanted.splice(0, this.wanted.length - 2 * CROWD);
    while (this.going < AT_ONCE && this.wanted.length) {
      const id = this.wanted.pop();
      const image = new Image();
      const done = () => {
        this.going--;
        this.ready();
        this.next();
      };
      this.going++;
      this.kept.set(id, image);
      if (this.kept.size > KEPT) this.kept.delete(this.kept.keys().next().value);
      image.addEventListener("load", done);
      image.addEventListener("error", done);
      image.src = thumbnail(id, 64, this.generation);
    }
  }
}

export class CollectionMap {
  constructor({ pick, select }) {
    Object.assign(this, {
      pick,
      chosen: select,
      tool: "move",
      outline: null,
      points: null,
      stale: true,
    });
    this.selected = new Set(); // places, not ids
    this.canvas = element("map-canvas");
    this.pen = this.canvas.getContext("2d");
    this.tip = element("map-tip");
    this.view = { x: 0.5, y: 0.5, zoom: 1 };
    this.pictures = new Pictures(() => this.ask());
    this.data = null;
    this.found = []; // places of the matches, nearest first
    this.query = this.pointed = this.hovered = this.label = null;
    this.listen();
    new ResizeObserver(() => {
      this.leave();
      this.ask();
    }).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.ask());
  }

  // -- what it shows ----------------------------------------------------------------------------------------------

  async load(about) {
    const waiting = element("map-waiting");
    const say = (...parts) => {
      waiting.hidden = false;
      waiting.replaceChildren(make("p", ...parts));
    };
    if (!this.data) say("Reading the map …");
    this.about = about;
    const mine = (this.loading = Symbol("load"));
    for (;;) {
      let answer;
      try {
        answer = await ask("/api/map");
      } catch (error) {
        say("There is no map: ", error.message);
        throw error;
      }
      if (mine !== this.loading) return;
      if (answer.state === "ready") {
        await this.take(answer);
        if (answer.ids.length) waiting.hidden = true;
        else say("An empty collection has no map.");
        return;
      }
      say(
        make("span.spinner", { "aria-hidden": "true" }),
        `Laying out ${counted(answer.total, "item")}; this happens once. Searching works meanwhile.`,
      );
      await new Promise((resolve) => setTimeout(resolve, 1500));
      if (mine !== this.loading) return;
    }
  }

  async take(answer) {
    for (const axis of ["x", "y"]) answer[axis] = Float32Array.from(answer[axis]);
    const points = answer.ids.length > FEW ? await this.webgl() : null;
    points?.take(
      Float32Array.from(
        { length: 2 * answer.ids.length },
        (_, i) => answer[i % 2 ? "y" : "x"][i >> 1],
      ),
    );
    element("map-points").hidden = !points;
    const kept = this.data ? [...this.selected].map((i) => this.data.ids[i]) : [];
    Object.assign(this, {
      data: { ...answer, given: answer.class, held: answer.classes.length },
      points,
      stale: true,
    });
    this.place = new Map(answer.ids.map((id, i) => [id, i]));
    this.pictures.reset(answer.generation);
    const part = answer.ids.length < answer.total ? ` of ${answer.total.toLocaleString("en")}` : "";
    element("map-said").textContent =
      `${answer.ids.length.toLocaleString("en")}${part} by ${answer.method}`;
    if (kept.length) this.select(kept);
    this.relabel();
  }

  /** Show the labels that items were given, by id, in place of the data's; a new class gets a color of its own. */
  relabel(labels = this.labels ?? new Map()) {
    this.labels = labels;
    if (!this.data) return;
    const { given, held } = this.data;
    const classes = this.data.classes.slice(0, held);
    const colors = this.data.colors.slice(0, held);
    const classed = [...given];
    const number = new Map(classes.map((label, i) => [label, i]));
    for (const [id, label] of labels) {
      if (!this.place.has(id)) continue;
      if (!number.has(label)) {
        colors.push(
          this.data.spare_colors[(classes.length - held) % this.data.spare_colors.length],
        );
        number.set(label, classes.push(label) - 1);
      }
      classed[this.place.get(id)] = number.get(label);
    }
    Object.assign(this.data, { classes, colors, classed });
    this.leave();
    if (this.wanted) this.highlight(...this.wanted);
    else {
      this.stale = true;
      this.ask();
    }
  }

  /** WebGL for many points, made when first needed; null where the browser has none: then the canvas draws them all. */
  async webgl() {
    if (this.engine === undefined) {
      const { Points } = await import("/static/points.js");
      this.engine = Points.on(element("map-points"), () => this.ask());
    }
    return this.engine;
  }

  /** Select items by their ids; what is not on the map is left out. */
  select(ids) {
    this.selected = new Set(ids.map((id) => this.place?.get(id)).filter((i) => i !== undefined));
    this.stale = true;
    this.ask();
  }

  /** Let a query and its neighbors stand out, and one class where the search is narrowed to it. */
  highlight(query, ids, label) {
    this.wanted = [query, ids, label];
    if (!this.data) return;
    this.query = this.place.get(query) ?? null;
    this.found = ids.map((id) => this.place.get(id)).filter((i) => i !== undefined);
    this.pointed = null; // the card that was pointed at is gone
    element("map-found").hidden = !this.found.length;
    const before = this.label;
    this.label = label ? this.data.classes.indexOf(label) : null;
    if (this.label !== before) this.show_class();
    this.stale = true;
    this.ask();
  }

  /** Mark one item, which is pointed at elsewhere on the page. */
  point(id) {
    this.pointed = this.data ? (this.place.get(id) ?? null) : null;
    this.ask();
  }

  // -- drawing ----------------------------------------------------------------------------------------------------

  get scale() {
    return 0.92 * Math.min(this.canvas.clientWidth, this.canvas.clientHeight) * this.view.zoom;
  }
  across(i) {
    return (this.data.x[i] - this.view.x) * this.scale + this.canvas.clientWidth / 2;
  }
  down(i) {
    return (this.data.y[i] - this.view.y) * this.scale + this.canvas.clientHeight / 2;
  }
  color(i) {
    return this.data.classed[i] < 0 ? "#8a929c" : this.data.colors[this.data.classed[i]];
  }

  ask() {
    if (!this.asked) {
      this.asked = true;
      requestAnimationFrame(() => this.draw());
    }
  }

  /** Points in sight and up to `margin` pixels beyond: all, or none of them where there are more than `most`. */
  visible(margin, most = Infinity) {
    const { x, y } = this.data;
    const { scale, view, canvas } = this;
    const count = x.length;
    const seen = [];
    const wide = (canvas.clientWidth / 2 + margin) / scale;
    const high = (canvas.clientHeight / 2 + margin) / scale;
    for (let i = 0; i < count; i++) {
      if (Math.abs(x[i] - view.x) > wide || Math.abs(y[i] - view.y) > high) continue;
      seen.push(i);
      if (seen.length > most) return { seen: [], crowded: true };
    }
    return { seen, crowded: false };
  }

  faded(i, found) {
    return (
      (this.label !== null && this.data.classed[i] !== this.label) ||
      (found.size > 0 && !found.has(i) && i !== this.query) ||
      (this.selected.size > 0 && !this.selected.has(i))
    );
  }

  /** Send the points' colors to WebGL: once for each change, not for each frame. */
  paint(found) {
    const { classed, colors } = this.data;
    const bytes = new Uint8Array(4 * classed.length);
    const palette = [...colors, "#8a929c"].map((color) =>
      [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16)),
    );
    for (let i = 0; i < classed.length; i++) {
      const [red, green, blue] = palette[classed[i] < 0 ? colors.length : classed[i]];
      const at = 4 * i;
      bytes[at] = red;
      bytes[at + 1] = green;
      bytes[at + 2] = blue;
      bytes[at + 3] = this.faded(i, found) ? 40 : 230;
    }
    this.points.paint(bytes);
    this.stale = false;
  }

  draw() {
    this.asked = false;
    const { canvas, pen, view } = this;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    const dense = window.devicePixelRatio || 1;
    if (!width) return;
    if (
      canvas.width !== Math.round(width * dense) ||
      canvas.height !== Math.round(height * dense)
    ) {
      canvas.width = Math.round(width * dense);
      canvas.height = Math.round(height * dense);
    }
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, width, height);
    element("map-zoom").textContent = `${view.zoom.toFixed(1)}×`;
    // At rest, a finger scrolls the page past the map.
    canvas.style.touchAction = view.zoom > 1 || this.tool !== "move" ? "none" : "pan-y";
    if (!this.data) return;
    const ink = getComputedStyle(canvas).color;
    const paper = getComputedStyle(canvas.parentElement).backgroundColor;
    const { seen, crowded } = this.visible(LARGEST / 2, this.points ? CROWD : Infinity);
    const found = new Set(this.found);
    this.side = 0;
    if (this.about.pictures && !crowded && seen.length <= CROWD && view.zoom > 1) {
      this.side = Math.max(
        SMALLEST,
        Math.min(LARGEST, 0.5 * Math.sqrt((width * height) / Math.max(1, seen.length))),
      );
    }
    const many = this.data.ids.length;
    const radius = Math.min(
      6,
      (many > 20000 ? 1.5 : 2.2) + 0.5 * Math.log2(view.zoom) + (many < 600 ? 1 : 0),
    );
    element("map-astray").hidden =
      !many || this.visible(this.side ? this.side / 2 : radius, 0).crowded;
    if (this.points) {
      if (this.stale) this.paint(found);
      this.points.draw(view, this.scale, radius, width, height, dense);
    }
    // Those that stand out last, so that they lie on top.
    const rank = (i) =>
      i === this.hovered || i === this.pointed
        ? 3
        : i === this.query
          ? 2
          : found.has(i)
            ? 1
            : this.faded(i, found)
              ? -1
              : 0;
    const outstanding = () =>
      [...new Set([...this.found, this.query, this.hovered, this.pointed])].filter(
        (i) => i !== null,
      );
    const order = (this.points && !this.side ? outstanding() : seen)
      .map((i) => [rank(i), i])
      .sort((a, b) => a[0] - b[0]);
    this.threads(ink);
    for (const [place, i] of order) {
      const x = this.across(i);
      const y = this.down(i);
      pen.globalAlpha = place < 0 ? (this.side ? 0.45 : 0.22) : 0.9;
      const side =
        this.side || (place > 0 && this.about.pictures && view.zoom >= 2 ? STANDING_OUT : 0);
      if (side && this.thumbnail(i, x, y, place, side)) continue;
      if (this.points && place < 1) continue;
      pen.fillStyle = this.color(i);
      pen.beginPath();
      pen.arc(x, y, place > 0 ? radius + 1.5 : radius, 0, 2 * Math.PI);
      pen.fill();
      if (place > 0) this.ring(x, y, radius + (place > 1 ? 5 : 3), place, ink, paper);
    }
    pen.globalAlpha = 1;
    if (this.outline) this.surround(ink);
    if (canvas.matches(":focus-visible")) this.cross(width / 2, height / 2, ink);
  }

  /** The rectangle or lasso that is being drawn, in pixels. */
  surround(ink) {
    const { pen } = this;
    pen.beginPath();
    for (const [x, y] of this.corners()) pen.lineTo(x, y);
    pen.closePath();
    pen.fillStyle = pen.strokeStyle = ink;
    pen.globalAlpha = 0.08;
    pen.fill();
    pen.globalAlpha = 0.9;
    pen.lineWidth = 1.4;
    pen.setLineDash([5, 4]);
    pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  /** Lines from the query to its neighbors. */
  threads(ink) {
    if (this.query === null) return;
    const { pen } = this;
    const x = this.across(this.query);
    const y = this.down(this.query);
    pen.strokeStyle = ink;
    pen.lineWidth = 1;
    pen.globalAlpha = 0.28;
    pen.beginPath();
    for (const i of this.found) {
      pen.moveTo(x, y);
      pen.lineTo(this.across(i), this.down(i));
    }
    pen.stroke();
  }

  thumbnail(i, x, y, place, side) {
    const image = this.pictures.get(this.data.ids[i]);
    if (!image) return false;
    const { pen } = this;
    const share = side / Math.max(image.naturalWidth, image.naturalHeight);
    const wide = image.naturalWidth * share;
    const tall = image.naturalHeight * share;
    pen.drawImage(image, x - wide / 2, y - tall / 2, wide, tall);
    pen.globalAlpha = place < 0 ? 0.5 : 1;
    pen.lineWidth = place > 1 ? 4 : place > 0 ? 3 : 1.5;
    pen.strokeStyle = place > 1 ? getComputedStyle(this.canvas).color : this.color(i);
    pen.strokeRect(x - wide / 2, y - tall / 2, wide, tall);
    return true;
  }

  ring(x, y, radius, place, ink, paper) {
    const { pen } = this;
    pen.globalAlpha = 1;
    for (const [color, width] of [
      [paper, place > 1 ? 5 : 4],
      [ink, place > 1 ? 2.4 : 1.4],
    ]) {
      pen.strokeStyle = color;
      pen.lineWidth = width;
      pen.beginPath();
      pen.arc(x, y, radius - 1.5, 0, 2 * Math.PI);
      pen.stroke();
    }
    pen.fillStyle = place > 1 ? ink : pen.fillStyle;
    if (place > 1) {
      pen.beginPath();
      pen.arc(x, y, 2.4, 0, 2 * Math.PI);
      pen.fill();
    }
  }

  cross(x, y, ink) {
    const { pen } = this;
    pen.strokeStyle = ink;
    pen.lineWidth = 1.2;
    pen.globalAlpha = 0.7;
    pen.beginPath();
    for (const [u, v] of [
      [-1, 0],
      [1, 0],
      [0, -1],
      [0, 1],
    ]) {
      pen.moveTo(x + 5 * u, y + 5 * v);
      pen.lineTo(x + 13 * u, y + 13 * v);
    }
    pen.stroke();
    pen.globalAlpha = 1;
  }

  // -- moving -----------------------------------------------------------------------------------------------------

  /** Zoom by a factor so that what lies under (x, y) stays there. */
  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const before = this.scale;
    this.view.zoom = Math.min(MOST, Math.max(1, this.view.zoom * factor));
    const shrunk = 1 / before - 1 / this.scale;
    this.move(
      (x - this.canvas.clientWidth / 2) * shrunk,
      (y - this.canvas.clientHeight / 2) * shrunk,
    );
  }

  move(x, y) {
    const slack = Math.min(0.5, this.view.zoom - 1); // at zoom 1 the map is centered, deeper in its edge can reach the middle
    const clamp = (v) => Math.min(0.5 + slack, Math.max(0.5 - slack, v));
    this.view.x = clamp(this.view.x + x);
    this.view.y = clamp(this.view.y + y);
    this.leave();
    this.ask();
  }

  reset() {
    Object.assign(this.view, { x: 0.5, y: 0.5, zoom: 1 });
    this.leave();
    this.ask();
  }

  show_found() {
    if (this.found.length) this.fit(this.found, this.query ?? this.found[0]);
  }

  /** Move to the class that the search is narrowed to, or back to the whole map. */
  show_class() {
    const places = [...this.data.ids.keys()].filter((i) => this.data.classed[i] === this.label);
    if (this.label === null || !places.length) {
      this.reset();
      return;
    }
    const middle = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
    const x = middle(places.map((i) => this.data.x[i]));
    const y = middle(places.map((i) => this.data.y[i]));
    const apart = (i) => Math.hypot(this.data.x[i] - x, this.data.y[i] - y);
    this.fit(
      places,
      places.reduce((best, i) => (apart(i) < apart(best) ? i : best)),
    );
  }

  /** Fill the canvas with a center and most of the places; one that lies far off would leave all others tiny. */
  fit(all, center) {
    const apart = (i) =>
      Math.hypot(this.data.x[i] - this.data.x[center], this.data.y[i] - this.data.y[center]);
    const near = [...all].sort((a, b) => apart(a) - apart(b));
    const places = [center, ...near.slice(0, Math.ceil(0.7 * near.length))];
    const span = (values) =>
      values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [1, 0]);
    const [left, right] = span(places.map((i) => this.data.x[i]));
    const [top, bottom] = span(places.map((i) => this.data.y[i]));
    this.view.zoom = Math.min(
      MOST / 4,
      Math.max(1, 0.75 / Math.max(right - left, bottom - top, 0.004)),
    );
    Object.assign(this.view, { x: 0.5, y: 0.5 });
    this.move((left + right) / 2 - 0.5, (top + bottom) / 2 - 0.5);
  }

  /** From pixels to places on the map. */
  inverse(x, y) {
    const { canvas, scale, view } = this;
    return [
      (x - canvas.clientWidth / 2) / scale + view.x,
      (y - canvas.clientHeight / 2) / scale + view.y,
    ];
  }

  nearest(x, y, reach) {
    if (!this.data) return null;
    const [u, v] = this.inverse(x, y);
    const { x: across, y: down } = this.data;
    let best = null;
    let least = (reach / this.scale) ** 2;
    for (let i = 0; i < across.length; i++) {
      const apart = (across[i] - u) ** 2 + (down[i] - v) ** 2;
      if (apart <= least) {
        best = i;
        least = apart;
      }
    }
    return best;
  }

  // -- selecting --------------------------------------------------------------------------------------------------

  use(tool) {
    this.tool = tool;
    for (const button of document.querySelectorAll("[data-tool]")) {
      button.setAttribute("aria-pressed", String(button.dataset.tool === tool));
    }
    this.canvas.dataset.tool = tool;
    this.leave();
    this.ask();
  }

  corners() {
    const { shape, trail } = this.outline;
    const [[x, y]] = trail;
    const [u, v] = trail.at(-1);
    return shape === "rectangle"
      ? [
          [x, y],
          [u, y],
          [u, v],
          [x, v],
        ]
      : trail;
  }

  /** Select what the outline surrounds. */
  surrounded() {
    const corners = this.corners().map(([x, y]) => this.inverse(x, y));
    const { x, y } = this.data;
    const { add } = this.outline;
    this.outline = null;
    this.ask();
    const span = (axis) => [
      Math.min(...corners.map((at) => at[axis])),
      Math.max(...corners.map((at) => at[axis])),
    ];
    const [left, right] = span(0);
    const [top, bottom] = span(1);
    const inside = (u, v) => {
      // crossings of a ray with the edges: an odd number from within
      let odd = false;
      for (let i = 0, j = corners.length - 1; i < corners.length; j = i++) {
        const [a, b] = corners[i];
        const [c, d] = corners[j];
        if (b > v !== d > v && u < ((c - a) * (v - b)) / (d - b) + a) odd = !odd;
      }
      return odd;
    };
    const found = add ? new Set(this.selected) : new Set();
    for (let i = 0; i < x.length; i++) {
      if (x[i] >= left && x[i] <= right && y[i] >= top && y[i] <= bottom && inside(x[i], y[i])) {
        found.add(i);
      }
    }
    this.choose(found);
  }

  choose(places) {
    Object.assign(this, { selected: places, stale: true });
    this.ask();
    this.chosen(
      [...places].map((i) => ({
        id: this.data.ids[i],
        label: this.data.classes[this.data.given[i]] ?? null,
      })),
    );
  }

  tell(i, x, y) {
    const { data, tip, canvas } = this;
    const number = data.classed[i];
    const parts = [
      make(
        "p",
        make("b", make("bdi", number < 0 ? `item ${data.ids[i]}` : data.classes[number])),
        make("small", "click to search from it"),
      ),
    ];
    if (this.about.pictures) {
      parts.unshift(make("img", { src: thumbnail(data.ids[i], 128, data.generation), alt: "" }));
    }
    if (this.about.kind === "text") parts.unshift(make("p.words", words({ id: data.ids[i] })));
    tip.replaceChildren(...parts);
    tip.hidden = false;
    const wide = Math.max(tip.offsetWidth, 170);
    const tall = Math.max(tip.offsetHeight, 84);
    tip.style.left = `${Math.max(4, x + wide + 18 < canvas.clientWidth ? x + 14 : x - wide - 14)}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 14, canvas.clientHeight - tall - 4))}px`;
  }

  hover(x, y) {
    const found = this.nearest(x, y, Math.max(10, (this.side ?? 0) / 2));
    if (found === null) this.tip.hidden = true;
    else if (found !== this.hovered || this.tip.hidden) this.tell(found, x, y);
    if (found !== this.hovered) {
      this.hovered = found;
      this.ask();
    }
    this.canvas.style.cursor = found === null || this.tool !== "move" ? "" : "pointer";
  }

  leave() {
    this.tip.hidden = true;
    if (this.hovered !== null) {
      this.hovered = null;
      this.ask();
    }
  }

  /** The item in the middle, for whoever works by keyboard. */
  middle() {
    const x = this.canvas.clientWidth / 2;
    const y = this.canvas.clientHeight / 2;
    const found = this.nearest(x, y, Math.min(x, y));
    if (found === null) return null;
    const number = this.data.classed[found];
    element("map-told").textContent =
      `In the middle: ${number < 0 ? `item ${this.data.ids[found]}` : this.data.classes[number]}`;
    return found;
  }

  listen() {
    const { canvas } = this;
    const inside = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    // The wheel is ours only if the pointer has moved since the page last scrolled: who scrolls past is not caught.
    let pointed = false;
    let dragged = false;
    window.addEventListener(
      "scroll",
      () => {
        pointed = false;
      },
      { passive: true },
    );
    canvas.addEventListener(
      "wheel",
      (event) => {
        if ((!pointed && !event.ctrlKey) || (event.deltaY > 0 && this.view.zoom === 1)) return;
        event.preventDefault();
        const lines = event.deltaMode === 1 ? 30 : 1;
        this.zoom(
          Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)),
          ...inside(event),
        );
        this.hover(...inside(event));
      },
      { passive: false },
    );
    const fingers = new Map();
    canvas.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, inside(event));
      dragged = fingers.size > 1;
      const selects = this.data && !dragged && (this.tool !== "move" || event.shiftKey);
      this.outline = selects
        ? {
            shape: this.tool === "move" ? "lasso" : this.tool,
            trail: [inside(event)],
            add: this.tool !== "move" && event.shiftKey,
          }
        : null;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (event.movementX || event.movementY) pointed = true; // browsers make up moves while a page scrolls
      const [x, y] = inside(event);
      const before = fingers.get(event.pointerId);
      if (!before) {
        this.hover(x, y);
        return;
      }
      if (!dragged && Math.hypot(x - before[0], y - before[1]) < 4) return;
      dragged = true;
      this.leave();
      if (this.outline) {
        this.outline.trail.push([x, y]);
        this.ask();
        return;
      }
      const other = [...fingers].find(([id]) => id !== event.pointerId);
      if (other) {
        const [u, v] = other[1];
        this.zoom(
          Math.hypot(x - u, y - v) / Math.max(1, Math.hypot(before[0] - u, before[1] - v)),
          (x + u) / 2,
          (y + v) / 2,
        );
      } else this.move((before[0] - x) / this.scale, (before[1] - y) / this.scale);
      fingers.set(event.pointerId, [x, y]);
    });
    const lift = (event) => {
      const known = fingers.delete(event.pointerId);
      const up = event.type === "pointerup";
      if (known && this.outline && dragged && up) this.surrounded();
      if (this.outline) {
        this.outline = null;
        this.ask();
      }
      if (!known || dragged || !up) return;
      const [x, y] = inside(event);
      const found = this.nearest(x, y, Math.max(10, (this.side ?? 0) / 2));
      if (found !== null) {
        this.leave();
        this.pick(this.data.ids[found]);
      }
    };
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
    canvas.addEventListener("pointerleave", () => this.leave());
    for (const event of ["focus", "blur"]) canvas.addEventListener(event, () => this.ask());
    const step = () => 0.12 / this.view.zoom;
    const keys = {
      ArrowLeft: () => this.move(-step(), 0),
      ArrowRight: () => this.move(step(), 0),
      ArrowUp: () => this.move(0, -step()),
      ArrowDown: () => this.move(0, step()),
      "+": () => this.zoom(1.4),
      "=": () => this.zoom(1.4),
      "-": () => this.zoom(1 / 1.4),
      0: () => this.reset(),
      Home: () => this.reset(),
      Escape: () => {
        if (this.selected.size) this.choose(new Set());
        this.leave();
      },
      " ": () => {
        const found = this.middle();
        const places = new Set(this.selected);
        if (found !== null) {
          if (!places.delete(found)) places.add(found);
          this.choose(places);
        }
      },
      Enter: () => {
        const found = this.middle();
        if (found !== null) this.pick(this.data.ids[found]);
      },
    };
    canvas.addEventListener("keydown", (event) => {
      const act = event.ctrlKey || event.metaKey || event.altKey ? null : keys[event.key];
      if (!act || !this.data) return;
      event.preventDefault();
      act();
      if (event.key !== "Enter") this.middle();
    });
    for (const button of document.querySelectorAll("[data-tool]")) {
      button.addEventListener("click", () => this.use(button.dataset.tool));
    }
    element("map-in").addEventListener("click", () => this.zoom(1.6));
    element("map-out").addEventListener("click", () => this.zoom(1 / 1.6));
    element("map-reset").addEventListener("click", () => this.reset());
    element("map-back").addEventListener("click", () => {
      this.reset();
      canvas.focus();
    }); // the button itself goes
    element("map-found").addEventListener("click", () => this.show_found());
  }
}
