"use strict";
// Everything from the text, the question and the server is put in as text, never as HTML.
const element = id => document.getElementById(id);
const percent = probability => (100 * probability).toFixed(1) + " %";
const isShown = probability => percent(probability) !== percent(0);
const linesOf = text => text.split("\n").filter(line => line.trim() !== "");
const place = found => found.start + "–" + found.end;

// What the page is for, by the task of /info.
//   programs: further paths of the server.   path: where requests go, else "/".
//   hasTexts: the server has the texts, the form takes none.
//   request: the body for what the form holds.   results: the list in the answer, else the answer itself.
//   row: the cells of a result.
//   keepsAll: results with a score near 0 are shown, too.
//   headline: of the chosen result.   marks: which results are marked in the text.
const tasks = {
  "question-answering": {
    heading: "Ask a text", title: "ask a text", button: "Ask", second: "Question", secondRequired: true,
    placeholder: "What does the text answer?",
    example: {
      context: "The Melqueen sails to Norford. Dorla commands the Melqueen. The Melqueen carries silk. " +
        "Since 1742 the Garwind has been at sea.",
      question: "Who is the captain of the Melqueen?",
    },
    request: (context, question) => ({inputs: {question, context}, parameters: {top_k: 10}}),
    caption: "Best answers; select one to see it in the text",
    columns: ["Probability", "Answer", "Characters"],
    row: found => [percent(found.score), found.answer === "" ? "(no answer)" : found.answer,
      found.answer === "" ? "" : place(found)],
    headline: (found, text) => found.answer === "" ? "No answer in this text (" + percent(found.score) + ")"
      : text + " (" + percent(found.score) + ")",
    marks: (all, index) => all[index].answer === "" ? [] : [all[index]],
  },
  "text-classification": {
    heading: "Label a text", title: "label a text", button: "Label", second: "Second text, for a model of pairs",
    example: {context: "A small film with a big heart, and the best hour that I spent this year.", question: ""},
    request: (context, question) => ({inputs: question === "" ? context : {text: context, text_pair: question}}),
    caption: "Labels, the best first",
    columns: ["Score", "Label"],
    results: lists => lists[0],
    row: found => [scoreOf(found.score), found.label],
    headline: found => found.label + " (" + scoreOf(found.score) + ")",
    marks: () => [],
  },
  "token-classification": {
    heading: "Find what a text names", title: "find names", button: "Find",
    example: {context: "Dorla of the Melqueen met Edvin Brask in Norford.", question: ""},
    request: context => ({inputs: context, parameters: {aggregation_strategy: strategy}}),
    caption: "What was found; select one to see it in the text",
    columns: ["Probability", "Type", "Text", "Characters"],
    row: found => [percent(found.score), found.entity_group, found.word, place(found)],
    headline: (found, text) => text + ": " + found.entity_group + " (" + percent(found.score) + ")",
    marks: all => all,
  },
  "feature-extraction": {
    heading: "Compare texts", title: "compare texts", button: "Compare", second: "Text to compare with each line",
    secondRequired: true, keepsAll: true,
    programs: "; for programs: POST /v1/embeddings, /embed and /similarity",
    example: {context: "The ship left the harbour at dawn.\nBread is baked in an oven.\nA ferry sails every morning.",
      question: "When does the boat depart?"},
    request: (context, question) => ({inputs: {source_sentence: question, sentences: linesOf(context)}}),
    caption: "Lines, the most similar first",
    columns: ["Cosine", "Line"],
    results: (cosines, context) => linesOf(context).map((line, i) => ({score: cosines[i], line}))
      .sort((a, b) => b.score - a.score),
    row: found => [found.score.toFixed(3), found.line],
    headline: found => found.line + " (" + found.score.toFixed(3) + ")",
    marks: () => [],
  },
  // Of an embedding model with --corpus: the server has the texts.
  search: {
    heading: "Search texts", title: "search", button: "Search", second: "Query", secondRequired: true,
    placeholder: "What are you looking for?", keepsAll: true, hasTexts: true, path: "/search",
    programs: "; for programs: POST /search, /v1/embeddings, /embed and /similarity",
    request: (context, question) => ({query: question, top_k: 20}),
    caption: "Texts, the most similar first",
    columns: ["Score", "Id", "Text"],
    row: found => [found.score.toFixed(3), found.id, found.text],
    headline: found => found.text + " (" + found.score.toFixed(3) + ")",
    marks: () => [],
  },
};
let task = tasks["question-answering"];

// A probability, or the value of a model with one label: a regression.
const scoreOf = score => isValue ? score.toFixed(3) : percent(score);

let asked = [];   // the text as code points: the server's positions count them, JavaScript's strings count UTF-16 units
let answers = [];  // or labels, or entities
let isValue = false;
let strategy = "first";  // how tokens become words: whole ones, and what the server prefers

function showStatus(text, isError) {
  element("status").textContent = text;
  element("status").className = isError ? "error" : "";
}

// Marks result number `index` in the text, its row in the table, and scrolls to it.
function show(index) {
  const chosen = answers[index];
  const marked = element("marked");
  marked.replaceChildren();
  let end = 0;
  for (const found of task.marks(answers, index)) {
    const mark = document.createElement("mark");
    mark.textContent = asked.slice(found.start, found.end).join("");
    mark.title = (found.entity_group ? found.entity_group + ", " : "") + percent(found.score);
    mark.classList.toggle("chosen", found === chosen);
    marked.append(asked.slice(end, found.start).join(""), mark);
    end = found.end;
    if (found === chosen) mark.scrollIntoView({block: "nearest"});
  }
  marked.append(asked.slice(end).join(""));
  element("answer").textContent = task.headline(chosen, asked.slice(chosen.start, chosen.end).join(""));
  [...element("answers").children].forEach((row, i) => row.classList.toggle("chosen", i === index));
}

function fillTable() {
  element("answers").replaceChildren(...answers.map((answer, index) => {
    const row = document.createElement("tr");
    for (const text of task.row(answer)) row.insertCell().textContent = text;
    row.tabIndex = 0;
    row.addEventListener("click", () => show(index));
    row.addEventListener("keydown", event => { if (event.key === "Enter") show(index); });
    return row;
  }));
}

async function ask() {
  const context = element("context").value;
  element("ask").disabled = true;
  element("result").hidden = true;
  showStatus(task.hasTexts ? "Searching …" : "Reading …", false);
  try {
    const response = await fetch(task.path || "/", {
      method: "POST",
      headers: {"Content-Type": "application/json"},
      body: JSON.stringify(task.request(context, element("question").value)),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    const result = task.results ? task.results(answer, context) : answer;
    asked = Array.from(context);
    isValue = result.length === 1;
    // What would read 0.0 % is no answer that anybody looks for; the best one is shown in any case.
    answers = result.filter((answer, index) => index === 0 || task.keepsAll || isShown(answer.score));
    element("rest").textContent = answers.length < result.length ? "; others have less than 0.05 %" : "";
    if (answers.length === 0) return showStatus("Nothing was found in this text.", false);
    element("result").hidden = false;
    fillTable();
    show(0);
    showStatus("", false);
  } catch (error) {
    showStatus(error.message, true);
  } finally {
    element("ask").disabled = false;
  }
}

element("form").addEventListener("submit", event => { event.preventDefault(); ask(); });

element("try").addEventListener("click", () => {
  element("context").value = task.example.context;
  element("question").value = task.example.question;
  ask();
});

// A model's name for people: the end of a path or of a name on the Hub; if that is not specific, also the part before it.
function titleOf(model) {
  const parts = model.split("/").filter(part => part !== "" && part !== ".");
  const last = parts[parts.length - 1] || model;
  return /^(checkpoint-\d+|model)$/.test(last) && parts.length > 1 ? parts[parts.length - 2] + ", " + last : last;
}

// The words of the form and of the table.
function become(name) {
  task = tasks[name] || task;
  element("heading").textContent = task.heading;
  element("ask").textContent = task.button;
  element("caption").textContent = task.caption;
  element("columns").replaceChildren(...task.columns.map(text => {
    const cell = document.createElement("th");
    cell.textContent = text;
    return cell;
  }));
  for (const name of ["context", "context_label", "example", "marked"]) element(name).hidden = Boolean(task.hasTexts);
  element("context").required = !task.hasTexts;
  element("question").hidden = element("question_label").hidden = !task.second;
  element("question").required = Boolean(task.secondRequired);
  element("question_label").textContent = task.second || "";
  element("question").placeholder = task.placeholder || "";
}

// A link can carry a question, /?question=…&context=…, a text, /?context=…, or ask for the example,
// /?example.
function askWhatTheLinkSays() {
  const query = new URLSearchParams(location.search);
  if (query.has("context")) element("context").value = query.get("context");
  if (query.has("question")) element("question").value = query.get("question");
  if (task.hasTexts && query.has("question")) return ask();
  if (query.has("context") && (query.has("question") || !task.secondRequired)) ask();
  if (query.has("example") && !task.hasTexts) element("try").click();
}

become("question-answering");
fetch("/info").then(response => response.json()).then(info => {
  if (info.task === "text-generation") return startChat(info);
  become(info.corpus ? "search" : info.task);
  if (["first", "average", "max"].includes(info.aggregation_strategy)) strategy = info.aggregation_strategy;
  const title = titleOf(info.model);
  document.title = title + " – " + task.title;
  element("model").textContent = title + ", " + info.parameters.toLocaleString("en") + " parameters" +
    (info.corpus ? ", " + info.corpus.texts.toLocaleString("en") + " texts of " + info.corpus.file : "") +
    (task.programs || "");
  if (task.hasTexts) element("question").focus();
  element("model").title = info.model;
  askWhatTheLinkSays();
});
