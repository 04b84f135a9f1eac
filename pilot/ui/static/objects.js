// The objects of configuration and whether each is in force, one of them with its last versions, and what is wrong.
import { h, fill, age, badge, clock, duration } from './dom.js';
import { get, now, poll } from './api.js';
import { Table } from './table.js';
import { filterLine } from './filter.js';

const place = (r) => '#/object/' + encodeURIComponent(r.id) + (r.cluster ? '/' + encodeURIComponent(r.cluster) : '');
const few = 100; // proxies that are listed
const wrong = (r) => '#/findings?q=' + encodeURIComponent(`${r.kind} ${r.namespace ? r.namespace + '/' : ''}${r.name}`);

export function objects({ query, namespaces, update, failed }) {
  let filter;
  const table = new Table({
    path: 'objects', label: 'Objects', failed, empty: 'There is no configuration.', status: (total, all) => filter.status(total, all, 'objects'),
    open: (r) => { location.hash = place(r); },
    columns: [
      { title: 'Kind', width: 'minmax(9rem, 1fr)', cell: (r) => r.kind },
      { title: 'Object', width: 'minmax(12rem, 2fr)', cell: (r) => h('a', { href: place(r), tabindex: '-1', title: r.name }, h('span', { class: 'dim' }, r.namespace ? r.namespace + '/' : ''), r.name, r.cluster ? h('span', { class: 'dim' }, ' in ' + r.cluster) : null) },
      { title: 'Read from', width: 'minmax(9rem, 1.5fr)', class: 'narrow', cell: (r) => h('code', { class: 'dim', title: r.position ?? '' }, r.position ? r.position.split('/').pop() : 'the API server') },
      { title: 'At the proxies of this replica', width: 'minmax(16rem, 2fr)', cell: (r) => h('span', { title: r.why ?? '' }, badge(r.state), r.proxies ? h('span', { class: 'dim' }, ` ${r.inForce ?? 0} of ${r.proxies} proxies`) : null) },
      { title: 'Findings', width: '8rem', cell: (r) => (r.findings ? h('a', { href: wrong(r), tabindex: '-1' }, badge(r.severity, String(r.findings))) : '') },
    ],
  });
  filter = filterLine({ query, namespaces, update, label: 'Filter objects', changed: (q) => table.filter(q), states: { '': 'all objects', behind: 'not in force', unused: 'without effect', findings: 'with findings' } });
  table.filter(filter.start());
  return { element: h('section', { class: 'view', 'aria-label': 'Objects' }, filter.element, table.element), end: () => table.end(), move: (n) => table.move(n), choose: () => table.choose(), changed: (q) => filter.set(q) };
}

const version = (v) => (v.deleted ? 'deletion' : v.generation ? 'generation ' + v.generation : v.version ? 'version ' + v.version.slice(0, 8) : 'version');

// numbers says how many of the proxies that an object concerns have it.
function numbers(a) {
  const n = a.proxies, lack = n.behind + n.rejected;
  if (a.counted && n.concerned) {
    const text = `${n.inForce} of ${n.concerned} proxies`;
    return [h('progress', { max: n.concerned, value: n.inForce, 'aria-label': text, class: lack ? 'some' : 'all' }), ' ', text, h('span', { class: 'dim' }, `, ${n.connected} are connected`)];
  }
  if (lack) return `${lack} of ${n.connected} connected proxies lack it, or may`;
  if (a.state === 'in force') return `all that it concerns of ${n.connected} connected proxies`;
  return `${n.connected} proxies are connected`;
}

const owing = (a) => h('table', { class: 'list' }, h('thead', {}, h('tr', {}, ['Proxy', 'Replica', 'State', 'Since', 'What it says'].map((t) => h('th', { scope: 'col' }, t)))),
  h('tbody', {}, a.owing.slice(0, few).map((o) => h('tr', {}, h('td', {}, h('a', { href: '#/proxy/' + encodeURIComponent(o.proxy) }, o.proxy)), h('td', {}, o.replica || '–'), h('td', {}, badge(o.state)),
    h('td', { title: o.since }, clock(o.since), h('span', { class: 'dim' }, ', ', age(Date.parse(o.since), now()))), h('td', { class: 'error-text' }, o.message ? `${(o.type ?? '').toUpperCase()}: ${o.message}` : '')))));

// past is one version in the history. open has the versions whose commands are shown.
function past(v, before, open) {
  const id = [v.generation, v.version, v.deleted, v.time].join(' ');
  const details = v.restore ? h('details', { open: open.has(id) }, h('summary', {}, before ? `bring ${version(before)} back` : 'bring back what was before'), h('pre', { tabindex: '0' }, v.restore)) : null;
  details?.addEventListener('toggle', () => (details.open ? open.add(id) : open.delete(id)));
  const proxies = v.counted ? String(v.proxies) : v.proxies ? `at least ${v.proxies}` : '–';
  return h('tr', {}, h('td', { title: v.time ?? '' }, v.time ? new Date(v.time).toLocaleString([], { hour12: false }) : h('span', { class: 'dim' }, 'before')), h('td', {}, version(v)), h('td', { title: v.written ?? '' }, v.manager ?? '–', v.position ? h('code', { class: 'dim' }, ' ' + v.position.split('/').pop()) : null),
    h('td', { class: 'number' }, proxies), h('td', { class: 'number' }, v.invalid ? 'invalid' : v.took === undefined ? '–' : duration(v.took * 1000)), h('td', {}, details ?? h('span', { class: 'dim' }, v.noRestore ?? '')));
}

export function object({ rest, failed }) {
  const id = rest[0] ?? '', cluster = rest[1] ?? '';
  const head = h('div', { class: 'card' }), late = h('div', { class: 'card' }), history = h('div', { class: 'card' });
  const open = new Set();
  const path = 'object?object=' + encodeURIComponent(id) + (cluster ? '&cluster=' + encodeURIComponent(cluster) : '');
  const title = (...more) => h('h2', {}, h('a', { href: '#/objects' }, 'Objects'), ' / ', id, cluster ? ' in ' + cluster : '', ' ', more);
  const show = (page) => {
    const a = page.answer, silent = (a.replicas ?? []).filter((r) => r.error);
    fill(head, title(badge(a.state)), h('p', { class: 'taken' }, numbers(a)),
      a.state === 'not seen' ? null : h('p', { class: 'dim' }, version(a), a.since ? ` since ${clock(a.since)}, ${age(Date.parse(a.since), now())} ago` : ' since before the server began to remember it', page.position ? h('code', {}, ' ' + page.position) : null),
      a.why ? h('p', {}, a.why) : null,
      silent.map((r) => h('p', { class: 'error-text' }, `${r.name} did not answer: ${r.error}`)),
      (a.findings ?? []).map((f) => h('p', {}, badge(f.severity), ' ', h('b', {}, f.code), ' ', f.message, f.fix ? h('span', { class: 'fix' }, h('b', {}, ' Fix: '), f.fix) : null)));
    late.hidden = !a.owing.length;
    const more = (a.more ?? 0) + Math.max(0, a.owing.length - few);
    fill(late, h('h3', {}, 'Proxies that lack it'), owing(a), more ? h('p', { class: 'dim' }, `and ${more} more`) : null);
  };
  const tell = (list) => fill(history, h('h3', {}, 'Last versions'), list.length ? h('table', { class: 'list' },
    h('thead', {}, h('tr', {}, ['Committed', 'Version', 'Written by', 'Proxies', 'All had it after', ''].map((t, i) => h('th', { scope: 'col', class: i === 3 || i === 4 ? 'number' : '' }, t)))),
    h('tbody', {}, list.map((v, i) => past(v, list[i + 1], open)))) : h('p', { class: 'dim' }, 'It has not changed since the server started, or too many others have changed since.'));
  let last = '';
  const polling = poll(async (signal) => {
    try {
      const { value } = await get(path, signal);
      show(value);
      const text = JSON.stringify(value.history.versions);
      if (text !== last) tell(value.history.versions); // else what is being read stays
      last = text;
    } catch (error) {
      if (signal.aborted || !error.message.startsWith('400 ')) throw error;
      fill(head, title(), h('p', { class: 'error-text' }, error.message.slice(4)));
      late.hidden = history.hidden = true;
    }
  }, 1000, failed);
  late.hidden = true;
  return { element: h('section', { class: 'view scrolled', 'aria-label': 'Object ' + id }, head, late, history), end: () => polling.end(), back: () => { location.hash = '#/objects'; } };
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
