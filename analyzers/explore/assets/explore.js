'use strict';
// What the keyboard and the clipboard need beyond Dash's own parts.
(() => {
  // A page that is served over plain HTTP to another machine has no clipboard interface: there a selection is copied.
  const bySelection = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    return document.execCommand('copy');
  };
  const copy = async (button) => {
    const node = document.getElementById(button.dataset.copies);
    let done = false;
    try { await navigator.clipboard.writeText(node.textContent); done = true; } catch (refused) { done = bySelection(node); }
    button.textContent = done ? 'Copied' : 'Press Ctrl + C';
    setTimeout(() => { button.textContent = 'Copy'; }, 2000);
  };
  // A text that a spreadsheet would run as a formula gets a quote.
  const safe = (value) => typeof value === 'string' && /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  const write = (id) => dash_ag_grid.getApi(id).exportDataAsCsv({
    fileName: 'logparse-query.csv',
    processCellCallback: (cell) => safe(cell.value),
    processHeaderCallback: (head) => safe(head.column.getColDef().headerName),
  });
  document.addEventListener('click', (event) => {
    const button = event.target.closest('button[data-copies], button[data-exports]');
    if (button?.dataset.copies) copy(button);
    if (button?.dataset.exports) write(button.dataset.exports);
  });
  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter') return;
    if (event.target.id === 'sql-text' && (event.ctrlKey || event.metaKey)) document.getElementById('sql-run').click();
    const row = event.target.closest('#table .ag-row');
    if (row) dash_ag_grid.getApi('table').getRowNode(row.getAttribute('row-id'))?.setSelected(true, true);
  });
})();
