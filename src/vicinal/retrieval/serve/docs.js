// The API's description, drawn from /openapi.json alone.
import { ask } from "/static/asking.js";
import { make } from "/static/dom.js";

const specification = await ask("/openapi.json");
document.getElementById("description").textContent = specification.info.description;

const named = (schema) =>
  schema?.$ref?.split("/").pop() ??
  schema?.type ??
  schema?.anyOf
    ?.map(named)
    .filter((name) => name !== "null")
    .join(" or ") ??
  "";
const range = ({ minimum, maximum, enum: choices, anyOf }) => {
  if (choices) return choices.join(", ");
  if (anyOf) return range(anyOf[0]);
  return minimum === undefined
    ? ""
    : `${minimum} to ${maximum > 1e12 ? "2⁶³ − 1" : (maximum?.toLocaleString("en") ?? "∞")}`;
};
const parameter = (one) =>
  make(
    "tr",
    make("th", { scope: "row" }, make("code", one.name)),
    make(
      "td",
      [
        named(one.schema),
        range(one.schema),
        one.required
          ? "required"
          : one.schema.default !== undefined && one.schema.default !== null
            ? `default ${one.schema.default}`
            : "",
      ]
        .filter(Boolean)
        .join(" · "),
    ),
    make("td", one.description ?? ""),
  );

const example = (method, path, operation) => {
  const whole = `${location.origin}${path.replace("{id}", "0")}`;
  const body = operation.requestBody?.content ?? {};
  if (body["application/octet-stream"]) return `curl --data-binary @picture.jpg '${whole}?k=5'`;
  if (body["application/json"]) return `curl --json '{"vector": [0.1, …]}' '${whole}?k=5'`;
  return `curl '${whole}'`;
};

const sections = [];
for (const [path, methods] of Object.entries(specification.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    sections.push(
      make(
        "section.operation.card",
        make("h2", make("span.verb", method.toUpperCase()), " ", make("code", path)),
        make("p", operation.description ?? operation.summary),
        make("pre", make("code", example(method, path, operation))),
        operation.parameters?.length
          ? make(
              "div",
              {
                class: "scroll",
                tabindex: "0",
                role: "region",
                "aria-label": `Parameters of ${path}`,
              },
              make("table", make("tbody", ...operation.parameters.map(parameter))),
            )
          : null,
      ),
    );
  }
}
document.getElementById("operations").append(...sections);
