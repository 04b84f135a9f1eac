// The objects of configuration with how many proxies have taken each, and what is wrong with them.
import { h, fill, badge } from './dom.js';
import { get, poll } from './api.js';
import { Table } from './table.js';
import { filterLine } from './filter.js';

function taken(r) {
  if (!r.proxies) return h('span', { class: 'dim' }, 'no proxy has anything of it');
  const all = r.current === r.proxies;
  const text = `${r.current} of ${r.proxies} proxies up to date`;
  return h('span', { class: 'taken' }, h('progress', { max: r.proxies, value: r.current, 'aria-label': text, class: all ? 'all' : 'some' }), ' ', text);
}

export function objects({ query, namespaces, update, failed }) {
  let filter;
  const table = new Table({
    path: 'objects', label: 'Objects', failed, empty: 'There is no configuration.', status: (total, all) => filter.status(total, all, 'objects'),
    open: (r) => { if (r.findings) location.hash = '#/findings?q=' + encodeURIComponent(`${r.kind} ${r.namespace}/${r.name}`); },
    columns: [
      { title: 'Kind', width: 'minmax(9rem, 1fr)', cell: (r) => r.kind },
      { title: 'Object', width: 'minmax(12rem, 2fr)', cell: (r) => h('span', { title: r.name }, h('span', { class: 'dim' }, r.namespace ? r.namespace + '/' : ''), r.name) },
      { title: 'Read from', width: 'minmax(9rem, 1.5fr)', class: 'narrow', cell: (r) => h('code', { class: 'dim', title: r.position ?? '' }, r.position ? r.position.split('/').pop() : 'the API server') },
      { title: 'Proxies', width: 'minmax(16rem, 2fr)', cell: taken },
      { title: 'Findings', width: '8rem', cell: (r) => (r.findings ? h('a', { href: '#/findings?q=' + encodeURIComponent(`${r.kind} ${r.namespace}/${r.name}`), tabindex: '-1' }, badge(r.severity, String(r.findings))) : '') },
    ],
  });
  filter = filterLine({ query, namespaces, update, label: 'Filter objects', changed: (q) => table.filter(q), states: { '': 'all objects', behind: 'not everywhere yet', unused: 'that no proxy has', findings: 'with findings' } });
  table.filter(filter.start());
  return { element: h('section', { class: 'view', 'aria-label': 'Objects' }, filter.element, table.element), end: () => table.end(), move: (n) => table.move(n), choose: () => table.choose(), changed: (q) => filter.set(q) };
}

export function findings({ query, update, failed }) {
  const list = h('ul', { class: 'findings' });
  let all = [], text = '', state = '', at = -1;
  const filter = filterLine({ query, update, label: 'Filter findings', changed: (q) => { const p = new URLSearchParams(q); text = (p.get('q') ?? '').toLowerCase(); state = p.get('state') ?? ''; draw(); }, states: { '': 'any severity', error: 'errors', warning: 'warnings', info: 'advice' } });

  function draw() {
    const some = all.filter((f) => (!state || f.severity === state) && (!text || [f.code, f.object, f.message, f.file].join(' ').toLowerCase().includes(text)));
    filter.status(some.length, all.length, 'findings');
    const most = 500;
    fill(list, ...some.slice(0, most).map((f) => h('li', { tabindex: '-1' }, h('div', {}, badge(f.severity), ' ', h('b', {}, f.code), ' ', f.object ?? '', f.field ? h('code', {}, ' ' + f.field) : null,
      f.file ? h('code', { class: 'dim' }, ` ${f.file}:${f.line ?? 0}${f.column ? ':' + f.column : ''}`) : null), h('p', {}, f.message), f.fix ? h('p', { class: 'fix' }, h('b', {}, 'Fix: '), f.fix) : null)));
    if (some.length > most) list.append(h('li', { class: 'dim' }, `${some.length - most} more: filter them.`));
    if (!some.length) list.append(h('li', { class: 'empty' }, all.length ? 'Nothing matches the filter.' : 'Nothing is wrong.'));
  }

  const polling = poll(async (signal) => {
    const { value, changed } = await get('findings', signal);
    if (changed || all !== value) { all = value; draw(); }
  }, 2000, failed);
  filter.start();
  const p = new URLSearchParams(filter.start());
  text = (p.get('q') ?? '').toLowerCase();
  state = p.get('state') ?? '';
  return {
    element: h('section', { class: 'view', 'aria-label': 'Findings' }, filter.element, list), end: () => polling.end(), changed: (q) => filter.set(q),
    move(n) { const rows = list.querySelectorAll('li[tabindex]'); if (!rows.length) return; at = Math.min(rows.length - 1, Math.max(0, at + n)); rows[at].focus(); },
  };
}
