// Asks the server for JSON. What has not changed is not sent again, and nothing is asked for while nobody looks.

const known = new Map(); // by path: the last answer, with its tag
const most = 200;

let offset = 0; // of the server's clock from this one
export const now = () => Date.now() + offset;

// get returns an answer, and whether it is another than last time.
export async function get(path, signal) {
  const last = known.get(path);
  const response = await fetch('api/' + path, { signal, headers: last ? { 'If-None-Match': last.tag } : {}, cache: 'no-store' });
  const date = Date.parse(response.headers.get('Date'));
  if (Number.isFinite(date) && Math.abs(date - now()) > 2000) offset = date - Date.now();
  if (response.status === 304 && last) return { value: last.value, changed: false };
  if (!response.ok) throw new Error(response.status + ' ' + (await response.text()).trim());
  const value = await response.json();
  known.delete(path);
  known.set(path, { tag: response.headers.get('ETag'), value });
  if (known.size > most) known.delete(known.keys().next().value);
  return { value, changed: true };
}

// poll calls work at once and then every so often, as long as the page is visible. It returns what ends it.
export function poll(work, interval, failed) {
  const control = new AbortController();
  let timer, running = false, again = false;
  const turn = async () => {
    clearTimeout(timer);
    if (control.signal.aborted) return;
    if (running) { again = true; return; }
    if (!document.hidden) {
      running = true;
      try {
        await work(control.signal);
        failed?.(null);
      } catch (error) {
        if (!control.signal.aborted) failed?.(error);
      }
      running = false;
    }
    if (!control.signal.aborted) timer = setTimeout(turn, again ? 0 : interval);
    again = false;
  };
  const shown = () => { if (!document.hidden) turn(); };
  document.addEventListener('visibilitychange', shown);
  turn();
  return { now: turn, end() { control.abort(); clearTimeout(timer); document.removeEventListener('visibilitychange', shown); } };
}
