// The line above a table: a filter by text, by namespace and by state, kept in the address.
import { h } from './dom.js';

export function filterLine({ query, states, namespaces, update, changed, label }) {
  const text = h('input', { type: 'search', placeholder: 'Filter  /', 'aria-label': label, value: query.get('q') ?? '', autocomplete: 'off', spellcheck: 'false' });
  const state = states && h('select', { 'aria-label': 'State' }, Object.entries(states).map(([value, title]) => h('option', { value, selected: (query.get('state') ?? '') === value }, title)));
  const namespace = namespaces && h('select', { 'aria-label': 'Namespace' });
  const fill = () => {
    if (!namespace) return;
    const chosen = namespace.value || query.get('namespace') || '';
    const list = ['', ...namespaces()];
    if (chosen && !list.includes(chosen)) list.push(chosen);
    if (namespace.options.length === list.length) return;
    namespace.replaceChildren(...list.map((n) => h('option', { value: n, selected: n === chosen }, n || 'all namespaces')));
  };
  fill();
  const params = () => {
    const q = new URLSearchParams();
    if (text.value) q.set('q', text.value);
    if (namespace?.value) q.set('namespace', namespace.value);
    if (state?.value) q.set('state', state.value);
    return q;
  };
  const apply = () => { const q = params(); changed(q.toString()); update(q); };
  text.addEventListener('input', apply);
  namespace?.addEventListener('change', apply);
  namespace?.addEventListener('focus', fill);
  state?.addEventListener('change', apply);
  const note = h('span', { class: 'note', role: 'status' });
  return {
    element: h('div', { class: 'filter' }, text, namespace, state, note),
    fill, text,
    set(q) {
      text.value = q.get('q') ?? '';
      if (namespace) namespace.value = q.get('namespace') ?? '';
      if (state) state.value = q.get('state') ?? '';
      changed(params().toString());
    },
    start: () => params().toString(),
    status(total, all, what) { note.textContent = total === all ? `${all} ${what}` : `${total} of ${all} ${what}`; fill(); },
  };
}
