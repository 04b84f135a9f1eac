// Makes elements. Text is always text: nothing is ever parsed as HTML.

const SVG = 'http://www.w3.org/2000/svg';

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, '');
    else node.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== undefined && child !== null && child !== false) node.append(child);
  }
  return node;
}

// fill puts children in the place of those that a node has. Lists are their elements, and what is missing is left out.
export function fill(node, ...children) {
  node.replaceChildren();
  return build(node, {}, children);
}

export const h = (name, attributes, ...children) => build(document.createElement(name), attributes, children);
export const svg = (name, attributes, ...children) => build(document.createElementNS(SVG, name), attributes, children);

export function bytes(n) {
  if (n >= 1e6) return (n / 1e6).toFixed(1) + ' MB';
  if (n >= 1e3) return (n / 1e3).toFixed(1) + ' kB';
  return n + ' B';
}

export function duration(ms) {
  if (ms === undefined || ms === null) return '–';
  if (ms >= 10000) return (ms / 1000).toFixed(0) + ' s';
  if (ms >= 1000) return (ms / 1000).toFixed(2) + ' s';
  return ms >= 10 ? ms.toFixed(0) + ' ms' : ms.toFixed(1) + ' ms';
}

// age says how long ago a time was, in the largest unit that fits.
export function age(ms, now) {
  if (!ms) return 'never';
  const s = Math.max(0, Math.round((now - ms) / 1000));
  if (s < 60) return s + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min';
  if (s < 86400) return Math.floor(s / 3600) + ' h';
  return Math.floor(s / 86400) + ' d';
}

export const clock = (text) => new Date(text).toLocaleTimeString([], { hour12: false });

const marks = {
  SYNCED: '✓', STALE: '…', ERROR: '✕', 'NOT SENT': '–', error: '✕', warning: '!', info: 'i',
  'in force': '✓', behind: '…', departed: '…', 'not seen': '…', unknown: '?', rejected: '✕', invalid: '✕', 'without effect': '–',
};

// badge shows a state by colour, sign and word.
export const badge = (state, text) => h('span', { class: 'badge ' + state.toLowerCase().replace(' ', '-') },
  h('span', { 'aria-hidden': 'true' }, marks[state] ?? '•'), ' ', text ?? state);

export const name = (o) => (o.namespace ? o.kind + ' ' + o.namespace + '/' + o.name : o.kind + ' ' + o.name);

// source shows an object with where it was read.
export const source = (o) => h('span', { class: 'source' }, h('a', { href: '#/objects?q=' + encodeURIComponent(name(o)) }, name(o)),
  o.gone ? h('span', { class: 'dim' }, ' deleted') : null, o.position ? h('code', { class: 'dim' }, ' ' + o.position) : null);
