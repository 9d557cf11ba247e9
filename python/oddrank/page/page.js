// Draws a cell for each rank, and answers keys. Texts go into the page as text only, never as markup.
'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const grid = document.getElementById('grid') || document.createElement('div');
  const about = document.getElementById('rank') || document.createElement('div');
  const FEW = 256;  // cells of more ranks have no number
  const ROWS = 32;  // rows of more hosts stand in several columns

  const ranges = (text) => text ? text.split(',').map((part) => part.split('-').map(Number)) : [];
  const each = (text, visit) => {
    for (const [low, high = low] of ranges(text)) {
      for (let rank = low; rank <= Math.min(high, data.size - 1); rank++) visit(rank);
    }
  };
  const holds = (text, rank) => ranges(text).some(([low, high = low]) => low <= rank && rank <= high);
  const made = (name, text, kind) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };

  const words = new Array(data.size).fill('no findings');
  const kinds = new Array(data.size).fill('fine');
  for (const [word, kind, ranks] of data.states) {
    each(ranks, (rank) => { words[rank] = word; kinds[rank] = kind; });
  }
  const hostOf = new Array(data.size);
  data.hosts.forEach(([, ranks], number) => each(ranks, (rank) => { hostOf[rank] = number; }));

  const cells = [];
  const all = document.createDocumentFragment();
  grid.classList.toggle('few', data.size <= FEW);
  // A row for each host, those of lower ranks first; if no host is known, one row of all ranks.
  const rows = new Map();
  for (let rank = 0; rank < data.size; rank++) {
    const host = hostOf[rank];
    if (!rows.has(host)) {
      const row = made('div', undefined, 'host');
      const name = host === undefined ? 'host unknown' : data.hosts[host][0];
      if (data.hosts.length) row.append(made('b', name));
      row.append(made('div', undefined, 'cells'));
      row.title = data.hosts.length ? name : '';
      rows.set(host, row);
      all.append(row);
    }
    const cell = made('div', data.size <= FEW ? String(rank) : undefined, `cell ${kinds[rank]}`);
    cells.push(cell);
    rows.get(host).lastChild.append(cell);
  }
  grid.append(all);
  const placed = [...grid.querySelectorAll('.cell')];  // in the order in which they are seen
  const rankOf = new Map(cells.map((cell, rank) => [cell, rank]));
  grid.classList.toggle('columns', rows.size > ROWS);
  const most = (measure) => [...rows.values()].reduce((so, row) => Math.max(so, measure(row)), 0);
  grid.style.setProperty('--name', `${Math.min(most((row) => row.title.length), 28)}ch`);
  grid.style.setProperty('--cells', String(Math.min(most((row) => row.lastChild.childElementCount), 16)));

  // A branch is as wide as it has processes, and has the colour of its ranks if that is one.
  for (const branch of document.querySelectorAll('[data-count]')) {
    branch.style.flexGrow = branch.dataset.count;
    const [, ranks] = /^ranks? ([-0-9,]+)/.exec(branch.querySelector('.members').textContent) || [];
    const found = new Set();
    each(ranks, (rank) => found.add(kinds[rank]));
    if (found.size === 1) branch.classList.add(...found);
  }

  const legend = document.getElementById('legend') || document.createElement('p');
  legend.replaceChildren();
  const counts = new Map();
  words.forEach((word, rank) => {
    const row = counts.get(word) || {kind: kinds[rank], count: 0};
    row.count++;
    counts.set(word, row);
  });
  for (const [word, {kind, count}] of counts) {
    const entry = made('span');
    entry.append(made('i', undefined, kind), `${word}: ${count}`);
    legend.append(entry);
  }
  if (data.left_out) legend.append(made('span', `not drawn: ${data.left_out} more`));

  let here = -1;
  const mark = (rank) => {
    if (here >= 0) cells[here].classList.remove('here');
    here = rank;
    cells[rank].classList.add('here');
    const host = hostOf[rank] === undefined ? '' : ` (${data.hosts[hostOf[rank]][0]})`;
    about.replaceChildren(made('p', `rank ${rank}${host}: ${words[rank]}`));
    for (const [text, ranks] of data.notes) {
      if (holds(ranks, rank)) about.append(made('p', text, 'quiet'));
    }
  };
  const show = (rank) => {
    if (rank < 0 || rank >= data.size) return;
    mark(rank);
    cells[rank].scrollIntoView({block: 'nearest'});
    about.scrollIntoView({block: 'nearest'});
  };
  // The first odd rank; else the first rank of all.
  const striking = kinds.flatMap((kind, rank) => kind === 'odd' || kind === 'suspect' ? [rank] : []);
  // Without scrolling: the page opens at its headline.
  if (data.size) {
    mark(kinds.includes('odd') ? kinds.indexOf('odd') : striking[0] || 0);
    grid.scrollTop = cells[here].offsetTop - grid.clientHeight / 2;
  }
  grid.addEventListener('click', (event) => show(rankOf.get(event.target) ?? -1));

  const beside = (by) => {
    const next = placed[placed.indexOf(cells[here]) + by];
    if (next) show(rankOf.get(next));
  };
  const below = (sign) => {  // the nearest cell of the next line; sign -1: of the line above
    const {offsetTop: top, offsetLeft: left} = cells[here];
    let best, least = [Infinity, Infinity];
    for (const cell of placed) {
      const down = sign * (cell.offsetTop - top), aside = Math.abs(cell.offsetLeft - left);
      if (down > 0 && (down < least[0] || (down === least[0] && aside < least[1]))) {
        best = cell;
        least = [down, aside];
      }
    }
    if (best) show(rankOf.get(best));
  };
  const end = (cell) => { if (cell) show(rankOf.get(cell)); };
  const inGrid = {
    ArrowRight: () => beside(1), ArrowLeft: () => beside(-1),
    ArrowDown: () => below(1), ArrowUp: () => below(-1),
    Home: () => end(placed[0]), End: () => end(placed.at(-1)),
  };
  const sections = [...document.querySelectorAll('section')];
  const step = (by) => {
    const now = sections.indexOf(document.activeElement.closest('section'));
    const section = sections[Math.min(Math.max(now < 0 && by < 0 ? 0 : now + by, 0), sections.length - 1)];
    section?.focus();
    section?.scrollIntoView();
  };
  const fold = (open) => {
    document.querySelectorAll('details:not(.frames)').forEach((one) => { one.open = open; });
  };
  const anywhere = {
    n: () => show(striking.find((rank) => rank > here) ?? striking[0] ?? here),
    p: () => show(striking.findLast((rank) => rank < here) ?? striking.at(-1) ?? here),
    j: () => step(1), k: () => step(-1), e: () => fold(true), c: () => fold(false),
  };
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = anywhere[event.key] || (document.activeElement === grid && inGrid[event.key]);
    if (act) {
      act();
      event.preventDefault();
    }
  });
})();
