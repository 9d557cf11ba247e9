// Draws a cell for each rank, and answers keys. Texts go into the page as text only, never as markup.
'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const grid = document.getElementById('grid') || document.createElement('div');
  const about = document.getElementById('rank') || document.createElement('div');
  const FEW = 256;  // of more ranks, cells have no number, and hosts no name

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
  let block, last = -1;
  for (let rank = 0; rank < data.size; rank++) {
    if (!block || hostOf[rank] !== last) {
      last = hostOf[rank];
      block = made('div', undefined, 'host');
      if (last !== undefined && data.size <= FEW) block.append(made('b', data.hosts[last][0]));
      all.append(block);
    }
    const cell = made('div', data.size <= FEW ? String(rank) : undefined, `cell ${kinds[rank]}`);
    cells.push(cell);
    block.append(cell);
  }
  grid.append(all);

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
  if (data.size) mark(kinds.includes('odd') ? kinds.indexOf('odd') : striking[0] || 0);
  grid.addEventListener('click', (event) => show(cells.indexOf(event.target)));

  const perLine = () => {  // cells in the first line, which all lines resemble
    const top = cells[0]?.offsetTop;
    const next = cells.findIndex((cell) => cell.offsetTop !== top);
    return next > 0 ? next : cells.length;
  };
  const inGrid = {
    ArrowRight: () => show(here + 1), ArrowLeft: () => show(here - 1),
    ArrowDown: () => show(Math.min(here + perLine(), data.size - 1)),
    ArrowUp: () => show(Math.max(here - perLine(), 0)),
    Home: () => show(0), End: () => show(data.size - 1),
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
