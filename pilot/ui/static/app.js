// The page as a whole: views, keys, light and dark.
import { h } from './dom.js';
import { get, poll } from './api.js';
import { mesh } from './mesh.js';
import { proxies, proxy } from './proxies.js';
import { pushes } from './pushes.js';
import { objects, object, findings } from './objects.js';

const views = { mesh, proxies, proxy, pushes, objects, object, findings };
const letters = { m: 'mesh', p: 'proxies', u: 'pushes', o: 'objects', f: 'findings' };
const main = document.getElementById('main');
const status = document.getElementById('status');

let current; // {element, end, move, open, filter}
let namespaces = [];

// place is the view and what it shows, as the address says: #/proxies?q=web
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const [view, ...rest] = path.split('/');
  return { view: Object.hasOwn(views, view) ? view : 'mesh', rest: rest.map(decode), query: new URLSearchParams(query) };
}

// decode returns a part of an address as it was written where it is wrong.
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

let shown;
function show() {
  const at = place();
  const same = at.view + '/' + at.rest.join('/');
  if (shown === same && current?.changed) return current.changed(at.query); // only the filter differs
  shown = same;
  current?.end?.();
  main.replaceChildren();
  current = views[at.view]({ rest: at.rest, query: at.query, failed, namespaces: () => namespaces, update });
  main.replaceChildren(current.element);
  for (const link of document.querySelectorAll('nav a')) {
    if (link.dataset.view === at.view || link.dataset.view === { proxy: 'proxies', object: 'objects' }[at.view]) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = at.view + ' · istiod-lite';
}

// update writes a filter into the address, so that it can be kept and sent on.
function update(query) {
  const at = place();
  for (const [k, v] of [...query]) if (!v) query.delete(k);
  const text = query.toString();
  history.replaceState(null, '', '#/' + [at.view, ...at.rest.map(encodeURIComponent)].join('/') + (text ? '?' + text : ''));
}

let broken = false;
function failed(error) {
  broken = Boolean(error);
  status.classList.toggle('broken', broken);
  if (error) status.textContent = 'The server does not answer: ' + error.message;
}

poll(async (signal) => {
  const { value: s } = await get('summary', signal);
  namespaces = s.namespaces;
  document.getElementById('count-proxies').textContent = s.proxies.all ?? 0;
  document.getElementById('count-pushes').textContent = s.push;
  document.getElementById('count-findings').textContent = (s.findings.error ?? 0) + (s.findings.warning ?? 0) || '';
  document.getElementById('count-findings').className = 'count' + (s.findings.error ? ' error' : s.findings.warning ? ' warning' : '');
  const silent = (s.replicas ?? []).filter((r) => r.error), other = (s.replicas ?? []).filter((r) => r.version && r.version !== s.version);
  const note = document.getElementById('replicas');
  note.hidden = !silent.length && !other.length;
  note.textContent = [...silent.map((r) => `${r.name} did not answer, so what it serves is missing here: ${r.error}`), ...other.map((r) => `${r.name} is of version ${r.version}`)].join(' · ');
  const bad = s.proxies.ERROR ?? 0, stale = s.proxies.STALE ?? 0;
  if (!broken) status.textContent = `${s.version} · revision ${s.revision} · ${s.services} services` + (s.replicas ? ` · ${s.replicas.length} replicas` : '') + (bad ? ` · ${bad} ${bad === 1 ? 'proxy rejects' : 'proxies reject'}` : '') + (stale ? ` · ${stale} on the way` : '');
}, 1000, failed);

// Light and dark: as the system says, until somebody switches.
function theme(next) {
  if (next) localStorage.setItem('theme', next);
  const chosen = localStorage.getItem('theme');
  if (chosen) document.documentElement.dataset.theme = chosen;
}
function switchTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  theme(dark ? 'light' : 'dark');
}
theme();
document.getElementById('theme').addEventListener('click', switchTheme);
const keys = document.getElementById('keys');
document.getElementById('help').addEventListener('click', () => keys.showModal());

let pending = 0; // when g was typed
document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || keys.open) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName);
  if (e.key === 'Escape') {
    e.preventDefault(); // of a filter, this would clear what it shows, and not what it does
    if (typing) e.target.blur();
    else current?.back?.();
    return;
  }
  if (typing) return;
  if (Date.now() - pending < 1500 && letters[e.key]) {
    pending = 0;
    e.preventDefault();
    location.hash = '#/' + letters[e.key];
    return;
  }
  const on = {
    g: () => { pending = Date.now(); },
    '/': () => main.querySelector('input[type=search]')?.focus(),
    j: () => current?.move?.(1), k: () => current?.move?.(-1), ArrowDown: () => current?.move?.(1), ArrowUp: () => current?.move?.(-1),
    Enter: () => current?.choose?.(),
    t: switchTheme, '?': () => keys.showModal(),
  }[e.key];
  const own = e.key === 'Enter' && e.target.closest?.('a, button, summary, [role=button], [role=grid]'); // which does something itself
  if (on && !own) { e.preventDefault(); on(); }
});

window.addEventListener('hashchange', show);
show();
