// Where a link's `next` leads after a login: an address of this origin, else the overview. Parsed as a browser does it: in
// an address `\\` is a slash, tabs and line breaks are left out, and `/.//` begins a host's name once it is a path again.
export function landing(next, origin) {
  try {
    const { href } = new URL(next ?? "/", origin);
    return href.startsWith(`${origin}/`) ? href : `${origin}/`;
  } catch {
    return `${origin}/`;
  }
}
