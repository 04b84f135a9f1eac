// The mesh by namespace: services, and who routes to whom as it is configured. The place of a service follows from the
// names alone, so that it stays while others come and go.
import { h, fill, svg } from './dom.js';
import { get, poll } from './api.js';
import { filterLine } from './filter.js';
import { box, layout, route, curve } from './layout.js';

const most = 60; // services of a namespace that are drawn; the filter shows others

export function mesh({ query, namespaces, update, failed }) {
  const picture = h('div', { class: 'picture' });
  const aside = h('aside', { class: 'aside', 'aria-label': 'Routes', 'aria-live': 'polite' });
  let data, text = '', namespace = '', chosen = '', order = [];
  const filter = filterLine({ query, namespaces, update, label: 'Filter services', changed: (q) => { const p = new URLSearchParams(q); text = (p.get('q') ?? '').toLowerCase(); namespace = p.get('namespace') ?? ''; if (data) draw(); } });

  function tell(s) {
    const routes = data.routes.filter((r) => r.from === s.id || r.to === s.id);
    fill(aside, h('h2', {}, s.gateway ? 'Gateway ' + s.name : s.name), h('p', { class: 'dim' }, s.gateway ? s.position ?? '' : s.id),
      s.gateway ? null : h('p', {}, `${s.healthy} of ${s.endpoints} endpoints healthy`), s.ports.length ? h('p', {}, 'Ports ', s.ports.join(', ')) : null,
      h('h3', {}, 'Routes'), routes.length ? h('ul', { class: 'routes' }, routes.map((r) => h('li', {}, h('span', { class: 'route' }, short(r.from), ' → ', short(r.to), r.weight ? ` ${r.weight} %` : ''),
        r.known ? null : h('span', { class: 'error-text' }, ' there is no such service'), h('div', { class: 'dim' }, 'because of ', h('a', { href: '#/objects?q=' + encodeURIComponent(r.object) }, r.object), r.position ? h('code', {}, ' ' + r.position) : null))))
        : h('p', { class: 'dim' }, 'No object routes it: calls go to its endpoints.'));
  }
  const short = (id) => id.replace(/\.svc\..*$/, '');

  function choose(id) {
    chosen = id;
    for (const g of picture.querySelectorAll('g.service')) g.classList.toggle('at', g.dataset.id === id);
    for (const p of picture.querySelectorAll('path.route')) p.classList.toggle('at', p.dataset.from === id || p.dataset.to === id);
    const s = data.namespaces.flatMap((n) => n.services).find((s) => s.id === id);
    if (s) tell(s);
  }

  function draw() {
    const width = Math.max(320, picture.clientWidth - 4 || 1000);
    let all = 0, drawn = 0;
    const routed = new Set(data.routes.flatMap((r) => [r.from, r.to]));
    const islands = data.namespaces.filter((n) => !namespace || n.name === namespace).map((n) => {
      const some = n.services.filter((s) => !text || s.id.toLowerCase().includes(text) || s.name.toLowerCase().includes(text));
      all += n.services.length;
      // What is routed is drawn first where there is not room for all, and then by name as ever.
      const shown = some.length <= most ? some : [...some.filter((s) => routed.has(s.id)), ...some.filter((s) => !routed.has(s.id))].slice(0, most);
      drawn += some.length;
      return { ...n, drawn: shown, more: some.length - shown.length };
    }).filter((n) => n.drawn.length || (!text && n.proxies));
    filter.status(drawn, all, 'services');
    const plan = layout(islands, width);
    const { places, frames } = plan;
    const g = svg('svg', { width: plan.width, height: plan.height, viewBox: `0 0 ${plan.width} ${plan.height}`, role: 'group', 'aria-label': 'Services by namespace' },
      svg('defs', {}, svg('marker', { id: 'arrow', viewBox: '0 0 8 8', refX: 8, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: 'userSpaceOnUse', orient: 'auto-start-reverse' }, svg('path', { d: 'M0 0L8 4L0 8z', class: 'arrow' }))));
    for (const f of frames) {
      g.append(svg('rect', { x: f.x, y: f.y, width: f.width, height: f.height, rx: 10, class: 'island' }),
        svg('text', { x: f.x + box.pad, y: f.y + 22, class: 'island-name' }, f.island.name), svg('text', { x: f.x + f.width - box.pad, y: f.y + 22, class: 'island-note', 'text-anchor': 'end' }, f.island.proxies === 1 ? '1 proxy' : f.island.proxies + ' proxies'));
      if (f.island.more) g.append(svg('text', { x: f.x + box.pad, y: f.y + f.height - 10, class: 'island-note' }, `${f.island.more} more: filter them`));
    }
    const edges = new Map();
    for (const r of data.routes) {
      const a = places.get(r.from), b = places.get(r.to), key = r.from + ' ' + r.to;
      if (a && b && a !== b && !edges.has(key)) edges.set(key, { a, b, r });
    }
    const list = [...edges.values()];
    route(plan, list).forEach((points, i) => {
      const { r } = list[i];
      g.append(svg('path', { d: curve(points), class: 'route', 'data-from': r.from, 'data-to': r.to, 'marker-end': 'url(#arrow)' }, svg('title', {}, `${short(r.from)} → ${short(r.to)} because of ${r.object} ${r.position ?? ''}`)));
    });
    order = [];
    for (const f of frames) for (const p of f.boxes) {
      const s = p.service;
      order.push(s.id);
      const bad = !s.gateway && s.endpoints > 0 && s.healthy < s.endpoints, none = !s.gateway && s.endpoints === 0;
      const title = s.name.length > 22 ? s.name.slice(0, 21) + '…' : s.name;
      const note = s.gateway ? 'gateway' : s.external && none ? 'external' : `${s.healthy}/${s.endpoints} endpoints` + (s.ports.length ? ` · ${s.ports[0]}` : '');
      const el = svg('g', { class: 'service' + (s.gateway ? ' gateway' : '') + (bad ? ' bad' : none ? ' none' : ''), tabindex: '0', role: 'button', 'aria-label': `${s.gateway ? 'Gateway ' : ''}${s.id}, ${note}`, 'data-id': s.id,
        onclick: () => choose(s.id), onfocus: () => choose(s.id), onkeydown: (e) => { if (e.key === 'Enter') choose(s.id); } },
      svg('rect', { x: p.x, y: p.y, width: box.width, height: box.height, rx: 7 }), svg('text', { x: p.x + 12, y: p.y + 19, class: 'name' }, title), svg('text', { x: p.x + 12, y: p.y + 36, class: 'small' }, note.length > 30 ? note.slice(0, 29) + '…' : note), svg('title', {}, s.id));
      g.append(el);
    }
    const focused = picture.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    fill(picture, islands.length ? g : h('p', { class: 'empty' }, 'There is no service to show.'));
    if (focused) [...picture.querySelectorAll('g.service')].find((s) => s.dataset.id === focused)?.focus({ preventScroll: true });
    if (chosen) choose(chosen);
  }

  aside.append(h('p', { class: 'dim' }, 'Choose a service to see which objects route its calls.'));
  const polling = poll(async (signal) => {
    const { value, changed } = await get('mesh', signal);
    if (!changed && data) return;
    data = value;
    draw();
  }, 2000, failed);
  const resized = new ResizeObserver(() => { if (data) draw(); });
  resized.observe(picture);
  const start = new URLSearchParams(filter.start());
  text = (start.get('q') ?? '').toLowerCase();
  namespace = start.get('namespace') ?? '';
  return {
    element: h('section', { class: 'view mesh', 'aria-label': 'Mesh' }, filter.element, h('div', { class: 'split wide' }, picture, aside)),
    end() { polling.end(); resized.disconnect(); }, changed: (q) => filter.set(q),
    move(n) { if (!order.length) return; const i = Math.min(order.length - 1, Math.max(0, order.indexOf(chosen) + n)); [...picture.querySelectorAll('g.service')][i]?.focus(); },
  };
}
