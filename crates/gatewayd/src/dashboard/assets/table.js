// Tables that become cards on a narrow screen. Each cell has the heading of its column as a label. Roles keep the meaning of
// a table whose elements are displayed as blocks.

const give = (element, role) => element.setAttribute("role", role);

export function prepare(table) {
  give(table, "table");
  for (const group of [table.tHead, table.tBodies[0]]) give(group, "rowgroup");
  give(table.tHead.rows[0], "row");
  for (const head of table.tHead.rows[0].cells) give(head, "columnheader");
}

export function label(table, row) {
  give(row, "row");
  const heads = table.tHead.rows[0].cells;
  [...row.cells].forEach((cell, at) => {
    give(cell, cell.localName === "th" ? "rowheader" : "cell");
    cell.dataset.label = heads[at].textContent;
  });
  return row;
}

// Whether tables are displayed as cards. The style sheet has the same width.
export const narrow = matchMedia("(max-width: 700px)");
