// Asks the server; an error comes back as its status and what the server says of it.

export class RequestError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** What went wrong and what to do, for whoever looks at the page; `upload` is the name of the picture that was searched by. */
export const in_words = (error, upload, limits) => {
  if (!(error instanceof RequestError)) {
    return ["The page has failed.", "Reload it; if that does not help, report the details below."];
  }
  const said = {
    0: [error.message, "Is it still running? Start it with `vicinal serve` and try again."],
    500: ["Something went wrong on the server.", "Try again; its terminal says more."],
    503: ["The server is busy.", "Try again in a few seconds."],
  }[error.status];
  if (said && !error.message.includes("findings.csv")) return said;
  if (upload) {
    const formats = limits.formats.join(", ").replace(/, (\w+)$/, " or $1");
    const pixels = Math.round(limits.upload_pixels / 1e6);
    const size = Math.round(limits.upload_bytes / 2 ** 20);
    const about_it = {
      413: [
        "is too large.",
        `Choose a smaller version: at most ${size} MB and ${pixels} million pixels.`,
      ],
      415: [
        "is not a picture that can be read here.",
        `Choose a ${formats} file; other photographs can be saved as JPEG first.`,
      ],
      422: error.message.includes("picture") && [
        "is damaged or incomplete.",
        "Choose another picture, or open it elsewhere and save it again.",
      ],
    }[error.status];
    if (about_it) return [`${upload} ${about_it[0]}`, about_it[1]];
  }
  if (/findings|change|label is/.test(error.message)) return [error.message, ""];
  if (error.status === 404) {
    return ["This item is no longer in the collection.", "Start from another one."];
  }
  return ["This search is not possible.", "Check the class and the distance, or start anew."];
};

/** The answer's JSON, or a RequestError. Overload is waited out twice, as the server asks. */
export const ask = async (path, options = {}, again = 2) => {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError(0, "The server cannot be reached.");
  }
  if (response.status === 503 && again > 0) {
    await new Promise((resolve) =>
      setTimeout(resolve, 1000 * Number(response.headers.get("Retry-After") ?? 1)),
    );
    return ask(path, options, again - 1);
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok) {
    throw new RequestError(
      response.status,
      answer?.detail ?? `The server answered ${response.status}.`,
    );
  }
  return answer;
};

/** "path?name=value" without the names that have no value. */
export const address = (path, values) => {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
};

export const thumbnail = (id, side, generation) =>
  address(`/api/items/${id}/thumbnail`, { side, generation });
