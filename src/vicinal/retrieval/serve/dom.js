// Elements of the page, in few words.

/**
 * An element: make("p.aside", { title: "why" }, children). The name may carry classes, attributes
 * may be left out; children that are null or false are left out, lists are unfolded. Text is only ever text.
 */
export const make = (name, ...children) => {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  element.classList.add(...classes);
  const attributes = children[0]?.constructor === Object ? children.shift() : {};
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.classList.add(...value.split(" "));
    else if (key === "style") {
      for (const [property, set] of Object.entries(value)) element.style.setProperty(property, set);
    } else element.setAttribute(key, value === true ? "" : value);
  }
  return fill(element, ...children);
};

/** Put children into an element in place of those it has. */
export const fill = (element, ...children) => {
  element.replaceChildren(
    ...children.flat(Infinity).filter((child) => child != null && child !== false),
  );
  return element;
};

export const button = (name, act, more, ...children) =>
  make(`button${name}`, { type: "button", onclick: act, ...more }, ...children);

export const number = (value) => value.toLocaleString("en");

export const counted = (count, noun, plural = `${noun}s`) =>
  `${number(count)} ${count === 1 ? noun : plural}`;

/** A button with words and the key that does the same. */
export const keyed = (name, words, key, act, more) =>
  button(name, act, more, make("bdi", words), make("kbd", key));
