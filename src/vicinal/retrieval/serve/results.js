// Neighbors, items and the query as cards; each card is a button that searches from it.
import { make, thumbnail } from "/static/asking.js";

/** A picture that steps aside for a sign where there is none to show. */
export const picture = (item, side, generation, shown, classes = "") => {
  const frame = make("span", { class: `picture ${classes}` });
  const absent = () => {
    frame.classList.add("absent");
    frame.replaceChildren(
      make("span", { "aria-hidden": "true" }, (item.label ?? item.path).trim().slice(0, 2) || "?"),
    );
  };
  if (!shown) {
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
  frame.append(image);
  return frame;
};

const file = (path) => path.split("/").pop();

/** One neighbor. Beside a query of a known class it is right or wrong, by sign and line as well as by color. */
const match_card = (match, { query, generation, pictures, part, search, point }) => {
  const judged =
    query?.label != null && match.label !== null
      ? query.label === match.label
        ? "right"
        : "wrong"
      : null;
  const said = [
    match.label ?? file(match.path),
    `distance ${match.distance.toFixed(3)}`,
    judged && `${judged} class`,
  ]
    .filter(Boolean)
    .join(", ");
  const button = make(
    "button",
    {
      type: "button",
      class: "match",
      title: match.path,
      "aria-label": `Search from ${said}`,
      onclick: () => search(match.id),
    },
    make(
      "span",
      { class: judged ? `judged ${judged}` : "judged plain" },
      picture(match, 128, generation, pictures),
    ),
    make("bdi", {}, match.label ?? file(match.path)),
    make(
      "span",
      { class: "distance" },
      match.distance.toFixed(3),
      make("i", { style: { "--part": String(part(match.distance)) } }),
    ),
  );
  for (const event of ["pointerenter", "focus"]) {
    button.addEventListener(event, () => point(match.id));
  }
  for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => point(null));
  return make("li", { class: match.matches === false ? "beyond" : null }, button);
};

/** " · 7 of 11 right answers lie beyond it", or nothing where the query's class is unknown or cannot be found. */
const right_beyond = (found, near, right) => {
  if (!right || near.length === found.matches.length) return "";
  const beyond = right - near.filter((match) => match.label === found.query.label).length;
  const noun = right === 1 ? "right answer lies" : "right answers lie";
  return ` · ${beyond === right && right > 1 ? `all ${right.toLocaleString("en")}` : `${beyond ? beyond.toLocaleString("en") : "none"} of ${right.toLocaleString("en")}`} ${noun} beyond it`;
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
  const beyond = found.matches.slice(near.length);
  const card = (match) =>
    match_card(match, { ...context, query: found.query, generation: found.generation, part });
  rows.push(...near.map(card));
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
        make("span", {}, make("b", {}, said), ` · ${why}${right_beyond(found, near, right)}`),
      ),
    );
  }
  rows.push(...beyond.map(card));
  return rows;
};

/** Items that nobody measured a distance to: places to start from. */
export const item_list = (items, { generation, pictures, search, point }) =>
  items.map((item) => {
    const button = make(
      "button",
      {
        type: "button",
        class: "match",
        title: item.path,
        "aria-label": `Search from ${item.label ?? file(item.path)}, ${file(item.path)}`,
        onclick: () => search(item.id),
      },
      make("span", { class: "judged plain" }, picture(item, 128, generation, pictures)),
      make("bdi", {}, item.label ?? file(item.path)),
    );
    for (const event of ["pointerenter", "focus"]) {
      button.addEventListener(event, () => point(item.id));
    }
    for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => point(null));
    return make("li", {}, button);
  });

export const waiting_list = (count) =>
  Array.from({ length: count }, () =>
    make("li", { class: "ghost", "aria-hidden": "true" }, make("span", { class: "picture" })),
  );

/** What is searched from: an item, or a picture that only this browser and the server have seen. */
export const query_card = ({ item, upload, generation, pictures, clear }) => {
  const facts = item ? Object.entries(item.metadata) : [];
  const shown = item
    ? picture(item, 256, generation, pictures, "large")
    : make(
        "span",
        { class: "picture large" },
        make("img", { src: upload.url, alt: "the chosen picture" }),
      );
  return [
    item && pictures
      ? make(
          "a",
          {
            href: `/api/items/${item.id}/image?generation=${generation}`,
            target: "_blank",
            rel: "noopener",
            title: "Open the picture",
          },
          shown,
        )
      : shown,
    make(
      "div",
      {},
      make("p", { class: "kicker" }, item ? "Searching from" : "Searching by your picture"),
      make("h2", {}, make("bdi", {}, item ? (item.label ?? file(item.path)) : upload.name)),
      item ? make("p", { class: "path" }, make("bdi", {}, item.path)) : null,
      facts.length
        ? make(
            "dl",
            { class: "metadata" },
            ...facts.map(([key, value]) =>
              make("div", {}, make("dt", {}, key), make("dd", {}, value)),
            ),
          )
        : null,
    ),
    make(
      "button",
      { type: "button", class: "clear", "aria-label": "Clear the search", onclick: clear },
      "✕",
    ),
  ];
};
