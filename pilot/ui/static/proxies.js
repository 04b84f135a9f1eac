// The connected proxies, and one of them with its configuration.
import { h, fill, age, badge, bytes, source } from './dom.js';
import { get, now, poll } from './api.js';
import { Table } from './table.js';
import { filterLine } from './filter.js';
import { tree } from './tree.js';

const types = ['cds', 'eds', 'lds', 'rds'];
const titles = { cds: 'Clusters', eds: 'Endpoints', lds: 'Listeners', rds: 'Routes', vhds: 'Virtual hosts', sds: 'Secrets', ecds: 'Extensions', nds: 'Names', pcds: 'Roots' };

const typeCell = (short) => (row) => {
  const t = row.types.find((t) => t.type === short);
  if (!t) return h('span', { class: 'dim' }, '–');
  return h('span', { class: 'type', title: `${t.state}${t.error ? ': ' + t.error : ''}` }, badge(t.state, t.state === 'SYNCED' ? age(t.sent, now()) : t.state.toLowerCase() + ' ' + age(t.sent, now())));
};

const trouble = (row) => row.types.find((t) => t.error)?.error ?? row.waits ?? '';

export function proxies({ query, namespaces, update, failed }) {
  const open = (row) => { location.hash = '#/proxy/' + encodeURIComponent(row.id); };
  let filter;
  const table = new Table({
    path: 'proxies', label: 'Connected proxies', open, failed, empty: 'No proxy is connected.',
    status: (total, all) => filter.status(total, all, 'proxies'),
    columns: [
      { title: 'Proxy', width: 'minmax(14rem, 2fr)', cell: (r) => h('a', { href: '#/proxy/' + encodeURIComponent(r.id), tabindex: '-1' }, r.id, r.replica ? h('span', { class: 'dim' }, ' at ' + r.replica) : null) },
      { title: 'State', width: '7.5rem', cell: (r) => badge(r.state) },
      ...types.map((t) => ({ title: titles[t], width: '7.5rem', class: 'narrow', cell: typeCell(t) })),
      { title: 'Connected', width: '6rem', class: 'narrow', cell: (r) => age(r.connected, now()) },
      { title: 'Version', width: '7rem', class: 'narrow', cell: (r) => r.version || '–' },
      { title: 'What it says', width: 'minmax(10rem, 3fr)', cell: (r) => h('span', { class: 'error-text', title: trouble(r) }, trouble(r)) },
    ],
  });
  filter = filterLine({ query, namespaces, update, label: 'Filter proxies by name', changed: (q) => table.filter(q), states: { '': 'any state', SYNCED: 'synced', STALE: 'on the way', ERROR: 'rejected', 'NOT SENT': 'not sent' } });
  table.filter(filter.start());
  return { element: h('section', { class: 'view', 'aria-label': 'Proxies' }, filter.element, table.element), end: () => table.end(), move: (n) => table.move(n), choose: () => table.choose(), changed: (q) => filter.set(q) };
}

export function proxy({ rest, query, update, failed }) {
  const id = rest[0] ?? '';
  const head = h('div', { class: 'card' });
  const tabs = h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Types of resources' });
  const detail = h('div', { class: 'detail', role: 'region', 'aria-label': 'Resource', tabindex: '0' }, h('p', { class: 'dim' }, 'Choose a resource.'));
  const left = h('div', { class: 'left' });
  let type = query.get('type') ?? 'cds', table, filter, chosen = query.get('name');

  function choose(short, keep) {
    type = short;
    if (!keep) chosen = null;
    table?.end();
    for (const tab of tabs.children) tab.setAttribute('aria-selected', tab.dataset.type === type ? 'true' : 'false');
    table = new Table({
      path: `config?proxy=${encodeURIComponent(id)}&type=${type}`, label: titles[type] ?? type, failed, empty: 'It was sent nothing of this type.',
      open: (row) => open(row.name), status: (total, all) => filter.status(total, all, (titles[type] ?? type).toLowerCase()),
      columns: [
        { title: 'Name', width: 'minmax(12rem, 1fr)', cell: (r) => h('span', { title: r.name }, r.name) },
        { title: 'Size', width: '5.5rem', class: 'number', cell: (r) => bytes(r.bytes) },
      ],
    });
    filter = filterLine({ query: keep ? query : new URLSearchParams(), label: 'Filter resources by name', changed: (q) => table.filter(q), update: () => {} });
    table.filter(filter.start());
    fill(left, filter.element, table.element);
    if (!keep) update(new URLSearchParams({ type }));
  }

  // open shows a resource. It is drawn again when the proxy has been sent another one.
  let drawn = '', sent = 0, dimmed = true; // which one is shown; when the proxy was sent its type; whether defaults are shown
  async function open(name) {
    const of = type, which = of + '/' + name;
    if (chosen !== name) update(new URLSearchParams({ type, name }));
    chosen = name;
    try {
      const { value: r, changed } = await get(`resource?proxy=${encodeURIComponent(id)}&type=${of}&name=${encodeURIComponent(name)}`);
      if (type !== of || chosen !== name || (drawn === which && !changed)) return;
      drawn = which;
      const box = h('input', { type: 'checkbox', checked: dimmed });
      const body = r.hidden ? h('p', {}, 'It is a secret. Its content is shown nowhere.') : tree(r.value, r.defaults);
      const show = () => { dimmed = box.checked; body.classList.toggle('without-defaults', !dimmed); };
      box.addEventListener('change', show);
      show();
      fill(detail, h('h3', {}, r.name), h('p', { class: 'dim' }, `${bytes(r.bytes)} · version ${r.version}`),
        h('div', { class: 'origins' }, h('h4', {}, 'Made of'), r.sources.length ? h('ul', {}, r.sources.map((s) => h('li', {}, source(s)))) : h('p', { class: 'dim' }, 'The mesh configuration alone, or it was made before and is not kept.')),
        r.hidden ? null : h('label', { class: 'check' }, box, ' defaults, dimmed'), body);
    } catch (error) {
      if (type !== of || chosen !== name) return;
      drawn = '';
      fill(detail, h('p', { class: 'error-text' }, error.message));
    }
  }

  let known = '';
  const polling = poll(async (signal) => {
    const { value } = await get('proxies?q=' + encodeURIComponent(id.toLowerCase()) + '&offset=0&limit=20', signal);
    const row = value.rows.find((r) => r.id === id && !r.replica) ?? value.rows.find((r) => r.id === id);
    if (!row) {
      fill(head, h('h2', {}, id), h('p', { class: 'error-text' }, 'It is not connected to this server.'));
      return;
    }
    fill(head, h('h2', {}, h('a', { href: '#/proxies' }, 'Proxies'), ' / ', id, ' ', badge(row.state)),
      row.replica ? h('p', {}, `Replica ${row.replica} serves it, and its page shows what it was sent.`) : null,
      h('p', { class: 'dim' }, `${row.type} ${row.version || 'of unknown version'} of cluster ${row.cluster || '–'}, from ${row.address}, connected for ${age(row.connected, now())}`),
      row.waits ? h('p', { class: 'error-text' }, 'It waits: ' + row.waits) : null,
      h('div', { class: 'chips' }, row.types.map((t) => h('span', { class: 'chip' }, badge(t.state, (titles[t.type] ?? t.type)), ` sent ${age(t.sent, now())} ago, subscribed to ${t.subscribed}`))),
      row.types.filter((t) => t.error).map((t) => h('div', { class: 'nack', role: 'alert' }, h('b', {}, `${titles[t.type] ?? t.type} rejected ${age(t.errorTime, now())} ago: `), t.error)));
    if (row.replica) return;
    const last = row.types.find((t) => t.type === type)?.sent ?? 0;
    if (chosen && last !== sent) open(chosen);
    sent = last;
    const have = row.types.map((t) => t.type).join(' ');
    if (have !== known) {
      known = have;
      fill(tabs, ...row.types.filter((t) => titles[t.type]).map((t) => h('button', { type: 'button', role: 'tab', 'data-type': t.type, 'aria-selected': t.type === type ? 'true' : 'false', onclick: () => choose(t.type) }, titles[t.type])));
      if (!table) {
        if (!row.types.some((t) => t.type === type)) type = row.types.find((t) => titles[t.type])?.type ?? type;
        choose(type, true);
        if (chosen) open(chosen);
      }
    }
  }, 1000, failed);

  return {
    element: h('section', { class: 'view', 'aria-label': 'Proxy ' + id }, head, tabs, h('div', { class: 'split' }, left, detail)),
    end() { polling.end(); table?.end(); }, move: (n) => table?.move(n), choose: () => table?.choose(), back: () => { location.hash = '#/proxies'; },
  };
}
