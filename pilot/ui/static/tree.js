// Shows JSON as a tree. What only the one with defaults has is dimmed.
import { h } from './dom.js';

const many = 50; // entries that are shown before one has to ask for the rest

function scalar(v) {
  if (typeof v === 'string') return h('span', { class: 'string' }, JSON.stringify(v));
  return h('span', { class: 'literal' }, String(v));
}

function node(key, set, all, isSet, depth) {
  const label = key === null ? null : h('span', { class: 'key' }, key + ': ');
  const css = isSet ? '' : 'default';
  if (all === null || typeof all !== 'object') return h('li', { class: css }, label, scalar(all));
  const list = Array.isArray(all);
  const keys = Object.keys(all);
  if (keys.length === 0) return h('li', { class: css }, label, list ? '[]' : '{}');
  // A list has no defaults inside: entries of both are the same ones. Of an object, what is not set is a default.
  const children = h('ul', {});
  const add = (from, to) => {
    for (const k of keys.slice(from, to)) {
      const childSet = isSet && set !== undefined && set !== null && typeof set === 'object' && k in set;
      children.append(node(list ? null : k, childSet ? set[k] : undefined, all[k], childSet, depth + 1));
    }
    if (to < keys.length) {
      const more = h('li', {}, h('button', { type: 'button', class: 'more', onclick: () => { more.remove(); add(to, to + 200); } }, `${keys.length - to} more`));
      children.append(more);
    }
  };
  const open = depth < 3 && isSet;
  let filled = open;
  if (open) add(0, many);
  const details = h('details', { open }, h('summary', {}, label, list ? `[${keys.length}]` : h('span', { class: 'dim' }, String(all['@type'] ?? '{…}').split('/').pop())), children);
  details.addEventListener('toggle', () => { if (details.open && !filled) { filled = true; add(0, many); } });
  return h('li', { class: css }, details);
}

export function tree(set, all) {
  return h('ul', { class: 'tree' }, node(null, set, all, true, 0));
}
