// What style sheets cannot do for tables.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.docutils")) {
    // On a phone a row becomes a block: each cell says of which column it is.
    const labels = [...table.querySelectorAll("thead th")].map((th) => th.textContent.trim());
    if (labels.length > 2)
      for (const row of table.querySelectorAll("tbody tr"))
        [...row.cells].forEach((cell, index) => {
          if (index && cell.textContent.trim()) cell.dataset.label = labels[index];
        });
    // Names break between their words, and nowhere else.
    for (const code of table.querySelectorAll("td code")) {
      const texts = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
      const nodes = [];
      while (texts.nextNode()) nodes.push(texts.currentNode);
      for (const node of nodes) {
        const parts = node.data.split(/(?<=\w[_./:,=-])(?=\w)|(?<=[a-z])(?=[A-Z])/);
        node.replaceWith(...parts.flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part])));
      }
    }
  }
});
