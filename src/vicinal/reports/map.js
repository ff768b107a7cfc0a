// The embedding map on a canvas: points by class that become pictures as one zooms in. Text only as textContent.
"use strict";
(() => {
  const holder = document.getElementById("map-data");
  if (!holder) return;
  const data = JSON.parse(holder.textContent);
  const element = (id) => document.getElementById(id);
  const canvas = element("map-canvas");
  const pen = canvas.getContext("2d");
  const tip = element("map-tip");
  const chooser = element("map-class");
  const pictures = element("map-pictures");
  const output = element("map-zoom");
  const MOST = 64; // times; then a cluster of one class fills the canvas
  const SMALLEST = 16;
  const LARGEST = 72; // side of a picture in pixels
  const view = { x: 0.5, y: 0.5, zoom: 1 };
  let chosen = null;
  let hovered = null;
  let sheet = null;
  let asked = false;

  // The sheet of thumbnails stands in the page once, as a CSS background; the canvas borrows it from there.
  const probe = document.createElement("span");
  probe.className = "thumb";
  document.body.append(probe);
  const address = /^url\("(.*)"\)$/.exec(getComputedStyle(probe).backgroundImage);
  probe.remove();
  if (address) {
    const image = new Image();
    image.addEventListener("load", () => {
      sheet = image;
      ask();
    });
    image.src = address[1];
  }
  const side = Number(canvas.dataset.tile);
  const columns = Number(canvas.dataset.columns);

  const scale = () => 0.92 * Math.min(canvas.clientWidth, canvas.clientHeight) * view.zoom;
  const across = (i) => (data.x[i] - view.x) * scale() + canvas.clientWidth / 2;
  const down = (i) => (data.y[i] - view.y) * scale() + canvas.clientHeight / 2;

  /** The side of a picture at this zoom, or 0 while points are clearer. */
  const size = () => {
    if (!sheet) return 0;
    const natural = Math.min(LARGEST, 0.012 * scale());
    return natural >= SMALLEST ? natural : pictures.checked ? SMALLEST : 0;
  };

  // The middle of each class, by medians: a stray point does not move it.
  const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
  const middles = data.classes.map((_, number) => {
    const members = data.class.flatMap((other, i) => (other === number ? [i] : []));
    return [median(members.map((i) => data.x[i])), median(members.map((i) => data.y[i]))];
  });

  /** Names of classes at their middles, as many as do not overlap; the chosen one first. */
  const write = (width, height, ink) => {
    pen.font = "600 12px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineJoin = "round";
    const taken = [];
    const order = data.classes
      .map((_, number) => number)
      .sort((a, b) => (b === chosen) - (a === chosen));
    for (const number of order) {
      if (chosen !== null && number !== chosen) break;
      const x = (middles[number][0] - view.x) * scale() + width / 2;
      const y = (middles[number][1] - view.y) * scale() + height / 2;
      const whole = data.classes[number];
      const name = whole.length > 24 ? `${whole.slice(0, 23)}…` : whole;
      const half = pen.measureText(name).width / 2 + 4;
      if (x < 0 || y < 0 || x > width || y > height) continue;
      if (taken.some(([u, v, other]) => Math.abs(u - x) < half + other && Math.abs(v - y) < 16)) {
        continue;
      }
      taken.push([x, y, half]);
      pen.lineWidth = 4;
      pen.strokeStyle = getComputedStyle(document.body).backgroundColor;
      pen.strokeText(name, x, y);
      pen.fillStyle = ink;
      pen.fillText(name, x, y);
    }
  };

  const draw = () => {
    asked = false;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    const dense = window.devicePixelRatio || 1;
    if (
      canvas.width !== Math.round(width * dense) ||
      canvas.height !== Math.round(height * dense)
    ) {
      canvas.width = Math.round(width * dense);
      canvas.height = Math.round(height * dense);
    }
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, width, height);
    const ink = getComputedStyle(canvas).color;
    const picture = size();
    const radius = Math.min(6, 2.4 + 0.5 * Math.log2(view.zoom) + (data.x.length < 500 ? 1 : 0));
    const near = hovered === null ? null : data.class[hovered];
    const order = data.x.map((_, i) => i);
    // Those of the class in question last, so that they lie on top.
    const rank = (i) =>
      i === hovered ? 3 : data.class[i] === chosen ? 2 : data.class[i] === near ? 1 : 0;
    if (near !== null || chosen !== null) order.sort((a, b) => rank(a) - rank(b));
    for (const i of order) {
      const x = across(i);
      const y = down(i);
      const margin = picture || radius;
      if (x < -margin || y < -margin || x > width + margin || y > height + margin) continue;
      const faded = chosen !== null && data.class[i] !== chosen;
      pen.globalAlpha = faded ? 0.13 : picture ? 1 : 0.85;
      pen.fillStyle = pen.strokeStyle = data.colors[data.class[i]];
      if (picture && data.tile[i] !== null) {
        const tile = data.tile[i];
        const left = (tile % columns) * side;
        const top = Math.floor(tile / columns) * side;
        pen.drawImage(
          sheet,
          left,
          top,
          side,
          side,
          x - picture / 2,
          y - picture / 2,
          picture,
          picture,
        );
        pen.lineWidth = data.class[i] === near ? 3 : 1.5;
        pen.strokeRect(x - picture / 2, y - picture / 2, picture, picture);
      } else {
        const emphasised = data.class[i] === near;
        pen.beginPath();
        pen.arc(x, y, emphasised ? radius + 1.5 : radius, 0, 2 * Math.PI);
        pen.fill();
        if (emphasised) {
          pen.lineWidth = 1.2;
          pen.strokeStyle = ink;
          pen.stroke();
        }
      }
    }
    pen.globalAlpha = 1;
    write(width, height, ink);
    output.textContent = `${view.zoom.toFixed(1)}×`;
    canvas.style.touchAction = view.zoom > 1 ? "none" : "pan-y"; // at rest, a finger scrolls the page past the map
  };
  const ask = () => {
    if (!asked) {
      asked = true;
      requestAnimationFrame(draw);
    }
  };

  /** Zoom by a factor so that what lies under (x, y) stays there. */
  const zoom = (factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) => {
    const before = scale();
    view.zoom = Math.min(MOST, Math.max(1, view.zoom * factor));
    const shrunk = 1 / before - 1 / scale();
    move((x - canvas.clientWidth / 2) * shrunk, (y - canvas.clientHeight / 2) * shrunk);
  };
  const move = (x, y) => {
    const slack = 0.5 * (1 - 1 / view.zoom); // at zoom 1 the map is centered, deeper in its edge can reach the middle
    const clamp = (v) => Math.min(0.5 + slack, Math.max(0.5 - slack, v));
    view.x = clamp(view.x + x);
    view.y = clamp(view.y + y);
    ask();
  };
  const reset = () => {
    Object.assign(view, { x: 0.5, y: 0.5, zoom: 1 });
    leave();
    ask();
  };
  const choose = (number) => {
    chosen = number;
    chooser.value = number === null ? "" : String(number);
    ask();
  };

  const find = (x, y) => {
    const reach = Math.max(9, size() / 2);
    let best = null;
    let distance = reach;
    for (let i = 0; i < data.x.length; i++) {
      if (chosen !== null && data.class[i] !== chosen) continue;
      const apart = Math.hypot(across(i) - x, down(i) - y);
      if (apart <= distance) {
        best = i;
        distance = apart;
      }
    }
    return best;
  };
  const tell = (i, x, y) => {
    const text = document.createElement("p");
    const title = document.createElement("b");
    const name = document.createElement("small");
    const isolated = document.createElement("bdi");
    isolated.textContent = data.classes[data.class[i]];
    title.append(isolated);
    name.textContent = data.name[i];
    text.append(title, name);
    tip.replaceChildren(text);
    if (sheet && data.tile[i] !== null) {
      const picture = document.createElement("span");
      picture.className = "thumb";
      const right = sheet.naturalWidth - side;
      const bottom = sheet.naturalHeight - side;
      const left = (data.tile[i] % columns) * side;
      const top = Math.floor(data.tile[i] / columns) * side;
      picture.style.backgroundPosition = `${right ? (100 * left) / right : 0}% ${bottom ? (100 * top) / bottom : 0}%`;
      tip.prepend(picture);
    }
    tip.hidden = false;
    const wide = tip.offsetWidth;
    const tall = tip.offsetHeight;
    tip.style.left = `${Math.max(4, x + wide + 18 < canvas.clientWidth ? x + 14 : x - wide - 14)}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 14, canvas.clientHeight - tall - 4))}px`;
  };
  const hover = (x, y) => {
    const found = find(x, y);
    if (found !== null) tell(found, x, y);
    else tip.hidden = true;
    if (found !== hovered) {
      hovered = found;
      ask();
    }
  };
  const leave = () => {
    tip.hidden = true;
    if (hovered !== null) {
      hovered = null;
      ask();
    }
  };

  const inside = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  // The wheel is ours only if the pointer has moved since the page last scrolled: who scrolls past is not caught.
  let pointed = false;
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
      if (!pointed && !event.ctrlKey) return;
      if (event.deltaY > 0 && view.zoom === 1) return;
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 30 : 1;
      zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)), ...inside(event));
      hover(...inside(event));
    },
    { passive: false },
  );

  const fingers = new Map();
  let dragged = false;
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, inside(event));
    dragged = fingers.size > 1;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.movementX || event.movementY) pointed = true; // browsers make up moves while a page scrolls
    const [x, y] = inside(event);
    const before = fingers.get(event.pointerId);
    if (!before) {
      hover(x, y);
      return;
    }
    if (!dragged && Math.hypot(x - before[0], y - before[1]) < 4) return;
    dragged = true;
    leave();
    const other = [...fingers].find(([id]) => id !== event.pointerId);
    if (other) {
      const [u, v] = other[1];
      zoom(Math.hypot(x - u, y - v) / Math.max(1, Math.hypot(before[0] - u, before[1] - v)), u, v);
    } else {
      move((before[0] - x) / scale(), (before[1] - y) / scale());
    }
    fingers.set(event.pointerId, [x, y]);
  });
  const lift = (event) => {
    if (fingers.delete(event.pointerId) && !dragged && event.type === "pointerup") {
      const found = find(...inside(event));
      const number = found === null ? null : data.class[found];
      choose(number === chosen ? null : number);
      if (found !== null) hover(...inside(event));
    }
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", leave);

  const step = () => 0.12 / view.zoom;
  const keys = {
    ArrowLeft: () => move(-step(), 0),
    ArrowRight: () => move(step(), 0),
    ArrowUp: () => move(0, -step()),
    ArrowDown: () => move(0, step()),
    "+": () => zoom(1.4),
    "=": () => zoom(1.4),
    "-": () => zoom(1 / 1.4),
    0: reset,
    Home: reset,
    Escape: () => {
      choose(null);
      leave();
    },
  };
  canvas.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? null : keys[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });
  element("map-in").addEventListener("click", () => zoom(1.6));
  element("map-out").addEventListener("click", () => zoom(1 / 1.6));
  element("map-reset").addEventListener("click", reset);
  chooser.addEventListener("change", () =>
    choose(chooser.value === "" ? null : Number(chooser.value)),
  );
  if (pictures) pictures.addEventListener("change", ask);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ask);
  new ResizeObserver(ask).observe(canvas);
})();
