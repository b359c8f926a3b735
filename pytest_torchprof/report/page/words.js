// Numbers and names as people read them; what stands here is used by every other file.
const SECOND_US = 1e6;

// Three significant digits; durations are not known beyond the nanosecond.
const threeDigits = (value, mostDecimals = 3) => {
  if (value === 0) return "0";
  const magnitude = Number(value.toExponential(2).split("e")[1]);
  return value.toFixed(Math.max(0, Math.min(2 - magnitude, mostDecimals)));
};
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

const show = {
  us(value) {
    const size = Math.abs(value);
    if (size < 999.5) return `${threeDigits(value)} us`;
    return size < 0.9995 * SECOND_US ? `${threeDigits(value / 1e3)} ms` : `${threeDigits(value / SECOND_US)} s`;
  },
  bytes(value) {
    if (Math.abs(value) < 1024) return `${Math.round(value)} B`;
    const units = ["KiB", "MiB", "GiB", "TiB"];
    let place = 0;
    for (value /= 1024; Math.abs(value) >= 1023.5 && place < 3; place += 1) value /= 1024;
    return `${threeDigits(value)} ${units[place]}`;
  },
  share: (value) => `${(100 * value).toFixed(1)} %`,
  ratio: (value) => (value > 0 && value < 0.005 ? "<0.01" : value < 10 ? value.toFixed(2) : value.toPrecision(3)),
  factor: (value) => (value >= 9.95 ? `${show.count(Math.round(value))}x` : `${value > 0.9 && value < 1.1 ? value.toFixed(2) : value < 0.1 ? Number(value.toPrecision(2)) : value.toFixed(value < 1 ? 2 : 1)}x`),
  rate: (value) => (value > 0 && value < 1e-6 ? "<0.000001" : threeDigits(value, 8)),
  count: (value) => value.toLocaleString("en-US", {maximumFractionDigits: 2}),
};
const told = (kind, value) => (isNumber(value) ? show[kind](value) : "–");

// Control characters, marks of direction and lone surrogates become visible; long names lose their middle.
const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]/gu;
const visible = (text) => text.replace(HIDDEN, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
const shown = (text, most = 200) => {
  const whole = String(text ?? "–");
  if (whole.length <= most) return visible(whole);
  const behind = Math.floor((most * 2) / 5);
  return visible(`${whole.slice(0, most - behind - 1)}…${whole.slice(-behind)}`);
};

// An element; children are elements or text, and text is never read as HTML.
const h = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
};

// What the file carries, unpacked; binary where asked for, else JSON.
const unpack = async (id) => {
  const text = document.getElementById(id).textContent;
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place += 1) bytes[place] = binary.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
};
const unpackJson = async (id) => JSON.parse(new TextDecoder().decode(await unpack(id)));
