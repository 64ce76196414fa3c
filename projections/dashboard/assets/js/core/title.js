// The tab's title and icon: the page's name, and the number of new failures.
let [name, number] = ["", 0];
const icon = document.querySelector("link[rel=icon]");
const plain = icon.href;

const drawing = (text) => `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 26 26"><circle cx="13" cy="13" r="13" fill="#b22"/><text x="13" y="19" text-anchor="middle" font-family="sans-serif" font-weight="bold" font-size="${text.length > 1 ? 14 : 18}" fill="#fff">${text}</text></svg>`;

export function setTitle(next, failures = number) {
  const changed = failures !== number;
  [name, number] = [next ?? name, failures];
  document.title = `${number ? `(${number}) ` : ""}${name} · Steno`;
  if (changed) icon.href = number ? `data:image/svg+xml,${encodeURIComponent(drawing(number > 9 ? "9+" : String(number)))}` : plain;
}
