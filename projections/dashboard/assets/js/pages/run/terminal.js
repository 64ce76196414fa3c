// What a terminal would show of an output, as lines of styled parts: its newest lines, within bounds. Pure.

export const MOST = { lines: 5000, characters: 400_000, parts: 20_000, line: 4000 };
const MARK = "::steno:: "; // a kernel's report, which is not output
// A whole escape sequence, a carriage return, a line's end, or text; an unfinished sequence waits for the next piece.
const TOKEN = /\u001b\[([0-9;:?]*)[ -/]*([@-~])|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|\u001b[()#][A-Z0-9]|\u001b[=>78cDEHMNOZ]|\r|\n|[^\u001b\r\n]+|\u001b/g;
const UNFINISHED = /\u001b(?:\[[0-9;:?]*[ -/]*|\][^\u0007\u001b]{0,2000}|[()#]?)$/;
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;
const picture = (one) => String.fromCharCode(one === "\u007f" ? 0x2421 : 0x2400 + one.charCodeAt(0));

export class Terminal {
  constructor({ frames = false } = {}) {
    Object.assign(this, { frames, lines: [], start: 0, dropped: 0, characters: 0, parts: 0, held: "", style: PLAIN, css: "", returned: false, made: 0 });
    this.current = this.line();
  }

  line() { return { id: this.made++, text: "", parts: [], long: 0 }; }

  write(piece) {
    let text = this.held + piece;
    const rest = UNFINISHED.exec(text);
    this.held = rest ? rest[0] : "";
    if (rest) text = text.slice(0, rest.index);
    for (const [token, codes, final] of text.matchAll(TOKEN)) {
      if (token === "\n") this.end();
      else if (token === "\r") this.returned = true; // what follows is written over the line
      else if (token[0] !== "\u001b") this.add(token);
      else if (final === "m") this.restyle(codes);
      else if (final === "K" && this.returned) this.clear();
      else if (token === "\u001b") this.add(token);
    }
  }

  restyle(codes) {
    this.style = styled(this.style, codes);
    this.css = cssOf(this.style);
  }

  clear() {
    this.current = { ...this.line(), id: this.current.id };
    this.returned = false;
  }

  add(text) {
    if (this.returned) this.clear();
    const line = this.current;
    const room = MOST.line - line.text.length;
    if (text.length > room) line.long += text.length - Math.max(0, room);
    if (room <= 0) return;
    const kept = text.slice(0, room).replace(CONTROL, picture);
    line.text += kept;
    const last = line.parts.at(-1);
    if (last && last.css === this.css) last.text += kept;
    else line.parts.push({ css: this.css, text: kept });
  }

  end() {
    const line = this.current;
    this.returned = false;
    this.current = this.line();
    if (this.frames && line.text.startsWith(MARK)) return;
    this.lines.push(line);
    this.characters += line.text.length;
    this.parts += line.parts.length;
    while (this.lines.length - this.start > MOST.lines || this.characters > MOST.characters || this.parts > MOST.parts) {
      const old = this.lines[this.start];
      if (old === line) break;
      this.start++;
      this.dropped++;
      this.characters -= old.text.length;
      this.parts -= old.parts.length;
    }
    if (this.start > MOST.lines) {
      this.lines = this.lines.slice(this.start);
      this.start = 0;
    }
  }

  // The lines to show, with a line that has no end yet.
  shown() {
    const found = this.lines.slice(this.start);
    const { current } = this;
    if (current.text && !(this.frames && current.text.startsWith(MARK))) found.push({ ...current });
    return found;
  }
}

const PLAIN = { colour: null, ground: null, bold: false, faint: false, italic: false, under: false, strike: false, inverse: false };
const FLAGS = { 1: ["bold", true], 2: ["faint", true], 3: ["italic", true], 4: ["under", true], 7: ["inverse", true], 9: ["strike", true], 23: ["italic", false], 24: ["under", false], 27: ["inverse", false], 29: ["strike", false] };

// A style after the codes of one `ESC [ … m`; unknown codes change nothing.
export function styled(style, text) {
  const codes = text.split(/[;:]/).map(Number);
  let found = style;
  for (let place = 0; place < codes.length; place++) {
    const code = codes[place];
    if (code === 0) found = PLAIN;
    else if (code === 22) found = { ...found, bold: false, faint: false };
    else if (FLAGS[code]) found = { ...found, [FLAGS[code][0]]: FLAGS[code][1] };
    else if (code === 39) found = { ...found, colour: null };
    else if (code === 49) found = { ...found, ground: null };
    else if (code === 38 || code === 48) {
      const [colour, used] = codes[place + 1] === 5 ? [indexed(codes[place + 2]), 2] : [nearest(codes[place + 2], codes[place + 3], codes[place + 4]), 4];
      found = { ...found, [code === 38 ? "colour" : "ground"]: colour };
      place += used;
    } else if ((code >= 30 && code < 38) || (code >= 90 && code < 98)) found = { ...found, colour: code % 10 };
    else if ((code >= 40 && code < 48) || (code >= 100 && code < 108)) found = { ...found, ground: code % 10 };
  }
  return found;
}

// One of the eight colours: they are readable in both themes, any colour is not.
function indexed(number) {
  if (!(number >= 0 && number < 256)) return null;
  if (number < 16) return number % 8;
  if (number >= 232) return number < 244 ? 0 : 7;
  const cube = number - 16;
  return nearest(Math.floor(cube / 36) * 51, (Math.floor(cube / 6) % 6) * 51, (cube % 6) * 51);
}

function nearest(red, green, blue) {
  if ([red, green, blue].some((one) => !(one >= 0 && one < 256))) return null;
  const most = Math.max(red, green, blue);
  if (most - Math.min(red, green, blue) < 40) return most < 128 ? 0 : 7;
  const on = (one) => one > most * 0.6;
  return (on(red) ? 1 : 0) + (on(green) ? 2 : 0) + (on(blue) ? 4 : 0);
}

const cssOf = ({ colour, ground, bold, faint, italic, under, strike, inverse }) => [
  ground !== null || inverse ? `t-on-${inverse ? colour ?? 7 : ground}` : colour !== null && `t-${colour}`, bold && "t-bold", faint && "t-faint", italic && "t-italic", under && "t-under", strike && "t-strike",
].filter(Boolean).join(" ");

// Where the words are in the lines, in order: {line (place), from, to}; at most `most`.
export function hitsOf(lines, words, most = 10_000) {
  const wanted = words.toLowerCase();
  const hits = [];
  if (!wanted) return hits;
  for (let place = 0; place < lines.length; place++) {
    const text = lines[place].text.toLowerCase();
    for (let from = text.indexOf(wanted); from >= 0; from = text.indexOf(wanted, from + wanted.length)) {
      hits.push({ line: place, from, to: from + wanted.length });
      if (hits.length >= most) return hits;
    }
  }
  return hits;
}

// A line's parts, cut at its hits: {css, text, hit: index or null}.
export function cut(line, hits, first) {
  const found = [];
  let at = 0;
  let place = 0;
  for (const { css, text } of line.parts) {
    const end = at + text.length;
    while (at < end) {
      const hit = hits[place];
      const inside = hit && hit.from <= at;
      const until = Math.min(end, hit ? (inside ? hit.to : hit.from) : end);
      found.push({ css, text: line.text.slice(at, until), hit: inside ? first + place : null });
      at = until;
      if (hit && at >= hit.to) place++;
    }
  }
  return found;
}
