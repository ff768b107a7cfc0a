// The hardness view: the training's own quantities as charts, the hardest classes and the most confused pairs.
import { address, ask } from "/static/asking.js";
import { counted, make } from "/static/dom.js";
import { picture } from "/static/results.js";

const EXAMPLES = 5; // pictures that stand for one class
let shown = null; // the run's numbers do not change while it is served

const per_cent = (share) => `${(100 * share).toFixed(1)} %`;

/** A few items of a class, filled in when they come; a class that the collection lacks stays bare. */
const examples = (label, about) => {
  const row = make("span.examples");
  if (about.pictures) {
    ask(address("/api/items", { label, limit: EXAMPLES, spread: "true" }))
      .then(({ items, generation }) =>
        row.append(...items.map((item) => picture(item, 64, { ...about, generation }))),
      )
      .catch(() => {});
  }
  return row;
};

const chart = (one) =>
  make(
    "figure.chart",
    { "data-chart": one.key },
    make("figcaption", make("h3", one.title), one.caption ? make("p", one.caption) : null),
    make("div.plot"),
  );

const name_of = (label, items, narrow) =>
  items
    ? make(
        "button.link",
        { type: "button", title: "See its items", onclick: () => narrow(label) },
        make("bdi", label),
      )
    : make("bdi", label);

export const show_hardness = async (section, about, narrow) => {
  if (shown !== null) return;
  section.replaceChildren(make("p.lead", "Reading the run …"));
  const answer = await ask("/api/hardness");
  const held = new Map(
    (await ask("/api/classes")).classes.map(({ label, items }) => [label, items]),
  );
  shown = answer;
  const parts = [make("h2", "What was hard in training")];
  if (answer.charts.length) {
    parts.push(
      make(
        "p.lead",
        "Lines are means, bands reach from the lowest to the highest value around each point; a dotted upright marks the model that was kept. Point at a chart, or focus it and use the arrow keys, to read values.",
      ),
    );
    parts.push(make("div.charts", ...answer.charts.map(chart)));
  } else parts.push(make("p.lead", "The run has measured nothing yet."));
  if (answer.worst.length || answer.confused.length) parts.push(make("h2", "What is hard now"));
  const pair = make("div.pair");
  if (answer.worst.length) {
    pair.append(
      make(
        "div",
        make("h3", "Worst classes"),
        make("p.lead", "Share of a class's test queries whose first neighbor is of that class."),
        make(
          "ol.worst",
          ...answer.worst.map((one) =>
            make(
              "li",
              name_of(one.label, one.items, narrow),
              make("span.figures", make("b", per_cent(one.recall)), ` of ${one.records}`),
              make("i", { style: { "--part": String(one.recall) } }),
              one.items ? examples(one.label, about) : null,
            ),
          ),
        ),
      ),
    );
  }
  if (answer.confused.length) {
    pair.append(
      make(
        "div",
        make("h3", "Most confused pairs"),
        make("p.lead", "How often queries of one class meet another class first."),
        make(
          "ol.confused",
          ...answer.confused.map((one) =>
            make(
              "li",
              make(
                "span",
                name_of(one.label, held.get(one.label), narrow),
                make("em", " taken for "),
                name_of(one.taken_for, held.get(one.taken_for), narrow),
                make(
                  "small",
                  `${per_cent(one.share)} of ${counted(one.queries, "query", "queries")}`,
                ),
              ),
            ),
          ),
        ),
      ),
    );
  }
  parts.push(pair);
  parts.push(
    make(
      "p.lead",
      "The whole story stands in the ",
      make("a", { href: "/report", target: "_blank", rel: "noopener" }, "run's report"),
      ".",
    ),
  );
  section.replaceChildren(...parts);
  if (!answer.charts.length) return;
  // The report's own script draws the charts, from an element that holds their numbers.
  section.append(
    make(
      "div",
      { id: "charts-data", hidden: true },
      JSON.stringify(
        answer.charts.map((one) => ({
          ...one,
          lines: one.lines.map(({ low, high, ...line }) =>
            low === null ? line : { ...line, low, high },
          ),
        })),
      ),
    ),
  );
  document.head.append(make("script", { src: "/static/charts.js" }));
};
