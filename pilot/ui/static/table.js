// A table of any number of rows. Only the rows in sight are there, and only they are asked for.
import { h } from './dom.js';
import { get, poll } from './api.js';

const height = 34; // of a row, as in style.css
const chunk = 100; // rows that are asked for at a time

// Table shows the rows of a path of the API. columns: {title, width, cell(row)}. open(row) is called for the one that is
// chosen.
export class Table {
  constructor({ path, columns, label, open, key, empty, status, failed }) {
    Object.assign(this, { path, columns, open, key, empty, status });
    this.query = '';
    this.chunks = new Map();
    this.total = 0;
    this.at = -1;
    const grid = columns.map((c) => c.width).join(' ');
    this.head = h('div', { class: 'tr head', role: 'row' }, columns.map((c) => h('div', { role: 'columnheader', class: 'td ' + (c.class ?? '') }, c.title)));
    this.body = h('div', { class: 'tbody', role: 'rowgroup' });
    this.scroll = h('div', { class: 'scroll', tabindex: '0', role: 'grid', 'aria-label': label, onscroll: () => this.draw(), onkeydown: (e) => this.key_(e) },
      h('div', { role: 'rowgroup', class: 'thead' }, this.head), this.body);
    this.note = h('p', { class: 'empty', hidden: true });
    this.element = h('div', { class: 'table' }, this.scroll, this.note);
    this.head.style.gridTemplateColumns = grid;
    this.grid = grid;
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.scroll);
    this.polling = poll((signal) => this.load(signal), 1000, failed);
  }

  end() { this.polling.end(); this.resized.disconnect(); }

  filter(query) {
    if (query === this.query) return;
    this.query = query;
    this.chunks.clear();
    this.at = -1;
    this.scroll.scrollTop = 0;
    this.polling.now();
  }

  // range is the rows in sight.
  range() {
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / height) - 5);
    return [first, first + Math.ceil((this.scroll.clientHeight || 600) / height) + 10];
  }

  async load(signal) {
    const query = this.query;
    const [first, last] = this.range();
    const wanted = [];
    for (let c = Math.floor(first / chunk); c <= Math.floor(last / chunk); c++) {
      if (c === 0 || c * chunk < Math.max(this.total, 1)) wanted.push(c);
    }
    for (const c of wanted) {
      const { value, changed } = await get(`${this.path}${this.path.includes('?') ? '&' : '?'}${query}&offset=${c * chunk}&limit=${chunk}`, signal);
      if (query !== this.query) return;
      if (changed || !this.chunks.has(c)) {
        this.chunks.set(c, value.rows);
        this.total = value.total;
        this.all = value.all;
      }
    }
    for (const c of this.chunks.keys()) if (!wanted.includes(c)) this.chunks.delete(c); // they age
    this.status?.(this.total, this.all);
    this.draw();
  }

  row(i) { return this.chunks.get(Math.floor(i / chunk))?.[i % chunk]; }

  draw() {
    const [first, last] = this.range();
    this.body.style.height = this.total * height + 'px';
    this.scroll.setAttribute('aria-rowcount', this.total);
    const out = [];
    let missing = false;
    for (let i = first; i < Math.min(last, this.total); i++) {
      const row = this.row(i);
      if (!row) { // it is on its way
        missing = true;
        const tr = h('div', { class: 'tr', role: 'row', 'aria-busy': 'true', 'aria-rowindex': i + 1 }, h('div', { class: 'td dim', role: 'gridcell' }, '…'));
        tr.style.transform = `translateY(${i * height}px)`;
        out.push(tr);
        continue;
      }
      const tr = h('div', { class: 'tr' + (i === this.at ? ' at' : ''), role: 'row', id: 'row-' + i, 'aria-rowindex': i + 1, 'aria-selected': i === this.at ? 'true' : 'false', onclick: () => { this.at = i; this.choose(); } },
        this.columns.map((c) => h('div', { class: 'td ' + (c.class ?? ''), role: 'gridcell' }, c.cell(row))));
      tr.style.transform = `translateY(${i * height}px)`;
      tr.style.gridTemplateColumns = this.grid;
      out.push(tr);
    }
    this.body.replaceChildren(...out);
    this.note.hidden = this.total > 0 || this.all === undefined;
    this.note.textContent = this.all > 0 ? 'Nothing matches the filter.' : this.empty;
    if (missing) this.polling?.now();
    if (this.at >= 0) this.scroll.setAttribute('aria-activedescendant', 'row-' + this.at);
  }

  choose() { const row = this.row(this.at); this.draw(); if (row) this.open?.(row); }

  move(by) {
    if (!this.total) return;
    this.at = Math.min(this.total - 1, Math.max(0, this.at + by));
    const top = this.at * height, view = this.scroll.clientHeight - height - 4;
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    else if (top + height > this.scroll.scrollTop + view) this.scroll.scrollTop = top + height - view;
    this.draw();
  }

  key_(e) {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -1e9, End: 1e9 }[e.key];
    if (by !== undefined) { e.preventDefault(); e.stopPropagation(); this.move(by); }
    if (e.key === 'Enter' && e.target === this.scroll) { e.stopPropagation(); this.choose(); }
  }
}
