// The last pushes, newest first: what caused each, the time of its stages, and what became of it.
import { h, fill, svg, bytes, clock, duration, name, source } from './dom.js';
import { get, poll } from './api.js';

const stages = [
  ['throttle', 'throttle', (s) => s.throttle],
  ['snapshot', 'snapshot', (s) => s.snapshot],
  ['prepare', 'prepare', (s) => s.prepare],
  ['wait', 'to the first send', (s) => s.firstSend ?? 0],
  ['send', 'to the last send', (s) => Math.max(0, (s.lastSend ?? 0) - (s.firstSend ?? 0))],
  ['ack', 'to the last acknowledgement', (s) => Math.max(0, (s.lastAck ?? 0) - (s.lastSend ?? 0))],
];

function bar(p, longest) {
  const text = stages.map(([, title, of]) => `${title} ${duration(of(p.stages))}`).join(', ');
  const g = svg('svg', { viewBox: '0 0 1000 12', preserveAspectRatio: 'none', role: 'img', 'aria-label': text, class: 'bar' }, svg('title', {}, text));
  let x = 0;
  for (const [id, , of] of stages) {
    const w = (of(p.stages) / longest) * 1000;
    if (w > 0) g.append(svg('rect', { x, y: 0, width: Math.max(w, 1.5), height: 12, class: 'stage-' + id }));
    x += w;
  }
  return g;
}

function timeline(list) {
  const width = 1000, height = 90;
  const g = svg('svg', { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', class: 'timeline', role: 'img', 'aria-label': 'Duration of the last pushes' });
  const longest = Math.max(1, ...list.map((p) => p.stages.total));
  const w = width / Math.max(60, list.length);
  list.forEach((p, i) => {
    const tall = Math.max(2, (Math.log1p(p.stages.total) / Math.log1p(longest)) * (height - 8));
    g.append(svg('rect', { x: i * w + 1, y: height - tall, width: Math.max(1, w - 2), height: tall, class: p.rejected ? 'bad' : p.proxies ? 'good' : 'none' },
      svg('title', {}, `push ${p.id}: ${duration(p.stages.total)}, ${p.proxies} proxies, ${bytes(p.bytes)}`)));
  });
  return g;
}

const quantile = (list, q) => (list.length ? list.toSorted((a, b) => a - b)[Math.min(list.length - 1, Math.floor(q * list.length))] : undefined);

function causes(p, all) {
  const some = all ? p.causes : p.causes.slice(0, 2);
  const more = p.causes.length + (p.more ?? 0) - some.length;
  return [some.map((o, i) => [i ? ', ' : '', all ? h('span', { class: 'line' }, source(o)) : h('span', { title: o.position ?? '' }, name(o) + (o.gone ? ' deleted' : ''))]), more > 0 ? `, ${more} more` : '', p.causes.length ? '' : '–'];
}

const few = 6; // objects that are named

const rejection = (r) => h('div', { class: 'nack' }, h('b', {}, `${r.proxy}${r.count > 1 ? ` and others, ${r.count} times,` : ''} rejected ${r.type.toUpperCase()}: `), r.message,
  r.resources?.length ? h('div', {}, 'in ', r.resources.map((n) => h('code', {}, n + ' '))) : null,
  r.sources?.length ? h('div', {}, 'made of ', r.sources.slice(0, few).map((s) => h('span', { class: 'line' }, source(s), s.changed ? ' which this push changed' : '')), r.sources.length > few ? h('span', { class: 'dim' }, `and ${r.sources.length - few} more`) : null) : null);

export function pushes({ failed, rest }) {
  const top = h('div', { class: 'card' });
  const list = h('ol', { class: 'pushes', 'aria-label': 'Pushes, newest first' });
  let at = -1, open = rest[0] ? Number(rest[0]) : 0, page;

  function details(p) {
    return h('div', { class: 'more' },
      h('dl', { class: 'facts' },
        stages.map(([id, title, of]) => [h('dt', {}, h('i', { class: 'key-of stage-' + id }), title), h('dd', {}, duration(of(p.stages)))]),
        h('dt', {}, 'altogether'), h('dd', {}, duration(p.stages.total))),
      h('dl', { class: 'facts' },
        h('dt', {}, 'acknowledged'), h('dd', {}, `${p.acked} of ${p.proxies} proxies`),
        h('dt', {}, 'rejected'), h('dd', {}, p.rejected), h('dt', {}, 'pending'), h('dd', {}, p.pending), h('dt', {}, 'lost'), h('dd', {}, p.lost),
        p.types.map((t) => [h('dt', {}, t.type.toUpperCase()), h('dd', {}, `${t.resources} resources${t.removed ? `, ${t.removed} removed` : ''}, ${bytes(t.bytes)}`)])),
      h('div', {}, h('b', {}, 'Cause'), h('div', {}, causes(p, true))));
  }

  function draw() {
    const all = page.pushes;
    const newest = all.toReversed();
    const times = all.filter((p) => p.proxies).map((p) => p.stages.total);
    const longest = Math.max(1, ...all.slice(-50).map((p) => p.stages.total));
    fill(top, h('div', { class: 'facts-line' }, h('span', {}, h('b', {}, all.length), ' pushes kept'), h('span', {}, 'median ', h('b', {}, duration(quantile(times, 0.5)))), h('span', {}, '99 % within ', h('b', {}, duration(quantile(times, 0.99)))),
      h('span', {}, h('b', {}, all.reduce((n, p) => n + p.rejected, 0)), ' rejections'),
      h('span', { class: 'legend' }, stages.map(([id, title]) => h('span', {}, h('i', { class: 'key-of stage-' + id }), title)))),
      timeline(all.slice(-120)), page.unprompted.rejections.map(rejection));
    fill(list, ...newest.slice(0, 200).map((p, i) => {
      const li = h('li', { class: i === at ? 'at' : '', 'data-id': p.id },
        h('button', { type: 'button', class: 'push', 'aria-expanded': p.id === open ? 'true' : 'false', onclick: () => { open = open === p.id ? 0 : p.id; at = i; draw(); } },
          h('span', { class: 'id' }, '#' + p.id), h('time', {}, clock(p.time)),
          h('span', { class: 'cause' }, causes(p)),
          h('span', { class: 'number' + (p.rejected ? ' error-text' : '') }, p.proxies ? `${p.acked}/${p.proxies}` : '–'), h('span', { class: 'number' }, p.bytes ? bytes(p.bytes) : '–'), h('span', { class: 'number' }, duration(p.stages.total)), bar(p, longest)),
        p.id === open ? details(p) : null, p.rejections.map(rejection));
      return li;
    }));
    if (!all.length) fill(list, h('li', { class: 'empty' }, 'There was no push yet.'));
  }

  const polling = poll(async (signal) => {
    const { value, changed } = await get('pushes', signal);
    if (!changed && page) return;
    page = value;
    const focused = list.contains(document.activeElement) ? document.activeElement.closest('li')?.dataset.id : null;
    draw();
    if (focused) list.querySelector(`li[data-id="${focused}"] button`)?.focus({ preventScroll: true });
  }, 1000, failed);

  return {
    element: h('section', { class: 'view', 'aria-label': 'Pushes' }, top, h('div', { class: 'pushes-head', 'aria-hidden': 'true' }, ['', 'Time', 'Cause', 'Proxies', 'Bytes', 'Duration', 'Stages'].map((t) => h('span', {}, t))), list),
    end: () => polling.end(),
    move(n) {
      const rows = list.querySelectorAll('li button.push');
      if (!rows.length) return;
      at = Math.min(rows.length - 1, Math.max(0, at + n));
      rows[at].focus();
    },
  };
}
