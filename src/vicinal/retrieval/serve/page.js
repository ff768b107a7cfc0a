// The page: one state, kept in the address so that back, forward and reload work, and drawn anew when it changes.
import { RequestError, address, ask, in_words } from "/static/asking.js";
import { counted, fill, make, number } from "/static/dom.js";
import { item_list, match_list, query_card, waiting_list } from "/static/results.js";
import { CollectionMap } from "/static/map.js";
import { Review } from "/static/review.js";
import { Selection } from "/static/selection.js";
import { Work } from "/static/work.js";
import { show_hardness } from "/static/hardness.js";

const STEP = 24; // neighbors at a time
const VIEWS = ["explore", "review", "hardness"];
const element = (id) => document.getElementById(id);
const uploads = new Map(); // pictures of this visit by number; history keeps the number
let about = null;
let held = new Map();
let current = null;
let asked = 0;
let request = null; // held: items by class

// -- state and address --------------------------------------------------------------------------------------------

const read_state = () => {
  const query = new URLSearchParams(location.search);
  const number = (name) => (/^\d+$/.test(query.get(name) ?? "") ? Number(query.get(name)) : null);
  const beyond = Number.parseFloat(query.get("beyond") ?? "");
  return {
    view: VIEWS.includes(query.get("view")) ? query.get("view") : "explore",
    item: number("item"),
    text: query.get("text") ?? "",
    label: query.get("class") ?? "",
    k: Math.max(STEP, number("k") ?? STEP),
    beyond: Number.isFinite(beyond) && beyond >= 0 ? beyond : null,
    upload: history.state?.upload ?? null,
  };
};
const go = (change, { replace = false } = {}) => {
  const state = { ...read_state(), ...change };
  const path = address("/", {
    view: state.view === "explore" ? null : state.view,
    item: state.upload === null && !state.text ? state.item : null,
    text: state.text,
    class: state.label,
    beyond: state.beyond,
    k: state.k > STEP ? state.k : null,
  });
  const kept = { upload: state.upload };
  if (replace) history.replaceState(kept, "", path);
  else history.pushState(kept, "", path);
  draw();
};
const search_item = (id) => {
  go({ view: "explore", item: id, text: "", upload: null, k: STEP });
  window.scrollTo({ top: 0 });
};
const clear = () => {
  go({ item: null, text: "", upload: null, k: STEP });
  element("file").focus();
};

// -- saying what went wrong ---------------------------------------------------------------------------------------

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const complain = (error, upload = null) => {
  if (error.name === "AbortError") return;
  const [got, advice] = in_words(error, upload, about?.limits);
  const details = element("notice-details");
  element("notice-got").textContent = got;
  element("notice-advice").textContent = advice;
  details.open = false;
  details.hidden = error.status === 0;
  details.querySelector("p").textContent =
    error instanceof RequestError ? capital(error.message) : String(error);
  element("notice").hidden = false;
};
const hush = () => {
  element("notice").hidden = true;
};
element("notice-close").addEventListener("click", hush);

// -- the collection -----------------------------------------------------------------------------------------------

const map = new CollectionMap({ pick: search_item, select: (items) => selection.show(items) });
const context = () => ({
  generation: about.generation,
  pictures: about.pictures,
  texts: about.kind === "text",
  search: search_item,
  point: (id) => map.point(id),
});

const work = new Work(complain);
const context_of = () => ({ ...context(), classes: [...held.keys()] });
const selection = new Selection(element("selection"), work, context_of, () => map.select([]));
const review = new Review(element("review"), work, context_of);

/** Labels that were given here, by id. */
const given = () =>
  new Map(
    [...work.by.values()]
      .filter(({ label }) => label !== null)
      .map(({ target, label }) => [target, label]),
  );
let labels = null;
work.watchers.push(() => {
  const now = JSON.stringify([...given()]);
  const first = labels === null;
  if (now === labels) return;
  labels = now;
  map.relabel(given());
  if (!first) {
    read_classes()
      .then(() => {
        if (read_state().view === "explore") draw();
      })
      .catch(complain);
  }
});

const read_classes = async () => {
  const { classes } = await ask("/api/classes");
  held = new Map(classes.map(({ label, items }) => [label, items]));
  element("under").textContent = [
    counted(about.items, { images: "picture", text: "text" }[about.kind] ?? "item"),
    counted(classes.length, "class", "classes"),
    `${about.dim} dimensions`,
    about.data && `data ${about.data}`,
    `generation ${about.generation}`,
  ]
    .filter(Boolean)
    .join(" · ");
  const chooser = element("class");
  const chosen = read_state().label;
  chooser.replaceChildren(
    make("option", { value: "" }, `all ${counted(classes.length, "class", "classes")}`),
    ...classes.map(({ label, items }) =>
      make("option", { value: label }, `${label} (${number(items)})`),
    ),
  );
  if (chosen && !classes.some(({ label }) => label === chosen)) {
    chooser.append(make("option", { value: chosen }, `${chosen} (0)`));
  }
  chooser.value = chosen;
};

const read_about = async () => {
  about = await ask("/api/about");
  const title = about.title.replace(/\.$/, "").split(": ")[0]; // what follows a colon explains, and is the report's to tell
  element("title").textContent = title;
  element("title").title = about.title;
  document.title = `${title} · vicinal`;
  element("version").textContent = about.vicinal;
  element("drop").hidden = about.kind !== "images";
  element("featureless").hidden = about.kind === "images" || about.text;
  for (const part of document.querySelectorAll(".texts")) part.hidden = !about.text;
  const known = about.threshold;
  element("threshold").placeholder = known ? known.distance.toFixed(3) : "no limit";
  element("threshold-said").textContent = known
    ? `calibrated: ${(100 * known.false_match_rate).toPrecision(2).replace(/\.?0+$/, "")} % false matches`
    : "not calibrated";
  await read_classes();
  map.load(about).catch(complain);
  work.read().catch(complain);
};

/** Someone has indexed since: what we know of the collection is of an older generation. */
const check_generation = async (answer) => {
  if (answer.generation !== about.generation) await read_about();
};

// -- searching ----------------------------------------------------------------------------------------------------

const find = (state, signal) => {
  const values = {
    k: Math.min(state.k, about.limits.k),
    label: state.label,
    max_distance: state.beyond,
  };
  if (state.upload !== null) {
    return ask(address("/api/search/image", values), {
      method: "POST",
      body: uploads.get(state.upload).file,
      signal,
    });
  }
  if (state.text) return ask(address("/api/search/text", { q: state.text, ...values }), { signal });
  return ask(address(`/api/search/item/${state.item}`, values), { signal });
};

const tell = (title, said = "") => {
  element("found-title").textContent = title;
  element("found-said").textContent = said;
};
const list_rows = (rows) => element("matches").replaceChildren(...rows);
const busy = (state) => {
  element("found").setAttribute("aria-busy", "true");
  // The old answer stays while it is narrowed or lengthened; another question starts from blank cards.
  if (
    !current ||
    current.item !== state.item ||
    current.text !== state.text ||
    current.upload !== state.upload
  ) {
    list_rows(waiting_list(12));
  }
};

const draw_found = async (state, signal) => {
  const found = await find(state, signal);
  await check_generation(found);
  const upload = state.upload === null ? null : uploads.get(state.upload);
  element("query").hidden = found.by === "text"; // the box shows it
  if (found.by !== "text") {
    fill(
      element("query"),
      query_card({
        item: found.query,
        upload,
        ...context(),
        generation: found.generation,
        clear,
      }),
    );
  }
  const near = found.matches.filter((match) => match.matches !== false).length;
  const times = [
    found.embedding_seconds && `embedded in ${Math.round(1000 * found.embedding_seconds)} ms`,
    `searched in ${Math.max(1, Math.round(1000 * found.search_seconds))} ms`,
  ];
  if (!found.matches.length) {
    tell(
      "Nothing to find",
      state.label
        ? "There is no other item of this class. Choose another class."
        : "The collection holds nothing else.",
    );
  } else if (found.no_match) {
    tell(
      "No match",
      `Nothing lies within ${found.threshold.distance.toFixed(3)}; the nearest are shown all the same. ${capital(times.filter(Boolean).join(", "))}.`,
    );
  } else {
    tell(
      found.threshold
        ? counted(near, "match", "matches") + (near === found.matches.length ? " or more" : "")
        : "Neighbors",
      `Nearest first; ${times.filter(Boolean).join(", ")}.`,
    );
  }
  const label = found.query?.label ?? null;
  const can_be_right = label !== null && (!state.label || state.label === label);
  list_rows(match_list(found, can_be_right ? (held.get(label) ?? 1) - 1 : 0, context()));
  element("more").hidden = found.matches.length < state.k || state.k >= about.limits.k;
  map.highlight(
    found.query?.id ?? null,
    found.matches.map((match) => match.id),
    state.label,
  );
};

const draw_start = async (state, signal) => {
  const list = await ask(
    address("/api/items", {
      label: state.label,
      limit: Math.min(state.k, about.limits.listed),
      spread: "true",
    }),
    { signal },
  );
  await check_generation(list);
  element("query").hidden = true;
  if (list.total) {
    tell(
      state.label ? counted(list.total, "item") : "Start from one of these",
      state.label ? state.label : "A few of the collection, evenly picked.",
    );
  } else {
    tell(
      "Nothing here yet",
      state.label
        ? `The collection has no item of the class ${state.label}.`
        : "The collection is empty: fill it with `vicinal index RUN PATH`.",
    );
  }
  list_rows(item_list(list.items, { ...context(), generation: list.generation }));
  element("more").hidden = list.items.length < state.k || state.k >= about.limits.listed;
  map.highlight(null, [], state.label);
};

const draw = async () => {
  const state = read_state();
  const mine = ++asked;
  request?.abort();
  request = new AbortController();
  map.leave();
  for (const view of VIEWS) element(view).hidden = state.view !== view;
  for (const link of document.querySelectorAll("[data-view]")) {
    if (link.dataset.view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (state.upload !== null && !uploads.has(state.upload)) state.upload = null; // a reload has forgotten the picture
  element("class").value = state.label;
  if (document.activeElement !== element("text")) element("text").value = state.text;
  if (document.activeElement !== element("threshold")) {
    element("threshold").value = state.beyond ?? "";
  }
  try {
    if (!about) await read_about();
    hush();
    if (state.view === "hardness") {
      await show_hardness(element("hardness"), about, (label) =>
        go({ view: "explore", label, item: null, text: "", upload: null, k: STEP }),
      );
      return;
    }
    if (state.view === "review") {
      await review.open();
      return;
    }
    busy(state);
    await (state.upload !== null || state.item !== null || state.text ? draw_found : draw_start)(
      state,
      request.signal,
    );
    current = state;
  } catch (error) {
    if (mine !== asked || error.name === "AbortError") return;
    complain(error, state.upload === null ? null : uploads.get(state.upload).name);
    if (state.view === "explore") {
      list_rows([]);
      element("query").hidden = true;
      element("more").hidden = true;
      tell("No answer", "See above for why.");
      map.highlight(null, [], state.label);
      current = null;
    }
  } finally {
    if (mine === asked) element("found").setAttribute("aria-busy", "false");
  }
};

// -- a picture comes in -------------------------------------------------------------------------------------------

const take = (file) => {
  if (!file || !about || about.kind !== "images") return;
  if (file.size > about.limits.upload_bytes) {
    complain(
      new RequestError(413, `${(file.size / 2 ** 20).toFixed(1)} MB.`),
      file.name || "The picture",
    );
    return;
  }
  const number = uploads.size;
  uploads.set(number, {
    file,
    name: file.name || "Pasted picture",
    url: URL.createObjectURL(file),
  });
  go({ view: "explore", upload: number, item: null, text: "", k: STEP });
};
element("file").addEventListener("change", (event) => {
  take(event.target.files[0]);
  event.target.value = "";
});
element("asking").addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("paste", (event) =>
  take([...(event.clipboardData?.files ?? [])].find((file) => file.type.startsWith("image/"))),
);

const carries = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
let depth = 0; // of nested elements that the drag has entered
window.addEventListener("dragenter", (event) => {
  if (carries(event)) {
    depth++;
    element("veil").hidden = about?.kind !== "images";
  }
});
window.addEventListener("dragleave", (event) => {
  if (carries(event) && --depth <= 0) {
    depth = 0;
    element("veil").hidden = true;
  }
});
window.addEventListener("dragover", (event) => {
  if (carries(event)) event.preventDefault();
});
window.addEventListener("drop", (event) => {
  if (!carries(event)) return;
  event.preventDefault();
  depth = 0;
  element("veil").hidden = true;
  take(event.dataTransfer.files[0]);
});

// -- the rest of the controls -------------------------------------------------------------------------------------

element("text").addEventListener("change", (event) =>
  go({ text: event.target.value.trim(), item: null, upload: null, k: STEP }),
);
element("class").addEventListener("change", (event) => go({ label: event.target.value, k: STEP }));
element("threshold").addEventListener("change", (event) => {
  const value = Number.parseFloat(event.target.value);
  go({ beyond: Number.isFinite(value) && value >= 0 ? value : null }, { replace: true });
});
element("more").addEventListener("click", () =>
  go({ k: read_state().k + STEP }, { replace: true }),
);
for (const link of document.querySelectorAll("[data-view], #home")) {
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(
      link.id === "home"
        ? { view: "explore", item: null, text: "", upload: null, label: "", beyond: null, k: STEP }
        : { view: link.dataset.view },
    );
  });
}
// On a narrow screen the map lies below the results.
let at_map = false;
new IntersectionObserver(
  ([{ isIntersecting }]) => {
    at_map = isIntersecting;
    element("to-map").textContent = at_map ? "Results" : "Map";
  },
  { rootMargin: "-45% 0px" },
).observe(element("map")); // in the middle of the screen
element("to-map").addEventListener("click", () =>
  element(!at_map ? "map" : element("selection").hidden ? "found" : "selection").scrollIntoView(),
);
// Arrow keys walk over the cards, row by row as they stand.
element("matches").addEventListener("keydown", (event) => {
  const cards = [...element("matches").querySelectorAll("button")];
  const here = cards.indexOf(document.activeElement);
  if (here < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
  const top = (card) => card.getBoundingClientRect().top;
  const columns = cards.filter((card) => Math.abs(top(card) - top(cards[0])) < 4).length;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
  const next = step && cards[here + step];
  if (next) {
    event.preventDefault();
    next.focus();
  }
});
window.addEventListener("popstate", draw);
draw();
