// Neighbors, items and the query as cards; each card is a button that searches from it.
import { ask, thumbnail } from "/static/asking.js";
import { button, fill, make, number } from "/static/dom.js";

/** What an item is called where it has no class: a text by itself, a picture by its file. */
export const name_of = ({ path }, { texts }) => (texts ? path : path?.split("/").pop());

/** The text that an item is; asked for where only its id is known. */
export const words = ({ id, path }) => {
  const place = make("bdi", path);
  if (path === undefined) {
    ask(`/api/items/${id}`)
      .then(({ item }) => fill(place, item.path))
      .catch(() => {});
  }
  return place;
};

/** A text itself; a picture, which steps aside for a sign where there is none to show. */
export const picture = (item, side, { generation, pictures, texts }, classes = "") => {
  const frame = make("span.picture", { class: classes || null });
  const absent = () => {
    frame.classList.add("absent");
    const sign = (item.label ?? name_of(item, {}) ?? String(item.id)).trim().slice(0, 2) || "?";
    fill(frame, make("span", { "aria-hidden": "true" }, sign));
  };
  if (texts) {
    frame.classList.add("words");
    return fill(frame, words(item));
  }
  if (!pictures || typeof item.id !== "number") {
    absent();
    return frame;
  }
  const image = make("img", {
    src: thumbnail(item.id, side, generation),
    alt: "",
    loading: "lazy",
    decoding: "async",
    draggable: "false",
  });
  image.addEventListener("error", absent);
  image.addEventListener("load", () => {
    if (Math.max(image.naturalWidth, image.naturalHeight) <= 64) frame.classList.add("tiny");
  });
  return fill(frame, image);
};

/** An item that can be searched from, and is marked on the map where it is pointed at. */
const card = (item, said, judged, context, more = null) => {
  const name = context.texts ? (item.label ?? "") : (item.label ?? name_of(item, context));
  const point = () => context.point(item.id);
  const leave = () => context.point(null);
  return button(
    ".match",
    () => context.search(item.id),
    {
      title: item.path,
      "aria-label": `Search from ${said}`,
      onpointerenter: point,
      onfocus: point,
      onpointerleave: leave,
      onblur: leave,
    },
    make(`span.judged.${judged ?? "plain"}`, picture(item, 128, context)),
    make("bdi", name),
    more,
  );
};

/** One neighbor. Beside a query of a known class it is right or wrong, by sign and line as well as by color. */
const match_card = (match, { query, part, ...context }) => {
  const known = query?.label != null && match.label !== null;
  const judged = known ? (query.label === match.label ? "right" : "wrong") : null;
  const said = [
    context.texts ? match.path : (match.label ?? name_of(match, context)),
    `distance ${match.distance.toFixed(3)}`,
    judged && `${judged} class`,
  ];
  const far = make("i", { style: { "--part": String(part(match.distance)) } });
  const distance = make("span.distance", match.distance.toFixed(3), far);
  return make(
    "li",
    { class: match.matches === false ? "beyond" : null },
    card(match, said.filter(Boolean).join(", "), judged, context, distance),
  );
};

/** " · 7 of 11 right answers lie beyond it", or nothing where the query's class is unknown or cannot be found. */
const right_beyond = (found, near, right) => {
  if (!right || near.length === found.matches.length) return "";
  const beyond = right - near.filter((match) => match.label === found.query.label).length;
  const noun = right === 1 ? "right answer lies" : "right answers lie";
  const part = `${beyond ? number(beyond) : "none"} of ${number(right)}`;
  const all = beyond === right && right > 1;
  return ` · ${all ? `all ${number(right)}` : part} ${noun} beyond it`;
};

/** All neighbors, with a line drawn where the threshold lies; `right` is how many items of the query's class could be found. */
export const match_list = (found, right, context) => {
  // From a stub at the nearest to the whole at the farthest: distances that are all large would else look alike.
  const distances = found.matches.map((match) => match.distance);
  const nearest = Math.min(...distances);
  const span = Math.max(...distances) - nearest;
  const part = (distance) => (span ? 0.06 + 0.94 * ((distance - nearest) / span) : 0.06);
  const rows = [];
  const near = found.matches.filter((match) => match.matches !== false);
  const beyond = found.matches.filter((match) => match.matches === false);
  const row = (match) =>
    match_card(match, { ...context, query: found.query, generation: found.generation, part });
  rows.push(...near.map(row));
  if (found.threshold && found.matches.length) {
    const rate = found.threshold.false_match_rate;
    const said = `${near.length ? "" : "no match: "}${beyond.length ? "beyond" : "all within"} ${found.threshold.distance.toFixed(3)}`;
    const why =
      rate === null
        ? "as you asked"
        : `${(100 * rate).toPrecision(2).replace(/\.?0+$/, "")} % of wrong pairs lie nearer`;
    rows.push(
      make(
        "li",
        { class: `line${near.length ? "" : " none"}` },
        make("span", make("b", said), ` · ${why}${right_beyond(found, near, right)}`),
      ),
    );
  }
  rows.push(...beyond.map(row));
  return rows;
};

/** Items that nobody measured a distance to: places to start from. */
export const item_list = (items, context) =>
  items.map((item) => {
    const name = name_of(item, context);
    const said = context.texts ? name : `${item.label ?? name}, ${name}`;
    return make("li", card(item, said, null, context));
  });

export const waiting_list = (count) =>
  Array.from({ length: count }, () =>
    make("li.ghost", { "aria-hidden": "true" }, make("span.picture")),
  );

/** What is searched from: an item, or a picture that only this browser and the server have seen. */
export const query_card = ({ item, upload, clear, ...context }) => {
  const end = button(".clear", clear, { "aria-label": "Clear the search" }, "✕");
  if (!item) {
    const own = make("img", { src: upload.url, alt: "the chosen picture" });
    return [
      make("span.picture.large", own),
      make(
        "div",
        make("p.kicker", "Searching by your picture"),
        make("h2", make("bdi", upload.name)),
      ),
      end,
    ];
  }
  const open = {
    href: `/api/items/${item.id}/image?generation=${context.generation}`,
    target: "_blank",
    rel: "noopener",
    title: "Open the picture",
  };
  const shown = context.texts ? null : picture(item, 256, context, "large");
  const facts = Object.entries(item.metadata).map(([key, value]) =>
    make("div", make("dt", key), make("dd", value)),
  );
  const name = name_of(item, context);
  return [
    context.pictures ? make("a", open, shown) : shown,
    make(
      "div",
      make("p.kicker", "Searching from"),
      make("h2", make("bdi", context.texts ? name : (item.label ?? name))),
      make("p.path", make("bdi", context.texts ? (item.label ?? "") : item.path)),
      facts.length ? make("dl.metadata", facts) : null,
    ),
    end,
  ];
};
