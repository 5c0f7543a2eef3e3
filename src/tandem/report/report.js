"use strict";
// Searches and sorts the wrong answers. They are moved and hidden, never made: nothing of the data becomes HTML here.
const list = document.getElementById("mistakes");
const mistakes = [...list.children];
const element = id => document.getElementById(id);
const words = mistakes.map(one => one.textContent.toLowerCase());
const f1 = one => Number(one.dataset.f1);
const question = one => one.querySelector("summary").textContent;
const length = one => one.querySelector(".context").textContent.length;
const orders = {
  order: null,
  worst: (a, b) => f1(a) - f1(b),
  best: (a, b) => f1(b) - f1(a),
  question: (a, b) => question(a).localeCompare(question(b)),
  length: (a, b) => length(a) - length(b),
};

// Every word that was typed must occur somewhere in the entry.
function search() {
  const wanted = element("search").value.toLowerCase().split(/\s+/);
  let found = 0;
  mistakes.forEach((one, i) => {
    one.hidden = !wanted.every(word => words[i].includes(word));
    if (!one.hidden) ++found;
  });
  element("found").textContent = found + " of " + mistakes.length;
}

function sort() {
  const before = orders[element("sort").value];
  list.append(...(before ? [...mistakes].sort(before) : mistakes));
}

element("find").hidden = false;
element("find").addEventListener("submit", event => event.preventDefault());
element("search").addEventListener("input", search);
element("sort").addEventListener("change", sort);
// A link can carry both: report.html#search=ferry&sort=worst
const asked = new URLSearchParams(location.hash.slice(1));
if (asked.has("search")) element("search").value = asked.get("search");
if (orders.hasOwnProperty(asked.get("sort"))) element("sort").value = asked.get("sort");
search();
sort();
